"""How each operator of ONNX becomes operations of a graph, by domain and name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lamella.bridge.onnx.nodes import MAIN_DOMAIN
from lamella.bridge.onnx_to_graph.adapters.algebra import ALGEBRA
from lamella.bridge.onnx_to_graph.adapters.attention import ATTENTION
from lamella.bridge.onnx_to_graph.adapters.elementwise import ELEMENTWISE
from lamella.bridge.onnx_to_graph.adapters.flow import FLOW
from lamella.bridge.onnx_to_graph.adapters.images import IMAGES
from lamella.bridge.onnx_to_graph.adapters.layout import LAYOUT
from lamella.bridge.onnx_to_graph.adapters.microsoft import DOMAIN, MICROSOFT
from lamella.bridge.onnx_to_graph.adapters.networks import NETWORKS
from lamella.bridge.onnx_to_graph.adapters.quantised import QUANTISED
from lamella.bridge.onnx_to_graph.adapters.recurrent import RECURRENT
from lamella.bridge.onnx_to_graph.adapters.table import Adapter, Key, adapters

_MAIN = {
    **ELEMENTWISE,
    **LAYOUT,
    **NETWORKS,
    **FLOW,
    **ATTENTION,
    **RECURRENT,
    **QUANTISED,
    **IMAGES,
    **ALGEBRA,
    # onnxruntime's optimiser writes this one without a domain.
    "SimplifiedLayerNormalization": MICROSOFT["SimplifiedLayerNormalization"],
}
ADAPTERS: Mapping[Key, Adapter] = MappingProxyType(
    {
        **adapters(),
        **{(MAIN_DOMAIN, name): adapter for name, adapter in _MAIN.items()},
        **{(DOMAIN, name): adapter for name, adapter in MICROSOFT.items()},
    }
)
"""Every adapter; those written in Python come before lines of the table."""
