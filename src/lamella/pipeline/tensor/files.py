"""Tensor-language files for the commands: check, format, show; loads no numpy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.limits import Limits
from lamella.base.paths import is_there, read_text, shown
from lamella.base.source import Source
from lamella.kernels.target import TARGETS, Target, find_target, target_to_json
from lamella.kernels.target import describe as describe_target
from lamella.lang.tensor import parse, write, write_type
from lamella.lang.tensor.check.roles import word_of
from lamella.lang.tensor.nodes import For, Foreach, Function, If, Parallel, Region
from lamella.pipeline.languages import Description
from lamella.pipeline.options import Options
from lamella.pipeline.tensor.program import read_kernels


def check(path: Path, options: Options) -> list[Diagnostic]:
    """The rules of the language."""
    return list(read_kernels(path, options.limits).findings)


def canonical(path: Path, limits: Limits) -> tuple[str, str]:
    """The text of a file and its canonical form; a text with syntax errors raises."""
    source = Source(shown(path), read_text(path, limits))
    program, findings = parse(source, limits)
    if errors(findings):
        raise LamellaError(errors(findings))
    return source.text, write(program)


def describe(name: str, options: Options) -> Description:
    """Each kernel with its parameters and how often it uses which instruction; a target with what it has."""
    if name in TARGETS and not is_there(Path(name)):
        return _target(find_target(name))
    found = read_kernels(Path(name), options.limits)
    functions = found.program.functions
    lines = [f"{found.source.name}: tensor language, {len(functions)} kernel{'s' * (len(functions) != 1)}"]
    for function in functions:
        lines += ["", *_kernel(function)]
    data: dict[str, object] = {
        "file": found.source.name,
        "kind": "kernels",
        "kernels": [_kernel_to_json(function) for function in functions],
    }
    return Description("\n".join(lines), data, tuple(errors(found.findings)))


def _target(target: Target) -> Description:
    return Description(describe_target(target), {"kind": "target", **target_to_json(target)})


def _kernel(function: Function) -> Iterator[str]:
    yield f"@{function.name}"
    for item in function.parameters:
        yield f"  %{item.value.name}: {write_type(item.type)}"
    for word, count in Counter(_words(function.body)).most_common():
        yield f"    {count:>5} × {word}"


def _kernel_to_json(function: Function) -> dict[str, object]:
    return {
        "name": function.name,
        "parameters": {item.value.name: write_type(item.type) for item in function.parameters},
        "instructions": Counter(_words(function.body)),
    }


def _words(region: Region) -> Iterator[str]:
    """The names of the instructions of a region and of those in it."""
    waiting = [region]
    while waiting:
        for statement in waiting.pop().statements:
            instruction = statement.instruction
            yield word_of(instruction)
            if isinstance(instruction, For | Foreach | Parallel):
                waiting.append(instruction.body)
            elif isinstance(instruction, If):
                waiting += [item for item in (instruction.then, instruction.otherwise) if item is not None]
