"""The languages by name and file ending, and the one door through which the code of one language is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from lamella.base.diagnostic import Diagnostic, Rule, printable
from lamella.base.errors import RULES as FILE_RULES
from lamella.base.errors import InputError, cause_of
from lamella.base.limits import Limits
from lamella.base.paths import is_folder, is_there, read_shipped, shipped, shown
from lamella.base.placement import OperationPlacement
from lamella.base.suggest import nearest
from lamella.kernels.target import TARGETS
from lamella.pipeline.options import Options

if TYPE_CHECKING:
    import numpy.typing as npt

    from lamella.backend.drawing import Drawn
    from lamella.backend.watch import Watch
    from lamella.base.arrays import Array

LANGUAGES = MappingProxyType(
    {"module": ".module", "nac": ".nac", "nem": ".nem", "skriptnd": ".sknd", "tensor": ".tensor"}
)
"""Each language with the ending of its files."""
DATA = "data"
"""Not a language: files that hold the numbers of a model."""
TORCH = "torch"
"""Not a language of ours: programs that torch.export saved."""
ENDINGS = MappingProxyType(
    {
        **{ending: name for name, ending in LANGUAGES.items()},
        **{".ir": "tensor", ".nacs": "nac", ".dat": DATA, ".safetensors": DATA, ".pt2": TORCH},
    }
)
BINARY_ENDINGS = (".nac",)
"""Languages whose files are bytes, with a text under another ending."""
MODULE_MARKS = ("config.json", "config_schema.json", "model.safetensors", "architecture.module")
"""Files by which a folder is known as one of Hugging Face, or as a compiled unit of the Module DSL."""
DOCUMENT = ".json"
"""A stream as text, or any other JSON: only what is in it tells."""
MOST_CODES = 3
"""Codes that are offered instead of one that no rule has."""
STREAM_ENDINGS = (".stcb", DOCUMENT)


@dataclass(frozen=True, slots=True)
class Description:
    """What is in a file: as text, as data, and what is wrong with it."""

    text: str
    data: Mapping[str, object]
    findings: tuple[Diagnostic, ...] = ()


class Files(Protocol):
    """What each language offers for its files: `lamella.pipeline.<language>.files`."""

    def check(self, path: Path, options: Options) -> list[Diagnostic]:
        """What is wrong in a file."""

    def canonical(self, path: Path, limits: Limits) -> tuple[str, str]:
        """The text of a file and its canonical form."""

    def describe(self, name: str, options: Options) -> Description:
        """What is in a file."""


class Execution(Protocol):
    """What each language offers for its models: `lamella.pipeline.<language>.execution`."""

    def load(self, path: Path, options: Options) -> Model:
        """Read and check a file; LamellaError holds all findings when something is wrong."""

    def compile(self, model: Model, backend: str | None, options: Options) -> Executable:
        """Make a model executable."""

    def lower(self, model: Model, to: str, options: Options) -> Model:
        """Lower a model to a form below it."""

    def save(self, model: Model, path: Path) -> None:
        """Write a model by the ending of the path."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What a model and what was written of it gave, by name, and where the operations of the latter ran."""

    numbers: Mapping[str, tuple[Array, Array]]
    placement: tuple[OperationPlacement, ...] = ()


class Printing(Protocol):
    """What a language with texts below it offers to `lower`: `lamella.pipeline.<language>.printing`."""

    def printed(self, model: Model) -> str:
        """The text of a lowered model."""

    def write_into(self, model: Model, folder: Path, stem: str) -> Path:
        """Write every stage into a folder; gives the file of the last."""

    def compare(self, before: Model, lowered: Model, path: Path, options: Options) -> Compared:
        """The numbers of a model and of what was written of it."""


class Model(Protocol):
    """What the API hands around: a program, a stream or a graph."""

    @property
    def language(self) -> str:
        """The language that the model is written in."""


class Executable(Protocol):
    """Something to call with arrays by name."""

    findings: list[Diagnostic]
    """What the last call found."""
    watch: Watch
    """Wraps the steps of a call, for a progress bar."""
    draws: bool
    """Whether inputs that a call does not give are random, from the seed; where not, they are missing."""

    @property
    def drawn(self) -> Drawn:
        """What the last call drew."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""

    def __call__(self, /, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once."""


def files_of(language: str) -> Files:
    """The part of a language that reads, checks and shows its files; no other language is loaded."""
    return cast(Files, import_module(f"lamella.pipeline.{language}.files"))


def execution_of(language: str) -> Execution:
    """The part of a language that runs its models."""
    if language == DATA:
        raise InputError("the file holds data, not a model", hint="give it to a model with --weights")
    return cast(Execution, import_module(f"lamella.pipeline.{language}.execution"))


def part_of(language: str, name: str) -> ModuleType:
    """A part of a language that is only loaded where it is used."""
    return import_module(f"lamella.pipeline.{language}.{name}")


def printing_of(language: str) -> Printing | None:
    """The part of a language that prints and writes what its models are lowered to; None where that is one file."""
    if language not in ("tensor", "kernels"):
        return None
    return cast(Printing, part_of(language, "printing"))


def language_of(path: Path, language: str | None) -> str:
    """The language of a file: as the user says, else by its ending.

    A folder is a SkriptND model, one of Hugging Face, or a compiled unit of the Module DSL.
    """
    if language is None and str(path) == "-":
        raise InputError("standard input has no ending", hint=f"say --language {' or '.join(LANGUAGES)}")
    name = language or ENDINGS.get(path.suffix.lower())
    if name is None and is_stream(path):
        name = "nem"
    if name is None and is_folder(path):
        name = _language_of_folder(path)
    if name is None or name not in (*LANGUAGES, DATA, TORCH):
        known = ", ".join(ending for ending, name in ENDINGS.items() if name != DATA)
        raise InputError(
            f"cannot tell the language of '{path}'", path=path, hint=f"known endings are {known}"
        )
    return name


def file_language(path: Path, language: str | None) -> str:
    """The language whose part checks and shows a file: as `language_of`, but a JSON text may be anything."""
    if language is None and path.suffix.lower() == DOCUMENT:
        return DATA
    return language_of(path, language)


def subject_of(path: Path, language: str | None) -> str:
    """The kind of input that a path is, as the table of options tells them apart."""
    name = language_of(path, language)
    if name == "module" and is_folder(path):
        return "unit" if is_there(path / "config_schema.json") else "folder"
    if name == "nem" and language is None and is_stream(path):
        return "stream"
    return "sknd" if name == "skriptnd" else name


def shown_subject(name: str, language: str | None) -> str:
    """The kind of what `show` is asked for: an input, or a name that is no file."""
    path, found = Path(name), shown_language(name, language)
    if language or is_there(path) or path.suffix.lower() in ENDINGS or is_stream(path):
        return subject_of(path, language)
    return {"tensor": "target", "skriptnd": "library", "nem": "device", "module": "standard"}[found]


def _language_of_folder(path: Path) -> str:
    """The language of a model folder, by the files in it; InputError where none of them is a model."""
    if any(is_there(path / item) for item in MODULE_MARKS):
        return "module"
    if is_there(path / "main.sknd"):
        return "skriptnd"
    try:
        names = sorted(item.name for item in path.iterdir())
    except OSError as problem:
        raise InputError(f"cannot read '{shown(path)}': {cause_of(problem)}", path=shown(path)) from problem
    if any(name.endswith((".safetensors", ".module")) for name in names):
        return "module"
    listed = ", ".join(f"'{printable(name, 80)}'" for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    what = f"holds no model, only {listed}{more}" if names else "is empty"
    hint = "a model folder holds main.sknd (SkriptND), or config.json and model.safetensors (Hugging Face)"
    raise InputError(f"the folder '{shown(path)}' {what}", path=shown(path), hint=hint)


def shown_language(name: str, language: str | None) -> str:
    """The language of what `show` is asked for: a file, a module or operator of the library, a target, a device."""
    path = Path(name)
    if language or is_there(path) or path.suffix.lower() in ENDINGS or is_stream(path):
        return file_language(path, language)
    if name in TARGETS:
        return "tensor"
    if is_standard(name):
        return "module"
    return "skriptnd" if name.partition(".")[0] in standard_modules() else "nem"


def is_standard(name: str) -> bool:
    """Whether a word is a name of the standard library of the Module DSL, and not that of a file."""
    return name == "std" or name.startswith("std.")


def standard_modules() -> list[str]:
    """The modules of the shipped operator library."""
    return sorted(path.stem for path in shipped("ops").glob("*.sknd"))


def is_stream(path: Path) -> bool:
    """Whether a file is a task-control stream, by its ending."""
    return path.suffix.lower() in STREAM_ENDINGS


def is_binary(path: Path) -> bool:
    """Whether a file of a language is bytes, by its ending: there is no text of it to replace."""
    return path.suffix.lower() in BINARY_ENDINGS


def rules_of(language: str) -> tuple[Rule, ...]:
    """The rules of a language, in order."""
    return cast("tuple[Rule, ...]", import_module(f"lamella.lang.{language}.rules").RULES)


def _all_rules() -> list[Rule]:
    """The rules of all languages; faults of files have codes of their own, whatever the language."""
    return [*FILE_RULES, *(rule for name in LANGUAGES for rule in rules_of(name))]


def find_rule(code: str) -> Rule | None:
    """The rule with a code."""
    return next((rule for rule in _all_rules() if rule.code == code), None)


def close_codes(code: str) -> list[str]:
    """Codes of rules that may be meant by one that no rule has: those that begin with it first."""
    known = [rule.code for rule in _all_rules()]
    begun = [item for item in known if code and item.startswith(code)]
    return (begun or nearest(code, known, MOST_CODES))[:MOST_CODES]


def explanation(rule: Rule) -> str:
    """What a rule asks, with a wrong program and the right one where they are shipped."""
    parts = [f"{rule.code} ({rule.severity})", "", rule.sentence, f"specification: {rule.section}"]
    if rule.hint:
        parts.append(f"hint: {rule.hint}")
    wrong, _, right = _shipped_programs(rule.code).partition("\n--- right\n")
    for title, program in (("wrong:", wrong), ("right:", right)):
        if program:
            parts += ["", title, "", *(f"    {line}".rstrip() for line in program.splitlines())]
    return "\n".join(parts)


def _shipped_programs(code: str) -> str:
    """The programs of a rule, from the pages that `make docs` writes."""
    for name in LANGUAGES:
        for block in read_shipped(f"lang/{name}/wrong.txt").split("\n=== ")[1:]:
            head, _, body = block.partition("\n")
            if head.strip() == code:
                return body.strip("\n")
    return ""
