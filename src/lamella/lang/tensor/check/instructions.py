"""The operands, results and shapes of each instruction that contains no region: memory, views, linear algebra."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lamella.base.cursor import SHOWN
from lamella.base.limits import LARGEST
from lamella.base.records import dataclass
from lamella.lang.tensor.check.arithmetic import check_arithmetic
from lamella.lang.tensor.check.context import StatementContext
from lamella.lang.tensor.check.kinds import is_promotable, promote, scalar_name
from lamella.lang.tensor.check.roles import result_types
from lamella.lang.tensor.check.types import check_attributes, warn_of_layout
from lamella.lang.tensor.nodes import (
    INDEX,
    Alloca,
    Arith,
    AtomicUpdate,
    Blas,
    Cast,
    Compare,
    CoopLoad,
    CoopMulAdd,
    CoopStore,
    Expand,
    Fuse,
    Group,
    IndexOrSize,
    Instruction,
    LifetimeStop,
    Load,
    Math,
    Memref,
    Scalar,
    Size,
    SizeOf,
    Slice,
    Store,
    Subview,
    Type,
    Value,
)
from lamella.lang.tensor.nodes.types import COMPLEX, STORED_FLOATS
from lamella.lang.tensor.rules import instructions as rules
from lamella.lang.tensor.write import write_size, write_type


def check_instruction(here: StatementContext, instruction: Instruction) -> None:
    """Check an instruction on its own; loops, branches and yields are not checked here."""
    if isinstance(instruction, MOVING):
        _note_stored(here, instruction)
    elif _refuses_stored(here, instruction):
        return
    match instruction:
        case Load() | Store() | AtomicUpdate() | SizeOf() | Alloca() | LifetimeStop():
            _check_access(here, instruction)
        case Subview() | Expand() | Fuse():
            _check_view(here, instruction)
        case Blas():
            _check_blas(here, instruction)
        case _:
            check_arithmetic(here, instruction)


# --- floating-point numbers of 8 bits -----------------------------------------------------------------------


MOVING = (
    Load,
    Store,
    SizeOf,
    Alloca,
    LifetimeStop,
    Subview,
    Expand,
    Fuse,
    Cast,
    CoopLoad,
    CoopStore,
    CoopMulAdd,
)
"""What numbers do that nothing is computed of: a product is a sum of another type."""


def _note_stored(here: StatementContext, instruction: Instruction) -> None:
    """Note such numbers as an extension, and refuse sums and atomic updates of them."""
    types = result_types(instruction)
    if isinstance(instruction, CoopMulAdd):
        found = here.context.type_of(instruction.accumulator)
        types = (*types, *(() if found is None else (found,)))
    elif isinstance(instruction, Store | CoopStore):
        found = here.context.type_of(instruction.value)
        types = () if found is None else (found,)
    for type_ in types:
        name = _element(type_)
        if name not in STORED_FLOATS:
            continue
        if isinstance(instruction, CoopMulAdd) or (
            isinstance(instruction, Store | CoopStore) and instruction.flag
        ):
            here.say(rules.STORED_FLOAT, here.span, (), element=name)
        else:
            here.context.note_extension(here.span, f"'{name}'", "f16 or bf16")


def _refuses_stored(here: StatementContext, instruction: Instruction) -> bool:
    """Whether an instruction would compute in such numbers; that is said."""
    found = {_element(item) for item in result_types(instruction)}
    values = instruction.operands if isinstance(instruction, Blas | Arith | Math) else ()
    values = (instruction.left, instruction.right) if isinstance(instruction, Compare) else values
    found |= {_element(type_) for item in values if (type_ := here.context.type_of(item)) is not None}
    for name in sorted(found & set(STORED_FLOATS)):
        here.say(rules.STORED_FLOAT, here.span, (), element=name)
    return bool(found & set(STORED_FLOATS))


def _element(type_: Type) -> str:
    return type_.name if isinstance(type_, Scalar) else getattr(type_, "element", "")


# --- loads, stores, sizes and local memory ------------------------------------------------------------------


POSITION = "an index"
MEMORY = "a memref or a group"


def _check_access(
    here: StatementContext, instruction: Load | Store | AtomicUpdate | SizeOf | Alloca | LifetimeStop
) -> None:
    """Check an instruction on memory."""
    match instruction:
        case Load():
            _check_load(here, instruction)
        case Store() | AtomicUpdate():
            _check_store(here, instruction)
        case SizeOf():
            _check_size(here, instruction)
        case Alloca():
            _check_alloca(here, instruction)
        case LifetimeStop(operand=operand):
            type_ = here.context.type_of(operand)
            if type_ is not None:
                here.expect(
                    operand, type_, isinstance(type_, Memref) and type_.local, "a memref in local memory"
                )


def _check_load(here: StatementContext, load: Load) -> None:
    types = here.context.types_of(load.operand, *load.indices)
    if types is None:
        return
    source = types[0]
    here.expect_indices(load.indices, POSITION)
    if isinstance(source, Memref):
        _check_index_count(here, load.operand, load.indices, source.order)
        here.expect_result(load.type, Scalar(source.element), [load.operand])
    elif isinstance(source, Group):
        _check_index_count(here, load.operand, load.indices, 1)
        here.expect_result(load.type, source.memref, [load.operand])
    else:
        here.expect(load.operand, source, False, MEMORY)


def _check_index_count(here: StatementContext, operand: Value, indices: Sequence[Value], order: int) -> None:
    if len(indices) != order:
        words = {"count": len(indices), "name": operand.name, "order": order}
        here.say(rules.INDEX_COUNT, here.span, [operand], **words)


def _check_store(here: StatementContext, store: Store | AtomicUpdate) -> None:
    types = here.context.types_of(store.value, store.operand, *store.indices)
    if types is None:
        return
    here.expect_indices(store.indices, POSITION)
    value, target = types[0], types[1]
    if not isinstance(target, Memref):
        here.expect(store.operand, target, False, "a memref")
        return
    _check_index_count(here, store.operand, store.indices, target.order)
    _check_stored(here, store.value, (value, target), store.operand)
    if isinstance(store, Store):
        here.expect_atomic(target.element, store.flag)
        return
    here.context.note_extension(here.span, f"'{here.word}' with a value", "store.atomic_add without one")
    here.expect_atomic(target.element, True)
    here.expect_result(store.type, Scalar(target.element), [store.operand])
    if target.element in COMPLEX:
        here.say(rules.ATOMIC_RESULT, here.span, element=target.element)


def _check_stored(here: StatementContext, value: Value, types: tuple[Type, Memref], memory: Value) -> None:
    """A stored scalar is of the type of the elements."""
    type_, target = types
    if type_ != Scalar(target.element):
        words = {"name": value.name, "type": write_type(type_), "element": target.element}
        here.say(rules.STORED_TYPE, value.span, [value, memory], **words)


def _check_size(here: StatementContext, size: SizeOf) -> None:
    type_ = here.context.type_of(size.operand)
    if type_ is None:
        return
    if not isinstance(type_, Memref | Group):
        here.expect(size.operand, type_, False, MEMORY)
        return
    order = type_.order if isinstance(type_, Memref) else 1
    if not 0 <= size.mode < order:
        words = {"mode": size.mode, "name": size.operand.name, "order": order}
        here.say(rules.SIZE_MODE, here.span, [size.operand], **words)
    here.expect_result(size.type, INDEX)


def _check_alloca(here: StatementContext, alloca: Alloca) -> None:
    if not alloca.type.local:
        here.say(rules.ALLOCA_GLOBAL, here.type_span, type=write_type(alloca.type))
    if None in alloca.type.shape or None in alloca.type.stride:
        here.say(rules.ALLOCA_DYNAMIC, here.type_span, type=write_type(alloca.type))
    here.say_all(warn_of_layout(alloca.type, here.type_span))
    here.say_all(check_attributes(alloca))


# --- views of memory: subview, expand and fuse --------------------------------------------------------------


def _check_view(here: StatementContext, view: Subview | Expand | Fuse) -> None:
    """Check that the type of a view is one of its layout."""
    types = here.context.types_of(view.operand, *_values_of(view))
    if types is None:
        return
    operand = types[0]
    if not isinstance(operand, Memref):
        here.expect(view.operand, operand, False, "a memref")
        return
    here.expect_indices(_values_of(view), "an offset or a size")
    layout = _layout_of(here, view, operand)
    if layout is not None:
        _check_result(here, view, layout)


def _values_of(view: Subview | Expand | Fuse) -> list[Value]:
    items: list[IndexOrSize] = []
    if isinstance(view, Subview):
        items = [item for part in view.slices for item in (part.offset, part.size)]
    elif isinstance(view, Expand):
        items = list(view.sizes)
    return [item for item in items if isinstance(item, Value)]


def _layout_of(here: StatementContext, view: Subview | Expand | Fuse, operand: Memref) -> Memref | None:
    """The type that a view is of; None where what it asks for is in error."""
    match view:
        case Subview():
            return _subview(here, view, operand)
        case Expand():
            return _expand(here, view, operand)
        case Fuse():
            return _fuse(here, view, operand)


def _known(item: IndexOrSize) -> Size:
    return item if isinstance(item, int) else None


def _subview(here: StatementContext, view: Subview, operand: Memref) -> Memref | None:
    if len(view.slices) != operand.order:
        words = {"count": len(view.slices), "name": view.operand.name, "order": operand.order}
        here.say(rules.SLICE_COUNT, here.span, [view.operand], **words)
        return None
    before = here.context.errors
    for mode, part in enumerate(view.slices):
        _check_slice(here, mode, part, operand.shape[mode])
    if here.context.errors > before:
        return None
    kept = [
        (part, stride) for part, stride in zip(view.slices, operand.stride, strict=True) if part.size != 0
    ]
    shape = tuple(_known(part.size) for part, _ in kept)
    return Memref(operand.element, shape, tuple(stride for _, stride in kept), operand.local)


def _check_slice(here: StatementContext, mode: int, part: Slice, bound: Size) -> None:
    offset, size = _known(part.offset), _known(part.size)
    if (offset or 0) < 0 or (size or 0) < 0:
        words = {"offset": write_size(offset), "size": write_size(size)}
        here.say(rules.SLICE_NEGATIVE, here.span, (), mode=mode, **words)
    elif bound is not None:
        # a dynamic offset is 0 or more and a dynamic size 1 or more
        end = (offset or 0) + (size or 1)
        if end > bound:
            here.say(rules.SLICE_PAST_END, here.span, mode=mode, end=end, bound=bound)


def _expand(here: StatementContext, view: Expand, operand: Memref) -> Memref | None:
    mode, sizes = view.mode, tuple(map(_known, view.sizes))
    if not 0 <= mode < operand.order:
        words = {"name": view.operand.name, "order": operand.order}
        here.say(rules.EXPAND_MODE, here.span, [view.operand], mode=mode, **words)
        return None
    if not _check_factors(here, view, sizes, operand.shape[mode]):
        return None
    strides = _running_strides(operand.stride[mode], sizes)
    shape = (*operand.shape[:mode], *sizes, *operand.shape[mode + 1 :])
    stride = (*operand.stride[:mode], *strides, *operand.stride[mode + 1 :])
    return Memref(operand.element, shape, stride, operand.local)


def _check_factors(here: StatementContext, view: Expand, sizes: tuple[Size, ...], size: Size) -> bool:
    known = [item for item in sizes if item is not None]
    before = here.context.errors
    if known and min(known) < (0 if size == 0 else 1):
        here.say(rules.EXPAND_NEGATIVE, here.span, size=min(known))
    elif len(known) == len(sizes) and size is not None and _product(known) != size:
        words = {"factors": " x ".join(map(str, known[:SHOWN])), "product": _product(known) or "too much"}
        here.say(rules.EXPAND_PRODUCT, here.span, [view.operand], mode=view.mode, size=size, **words)
    return here.context.errors == before


def _running_strides(first: Size, sizes: tuple[Size, ...]) -> list[Size]:
    strides = [first]
    for size in sizes[:-1]:
        last = strides[-1]
        strides.append(None if last is None or size is None else _product((last, size)))
    return strides


def _product(factors: Iterable[int]) -> Size:
    """The product of sizes; None where it leaves the range of sizes, so that it takes no time to know that."""
    product = 1
    for factor in factors:
        product *= factor
        if product > LARGEST:
            return None
    return product


def _fuse(here: StatementContext, view: Fuse, operand: Memref) -> Memref | None:
    first, last = view.first, view.last
    if not 0 <= first < last < operand.order:
        words = {"first": first, "last": last, "name": view.operand.name, "order": operand.order}
        here.say(rules.FUSE_MODES, here.span, [view.operand], **words)
        return None
    if not _check_adjacent(here, view, operand):
        return None
    sizes = [size for size in operand.shape[first : last + 1] if size is not None]
    fused = _product(sizes) if len(sizes) == last + 1 - first else None
    shape = (*operand.shape[:first], fused, *operand.shape[last + 1 :])
    stride = (*operand.stride[: first + 1], *operand.stride[last + 1 :])
    return Memref(operand.element, shape, stride, operand.local)


def _check_adjacent(here: StatementContext, view: Fuse, operand: Memref) -> bool:
    for mode in range(view.first, view.last):
        size, stride, following = operand.shape[mode], operand.stride[mode], operand.stride[mode + 1]
        if size is None or stride is None or following is None or size * stride == following:
            continue
        words = {"size": size, "stride": stride, "following": following}
        here.say(rules.FUSE_STRIDE, here.span, [view.operand], mode=mode, next=mode + 1, **words)
        return False
    return True


def _check_result(here: StatementContext, view: Subview | Expand | Fuse, layout: Memref) -> None:
    """The written type is the layout, where a known stride may be written as '?'."""
    type_, span, about = view.type, here.type_span, [view.operand]
    if type_.element != layout.element:
        here.say(rules.VIEW_ELEMENT, span, about, operand=layout.element, type=type_.element)
    if type_.local != layout.local:
        here.say(rules.VIEW_SPACE, span, about, operand=_space(layout), type=_space(type_))
    if type_.order != layout.order:
        here.say(rules.VIEW_ORDER, span, about, wanted=layout.order, order=type_.order)
        return
    for mode, (wanted, size) in enumerate(zip(layout.shape, type_.shape, strict=True)):
        if size != wanted:
            words = {"wanted": write_size(wanted), "size": write_size(size)}
            here.say(rules.VIEW_SIZE, span, about, mode=mode, **words)
            return
    _check_strides(here, view, layout)


def _check_strides(here: StatementContext, view: Subview | Expand | Fuse, layout: Memref) -> None:
    for mode, (wanted, stride) in enumerate(zip(layout.stride, view.type.stride, strict=True)):
        if stride is not None and stride != wanted:
            words = {"wanted": write_size(wanted), "stride": stride, "type": write_type(layout)}
            here.say(rules.VIEW_STRIDE, here.type_span, [view.operand], mode=mode, **words)
            return


def _space(type_: Memref) -> str:
    return "local" if type_.local else "global"


# --- the linear algebra instructions: promotion, orders, shapes and atomic updates --------------------------


ROLES = {
    "axpby": ("alpha", "A", "beta", "B"),
    "cumsum": ("alpha", "A", "beta", "B"),
    "sum": ("alpha", "A", "beta", "b"),
    "gemm": ("alpha", "A", "B", "beta", "C"),
    "gemv": ("alpha", "A", "b", "beta", "c"),
    "ger": ("alpha", "a", "b", "beta", "C"),
    "hadamard": ("alpha", "a", "b", "beta", "c"),
}
ORDERS = {"gemm": (2, 2, 2), "gemv": (2, 1, 1), "ger": (1, 1, 2)}
CONSTANTS = (0, 1, (0.0, 0.0), (1.0, 0.0))


@dataclass(frozen=True, slots=True)
class BlasOperand:
    """An operand with its role in the formula and its scalar or element type."""

    role: str
    value: Value
    name: str
    memref: Memref | None = None

    @property
    def shape(self) -> tuple[Size, ...]:
        """The shape of a tensor."""
        return self.memref.shape if self.memref else ()


def _check_blas(here: StatementContext, blas: Blas) -> None:
    """Check a linear algebra instruction."""
    types = here.context.types_of(*blas.operands)
    if types is None:
        return
    found = [
        _operand(here, role, value, type_)
        for role, value, type_ in zip(ROLES[blas.function], blas.operands, types, strict=True)
    ]
    operands = [item for item in found if item is not None]
    if len(operands) < len(found):
        return
    tensors = [item for item in operands if item.memref]
    _check_promotion(here, operands[0], tensors, operands[-2])
    _check_atomic(here, blas, operands)
    if _check_orders(here, blas, tensors) and not _shapes_fit(blas, tensors):
        shapes = ", ".join(f"{item.role}={_spell_shape(item.shape)}" for item in tensors)
        transposes = "".join(".t" if flag else ".n" for flag in blas.transposes)
        word = blas.function + transposes
        here.say(rules.SHAPES, here.span, [item.value for item in tensors], instruction=word, shapes=shapes)


def _operand(here: StatementContext, role: str, value: Value, type_: Type) -> BlasOperand | None:
    if role in ("alpha", "beta"):
        name = scalar_name(type_)
        fits = here.expect(value, type_, name is not None, f"a scalar as {role}")
        return BlasOperand(role, value, name) if fits and name else None
    if isinstance(type_, Memref):
        return BlasOperand(role, value, type_.element, type_)
    here.expect(value, type_, False, f"a memref as {role}")
    return None


def _check_promotion(
    here: StatementContext, alpha: BlasOperand, tensors: list[BlasOperand], beta: BlasOperand
) -> None:
    *inputs, output = tensors
    both = BlasOperand(" and ".join(item.role for item in inputs), inputs[-1].value, inputs[0].name)
    if len(inputs) == 2:
        name = promote(inputs[0].name, inputs[1].name)
        if name is None:
            words = {"left": inputs[0].name, "right": inputs[1].name, "names": both.role}
            here.say(rules.PROMOTION_PAIR, here.span, [item.value for item in inputs], **words)
            return
        both = BlasOperand(both.role, both.value, name)
    _expect_promotable(here, alpha, both)
    _expect_promotable(here, both, output)
    _expect_promotable(here, beta, output)


def _expect_promotable(here: StatementContext, source: BlasOperand, target: BlasOperand) -> None:
    if not is_promotable(source.name, target.name):
        words = {"left": source.role, "right": target.role, "source": source.name, "target": target.name}
        here.say(rules.PROMOTION, source.value.span, [source.value, target.value], **words)


def _check_atomic(here: StatementContext, blas: Blas, operands: list[BlasOperand]) -> None:
    if not blas.atomic:
        return
    here.expect_atomic(operands[-1].name, "atomic")
    beta = operands[-2].value
    entry = here.context.find(beta)
    if entry is None or entry.constant not in CONSTANTS:
        here.say(rules.ATOMIC_BETA, beta.span, [beta], name=beta.name)


def _check_orders(here: StatementContext, blas: Blas, tensors: list[BlasOperand]) -> bool:
    """Whether the tensors are of the orders that an instruction takes."""
    before = here.context.errors
    wanted = ORDERS.get(blas.function)
    if wanted is not None:
        for item, order in zip(tensors, wanted, strict=True):
            _expect_order(here, item, (order,))
    elif blas.function == "hadamard":
        for item in tensors:
            _expect_order(here, item, (1, 2))
    elif blas.function == "axpby":
        _expect_order(here, tensors[-1], (0, 1, 2))
    elif blas.function == "sum" and _expect_order(here, tensors[-1], (0, 1)):
        _expect_order(here, tensors[0], (len(tensors[-1].shape) + 1,))
    elif blas.function == "cumsum":
        _check_cumsum(here, blas.mode or 0, tensors[0])
    return here.context.errors == before


def _expect_order(here: StatementContext, item: BlasOperand, wanted: tuple[int, ...]) -> bool:
    order = len(item.shape)
    if order not in wanted:
        choice = " or ".join(map(str, wanted))
        here.say(rules.ORDER, item.value.span, [item.value], operand=item.role, order=order, wanted=choice)
    return order in wanted


def _check_cumsum(here: StatementContext, mode: int, tensor: BlasOperand) -> None:
    order = len(tensor.shape)
    if order == 0:
        here.say(
            rules.ORDER, tensor.value.span, [tensor.value], operand=tensor.role, order=0, wanted="1 or more"
        )
    elif not 0 <= mode < order:
        here.say(rules.CUMSUM_MODE, here.span, [tensor.value], mode=mode, order=order)


def _shapes_fit(blas: Blas, tensors: list[BlasOperand]) -> bool:
    """Whether shapes agree; a size that is known only at the run agrees with another such size."""
    flags = (*blas.transposes, False, False)
    shapes = [item.shape for item in tensors]
    first = shapes[0][::-1] if flags[0] and len(shapes[0]) == 2 else shapes[0]
    output = shapes[-1]
    match blas.function:
        case "gemm":
            second = shapes[1][::-1] if flags[1] else shapes[1]
            return first[1] == second[0] and output == (first[0], second[1])
        case "gemv":
            return first[1] == shapes[1][0] and output == (first[0],)
        case "ger":
            return output == (first[0], shapes[1][0])
        case "sum":
            return output == first[:-1]
        case "hadamard":
            return first == shapes[1] == output
        case _:
            return first == output


def _spell_shape(shape: tuple[Size, ...]) -> str:
    """A shape as sentences show it: 4x5."""
    return "x".join(map(write_size, shape)) if shape else "(order 0)"
