"""The pseudo-code of a file."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given

from lamella.base.source import Source
from lamella.lang.nac import nodes as n
from lamella.lang.nac.assembly import assemble
from lamella.lang.nac.listing import listing
from tests.support.strategies.nac import files

GOOD = Path(__file__).parent / "good"


def test_the_example_of_the_specification() -> None:
    """The line for tick 43 as the specification shows it, with numbers for what is not in it."""
    before = tuple(n.Instruction(n.INPUT) for _ in range(43))
    relu = n.Instruction(201, 1, (), (-1,))
    file = n.File(
        operations=(n.Operation(201, "aten.relu.default"),),
        signatures=(n.Signature(1, "T"),),
        instructions=(*before, relu),
        schedule=(n.Tick(43, (n.Command(20, 26), n.Command(10, 43), n.Command(40, 44))),),
    )
    last = listing(file).splitlines()[43]
    assert last == "v43 = aten.relu.default(v42)   FREE -> 26,  SAVE_RESULT -> 43,  PRELOAD -> 44"


def test_a_network() -> None:
    text = (GOOD / "mlp.nacs").read_text(encoding="utf-8")
    assert listing(assemble(Source("mlp.nacs", text)).file).splitlines() == [
        "v0 = input x                                  PRELOAD -> 1,  PRELOAD -> 2",
        "v1 = parameter hidden.weight: float32[2, 2]",
        "v2 = parameter hidden.bias: float32[2]",
        "v3 = aten.linear.default(v0, v1, v2)          FORWARD -> 4",
        "v4 = aten.relu.default(v3)                    FREE -> 0,  FREE -> 1,  FREE -> 2,  FORWARD -> 5",
        "v5 = nac.add(v4, v4, 2)                       SAVE_RESULT -> 5",
        "v6 = output(v5)",
    ]


@given(files())
def test_every_instruction_has_a_line(file: n.File) -> None:
    lines = listing(file).splitlines()
    assert len(lines) == len(file.instructions)
    assert all(line.isprintable() and line.startswith(f"v{index} = ") for index, line in enumerate(lines))
