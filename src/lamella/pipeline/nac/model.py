"""A NAC file as the API hands it around, read from its bytes or from its assembly text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lamella.base.card import Card, join_names, show_html, show_line
from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.levels import at_level
from lamella.base.limits import Limits
from lamella.base.paths import Mapped, decode_text, default_root, map_bytes, read_bytes_in, read_text, shown
from lamella.base.source import Source
from lamella.lang.nac import File, assemble, check, find_unwritable, parse
from lamella.lang.nac.layout import MAGIC
from lamella.lang.nac.nodes import V1_6
from lamella.lang.nac.notes import NAME as NOTES
from lamella.lang.nac.operations import user_inputs
from lamella.pipeline.options import Options

BINARY, TEXT = ".nac", ".nacs"


@dataclass(frozen=True, slots=True)
class Model:
    """A file, what was found while it was read, and its bytes where it was not a text."""

    path: Path
    file: File
    findings: tuple[Diagnostic, ...]
    mapped: Mapped | None = None

    __repr__ = show_line
    _repr_html_ = show_html
    at = at_level

    def _card(self) -> Card:
        """What it is: its instructions, and how many parameters they read."""
        file = self.file
        facts = (
            ("instructions", f"{len(file.instructions):,}"),
            ("parameters", f"{len(file.parameters):,}"),
            ("outputs", f"{file.header.outputs}"),
            ("inputs", f"inputs {join_names([item.name for item in user_inputs(file)])}"),
        )
        return Card(f"NAC {file.header.version}", shown(self.path), facts)

    @property
    def language(self) -> str:
        """The language that the model is written in."""
        return "nac"


def open_either(path: Path, limits: Limits) -> Source | Mapped:
    """The text or the bytes of a file; where its ending says nothing its first bytes do."""
    ending = path.suffix.lower()
    if ending == TEXT:
        return Source(shown(path), read_text(path, limits))
    mapped = map_bytes(path, limits)
    if ending == BINARY or mapped.data[: len(MAGIC)] == MAGIC:
        return mapped
    return Source(shown(path), decode_text(mapped.data, path, limits))


def read_model(path: Path, limits: Limits) -> Model:
    """Read a file; findings are carried, and the rules about what it says are not asked yet."""
    opened = open_either(path, limits)
    if isinstance(opened, Mapped):
        return Model(path, *parse(opened.data, shown(path), limits), opened)
    folder = default_root(path)
    return Model(path, *assemble(opened, lambda name: read_bytes_in(folder, name, limits), limits))


def check_model(model: Model) -> list[Diagnostic]:
    """All that is wrong with a file, step by step: what cannot be read whole is not asked further."""
    if errors(model.findings):
        return list(model.findings)
    if model.mapped is not None:
        model.mapped.check_whole()
    found = [*model.findings, *check(model.file)]
    # A text says things that bytes cannot; one of another version is rewritten first, so that is not its fault.
    if model.mapped is None and model.file.header.version == V1_6 and not errors(found):
        found += find_unwritable(model.file)
    return found


def read_checked(path: Path, limits: Limits) -> Model:
    """Read and check a file; LamellaError holds its findings when there are errors among them."""
    model = read_model(path, limits)
    findings = tuple(check_model(model))
    if errors(findings):
        raise LamellaError(findings)
    return Model(path, model.file, findings, model.mapped)


def stays_whole(model: Model, target: Path) -> bool:
    """Whether a file can be written elsewhere without its weights: it holds them, has none, or they lie there too."""
    return is_whole(model) or model.path.with_suffix("") == target.with_suffix("")


def is_whole(model: Model) -> bool:
    """Whether nothing beside a file belongs to it: it holds its weights, or has none."""
    return model.file.header.internal or not model.file.parameters


def is_described(model: Model, options: Options) -> bool:
    """Whether it is known what the inputs of a file are, so that it can become a graph without a run."""
    return bool(options.types) or any(item.name == NOTES for item in model.file.resources)
