"""How each operator of ONNX becomes operations of a graph, by domain and name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from lamella.base.paths import read_shipped
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
from lamella.bridge.onnx_to_graph.site import NodeSite, Results
from lamella.graph.nodes import Tensor

TABLE = "ops/tables/onnx.csv"
Adapter = Callable[[NodeSite], Results]
Key = tuple[str, str]
"""The domain and the name of an operator."""


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """An operator of ONNX, the one of ours that it is, and attributes: ours, ONNX's, and the default."""

    domain: str
    operator: str
    ours: str
    attributes: tuple[tuple[str, str, float], ...]


@cache
def rows() -> tuple[OperatorRow, ...]:
    """All lines of the table."""
    lines = read_shipped(TABLE).splitlines()[1:]
    return tuple(_row(line) for line in lines if line)


def _row(line: str) -> OperatorRow:
    domain, operator, ours, attributes = line.split(",")
    return OperatorRow(domain, operator, ours, tuple(_attribute(item) for item in attributes.split()))


def _attribute(text: str) -> tuple[str, str, float]:
    ours, _, rest = text.partition("=")
    theirs, _, default = rest.partition(":")
    return ours, theirs, float(default)


def plain(site: NodeSite, row: OperatorRow) -> Tensor:
    """A call with the inputs as they are."""
    given = {ours: site.real(theirs, default) for ours, theirs, default in row.attributes}
    return site.call(row.ours, *site.tensors(), **given)


def adapters() -> Mapping[Key, Adapter]:
    """An adapter for each line."""
    return MappingProxyType({(row.domain, row.operator): _adapter(row) for row in rows()})


def _adapter(row: OperatorRow) -> Adapter:
    return lambda site: plain(site, row)


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
