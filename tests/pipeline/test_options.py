"""The table of options against click and the API: every option of every command is decided for every kind of input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import click
import pytest
from click.testing import CliRunner

import lamella
from lamella.cli import COMMANDS as SUBCOMMANDS
from lamella.cli import lamella as group
from lamella.pipeline.effects import COMMANDS, SUBJECTS, Option
from lamella.pipeline.given import KINDS, Use, effective, offered, options_of, spelled
from lamella.pipeline.languages import shown_subject, subject_of
from lamella.pipeline.options import Options, kind_of, table

FILES = {
    "module": "m.module",
    "folder": "hf",
    "unit": "unit",
    "sknd": "m.sknd",
    "torch": "m.pt2",
    "nac": "m.nac",
    "tensor": "m.ir",
    "nem": "m.nem",
    "stream": "m.stcb",
    "data": "m.safetensors",
}
"""A path of each kind; an option is refused before anything is read."""
NAMES = {"library": "nn.conv", "device": "npm_lite", "target": "cpu-avx512", "standard": "std.models.llama"}
"""What only `show` takes."""
VALUES: dict[str, object] = {
    "limits": lamella.Limits(),
    "trace": print,
    "precision": "bf16",
    "dialect": "newer",
    "shape": {"n": 2},
    "dtype": "f64",
    "groups": 2,
}
INPUTS = [(command, kind) for command in COMMANDS for kind in (*FILES, *(NAMES if command == "show" else ()))]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, mark in (("hf", "config.json"), ("unit", "config_schema.json")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / mark).write_text("{}", encoding="utf-8")


def click_options(command: str) -> dict[str, click.Option]:
    """The options that click knows of a command."""
    found = group.get_command(click.Context(group), command)
    assert found is not None
    return {str(item.name): item for item in found.params if isinstance(item, click.Option)}


def words_of(option: click.Option) -> list[str]:
    """An option with a value that click takes."""
    flag = option.opts[-1]
    if option.is_flag:
        return [flag]
    if isinstance(option.type, click.Choice):
        return [flag, str(option.type.choices[0])]
    if option.name == "limits":
        return [flag, "max_depth=100"]
    words = {
        "order": "random",
        "root": ".",
        "config": "a=1",
        "types": "a=f32[1]",
        "patch": "a=1",
        "embed": "a=b",
    }
    return [flag, words.get(str(option.name), "a=1" if option.name == "shape" else "1")]


def ways(command: str, row: Option, kind: str) -> bool:
    """Whether an option can have an effect on a kind of input in any way that a command goes."""
    return any(row.has_effect(steps, kind) for steps in COMMANDS[command])


# --- the table and click ----------------------------------------------------------------------------------------


WITHOUT_INPUT = ("rules", "doctor", "demo")
OWN = {"demo": {"quick"}, "reduce": {"as_json", "output", "timeout", "words"}}
"""Options that are about no model, so that no table needs to say on which they have an effect."""


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_click_has_the_options_of_the_table_and_no_others(command: str) -> None:
    assert click_options(command).keys() - OWN.get(command, ()) == offered(command).keys()


def test_every_row_is_whole() -> None:
    mappings = tuple(f"Mapping[str, {kind}]" for kind in ("int", "str", "object", "Array"))
    collections = ("tuple[str, ...]", "tuple[int, ...]", "int | tuple[int, ...]", *mappings)
    for name, row in table().items():
        assert kind_of(name) in (*KINDS, *collections) or name == "trace", name
        assert row.help.endswith("."), name
        assert row.in_api or row.commands, name
        for subjects in row.effects.values():
            assert subjects <= SUBJECTS.keys(), name
        steps = {step for every in COMMANDS.values() for way in every for step in way}
        assert {*row.effects, *row.never, *(step for need in row.needs for step in need.steps)} <= steps, name
        assert {other for need in row.needs for other in need.options} <= table().keys(), name
        for command in set(row.commands) - set(row.hidden):
            assert command in WITHOUT_INPUT or any(ways(command, row, kind) for kind in SUBJECTS), (
                name,
                command,
            )


@pytest.mark.parametrize("kind", [*FILES, *NAMES])
def test_kinds_are_told_apart(kind: str) -> None:
    if kind in FILES:
        assert subject_of(Path(FILES[kind]), None) == kind
    assert shown_subject((FILES | NAMES)[kind], None) == kind


# --- commands -----------------------------------------------------------------------------------------------------


def arguments(command: str, kind: str) -> list[str]:
    path = (FILES | NAMES)[kind]
    more = {"convert": ["out.nac"], "diff": [path], "lower": ["--to", "sknd"], "bind": ["-o", "out.stcb"]}
    return [command, path, *more.get(command, [])]


@pytest.mark.parametrize(("command", "kind"), INPUTS)
def test_an_option_without_effect_is_refused_and_those_with_one_are_named(command: str, kind: str) -> None:
    given = arguments(command, kind)
    for name, option in click_options(command).items():
        row = table()[name]
        if ways(command, row, kind) or option.opts[-1] in given or option.opts[0] in given:
            continue
        done = CliRunner().invoke(group, [*given, *words_of(option)])
        assert done.exit_code == 2, (name, done.output)
        told = " ".join(done.output.split())
        assert f"{spelled(name, command)} cannot have an effect on" in told, (name, done.output)
        assert "options that can have one here:" in told


NEEDY = [
    ("run hf --temperature 1", "hint: lamella generate FILE --temperature T"),
    ("run hf --prompt a", "hint: lamella generate FILE --prompt TEXT"),
    ("run m.nac --generate a=b", "hint: lamella generate FILE --tokens 1,2,3"),
    ("run m.nac --train-steps 2", "hint: lamella train FILE --steps N"),
    ("generate m.module --prompt a", "on 'm.module', a .module file"),
    ("generate hf --tokens 1 --shape B=1", "on 'hf', a Hugging Face folder that generates tokens"),
    ("generate hf --tokens 1 --ends a=b", "on 'hf', a Hugging Face folder"),
    ("generate m.nac --prompt a --max-tokens 3", "a NAC file whose plan answers"),
    ("generate m.nac --tokens 1 --allow print", "that generates tokens"),
    ("run m.nac --dtype f32", "without --backend reference|cpu|cuda|interpreter"),
    ("run m.nac --allow print", "that is run once"),
    ("run m.nac --patch a=1 --allow print", "without --answer or --plan"),
    ("run m.nac --plan --rewrite", "--rewrite cannot have an effect without --patch"),
    ("run m.sknd --trace", "--trace cannot have an effect without --backend interpreter"),
    ("run m.tensor --trace --backend cpu", "--trace cannot have an effect without --backend interpreter"),
    ("run m.tensor --threads 2 --backend interpreter", "without --backend cpu"),
    ("run m.tensor --threads 2 --trace", "--threads cannot have an effect beside --trace"),
    ("run m.nac --threads 2", "without --backend cpu"),
    ("run m.sknd --threads 2 --backend reference", "without --backend cpu"),
    ("run m.nac --strict-backend", "without --backend cpu|cuda|interpreter"),
    (
        "check m.sknd --backend reference",
        "--backend cannot have an effect without --backend cpu|cuda|interpreter",
    ),
    ("run m.sknd --strict-backend --backend reference", "without --backend cpu|cuda|interpreter"),
    ("run m.module --unused a", "--unused cannot have an effect without --weights"),
    ("run hf --root .", "--root cannot have an effect without --architecture"),
    ("convert m.sknd o.nac --axis 1", "--axis cannot have an effect without --quantize int8_channel"),
    ("convert m.sknd o.nac --axis 1 --quantize fp16", "without --quantize int8_channel"),
    ("convert m.sknd o.sknd --quantize fp16", "that is written as it is"),
    ("convert m.nac o.nac --type x=f32[1]", "without --optimize or --plain-signatures or --quantize"),
    ("convert m.module o --shape B=1", "that becomes a Hugging Face folder"),
    ("lower m.sknd --to llvm --after unroll", "--after cannot have an effect without --to tensor"),
    (
        "lower m.sknd --to nac --target cuda",
        "--target cannot have an effect without --to tensor|llvm|asm|ptx",
    ),
    ("lower m.sknd --to sknd --no-compare", "--compare cannot have an effect without --output"),
    ("lower m.module --to ir --pass fold_constants", "that becomes a compiled unit"),
    ("show m.nac --type x=f32[1]", "--type cannot have an effect without --listing"),
    ("check m.module --shape B=1", "a .module file"),
]
"""Options that need others beside them, and ways that take their effect away."""


@pytest.mark.parametrize(("words", "told"), NEEDY)
def test_what_an_option_needs_is_said(words: str, told: str) -> None:
    done = CliRunner().invoke(group, words.split())
    assert done.exit_code == 2, done.output
    assert told in " ".join(done.output.split())


def test_an_option_that_concerns_one_of_several_files_is_taken() -> None:
    both = CliRunner().invoke(group, ["check", "m.sknd", "m.nem", "--device", "npm_lite"])
    assert "cannot have an effect" not in both.output
    none = CliRunner().invoke(group, ["check", "m.sknd", "m.nac", "--device", "npm_lite"])
    assert none.exit_code == 2


# --- the API ------------------------------------------------------------------------------------------------------


def calls(kind: str) -> Iterator[tuple[str, tuple[str, ...], Callable[..., object]]]:
    """The functions of the API with the steps that they take."""
    api = cast("dict[str, Callable[..., object]]", {n: getattr(lamella, n) for n in ("load", "compile")})
    for name, function in api.items():
        yield name, ("load",) if name == "load" else ("load", "compile"), function
    lower = cast("Callable[..., object]", lamella.lower)
    yield "lower", ("load", "lower"), lambda path, **words: lower(path, "sknd", **words)


@pytest.mark.parametrize("kind", FILES)
def test_the_api_refuses_what_cannot_have_an_effect(kind: str) -> None:
    path, rows = FILES[kind], {name: row for name, row in table().items() if row.in_api}
    values = {name: VALUES.get(name, _value(name)) for name in rows}
    for function, steps, call in calls(kind):
        named = ", ".join(effective(Use(steps, kind)))
        for name, row in rows.items():
            if name == "language" or row.has_effect(steps, kind):
                continue
            with pytest.raises(lamella.LamellaError) as caught:
                call(path, **{name: values[name]})
            finding = caught.value.findings[0]
            assert f"'{name}' cannot have an effect on '{path}'" in finding.message, (function, name)
            assert named in finding.hint
    for name, row in rows.items():
        if name != "language" and not row.has_effect(("check",), kind):
            found = cast("Callable[..., list[lamella.Diagnostic]]", lamella.check)(
                path, **{name: values[name]}
            )
            assert "cannot have an effect" in found[0].message, name


def _value(name: str) -> object:
    kind = kind_of(name)
    samples = {"bool": True, "int": 1, "float": 1.0, "Path": Path("x"), "tuple[str, ...]": ("a",)}
    return samples.get(kind, {} if kind.startswith("Mapping") else "x")


def test_what_is_not_given_does_not_count() -> None:
    assert options_of({"seed": None, "dtype": None}) == Options()
    assert options_of({"seed": 0}).given == {"seed"}
    assert options_of({"seed": 0}).draws
    assert not options_of({}).draws
    for command_only in ("html", "temperature", "backend", "to"):
        with pytest.raises(lamella.LamellaError, match="there is no option"):
            options_of({command_only: None})


def test_training_is_for_graphs_of_training() -> None:
    for path in ("m.module", "m.sknd", "hf"):
        with pytest.raises(lamella.LamellaError, match="'training' cannot have an effect") as caught:
            lamella.compile(path, training=True)
        assert "it is for a NAC file" in caught.value.findings[0].hint


def test_json_is_no_excuse() -> None:
    done = CliRunner().invoke(group, ["run", "m.nem", "--set", "a=1", "--json"])
    assert done.exit_code == 2
    with pytest.raises(json.JSONDecodeError):
        json.loads(done.stdout or "-")
