"""Objects in memory without LLVM: the same results as LLVM's loader, and nothing but a refusal for damaged ones."""

from __future__ import annotations

import ctypes
import math
import platform
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.cpu.jit.engine import assemble, host_machine, load_all
from lamella.backend.cpu.jit.placing import place_objects
from lamella.base.errors import InputError, Unsupported

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="objects of another processor")

REMAINDER = """
declare double @fmod(double, double)
define double @remainder(double %a, double %b) {
  %q = fmul double %b, 0x3FF8000000000000
  %r = call double @fmod(double %a, double %q)
  ret double %r
}
"""
TABLE = """
@numbers = private unnamed_addr constant [4 x i32] [i32 7, i32 11, i32 13, i32 17]
define i32 @pick(i64 %place) {
  %address = getelementptr [4 x i32], ptr @numbers, i64 0, i64 %place
  %found = load i32, ptr %address
  ret i32 %found
}
"""
COUNTER = """
@count = global i32 0
define i32 @next() {
  %old = load i32, ptr @count
  %new = add i32 %old, 1
  store i32 %new, ptr @count
  ret i32 %new
}
"""


def no_function(name: str) -> int:
    raise AssertionError(name)


def test_code_constants_and_functions_of_c_find_each_other() -> None:
    objects = [assemble(text, host_machine()) for text in (REMAINDER, TABLE)]
    wanted = ctypes.cast(ctypes.CDLL("libm.so.6").fmod, ctypes.c_void_p).value or 0
    memory, addresses = place_objects(objects, ["remainder", "pick"], lambda name: {"fmod": wanted}[name])
    remainder = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)(addresses["remainder"])
    pick = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(addresses["pick"])
    assert remainder(7.25, 2.0) == math.fmod(7.25, 3.0)
    assert [pick(place) for place in range(4)] == [7, 11, 13, 17]
    del memory


def test_what_has_memory_of_its_own_is_left_to_llvm() -> None:
    content = assemble(COUNTER, host_machine())
    with pytest.raises(Unsupported, match="memory of its own"):
        place_objects([content], ["next"], no_function)
    code = load_all([content], ["next"])
    count = ctypes.CFUNCTYPE(ctypes.c_int32)(code.address("next"))
    assert [count(), count()] == [1, 2]


def test_a_symbol_that_is_not_there() -> None:
    content = assemble(TABLE, host_machine())
    assert place_objects([content], ["other"], no_function)[1] == {}
    with pytest.raises(InputError, match="no symbol 'other'"):
        load_all([content], ["other"])
    with pytest.raises(Unsupported):
        place_objects([b"no object at all"], [], no_function)


@cache
def whole() -> bytes:
    """An object with all that we know."""
    return assemble(REMAINDER, host_machine())


@given(st.data())
def test_damaged_objects_are_read_safely(data: st.DataObject) -> None:
    content = bytearray(whole())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    for damaged in (bytes(content), bytes(content[:cut])):
        try:
            place_objects([damaged], ["remainder"], lambda _: 0)
        except (Unsupported, InputError):
            continue
