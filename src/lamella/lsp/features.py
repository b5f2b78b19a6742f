"""What an editor asks for, in our own terms: hover, completion, rename, repairs, colours of names."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from lamella.base.cursor import COMMENT
from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.source import Span
from lamella.base.suggest import nearest
from lamella.lsp.index import SIGILS, Definition, External, Use
from lamella.lsp.language import Word
from lamella.lsp.workspace import EditorWorkspace, FoundDefinition, TextDocument

# --- hover ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HoverText:
    """Code in the language, and lines about it, for one place."""

    span: Span
    code: str
    lines: tuple[str, ...] = ()


def hover(workspace: EditorWorkspace, document: TextDocument, offset: int) -> HoverText | None:
    """What stands at a place: its definition, its comment, and what the last whole check found out."""
    use = document.index.use_at(offset)
    if use is None:
        return None
    target = workspace.target(document, use)
    if target is None:
        code = document.language.explain(use.meaning) if isinstance(use.meaning, External) else ""
        lines = _facts_at(document, use)
        return HoverText(use.span, code, lines) if code or lines else None
    found = target.definition
    if found.kind == "file":
        return HoverText(use.span, str(target.document.path.name))
    code = target.document.language.describe(found)
    return HoverText(use.span, code, (*_comment(found), *_facts(target), *_facts_at(document, use)))


def _comment(definition: Definition) -> Iterator[str]:
    """The comment lines above a definition."""
    notes = getattr(definition.node, "notes", None)
    for line in getattr(notes, "above", ()):
        text = line.lstrip("#; ").rstrip()
        if text and "trait" not in text[:6]:
            yield text


def _facts(target: FoundDefinition) -> tuple[str, ...]:
    """What is known about a definition by its name."""
    definition = target.definition
    owner = definition.parent.name if definition.parent is not None else ""
    return target.document.checked.facts.names.get(f"{owner}/{definition.name}", ())


def _facts_at(document: TextDocument, use: Use) -> tuple[str, ...]:
    """What is known about a place; only as long as the text is the one that was checked."""
    if document.checked.text != document.text:
        return ()
    return document.checked.facts.places.get(use.span.start, ())


# --- completion -----------------------------------------------------------------------------------------------

_PREFIX = re.compile(r"[A-Za-z_][0-9A-Za-z_]*$")
_QUALIFIED = re.compile(r"[A-Za-z_][0-9A-Za-z_.]*\.[0-9A-Za-z_]*$")
MOST_WORDS = 400


def complete(workspace: EditorWorkspace, document: TextDocument, offset: int) -> tuple[Span, list[Word]]:
    """What may be written at a place, and the letters that it replaces."""
    source = document.index.source
    line = source.text[source.text.rfind("\n", 0, offset) + 1 : offset]
    written = _PREFIX.search(line)
    prefix = written[0] if written else ""
    span = Span(source, offset - len(prefix), offset)
    if _in_comment(document, offset):
        return span, []
    found: dict[str, Word] = {}
    with workspace.unsaved():
        for word in _candidates(document, offset, line):
            text = word.text.lstrip("@") if line.endswith(f"@{prefix}") else word.text
            if text.casefold().startswith(prefix.casefold()) and text != prefix:
                found.setdefault(text, Word(text, word.kind, word.detail))
            if len(found) >= MOST_WORDS:
                break
    return span, list(found.values())


def _candidates(document: TextDocument, offset: int, line: str) -> Iterator[Word]:
    is_qualified = _QUALIFIED.search(line) is not None
    if not is_qualified:
        for item in document.index.visible(offset):
            yield Word(item.name, item.kind, item.whole.text.partition("\n")[0][:100])
    yield from document.language.words(document.index, document.path, line)
    if not is_qualified:
        yield from (Word(word, "keyword") for word in sorted(document.language.KEYWORDS))
        if errors(document.index.findings):
            # What could not be read defines nothing; its names are offered all the same.
            yield from (Word(text.strip(SIGILS), "text") for text in _identifiers(document, offset))


def _identifiers(document: TextDocument, offset: int) -> Iterator[str]:
    for text, start in zip(document.index.tokens.texts, document.index.tokens.starts, strict=True):
        if text.strip(SIGILS).isidentifier() and not start <= offset <= start + len(text):
            yield text


def _in_comment(document: TextDocument, offset: int) -> bool:
    return any(item.start < offset <= item.start + len(item.text) for item in document.index.tokens.comments)


# --- rename ---------------------------------------------------------------------------------------------------


class CannotRename(Exception):
    """Why a name is not changed, as a sentence."""


def renamed(workspace: EditorWorkspace, document: TextDocument, offset: int) -> FoundDefinition:
    """What is renamed at a place; CannotRename where it is not the user's to rename."""
    use = document.index.use_at(offset)
    target = None if use is None else workspace.target(document, use)
    if target is None:
        raise CannotRename("no name of this project stands here")
    if getattr(target.definition.node, "name", "") is None:
        raise CannotRename(f"'{target.definition.name}' is a word of the language here")
    is_own = any(target.document.path.is_relative_to(folder) for folder in workspace.folders)
    if target.definition.kind == "file" or not (is_own or target.document.path in workspace.open):
        raise CannotRename(f"'{target.definition.name}' is defined outside of this project")
    return target


def rename(workspace: EditorWorkspace, target: FoundDefinition, name: str) -> list[tuple[TextDocument, Span]]:
    """The places that hold a name; CannotRename where another name would mean something else."""
    if not re.fullmatch(r"[A-Za-z_][0-9A-Za-z_]*", name) or name in target.document.language.KEYWORDS:
        raise CannotRename(f"'{name}' is no name in this language")
    places = list(workspace.references(target))
    for document, use in places:
        taken = next((item for item in document.index.visible(use.span.start) if item.name == name), None)
        if taken is not None and taken is not target.definition:
            raise CannotRename(f"'{name}' is already {_article(taken.kind)} {taken.kind} here")
    found = [(document, use.span) for document, use in places]
    return [(document, span) for document, span in found if span.text == target.definition.name]


def _article(word: str) -> str:
    return "an" if word[:1] in "aeiou" else "a"


# --- repairs: what a hint says, done ---------------------------------------------------------------------------

_MEANT = re.compile(
    r"did you mean '?([^'?\s]+)'?\?|in this language it is '([^']+)'|^the specification writes '([^']+)'$"
    r"|^write (?:'([^']+)'|(\[[^\]]*\]|\S+))$"
)
_QUOTED = re.compile(r"'([^']+)'")
ALIKE = 4
"""Letters that two spellings of one thing begin with."""
_IMPORT = re.compile(r"import std(?:\.\w+)+")


@dataclass(frozen=True, slots=True)
class Repair:
    """One replacement that a hint asks for."""

    title: str
    span: Span
    text: str


def repairs(document: TextDocument, finding: Diagnostic) -> Iterator[Repair]:
    """What the hint of a finding says can be done without asking back."""
    found = _MEANT.search(finding.hint)
    meant = "" if found is None else next(filter(None, found.groups()))
    span = _wrong_word(document, finding, meant) if meant else None
    if span is not None:
        yield Repair(f"change to '{meant}'", span, meant)
    wanted = _IMPORT.search(finding.hint)
    if wanted is not None and wanted[0] not in document.text:
        start = _import_place(document)
        yield Repair(f"add '{wanted[0]}'", Span(document.index.source, start, start), f"{wanted[0]}\n")


def _wrong_word(document: TextDocument, finding: Diagnostic, meant: str) -> Span | None:
    """The word that is misspelt: one that the sentence quotes and that is like the one that was meant.

    It stands in the finding's place, or before it in its line. Else the whole place is replaced, where the sentence is
    about it (`memref.load` is `load` here) or it is another spelling.
    """
    text, start, end = document.text, finding.span.start, finding.span.end
    line = text.rfind("\n", 0, start) + 1
    quoted = _QUOTED.findall(finding.message)
    parts = ((item, item.partition(".")[0], item.rpartition(".")[2]) for item in quoted)
    for word in (part for item in parts for part in item):
        if not nearest(word.lstrip(SIGILS), [meant.lstrip(SIGILS)]):
            continue
        pattern = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
        found = pattern.search(text, start, end) or pattern.search(text, line, end)
        if found is not None:
            return Span(document.index.source, found.start(), found.end())
    whole = text[start:end]
    is_whole = whole in quoted[:1] and not finding.message.startswith("expected")
    return Span(document.index.source, start, end) if is_whole or _is_alike(whole, meant) else None


def _is_alike(text: str, meant: str) -> bool:
    """Whether a text is another spelling of what was meant: a part of it, or begun like it."""
    if not text[:1].isalnum() or "\n" in text:
        return False
    return meant.startswith(text[:ALIKE]) or meant.endswith(f".{text}")


def _import_place(document: TextDocument) -> int:
    """The start of the line of the first import, else of the first declaration."""
    imports = [use.span.start for use in document.index.uses if use.meaning.kind == "import"]
    first = min([*imports, *(item.whole.start for item in document.index.definitions)], default=0)
    return document.text.rfind("\n", 0, first) + 1


# --- colours of names -------------------------------------------------------------------------------------------

TOKEN_TYPES = (
    *("namespace", "class", "function", "parameter", "variable", "property", "type"),
    *("keyword", "number", "string", "comment", "operator", "decorator", "method"),
)
MODIFIERS = ("declaration", "defaultLibrary")
KIND_TYPES = {
    **dict.fromkeys(
        ("module", "block", "model", "device", "family", "recipe", "preset", "program", "graph"), "class"
    ),
    **dict.fromkeys(("operator", "kernel", "primitive", "opcode", "task", "declaration"), "function"),
    **dict.fromkeys(("config", "attribute", "parameter", "constant", "let"), "parameter"),
    **dict.fromkeys(("instance", "buffer", "region"), "property"),
    **dict.fromkeys(("type", "extent", "dimension"), "type"),
    **dict.fromkeys(("import", "file", "namespace"), "namespace"),
    "annotation": "decorator",
}
TYPE_NUMBERS = {kind: TOKEN_TYPES.index(word) for kind, word in KIND_TYPES.items()}
VARIABLE = TOKEN_TYPES.index("variable")
LEXICAL = {
    **dict.fromkeys(("int", "float", "real", "odd"), "number"),
    **dict.fromkeys(("string", "doc", "open", "opendoc"), "string"),
    "block": "decorator",
}
LEXICAL_NUMBERS = {kind: TOKEN_TYPES.index(word) for kind, word in LEXICAL.items()}
KEYWORD = TOKEN_TYPES.index("keyword")
WORD_KINDS = frozenset(("name", "word", "builtin", "local", "global", "modifier"))


class ColouredSpan(NamedTuple):
    """A stretch of one line, its token type and its modifiers, as places in the two tables."""

    start: int
    end: int
    type: int
    modifiers: int = 0


def colours(document: TextDocument, start: int = 0, end: int | None = None) -> list[ColouredSpan]:
    """The stretches of a text that have a colour, in order; names by what they mean, the rest by the lexer."""
    end = len(document.text) if end is None else end
    found: dict[int, ColouredSpan] = {}
    text = document.text
    for (_, first, last), meaning, defines in document.index.uses:
        if start <= first < end and first not in found and text.find("\n", first, last) < 0:
            kind, bits = meaning.kind, int(defines)
            if isinstance(meaning, External):
                kind, bits = "parameter" if meaning.member else kind, bits + 2
            found[first] = ColouredSpan(first, last, TYPE_NUMBERS.get(kind, VARIABLE), bits)
    return _in_order([*found.values(), *_lexical(document, start, end, found)])


def _in_order(found: list[ColouredSpan]) -> list[ColouredSpan]:
    """Stretches from first to last; one that another begins in is left out."""
    found.sort(key=itemgetter(0))
    if all(one[1] <= other[0] for one, other in pairwise(found)):
        return found
    return list(_without_overlaps(found))


def _lexical(document: TextDocument, start: int, end: int, taken: Container[int]) -> Iterator[ColouredSpan]:
    """The stretches that the lexer tells the colours of, names left out that have one already."""
    kinds, texts, starts, comments = document.index.tokens
    keywords = document.language.KEYWORDS
    first, last = bisect_left(starts, start), bisect_left(starts, end)
    for kind, text, place in zip(kinds[first:last], texts[first:last], starts[first:last], strict=True):
        number = LEXICAL_NUMBERS.get(kind)
        if number is None:
            if text not in keywords or kind not in WORD_KINDS:
                continue
            number = KEYWORD
        if place not in taken:
            if "\n" in text:
                yield from _by_lines(text, place, number)
            else:
                yield ColouredSpan(place, place + len(text), number)
    for item in comments:
        if start <= item.start < end:
            yield from _by_lines(item.text, item.start, TOKEN_TYPES.index(COMMENT))


def _by_lines(text: str, start: int, kind: int) -> Iterator[ColouredSpan]:
    """A token of several lines as one stretch for each: editors take no other."""
    if "\n" not in text:
        yield ColouredSpan(start, start + len(text), kind)
        return
    for line in text.splitlines(keepends=True):
        width = len(line.rstrip("\r\n"))
        if width:
            yield ColouredSpan(start, start + width, kind)
        start += len(line)


def _without_overlaps(items: Iterable[ColouredSpan]) -> Iterator[ColouredSpan]:
    reached = 0
    for item in items:
        if item.start >= reached:
            reached = item.end
            yield item
