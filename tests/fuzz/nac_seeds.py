"""Right NAC files that mutations begin with: all versions' sections, all kinds of fields."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from lamella.base.source import Source
from lamella.lang.nac import assemble, plan_memory, write
from lamella.lang.nac.nodes import INPUT, OUTPUT, File, Header, Input, Instruction, Parameter, Signature
from tests.fuzz.nac_field_mutate import Seed, known
from tests.lang.nac.containers import container, count, i16, long, short, u16
from tests.lang.nac.models import in_blocks, perceptron

GOOD = Path(__file__).parents[1] / "lang" / "nac" / "good"


@cache
def files() -> tuple[bytes, ...]:
    """The files."""
    texts = [(GOOD / f"{name}.nacs").read_text(encoding="utf-8") for name in ("mlp", "tokenizer")]
    assembled = [write(assemble(Source("good.nacs", text)).file) for text in texts]
    return (write(perceptron()), write(in_blocks()), newer(), write(branching()), *assembled)


@cache
def seeds() -> tuple[Seed, ...]:
    """The files with their fields."""
    return tuple(known(files()))


def newer() -> bytes:
    """A file of version 1.8 with a training graph and an array."""
    training = count(b"\2\4" + i16(1, 0), b"\3\3" + i16(1, 1) + i16(-1, -1), b"\3\4" + i16(-2))
    return container(
        {
            "OPS ": count(b"\2\0", b"\x14\1" + i16(-1, -1), b"\3\0" + i16(1, 0) + i16(-1)),
            "PERM": count(u16(1) + short(b"TT")),
            "DATA": count(u16(1) + long(b"w")) + bytes(4),
            "TRNG": training,
            "ARRS": count(long(b"table") + bytes([0, 1, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]) + bytes(4)),
        },
        "1.8",
        bits=0x40,
        counts=(1, 1, 0),
    )


def branching() -> File:
    """Branches, loads in their midst, a state, external weights and a schedule for all of it."""
    code = [Instruction(INPUT), Instruction(INPUT, 2, (1,)), Instruction(13, 2, (), (-2, -1))]
    code.append(Instruction(6, 0, (4, 4), (-1,)))
    for _ in range(2):
        code += [Instruction(INPUT, 1, (1,)), Instruction(INPUT, 1, (2,)), Instruction(11, 2, (), (-2, -1))]
        code.append(Instruction(OUTPUT, 1, (), (-1, -1)))
    code += [Instruction(11, 2, (), (-12, -11)), Instruction(OUTPUT, 0, (), (-1, -11))]
    file = File(
        Header(inputs=1, outputs=2),
        signatures=(Signature(1, "T"), Signature(2, "TT")),
        instructions=tuple(code),
        parameters=(Parameter(1, "a"), Parameter(2, "b")),
        inputs=(Input(0, "x"),),
    )
    return replace(file, schedule=plan_memory(file))
