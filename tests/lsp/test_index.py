"""Names of texts: nodes lie where they say, definitions and uses agree, no text is too broken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.source import Source, Span
from lamella.lsp.features import colours, complete, hover
from lamella.lsp.index import Definition, External
from lamella.lsp.positions import UTF8, UTF16, UTF32, LineTable
from lamella.lsp.workspace import LANGUAGES, EditorWorkspace, TextDocument, language_at
from tests.support.strategies.mutation import mutants

ROOT = Path(__file__).parents[2]
GOOD = [
    path
    for folder in (*sorted((ROOT / "tests/lang").glob("*/good")), ROOT / "examples", ROOT / "src/lamella")
    for path in sorted(folder.rglob("*"))
    if language_at(path) is not None and path.stat().st_size < 10_000
]
WIDTHS = {UTF8: "utf-8", UTF16: "utf-16-le", UTF32: "utf-32-le"}


def show(path: Path, text: str | None = None) -> tuple[EditorWorkspace, TextDocument]:
    workspace = EditorWorkspace((path.parent,))
    document = workspace.show(path, path.read_text(encoding="utf-8") if text is None else text)
    assert document is not None
    return workspace, document


# --- places -----------------------------------------------------------------------------------------------------


@given(st.text(st.sampled_from("ab \n\r\t é€😀𝔸\u2028\x0b\u0301")), st.data(), st.sampled_from(list(WIDTHS)))
def test_offsets_and_places_are_the_same(text: str, data: st.DataObject, encoding: str) -> None:
    table = LineTable(text, encoding)
    offset = data.draw(st.integers(0, len(text)))
    line, character = table.place(offset)
    # By the letter of the protocol: \n, \r\n and \r end lines, and nothing else does.
    before = text[:offset].replace("\r\n", "\n").replace("\r", "\n")
    if text[offset - 1 : offset + 1] == "\r\n":
        before = before[:-1] + "\r"  # between the two the line has not ended
        assert line == before.count("\n")
        return
    width = len("a".encode(WIDTHS[encoding]))
    last = before.rpartition("\n")[2]
    assert (line, character) == (before.count("\n"), len(last.encode(WIDTHS[encoding])) // width)
    assert table.offset(line, character) == offset


@given(st.text(st.sampled_from("ab \n\r😀")), st.sampled_from(list(WIDTHS)))
def test_stretches_are_places(text: str, encoding: str) -> None:
    table = LineTable(text, encoding)
    items = [(place, place + 1) for place in range(len(text)) if text[place] not in "\n\r"]
    for (start, end), (line, column, width) in zip(items, table.stretches(items), strict=True):
        assert table.place(start) == (line, column)
        assert table.place(end) == (line, column + width)


PIECES = st.sampled_from(
    ["a", "1", ".", "..", ".5", '"', "\\", "\n", "\r", "#", ";", " ", "->", "%", "x2", "é"]
)


@given(
    st.sampled_from(["a.nem", "a.sknd", "a.tensor", "a.module"]),
    st.lists(PIECES, max_size=12),
    st.lists(PIECES, max_size=4),
    st.data(),
)
def test_an_edited_text_is_cut_as_a_whole_one(
    name: str, before: list[str], new: list[str], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(before)))
    last = data.draw(st.integers(first, len(before)))
    after = "".join((*before[:first], *new, *before[last:]))
    workspace, edited = EditorWorkspace(), Path("/nowhere") / name
    for text in ("".join(before), after):
        document = workspace.show(edited, text)
        assert document is not None
        assert document.index.tokens == document.index.lexer.cut(Source(name, text))


@given(st.text(st.sampled_from("ab\n\r😀")), st.integers(0, 9), st.integers(0, 9))
def test_any_place_is_an_offset(text: str, line: int, character: int) -> None:
    """An editor may ask for a place that is not there; it is moved to the nearest before it."""
    table = LineTable(text)
    offset = table.offset(line, character)
    assert 0 <= offset <= len(text)
    assert table.place(offset) <= (line, character) or offset == len(text)


# --- nodes and names --------------------------------------------------------------------------------------------


def nodes(node: object) -> Iterator[object]:
    """A node and all below it."""
    if isinstance(node, tuple) and not isinstance(node, Span):
        for item in node:
            yield from nodes(item)
    elif is_dataclass(node) and not isinstance(node, type):
        yield node
        for field in fields(node):
            yield from nodes(getattr(node, field.name))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.name)
def test_spans_map_back_and_names_are_where_they_are_said_to_be(path: Path) -> None:
    _, document = show(path)
    index, lines = document.index, document.lines
    for node in nodes(index.document):
        span = getattr(node, "span", None)
        if isinstance(span, Span) and span.source is index.source:
            assert lines.offset(*lines.place(span.start)) == span.start
            assert lines.offset(*lines.place(span.end)) == span.end
    assert index.uses or path.stem == "empty"
    for use in index.uses:
        meaning = use.meaning
        if isinstance(meaning, Definition):
            assert use.span.text.lstrip("0") in (meaning.name, meaning.name.lstrip("0")), use
            assert meaning.whole.start <= meaning.span.start <= meaning.span.end <= meaning.whole.end
        elif not meaning.member and meaning.kind != "file":
            # An import may rename what it brings.
            parts = meaning.name.split(".")
            assert set(use.span.text.split(".")) <= set(parts) or meaning.kind == "declaration"
    starts = [item.start for item in colours(document)]
    assert starts == sorted(set(starts))


def test_what_a_check_finds_unknown_is_what_the_index_does_not_know() -> None:
    """In the examples every name means something, but for words that are values."""
    words = {"NT", "NN", "TN", "TT", "default", "StackedBlocks", "saved", "ddr", "silu"}
    unknown: set[tuple[str, str]] = set()
    for path in sorted((ROOT / "examples").rglob("*")):
        if language_at(path) is None:
            continue
        workspace, document = show(path)
        for use in document.index.uses:
            external = use.meaning
            if not isinstance(external, External) or external.kind in ("", "import"):
                continue
            if workspace.target(document, use) is None and not document.language.explain(external):
                unknown.add((path.name, external.name))
    assert {name for _, name in unknown} <= words, unknown


@pytest.mark.fuzz
@pytest.mark.parametrize("ending", [".module", ".sknd", ".tensor", ".nem"])
def test_no_text_is_too_broken(ending: str, mutations: int, tmp_path: Path) -> None:
    """Whatever somebody types: names, colours, words and hovers come, and nothing is raised."""
    texts = [path.read_text(encoding="utf-8") for path in GOOD if path.suffix == ending]
    path = tmp_path / f"mutant{ending}"
    for number, text in enumerate(mutants(texts, max(8, mutations // 60), 3)):
        workspace, document = show(path, text)
        spans = [use.span for use in document.index.uses]
        assert all(0 <= span.start < span.end <= len(text) for span in spans)
        colours(document)
        for offset in (len(text) // 2, len(text) * number % max(1, len(text))):
            complete(workspace, document, offset)
            hover(workspace, document, offset)


def test_a_sigil_belongs_to_its_name() -> None:
    text = "func @k(%x: memref<f32x8>) {\n  %n = size %x[0] : index\n}\n"
    index = LANGUAGES["tensor"].index_text(Source("x", text))
    for place in (text.index("%x"), text.rindex("%x"), text.index("%n"), text.index("@k")):
        found = index.use_at(place)
        assert found is not None
        assert found is index.use_at(place + 1)
