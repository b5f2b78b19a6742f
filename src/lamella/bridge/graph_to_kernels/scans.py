"""Scans: cumulative sums, products and extremes as one kernel, in as many steps as there are elements.

`y[z] += x[|z - k|], k < n` is the sum of `x[0] … x[z]`: every step goes on from the one before. Lanes go along a
contiguous dimension that is not scanned. Where the scanned one is contiguous, a subgroup scans as many elements as it
has lanes; products, which no subgroup scans, are taken one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from lamella.base.affine import Affine
from lamella.base.dtype import F32, I64
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.affine import Form, find_form
from lamella.bridge.graph_to_kernels.delinearize import delinearize_group
from lamella.bridge.graph_to_kernels.flat import row_major
from lamella.bridge.graph_to_kernels.functions import extreme
from lamella.bridge.graph_to_kernels.groups import GroupTensor
from lamella.bridge.graph_to_kernels.register_transpose import form_value
from lamella.kernels.build import Builder, FreshNames
from lamella.lang.tensor.nodes import Function, Parameter, Scalar, SubgroupBroadcast, SubgroupOperation, Value
from lamella.lang.tensor.nodes.types import INDEX, Dictionary, DictionaryEntry, make_memref
from lamella.ops.formula import Contraction, Element, Guard, Index

LANES = 16
ELEMENTS = {F32: Scalar("f32"), I64: Scalar("i64")}
"""Types of elements that are scanned, and what they are computed in."""
JOINS = {"+=": "add", "*=": "mul", "<=": "min", ">=": "max"}


@dataclass(frozen=True, slots=True)
class CumulativeSum:
    """A cumulative sum, product or extreme over a loop; it may go backward, and leave out the element of the step."""

    sign: str
    kind: Scalar
    """The type of the elements."""
    source: str
    target: str
    place: Form
    """Where an element is read and written."""
    loop: str
    backward: bool
    exclusive: bool
    extents: Mapping[str, int]
    """The loop that is summed, and all others."""

    @property
    def rows(self) -> tuple[str, ...]:
        """The loops that are not summed."""
        return tuple(name for name in self.extents if name != self.loop)

    def start(self, builder: Builder) -> Value:
        """The identity of the scan."""
        real = self.kind == ELEMENTS[F32]
        if self.sign in ("+=", "*="):
            one = int(self.sign == "*=")
            return builder.constant(float(one) if real else one, self.kind)
        if not real:
            last = builder.constant((1 << 63) - 1, self.kind)
            return last if self.sign == "<=" else builder.arith("not", last, type_=self.kind)
        zero = builder.constant(0.0, self.kind)
        infinity = builder.arith("div", builder.constant(1.0, self.kind), zero, type_=self.kind)
        return infinity if self.sign == "<=" else builder.arith("neg", infinity, type_=self.kind)

    def join(self, builder: Builder, left: Value, right: Value) -> Value:
        """The combiner of the scan, NaN as soon as one value is."""
        if self.sign in ("<=", ">="):
            return extreme(builder, JOINS[self.sign], self.kind, left, right)
        return builder.arith(JOINS[self.sign], left, right, type_=self.kind)


def find_scan(stage: Contraction, tensors: Mapping[str, GroupTensor]) -> CumulativeSum | None:
    """The cumulative sum that a stage is; None where it is none."""
    value = stage.values[0]
    if stage.sign not in JOINS or stage.condition is not None or not isinstance(value, Element):
        return None
    extents = {loop.index: loop.extent for loop in stage.loops if isinstance(loop.extent, int)}
    (target,) = stage.targets if len(stage.targets) == 1 else (None,)
    guards = [place for place, item in enumerate(value.indices) if isinstance(item, Guard)]
    if target is None or len(guards) != 1 or len(extents) < len(stage.loops):
        return None
    held, made = tensors[value.tensor], tensors[target.tensor]
    guard = value.indices[guards[0]]
    index = target.indices[guards[0]] if len(target.indices) == len(value.indices) else None
    kind = ELEMENTS.get(held.element)
    if (
        kind is None
        or made.element != held.element
        or not isinstance(index, Index)
        or held.shape != made.shape
    ):
        return None
    steps = _find_steps(guard, index.name, extents, held.shape[guards[0]])
    others = [item for place, item in enumerate(value.indices) if place != guards[0]]
    same = others == [item for place, item in enumerate(target.indices) if place != guards[0]]
    if steps is None or not same:
        return None
    counter, backward, exclusive = steps
    plain = [item.name for item in others if isinstance(item, Index)]
    kept = {name: extent for name, extent in extents.items() if name != counter}
    if len(set(plain)) < len(plain) or {*plain, index.name} != set(kept):
        return None
    if any(not isinstance(item, Index) and item != 0 for item in others):
        return None
    place = _place(target, made)
    return CumulativeSum(
        stage.sign, kind, value.tensor, target.tensor, place, index.name, backward, exclusive, kept
    )


def _find_steps(
    guard: object, loop: str, extents: Mapping[str, int], size: int
) -> tuple[str, bool, bool] | None:
    """The loop that counts backwards from each step, whether it goes the other way, and whether it starts beside it."""
    if not isinstance(guard, Guard) or guard.below is not None or guard.above is not None:
        return None
    form = find_form(guard.index, extents)
    if form is None or len(form.terms) != 2 or form.coefficient(loop) != 1 or extents[loop] != size:
        return None
    ((counter, factor),) = (item for item in form.terms if item[0] != loop)
    if extents[counter] != size or form.constant not in (0, factor) or abs(factor) != 1:
        return None
    return counter, factor == 1, form.constant != 0


def _place(element: Element, held: GroupTensor) -> Form:
    found: Form = Affine()
    for index, stride in zip(element.indices, row_major(held.shape).strides, strict=True):
        if isinstance(index, Index):
            found = found.plus(Affine(0, ((index.name, 1),)), stride)
    return found


# --- the kernel ---------------------------------------------------------------------------------------------


def write_scan(name: str, scan: CumulativeSum, size: int) -> tuple[Function, int]:
    """The kernel, whose arguments are the target and the source as one mode each; and its work-groups."""
    builder = Builder(FreshNames({"y", "x"}))
    closest = next((item for item in scan.rows if scan.place.coefficient(item) == 1), None)
    others = [item for item in scan.rows if item != closest]
    groups = prod(scan.extents[item] for item in others)
    places = delinearize_group(builder, others, scan.extents)
    attributes = None
    if closest is not None:
        end = builder.constant(scan.extents[closest])
        with builder.foreach([end]) as (inner, variables):
            _write_steps(inner, scan, {**places, closest: variables[0]})
    elif scan.place.coefficient(scan.loop) != 1:
        raise Unsupported("nothing lies side by side")
    elif scan.sign == "*=":
        _write_steps(builder, scan, places)
    else:
        with builder.parallel() as inner:
            _write_lanes(inner, scan, places)
        entries = (("subgroup_size", LANES), ("work_group_size", (LANES, 1)))
        attributes = Dictionary(tuple(DictionaryEntry(key, value) for key, value in entries))
    parameters = tuple(Parameter(Value(item), make_memref(scan.kind.name, (size,))) for item in ("y", "x"))
    return Function(name, parameters, builder.region(), attributes), groups


def _write_steps(builder: Builder, scan: CumulativeSum, places: Mapping[str, Value]) -> None:
    """One element after the other in each lane."""
    extent = scan.extents[scan.loop]
    start, kind = scan.start(builder), scan.kind
    zero, end = builder.constant(0), builder.constant(extent)
    with builder.loop(zero, end, carried=[(start, kind)]) as loop:
        body, (held,) = loop.body, loop.carried
        step = body.arith("sub", body.constant(extent - 1), loop.variable) if scan.backward else loop.variable
        place = form_value(body, scan.place, {**places, scan.loop: step})
        found = scan.join(body, held, body.load(Value("x"), [place], kind))
        body.store(held if scan.exclusive else found, Value("y"), [place])
        body.give(found)


def _write_lanes(builder: Builder, scan: CumulativeSum, places: Mapping[str, Value]) -> None:
    """As many elements at once as there are lanes, then those that are left."""
    extent = scan.extents[scan.loop]
    full = extent // LANES * LANES
    lane = builder.cast(builder.builtin("subgroup_local_id", Scalar("i32")), INDEX)
    held = scan.start(builder)
    if full:
        ends = builder.constant(0), builder.constant(full), builder.constant(LANES)
        with builder.loop(*ends, carried=[(held, scan.kind)]) as loop:
            step = loop.body.arith("add", loop.variable, lane)
            loop.body.give(_write_chunk(loop.body, scan, places, step, loop.carried[0]))
        (held,) = loop.results
    if extent > full:
        # All lanes scan together: those behind the end have what changes nothing.
        inside = builder.compare("lt", lane, builder.constant(extent - full))
        step = builder.arith("add", lane, builder.constant(full))
        step = builder.arith("min", step, builder.constant(extent - 1))
        _write_chunk(builder, scan, places, step, held, inside)


def _write_chunk(
    builder: Builder,
    scan: CumulativeSum,
    places: Mapping[str, Value],
    step: Value,
    held: Value,
    inside: Value | None = None,
) -> Value:
    """The elements of all lanes, or of those inside; gives what they join to with those before."""
    if scan.backward:
        step = builder.arith("sub", builder.constant(scan.extents[scan.loop] - 1), step)
    place = form_value(builder, scan.place, {**places, scan.loop: step})
    value = builder.load(Value("x"), [place], scan.kind)
    if inside is not None:
        value = builder.arith("select", inside, value, scan.start(builder), type_=scan.kind)
    whole = scan.join(builder, held, _scanned(builder, scan, value, "inclusive_scan"))
    found = whole
    if scan.exclusive:
        found = scan.join(builder, held, _scanned(builder, scan, value, "exclusive_scan"))
    if inside is None:
        builder.store(found, Value("y"), [place])
    else:
        with builder.condition(inside) as region:
            region.store(found, Value("y"), [place])
    last = builder.constant(LANES - 1, Scalar("i32"))
    return builder.value(SubgroupBroadcast(whole, last, scan.kind))


def _scanned(builder: Builder, scan: CumulativeSum, value: Value, form: str) -> Value:
    """The values of the lanes up to each one, NaN from the first on that is."""
    found = builder.value(SubgroupOperation(JOINS[scan.sign], form, value, scan.kind))
    if scan.sign == "+=" or scan.kind != ELEMENTS[F32]:
        return found
    sound = builder.compare("eq", value, value)
    doubt = builder.arith("select", sound, builder.constant(0.0, scan.kind), value, type_=scan.kind)
    together = builder.value(SubgroupOperation("add", form, doubt, scan.kind))
    return builder.arith(
        "select", builder.compare("eq", together, together), found, together, type_=scan.kind
    )
