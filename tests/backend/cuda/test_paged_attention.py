"""Attention to keys and values in pages: NumPy judges the formulas, and the interpreter runs the kernel for a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lamella
from lamella.backend import interpreter
from lamella.backend.executor.kernels import compile_graph
from lamella.base.arrays import Array
from tests.backend.cuda.test_tensor_core_gemm import plan


@dataclass(frozen=True)
class Case:
    """Sequences of some lengths whose keys lie in pages."""

    lengths: tuple[int, ...]
    heads: tuple[int, int] = (4, 2)
    queries: int = 1
    page: int = 4
    room: int = 5
    pages: int = 24
    depth: int = 32
    width: int = 32
    attributes: str = ""
    window: int | None = None
    causal: bool = True

    def text(self, element: str = "real") -> str:
        """A graph of it."""
        batch, (queries, keys) = len(self.lengths), self.heads
        cache = ", ".join(map(str, (self.pages, self.page, keys)))
        return (
            f"import llm;\ngraph Pages {{ @input {{ q: real[{batch},{queries},{self.queries},{self.depth}];"
            f" table: int[{batch},{self.room}]; lengths: int[{batch}]; }}"
            f" @variable {{ keys: {element}[{cache},{self.depth}]; values: {element}[{cache},{self.width}]; }}"
            f" @output {{ y: real[{batch},{queries},{self.queries},{self.width}]; }}"
            f" @compose {{ y = llm.paged_attention{{{self.attributes}}}(q, keys, values, table, lengths); }} }}\n"
        )

    def draw(self) -> dict[str, Array]:
        """Arrays: pages in any order, and what is behind a sequence's last page is no page."""
        random = np.random.default_rng(len(self.lengths) + self.queries)
        table = random.permutation(self.pages)[: len(self.lengths) * self.room].reshape(-1, self.room)
        for row, length in zip(table, self.lengths, strict=True):
            row[-(-length // self.page) :] = -1
        cache = (self.pages, self.page, self.heads[1])
        return {
            "q": random.standard_normal((len(self.lengths), self.heads[0], self.queries, self.depth), "f4"),
            "keys": random.standard_normal((*cache, self.depth), "f4"),
            "values": random.standard_normal((*cache, self.width), "f4"),
            "table": table,
            "lengths": np.array(self.lengths),
        }


def judge(case: Case, given: dict[str, Array]) -> Array:
    """Attention, sequence by sequence and head by head."""
    share = case.heads[0] // case.heads[1]
    out = np.zeros((*given["q"].shape[:3], case.width))
    for sequence, length in enumerate(case.lengths):
        pages = given["table"][sequence, : -(-length // case.page)]
        keys, values = (
            given[name][pages].reshape(-1, *given[name].shape[2:])[:length] for name in ("keys", "values")
        )
        for head in range(case.heads[0]):
            for query in range(case.queries):
                place = length - case.queries + query
                numbers = np.arange(length)
                seen = numbers <= place if case.causal else numbers >= 0
                if case.window is not None:
                    seen &= place - numbers < case.window
                if not seen.any():
                    continue
                vector = given["q"][sequence, head, query].astype(np.float64)
                scores = keys[seen, head // share] @ vector / np.sqrt(case.depth)
                weights = np.exp(scores - scores.max())
                out[sequence, head, query] = weights / weights.sum() @ values[seen, head // share]
    return out


CASES = {
    "sequences of other lengths": Case((1, 7, 20)),
    "whole pages": Case((8, 16)),
    "several queries": Case((3, 11, 17), queries=3),
    "a window": Case((5, 19), attributes="window_size=6", window=6),
    "nothing hidden": Case((5, 19), queries=2, attributes="causal=false", causal=False),
    "one head": Case((9,), heads=(1, 1), pages=6),
    "wide values": Case((9, 2), depth=64, width=96),
    "nothing yet": Case((0, 3)),
    "many queries": Case((12, 18), queries=11),
}


def write(folder: Path, text: str) -> Path:
    """A file of a graph."""
    path = folder / "pages.sknd"
    path.write_text(text)
    return path


def fill(run: Any, given: dict[str, Array]) -> dict[str, Array]:
    """Put pages into an executable; the other arrays."""
    given = dict(given)
    run.state["keys"], run.state["values"] = given.pop("keys"), given.pop("values")
    return given


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_pages_are_read_by_their_numbers(name: str, backend: Any, tmp_path: Path) -> None:
    case = CASES[name]
    run = lamella.compile(write(tmp_path, case.text()), backend=backend)
    given = case.draw()
    found = run(**fill(run, given))["y"]
    np.testing.assert_allclose(found, judge(case, given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in CASES if name != "many queries"])
def test_a_gpu_reads_pages_where_they_lie(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    made = plan(write(tmp_path, case.text()))
    assert [item.operator for item in made.model.graph.operations()] == ["llm.paged_decode"]
    (calls,) = made.calls.values()
    assert len(calls) == 1
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    given = case.draw()
    np.testing.assert_allclose(run(**fill(run, given))["y"], judge(case, given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_pages_may_hold_halves(backend: str, tmp_path: Path) -> None:
    case = CASES["several queries"]
    path = write(tmp_path, case.text("bf16"))
    given = case.draw()
    for name in ("keys", "values"):
        given[name] = given[name].astype(ml_dtypes.bfloat16)
    run: Any
    if backend == "cpu":
        run = lamella.compile(path, backend="cpu")
    else:
        made = plan(path)
        assert len(made.program.functions) == 1
        run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    want = judge(
        case, {name: item.astype(np.float64) if name != "table" else item for name, item in given.items()}
    )
    np.testing.assert_allclose(run(**fill(run, given))["y"], want, rtol=1e-4, atol=1e-5)


def test_work_groups_share_the_keys_of_long_sequences(tmp_path: Path) -> None:
    case = Case((700, 3), page=16, room=48, pages=100, heads=(2, 1))
    made = plan(write(tmp_path, case.text()))
    (calls,) = made.calls.values()
    assert len(calls) == 2
    run = compile_graph(made, interpreter.compile_program(made.program, check_bounds=True).call)
    given = case.draw()
    np.testing.assert_allclose(run(**fill(run, given))["y"], judge(case, given), rtol=1e-4, atol=1e-5)


def test_a_page_that_there_is_not_is_told(tmp_path: Path) -> None:
    case = CASES["whole pages"]
    given = case.draw()
    given["table"][1, 3] = case.pages
    for run in (
        lamella.compile(write(tmp_path, case.text()), backend="cpu"),
        compile_graph(
            (made := plan(write(tmp_path, case.text()))),
            interpreter.compile_program(made.program, check_bounds=True).call,
        ),
    ):
        with pytest.raises(lamella.LamellaError, match=str(case.pages)):
            run(**fill(run, given))


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_the_device_reads_pages(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    run = lamella.compile(write(tmp_path, case.text()), backend="cuda")
    given = case.draw()
    found = run(**fill(run, given))["y"]
    np.testing.assert_allclose(found, judge(case, given), rtol=1e-4, atol=1e-5)
