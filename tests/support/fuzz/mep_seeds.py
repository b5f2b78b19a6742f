"""Right plans that mutations begin with, and the mutations: operands, instructions, bytes and constants."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from lamella.base.source import Source
from lamella.lang.nac import assemble
from lamella.lang.nac.check.bytecode import OPCODES, PlanStep, decode
from lamella.lang.nac.nodes import (
    Array,
    Constant,
    ConstantType,
    ConstantValue,
    File,
    Header,
    Instruction,
)

EXAMPLE = Path(__file__).parents[3] / "docs" / "languages" / "plans.md"
CODE = (Instruction(2), Instruction(14, 1, (), (-1,)), Instruction(3, 0, (), (-1,)))
_TEXTS = ("", "/etc/x", "../x", "{0.__class__}", "{}{}{}", "self", "\x1b[2J\n", "table")
VALUES: Sequence[tuple[ConstantType, ConstantValue]] = (
    *((ConstantType.NULL, None), (ConstantType.BOOL, True)),
    *((ConstantType.INT64, value) for value in (0, -1, 3, 1 << 62)),
    *((ConstantType.FLOAT64, value) for value in (0.5, 1e308, float("inf"))),
    *((ConstantType.STRING, value) for value in _TEXTS),
    *((ConstantType.INT32_LIST, value) for value in ((), (1, 2), (1 << 30, 1 << 30), (-1,))),
    (ConstantType.FLOAT32_LIST, (0.5, -1.0)),
)
PLAN = """SRC_CONSTANT(0, 0)
SRC_CONSTANT(1, 1)
RES_LOAD_MODEL(0, 2)
RES_LOAD_EXTERN(2, 0, 3)
PREPROC_ENCODE(2, 1, 3)
PREPROC_DECODE(2, 3, 4)
PREPROC_GET_ID(2, 4, 5)
SRC_EXEC_MODE(6)
RES_LOAD_ARRAY(7, 5)
SRC_CONSTANT(20, 3)
FLOW_LOOP_START(0)
TENSOR_CREATE(8, 0, 1, 0)
TENSOR_CREATE(9, 5, 0, 3)
TENSOR_MANIPULATE(1, 10, 8, 0, 0)
TENSOR_MANIPULATE(2, 11, 8, 20)
TENSOR_MANIPULATE(3, 12, 11, 20)
TENSOR_COMBINE(0, 13, [8, 10], 0)
TENSOR_INFO(0, 14, 13)
TENSOR_INFO(1, 15, 13, 0)
TENSOR_EXTRACT(16, 13, 20)
MATH_UNARY(0, 17, 13)
MATH_BINARY(0, 18, 17, 13)
MATH_AGGREGATE(0, 19, 18)
LOGIC_COMPARE(2, 21, 19, 20)
ANALYSIS_TOP_K(18, 0, 22, 23)
ANALYSIS_SAMPLE(18, 0, 0, 24)
MODEL_RUN_STATIC(0, [9], [25])
MODEL_RUN_BLOCK(0, 0, 1, [9], [26])
MODEL_RUN_PARALLEL(0, 0, 1, [9], [27], 0, 0, 1, [9], [28])
FLOW_BREAK_LOOP_IF(20)
FLOW_LOOP_END()
FLOW_BRANCH_IF(20, "end")
STRING_FORMAT(29, 6, [0, 3])
SERIALIZE_OBJECT(30, 7, 1)
SYS_COPY(31, 30)
RES_UNLOAD(1, 31)
FLOW_LABEL("end")
EXEC_RETURN([0, 1, 3, 7])
"""
TOUCHING = """SRC_USER_PROMPT(0, 0, 1)
SRC_CONSTANT(1, 7)
RES_LOAD_DATAFILE(2, 2, 7)
RES_LOAD_DYNAMIC(3, 1, 2)
RES_LOAD_DYNAMIC(4, 1, 3)
RES_LOAD_MODEL(0, 8)
SYS_DEBUG_PRINT(1, 1)
SERIALIZE_OBJECT(5, 2, 2)
IO_WRITE(0, 0, 0, 0)
IO_WRITE(5, 2, 1, 0)
IO_WRITE(0, 2, 1, 1)
EXEC_HALT()
"""
POOL = """0 = 1
1 = "one two"
2 = "self"
3 = 0
4 = "three"
5 = "table"
6 = "{} and {}"
7 = "a.npy"
8 = "b.nac"
"""


@dataclass
class Mutant:
    """A plan while it is mutated: its instructions as bytes, and its constants."""

    steps: list[bytes]
    constants: list[Constant]


@cache
def _split(number: int) -> tuple[bytes, ...]:
    """The bytes of each instruction of a seed."""
    code = seeds()[number].orchestrator.bytecode
    return tuple(bytes(code[item.offset : item.end]) for item in decode(code) if isinstance(item, PlanStep))


@cache
def seeds() -> tuple[File, ...]:
    """Right plans."""
    examples = [
        part.split("```")[0] for part in EXAMPLE.read_text(encoding="utf-8").split("```text\nnac ")[1:]
    ]
    texts = [f"nac 1.8\n.orchestrator\n{plan}{POOL}" for plan in (PLAN, TOUCHING)]
    return tuple(_file(text) for text in [*texts, *examples])


def _file(text: str) -> File:
    plan = assemble(Source("seed.nacs", text)).file.orchestrator
    table = Array("table", 5, (2,), bytes(16))
    return File(Header("1.8", inputs=1, outputs=1), instructions=CODE, orchestrator=plan, arrays=(table,))


Mutation = Callable[[Mutant, random.Random], None]


def set_byte(mutant: Mutant, chance: random.Random) -> None:
    """Another byte anywhere, often an operand that is small."""
    number = chance.randrange(len(mutant.steps))
    step = bytearray(mutant.steps[number])
    if step:
        step[chance.randrange(len(step))] = chance.choice((0, 1, 2, 3, 9, 20, 255, chance.randrange(256)))
        mutant.steps[number] = bytes(step)


def set_opcode(mutant: Mutant, chance: random.Random) -> None:
    """Another instruction with the same operands."""
    number = chance.randrange(len(mutant.steps))
    mutant.steps[number] = bytes([chance.choice(list(OPCODES))]) + mutant.steps[number][1:]


def leave_out(mutant: Mutant, chance: random.Random) -> None:
    """An instruction fewer."""
    if len(mutant.steps) > 1:
        del mutant.steps[chance.randrange(len(mutant.steps))]


def double(mutant: Mutant, chance: random.Random) -> None:
    """An instruction twice, the second time anywhere."""
    step = chance.choice(mutant.steps)
    mutant.steps.insert(chance.randrange(len(mutant.steps) + 1), step)


def exchange(mutant: Mutant, chance: random.Random) -> None:
    """Two instructions in each other's place."""
    a, b = (chance.randrange(len(mutant.steps)) for _ in range(2))
    mutant.steps[a], mutant.steps[b] = mutant.steps[b], mutant.steps[a]


def cut(mutant: Mutant, chance: random.Random) -> None:
    """Some bytes fewer."""
    number = chance.randrange(len(mutant.steps))
    mutant.steps[number] = mutant.steps[number][: chance.randrange(len(mutant.steps[number]) + 1)]


def set_constant(mutant: Mutant, chance: random.Random) -> None:
    """Another value for a constant."""
    if mutant.constants:
        number = chance.randrange(len(mutant.constants))
        type_, value = chance.choice(VALUES)
        mutant.constants[number] = replace(mutant.constants[number], type=type_, value=value)


MUTATIONS: Sequence[Mutation] = (
    *(set_byte, set_byte, set_byte, set_opcode, leave_out, double, exchange, cut),
    *(set_constant, set_constant, set_constant),
)


def mutate(chance: random.Random) -> File:
    """A plan made from a right one by one to three mutations."""
    number = chance.randrange(len(seeds()))
    seed = seeds()[number]
    mutant = Mutant(list(_split(number)), list(seed.orchestrator.constants))
    for _ in range(chance.choice((1, 1, 2, 3))):
        chance.choice(MUTATIONS)(mutant, chance)
    plan = replace(
        seed.orchestrator, bytecode=b"".join(mutant.steps), constants=tuple(mutant.constants), lines=()
    )
    return replace(seed, orchestrator=plan)
