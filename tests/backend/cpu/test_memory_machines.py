"""Accesses and subgroup operations of every type are code on every machine, without calls of libraries."""

from __future__ import annotations

import re

import pytest

from lamella.backend.cpu.emit import integers
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.memory import emit_load, emit_store
from lamella.backend.cpu.emit.subgroups import emit_operation
from lamella.backend.cpu.jit import MACHINES, assembly
from lamella.lang.tensor.check.kinds import ATOMIC
from lamella.lang.tensor.nodes import Load, Scalar, Store, SubgroupOperation, Value, make_memref
from lamella.lang.tensor.words import SCALARS
from tests.support.backend.cpu.emitting import (
    add_parameter,
    make_here,
    module_text,
    read_lanes,
    read_mask,
    read_slot,
)

LANES = 16
CALL = re.compile(r"^\s*(?:callq?|bl|jmp)\s+_?_*(?!\.L)[a-z_]\w*", re.MULTILINE)


def _write_everything(element: str) -> EmitContext:
    context = make_here(LANES)
    add_parameter(context, "memory", make_memref(element, (None,)))
    context.values["even"] = integers.affine(context, read_slot(context, 2, "i64"), 1)
    context.values["apart"] = integers.affine(context, read_slot(context, 2, "i64"), 3)
    context.values["same"] = integers.dynamic(read_slot(context, 2, "i64"))
    context.values["own"] = read_lanes(context, "index", 3)
    for masked in (False, True):
        if masked:
            read_mask(context, 4)
        for name in ("even", "apart", "same", "own"):
            context.values["value"] = emit_load(
                context, Load(Value("memory"), (Value(name),), Scalar(element))
            )
            emit_store(context, Store(Value("value"), Value("memory"), (Value(name),)))
            for flag in ("atomic", "atomic_add") if element in ATOMIC else ():
                emit_store(context, Store(Value("value"), Value("memory"), (Value(name),), flag))
    emit_store(context, Store(Value("value"), Value("memory"), (Value("same"),)))
    for form in ("reduce", "inclusive_scan"):
        operation = SubgroupOperation("add", form, Value("value"), Scalar(element))
        context.values["sum"] = emit_operation(context, operation)
        emit_store(context, Store(Value("sum"), Value("memory"), (Value("even"),)))
    return context


@pytest.mark.parametrize("machine", sorted(MACHINES))
@pytest.mark.parametrize("element", SCALARS)
def test_every_access_is_machine_code(element: str, machine: str) -> None:
    written = assembly(module_text(_write_everything(element)), MACHINES[machine])
    assert "kernel_0" in written
    assert CALL.findall(written) == []


def test_whole_vectors_are_single_instructions() -> None:
    context = make_here(LANES)
    add_parameter(context, "memory", make_memref("f32", (None,)))
    context.values["even"] = integers.affine(context, read_slot(context, 2, "i64"), 1)
    context.values["value"] = emit_load(context, Load(Value("memory"), (Value("even"),), Scalar("f32")))
    read_mask(context, 3)
    emit_store(context, Store(Value("value"), Value("memory"), (Value("even"),)))
    written = assembly(module_text(context), MACHINES["cpu-avx512"])
    assert len(re.findall(r"vmovups.*%zmm", written)) == 2
    assert re.search(r"vmovups\s+%zmm\d+, .*\{%k\d\}", written)
