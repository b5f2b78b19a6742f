"""Loads, stores, sizes and local memory."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.lang.tensor.check.attributes import check_alloca_attributes
from lamella.lang.tensor.check.here import Here
from lamella.lang.tensor.check.kinds import ATOMIC
from lamella.lang.tensor.check.types import warn_of_layout
from lamella.lang.tensor.nodes import (
    INDEX,
    Alloca,
    AtomicUpdate,
    Group,
    LifetimeStop,
    Load,
    Memref,
    Scalar,
    SizeOf,
    Store,
    Type,
    Value,
)
from lamella.lang.tensor.nodes.types import COMPLEX
from lamella.lang.tensor.rules import instructions as rules
from lamella.lang.tensor.write.types import write_type

POSITION = "an index"
MEMORY = "a memref or a group"


def check_access(
    here: Here, instruction: Load | Store | AtomicUpdate | SizeOf | Alloca | LifetimeStop
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


def _check_load(here: Here, load: Load) -> None:
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


def _check_index_count(here: Here, operand: Value, indices: Sequence[Value], order: int) -> None:
    if len(indices) != order:
        words = {"count": len(indices), "name": operand.name, "order": order}
        here.say(rules.INDEX_COUNT, here.span, [operand], **words)


def _check_store(here: Here, store: Store | AtomicUpdate) -> None:
    types = here.context.types_of(store.value, store.operand, *store.indices)
    if types is None:
        return
    here.expect_indices(store.indices, POSITION)
    value, target = types[0], types[1]
    if not isinstance(target, Memref):
        here.expect(store.operand, target, False, "a memref")
        return
    _check_index_count(here, store.operand, store.indices, target.order)
    check_stored(here, store.value, (value, target), store.operand)
    if isinstance(store, Store):
        check_atomic(here, target.element, store.flag)
        return
    here.context.note_extension(here.span, f"'{here.word}' with a value", "store.atomic_add without one")
    check_atomic(here, target.element, True)
    here.expect_result(store.type, Scalar(target.element), [store.operand])
    if target.element in COMPLEX:
        here.say(rules.ATOMIC_RESULT, here.span, element=target.element)


def check_stored(here: Here, value: Value, types: tuple[Type, Memref], memory: Value) -> None:
    """A stored scalar is of the type of the elements."""
    type_, target = types
    if type_ != Scalar(target.element):
        words = {"name": value.name, "type": write_type(type_), "element": target.element}
        here.say(rules.STORED_TYPE, value.span, [value, memory], **words)


def check_atomic(here: Here, element: str, flag: str | bool) -> None:
    """Atomic updates exist for some types only."""
    if flag and element not in ATOMIC:
        here.say(rules.ATOMIC_TYPE, here.span, element=element)


def _check_size(here: Here, size: SizeOf) -> None:
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


def _check_alloca(here: Here, alloca: Alloca) -> None:
    if not alloca.type.local:
        here.say(rules.ALLOCA_GLOBAL, here.type_span, type=write_type(alloca.type))
    if None in alloca.type.shape or None in alloca.type.stride:
        here.say(rules.ALLOCA_DYNAMIC, here.type_span, type=write_type(alloca.type))
    here.say_all(warn_of_layout(alloca.type, here.type_span))
    if alloca.attributes is not None:
        here.say_all(check_alloca_attributes(alloca.attributes, alloca.type))
