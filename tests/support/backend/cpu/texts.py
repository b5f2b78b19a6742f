"""Kernels whose machine code is written by hand, with the program that their arguments are verified against."""

from __future__ import annotations

from lamella.backend.cpu.compile import load_kernels
from lamella.backend.cpu.compiled import Compiled, KernelSymbol
from lamella.backend.cpu.run.kernels import CompiledKernels
from lamella.base.source import Source
from lamella.lang.tensor import parse

HEAD = "define void @{symbol}(ptr %args, i64 %first, i64 %last, i64 %groups, ptr %scratch) {{\n{body}\n}}\n"
LOOP = """entry:
{before}
  %any = icmp slt i64 %first, %last
  br i1 %any, label %group, label %done
group:
  %i = phi i64 [ %first, %entry ], [ %more, %group ]
{inside}
  %more = add i64 %i, 1
  %again = icmp slt i64 %more, %last
  br i1 %again, label %group, label %done
done:
  ret void"""


def load_slots(*types: str) -> str:
    """Instructions that load the slots of the arguments into %a0, %a1 and so on."""
    lines = []
    for index, kind in enumerate(types):
        lines.append(f"  %p{index} = getelementptr i8, ptr %args, i64 {8 * index}")
        lines.append(f"  %a{index} = load {kind}, ptr %p{index}")
    return "\n".join(lines)


def write_kernel(symbol: str, before: str, inside: str) -> str:
    """The text of a kernel that does something for each work-group %i."""
    return HEAD.format(symbol=symbol, body=LOOP.format(before=before, inside=inside))


def make_kernels(program: str, texts: list[str], local_bytes: int = 0, threads: int = 1) -> CompiledKernels:
    """Kernels of a program whose machine code is given, in the order of its functions."""
    parsed = parse(Source("test.tensor", program))
    assert not [item for item in parsed.findings if item.severity == "error"], parsed.findings
    names = [function.name for function in parsed.program.functions]
    entries = tuple(KernelSymbol(name, f"kernel_{index}", local_bytes) for index, name in enumerate(names))
    compiled = Compiled("\n".join(texts), entries, parsed.program, parsed.program)
    return load_kernels(compiled, threads=threads)


COUNT = "func @count(%out: memref<i64x?>) {}"
COUNT_TEXT = write_kernel(
    "kernel_0",
    load_slots("ptr", "i64"),
    """  %at = getelementptr i64, ptr %a0, i64 %i
  %old = atomicrmw add ptr %at, i64 1 monotonic""",
)
AXPY = """
func @axpy(%a: f32, %x: memref<f32x?>, %y: memref<f32x?> {alignment=4}) {
  %one = constant 1.0 : f32
  axpby.n %a, %x, %one, %y
}"""
AXPY_TEXT = write_kernel(
    "kernel_0",
    load_slots("float", "ptr", "i64", "ptr", "i64"),
    """  %px = getelementptr float, ptr %a1, i64 %i
  %py = getelementptr float, ptr %a3, i64 %i
  %x = load float, ptr %px
  %y = load float, ptr %py
  %product = fmul float %a0, %x
  %sum = fadd float %product, %y
  store float %sum, ptr %py""",
)
