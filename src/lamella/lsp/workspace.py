"""The texts that an editor shows, and the files around them: each indexed once for each text it has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, sort_findings
from lamella.base.gc import gc_paused
from lamella.base.paths import read_text, shipped, unsaved_texts
from lamella.base.source import NOWHERE, EditedSource, Span
from lamella.lsp import module, nem, skriptnd, tensor
from lamella.lsp.index import Definition, External, FileIndex, Meaning, Use
from lamella.lsp.language import CheckFacts, EditorLanguage
from lamella.lsp.positions import UTF16, LineTable
from lamella.pipeline.check import check_file
from lamella.pipeline.languages import ENDINGS
from lamella.pipeline.options import Options

LANGUAGES: Mapping[str, EditorLanguage] = MappingProxyType(
    {"module": module, "skriptnd": skriptnd, "tensor": tensor, "nem": nem}
)
MOST_FILES = 2000
"""Files of a folder that are looked at for references and symbols."""
SKIPPED = frozenset((".git", ".venv", "node_modules", "build", "dist", "__pycache__"))


@dataclass(eq=False)
class TextDocument:
    """One text in a language, and what the last whole check found out; it is read when something in it is asked for."""

    path: Path
    language: EditorLanguage
    source: EditedSource
    encoding: str = UTF16
    version: int | None = None
    checked: Checked = field(default_factory=lambda: Checked())

    @property
    def text(self) -> str:
        """What it says."""
        return self.source.text

    @cached_property
    def index(self) -> FileIndex:
        """What its names mean."""
        with gc_paused():
            return self.language.index_text(self.source)

    @cached_property
    def lines(self) -> LineTable:
        """Its lines, as the editor counts in them."""
        return LineTable(self.text, self.encoding)


@dataclass(frozen=True, slots=True)
class Checked:
    """What a whole check of a text found: by file what is wrong, and what is known about its names."""

    text: str = ""
    findings: Mapping[Path, list[Diagnostic]] = field(default_factory=dict)
    facts: CheckFacts = field(default_factory=CheckFacts)


@dataclass(frozen=True, slots=True)
class FoundDefinition:
    """A definition and the text that holds it."""

    document: TextDocument
    definition: Definition


def language_at(path: Path) -> EditorLanguage | None:
    """The language of a file by its ending; None for what is none of the four text languages."""
    return LANGUAGES.get(ENDINGS.get(path.suffix.lower(), ""))


class EditorWorkspace:
    """Open texts, and files that are read when something in them is asked for."""

    def __init__(self, folders: tuple[Path, ...] = (), encoding: str = UTF16) -> None:
        self.folders = folders
        self.encoding = encoding
        self.open: dict[Path, TextDocument] = {}
        self._read: dict[Path, tuple[tuple[int, int], TextDocument]] = {}

    # --- texts ----------------------------------------------------------------------------------------------

    def show(self, path: Path, text: str, version: int | None = None) -> TextDocument | None:
        """An editor shows a text, or another version of it; None where the language is not ours."""
        language = language_at(path)
        if language is None:
            return None
        earlier = self.open.get(path)
        checked = Checked() if earlier is None else earlier.checked
        source = EditedSource(str(path), text, None if earlier is None else earlier.source)
        self.open[path] = TextDocument(path, language, source, self.encoding, version, checked)
        return self.open[path]

    def close(self, path: Path) -> None:
        """The editor shows a text no more: the file counts again."""
        self.open.pop(path, None)

    def document(self, path: Path) -> TextDocument | None:
        """The text at a path, open or not; None where it cannot be read."""
        if path in self.open:
            return self.open[path]
        language = language_at(path)
        try:
            found = os.stat(path)
            stamp = (found.st_mtime_ns, found.st_size)
            held = self._read.get(path)
            if language is None or (held is not None and held[0] == stamp):
                return None if held is None else held[1]
            source = EditedSource(str(path), read_text(path))
            document = TextDocument(path, language, source, self.encoding)
        except (OSError, LamellaError):
            return None
        self._read[path] = (stamp, document)
        return document

    def texts(self) -> dict[Path, str]:
        """What the editor shows now."""
        return {path: item.text for path, item in self.open.items()}

    def unsaved(self) -> AbstractContextManager[None]:
        """Inside, whatever reads a file that an editor shows gets what it shows."""
        return unsaved_texts(self.texts())

    def files(self) -> Iterator[Path]:
        """The files of the folders in our languages, open ones first."""
        yield from self.open
        found = (path for folder in self.folders for path in _files_below(folder))
        yield from islice((path for path in found if path not in self.open), MOST_FILES)

    # --- what names mean ------------------------------------------------------------------------------------

    def target(self, document: TextDocument, use: Use) -> FoundDefinition | None:
        """What a name means, in whichever file it is defined; a file is meant by its first character."""
        if isinstance(use.meaning, Definition):
            return FoundDefinition(document, use.meaning)
        external = use.meaning
        own = self._own_member(document, external)
        if own is not None:
            return FoundDefinition(document, own)
        with self.unsaved():
            try:
                place = document.language.locate(external, document.index, document.path)
            except LamellaError:
                return None
        other = None if place is None else self.document(_absolute(place.path))
        if place is None or other is None:
            return None
        found = other.index.top(place.name) if place.name else _whole(other)
        if found is not None and place.member:
            found = next((item for item in found.children if item.name == place.member), None)
        return None if found is None else FoundDefinition(other, found)

    def _own_member(self, document: TextDocument, external: External) -> Definition | None:
        """The member of something that the text itself defines, such as an attribute of an operator."""
        owner = document.index.top(external.name) if external.member else None
        return (
            next((item for item in owner.children if item.name == external.member), None) if owner else None
        )

    def references(self, target: FoundDefinition) -> Iterator[tuple[TextDocument, Use]]:
        """Every place that means a definition, itself included; other files are searched where they could."""
        wanted = target.definition
        for use in target.document.index.uses:
            if use.meaning is wanted or self._is_member(target.document, use.meaning, wanted):
                yield target.document, use
        if not (wanted.is_top or (wanted.parent is not None and wanted.parent.is_top)):
            return
        for path in self.files():
            if path != target.document.path and language_at(path) is target.document.language:
                yield from self._references_in(path, target)

    def _is_member(self, document: TextDocument, meaning: Meaning, wanted: Definition) -> bool:
        if not isinstance(meaning, External) or meaning.member != wanted.name:
            return False
        return self._own_member(document, meaning) is wanted

    def _references_in(self, path: Path, target: FoundDefinition) -> Iterator[tuple[TextDocument, Use]]:
        document = self.document(path)
        for use in document.index.uses if document is not None else ():
            external = use.meaning
            if not isinstance(external, External) or document is None:
                continue
            # Cheap first: only names that look alike are followed into other files.
            if target.definition.name not in (external.member, external.name.rpartition(".")[2]):
                continue
            found = self.target(document, use)
            if found is not None and _place_of(found) == _place_of(target):
                yield document, use


def _files_below(folder: Path) -> Iterator[Path]:
    """The files of a folder in our languages; what tools keep there is passed over."""
    for root, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if name not in SKIPPED)
        paths = (Path(root, name) for name in sorted(names))
        yield from (path for path in paths if language_at(path) is not None)


def check_text(path: Path, texts: Mapping[Path, str]) -> Checked:
    """Check a text as `lamella check` does, with all that the editor shows; it may run beside everything else."""
    language = language_at(path)
    findings: dict[Path, list[Diagnostic]] = {path: []}
    facts = CheckFacts()
    with unsaved_texts(texts):
        for finding in sort_findings(check_file(path, Options())):
            findings.setdefault(_path_of(finding, path), []).append(finding)
        if language is not None and not any(errors(items) for items in findings.values()):
            with suppress(LamellaError):
                facts = language.find_facts(path)
    return Checked(texts[path], findings, facts)


def _path_of(finding: Diagnostic, main: Path) -> Path:
    """The file that a finding is about; what has no place is about the file that was checked."""
    source = finding.span.source
    if source is NOWHERE.source or not source.name:
        return main
    place = _absolute(Path(source.name))
    return place if place.is_file() else main


def _place_of(target: FoundDefinition) -> tuple[Path, int]:
    """What makes a definition the same in two indices of one file."""
    return target.document.path, target.definition.span.start


def _absolute(path: Path) -> Path:
    """A path as an editor names it; those of findings are relative to the working folder or to the package."""
    if path.is_absolute():
        return path
    here = Path.cwd() / path
    package = shipped("models").parent
    below = package / (path.relative_to("lamella") if path.parts[:1] == ("lamella",) else path)
    return below if not here.exists() and below.exists() else here


def _whole(document: TextDocument) -> Definition:
    """A file as the meaning of its name."""
    start = Span(document.index.source, 0, 0)
    return Definition(document.path.stem, "file", start, start, document.index.document)
