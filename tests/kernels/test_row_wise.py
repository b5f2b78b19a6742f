"""Kernels by rows: what is proved from the text, and that a kernel for any number of rows gives the same rows."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.backend import interpreter
from lamella.base.source import Source
from lamella.kernels.row_wise import by_rows, row_operands
from lamella.lang.tensor import check, parse
from lamella.lang.tensor.nodes import Function, Program

ELEMENTS = """func @f(%x: memref<f32x8x7x6x1>, %y: memref<f32x8x7x6x1>) {
  %0 = constant 0 : index
  %a = constant 6 : index
  for %i:index=%0,%a {
    %b = constant 7 : index
    for %j:index=%0,%b {
      %c = constant 8 : index
      foreach (%k):index=(%0),(%c) {
        %v = load %x[%k,%j,%i,%0] : f32
        %w = arith.add %v, %v : f32
        store %w, %y[%k,%j,%i,%0]
      }
    }
  }
}
"""
SUMS = """func @f(%x: memref<f32x5x4x3>, %s: memref<f32x5>, %y: memref<f32x4x3>) {
  %0 = constant 0 : index
  %n = constant 12 : index
  for %g:index=%0,%n {
    %b = constant 4 : index
    %j = arith.rem %g, %b : index
    %i = arith.div %g, %b : index
    %c = constant 5 : index
    %z = constant 0x0p+0 : f32
    %t = for %k:index=%0,%c init(%u=%z) -> (f32) {
      %v = load %x[%k,%j,%i] : f32
      %q = load %s[%k] : f32
      %p = arith.mul %v, %q : f32
      %r = arith.add %u, %p : f32
      yield (%r)
    }
    store %t, %y[%j,%i]
  }
}
"""
RUNNING = """func @f(%x: memref<f32x5x4x3>, %y: memref<f32x5x4x3>) {
  %0 = constant 0 : index
  %n = constant 12 : index
  for %g:index=%0,%n {
    %b = constant 4 : index
    %j = arith.rem %g, %b : index
    %i = arith.div %g, %b : index
    %c = constant 5 : index
    foreach (%k):index=(%0),(%c) {
      %z = constant 0x0p+0 : f32
      %t = for %l:index=%0,%j init(%u=%z) -> (f32) {
        %v = load %x[%k,%l,%i] : f32
        %r = arith.add %u, %v : f32
        yield (%r)
      }
      store %t, %y[%k,%j,%i]
    }
  }
}
"""
COLUMNS = """func @f(%x: memref<f32x4x3>, %y: memref<f32x4>) {
  %0 = constant 0 : index
  %n = constant 4 : index
  %m = constant 3 : index
  foreach (%i):index=(%0),(%n) {
    %z = constant 0x0p+0 : f32
    %t = for %k:index=%0,%m init(%u=%z) -> (f32) {
      %v = load %x[%i,%k] : f32
      %r = arith.add %u, %v : f32
      yield (%r)
    }
    store %t, %y[%i]
  }
}
"""
NUMBERED = """func @f(%x: memref<f32x4x3>, %y: memref<f32x4x3>) {
  %0 = constant 0 : index
  %n = constant 3 : index
  %m = constant 4 : index
  for %i:index=%0,%n {
    foreach (%k):index=(%0),(%m) {
      %v = cast %i : f32
      store %v, %y[%k,%i]
    }
  }
}
"""


def read(text: str) -> Function:
    parsed = parse(Source("kernel", text))
    assert not parsed.findings
    return parsed.program.functions[0]


def call(function: Function, arrays: list[np.ndarray]) -> None:
    """Run a kernel on row-major arrays; the last axis of an array is the first mode of its memref."""
    assert not [item for item in check(Program((function,))) if item.severity == "error"]
    interpreter.compile_program(Program((function,))).call("f", [item.transpose() for item in arrays], 1)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (ELEMENTS, ((2, 168), (2, 168))),
        (SUMS, ((12, 5), (5,), (12,))),
        (RUNNING, ((3, 4, 5), (3, 4, 5))),
    ],
)
def test_a_kernel_for_some_rows_gives_these_rows(text: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    function = read(text)
    found = by_rows(function)
    assert found is not None
    assert found.shapes == shapes
    rows = row_operands(found.function)
    names = [item.value.name for item in function.parameters]
    random = np.random.default_rng(3)
    memrefs = [tuple(reversed(item.type.shape)) for item in function.parameters]  # type: ignore[union-attr]
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in memrefs]
    arrays[-1][...] = 0
    wanted = [item.copy() for item in arrays]
    call(function, wanted)
    whole = [item.reshape(shape).copy() for item, shape in zip(arrays, shapes, strict=True)]
    first = [item[:1] if name in rows else item for item, name in zip(whole, names, strict=True)]
    rest = [item[1:] if name in rows else item for item, name in zip(whole, names, strict=True)]
    call(found.function, first)
    call(found.function, rest)
    np.testing.assert_array_equal(whole[-1].reshape(wanted[-1].shape), wanted[-1])


@pytest.mark.parametrize("text", [NUMBERED, COLUMNS])
def test_what_depends_on_the_number_of_a_row_is_not_by_rows(text: str) -> None:
    """A kernel that computes with the number, and one that sums up columns: its input has no such rows."""
    assert by_rows(read(text)) is None
    opened = text.replace("%n = constant 4", "%n = size %y[0]").replace("%n = constant 3", "%n = size %y[1]")
    opened = opened.replace("%y: memref<f32x4x3>", "%y: memref<f32x4x?>")
    opened = opened.replace("%y: memref<f32x4>", "%y: memref<f32x?>")
    assert not row_operands(read(opened))
