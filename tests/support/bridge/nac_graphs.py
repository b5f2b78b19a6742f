"""Assembly programs as graphs that run."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lamella.backend.reference import compile_model
from lamella.base.arrays import element_type_of
from lamella.base.diagnostic import errors
from lamella.base.source import Source
from lamella.bridge.nac_to_graph import InputType, Translation, nac_to_graph
from lamella.lang.nac import assemble
from lamella.lang.nac.nodes import File

Array: TypeAlias = npt.NDArray[Any]


def assembled(text: str, version: str = "1.6") -> File:
    """The file of a program that says its code and what follows it."""
    file, findings = assemble(Source("program.nacs", f"nac {version}\n{text}"))
    assert not errors(findings), "\n".join(map(str, findings))
    return file


def input_type(array: Array) -> InputType:
    """What an array is."""
    element = element_type_of(array.dtype)
    assert element is not None
    return InputType(element, array.shape)


def program(code: str, *names: str, version: str = "1.6") -> File:
    """A program of one line each; inputs have these names, in the order of their instructions."""
    lines = [line.strip() for line in code.strip().splitlines()]
    taken = [place for place, line in enumerate(lines) if line.endswith("= input()")]
    rows = [f"{place} = {name}" for place, name in zip(taken, names, strict=True)]
    return assembled("\n".join([".code", *lines, ".inputs", *rows]), version)


def translate(code: str, version: str = "1.6", **arrays: Array) -> Translation:
    """A program as a graph, for inputs like these arrays."""
    inputs = {name: input_type(array) for name, array in arrays.items()}
    return nac_to_graph(program(code, *arrays, version=version), inputs=inputs)


def run(code: str, version: str = "1.6", **arrays: Array) -> Array:
    """What the only output of a program is."""
    (found,) = compile_model(translate(code, version, **arrays).model)(**arrays).values()
    return np.asarray(found)


def operators(code: str, version: str = "1.6", **arrays: Array) -> list[str]:
    """The operators that a program becomes."""
    return [item.operator for item in translate(code, version, **arrays).model.graph.operations()]
