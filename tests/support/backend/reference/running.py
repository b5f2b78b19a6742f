"""Short ways to run a text or a formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy.typing as npt

from lamella.backend.executor import GraphExecutable
from lamella.backend.formula.contract import run_formula
from lamella.backend.formula.evaluate import Tensors
from lamella.backend.formula.expression_dag import prepare
from lamella.backend.formula.scalars import SINGLE, Real
from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import errors
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import Source
from lamella.graph.compose import compose
from lamella.graph.model import Model
from lamella.ops.formula import Contraction
from lamella.ops.library import Library

IMPORTS = "import algo, image, layer, layout, linalg, math, misc, nn, quant, rand;\n"


def model_of(
    text: str, data: Mapping[str, Array] | None = None, keep: Callable[[str], bool] | None = None
) -> Model:
    """The first graph of a text, composed without findings."""
    library = Library()
    module = library.load(Source("main.sknd", IMPORTS + text))
    assert not errors(module.findings), "\n".join(map(str, module.findings))
    found = compose(module, keep=keep)
    assert found.graph is not None, "\n".join(map(str, found.findings))
    return Model(found.graph, library, data)


def ready(
    text: str,
    data: Mapping[str, Array] | None = None,
    *,
    seed: int = 0,
    dtype: str = "f32",
    quantized: bool = False,
    limits: Limits = DEFAULT,
) -> GraphExecutable:
    """A text that can be called."""
    return compile_model(model_of(text, data), seed=seed, dtype=dtype, quantized=quantized, limits=limits)


def run(text: str, /, **inputs: npt.ArrayLike) -> dict[str, Array]:
    """The outputs of a text for some inputs."""
    return ready(text)(**inputs)


def run_contraction(contraction: Contraction, tensors: Tensors, real: Real = SINGLE) -> None:
    """Run a contraction with known extents; its outputs among the tensors are written in place."""
    run_formula(prepare(contraction), tensors, real)
