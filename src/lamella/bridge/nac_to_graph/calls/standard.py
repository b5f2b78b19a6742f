"""The standard operations of NAC in the words of ATen: which operation they are follows from their arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from lamella.base.dim import Dim
from lamella.bridge.aten.nodes import Operand
from lamella.bridge.nac_to_graph.nodes import Given, first_tensor

PREFIX = "nac."
PASS, TRANSPOSE = "nac.pass", "nac.transpose"


class Restated(NamedTuple):
    """An operation of ATen, with or without its overload, and its arguments in order."""

    name: str
    given: tuple[Given, ...]


def restate_standard(name: str, given: tuple[Given, ...]) -> Restated:
    """What a `nac.` operation is in ATen."""
    special = _SPECIAL.get(name)
    found = None if special is None else special(given)
    return found or Restated(f"aten.{name.removeprefix(PREFIX)}", given)


def _subtract(given: tuple[Given, ...]) -> Restated | None:
    """A number minus a tensor is a reversed subtraction; what it was before NAC put it in order."""
    if len(given) > 1 and _is_number(given[0].value) and first_tensor(given[1].value) is not None:
        return Restated("aten.rsub.Scalar", (given[1], given[0], *given[2:]))
    return None


def _view(given: tuple[Given, ...]) -> Restated | None:
    """A view without a shape drops dimensions of 1: all of them, or the one that a constant names."""
    if len(given) == 1:
        return Restated("aten.squeeze.default", given)
    if len(given) == 2 and isinstance(given[1].value, int) and not given[1].computed:
        return Restated("aten.squeeze.dim", given)
    return None


def _clone(given: tuple[Given, ...]) -> Restated | None:
    """Newer compilers write `copy(x, y)`, which gives y in the shape of x, as a clone of two tensors."""
    if len(given) > 1 and first_tensor(given[1].value) is not None:
        return Restated("aten.copy.default", given)
    return Restated("aten.clone.default", given[:1])


def _transpose(given: tuple[Given, ...]) -> Restated | None:
    """Without dimensions it swaps the last two."""
    tensor = first_tensor(given[0].value) if given else None
    if len(given) != 1 or tensor is None:
        return None
    if len(tensor.shape) <= 2:
        return Restated("aten.t.default", given)
    last = (Given(-2, computed=False), Given(-1, computed=False))
    return Restated("aten.transpose.int", (*given, *last))


def _arange(given: tuple[Given, ...]) -> Restated | None:
    """As many numbers as lead are the end, start and end, or start, end and step."""
    count = next((place for place, item in enumerate(given) if not _is_number(item.value)), len(given))
    overload = {1: "default", 2: "start", 3: "start_step"}.get(count)
    return None if overload is None else Restated(f"aten.arange.{overload}", given)


def _is_number(value: Operand) -> bool:
    return isinstance(value, int | float | Dim) and not isinstance(value, bool)


_SPECIAL: Mapping[str, Callable[[tuple[Given, ...]], Restated | None]] = MappingProxyType(
    {
        **{"nac.sub": _subtract, "nac.view": _view, "nac.clone": _clone},
        **{"nac.transpose": _transpose, "nac.arange": _arange},
    }
)
