"""The languages by name and file ending, and the one door through which the code of one language is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from lamella.base.diagnostic import Diagnostic, Rule
from lamella.base.errors import RULES as FILE_RULES
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import is_folder, is_there, read_shipped, shipped
from lamella.kernels.target import TARGETS
from lamella.pipeline.options import Options

if TYPE_CHECKING:
    import numpy.typing as npt

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
        **{".nacs": "nac", ".dat": DATA, ".safetensors": DATA, ".pt2": TORCH},
    }
)
BINARY_ENDINGS = (".nac",)
"""Languages whose files are bytes, with a text under another ending."""
MOST_CODES = 3
"""Codes that are offered instead of one that no rule has."""
STREAM_ENDINGS = (".stcb", ".json")


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


class Printing(Protocol):
    """What a language with texts below it offers to `lower`: `lamella.pipeline.<language>.printing`."""

    def printed(self, model: Model) -> str:
        """The text of a lowered model."""

    def write_into(self, model: Model, folder: Path, stem: str) -> Path:
        """Write every stage into a folder; gives the file of the last."""

    def compare(
        self, before: Model, lowered: Model, path: Path, options: Options
    ) -> Mapping[str, tuple[Array, Array]]:
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

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""

    def __call__(self, /, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once; inputs that are not given are random, from the seed."""


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
        marks = ("config.json", "config_schema.json")
        name = "module" if any(is_there(path / item) for item in marks) else "skriptnd"
    if name is None or name not in (*LANGUAGES, DATA, TORCH):
        known = ", ".join(ending for ending, name in ENDINGS.items() if name != DATA)
        raise InputError(
            f"cannot tell the language of '{path}'", path=path, hint=f"known endings are {known}"
        )
    return name


def shown_language(name: str, language: str | None) -> str:
    """The language of what `show` is asked for: a file, a module or operator of the library, a target, a device."""
    path = Path(name)
    if language or is_there(path) or path.suffix.lower() in ENDINGS or is_stream(path):
        return language_of(path, language)
    if name in TARGETS:
        return "tensor"
    return "skriptnd" if name.partition(".")[0] in standard_modules() else "nem"


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
    return (begun or get_close_matches(code[:20], known, MOST_CODES))[:MOST_CODES]


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
