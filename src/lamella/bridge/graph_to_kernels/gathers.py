"""Transposed convolutions as gathers: steps that overlap on their target become a sum for each element.

`y[|s * i + j - p|] += x[i] * w[j]` reaches an element of `y` by several steps. With `j = s * q + r` and `i = u - q`
they are those of one phase `r`, and what reads `x` is an ordinary window:

    t[s * u + r] += x[|u - q|] * w[s * q + r],  r < s;    y[o] = t[o + p]

so that a transposed convolution is a convolution whose filter has a batch for each phase. Steps whose place `u - q` is
none are skipped by the guard of an access, so there must be one: `y[|s * i + j - p|] += x[i]` gathers by `i`, whichever
loop is longer, and a formula that reads at neither `i` nor `j` stays as it is. Where `s` does not divide the taps,
phases have different numbers of them, and each is a sum of its own:

    t[u] += x[|u - q|] * w[s * q + r];    y[s * u + r - p] = t[u]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import find_form, find_range
from lamella.bridge.graph_to_kernels.groups import GroupFormulas, GroupTensor, MemberFormula
from lamella.bridge.graph_to_kernels.maps import find_map, resolve, writers_of
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Lookup, Loop, Scalar
from lamella.ops.lower import operands

GATHERED = "/gathered"
"""How the name of a tensor ends that holds whole windows of a target."""
MOST_PHASES = 16
"""Phases that are sums of their own."""


def gather_windows(formulas: GroupFormulas) -> GroupFormulas:
    """The formulas of a group with scattering sums (transposed convolutions) rewritten as gathers; others unchanged."""
    tensors = dict(formulas.tensors)
    found: list[MemberFormula] = []
    for member in formulas.formulas:
        windows = dict(_find_windows(member, tensors))
        if not windows:
            found.append(member)
            continue
        goes_on = _target_of(member) in writers_of(found)
        start = found.pop() if found and _target_of(found[-1]) == _target_of(member) else None
        gathering = _Gathering(member, start, tensors, windows, goes_on)
        found += gathering.together() if gathering.is_even else gathering.apart()
    return GroupFormulas(tuple(found), tensors, formulas.constants)


def _target_of(member: MemberFormula) -> str:
    return resolve(member.names, member.contraction.targets[0])


@dataclass(frozen=True, slots=True)
class TransposedWindow:
    """A dimension of a target at `stride * place + dilation * tap - offset`, one of the factors being 1."""

    place: str
    tap: str
    stride: int
    dilation: int
    offset: int
    size: int
    """The size of the dimension."""
    taps: int

    @property
    def shift(self) -> int:
        """Elements before the first one in its window."""
        return self.offset % self.stride

    def first(self, phase: int) -> int:
        """The first window that has an element of a phase."""
        return -((phase - self.offset) // self.stride)

    def count(self, phase: int) -> int:
        """How many windows have one."""
        return (self.size - 1 + self.offset - phase) // self.stride - self.first(phase) + 1

    def steps(self, phase: int) -> int:
        """The taps of a phase."""
        return -(-max(0, self.taps - phase) // self.stride)


def _find_windows(
    member: MemberFormula, tensors: Mapping[str, GroupTensor]
) -> Iterator[tuple[int, TransposedWindow]]:
    """The dimensions of a formula's target that windows overlap on, none where the formula is no such sum."""
    formula = member.contraction
    extents = {loop.index: loop.extent for loop in formula.loops if isinstance(loop.extent, int)}
    if (
        formula.sign != "+="
        or formula.condition is not None
        or len(formula.targets) != 1
        or len(extents) < len(formula.loops)
        or 0 in extents.values()
    ):
        return
    target = formula.targets[0]
    shape = tensors[resolve(member.names, target)].shape
    whole = _whole_loops(member, tensors, extents)
    pairs = list(enumerate(zip(target.indices, shape, strict=True)))
    read = [item for item in _walk(*formula.values) if isinstance(item, Element)]
    if any(0 in tensors[resolve(member.names, item)].shape or item.tensor == target.tensor for item in read):
        return
    tested = {index.name for item in read for index in item.indices if isinstance(index, Index)}
    found = {place: _window(index, size, extents, tested) for place, (index, size) in pairs}
    windows = {place: item for place, item in found.items() if item is not None}
    counted = [name for item in windows.values() for name in (item.place, item.tap)]
    rest = [index for place, index in enumerate(target.indices) if place not in windows]
    if any(isinstance(index, Guard) for index in rest) or len(set(counted)) < len(counted):
        return
    others = {item.name for index in rest for item in _walk(index) if isinstance(item, Index)}
    even = all(item.taps % item.stride == 0 for item in windows.values())
    few = even or prod(item.stride for item in windows.values()) <= MOST_PHASES
    if few and all(name in whole for name in counted) and others.isdisjoint(counted):
        yield from windows.items()


def _window(
    index: Scalar | Guard, size: int, extents: Mapping[str, int], tested: Collection[str]
) -> TransposedWindow | None:
    """The window that an index of a target is; None where every element has steps of its own.

    The longer loop counts places, if it is one of those whose index is `tested` where something is read.
    """
    form = None
    if isinstance(index, Guard) and index.below is None and index.above is None:
        form = find_form(index.index, extents)
    if form is None or len(form.terms) != 2 or form.constant > 0 or min(n for _, n in form.terms) != 1:
        return None
    (tap, one), (place, other) = sorted(form.terms, key=lambda item: (item[0] in tested, extents[item[0]]))
    if place not in tested:
        return None
    bounds = find_range(index.index, extents) if isinstance(index, Guard) else None
    inside = bounds is not None and bounds[0] >= 0 and bounds[1] < size
    if inside and extents[tap] == other and size == extents[tap] * extents[place]:
        return None  # windows side by side
    dilation, stride = (one, 1) if other == 1 else (1, other)
    return TransposedWindow(place, tap, stride, dilation, -form.constant, size, extents[tap])


def _whole_loops(
    member: MemberFormula, tensors: Mapping[str, GroupTensor], extents: Mapping[str, int]
) -> set[str]:
    """The loops that stand in a formula's values only as the index of a dimension which they count through."""
    found = set(extents)
    for item in _walk(*member.contraction.values):
        if isinstance(item, Element):
            sizes = tensors[resolve(member.names, item)].shape
            for index, size in zip(item.indices, sizes, strict=True):
                plain = index.name if isinstance(index, Index) else None
                if plain is None or extents[plain] != size:
                    found -= {part.name for part in _walk(index) if isinstance(part, Index)}
        elif not isinstance(item, Index):
            found -= {part.name for part in operands(item) if isinstance(part, Index)}
    return found - {item.name for item in member.contraction.values if isinstance(item, Index)}


def _walk(*roots: object) -> Iterator[object]:
    """Every term and guard below some, each once."""
    done: set[int] = set()
    waiting = list(roots)
    while waiting:
        term = waiting.pop()
        if id(term) not in done:
            done.add(id(term))
            yield term
            waiting += operands(term)


# --- the formulas -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Gathering:
    """A sum over transposed windows while it is rewritten."""

    member: MemberFormula
    start: MemberFormula | None
    """What its target holds before."""
    tensors: dict[str, GroupTensor]
    windows: Mapping[int, TransposedWindow]
    goes_on: bool
    """Whether a formula before, be it the last one or another, writes to its target."""

    @property
    def is_even(self) -> bool:
        """Whether all phases have as many taps."""
        return all(item.taps % item.stride == 0 for item in self.windows.values())

    @property
    def target(self) -> Element:
        """The element that is written."""
        return self.member.contraction.targets[0]

    @property
    def held(self) -> GroupTensor:
        """The tensor that is written."""
        return self.tensors[_target_of(self.member)]

    def together(self) -> Iterator[MemberFormula]:
        """The sum of whole windows, all phases in one, and the part of it that the target is."""
        held = self.held
        shape, shifts = list(held.shape), [0] * len(held.shape)
        for place, window in self.windows.items():
            whole = (window.size - 1 + window.offset) // window.stride - window.offset // window.stride + 1
            shape[place], shifts[place] = whole * window.stride, window.shift
        phases = {
            place: _Phase(window, None, window.offset // window.stride, shape[place] // window.stride)
            for place, window in self.windows.items()
        }
        before = [] if self.start is None else [self.start]
        if tuple(shape) == held.shape and not any(shifts):
            yield from (*before, MemberFormula(self._sum(phases, self.target), self.member.names))
            return
        names = self._gathered("", shape)
        yield MemberFormula(self._sum(phases, Element(GATHERED, (), self.target.type)), names)
        # What the target starts from stays beside what is added to it.
        yield from before
        yield MemberFormula(_part(self.target, held, shifts), names)

    def apart(self) -> Iterator[MemberFormula]:
        """A sum for each phase, and the elements of the target that it is."""
        places = list(self.windows)
        choices = [range(item.stride) for item in self.windows.values()]
        before = _Start.find(self.start, self.held.shape)
        if self.start is not None and before is None:
            yield self.start
        for number, chosen in enumerate(product(*choices)):
            phases = {
                place: _Phase(window, phase, window.first(phase), window.count(phase))
                for place, window, phase in zip(places, self.windows.values(), chosen, strict=True)
            }
            if all(item.count > 0 for item in phases.values()):
                yield from self._phase(f"/{number}", phases, before)

    def _phase(
        self, word: str, phases: Mapping[int, _Phase], before: _Start | None
    ) -> Iterator[MemberFormula]:
        held = self.held
        shape = [phases[place].count if place in phases else size for place, size in enumerate(held.shape)]
        empty = any(item.window.steps(item.phase or 0) == 0 for item in phases.values())
        loops = tuple(Loop(f"o{place}", size) for place, size in enumerate(shape))
        read = tuple(Index(loop.index) for loop in loops)
        written = tuple(
            phases[place].element(index) if place in phases else index for place, index in enumerate(read)
        )
        value: Scalar = 0.0 if self.target.type == "real" else 0
        names = dict(self.member.names)
        if not empty:
            names = self._gathered(word, shape)
            yield MemberFormula(self._sum(phases, Element(GATHERED, (), self.target.type)), names)
            value = Element(GATHERED, read, self.target.type)
        target = replace(self.target, indices=written)
        if before is not None:
            value = Apply("+", (before.value(written), value), self.target.type)
            names = {**before.member.names, **names}
        sign = "+=" if self.goes_on and before is None else "="
        if not empty or sign == "=":
            yield MemberFormula(Contraction((target,), sign, (value,), loops), names)

    def _gathered(self, word: str, shape: Sequence[int]) -> dict[tuple[str, int | None], str]:
        """A tensor for what is gathered, and the names with it."""
        name = f"{self.held.name}{word}{GATHERED}"
        while name in self.tensors:  # another sum goes to the same target
            name += "'"
        self.tensors[name] = GroupTensor(name, self.held.element, tuple(shape))
        return {**self.member.names, (GATHERED, None): name}

    def _sum(self, phases: Mapping[int, _Phase], target: Element) -> Contraction:
        """The sum of some phases into a target, which has an index for each dimension of the formula's."""
        formula = self.member.contraction
        indices = tuple(
            phases[place].written() if place in phases else index
            for place, index in enumerate(self.target.indices)
        )
        known: dict[int, Scalar] = {}
        values = tuple(_rebuilt(item, list(phases.values()), known) for item in formula.values)
        loops = [part for loop in formula.loops for part in _loops(loop, list(phases.values()))]
        return Contraction((replace(target, indices=indices),), "+=", values, tuple(loops))


@dataclass(frozen=True, slots=True)
class _Phase:
    """One phase of a window, or all of them in one sum."""

    window: TransposedWindow
    phase: int | None
    first: int
    """The window that the loop over places begins with."""
    count: int

    @property
    def loop(self) -> str:
        """The loop over all phases."""
        return f"{self.window.place}~"

    def written(self) -> Scalar:
        """The index of what is gathered."""
        if self.phase is not None:
            return Index(self.window.place)
        return _affine((self.window.place, self.window.stride), (self.loop, 1))

    def element(self, index: Index) -> Scalar:
        """The index of the target at a step of a phase."""
        constant = self.window.stride * self.first + (self.phase or 0) - self.window.offset
        return _affine((index.name, self.window.stride), constant=constant)

    def place(self) -> Guard:
        """The index of what is read: `u + first - dilation * q`."""
        window = self.window
        return Guard(_affine((window.place, 1), (window.tap, -window.dilation), constant=self.first))

    def tap(self) -> Scalar:
        """The index of the filter: `stride * q + phase`."""
        parts = (self.window.tap, self.window.stride)
        return _affine(parts, (self.loop, 1)) if self.phase is None else _affine(parts, constant=self.phase)


@dataclass(frozen=True, slots=True)
class _Start:
    """A map that a sum goes on from, each of whose loops counts through a dimension of its target."""

    member: MemberFormula

    @classmethod
    def find(cls, member: MemberFormula | None, shape: Sequence[int]) -> _Start | None:
        """The map that a formula is; None where it is no such one."""
        if member is None or len(member.contraction.targets) > 1 or find_map(member, 0, shape) is None:
            return None
        formula = member.contraction
        names = [item.name for item in formula.targets[0].indices if isinstance(item, Index)]
        counted = sorted(names) == sorted(loop.index for loop in formula.loops)
        return cls(member) if counted and len(names) == len(shape) else None

    def value(self, indices: Sequence[Scalar]) -> Scalar:
        """Its value at a place."""
        formula = self.member.contraction
        names = [item.name for item in formula.targets[0].indices if isinstance(item, Index)]
        return _replaced(formula.values[0], dict(zip(names, indices, strict=True)), {})


def _replaced(term: Scalar, indices: Mapping[str, Scalar], known: dict[int, Scalar]) -> Scalar:
    """A term with others for its indices."""
    if isinstance(term, Index):
        return indices[term.name]
    if not isinstance(term, Apply | Element | Lookup):
        return term
    if id(term) not in known:
        known[id(term)] = _mapped(
            term,
            lambda item: _replaced(item, indices, known),
            lambda item: (
                replace(item, index=_replaced(item.index, indices, known))
                if isinstance(item, Guard)
                else _replaced(item, indices, known)
            ),
        )
    return known[id(term)]


def _rebuilt(term: Scalar, phases: Sequence[_Phase], known: dict[int, Scalar]) -> Scalar:
    """A value of the formula as one of a gather."""
    if not isinstance(term, Apply | Element | Lookup):
        return term
    if id(term) not in known:
        known[id(term)] = _mapped(
            term, lambda item: _rebuilt(item, phases, known), lambda item: _read(item, phases)
        )
    return known[id(term)]


def _mapped(
    term: Apply | Element | Lookup,
    inner: Callable[[Scalar], Scalar],
    index: Callable[[Scalar | Guard], Scalar | Guard],
) -> Scalar:
    """A term with its parts, and the indices of an element, replaced."""
    if isinstance(term, Apply):
        return replace(term, operands=tuple(map(inner, term.operands)))
    if isinstance(term, Lookup):
        return Lookup(tuple(map(inner, term.table)), inner(term.index), term.type)
    return replace(term, indices=tuple(map(index, term.indices)))


def _read(index: Scalar | Guard, phases: Sequence[_Phase]) -> Scalar | Guard:
    for item in phases:
        if index == Index(item.window.place):
            return item.place()
        if index == Index(item.window.tap):
            return item.tap()
    return index


def _loops(loop: Loop, phases: Sequence[_Phase]) -> Iterator[Loop]:
    """Loops over windows, phases and the taps of a phase for those over places and taps."""
    for item in phases:
        if loop.index == item.window.place:
            yield Loop(loop.index, item.count)
            if item.phase is None:
                yield Loop(item.loop, item.window.stride)
            return
        if loop.index == item.window.tap:
            yield Loop(loop.index, item.window.steps(item.phase or 0))
            return
    yield loop


def _affine(*parts: tuple[str, int], constant: int = 0) -> Scalar:
    """The term of an affine form."""
    found: Scalar | None = None
    for name, factor in parts:
        part: Scalar = Index(name) if factor == 1 else Apply("*", (Index(name), factor), "int")
        found = part if found is None else Apply("+", (found, part), "int")
    if found is None or constant == 0:
        return constant if found is None else found
    return Apply("+", (found, constant), "int")


def _part(target: Element, held: GroupTensor, shifts: Sequence[int]) -> Contraction:
    """The target as a part of what was gathered."""
    loops = tuple(Loop(f"o{place}", size) for place, size in enumerate(held.shape))
    places = tuple(Index(loop.index) for loop in loops)
    read = tuple(
        _affine((index.name, 1), constant=shift) for index, shift in zip(places, shifts, strict=True)
    )
    gathered = Element(GATHERED, read, target.type)
    return Contraction((replace(target, indices=places),), "+=", (gathered,), loops)
