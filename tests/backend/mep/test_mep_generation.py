"""The plans of the documentation run: greedy generation with a table of what follows what, and blocks side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from lamella.backend.mep import PlanBudget, patch_constants, run_plan
from lamella.backend.mep.state import PlanModel, UntrainedModel
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.source import Source
from lamella.lang.nac import assemble, check, parse, write
from lamella.lang.nac.blocks import extract_block
from lamella.lang.nac.nodes import File
from tests.support.backend.mep.fakes import RecordingHost, WordTokenizer
from tests.support.markdown import blocks

PAGE = Path(__file__).parents[3] / "docs" / "languages" / "plans.md"
VOCABULARY = ("<end>", "a", "b", "c")


def example(number: int) -> File:
    """A file of the page, through its bytes."""
    text = [block.text for block in blocks(PAGE) if block.language == "nacs"][number]
    file, found = assemble(Source("plans.nacs", text))
    assert not [*found, *check(file)]
    return parse(write(file)).file


class Letters(WordTokenizer):
    """A tokenizer of four words."""

    def encode(self, text: str, /) -> Sequence[int]:
        """The ids of words."""
        return [VOCABULARY.index(word) for word in text.split()]

    def decode(self, ids: Sequence[int], /) -> str:
        """Words with spaces between them."""
        return " ".join(VOCABULARY[item] for item in ids)

    def id_of(self, token: str, /) -> int | None:
        """The id of a word."""
        return VOCABULARY.index(token)


class Rows(UntrainedModel):
    """The model: rows of a table, looked up by ids."""

    def __init__(self, table: Array) -> None:
        self.table = table
        self.lengths: list[int] = []

    def __call__(self, *inputs: Array) -> Sequence[Array]:
        """The row of each id."""
        (ids,) = inputs
        self.lengths.append(ids.shape[1])
        return [self.table[ids]]

    def run_block(self, first: int, last: int, values: Sequence[Array], /) -> Sequence[Array]:
        """The example has no blocks."""
        raise InputError("there are none")


class Application:
    """A host that is the file itself: its table, its words, and what it prints."""

    own_names: tuple[str, ...] = ()

    def __init__(self, file: File, model: PlanModel | None = None) -> None:
        stored = np.frombuffer(bytes(file.tensors[0].data), np.int8)
        self.rows = Rows(stored.reshape(file.tensors[0].shape).astype(np.float32))
        self.model = model or self.rows
        self.printed = ""

    def load_model(self, path: str, /) -> PlanModel:
        """The model of the file."""
        assert path == "self"
        return self.model

    def tokenizer(self, path: str, /) -> Letters:
        """The tokenizer of the file."""
        assert path == "self"
        return Letters()

    def prompt(self, question: str, /) -> str:
        """Nobody is there."""
        raise InputError("nobody is there")

    def read_array(self, path: str, /) -> Array:
        """No files."""
        raise InputError("there are no files")

    def read_image(self, path: str, height: int, width: int, /) -> Array:
        """No pictures."""
        raise InputError("there are no pictures")

    def print_text(self, stream: str, text: str, /) -> None:
        """Keep what is printed."""
        self.printed += text

    def write_file(self, path: str, data: bytes, append: bool, /) -> None:
        """No files."""
        raise InputError("there are no files")


@pytest.mark.parametrize(("asked", "wanted"), [("a", "a b c"), ("c", "c"), ("b a", "b a b c")])
def test_generation_ends_at_the_end(asked: str, wanted: str) -> None:
    file = example(0)
    host = Application(file)
    outcome = run_plan(file, host, answers=[asked], grants=["print"])
    assert outcome.values == (wanted,)
    assert host.printed == f"{wanted}\n"
    given, made = len(asked.split()), len(wanted.split())
    assert host.rows.lengths == list(range(given, made + 1))
    assert not outcome.findings


def test_generation_ends_at_the_patched_number_of_tokens() -> None:
    file = example(0)
    for most in (0, 1, 2):
        short = patch_constants(file, {"max_tokens": str(most)})
        host = Application(short)
        if most:
            assert run_plan(short, host, answers=["a"], grants=["print"]).values == (
                " ".join("abc"[: 1 + most]),
            )
        else:
            assert run_plan(short, host, answers=["a"], grants=["print"]).values == ("a",)
            assert not host.rows.lengths


def test_nothing_is_printed_without_a_grant() -> None:
    file = example(0)
    host = Application(file)
    with pytest.raises(LamellaError, match="NAC245"):
        run_plan(file, host, answers=["a"])
    assert host.printed == ""
    with pytest.raises(LamellaError, match="NAC247"):
        run_plan(file, host, answers=["a"], grants=["print"], budget=PlanBudget(steps=12))


def test_blocks_of_the_page_are_the_whole_model() -> None:
    file = example(2)

    def block(first: int, last: int, values: Sequence[Array]) -> Sequence[Array]:
        alone = extract_block(file, first, last)
        names: Mapping[int, Callable[..., Array]] = {
            14: lambda a: -a,
            11: lambda a, b: a + b,
            12: lambda a, b: a - b,
        }
        results: list[Array] = []
        given = iter(values)
        for item in alone.instructions[:-1]:
            place = len(results)
            known = [results[place + offset] for offset in item.offsets]
            results.append(next(given) if item.operation == 2 else names[item.operation](*known))
        return [results[len(results) + offset] for offset in alone.instructions[-1].offsets]

    (found,) = run_plan(file, RecordingHost(block=block)).values
    assert np.asarray(found).tolist() == [-3.0, -6.0]
