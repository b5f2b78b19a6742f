"""Barriers: every way through a kernel is followed, and each of two accesses in conflict has one between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings

from lamella.base.source import Source
from lamella.kernels.hazards import local_size, stack_offset
from lamella.kernels.passes import insert_barriers, lower
from lamella.kernels.rewrite import change_functions, make_names_unique, rewrite, walk
from lamella.kernels.target import find_target
from lamella.lang.tensor import nodes as n
from lamella.lang.tensor import parse
from tests.support.strategies.tensor_kernels import Kernel, kernels

TARGET = find_target("cpu-avx512")
Leaf: TypeAlias = n.Barrier | tuple[str, str]
Step: TypeAlias = Leaf | list[Leaf]
PATHS = 600


@dataclass(frozen=True, slots=True)
class Access:
    """An access of one execution of a collective statement; `kind` is read, write or add."""

    statement: int
    memory: str
    kind: str


class Ways:
    """All ways through a function, loops taken up to twice."""

    def __init__(self, function: n.Function) -> None:
        self.roots: dict[str, str] = {p.value.name: p.value.name for p in function.parameters}
        self.places: dict[str, tuple[int, int]] = {}
        for statement in walk(function.body):
            self._note(statement)
        self.function = function

    def _note(self, statement: n.Statement) -> None:
        item = statement.instruction
        if isinstance(item, n.Alloca):
            name = statement.results[0].name
            self.roots[name] = name
            offset = stack_offset(item)
            if offset is not None:
                self.places[name] = (offset, offset + local_size(item.type))
        elif isinstance(item, n.Subview | n.Expand | n.Fuse | n.Load) and item.operand.name in self.roots:
            self.roots[statement.results[0].name] = self.roots[item.operand.name]

    def leaf(self, item: n.Instruction) -> Iterator[tuple[str, str]]:
        """What an instruction without regions does to memory."""
        if isinstance(item, n.CoopLoad) or (isinstance(item, n.Load) and isinstance(item.type, n.Scalar)):
            yield self.roots[item.operand.name], "read"
        elif isinstance(item, n.Store | n.CoopStore):
            yield self.roots[item.operand.name], "add" if item.flag == "atomic_add" else "write"
        elif isinstance(item, n.Blas):
            _, *sources, _, target = item.operands
            yield from ((self.roots[value.name], "read") for value in sources)
            yield self.roots[target.name], "write"

    def region(self, region: n.Region) -> Iterator[list[Step]]:
        """The executions of a region: leaves and barriers in order."""
        ways = [list(islice(self.statement(item), 9)) for item in region.statements]
        for chosen in islice(product(*(item for item in ways if item != [[]])), PATHS):
            yield [step for part in chosen for step in part]

    def statement(self, statement: n.Statement) -> Iterator[list[Step]]:
        item = statement.instruction
        if isinstance(item, n.For):
            bodies = list(islice(self.region(item.body), 3))
            yield []
            yield from bodies
            yield from ([*a, *b] for a, b in product(bodies, bodies))
        elif isinstance(item, n.If):
            yield from islice(self.region(item.then), 4)
            yield from islice(self.region(item.otherwise), 4) if item.otherwise else [[]]
        elif isinstance(item, n.Parallel | n.Foreach):
            yield [list(self.together(item.body))]
        elif isinstance(item, n.Barrier):
            yield [item]
        else:
            found = list(self.leaf(item))
            yield [[*found]] if found else []

    def together(self, region: n.Region) -> Iterator[Leaf]:
        """The steps of an SPMD region: only a barrier that all work-items meet counts."""
        for statement in region.statements:
            if isinstance(statement.instruction, n.Barrier):
                yield statement.instruction
            for inner in walk(n.Region((statement,))):
                yield from self.leaf(inner.instruction)

    def conflicts(self) -> bool:
        """Whether on some way two statements disturb each other."""
        return any(self._disturbs(way) for way in islice(self.region(self.function.body), PATHS))

    def _disturbs(self, way: list[Step]) -> bool:
        before: list[Access] = []
        for number, step in enumerate(way):
            parts = step if isinstance(step, list) else [step]
            for part in parts:
                if isinstance(part, n.Barrier):
                    before = [item for item in before if not self._closed(item, part)]
                    continue
                access = Access(number, *part)
                if any(self._disturb(item, access) for item in before):
                    return True
                before.append(access)
        return False

    def _closed(self, access: Access, barrier: n.Barrier) -> bool:
        is_local = access.memory in self.locals
        return barrier.on_local if is_local else barrier.on_global

    @property
    def locals(self) -> set[str]:
        parameters = {item.value.name for item in self.function.parameters}
        return set(self.roots.values()) - parameters

    def _disturb(self, left: Access, right: Access) -> bool:
        if left.statement == right.statement or {left.kind, right.kind} in ({"read"}, {"add"}):
            return False
        if left.memory == right.memory:
            return True
        if left.memory not in self.places or right.memory not in self.places:
            return False
        (a, b), (c, d) = self.places[left.memory], self.places[right.memory]
        return a < d and c < b


def weaken(function: n.Function) -> Iterator[n.Function]:
    """The function with one of its collective barriers for less memory or gone, for each of them."""
    body = function.body
    for statement in _collective(body):
        barrier = statement.instruction
        if not isinstance(barrier, n.Barrier):
            continue
        for weaker in {replace(barrier, on_global=False), replace(barrier, on_local=False)} - {barrier}:

            def visit(
                region: n.Region, _: bool, old: n.Statement = statement, new: n.Barrier = weaker
            ) -> n.Region:
                changed = (
                    replace(item, instruction=new) if item is old else item for item in region.statements
                )
                return replace(region, statements=tuple(changed))

            yield replace(function, body=rewrite(body, visit))


def _collective(region: n.Region) -> Iterator[n.Statement]:
    for statement in region.statements:
        yield statement
        item = statement.instruction
        if isinstance(item, n.For):
            yield from _collective(item.body)
        elif isinstance(item, n.If):
            yield from _collective(item.then)
            yield from _collective(item.otherwise or n.Region(()))


def read(text: str) -> n.Program:
    return change_functions(parse(Source("kernels.tensor", text)).program, make_names_unique)


@given(kernels(depth=1))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_barriers_separate_all_conflicts(kernel: Kernel) -> None:
    (function,) = lower(read(kernel.text), TARGET).functions
    assert not Ways(function).conflicts()


@given(kernels(depth=1))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_no_barrier_can_be_left_out(kernel: Kernel) -> None:
    (function,) = insert_barriers(read(kernel.text), TARGET).functions
    for shorter in weaken(function):
        assert Ways(shorter).conflicts()


HEAD = "func @f(%A: memref<f32x8>, %B: memref<f32x8>, %G: group<memref<f32x8>x2>) {\n"
START = (
    "%a = constant 1.0 : f32\n%z = constant 0.0 : f32\n%0 = constant 0 : index\n%8 = constant 8 : index\n"
    "%t = alloca : memref<f32x8,local>\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("axpby.n %a, %A, %z, %B\naxpby.n %a, %B, %z, %t", ["barrier.global"]),
        ("axpby.n %a, %A, %z, %t\naxpby.n %a, %t, %z, %B", ["barrier.local"]),
        ("axpby.n %a, %A, %z, %t\naxpby.n %a, %A, %z, %B", []),
        ("axpby.n %a, %A, %z, %B\naxpby.n %a, %t, %z, %A", ["barrier.global"]),
        ("axpby.n %a, %A, %z, %t\nbarrier.local\naxpby.n %a, %t, %z, %B", ["barrier.local"]),
        (
            "axpby.n %a, %A, %z, %t\nbarrier.global\naxpby.n %a, %t, %z, %B",
            ["barrier.global", "barrier.local"],
        ),
        ("axpby.n.atomic %a, %A, %a, %B\naxpby.n.atomic %a, %t, %a, %B", []),
        ("axpby.n.atomic %a, %A, %z, %B\naxpby.n.atomic %a, %t, %a, %B", ["barrier.global"]),
        (
            "%v = subview %B[0:8] : memref<f32x8>\naxpby.n %a, %A, %z, %v\naxpby.n %a, %B, %z, %t",
            ["barrier.global"],
        ),
        (
            "%g = load %G[%0] : memref<f32x8>\n%h = load %G[%0] : memref<f32x8>\n"
            "axpby.n %a, %A, %z, %g\naxpby.n %a, %h, %z, %B",
            ["barrier.global"],
        ),
        (
            "for %i:index=%0,%8 {\naxpby.n %a, %t, %z, %A\naxpby.n %a, %B, %z, %t\n}",
            ["barrier.global.local", "barrier.local"],
        ),
        ("for %i:index=%0,%8 {\naxpby.n %a, %A, %z, %B\n}", ["barrier.global"]),
        ("for %i:index=%0,%8 {\naxpby.n.atomic %a, %A, %a, %B\n}", []),
        ("for %i:index=%0,%8 {\nfor %j:index=%0,%8 {\naxpby.n %a, %A, %z, %B\n}\n}", ["barrier.global"]),
    ],
)
def test_where_barriers_are(text: str, expected: list[str]) -> None:
    (function,) = insert_barriers(read(f"{HEAD}{START}{text}\n}}\n"), TARGET).functions
    found = [item.instruction for item in walk(function.body) if isinstance(item.instruction, n.Barrier)]
    assert [_spell(item) for item in found] == expected


def _spell(barrier: n.Barrier) -> str:
    return "barrier" + ".global" * barrier.on_global + ".local" * barrier.on_local


def test_a_barrier_of_an_spmd_region_counts() -> None:
    text = "parallel {\nstore %a, %t[%0]\nbarrier.local\n}\nparallel {\n%x = load %t[%0] : f32\n}"
    (function,) = insert_barriers(read(f"{HEAD}{START}{text}\n}}\n"), TARGET).functions
    assert sum(isinstance(item.instruction, n.Barrier) for item in walk(function.body)) == 1


def test_cooperative_accesses_count() -> None:
    text = (
        "%D = alloca : memref<f32x8x8,local>\nparallel {\n%m = constant 1.0 : coopmatrix<f32x8x8,matrix_acc>\n"
        "cooperative_matrix_store %m, %D[%0,%0]\n}\nparallel {\n%c = cooperative_matrix_load.n %D[%0,%0] : "
        "coopmatrix<f32x8x8,matrix_acc>\n}"
    )
    (function,) = insert_barriers(read(f"{HEAD}{START}{text}\n}}\n"), TARGET).functions
    assert sum(isinstance(item.instruction, n.Barrier) for item in walk(function.body)) == 1


def test_local_memory_that_is_used_again_is_left_first() -> None:
    text = (
        "axpby.n %a, %A, %z, %t\naxpby.n %a, %t, %z, %B\n%u = alloca : memref<f32x8,local>\n"
        "axpby.n %a, %A, %z, %u\naxpby.n %a, %u, %a, %B"
    )
    (function,) = lower(read(f"{HEAD}{START}{text}\n}}\n"), TARGET).functions
    places = [
        stack_offset(item.instruction)
        for item in walk(function.body)
        if isinstance(item.instruction, n.Alloca)
    ]
    barriers = [
        _spell(item.instruction) for item in walk(function.body) if isinstance(item.instruction, n.Barrier)
    ]
    assert places == [0, 0]
    assert barriers == ["barrier.local", "barrier.local", "barrier.global.local"]
