"""Chains of groups that are computed some rows at a time: what lies between them never leaves the cache.

    a 1x1 convolution with many channels, a depthwise one over windows of it, and the 1x1 convolution behind that

The tensor of many channels is written and read again at the speed of memory where it is larger than a cache. A kernel
that computes some of its rows, their windows, and what is made of those, needs it a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamella.base.dtype import F32
from lamella.graph.nodes import Operation, Tensor
from lamella.graph.passes.fuse.kinds import Kind, Read
from lamella.graph.passes.fuse.machine import Machine
from lamella.graph.passes.fuse.parts import Part
from lamella.graph.rewrite import operands_of, results_of

MOST_TAPS = 64
"""Products of an element beyond which a convolution with windows is worth other ways of computing it."""
RANK = 4
Unit = Sequence[int]


def find_strips(
    part: Part, units: Sequence[Unit], machine: Machine, apart: Sequence[frozenset[int]] = ()
) -> list[tuple[Unit, ...]]:
    """Chains of units, two or three each, none of which shares a unit with another, or one that is to stay apart."""
    owner = {number: unit for unit in units for number in unit}
    found: list[tuple[Unit, ...]] = []
    taken: set[int] = set()
    for unit in units:
        chain = _chain(part, unit, owner, machine)
        inside = {number for item in chain for number in item}
        wrong = any(inside & members and not inside <= members for members in apart)
        if chain and not wrong and taken.isdisjoint(item[0] for item in chain):
            taken.update(item[0] for item in chain)
            found.append(chain)
    return found


def _chain(part: Part, middle: Unit, owner: dict[int, Unit], machine: Machine) -> tuple[Unit, ...]:
    """The chain round a unit that sums up windows; nothing where there is none."""
    contraction = _contraction(part, middle)
    if contraction is None or part.facts[contraction].windows < 0 or part.static[contraction]:
        return ()
    source = part.sources(contraction)[part.facts[contraction].windows]
    maker = part.makers.get(source.name)
    first = () if maker is None else owner.get(maker, ())
    if not first or not _is_image(source, machine) or not _makes(part, first, source, middle):
        return ()
    if not _has_weight(part, contraction, source) or not _is_narrow(part, first):
        return ()
    last = _follower(part, middle, owner)
    return (first, middle, last) if last else (first, middle)


def _contraction(part: Part, unit: Unit) -> int | None:
    """The one contraction of a unit whose other members are maps."""
    if not all(isinstance(part.nodes[number], Operation) for number in unit):
        return None
    found = [number for number in unit if part.facts[number].kind is Kind.CONTRACT]
    rest = [number for number in unit if part.facts[number].kind not in (Kind.CONTRACT, Kind.MAP, Kind.VIEW)]
    return found[0] if len(found) == 1 and not rest else None


def _is_image(tensor: Tensor, machine: Machine) -> bool:
    """Whether a tensor is an image of channels that is larger than the cache."""
    sizes = [size for size in tensor.shape if isinstance(size, int)]
    if len(sizes) != len(tensor.shape) or len(sizes) != RANK or sizes[0] != 1 or tensor.element != F32:
        return False
    return 4 * sizes[1] * sizes[2] * sizes[3] > machine.cache and tensor.quantization is None


def _makes(part: Part, unit: Unit, tensor: Tensor, reader: Unit) -> bool:
    """Whether all that leaves a unit is a tensor, which another one alone reads."""
    visible = [
        item.name
        for number in unit
        for item in results_of(part.nodes[number])
        if part.is_visible(item.name, unit)
    ]
    return visible == [tensor.name] and not part.is_visible(tensor.name, (*unit, *reader))


def _has_weight(part: Part, contraction: int, source: Tensor) -> bool:
    others = [item for item in operands_of(part.nodes[contraction]) if item.name != source.name]
    return bool(others) and all(part.is_static(item.name) for item in others)


def _moving(part: Part, contraction: int) -> Iterator[Read]:
    """The accesses of a contraction to what changes from run to run."""
    sources = part.sources(contraction)
    return (item for item in part.facts[contraction].reads if not part.is_static(sources[item.source].name))


def _is_narrow(part: Part, unit: Unit) -> bool:
    """Whether a unit is a contraction with weights, without windows or of few products an element."""
    contraction = _contraction(part, unit)
    if contraction is None or part.static[contraction]:
        return False
    reads = list(_moving(part, contraction))
    return len(reads) == 1 and (not reads[0].guarded or reads[0].reduced <= MOST_TAPS)


def _follower(part: Part, middle: Unit, owner: dict[int, Unit]) -> Unit:
    """The contraction that alone reads what a unit makes, place by place; nothing where there is none."""
    names = [
        item.name
        for number in middle
        for item in results_of(part.nodes[number])
        if part.is_visible(item.name, middle)
    ]
    readers = {
        id(owner[number]): owner[number] for number in part.readers.get(names[0], ()) if number in owner
    }
    if len(names) != 1 or names[0] in part.visible or len(readers) != 1:
        return ()
    unit = next(iter(readers.values()))
    contraction = _contraction(part, unit)
    if contraction is None or part.readers.get(names[0]) != [contraction]:
        return ()
    reads = list(_moving(part, contraction))
    sources = part.sources(contraction)
    plain = len(reads) == 1 and sources[reads[0].source].name == names[0] and not reads[0].guarded
    return unit if plain and part.facts[contraction].windows < 0 else ()
