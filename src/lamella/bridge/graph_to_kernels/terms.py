"""Code generation of terms: each is emitted where the loops it depends on are open (loop-invariant code motion)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace

from lamella.base.dtype import F32, F64, I4, ElementType, Kind
from lamella.base.dtype import I64 as WIDE_INTEGER
from lamella.base.dtype import find as find_element
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import find_range, find_truth, is_integer
from lamella.bridge.graph_to_kernels.functions import I64, apply, convert
from lamella.kernels.build import Builder
from lamella.kernels.launches import Layout, dense_layout
from lamella.lang.tensor.nodes import AtomicUpdate, If, Scalar, Value, Yield
from lamella.lang.tensor.nodes.types import BOOL, INDEX, STORED_FLOATS
from lamella.ops.formula import Apply, Element, Guard, Index, Lookup
from lamella.ops.formula import Scalar as Term
from lamella.ops.lower import operands

NARROW = {"bool": "i8", "i4": "i8", "u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64"}
"""Element types of graphs that the tensor language has not, and what holds their bits."""
STORED = ("i8", "i16", "i32", "i64", *STORED_FLOATS, "f16", "bf16", "f32", "f64")
ROUND = "to "
"""`to f16` is the function that rounds as a tensor of that type does when it holds a value."""
POWERS = (2.0, 3.0, 4.0)
"""Exponents for which products are faster than `pow`."""
SMALLEST_DIVISOR = 1e-30
"""Divisors beyond this have a reciprocal that is no normal number in every type."""
LONGEST_TABLE = 64
MOST_TERMS = 3000
"""Terms of one kernel; one that several branches need is written in each, so that nesting may multiply them."""


def stored_type(element: ElementType) -> str:
    """The element type of the memref that holds a tensor."""
    name = NARROW.get(element.name, element.name)
    if name not in STORED:
        raise Unsupported(f"elements of type {element} have no memref")
    return name


def computing_type(element: ElementType, real: Scalar) -> ElementType:
    """The type in which elements are computed with."""
    if element.is_float:
        return F64 if real.name == "f64" else F32
    return WIDE_INTEGER if element.is_integer else element


def is_picked(element: Element) -> bool:
    """Whether the run picks the tensor of a pack."""
    return element.item is not None and not is_integer(element.item)


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor as a kernel sees it: a memref whose modes are the dimensions, the last one first."""

    memref: Value
    element: ElementType
    shape: tuple[int, ...]
    layout: Layout | None = None
    """Where its elements lie; row-major without gaps where nothing else is said."""

    @property
    def lies(self) -> Layout:
        """The layout, whether it was chosen or is the usual one."""
        return dense_layout(self.shape) if self.layout is None else self.layout


@dataclass(slots=True)
class TermWriter:
    """Writes the terms of one kernel."""

    real: Scalar
    tensors: Mapping[tuple[str, int | None], TensorView]
    extents: Mapping[str, int]
    levels: list[Builder] = field(default_factory=list)
    """The regions of the open loops, the innermost last."""
    depth: dict[str, int] = field(default_factory=dict)
    """The level at which each index is known."""
    indices: dict[str, Value] = field(default_factory=dict)
    written: frozenset[str] = frozenset()
    """The tensors that the kernel writes: what is read of them changes from step to step."""
    latest: bool = False
    """Whether the largest of all values stays that are stored to a place, whoever comes first."""
    fault: Value | None = None
    """Where steps without a value are reported, once one may be."""
    faults: bool = False
    _known: list[dict[object, Value]] = field(default_factory=lambda: [{}])
    _risky: dict[int, bool] = field(default_factory=dict)
    _movable: dict[int, bool] = field(default_factory=dict)
    _depths: dict[int, int] = field(default_factory=dict)
    _integers: dict[str, Value] = field(default_factory=dict)
    _count: int = 0

    @property
    def here(self) -> Builder:
        """The innermost region."""
        return self.levels[-1]

    def inside(self, extents: Mapping[str, int]) -> TermWriter:
        """Another writer in the same open loops, whose loops have extents of their own."""
        found = TermWriter(self.real, self.tensors, extents, [*self.levels])
        found.depth, found.indices, found._integers = (
            dict(self.depth),
            dict(self.indices),
            dict(self._integers),
        )
        found.written, found.fault, found.latest = self.written, self.fault, self.latest
        return found

    # --- what is known of terms -----------------------------------------------------------------------------

    def kind(self, term: object) -> Scalar:
        """The type in which a term is computed."""
        if isinstance(term, bool):
            return BOOL
        if isinstance(term, int | Index):
            return I64
        if isinstance(term, float):
            return self.real
        word = getattr(term, "type", "")
        if word not in ("int", "real", "bool"):
            raise Unsupported(f"it computes with {type(term).__name__}")
        return {"int": I64, "real": self.real, "bool": BOOL}[word]

    def is_risky(self, term: object) -> bool:
        """Whether a term may have no value in some step: an index outside, a division by zero, a skipped step."""
        key = id(term)
        if key not in self._risky:
            own = isinstance(term, Guard) or (isinstance(term, Element) and not self._is_inside(term))
            own = own or (isinstance(term, Apply) and self._may_divide_by_zero(term))
            self._risky[key] = own or any(self.is_risky(item) for item in operands(term))
        return self._risky[key]

    def _is_movable(self, term: object) -> bool:
        """Whether a term can be hoisted: it has the same value wherever its loops are open."""
        key = id(term)
        if key not in self._movable:
            own = not isinstance(term, Element) or term.tensor not in self.written
            self._movable[key] = (
                own and not self.is_risky(term) and all(map(self._is_movable, operands(term)))
            )
        return self._movable[key]

    def _is_inside(self, element: Element) -> bool:
        pairs = [*zip(element.indices, self.held(element).shape, strict=True)]
        if is_picked(element):
            pairs.append((element.item or 0, len(self._pack(element))))
        return all(not isinstance(item, Guard) and self.is_within(item, size) for item, size in pairs)

    def is_within(self, index: Term, size: int) -> bool:
        """Whether an index is known to stay inside."""
        found = find_range(index, self.extents)
        return found is not None and found[0] >= 0 and found[1] < size

    def _may_divide_by_zero(self, term: Apply) -> bool:
        if term.type != "int" or term.function not in ("/", "\\", "%"):
            return False
        divisor = find_range(term.operands[1], self.extents)
        return divisor is None or divisor[0] <= 0 <= divisor[1]

    def _depth_of(self, term: object) -> int:
        """The innermost level that a term depends on."""
        key = id(term)
        if key not in self._depths:
            own = self.depth.get(term.name, 0) if isinstance(term, Index) else 0
            self._depths[key] = max([own, *(self._depth_of(item) for item in operands(term))])
        return self._depths[key]

    def held(self, element: Element) -> TensorView:
        """The tensor of an element; of a pack whose tensors are alike any one."""
        if is_picked(element):
            return self._pack(element)[0]
        found = self.tensors.get((element.tensor, element.item if is_integer(element.item) else None))
        if found is None:
            raise Unsupported(f"'{element.tensor}' is no tensor here")
        return found

    def _pack(self, element: Element) -> list[TensorView]:
        """The tensors of a pack of which the run picks one."""
        found = [held for (name, item), held in self.tensors.items() if name == element.tensor]
        if len({(item.element, item.shape) for item in found}) != 1 or len(found) > LONGEST_TABLE:
            raise Unsupported(f"it picks one of {len(found)} tensors at run time")
        return found

    # --- values ---------------------------------------------------------------------------------------------

    def value(self, term: Term) -> Value:
        """The value of a term, written where it can be."""
        if isinstance(term, bool | int | float):
            return self._constant(term)
        if isinstance(term, Index):
            return self._integers.get(term.name) or self._constant(0)
        for known in reversed(self._known):
            if id(term) in known:
                return known[id(term)]
        with self._placed(term):
            found = self._write(term)
        home = self._known[0] if self._is_movable(term) and self._is_outside(term) else self._known[-1]
        home[id(term)] = found
        return found

    def hold(self, term: Term, value: Value) -> None:
        """Let a term have a value in the region that is written."""
        self._known[-1][id(term)] = value

    def _is_outside(self, term: object) -> bool:
        """Whether the term is written outside of branches: then it is known in all of them."""
        return self._depth_of(term) < len(self.levels) - 1 or len(self._known) == 1

    @contextmanager
    def _placed(self, term: object) -> Iterator[None]:
        """Hoist a term to where the loops it depends on are open; one that may have no value stays where it is used."""
        depth = self._depth_of(term)
        if not self._is_movable(term) or depth >= len(self.levels) - 1:
            yield
            return
        inner, self.levels = self.levels, self.levels[: depth + 1]
        branches, self._known = self._known, self._known[:1]
        yield
        self.levels, self._known = inner, branches

    def _constant(self, term: bool | int | float) -> Value:
        kind = self.kind(term)
        if is_integer(term) and not -(1 << 63) < term < 1 << 63:
            raise Unsupported("an integer has more than 64 bits")
        return self.here.constant(term, kind)

    def open_index(self, name: str, value: Value) -> None:
        """Make an index known in the innermost region, as an index and as an integer."""
        self.depth[name] = len(self.levels) - 1
        self.indices[name] = value
        self._integers[name] = self.here.cast(value, I64)

    def know(self, term: Term, name: str) -> None:
        """Say that a term is what an open index counts."""
        self._known[0][id(term)] = self._integers[name]

    def _write(self, term: Term) -> Value:
        self._count += 1
        if self._count > MOST_TERMS:
            raise Unsupported(f"it has more than {MOST_TERMS} terms")
        if isinstance(term, Element):
            return self.load(term)
        if isinstance(term, Lookup):
            return self._look_up(term)
        if isinstance(term, Apply):
            return self._apply(term)
        raise Unsupported(f"it computes with {type(term).__name__}")

    def _apply(self, term: Apply) -> Value:
        if term.function == "?:":
            return self._choose(term)
        if term.function in ("&&", "||", "=>") and self.is_risky(term.operands[1]):
            return self._decide(term)
        source = self.kind(term.operands[0])
        if term.function.startswith(ROUND):
            return self._round(term)
        if term.function == "cast":
            return convert(self.here, self.value(term.operands[0]), source, self.kind(term))
        if term.function == "**" and term.type == "real" and term.operands[1] == 1.0:
            return self.value(term.operands[0])
        if term.function == "**" and term.type == "real" and term.operands[1] in POWERS:
            return self._power(self.value(term.operands[0]), POWERS.index(term.operands[1]) + 2)
        values = [self.value(item) for item in term.operands]
        if self._may_divide_by_zero(term):
            values[1] = self._nonzero(values[1])
        return apply(self.here, term.function, source, values)

    def _by_reciprocal(self, term: Apply) -> Value | None:
        """Strength reduction: a quotient by a constant as a product, where a division, ten times as long, counts.

        Reals of 64 bits are divided: codes are rounded from them, and a tie must stay one.
        """
        if (
            self.real.name == "f64"
            or term.function != "/"
            or term.type != "real"
            or not isinstance(term.operands[1], float)
        ):
            return None
        divisor = term.operands[1]
        if not SMALLEST_DIVISOR < abs(divisor) < 1 / SMALLEST_DIVISOR:
            return None
        factor = self.here.constant(1 / divisor, self.real)
        return self.here.arith("mul", self.value(term.operands[0]), factor, type_=self.real)

    def _power(self, value: Value, exponent: int) -> Value:
        """Strength reduction: a small power as products, within a unit in the last place of what `pow` gives."""
        square = self.here.arith("mul", value, value, type_=self.real)
        if exponent == 2:
            return square
        return self.here.arith("mul", square, value if exponent == 3 else square, type_=self.real)

    def _round(self, term: Apply) -> Value:
        """A value as a tensor of a type holds it."""
        element = find_element(term.function.removeprefix(ROUND))
        if element is None:
            raise Unsupported(f"it rounds {term.function}")
        return self.rounded(self.saturated(term.operands[0], element), element, self.kind(term))

    def rounded(self, value: Value, element: ElementType, kind: Scalar) -> Value:
        """A computed value after it was stored in a type and loaded again."""
        stored = Scalar(stored_type(element))
        if element.kind is Kind.BOOL or stored == kind:
            return value
        return self.widen(self.here.cast(value, stored), element, kind)

    def saturated(self, term: Term, element: ElementType) -> Value:
        """A value to store: a real cast to a narrow integer goes to the nearest one."""
        value = self.value(term)
        cast = isinstance(term, Apply) and term.function == "cast"
        if not element.is_integer or element.bits == 64 or not isinstance(term, Apply) or not cast:
            return self._wrapped(value, element)
        if self.kind(term.operands[0]) in (I64, BOOL):
            return self._wrapped(value, element)
        most = self.here.arith("min", value, self.here.constant(element.maximum, I64), type_=I64)
        return self.here.arith("max", most, self.here.constant(element.minimum, I64), type_=I64)

    def _wrapped(self, value: Value, element: ElementType) -> Value:
        """An integer whose low bits a byte would hold too many of."""
        if element != I4:
            return value
        bits = self.here.constant(64 - element.bits, I64)
        return self.here.arith("shr", self.here.arith("shl", value, bits, type_=I64), bits, type_=I64)

    def _choose(self, term: Apply) -> Value:
        condition, then, otherwise = term.operands
        truth = find_truth(condition, self.extents)
        if truth is not None:
            return self.value(then if truth else otherwise)
        if not self.is_risky(then) and not self.is_risky(otherwise):
            values = [self.value(item) for item in term.operands]
            return self.here.arith("select", *values, type_=self.kind(term))
        return self._branch(self.value(condition), then, otherwise, self.kind(term))

    def _decide(self, term: Apply) -> Value:
        """`&&`, `||` and `=>` whose right side may have no value where the left side decides."""
        left, right = term.operands
        if term.function == "&&":
            return self._branch(self.value(left), right, False, BOOL)
        then, otherwise = (True, right) if term.function == "||" else (right, True)
        return self._branch(self.value(left), then, otherwise, BOOL)

    def _branch(self, condition: Value, then: Term, otherwise: Term, kind: Scalar) -> Value:
        regions = []
        for side in (then, otherwise):
            with self.region() as inner:
                inner.put(Yield((self.value(side),)))
            regions.append(inner.region())
        result = self.here.names.new()
        self.here.put(If(condition, regions[0], regions[1], (kind,)), (result,))
        return result

    @contextmanager
    def region(self, branch: Builder | None = None) -> Iterator[Builder]:
        """A branch, be it one that is open already: what is written in it is known in it only."""
        outer, inner = self.levels, branch or self.here.inner()
        self.levels = [*outer[:-1], inner]
        self._known.append({})
        yield inner
        self._known.pop()
        self.levels = outer

    def _look_up(self, term: Lookup) -> Value:
        if len(term.table) > LONGEST_TABLE:
            raise Unsupported(f"it looks up one of {len(term.table)} values")
        index = self.value(term.index)
        found = self.value(term.table[-1])
        for place in reversed(range(len(term.table) - 1)):
            equal = self.here.compare("eq", index, self.here.constant(place, I64))
            found = self.here.arith(
                "select", equal, self.value(term.table[place]), found, type_=self.kind(term)
            )
        return found

    # --- memory ---------------------------------------------------------------------------------------------

    def load(self, element: Element) -> Value:
        """The element of a tensor, in the type that is computed with."""
        if is_picked(element):
            return self._pick(element)
        held = self.held(element)
        places = self.places(element, held)
        found = self.here.load(held.memref, places, Scalar(stored_type(held.element)))
        return self.widen(found, held.element, self.kind(element))

    def _pick(self, element: Element) -> Value:
        """An element of the tensor that the run picks: those of all tensors are read, and one is taken."""
        count, kind = len(self._pack(element)), self.kind(element)
        chosen = self._place(element.item or 0, count)
        found = self.load(replace(element, item=count - 1))
        for number in reversed(range(count - 1)):
            equal = self.here.compare("eq", chosen, self.here.constant(number))
            other = self.load(replace(element, item=number))
            found = self.here.arith("select", equal, other, found, type_=kind)
        return found

    def widen(self, value: Value, element: ElementType, kind: Scalar) -> Value:
        """A loaded value in the type that is computed with."""
        stored = Scalar(stored_type(element))
        if element.kind is Kind.BOOL:
            return self.here.compare("ne", value, self.here.constant(0, stored))
        if stored == kind:
            return value
        found = self.here.cast(value, kind)
        if element.kind is Kind.UNSIGNED:
            found = self.here.arith("and", found, self.here.constant(element.maximum, I64), type_=I64)
        # Arrays from outside hold four bits with zeros above them, also of negative numbers.
        return self._wrapped(found, element) if kind == I64 else found

    def store(self, value: Value, element: Element) -> None:
        """Store a computed value: reals are rounded, integers keep their low bits."""
        self.store_at(value, element, self.places(element, self.held(element)))

    def store_at(self, value: Value, element: Element, places: Sequence[Value]) -> None:
        """Store a computed value of an element's type at a place of its tensor."""
        held = self.held(element)
        stored, kind = Scalar(stored_type(held.element)), self.kind(element)
        if held.element.kind is Kind.BOOL:
            one, zero = self.here.constant(1, stored), self.here.constant(0, stored)
            value = self.here.arith("select", value, one, zero, type_=stored)
        elif stored != kind:
            value = self.here.cast(value, stored)
        if self.latest:
            self.here.value(AtomicUpdate("max", value, held.memref, tuple(places), stored))
            return
        self.here.store(value, held.memref, places)

    def places(self, element: Element, held: TensorView) -> list[Value]:
        """The indices of an element as a memref takes them, the last dimension first."""
        pairs = zip(element.indices, held.shape, strict=True)
        return [self._known_place(index, size) or self._place(index, size) for index, size in pairs][::-1]

    def keep_place(self, index: Term, size: int) -> None:
        """Write an index that may be outside as a memref takes it, for code further in that will ask for it.

        What surely is inside may be asked for further out too, where this one would not be known.
        """
        if not self.is_within(index, size):
            self._known[-1]["place", id(index), size] = self._place(index, size)

    def _known_place(self, index: Term | Guard, size: int) -> Value | None:
        key = "place", id(index), size
        return next((known[key] for known in reversed(self._known) if key in known), None)

    def _place(self, index: Term | Guard, size: int) -> Value:
        if isinstance(index, Guard):
            return self._guarded_place(index, size)
        if isinstance(index, Index) and self.is_within(index, size):
            return self.indices.get(index.name) or self.here.constant(0)
        if is_integer(index) and 0 <= index < size:
            return self.here.constant(index)
        found = self.here.cast(self.value(index), INDEX)
        if not self.is_within(index, size):
            return self._inside(found, size)
        # A choice whose sides are inside where they are chosen: who proves the text sees the sides alone.
        return self._near(found, size) if isinstance(index, Apply) and index.function == "?:" else found

    def _guarded_place(self, guard: Guard, size: int) -> Value:
        """A guarded index: inside the branch that tests it, the index or what replaces it outside."""
        found = self.value(guard.index)
        for word, bound, side in (("lt", 0, guard.below), ("gt", size - 1, guard.above)):
            if side is not None:
                outside = self.here.compare(word, self.value(guard.index), self.here.constant(bound, I64))
                found = self.here.arith("select", outside, self.value(side), found, type_=I64)
        if guard.below is None and guard.above is None:
            return self.here.cast(found, INDEX)
        return self._inside(self.here.cast(found, INDEX), size)

    def _inside(self, place: Value, size: int) -> Value:
        """An index that no step leaves the tensor with; a step that would is reported."""
        near = self._near(place, size)
        self._tell(self.here.compare("ne", near, place))
        return near

    def _near(self, place: Value, size: int) -> Value:
        zero, last = self.here.constant(0), self.here.constant(max(size - 1, 0))
        return self.here.arith("max", self.here.arith("min", place, last), zero)

    def _nonzero(self, divisor: Value) -> Value:
        is_zero = self.here.compare("eq", divisor, self.here.constant(0, I64))
        self._tell(is_zero)
        return self.here.arith("select", is_zero, self.here.constant(1, I64), divisor, type_=I64)

    def _tell(self, wrong: Value) -> None:
        """Set the fault flag: a step has no value; the host then computes the operation itself and tells why."""
        if self.fault is None:
            raise Unsupported("a step may have no value")
        self.faults = True
        with self.here.condition(wrong) as inner:
            one = inner.constant(1, Scalar("i32"))
            inner.store(one, self.fault, [inner.constant(0)])
