"""Operators that ONNX has too: one function for each, tried before decomposition and formulas."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lamella.bridge.graph_to_onnx.direct import (
    codes,
    images,
    layouts,
    networks,
    orders,
    products,
    quantisation,
)
from lamella.bridge.graph_to_onnx.direct.call import Call, Row

DIRECT: Mapping[str, Row] = MappingProxyType(
    {
        name: row
        for part in (layouts, images, orders, products, networks, quantisation, codes)
        for name, row in part.ROWS.items()
    }
)
"""The functions by the names of the operators."""

__all__ = ["DIRECT", "Call", "Row"]
