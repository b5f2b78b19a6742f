"""Aliases against NumPy's views, and local memory against all ways through a program."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import ERROR
from lamella.base.source import Source
from lamella.lang.tensor import check, parse

ALIAS, UNINITIALISED = "TEN147", "TEN148"


def lines_of(text: str, code: str) -> list[int]:
    """The lines of findings of one rule."""
    program, found = parse(Source("k.tensor", text))
    assert not found, "\n".join(map(str, found))
    findings = check(program)
    assert not [str(item) for item in findings if item.severity == ERROR]
    return [item.span.line for item in findings if item.code == code]


# --- aliases ------------------------------------------------------------------------------------------------

Block = tuple[tuple[int, int], tuple[int, int]]


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Block, Block]:
    """Two blocks of one shape in a matrix of 8 times 12 elements."""
    rows, columns = draw(st.integers(1, 8)), draw(st.integers(1, 12))
    places = [(draw(st.integers(0, 8 - rows)), draw(st.integers(0, 12 - columns))) for _ in range(2)]
    one, other = (((row, rows), (column, columns)) for row, column in places)
    return one, other


@given(blocks(), st.booleans())
def test_blocks_that_share_memory(pair: tuple[Block, Block], shifted: bool) -> None:
    whole = np.zeros((8, 12), order="F")
    views = [whole[row : row + rows, column : column + columns] for (row, rows), (column, columns) in pair]
    move = "%i = arith.add %n, %n : index" if shifted else "%i = constant 0 : index"
    names, made = ("%V", "%W"), ""
    for name, ((row, rows), (column, columns)) in zip(names, pair, strict=True):
        made += f"{name}c = constant {column} : index {name}i = arith.add %i, {name}c : index\n"
        type_ = f"memref<f64x{rows}x{columns},strided<1,8>>"
        made += f"{name} = subview %A[{row}:{rows},{name}i:{columns}] : {type_}\n"
    text = f"func @k(%A: memref<f64x8x?>, %n: index, %f: f64) {{ {move} {made} hadamard %f, %V, %V, %f, %W }}"
    assert bool(lines_of(text, ALIAS)) == (np.shares_memory(views[0], views[1]) and pair[0] != pair[1])


SQUARES = "func @k(%A: memref<f32x8x8>, %B: memref<f32x8x8>, %v: memref<f32x8>, %f: f32, %g: group<memref<f32x8x8>x4>) "


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("gemm.n.n %f, %A, %B, %f, %B", True),
        ("gemm.n.n %f, %A, %A, %f, %B", False),
        ("axpby.n %f, %A, %f, %A", False),
        ("axpby.t %f, %A, %f, %A", True),
        ("axpby.t %f, %v, %f, %v", False),
        ("cumsum %f, %A, 0, %f, %A", False),
        ("%r = subview %A[0:8,0] : memref<f32x8> sum.n %f, %A, %f, %r", True),
        ("%r = subview %A[0:8,0] : memref<f32x8> sum.n %f, %B, %f, %r", False),
        (
            "%e = expand %A[0->2 x 4] : memref<f32x2x4x8> %b = fuse %e[0,1] : memref<f32x8x8> "
            "gemm.n.t %f, %b, %B, %f, %A",
            True,
        ),
        (
            "%i = builtin.group_id : index %a = load %g[%i] : memref<f32x8x8> gemm.n.n %f, %a, %A, %f, %B",
            False,
        ),
        (
            "%i = constant 1 : index %a = load %g[%i] : memref<f32x8x8> %b = load %g[%i] : memref<f32x8x8> "
            "gemm.n.n %f, %a, %A, %f, %b",
            True,
        ),
    ],
)
def test_operands_that_are_the_result(body: str, found: bool) -> None:
    assert bool(lines_of(f"{SQUARES} {{ {body} }}", ALIAS)) == found


# --- local memory -------------------------------------------------------------------------------------------

WRITES = ("axpby.n %f, %A, %zero, %tmp", "foreach (%i)=(%o),(%n) { store %f, %tmp[%i] }")
READS = (
    "axpby.n %f, %tmp, %f, %A",
    "axpby.n %f, %A, %one, %tmp",
    "axpby.n %f, %A, %f, %tmp",
    "foreach (%i)=(%o),(%n) { %x = load %tmp[%i] : f32 }",
)


@dataclass(frozen=True, slots=True)
class Node:
    """A statement of a random program: a write, a read, a choice or a loop."""

    kind: str
    text: str = ""
    body: tuple[Node, ...] = ()
    other: tuple[Node, ...] = ()
    number: int = 0


def nodes() -> st.SearchStrategy[list[Node]]:
    """Random programs."""
    leaves = st.one_of(
        st.sampled_from(WRITES).map(lambda text: Node("write", text)),
        st.sampled_from(READS).map(lambda text: Node("read", text)),
    )
    inner = st.recursive(
        leaves,
        lambda deeper: st.builds(
            lambda kind, body, other: Node(kind, "", tuple(body), tuple(other) if kind == "if" else ()),
            st.sampled_from(["if", "for"]),
            st.lists(deeper, max_size=3),
            st.lists(deeper, max_size=2),
        ),
        max_leaves=8,
    )
    return st.lists(inner, max_size=4)


class Program:
    """The text of a random program, and which of its reads come first for some conditions and trips."""

    def __init__(self, body: list[Node]) -> None:
        self.lines: list[str] = []
        self.choices: list[str] = []
        self._root = [self._number(node) for node in body]

    def _number(self, node: Node) -> Node:
        number = len(self.lines)
        if node.text:
            self.lines.append(node.text)
            return Node(node.kind, node.text, number=number)
        choice = len(self.choices)
        self.choices.append(node.kind)
        head = f"if %c{choice} {{" if node.kind == "if" else f"for %k{choice}=%o,%t{choice} {{"
        self.lines.append(head)
        body = tuple(self._number(item) for item in node.body)
        self.lines.append("} else {" if node.kind == "if" else "}")
        other = tuple(self._number(item) for item in node.other)
        if node.kind == "if":
            self.lines.append("}")
        return Node(node.kind, "", body, other, choice)

    @property
    def text(self) -> str:
        """The text, one statement on a line."""
        types = {"if": "%c{}: bool", "for": "%t{}: index"}
        extra = "".join(", " + types[kind].format(number) for number, kind in enumerate(self.choices))
        head = (
            f"func @k(%A: memref<f32x8>, %f: f32{extra}) {{ %o = constant 0 : index %n = constant 8 : index "
        )
        head += "%zero = constant 0.0 : f32 %one = constant 1.0 : f32 %tmp = alloca : memref<f32x8,local>"
        return "\n".join([head, *self.lines, "}"])

    def early(self) -> set[int]:
        """The lines of reads that nothing was written before, for some way through the program."""
        found: set[int] = set()
        for ways in product(range(3), repeat=len(self.choices)):
            self._run(self._root, ways, False, found)
        return found

    def _run(self, body: list[Node], ways: tuple[int, ...], written: bool, found: set[int]) -> bool:
        for node in body:
            if node.kind == "read" and not written:
                found.add(node.number + 2)
            if node.kind == "write" or node.text == READS[1]:
                written = True
            elif node.kind == "if":
                written = self._run(
                    list(node.body if ways[node.number] else node.other), ways, written, found
                )
            elif node.kind == "for":
                for _ in range(ways[node.number]):
                    written = self._run(list(node.body), ways, written, found)
        return written


@given(nodes())
def test_what_is_said_to_be_read_first_is(body: list[Node]) -> None:
    program = Program(body)
    if len(program.choices) > 6:
        return
    told = set(lines_of(program.text, UNINITIALISED))
    assert told <= program.early(), program.text
    if not program.choices:
        assert told == program.early(), program.text


def test_views_and_atomics_of_local_memory() -> None:
    head = "func @k(%A: memref<f32x8>, %f: f32) { %o = constant 0 : index %one = constant 1.0 : f32\n"
    head += "%tmp = alloca : memref<f32x8,local> %v = subview %tmp[0:4] : memref<f32x4,local>\n"
    assert lines_of(head + "parallel { store.atomic_add %f, %v[%o] } }", UNINITIALISED) == [3]
    assert lines_of(head + "parallel { store %f, %v[%o] } axpby.n %f, %tmp, %f, %A }", UNINITIALISED) == []
    assert lines_of(head + "axpby.n %f, %tmp, %f, %A }", UNINITIALISED) == [3]


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("axpby.n %f, %A, %f, %tmp", [3]),
        ("%b = arith.mul %f, %f : f32 axpby.n %f, %A, %b, %tmp", [3]),
        ("%b = arith.select %c, %f, %one : f32 axpby.n %f, %A, %b, %tmp", [3]),
        ("%b = constant 0.0 : f32 axpby.n %f, %A, %b, %tmp", []),
        ("axpby.n %f, %A, %f, %tmp axpby.n %f, %A, %f, %tmp", [3]),
        ("%i = arith.mul %n, %o : index %v = load %tmp[%i] : f32", [3]),
        ("%t = subview %tmp[%o:%n] : memref<f32x?,local> sum.n %f, %M, %f, %t", [3]),
        ("for %i=%o,%n { axpby.n %f, %A, %f, %tmp }", [3]),
        ("%z = constant 0.0 : f32 axpby.n %f, %A, %z, %tmp axpby.n %f, %A, %f, %tmp", []),
    ],
)
def test_a_factor_that_only_the_run_knows_reads(body: str, lines: list[int]) -> None:
    """Unwritten local memory times a number of the run: only a constant 0 does not read it."""
    head = "func @k(%A: memref<f32x8>, %M: memref<f32x?x8>, %f: f32, %n: index, %c: bool) {"
    start = "%o = constant 0 : index %one = constant 1.0 : f32\n%tmp = alloca : memref<f32x8,local>\n"
    assert lines_of(f"{head} {start}{body} }}", UNINITIALISED) == lines
