"""The table of the selection: which operators of the library become opcodes, and how."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lamella.bridge.graph_to_plan.rows import (
    elementwise,
    products,
    quantised,
    transformers,
    upsampling,
    views,
    windows,
)
from lamella.bridge.graph_to_plan.rows.call import Row, RowCall

TABLE: Mapping[str, Row] = MappingProxyType(
    {
        **elementwise.ROWS,
        **products.ROWS,
        **windows.ROWS,
        **views.ROWS,
        **upsampling.ROWS,
        **transformers.ROWS,
        **quantised.ROWS,
    }
)
"""What makes the tasks of each operator."""

__all__ = ["TABLE", "Row", "RowCall"]
