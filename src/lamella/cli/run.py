"""`lamella run`: execute a program or a model."""

from __future__ import annotations

import hashlib
import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Unpack

import click
import numpy as np

from lamella.base.diagnostic import Diagnostic, printable
from lamella.base.limits import Limits
from lamella.cli.options import (
    Common,
    Guarded,
    ModelOptions,
    Words,
    common_options,
    has_errors,
    model_options,
    print_findings,
    print_json,
    types_option,
    weights_option,
)
from lamella.cli.planning import PlanOptions, plan_options, run_plan, wants_plan
from lamella.cli.talking import continue_tokens, speaks, talk
from lamella.cli.training import (
    TrainingOptions,
    as_training,
    train,
    training_options,
    wants_training,
    with_targets,
)
from lamella.cli.watching.bar import watch
from lamella.cli.watching.stopwatch import Stopwatch
from lamella.cli.watching.waiting import waiting
from lamella.pipeline.api import compile
from lamella.pipeline.arrays import Array, file_name, read_array, write_array
from lamella.pipeline.generating import generate, read_tokens
from lamella.pipeline.languages import Executable, part_of
from lamella.pipeline.options import options_of


def _order(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"program|random(:\d{1,18})?", value):
        raise click.BadParameter("orders are: program, random, random:SEED")
    return value


OWN = (
    *("file", "as_json", "inputs", "arguments", "output", "backend", "profile", "trace", "observe"),
    *("generate", "start", "max_tokens", "temperature", "prompt", "plan", "allow", "patch", "rewrite"),
    *("train_steps", "target", "save"),
)
"""Options of the command that say nothing about reading a model."""


class Options(Common, ModelOptions, PlanOptions, TrainingOptions):
    """What the command line gives to `run`."""

    weights: Path | None
    types: dict[str, str]
    inputs: tuple[str, ...]
    kernel: str
    arguments: tuple[str, ...]
    groups: int | tuple[int, ...]
    check_bounds: bool
    trace: bool
    output: Path | None
    backend: str | None
    seed: int
    order: str
    dtype: str | None
    quantized: bool
    profile: bool
    generate: str | None
    start: str
    max_tokens: int
    temperature: float
    observe: bool


def _groups(ctx: click.Context, parameter: click.Parameter, value: str) -> int | tuple[int, ...]:
    """`--groups 4` or `--groups 4,2` as a number, or as one for each axis."""
    words = value.split(",")
    if len(words) > 3 or not all(word.strip().isdecimal() and len(word) < 20 for word in words):
        raise click.BadParameter(f"'{printable(value)}' is not one, two or three numbers, such as 4 or 4,2")
    numbers = tuple(int(word) for word in words)
    return numbers if len(numbers) > 1 else numbers[0]


@click.command(cls=Guarded)
@common_options
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="An input array; repeatable.")
@click.option("--output", type=click.Path(path_type=Path), help="Write one .npy per output into this folder.")
@click.option(
    "--backend",
    type=Words(["cpu", "interpreter", "nacvm", "npu", "reference"]),
    default=None,
    help="How to run it: plans on npu; NAC on nacvm; graphs on reference; graphs and kernels on cpu or interpreter.",
)
@click.option("--kernel", metavar="NAME", default="", help="The kernel to run; by default the only one.")
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar="NAME=FILE.npy|NUMBER",
    help="An argument of the kernel; repeatable.",
)
@click.option(
    "--groups",
    metavar="N[,M[,K]]",
    callback=_groups,
    default="1",
    show_default=True,
    help="Work-groups to launch a kernel with, along x, y and z.",
)
@click.option("--check-bounds", is_flag=True, help="Test the views of a kernel where they are made.")
@click.option("--trace", is_flag=True, help="Print each executed statement of a kernel with its values.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of what nobody gives."
)
@model_options
@weights_option
@types_option
@click.option("--dtype", type=Words(["f32", "f64"]), default=None, help="Compute real numbers in this type.")
@click.option("--quantized", is_flag=True, help="Apply the quantisation that the model describes.")
@click.option(
    "--order", default="program", callback=_order, metavar="program|random[:N]", help="Another legal order."
)
@click.option("--profile", is_flag=True, help="Say where the time went.")
@click.option(
    "--generate",
    metavar="INPUT=OUTPUT",
    default=None,
    help="NAC: give the likeliest of an output to an integer input, again and again, and print the numbers.",
)
@click.option(
    "--start", metavar="ID,ID…", default="0", show_default=True, help="What --generate begins with."
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=0, max=1_000_000),
    default=16,
    show_default=True,
    help="How many tokens --generate or --prompt makes.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Module DSL, Hugging Face: choose tokens by chance, the more the higher; 0 takes the likeliest.",
)
@click.option(
    "--observe", is_flag=True, help="Module DSL: print what hooks and probes see, and test assertions."
)
@plan_options
@training_options
def run(**options: Unpack[Options]) -> None:
    """Execute FILE; without --input the inputs are random, from the seed, and so are missing weights."""
    words = _words(options)
    if _is_asked(options):
        _speak(options, words)
        return
    if options["observe"]:
        _observe(options, words)
        return
    if wants_plan(options):
        run_plan(options["file"], options, words, options["as_json"])
        return
    _execute(options, words)


def _words(options: Options) -> dict[str, object]:
    """The options that concern reading and compiling a model."""
    words: dict[str, object] = {key: value for key, value in options.items() if key not in OWN}
    words["allow"] = tuple(options["allow"]) if _is_module(options) else ()
    words["trace"] = _print_line if options["trace"] else None
    words["training"] = wants_training(options)
    if words["training"] and (wants_plan(options) or options["generate"] is not None):
        raise click.UsageError("--train-steps runs the training graph, and nothing else")
    return words


def _execute(options: Options, words: dict[str, object]) -> None:
    """Run a model once, or step by step, and print what it gives."""
    arrays = _read_inputs((*options["inputs"], *options["arguments"]), options["limits"])
    with waiting(f"reading {printable(str(options['file']))}"):
        start = time.perf_counter()
        executable = compile(options["file"], options["backend"], **words)
        loaded = time.perf_counter() - start
    stopwatch = Stopwatch(watch)
    executable.watch = stopwatch if options["profile"] else watch
    if options["generate"] is not None:
        _generate(executable, options, arrays)
        return
    start = time.perf_counter()
    told: dict[str, object] = {}
    outputs = _train(executable, options, arrays, told) if words["training"] else executable(**arrays)
    elapsed = time.perf_counter() - start
    if options["output"] is not None:
        for name, array in outputs.items():
            write_array(options["output"] / f"{file_name(name)}.npy", array)
    if options["as_json"]:
        times = {"loaded": loaded, "run": elapsed, "operators": stopwatch.to_json()}
        _print_json(
            outputs, executable.findings, {**told, **({"profile": times} if options["profile"] else {})}
        )
        return
    print_findings(executable.findings)
    _print_outputs(outputs)
    if options["profile"]:
        click.echo(f"loaded in {loaded * 1000:.1f} ms, run in {elapsed * 1000:.1f} ms", err=True)
        for line in stopwatch.lines():
            click.echo(line, err=True)


def _is_asked(options: Options) -> bool:
    """Whether text is asked of a model that has no plan of its own."""
    return bool(options["prompt"] or options["generate"]) and _is_module(options)


def _is_module(options: Options) -> bool:
    return speaks(options["file"], options["language"])


def _speak(options: Options, words: Mapping[str, object]) -> None:
    """Print what follows a prompt, or the tokens that follow others."""
    if not math.isfinite(options["temperature"]):
        raise click.UsageError("--temperature is a finite number")
    if options["prompt"] and options["generate"]:
        raise click.UsageError("--prompt continues a text, --generate numbers of tokens; give one of them")
    sampling = {name: options[name] for name in ("max_tokens", "temperature", "seed")}
    file, as_json, backend = options["file"], options["as_json"], options["backend"]
    if options["prompt"]:
        talk(file, "\n".join(options["prompt"]), words, sampling, as_json, backend)
    else:
        loop = options["generate"] or ""
        continue_tokens(file, loop, options["start"], words, sampling, as_json, backend)


def _observe(options: Options, words: Mapping[str, object]) -> None:
    """Run once, and print what the annotations of a model watch."""
    if not _is_module(options):
        raise click.UsageError("--observe is for models of the Module DSL and Hugging Face folders")
    arrays = _read_inputs(options["inputs"], options["limits"])
    with waiting(f"reading {printable(str(options['file']))}"):
        found = part_of("module", "observing").observe(options["file"], options_of(words), arrays)
    failed = has_errors(found.findings, False)
    if options["as_json"]:
        told = [item.to_json() for item in found.findings]
        outputs = _facts(found.outputs)
        print_json({"ok": not failed, "diagnostics": told, "outputs": outputs, "observed": list(found.lines)})
    else:
        print_findings(found.findings)
        for line in found.lines:
            click.echo(line)
        _print_outputs(dict(found.outputs))
    if failed:
        sys.exit(1)


def _train(
    executable: Executable, options: Options, arrays: dict[str, Array], told: dict[str, object]
) -> dict[str, Array]:
    """Do the steps of training that are asked for, and write what they made."""
    training = as_training(executable, options["file"])
    given = with_targets(training, arrays, _read_inputs(options["target"], options["limits"], "--target"))
    outputs, losses = train(training, given, options["train_steps"] or 0, not options["as_json"])
    told["losses"] = [item if math.isfinite(item) else None for item in losses]
    told["parameters"] = _facts(training.state)
    if options["save"] is not None:
        training.save(options["save"])
    return outputs


def _generate(executable: Executable, options: Options, arrays: dict[str, Array]) -> None:
    """Print the tokens that follow the given ones."""
    target, equals, source = (options["generate"] or "").partition("=")
    if not equals or not source or target in arrays:
        raise click.UsageError("--generate is INPUT=OUTPUT, an input that is not given otherwise")
    start = read_tokens(options["start"])
    tokens = generate(executable, (target, source), start, options["max_tokens"], arrays)
    if options["as_json"]:
        told = [item.to_json() for item in executable.findings]
        print_json({"ok": True, "diagnostics": told, "tokens": tokens})
        return
    print_findings(executable.findings)
    click.echo(",".join(map(str, tokens)))


def _print_line(line: str) -> None:
    click.echo(line, err=True)


def _read_inputs(words: tuple[str, ...], limits: Limits, option: str = "--input") -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for word in words:
        name, array = _read_input(word, limits, option)
        if name in arrays:
            raise click.UsageError(f"{option} {name} is given twice")
        arrays[name] = array
    return arrays


def _read_input(text: str, limits: Limits, option: str) -> tuple[str, Array]:
    name, equals, file = text.partition("=")
    if not equals or not file:
        raise click.UsageError(f"{option} '{text}' is not NAME=FILE.npy")
    number = _number(file)
    return name, read_array(Path(file), limits) if number is None else np.asarray(number)


def _number(text: str) -> bool | int | float | complex | None:
    """A scalar as a user writes it, or None for what must be a file."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float, complex):
        with suppress(ValueError):
            return kind(text)
    return None


def _digest(array: Array) -> str:
    """A digest of the bytes, by which two runs are compared."""
    return hashlib.sha256(array.tobytes()).hexdigest()


def _print_json(
    outputs: dict[str, Array], findings: Sequence[Diagnostic], more: Mapping[str, object]
) -> None:
    told = [item.to_json() for item in findings]
    print_json({"ok": True, "diagnostics": told, "outputs": _facts(outputs), **more})


def _facts(arrays: Mapping[str, Array]) -> dict[str, object]:
    return {
        name: {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": _digest(array)}
        for name, array in arrays.items()
    }


def _print_outputs(outputs: dict[str, Array]) -> None:
    """Type, shape and digest of each output."""
    if not outputs:
        click.echo("there is no output; a plan has those that it writes to L2 or DDR", err=True)
    for name, array in outputs.items():
        click.echo(f"{printable(name)}: {array.dtype}{list(array.shape)}  sha256 {_digest(array)[:16]}")
