"""Programs read from text, and run on the same random inputs before and after a pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lamella.backend.npu import compile_plan, random_inputs
from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.lang.nem import check, write
from lamella.lang.nem.nodes import Document
from lamella.lang.nem.resolved import Plan
from lamella.plan.verify import verify

EXAMPLES = Path(__file__).parents[4] / "examples" / "npu"


def read(text: str, path: Path | None = None) -> tuple[Document, Plan]:
    """A program without errors."""
    checked = check(Source("test.nem", text), path)
    assert not errors(checked.findings), [str(item) for item in checked.findings]
    assert checked.plan is not None
    assert checked.complete
    return checked.library.document, checked.plan


def example(name: str, window: int | None = None) -> tuple[str, Path]:
    """An example, if wanted with another window in every loop."""
    path = EXAMPLES / f"{name}.nem"
    text = path.read_text()
    for old in (2, 4):
        if window is not None:
            text = text.replace(f"@max_in_flight({old})", f"@max_in_flight({window})")
    return text, path


def is_safe(plan: Plan) -> bool:
    return not errors(verify(plan))


def codes(plan: Plan) -> list[str]:
    return [item.code for item in verify(plan)]


def assert_same_numbers(before: Plan, after: Plan, seed: int = 1) -> None:
    """Both have the same inputs and outputs, and the same bytes come out, in program order and in a random one."""
    inputs = random_inputs(before, seed)
    first, second = compile_plan(before), compile_plan(after)
    shuffled = compile_plan(after, order="random", seed=seed)
    assert (first.inputs, first.outputs) == (second.inputs, second.outputs)
    wanted = first(**inputs)
    for found in (second(**inputs), shuffled(**inputs)):
        for name, array in wanted.items():
            assert np.array_equal(array.view(np.uint8), found[name].view(np.uint8)), name


def reread(made: Document | None, before: Plan, path: Path | None = None) -> tuple[str, Plan]:
    """The text of a pass's result, which is canonical, safe and gives the same numbers, and its plan."""
    assert made is not None
    text = write(made)
    document, plan = read(text, path)
    assert write(document) == text
    assert is_safe(plan), [str(item) for item in verify(plan)]
    assert_same_numbers(before, plan)
    return text, plan
