"""Transposed windows as gathers: sums whose steps overlap on their target become sums of which each step has a place.

`y[|s * i + j - p|] += x[i] * w[j]` reaches an element of `y` by several steps. With `j = s * q + r` and `i = u - q`
they are those of one phase `r`, and what reads `x` is an ordinary window:

    t[s * u + r] += x[|u - q|] * w[s * q + r],  r < s;    y[o] = t[o + p]

so that a transposed convolution is a convolution whose filter has a batch for each phase. A filter that `s` does not
divide is filled up with zeros, in a stage of its own, which for a weight runs once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from lamella.bridge.graph_to_kernels.affine import find_form, find_range
from lamella.bridge.graph_to_kernels.groups import GroupFormulas, GroupTensor, MemberFormula
from lamella.bridge.graph_to_kernels.maps import resolve
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Lookup, Loop, Scalar
from lamella.ops.lower import operands

GATHERED = "/gathered"
"""How the name of a tensor ends that holds whole windows of a target."""
FILLED = "/filled"
"""How the name of a factor ends that is filled up with zeros."""


def gather_windows(formulas: GroupFormulas) -> GroupFormulas:
    """The formulas of a group with sums over transposed windows as gathers; others stay as they are."""
    tensors = dict(formulas.tensors)
    found: list[MemberFormula] = []
    for member in formulas.formulas:
        windows = dict(_find_windows(member, tensors))
        if not windows:
            found.append(member)
            continue
        *before, last = _Gathering(member, tensors, windows).run()
        # What the target starts from stays beside what is added to it.
        started = bool(found) and _target_of(found[-1]) == _target_of(member)
        found[len(found) - started : len(found) - started] = before
        found.append(last)
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
    def first(self) -> int:
        """The window in which the first element is."""
        return self.offset // self.stride

    @property
    def count(self) -> int:
        """How many windows the dimension reaches through."""
        return (self.size - 1 + self.offset) // self.stride - self.first + 1

    @property
    def steps(self) -> int:
        """The taps of one phase."""
        return -(-self.taps // self.stride)

    @property
    def shift(self) -> int:
        """Elements before the first one in its window."""
        return self.offset - self.stride * self.first


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
    found = {place: _window(index, size, extents) for place, (index, size) in pairs}
    windows = {place: item for place, item in found.items() if item is not None}
    counted = [name for item in windows.values() for name in (item.place, item.tap)]
    rest = [index for place, index in enumerate(target.indices) if place not in windows]
    if any(isinstance(index, Guard) for index in rest) or len(set(counted)) < len(counted):
        return
    others = {item.name for index in rest for item in _walk(index) if isinstance(item, Index)}
    if all(name in whole for name in counted) and others.isdisjoint(counted):
        yield from windows.items()


def _window(index: Scalar | Guard, size: int, extents: Mapping[str, int]) -> TransposedWindow | None:
    """The window that an index of a target is; None where every element has steps of its own."""
    form = None
    if isinstance(index, Guard) and index.below is None and index.above is None:
        form = find_form(index.index, extents)
    if form is None or len(form.terms) != 2 or form.constant > 0 or min(n for _, n in form.terms) != 1:
        return None
    (tap, one), (place, other) = sorted(form.terms, key=lambda item: extents[item[0]])
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


@dataclass(slots=True)
class _Gathering:
    """A sum over transposed windows while it is rewritten."""

    member: MemberFormula
    tensors: dict[str, GroupTensor]
    windows: Mapping[int, TransposedWindow]
    names: dict[tuple[str, int | None], str] = field(default_factory=dict)
    fills: list[MemberFormula] = field(default_factory=list)
    _known: dict[int, Scalar] = field(default_factory=dict)

    def run(self) -> list[MemberFormula]:
        """The factors that are filled up, the sum of whole windows, and the part of it that the target is."""
        self.names.update(self.member.names)
        formula = self.member.contraction
        (target,) = formula.targets
        held = self.tensors[resolve(self.member.names, target)]
        shape = tuple(
            self.windows[place].count * self.windows[place].stride if place in self.windows else size
            for place, size in enumerate(held.shape)
        )
        values = tuple(self._scalar(item) for item in formula.values)
        indices = tuple(self._written(place, index) for place, index in enumerate(target.indices))
        shifts = [self.windows[place].shift if place in self.windows else 0 for place in range(len(shape))]
        if shape == held.shape and not any(shifts):
            sums = replace(formula, targets=(replace(target, indices=indices),))
            return [*self.fills, self._made(replace(sums, values=values, loops=tuple(self._loops())))]
        name = f"{held.name}{GATHERED}"
        self.tensors[name] = GroupTensor(name, held.element, shape)
        self.names[GATHERED, None] = name
        gathered = Element(GATHERED, indices, target.type)
        total = Contraction((gathered,), "+=", values, tuple(self._loops()))
        return [*self.fills, self._made(total), self._made(_part(target, held, shifts))]

    def _made(self, formula: Contraction) -> MemberFormula:
        return MemberFormula(formula, self.names)

    def _loops(self) -> Iterator[Loop]:
        """Loops over windows, phases and the taps of a phase for those over places and taps."""
        by_place = {item.place: item for item in self.windows.values()}
        by_tap = {item.tap: item for item in self.windows.values()}
        for loop in self.member.contraction.loops:
            if loop.index in by_place:
                window = by_place[loop.index]
                yield Loop(window.place, window.count)
                yield Loop(_phase(window), window.stride)
            elif loop.index in by_tap:
                yield Loop(loop.index, by_tap[loop.index].steps)
            else:
                yield loop

    def _written(self, place: int, index: Scalar | Guard) -> Scalar | Guard:
        window = self.windows.get(place)
        return index if window is None else _sum((window.place, window.stride), (_phase(window), 1))

    def _scalar(self, term: Scalar) -> Scalar:
        if not isinstance(term, Apply | Element | Lookup):
            return term
        if id(term) not in self._known:
            self._known[id(term)] = self._rebuilt(term)
        return self._known[id(term)]

    def _rebuilt(self, term: Apply | Element | Lookup) -> Scalar:
        if isinstance(term, Apply):
            return replace(term, operands=tuple(map(self._scalar, term.operands)))
        if isinstance(term, Lookup):
            return Lookup(tuple(map(self._scalar, term.table)), self._scalar(term.index), term.type)
        element = self._filled(term)
        return replace(element, indices=tuple(self._read(item) for item in element.indices))

    def _read(self, index: Scalar | Guard) -> Scalar | Guard:
        """The index of a factor: the place `u + first - dilation * q`, or the tap `stride * q + r`."""
        for window in self.windows.values():
            if index == Index(window.place):
                parts = _sum((window.place, 1), (window.tap, -window.dilation), constant=window.first)
                return Guard(parts)
            if index == Index(window.tap):
                return _sum((window.tap, window.stride), (_phase(window), 1))
        return index

    def _filled(self, element: Element) -> Element:
        """An element of a factor that has a tap for every step of every phase: of its own, or filled up."""
        held = self.tensors[resolve(self.member.names, element)]
        short = {
            place: window.steps * window.stride
            for place, index in enumerate(element.indices)
            for window in self.windows.values()
            if index == Index(window.tap) and window.taps < window.steps * window.stride
        }
        if not short:
            return element
        name = f"{held.name}{FILLED}"
        if name not in self.tensors:
            self.tensors[name] = replace(
                held, name=name, shape=tuple(short.get(place, size) for place, size in enumerate(held.shape))
            )
            self.fills.append(self._fill(element, held, name, short))
        self.names[name, None] = name
        return replace(element, tensor=name, item=None)

    def _fill(
        self, element: Element, held: GroupTensor, name: str, short: Mapping[int, int]
    ) -> MemberFormula:
        """A copy of a factor with zeros behind it."""
        loops = [Loop(f"f{place}", short.get(place, size)) for place, size in enumerate(held.shape)]
        places = tuple(Index(loop.index) for loop in loops)
        read = tuple(Guard(item) if place in short else item for place, item in enumerate(places))
        copy = Contraction(
            (Element(name, places, element.type),), "+=", (replace(element, indices=read),), tuple(loops)
        )
        return MemberFormula(copy, {**self.member.names, (name, None): name})


def _phase(window: TransposedWindow) -> str:
    return f"{window.place}~"


def _sum(*parts: tuple[str, int], constant: int = 0) -> Scalar:
    """The term of an affine form."""
    found: Scalar | None = None
    for name, factor in parts:
        part: Scalar = Index(name) if factor == 1 else Apply("*", (Index(name), factor), "int")
        found = part if found is None else Apply("+", (found, part), "int")
    if found is None or constant == 0:
        return constant if found is None else found
    return Apply("+", (found, constant), "int")


def _part(target: Element, held: GroupTensor, shifts: list[int]) -> Contraction:
    """The target as a part of what was gathered."""
    loops = tuple(Loop(f"o{place}", size) for place, size in enumerate(held.shape))
    places = tuple(Index(loop.index) for loop in loops)
    read = tuple(
        Apply("+", (index, shift), "int") if shift else index
        for index, shift in zip(places, shifts, strict=True)
    )
    gathered = Element(GATHERED, read, target.type)
    return Contraction((replace(target, indices=places),), "+=", (gathered,), loops)
