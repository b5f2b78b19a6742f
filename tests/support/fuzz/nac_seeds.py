"""Right NAC files that mutations begin with: all versions' sections, all kinds of fields."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from lamella.base.source import Source
from lamella.lang.nac import assemble, plan_memory, upgrade_version, write
from lamella.lang.nac.nodes import INPUT, OUTPUT, File, Header, Input, Instruction, Parameter, Signature
from tests.support.bridge.nac_bytes import newer_bytes
from tests.support.fuzz.nac_field_mutate import Seed, known
from tests.support.lang.nac.containers import container, count, i16, long, short, u16
from tests.support.lang.nac.models import in_blocks, perceptron

TRAINED = """nac 1.8
.code
    %x = input()
    %w = parameter(w)
    %y = aten.mul.Tensor:TT(%x, %w)
    %z = output(%y)
.training
    %x = saved(0)
    %y = saved(2)
    %t = target(0)
    %w = parameter(w)
    %d = nac.sub:TT(%y, %t)
    %g = aten.mul.Tensor:TT(%d, %x)
    %l = aten.sum.default:T(%d)
    %r = constant(0.5)
    %u = update(w, %g, %r)
    %f = finish(%l)
.inputs
    0 = x
.parameters
    1 = w
.tensors
    1 = float32[2] hex("0000803f00000040")
"""
GOOD = Path(__file__).parents[2] / "lang" / "nac" / "good"


@cache
def files() -> tuple[bytes, ...]:
    """The files."""
    texts = [(GOOD / f"{name}.nacs").read_text(encoding="utf-8") for name in ("mlp", "tokenizer")]
    assembled = [write(assemble(Source("good.nacs", text)).file) for text in texts]
    made = (write(perceptron()), write(in_blocks()), newer(), write(branching()), *assembled)
    return (*made, newer_bytes(trained()), write(upgrade_version(trained())))


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


def trained() -> File:
    """A parameter with a training graph: loads of all kinds, a loss, a step."""
    return assemble(Source("trained.nacs", TRAINED)).file


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
