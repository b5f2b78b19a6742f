"""What is emitted of random kernels: nothing that is called by a name of the file, code for every kind of processor."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.backend.cpu.compile import emit
from lamella.backend.cpu.jit import MACHINES, assemble, assembly, host_machine
from lamella.kernels.target import find_target
from lamella.lang.tensor import write
from tests.support.differential.running import read
from tests.support.strategies.tensor_programs import Kernel, kernels

TARGET = find_target("cpu-avx512")
PRODUCT = """
func @multiply(%A: memref<f32x64x64>, %B: memref<f32x64x64>, %C: memref<f32x64x64>) {
  %one = constant 1.0 : f32
  gemm.n.n %one, %A, %B, %one, %C
}
"""
FUNCTIONS = ("malloc", "kernel_1", "llvm", "main", "A" * 1000, "ret", "x0", "define", "memcpy", "entry")
ODD = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,20}", fullmatch=True) | st.sampled_from(
    ("v1", "i", "args", "first", "scratch", "ptr", "undef", "B" * 500, "entry_", "group_")
)
"""Names that the language allows and that mean something in LLVM, in C or here."""


def strip(text: str) -> list[str]:
    """The lines without their comments."""
    return [line for line in (line.split(";")[0].rstrip() for line in text.split("\n")) if line]


def rename(text: str, function: str, stem: str) -> str:
    """The same kernel with other names."""
    found = re.sub(r"%([A-Za-z]+)(\d*)", rf"%{stem}_\1_\2_", text)
    return found.replace("@f(", f"@{function}(")


@given(kernels(depth=1), st.sampled_from(FUNCTIONS), ODD)
def test_names_of_the_file_are_not_in_the_text(kernel: Kernel, function: str, stem: str) -> None:
    plain = emit(read(kernel.text), TARGET)
    other = emit(read(rename(kernel.text, function, stem)), TARGET)
    assert strip(plain.text) == strip(other.text)
    assert other.entries[0].name == function
    assert plain.entries[0].symbol == other.entries[0].symbol == "kernel_0"


def test_a_comment_does_not_end_early() -> None:
    text = PRODUCT.replace("  gemm", '  ; }\n  ; "\\0a" declare void @system(ptr)\r\n  gemm')
    assert strip(emit(read(text), TARGET).text) == strip(emit(read(PRODUCT), TARGET).text)


@given(kernels(depth=1))
@settings(max_examples=10)
@pytest.mark.parametrize("name", ["cpu-avx2", "cpu-aarch64", "cpu-avx512"])
def test_every_processor_has_code(name: str, kernel: Kernel) -> None:
    found = assembly(emit(read(kernel.text), find_target(name)).text, MACHINES[name])
    assert "kernel_0" in found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("avx512", (r"%zmm\d+", r"vfmadd\d+ps\s.*%zmm")),
        ("avx2", (r"%ymm\d+", r"vfmadd\d+ps\s.*%ymm")),
        ("aarch64", (r"fmla\s+v\d+\.4s",)),
    ],
)
def test_products_use_the_vectors_of_a_processor(name: str, words: tuple[str, ...]) -> None:
    found = assembly(emit(read(PRODUCT), find_target(f"cpu-{name}")).text, MACHINES[f"cpu-{name}"])
    for word in words:
        assert re.search(word, found), word


@given(kernels())
def test_emission_is_deterministic(kernel: Kernel) -> None:
    program = read(kernel.text)
    first = emit(program, TARGET)
    second = emit(read(write(program)), TARGET)
    assert strip(first.text) == strip(second.text)
    assert assemble(first.text, host_machine()) == assemble(first.text, host_machine())
