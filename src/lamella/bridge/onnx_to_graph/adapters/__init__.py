"""How each operator of ONNX becomes operations of a graph, by domain and name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lamella.bridge.onnx_to_graph.adapters.elementwise import ELEMENTWISE
from lamella.bridge.onnx_to_graph.adapters.layout import LAYOUT
from lamella.bridge.onnx_to_graph.adapters.networks import NETWORKS
from lamella.bridge.onnx_to_graph.adapters.table import Adapter, Key, adapters
from lamella.bridge.onnx.nodes import MAIN_DOMAIN

_MAIN = {**ELEMENTWISE, **LAYOUT, **NETWORKS}
ADAPTERS: Mapping[Key, Adapter] = MappingProxyType(
    {**adapters(), **{(MAIN_DOMAIN, name): adapter for name, adapter in _MAIN.items()}}
)
"""Every adapter; those written in Python come before lines of the table."""
