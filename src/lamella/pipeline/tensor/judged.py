"""One kernel on every backend of this machine, judged by a graph: the formula that it is written for."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

from lamella.backend.executor import GraphExecutable
from lamella.base.arrays import Array
from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.base.records import dataclass
from lamella.pipeline import backends
from lamella.pipeline.backends.kernels import KernelRun
from lamella.pipeline.diff.gap import Gap, measure
from lamella.pipeline.diff.report import gap_to_json, gap_words
from lamella.pipeline.diff.sides import as_graph
from lamella.pipeline.languages import language_of
from lamella.pipeline.options import Options
from lamella.pipeline.tensor.program import KernelFile

ORDER = ("interpreter", "cpu", "cuda")
"""The backends of kernels, the judge of their language first."""
JUDGE = "reference"
BUDGET_SECONDS, MOST_CALLS = 0.1, 50
"""How long, and how often at most, a kernel is called again to see what a call takes."""
NUMBERED = re.compile(r"_\d+$")
"""What our own kernels put behind the names of a graph."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What a kernel gave on one backend beside what the judge gave, or why it cannot run there."""

    backend: str
    gaps: tuple[Gap, ...] = ()
    seconds: float = 0.0
    """The fastest of several calls."""
    moved: int = 0
    """The bytes of all arguments."""
    missing: str = ""
    unwritten: int = 0
    """Elements of outputs that the kernel never wrote."""

    def agrees(self, tolerance: float) -> bool:
        """Whether nothing lies farther apart than a tolerance, in parts of the largest number."""
        return all(gap.relative <= tolerance for gap in self.gaps)

    def lines(self, tolerance: float) -> Iterator[str]:
        """For people."""
        if self.missing:
            yield f"{self.backend:12} cannot run here: {self.missing}"
            return
        word = "agrees " if self.agrees(tolerance) else "DIFFERS"
        speed = (
            f"  {self.moved / self.seconds / 1e9:.3g} GB/s"
            if self.seconds and self.backend != ORDER[0]
            else ""
        )
        for gap in self.gaps:
            apart = f"{self.unwritten:,} elements are not written" if self.unwritten else gap_words(gap)
            yield f"{self.backend:12} {word}  {printable(gap.name)}: {apart}  {_duration(self.seconds)}{speed}"

    def to_json(self, tolerance: float) -> dict[str, object]:
        """As data."""
        if self.missing:
            return {"backend": self.backend, "missing": self.missing}
        facts = {"ok": self.agrees(tolerance), "seconds": self.seconds, "bytes": self.moved}
        facts |= {"unwritten": self.unwritten} if self.unwritten else {}
        return {"backend": self.backend, **facts, "outputs": [gap_to_json(gap) for gap in self.gaps]}


def judge_kernel(
    model: KernelFile, judge: Path, options: Options, given: Mapping[str, Array]
) -> list[Judged]:
    """Run a kernel on each backend, or on the one that is named, with the numbers that the judge reads.

    Arguments are those inputs and outputs of the judge that have their names. The elements of a memref lie in memory as
    those of the tensor do: the first mode is the last axis. One of the tensor's own shape is taken mode by axis.
    """
    formula = _formula(judge, options)
    inputs = formula.draw_inputs()
    trial = KernelRun(model, None, options)
    shapes = trial.shapes
    pairs = _pair(tuple(shapes), (*formula.inputs, *formula.outputs))
    for argument, array in given.items():
        name = pairs.get(argument)
        if name in inputs:
            inputs[name] = _as_tensor(array, inputs[name].shape, argument)
    expected = formula(**inputs)
    arrays = dict(given)
    for argument, name in pairs.items():
        if name in inputs:
            arrays[argument] = _as_argument(inputs[name], shapes[argument], argument)
        elif argument not in arrays:
            # What a kernel forgets to write is no number.
            start = np.full_like(expected[name], np.nan if expected[name].dtype.kind == "f" else 0)
            arrays[argument] = _as_argument(start, shapes[argument], argument)
    judged = {argument: expected[name] for argument, name in pairs.items() if name in expected}
    if not judged:
        told = ", ".join(map(printable, formula.outputs))
        hint = f"outputs of the judge: {told}; arguments of the kernel: {', '.join(map(printable, shapes))}"
        raise InputError(f"no argument of the kernel is called like an output of '{judge}'", hint=hint)
    names = ORDER if options.backend is None else (options.backend,)
    return [_run(name, model, options, arrays, judged) for name in names]


def _formula(judge: Path, options: Options) -> GraphExecutable:
    """The judge on the reference; InputError where it is no graph."""
    plain = replace(options, language=None, kernel=None)
    graph = as_graph(language_of(judge, None).load(judge, plain), plain)
    if graph is None:
        raise InputError(
            f"'{judge}' is no graph", hint="a kernel is judged by a formula: a .sknd file, for example"
        )
    return cast(GraphExecutable, backends.make_executable(graph, JUDGE, plain))


def _pair(arguments: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Arguments with the tensors that they are: by name, by our own kernels' names, or but for capitals."""
    found: dict[str, str] = {}
    for spell in (str, lambda name: NUMBERED.sub("", name), str.lower):
        left = [name for name in names if name not in found.values()]
        for argument in arguments:
            alike = [name for name in left if spell(name) == spell(argument)]
            if argument not in found and len(alike) == 1 and alike[0] not in found.values():
                found[argument] = alike[0]
    return found


def _as_argument(array: Array, shape: tuple[int | None, ...] | None, name: str) -> Array:
    """A tensor as an argument of a shape, in which some sizes may be open."""
    turned = tuple(reversed(array.shape))
    if shape is None:
        raise InputError(f"argument '{printable(name)}' is no memref, and the judge has a tensor for it")
    if _fits(turned, shape):
        return array.T
    if _fits(array.shape, shape):
        return array
    if None not in shape and math.prod(cast("tuple[int, ...]", shape)) == array.size:
        return array.ravel().reshape(cast("tuple[int, ...]", shape), order="F")
    sizes = "×".join("?" if size is None else str(size) for size in shape)
    raise InputError(f"argument '{printable(name)}' is {sizes}, and the judge has {list(array.shape)} for it")


def _fits(sizes: tuple[int, ...], shape: tuple[int | None, ...]) -> bool:
    return len(sizes) == len(shape) and all(
        want in (None, size) for size, want in zip(sizes, shape, strict=True)
    )


def _as_tensor(array: Array, shape: tuple[int, ...], name: str) -> Array:
    """An argument as the tensor that it is: the way back of `_as_argument`."""
    if array.shape == tuple(reversed(shape)):
        return array.T
    if array.shape == shape:
        return array
    if array.size != math.prod(shape):
        raise InputError(
            f"argument '{printable(name)}' has shape {list(array.shape)}, and the judge has {list(shape)} for it"
        )
    return array.ravel(order="F").reshape(shape)


def _run(
    name: str, model: KernelFile, options: Options, arrays: Mapping[str, Array], judged: Mapping[str, Array]
) -> Judged:
    missing = backends.REGISTRY[name].missing()
    if missing is not None:
        return Judged(name, missing=missing)
    run = KernelRun(model, name, options)
    outputs = run(**arrays)
    gaps = tuple(
        measure(argument, tensor, _as_tensor(outputs[argument], tensor.shape, argument))
        for argument, tensor in judged.items()
    )
    unwritten = sum(_count_unwritten(tensor, outputs[argument]) for argument, tensor in judged.items())
    begun, fastest = time.perf_counter(), run.seconds
    for _ in range(MOST_CALLS):
        if time.perf_counter() - begun > BUDGET_SECONDS:
            break
        run(**arrays)
        fastest = min(fastest, run.seconds)
    moved = sum(array.nbytes for array in outputs.values())
    return Judged(name, gaps, fastest, moved, unwritten=unwritten)


def _count_unwritten(expected: Array, found: Array) -> int:
    """Elements that are no numbers as before the call, and that the judge has numbers for."""
    if found.dtype.kind != "f":
        return 0
    return max(0, int(np.isnan(found).sum()) - int(np.isnan(expected).sum()))


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"
