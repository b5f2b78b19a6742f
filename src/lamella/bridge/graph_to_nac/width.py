"""`d_model`, the one number of the header that is not a count.

It is the width of the first embedding table that the graph reads. Without one it is the last extent of the first
floating parameter that is an operand of a matrix product, as it is or transposed: the inputs of a linear layer. A graph
that has neither has no such number, which is written as 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamella.base.dim import Extent
from lamella.bridge.graph_to_nac.calls.replay import Said, Spoken, flat_calls
from lamella.bridge.graph_to_nac.calls.said import tensors_of
from lamella.graph.nodes import Tensor

_TABLES = frozenset(("aten.embedding",))
_PRODUCTS = frozenset(
    (
        *(f"aten.{name}" for name in ("linear", "addmm", "mm", "bmm", "matmul", "baddbmm", "mv")),
        *("nn.linear", "linalg.matmul"),
    )
)
_TURNS = frozenset(("aten.t", "aten.transpose", "aten.permute", "layout.transpose"))


def model_width(spoken: Sequence[Spoken], variables: Sequence[Tensor]) -> int:
    """The number for the header; 0 where nothing is known."""
    sources, calls = {item.name: item for item in variables}, list(flat_calls(spoken))
    for call in calls:
        if call.operator in _TURNS and isinstance(call.result, Tensor):
            found = next((item for item in tensors_of(call.saying) if item.name in sources), None)
            if found is not None:
                sources[call.result.name] = sources[found.name]
    tables = _parameters(calls, sources, _TABLES)
    products = (item for item in _parameters(calls, sources, _PRODUCTS) if item.element.is_float)
    first = next(tables, None) or next(products, None)
    return 0 if first is None else _known(first.shape[-1:])


def _parameters(
    calls: Sequence[Said], sources: dict[str, Tensor], operators: frozenset[str]
) -> Iterator[Tensor]:
    """The parameters that calls of some operators read."""
    for call in calls:
        if call.operator in operators:
            found = (sources[item.name] for item in tensors_of(call.saying) if item.name in sources)
            yield from (item for item in found if len(item.shape) > 1)


def _known(extents: Sequence[Extent]) -> int:
    return next((item for item in extents if isinstance(item, int)), 0)
