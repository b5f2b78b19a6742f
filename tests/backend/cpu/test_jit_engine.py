"""Text in, machine code out: what runs, what is refused, what other machines get."""

from __future__ import annotations

import ctypes
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.cpu.jit import (
    MACHINES,
    Processor,
    assemble,
    assembly,
    build,
    find_machine,
    host_machine,
    load,
    object_key,
)
from lamella.backend.cpu.jit.engine import KNOWN_PASSES, undefined_symbols
from lamella.base.errors import InputError

REMAINDER = """
define double @remainder(double %a, double %b) {
  %c = frem double %a, %b
  ret double %c
}
define i64 @constant() {
  %p = alloca [4 x i64]
  %q = getelementptr [4 x i64], ptr %p, i64 0, i64 2
  store i64 77, ptr %q
  %v = load i64, ptr %q
  ret i64 %v
}"""
ADD = """
define void @add(ptr %a, ptr %b) {
  %x = load <16 x float>, ptr %a, align 4
  %y = fadd <16 x float> %x, splat (float 1.5)
  store <16 x float> %y, ptr %b, align 4
  ret void
}"""
REMAINDER_TYPE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)
POINTERS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e3))
def test_code_calls_functions_of_c(a: float, b: float) -> None:
    loaded = build(REMAINDER, ["remainder", "constant"])
    assert REMAINDER_TYPE(loaded.address("remainder"))(a, b) == math.fmod(a, b)
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.address("constant"))() == 77


@pytest.mark.parametrize("passes", [(), ("sroa",), tuple(KNOWN_PASSES)], ids=len)
def test_constants_are_found_whatever_the_passes(passes: tuple[str, ...]) -> None:
    loaded = build(ADD, ["add"], passes=passes)
    a, b = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    POINTERS(loaded.address("add"))(a.ctypes.data, b.ctypes.data)
    np.testing.assert_array_equal(b, a + np.float32(1.5))


def test_many_modules_live_side_by_side() -> None:
    texts = [f"define i64 @value() {{\n  ret i64 {number}\n}}" for number in range(20)]
    modules = [build(text, ["value"]) for text in texts]
    del modules[::2]
    found = [ctypes.CFUNCTYPE(ctypes.c_int64)(item.address("value"))() for item in modules]
    assert found == list(range(1, 20, 2))


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "define void @f() {\n  %x = add i32 %y, 1\n  ret void\n}",
        "define i32 @f() {\n  ret void\n}",
        "define void @f() {\n  br label %missing\n}",
        "declare void @nobody_has_this()\ndefine void @f() {\n  call void @nobody_has_this()\n  ret void\n}",
        "define void @g() {\n  ret void\n}",
        "\0",
        "define void @f() {\n",
    ],
)
def test_what_llvm_refuses_is_one_error(text: str) -> None:
    with pytest.raises(InputError, match=r"LAM001.*LLVM refuses"):
        build(text, ["f"])


@given(st.text(max_size=60))
def test_any_text_is_refused_or_compiled(text: str) -> None:
    try:
        assemble(text, host_machine())
    except InputError:
        return


def test_an_address_that_is_not_there() -> None:
    with pytest.raises(InputError, match="no symbol 'b'"):
        build("define void @a() {\n  ret void\n}", ["a"]).address("b")


def test_open_symbols_are_read_off_the_object() -> None:
    content = assemble(REMAINDER, host_machine())
    assert undefined_symbols(content) == ["fmod"]
    assert undefined_symbols(b"no object at all") == []


@given(st.data())
def test_damaged_objects_are_read_safely(data: st.DataObject) -> None:
    content = bytearray(assemble(REMAINDER, host_machine()))
    place = data.draw(st.integers(6, len(content) - 1))
    content[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    for damaged in (bytes(content), bytes(content[:cut])):
        try:
            undefined_symbols(damaged)
        except InputError:
            continue


@pytest.mark.parametrize(
    ("name", "level", "instruction"),
    [
        ("cpu-avx512", "avx512", r"vaddps\s.*%zmm"),
        ("cpu-avx2", "avx2", r"vaddps\s.*%ymm"),
        ("cpu-aarch64", "neon", r"fadd\s+v\d+\.4s"),
        ("cuda", "ptx", r"add(\.rn)?\.f32"),
    ],
)
def test_named_machines_get_their_instructions(name: str, level: str, instruction: str) -> None:
    machine = find_machine(name)
    assert machine is not None
    assert machine.level == level
    text = assembly(ADD, machine)
    assert re.search(instruction, text)
    assert "zmm" not in text or level == "avx512"


def test_the_host_is_a_machine_and_others_are_unknown() -> None:
    assert find_machine(None) == host_machine()
    assert find_machine("abacus") is None
    assert not host_machine().has("prefer-256-bit")
    assert Processor("x86_64-unknown-linux-gnu", "x86-64").level == "plain"


def test_an_object_of_another_machine_is_not_loaded() -> None:
    with pytest.raises(InputError):
        load(assemble(ADD, MACHINES["cpu-aarch64"]), ["add"])


def test_a_key_depends_on_everything() -> None:
    host = host_machine()
    changed = [
        Processor(host.triple, host.cpu, host.features + ",+x"),
        Processor(host.triple, "x", host.features),
    ]
    keys = [object_key(ADD, host), object_key(ADD + "\n", host), object_key(ADD, host, ("sroa", "dce"))]
    keys += [object_key(ADD, machine) for machine in (*changed, *set(MACHINES.values()))]
    assert len(set(keys)) == len(keys)
    assert object_key(ADD, host) == keys[0]
