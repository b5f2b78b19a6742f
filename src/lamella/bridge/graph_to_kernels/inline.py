"""Producer inlining: pointwise formulas are substituted into their readers; what is left is a short list of stages.

A *map* is a pointwise producer: it writes each element of one tensor once, from a formula without a condition. Where
its tensor is read, its value can stand instead, with its loop indices replaced by the index terms of the read. What
stays a stage of its own: reductions, tensors that leave the group, tensors that several formulas write, and maps that
are cheaper to compute once.

    conv, bias, relu   acc += x * w;  y = max(acc + b, 0)
    softmax            m >= x;  e = exp(x - m);  s += e;  y = e / s
    layer norm         t += x;  v += (x - t / n) ** 2;  y = (x - t / n) / sqrt(v / n + eps) * g + b
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from math import prod
from types import MappingProxyType

from lamella.base.affine import Affine
from lamella.base.dtype import F8E4M3, F8E5M2, F32, F64, ElementType, Kind
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import Form
from lamella.bridge.graph_to_kernels.factors import find_decoded
from lamella.bridge.graph_to_kernels.gathers import gather_windows
from lamella.bridge.graph_to_kernels.groups import (
    Constants,
    Group,
    GroupFormulas,
    GroupTensor,
    MemberFormula,
    group_formulas,
)
from lamella.bridge.graph_to_kernels.maps import MapFormula, find_map, resolve, separate_starts, writers_of
from lamella.bridge.graph_to_kernels.substitution import TermTable
from lamella.bridge.graph_to_kernels.terms import POWERS, ROUND
from lamella.ops.formula import Apply, Contraction, Counter, Element, Guard, Index, Lookup, Loop, Scalar
from lamella.ops.library import Library
from lamella.ops.lower import reachable

DEEPEST = 150
"""Terms inside each other in one value: whoever walks it may recurse."""
MOST_TERMS = 1500
"""Terms of one stage."""
BYTES = (F8E4M3, F8E5M2)
"""Types of reals that are codes: nothing computes in them."""

# --- what is cheaper to compute once: in units of one vector instruction ------------------------------------

COSTS: Mapping[str, int] = MappingProxyType(
    {
        **{"/": 6, "%": 10, "\\": 10, "sqrt": 6, "**": 30, "neg": 0, "cast": 1},
        **dict.fromkeys(("exp", "log", "sin", "cos", "tan", "erf", "tanh", "asin", "acos", "atan"), 16),
        **dict.fromkeys(("sinh", "cosh", "asinh", "acosh", "atanh"), 20),
    }
)
MEMORY_COST = 4
"""What it costs to write an element that is computed once, and to read it again."""
LEAST_GAIN = 50
"""A map becomes a stage of its own where that saves one in so many parts of the work of the group."""


def cost_of(term: Apply) -> int:
    """The cost model: what a function costs."""
    if term.function == "**" and term.operands[1] in (1.0, *POWERS):
        return 2
    return COSTS.get(term.function, 1)


@dataclass(frozen=True, slots=True)
class Stages:
    """A group as contractions over its tensors, each after those whose results it reads."""

    contractions: tuple[Contraction, ...]
    tensors: Mapping[str, GroupTensor]
    """Every tensor that a contraction names; those that are neither inputs nor outputs live inside the group."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Constants = field(default_factory=dict)
    """Tensors whose elements are known before the run."""
    wide: bool = False
    """Whether reals are computed in 64 bits: a tensor is of that type, be it one that stands in its readers."""

    borders: frozenset[str] = frozenset()
    """What groups make that they are a chain of."""

    @property
    def temporaries(self) -> tuple[str, ...]:
        """The tensors that live inside the group, in the order in which they are written."""
        named = dict.fromkeys(item.tensor for stage in self.contractions for item in stage.targets)
        return tuple(name for name in named if name not in self.outputs)


def inline(
    library: Library, group: Group, extents: Mapping[str, int] | None = None, wide: bool = False
) -> Stages:
    """The stages of a group; Unsupported where a member has no formula or its shapes are not known.

    Between the stages nothing is rounded but as the members do: an inlined value of a narrow type is inside `to type`.
    """
    formulas = separate_starts(gather_windows(group_formulas(library, group, extents, wide)))
    outputs = tuple(item.name for item in group.outputs)
    stages = _Inlining(formulas, frozenset(outputs), group.borders).run()
    named = {name for stage in stages for name in _names(stage)} | set(outputs)
    return Stages(
        tuple(stages),
        {name: item for name, item in formulas.tensors.items() if name in named},
        tuple(item.name for item in group.inputs if item.name in named),
        outputs,
        {name: value for name, value in formulas.constants.items() if name in named},
        any(item.element == F64 for item in formulas.tensors.values()),
        group.borders,
    )


def _names(stage: Contraction) -> Iterator[str]:
    roots = (*stage.targets, *stage.values, stage.condition)
    return (item.tensor for item in reachable(*roots) if isinstance(item, Element))


# --- substitution -------------------------------------------------------------------------------------------


class _StaysError(Exception):
    """A tensor whose value cannot stand in one of its readers."""

    def __init__(self, tensor: str) -> None:
        super().__init__(tensor)
        self.tensor = tensor


class _SplitError(Exception):
    """A loop that must be two, the inner one of an extent, so that the digits of an index are loops."""

    def __init__(self, loop: str, inner: int) -> None:
        super().__init__(loop)
        self.loop = loop
        self.inner = inner


@dataclass(slots=True)
class _Frame:
    """A formula that is written out at one place: what its indices are there."""

    tensor: str
    names: Mapping[tuple[str, int | None], str]
    indices: Mapping[str, Scalar | Guard] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The sizes that tested indices are tested against."""
    guarded: set[str] = field(default_factory=set)
    """Tested indices that an access inside tests."""
    depth: int = 0
    known: dict[int, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Use:
    """A map written out in a stage: its value, and the work of all its terms."""

    root: Scalar
    work: int
    evaluations: int


class _Inlining:
    """The stages of a group while they are made."""

    def __init__(self, formulas: GroupFormulas, outputs: frozenset[str], borders: frozenset[str]) -> None:
        self.formulas = formulas
        self.outputs = outputs
        self.borders = borders
        self.maps = self._find_maps()

    def _find_maps(self) -> dict[str, MapFormula]:
        found: dict[str, MapFormula] = {}
        for name, places in writers_of(self.formulas.formulas).items():
            if len(places) == 1 and name not in self.outputs | self.borders:
                number, place = places[0]
                shape = self.formulas.tensors[name].shape
                map_ = find_map(self.formulas.formulas[number], place, shape)
                if map_ is not None:
                    found[name] = map_
        return found

    def run(self) -> list[Contraction]:
        """Substitute as much as is worth it."""
        while True:
            try:
                stages, uses, work = self._substitute()
            except _StaysError as problem:
                del self.maps[problem.tensor]
                continue
            gains = {name: self._gain(name, items) for name, items in uses.items()}
            best = max(gains, key=lambda name: gains[name], default=None)
            if best is None or gains[best] * LEAST_GAIN <= work:
                return self._live(stages)
            del self.maps[best]

    def _substitute(self) -> tuple[list[Contraction], dict[str, list[_Use]], int]:
        stages: list[Contraction] = []
        uses: dict[str, list[_Use]] = {}
        work = 0
        for member in self.formulas.formulas:
            for part in self._stages_of(member):
                writing, stage = self._write(part)
                stages.append(stage)
                work += writing.total(stage)
                for name, found in writing.uses().items():
                    uses.setdefault(name, []).extend(found)
        return stages, uses, work

    def _write(self, member: MemberFormula) -> tuple[_StageWriter, Contraction]:
        """A formula as a stage, its loops split as the tensors that it reads through others want it."""
        splits: dict[str, int] = {}
        while True:
            writing = _StageWriter(self.formulas, self.maps, member, splits)
            try:
                return writing, writing.stage()
            except _SplitError as problem:
                splits[problem.loop] = problem.inner

    def _stages_of(self, member: MemberFormula) -> Iterator[MemberFormula]:
        """The formula as far as it stays: of one with several targets those that no map is for."""
        formula = member.contraction
        stays = [resolve(member.names, item) not in self.maps for item in formula.targets]
        if all(stays):
            yield member
        elif any(stays):
            pairs = [
                pair
                for pair, kept in zip(zip(formula.targets, formula.values, strict=True), stays, strict=True)
                if kept
            ]
            targets, values = tuple(one for one, _ in pairs), tuple(other for _, other in pairs)
            kept = Contraction(targets, formula.sign, values, formula.loops, formula.condition)
            yield MemberFormula(kept, member.names)

    def _gain(self, name: str, uses: Sequence[_Use]) -> int:
        """How much work it saves to materialise a map rather than to recompute it in its readers."""
        if all(find_decoded(item.root, scaled=True) is not None for item in uses):
            return 0  # Codes are what should be read from memory, however often.
        volume = self.formulas.tensors[name].volume
        reads = sum(item.evaluations for item in uses)
        once = min(item.work * min(volume, item.evaluations) // max(item.evaluations, 1) for item in uses)
        return sum(item.work for item in uses) - once - MEMORY_COST * (volume + reads)

    def _live(self, stages: Sequence[Contraction]) -> list[Contraction]:
        """The live stages (dead-code elimination)."""
        needed, found = set(self.outputs), list[Contraction]()
        for stage in reversed(stages):
            if any(item.tensor in needed for item in stage.targets):
                found.append(stage)
                needed.update(_names(stage))
        return found[::-1]


class _StageWriter:
    """One formula while the maps that it reads are written out in it."""

    def __init__(
        self,
        formulas: GroupFormulas,
        maps: Mapping[str, MapFormula],
        member: MemberFormula,
        splits: Mapping[str, int],
    ) -> None:
        self.formulas = formulas
        self.maps = maps
        self.member = member
        self.formula = member.contraction
        extents = {loop.index: loop.extent for loop in self.formula.loops}
        known = {name: extent for name, extent in extents.items() if isinstance(extent, int)}
        if len(known) < len(extents):
            raise Unsupported("an extent is not known before the run")
        self.splits = splits
        self.extents: dict[str, int] = {}
        forms = {name: self._open(name, extent) for name, extent in known.items()}
        self.table = TermTable(self.extents)
        self.indices = {name: self.table.affine(form) for name, form in forms.items()}
        self.order = self._nested()
        self.conditions: list[Scalar] = []
        """Tests of indices that no access makes any more."""
        self.frames: dict[object, Scalar] = {}
        self.written: dict[str, list[Scalar]] = {}

    def _open(self, name: str, extent: int) -> Form:
        """Open the loop of an index, none where it has one step and two where it is split; gives the index."""
        if extent == 1:
            return Affine()
        inner = self.splits.get(name)
        if inner is not None:
            outer = self._open(f"{name}/", extent // inner)
            return outer.times(inner) + self._open(f"{name}%", inner)
        self.extents[name] = extent
        return Affine(0, ((name, 1),))

    def _nested(self) -> list[str]:
        """The loops as they will run: those of the target in the order of its dimensions, then the others."""
        frame = _Frame("", self.member.names, self.indices)
        target = self._target(self.formula.targets[0], frame)
        inside = dict.fromkeys(
            name
            for index in target.indices
            for name, _ in sorted(self._terms_of(index), key=lambda item: -item[1])
        )
        return [*inside, *(name for name in self.extents if name not in inside)]

    def _terms_of(self, index: Scalar | Guard) -> Sequence[tuple[str, int]]:
        form = None if isinstance(index, Guard) else self.table.form(index)
        return () if form is None else form.terms

    def stage(self) -> Contraction:
        """The formula over tensors of the group."""
        formula = self.formula
        frame = _Frame("", self.member.names, self.indices)
        targets = tuple(self._target(item, frame) for item in formula.targets)
        values = tuple(self._scalar(item, frame) for item in formula.values)
        condition = None if formula.condition is None else self._scalar(formula.condition, frame)
        for test in dict.fromkeys(self.conditions):
            condition = test if condition is None else self.table.apply("&&", (test, condition), "bool")
        loops = tuple(Loop(name, extent) for name, extent in self.extents.items())
        found = Contraction(targets, formula.sign, values, loops, condition)
        if self.written and sum(1 for _ in reachable(*targets, *values, condition)) > MOST_TERMS:
            raise _StaysError(next(iter(self.written)))
        return found

    def _target(self, target: Element, frame: _Frame) -> Element:
        indices = [self._index(item, frame, 0) for item in target.indices]
        return Element(resolve(frame.names, target), tuple(indices), target.type)

    # --- terms ----------------------------------------------------------------------------------------------

    def _scalar(self, term: Scalar, frame: _Frame) -> Scalar:
        if isinstance(term, Index):
            found = frame.indices.get(term.name, term)
            if isinstance(found, Guard):
                # A skipped step computes nothing, so that any value does; a replaced index must be an access.
                if None not in (found.below, found.above):
                    raise _StaysError(frame.tensor)
                return found.index
            return found
        if isinstance(term, Counter):
            raise Unsupported("it counts its steps")
        if not isinstance(term, Apply | Element | Lookup):
            return term
        if id(term) not in frame.known:
            frame.known[id(term)] = self._rebuild(term, frame)
        return frame.known[id(term)]

    def _rebuild(self, term: Apply | Element | Lookup, frame: _Frame) -> Scalar:
        if isinstance(term, Element):
            return self._element(term, frame)
        if isinstance(term, Lookup):
            table = [self._scalar(item, frame) for item in term.table]
            return self.table.lookup(table, self._scalar(term.index, frame), term.type)
        return self.table.apply(
            term.function, [self._scalar(item, frame) for item in term.operands], term.type
        )

    def _index(self, index: Scalar | Guard, frame: _Frame, size: int) -> Scalar | Guard:
        """The index of an access to a dimension of a size."""
        if isinstance(index, Guard):
            sides = [
                None if item is None else self._scalar(item, frame) for item in (index.below, index.above)
            ]
            inner = self._scalar(index.index, frame)
            self._test_bare(index.index, frame)
            return Guard(inner, sides[0], sides[1])
        if isinstance(index, Index):
            found = frame.indices.get(index.name, index)
            if isinstance(found, Guard) and frame.sizes[index.name] == size:
                frame.guarded.add(index.name)
                return found
        self._test_bare(index, frame)
        return self._scalar(index, frame)

    def _test_bare(self, index: Scalar, frame: _Frame) -> None:
        """Refuse an access that would be tested no more, or against another size."""
        tested = {name for name, item in frame.indices.items() if isinstance(item, Guard)}
        if tested and any(isinstance(item, Index) and item.name in tested for item in reachable(index)):
            raise _StaysError(frame.tensor)

    def _element(self, element: Element, frame: _Frame) -> Scalar:
        name = resolve(frame.names, element)
        held = self.formulas.tensors[name]
        value = self.formulas.constants.get(name)
        if value is not None and not isinstance(value, tuple):
            for index, size in zip(element.indices, held.shape, strict=True):
                self._test(self._index(index, frame, size), size)
            return self._literal(value, element.type, held.element)
        pairs = zip(element.indices, held.shape, strict=True)
        indices = [self._index(item, frame, size) for item, size in pairs]
        if name in self.maps:
            return self._write_out(name, indices, frame.depth)
        return self.table.element(name, indices, element.type)

    def _literal(self, value: object, type_: str, element: ElementType) -> Scalar:
        if not isinstance(value, bool | int | float):
            raise Unsupported("it computes with strings or with extents that the run tells")
        number = {"real": float, "int": int, "bool": bool}[type_](value)
        return self._rounded(number, element)

    def _write_out(self, name: str, indices: Sequence[Scalar | Guard], depth: int) -> Scalar:
        """The value of a map at a place."""
        key = (name, *map(self.table.key, indices))
        if key not in self.frames:
            self.frames[key] = self._value(name, indices, depth + 1)
            self.written.setdefault(name, []).append(self.frames[key])
        return self.frames[key]

    def _value(self, name: str, indices: Sequence[Scalar | Guard], depth: int) -> Scalar:
        map_, held = self.maps[name], self.formulas.tensors[name]
        if depth * 4 > DEEPEST or (map_.risky and not self._takes_all(indices, held.shape)):
            raise _StaysError(name)
        found: dict[str, Scalar | Guard] = {
            loop.index: 0 for loop in map_.member.contraction.loops if loop.extent == 1
        }
        sizes: dict[str, int] = {}
        for number, loop_name in map_.whole.items():
            found[loop_name], sizes[loop_name] = indices[number], held.shape[number]
        counted = {*map_.whole, *map_.split}
        if any(isinstance(item, Guard) and number not in map_.whole for number, item in enumerate(indices)):
            raise _StaysError(name)
        for number in counted - set(map_.whole):
            found.update(self._split(name, indices[number], map_.split[number]))
        frame = _Frame(name, map_.member.names, found, sizes, depth=depth)
        value = self._scalar(map_.value, frame)
        for key, size in sizes.items():
            if key not in frame.guarded:
                self._test(found[key], size)
        return self._rounded(self._widened(value, held.element), held.element)

    def _widened(self, value: Scalar, element: ElementType) -> Scalar:
        """Codes that a cast widens, as that: a product with a scale then says which factor is the codes."""
        widens = isinstance(value, Element) and self.formulas.tensors[value.tensor].element in BYTES
        return self.table.apply("cast", (value,), "real") if widens and element == F32 else value

    def _test(self, index: Scalar | Guard, size: int) -> None:
        """Skip the steps that a tested index skips whose access is not there any more."""
        if not isinstance(index, Guard) or self.table.is_within(index.index, size):
            return
        for side, sign, bound in ((index.below, ">=", 0), (index.above, "<", size)):
            if side is None:
                self.conditions.append(self.table.apply(sign, (index.index, bound), "bool"))

    def _takes_all(self, indices: Sequence[Scalar | Guard], shape: Sequence[int]) -> bool:
        """Whether the steps of the stage read every element, so that none that has no value goes unseen."""
        names = [item.name for item in indices if isinstance(item, Index)]
        plain = all(
            isinstance(item, Index) or (item == 0 and size == 1)
            for item, size in zip(indices, shape, strict=True)
        )
        sizes = [self.extents[item.name] for item in indices if isinstance(item, Index)]
        wanted = [size for size in shape if size != 1]
        return plain and len(set(names)) == len(names) and sizes == wanted and self.formula.condition is None

    def _split(
        self, name: str, index: Scalar | Guard, parts: Sequence[tuple[str, int, int]]
    ) -> Iterator[tuple[str, Scalar]]:
        """The loops of a dimension that several count: quotients and remainders of its index."""
        if isinstance(index, Guard) or self.table.form(index) is None:
            raise _StaysError(name)
        for number, (loop, stride, extent) in enumerate(parts):
            whole = self.table.apply("/", (index, stride), "int")
            found = whole if number == 0 else self.table.apply("%", (whole, extent), "int")
            if self.table.form(found) is None:
                self._ask_for_split(index, (stride, stride * extent))
                raise _StaysError(name)
            yield loop, found

    def _ask_for_split(self, index: Scalar, strides: Sequence[int]) -> None:
        """Ask for the loop that counts across a stride to be two: one counts up to the stride, one beyond it."""
        form = self.table.form(index)
        for stride in strides:
            for name, factor in () if form is None else form.terms:
                inner = stride // factor if factor > 0 and stride % factor == 0 else 1
                if 1 < inner < self.extents[name] and self.extents[name] % inner == 0:
                    raise _SplitError(name, inner)

    def _rounded(self, value: Scalar, element: ElementType) -> Scalar:
        """A value as a tensor of a type holds it."""
        if element in (F32, F64) or element.kind is Kind.BOOL:
            return value
        if isinstance(value, Element) and self.formulas.tensors[value.tensor].element == element:
            return value
        type_ = "real" if element.is_float else "int"
        cast = isinstance(value, Apply) and value.function == "cast"
        if element.is_integer and element.bits == 64 and not cast:
            return value
        return self.table.apply(f"{ROUND}{element.name}", (value,), type_)

    # --- work -----------------------------------------------------------------------------------------------

    def total(self, stage: Contraction) -> int:
        """The work of the whole stage."""
        return sum(map(self._work, reachable(*stage.values, *stage.targets, stage.condition)))

    def uses(self) -> dict[str, list[_Use]]:
        """The maps that were written out, each place with its work."""
        return {
            name: [
                _Use(root, sum(map(self._work, reachable(root))), self._evaluations(root)) for root in roots
            ]
            for name, roots in self.written.items()
        }

    def _work(self, term: object) -> int:
        weight = cost_of(term) if isinstance(term, Apply) else int(isinstance(term, Element))
        if isinstance(term, Apply) and term.type == "int" and self.table.form(term) is not None:
            weight = 0
        return weight * self._evaluations(term) if weight else 0

    def _evaluations(self, term: object) -> int:
        """How often a term is computed: inside the loops of the target down to the last that it depends on."""
        inside = {item.name for item in reachable(term) if isinstance(item, Index)}
        last = max((place for place, name in enumerate(self.order) if name in inside), default=-1)
        return prod(self.extents[name] for name in self.order[: last + 1])
