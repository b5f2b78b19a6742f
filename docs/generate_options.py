"""Write the typed options of the API, `pipeline/api_options.py`, from the table of options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lamella.pipeline.effects import Option
from lamella.pipeline.given import offered
from lamella.pipeline.options import kind_of, table

FILE = Path(__file__).resolve().parents[1] / "src" / "lamella" / "pipeline" / "api_options.py"
HEAD = '''"""What the functions of the API take beyond their arguments; written by `make docs` from the table.

A type checker and an editor read the classes, `help` and notebooks the signatures that `documented` makes of them.
"""

# ruff: noqa: E501
# fmt: off

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from lamella.base.limits import Limits

if TYPE_CHECKING:
    from lamella.base.arrays import Array
'''
TYPES = {
    "Path": "str | Path",
    "tuple[str, ...]": "str | Sequence[str]",
    "tuple[int, ...]": "Sequence[int]",
    "int | tuple[int, ...]": "int | Sequence[int]",
}
"""How a value may be given, where the API takes more than the table keeps."""
PRINTED = ("as_json", "html", "page", "log", "profile", "run_timeline")
"""Options of commands about what they print and draw."""
BASE = "LoadOptions"
"""What those that take all options of loading inherit from."""
STEPS = {
    "LoadOptions": ("lamella.load", ("load",)),
    "CheckOptions": ("lamella.check", ("check",)),
    "CompileOptions": ("lamella.compile", ("load", "compile")),
    "LowerOptions": ("lamella.lower", ("load", "lower", "unit")),
    "WatchOptions": ("lamella.watch", ("load", "observe", "compile")),
}
"""Functions whose options are those of the API that can have an effect in some steps."""
COMMANDS = {
    "QuantizeOptions": ("lamella.quantize", "quantize", ("data", "output")),
    "DiffOptions": ("lamella.diff", "diff", ("inputs", "reduce", "output")),
    "TrainOptions": ("lamella.train", "train", ("data", "targets", "inputs", "output", "trace")),
    "GenerateOptions": (
        "lamella.generate",
        "generate",
        ("prompt", "tokens", "inputs", "allow", "patch", "trace"),
    ),
    "BenchOptions": ("lamella.bench", "bench", ()),
    "ViewOptions": ("lamella.view", "view", ("output", "serve")),
}
"""Functions whose options are those of a command, but for what they take as arguments, print or draw."""


def options_module() -> str:
    """The text of the module."""
    return HEAD + "".join(f"\n\n{text}" for text in _classes())


def _classes() -> Iterator[str]:
    for name, (function, steps) in STEPS.items():
        found = _rows_of(steps)
        if name == "CheckOptions":
            found = {key: row for key, row in found.items() if key != "language"}
            found["backend"] = table()["backend"]
        yield _class(name, function, found, "")
    for name, (function, command, taken) in COMMANDS.items():
        shown = [key for key in PRINTED if key != "profile" or command != "view"]
        found = {key: row for key, row in offered(command).items() if key not in (*taken, *shown)}
        yield _class(name, function, found, command)


def _rows_of(steps: tuple[str, ...]) -> dict[str, Option]:
    """The options of the API that can have an effect in one of some steps."""
    return {
        key: row
        for key, row in table().items()
        if row.in_api and any(row.effects.get(step) for step in steps)
    }


def _class(name: str, function: str, rows: dict[str, Option], command: str) -> str:
    loads = _rows_of(STEPS[BASE][1])
    above = BASE if name != BASE and loads.keys() <= rows.keys() else "TypedDict"
    lines = [f"class {name}({above}, total=False):", f'    """The options of `{function}`."""', ""]
    for key, row in rows.items():
        if above == BASE and key in loads:
            continue
        lines.append(f"    {key}: {_type(key, row)} | None")
        sentence = row.helps.get(command, row.help).replace("; repeatable", "").replace('"', "'")
        lines.append(f'    """{sentence}"""')
    return "\n".join(lines) + "\n"


def _type(name: str, row: Option) -> str:
    kind = kind_of(name)
    if row.choices:
        words = ", ".join(f'"{item}"' for item in row.choices)
        word = f"Literal[{words}]"
        return f"{word} | Sequence[{word}]" if kind.startswith("tuple") else word
    return TYPES.get(kind, kind)
