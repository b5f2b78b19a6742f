"""Biases as the initial value of accumulators.

`y = relu(b[i] + s[i, j])` with `s += a * x` is `y = relu(s)` with a sum that begins at `b[i]`: an addition less for
each element, and no register for the bias while the epilogue runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lamella.bridge.graph_to_kernels.accesses import Access
from lamella.bridge.graph_to_kernels.tiled import Epilogue
from lamella.ops.formula import Apply, Contraction, Element, Index
from lamella.ops.formula import Scalar as Term
from lamella.ops.lower import operands, reachable


def bias_as_initial_sum(
    epilogues: Sequence[Epilogue], tensor: str, accesses: Mapping[int, Access], columns: Sequence[str]
) -> tuple[tuple[Epilogue, ...], Epilogue | None]:
    """The epilogues without a bias, and the bias as initial value; it must be the same along `columns`."""
    if len(epilogues) != 1:
        return tuple(epilogues), None
    end, start = epilogues[0], list[Term]()
    while (found := _find_addition(end.formula, tensor)) is not None:
        sum_, added = found[0].operands
        if _is_sum(added, tensor):
            sum_, added = added, sum_
        if not set(columns).isdisjoint(_loops_of(added, end, accesses)):
            break
        start += [added] if added != 0.0 else []
        rest = _replaced(end.formula.values[0], found, sum_)
        end = replace(end, formula=replace(end.formula, values=(rest,)))
    if not start:
        return (end,), None
    whole = start[0]
    for item in start[1:]:
        whole = Apply("+", (whole, item), "real")
    return (end,), replace(end, formula=replace(end.formula, values=(whole,)))


def _is_sum(term: Term, tensor: str) -> bool:
    return isinstance(term, Element) and term.tensor == tensor


def _find_addition(formula: Contraction, tensor: str) -> list[Apply] | None:
    """The additions, all of them the same, that alone read the sum."""
    readers = [
        item
        for item in reachable(*formula.values)
        if any(isinstance(part, Element) and part.tensor == tensor for part in operands(item))
    ]
    additions = [item for item in readers if isinstance(item, Apply) and item.function == "+"]
    alike = [item for item in additions if item.operands == additions[0].operands]
    once = bool(additions) and sum(_is_sum(item, tensor) for item in additions[0].operands) == 1
    return alike if once and len(alike) == len(readers) and additions[0].type == "real" else None


def _loops_of(term: Term, end: Epilogue, accesses: Mapping[int, Access]) -> Iterator[str]:
    waiting: list[object] = [term]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Element):
            yield from accesses[id(item)].loops()
        elif isinstance(item, Index):
            yield from end.loops[item.name].symbols
        else:
            waiting += operands(item)


def _replaced(term: Term, old: Sequence[Apply], new: Term) -> Term:
    """A term with some of its parts replaced; parts that are shared stay shared."""
    done: dict[int, Term] = {id(item): new for item in old}
    waiting: list[Term] = [term]
    while waiting:
        item = waiting[-1]
        if id(item) in done or not isinstance(item, Apply):
            done.setdefault(id(item), item)
            waiting.pop()
            continue
        open_ = [part for part in item.operands if id(part) not in done]
        if open_:
            waiting += open_
            continue
        parts = tuple(done[id(part)] for part in item.operands)
        same = all(one is other for one, other in zip(parts, item.operands, strict=True))
        done[id(item)] = item if same else replace(item, operands=parts)
        waiting.pop()
    return done[id(term)]
