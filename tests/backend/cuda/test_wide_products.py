"""Products of f32 for Hopper: what a thread does with a stage, run on the processor, thread by thread."""

from __future__ import annotations

import ctypes
import re

import numpy as np

from bench.cuda import product_text
from lamella.backend.cpu.emission import walk
from lamella.backend.cpu.emit.context import EmitContext
from lamella.backend.cpu.emit.pipeline_plan import LINE, PipelinePlan, find_pipeline
from lamella.backend.cpu.emit.pipelines import ProductEmitter
from lamella.backend.cpu.emit.text import IrWriter
from lamella.base.arrays import Array
from lamella.base.optional import need
from lamella.kernels.passes import lower
from lamella.kernels.target import find_target
from tests.support.differential.running import read

TARGET = find_target("sm_90a")
SUBGROUP = 3


def planned() -> PipelinePlan:
    """How the product of the bench runs."""
    (function,) = lower(read(product_text(512, 512, 64, "f32")), TARGET).functions
    found = find_pipeline(function, TARGET)
    assert found is not None
    return found


def lay(lines: Array) -> Array:
    """Lines of 32 numbers as the copy engine lays them: of line r, piece c of 16 bytes is where c xor r mod 8 was."""
    pieces = lines.reshape(len(lines), 8, 4)
    order = np.arange(8)[None] ^ (np.arange(len(lines)) % 8)[:, None]
    return np.take_along_axis(pieces, order[..., None], 1).reshape(lines.shape)


def text_of(plan: PipelinePlan) -> str:
    """The sums of one thread as a function of the processor: (stage, lane, sums)."""
    out = IrWriter()
    context = EmitContext(out, TARGET, walk, subgroup_size=32, lane="%lane", subgroup_id=str(SUBGROUP))
    emitter = ProductEmitter(context, plan)
    count = plan.rows * plan.columns // 32
    start = []
    for number in range(count):
        place = out.value(f"getelementptr float, ptr %sums, i64 {number}")
        start.append(out.value(f"load float, ptr {place}"))
    group, pair = (
        out.value("lshr i32 %lane, 2"),
        out.value(f"shl i32 {out.value('and i32 %lane, 3')}, 1"),
    )
    line = out.value(f"add i32 {group}, {SUBGROUP * plan.columns}")
    right = out.value(f"add i32 {out.value(f'mul i32 {line}, {LINE}')}, {plan.left_bytes}")
    left = out.value(f"mul i32 {pair}, {LINE}")
    for number, value in enumerate(emitter._multiply_lines((left, right), (group, pair), start)):
        place = out.value(f"getelementptr float, ptr %sums, i64 {number}")
        out.line(f"store float {value}, ptr {place}")
    out.line("ret void")
    body = re.sub(
        r"inttoptr i32 (%\w+) to ptr addrspace\(3\)", r"getelementptr i8, ptr %stage, i32 \1", out.body()
    )
    body = body.replace("ptr addrspace(3)", "ptr")
    return "\n".join(
        [*out.declarations, f"define void @f(ptr %stage, i32 %lane, ptr %sums) {{\nentry:\n{body}\n}}"]
    )


def test_a_thread_adds_the_products_of_its_rows_and_columns() -> None:
    plan = planned()
    llvm = need("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(text_of(plan)), llvm.Target.from_default_triple().create_target_machine()
    )
    engine.finalize_object()
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
        engine.get_function_address("f")
    )
    random = np.random.default_rng(8)
    columns = 4 * plan.warpgroups * plan.columns
    a, b = (random.standard_normal((count, 32)).astype(np.float32) for count in (plan.rows, columns))
    stage = np.concatenate([lay(a), lay(b)])
    own = b[SUBGROUP * plan.columns : (SUBGROUP + 1) * plan.columns]
    want = a.astype(np.float64) @ own.T.astype(np.float64)
    found = np.full(want.shape, np.nan)
    for lane in range(32):
        sums = np.ones(plan.rows * plan.columns // 32, np.float32)
        call(stage.ctypes.data, lane, sums.ctypes.data)
        places = [
            (row + side + lane % 4 * 2, column + half + lane // 4)
            for column in range(0, plan.columns, 16)
            for row in range(0, plan.rows, 8)
            for half in (0, 8)
            for side in (0, 1)
        ]
        for (row, column), value in zip(places, sums, strict=True):
            found[row, column] = value - 1
    np.testing.assert_allclose(found, want, atol=1e-4)
