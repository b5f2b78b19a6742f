"""Layout: indentation, brackets, and lines that go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.lang.module import nodes as n
from tests.support.lang.module.parsed import GOOD, SHAPES, codes, places, read, right

TEXTS = [path.read_bytes().decode("utf-8") for path in (*GOOD, *SHAPES)]
PLAIN = (
    "module M(a):\n  params:\n    w: [a]\n    v: [a]\n"
    "  forward:\n    graph:\n      x -> relu() -> y\n    save: [x]\n"
)
BRACKETS = (
    "module M(a, b=[1, 2]):\n  params:\n    w: [a, b[0]]\n"
    "  forward:\n    graph:\n      (x, y) -> f(a, g=(1)) -> (z, v)\n"
)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_mean_nothing(text: str, end: str) -> None:
    text = text.replace("\r\n", "\n")
    assert read(text.replace("\n", end)).document == read(text).document


@pytest.mark.parametrize("step", [1, 3, 8])
def test_any_step_is_an_indentation(step: int) -> None:
    text = "".join(
        " " * ((len(line) - len(line.lstrip())) // 2 * step) + line.lstrip() + "\n"
        for line in PLAIN.splitlines()
    )
    assert right(text) == right(PLAIN)


def test_blocks_are_indented_each_in_its_own_way() -> None:
    text = (
        "module M(a):\n     params:\n       w: [a]\n       v: [a]\n     forward:\n"
        "               graph: x -> relu() -> y\n               save: [x]"
    )
    assert right(text) == right(PLAIN)


@given(st.data())
def test_blank_lines_and_comments_never_matter(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([PLAIN, *(item for item in TEXTS if '"""' not in item)]))
    lines = text.splitlines()
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(lines)))
        lines.insert(
            place, data.draw(st.sampled_from(["", "   ", "\t", "# c", "          # c (", "\t# [ ->", "#"]))
        )
    assert read("\n".join(lines)).document == read(text).document


def inside(text: str) -> Iterator[int]:
    """The places behind a sign where a bracket is open."""
    depth = 0
    for place, sign in enumerate(text, 1):
        depth += (sign in "([") - (sign in ")]")
        if depth and sign in "([,)]":
            yield place


@given(st.data())
def test_a_newline_inside_brackets_means_nothing(data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(list(inside(BRACKETS))))
    lead = " " * data.draw(st.integers(0, 12))
    assert right(BRACKETS[:place] + "  # c\n" + lead + BRACKETS[place:]) == right(BRACKETS)


@pytest.mark.parametrize("lead", ["", "  ", "            ", "\t"])
def test_an_arrow_continues_the_line_before_it(lead: str) -> None:
    broken = f"{PLAIN.replace(' -> relu() -> y', '')}".replace(
        "      x\n", f"      x\n{lead}-> relu()\n\n# c\n{lead}-> y\n"
    )
    assert right(broken) == right(PLAIN)


@pytest.mark.parametrize("lead", ["", "  ", "            "])
def test_an_annotation_continues_a_data_flow(lead: str) -> None:
    one = PLAIN.replace("-> y\n", "-> y @frozen @noalias(a=1)\n")
    assert right(PLAIN.replace("-> y\n", f"-> y\n{lead}@frozen\n{lead}@noalias(a=1)\n")) == right(one)


def test_an_annotation_in_a_body_begins_a_line() -> None:
    found = right(
        "module M():\n  @recipe(R) @checkpoint\n  @profile\n  params:\n    w: [1]\n  @trace\n"
    ).items[0]
    assert isinstance(found, n.Module)
    assert [item.name for item in found.annotations] == ["recipe", "checkpoint", "profile", "trace"]


def test_a_tab_is_reported_once_and_read_as_spaces() -> None:
    text = PLAIN.replace("    ", "\t")
    assert [message for *_, message in places(text)] == ["a tab in the indentation"]
    assert read(text).document == right(PLAIN)


def test_a_tab_between_words_is_a_space() -> None:
    assert right(PLAIN.replace("x -> relu()", "x\t->\trelu()\t")) == right(PLAIN)


def test_a_dedent_to_nowhere_is_one_finding() -> None:
    text = PLAIN.replace("    v: [a]", "   v: [a]")
    assert places(text) == [(4, 1, "this line is indented by 3 spaces, the blocks that end here by 2 and 4")]
    assert read(text).document == right(PLAIN)


def test_an_indent_from_nowhere_is_one_finding() -> None:
    text = PLAIN.replace("    v: [a]", "      v: [a]")
    assert places(text) == [(4, 1, "this line is indented by 6 spaces, the block it stands in by 4")]
    assert read(text).document == right(PLAIN)


@pytest.mark.parametrize("count", [10, 10_000])
def test_stairs(count: int) -> None:
    up = "".join(" " * (width % 100) + "x\n" for width in range(count))
    assert codes("module M():\n" + up)
    deep = "".join(" " * width + "if a:\n" for width in range(6, 6 + min(count, 2_000)))
    text = "module M():\n  forward:\n    graph:\n" + deep
    assert codes(text) == ([] if count == 10 else ["E101"])
    assert codes(text + "   x -> y\n")
