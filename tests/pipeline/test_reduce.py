"""A reduced text fails as the whole does, and nothing of it can be taken away."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.pipeline.reduce import Failure, cut_pieces, reduce_text
from tests.support.forked import Lamella

BAD = """import linalg, nn, math;

graph Net {
    @input { x: real[4, 16]; z: real[4, 16]; }
    @output { y: real[4, 16]; u: real[4, 16]; }
    @variable { w: real[16, 16]; v: real[15, 16]; k: real[16, 16]; }
    @compose {
        u = math.add(z, z);
        h = linalg.matmul(x, w);
        g = nn.gelu(h);
        q = linalg.matmul(g, v);
        p = linalg.matmul(q, k);
        y = nn.softmax(p);
    }
}
"""
LINES = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abcdef")), min_size=1, max_size=14)


@given(LINES, st.sets(st.sampled_from("abcdef"), min_size=1, max_size=3))
def test_only_what_matters_stays(lines: list[tuple[int, str]], wanted: set[str]) -> None:
    """A program fails that has some words: each is there once in the end, below what it stands in."""
    text = "".join(f"{'  ' * depth}{word}\n" for depth, word in lines)

    def fails(candidate: str) -> bool:
        return wanted <= set(candidate.split())

    if not fails(text):
        return
    found = reduce_text(text, fails)
    assert fails(found)
    needed = [line.strip() for line in found.splitlines() if line.strip() in wanted]
    root = cut_pieces(found)
    leaves = [line for line in found.splitlines() if line]
    # an outer line stays only where something below it is needed
    assert sorted(needed) == sorted(set(needed)) or any(item.inner for item in root.inner)
    for place in range(len(leaves)):
        deeper = place + 1 < len(leaves) and _depth(leaves[place + 1]) > _depth(leaves[place])
        if not deeper:
            assert not fails("".join(f"{line}\n" for line in (*leaves[:place], *leaves[place + 1 :])))


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def test_blocks_go_with_what_closes_them() -> None:
    text = "a {\n    b {\n        c;\n    }\n    d;\n}\ne;\n"
    assert reduce_text(text, lambda item: "c" in item and item.count("{") == item.count("}")) == (
        "a {\n    b {\n        c;\n    }\n}\n"
    )
    assert reduce_text(text, lambda item: "e" in item) == "e;\n"


def test_definitions_are_bypassed() -> None:
    text = "h = f(x, w);\ng = gelu(h);\nq = bad(g, v);\ny = f(q);\n"

    def fails(candidate: str) -> bool:
        known = {"x", "w", "v"}
        for line in candidate.splitlines():
            name, _, call = line.partition(" = ")
            if not set(re.findall(r"\w+", call)[1:]) <= known:
                return False
            known.add(name)
        return "bad(" in candidate

    assert reduce_text(text, fails) == "q = bad(x, v);\n"


@pytest.mark.parametrize(
    ("status", "printed", "like"),
    [
        (1, "x:1: error[A001]: a\nx:2: error[B002]: b", True),
        (1, "error[A001]: only the first is left", True),
        (1, "error[B002]: only the second is left", False),
        (1, "error[A001]: a\nerror[C003]: one that was not there", False),
        (3, "error[A001]: a\nerror[B002]: b", False),
    ],
)
def test_the_same_way_is_the_first_code_and_no_new_one(status: int, printed: str, like: bool) -> None:
    whole = Failure.of(1, "y:9: error[A001]: a\ny:10: error[B002]: b")
    assert Failure.of(status, printed).is_like(whole) is like


def test_without_codes_the_last_words_count() -> None:
    one, other = Failure.of(1, "at /tmp/a:3\nboom 17"), Failure.of(1, "boom 4")
    assert one.is_like(other)
    assert not one.is_like(Failure.of(1, "bang"))


def test_the_command_leaves_what_fails(tmp_path: Path, lamella: Lamella) -> None:
    file = tmp_path / "bad.sknd"
    file.write_text(BAD, encoding="utf-8")
    codes = Failure.of(1, lamella("check", file).stderr + lamella("check", file).stdout).codes
    done = lamella("reduce", file, "--keep", "lamella check {}")
    assert done.returncode == 0, done.stderr
    small = tmp_path / "bad.reduced.sknd"
    text = small.read_text(encoding="utf-8")
    assert text.count("matmul(") == 1
    assert "gelu" not in text
    again = lamella("check", small)
    assert Failure.of(again.returncode, again.stdout + again.stderr).codes == codes
    assert sorted(item.name for item in tmp_path.iterdir()) == ["bad.reduced.sknd", "bad.sknd"]


def test_what_does_not_fail_is_not_reduced(tmp_path: Path, lamella: Lamella) -> None:
    file = tmp_path / "good.nem"
    file.write_text("buffer A : L2 (size=64)\n", encoding="utf-8")
    done = lamella("reduce", file, "--keep", "lamella check {}")
    assert (done.returncode, "succeeds on it" in done.stderr) == (1, True)
    wrong = {"lamella check": "write {}", "'": "cannot be read", "no-such-command {}": "cannot be run"}
    for words, sentence in wrong.items():
        done = lamella("reduce", file, "--keep", words)
        assert done.returncode in (1, 2)
        assert sentence in done.stderr
