"""The backend of graphs where nobody names one: machine code, and the reference where that cannot be.

It is chosen here alone, by what is asked for and by what this machine has.
"""

from __future__ import annotations

from dataclasses import replace

from lamella.backend.executor import GraphExecutable
from lamella.base.diagnostic import WARNING, Diagnostic
from lamella.base.errors import MISSING_PACKAGE
from lamella.base.source import NOWHERE
from lamella.graph.model import Model
from lamella.pipeline.backends import cpu, reference
from lamella.pipeline.options import Options

CPU, REFERENCE = "cpu", "reference"


def missing(backend: str) -> str | None:
    """NumPy is always there."""
    return None


def compile(model: Model, backend: str, options: Options) -> GraphExecutable:
    """Make a graph executable; where LLVM is missing the findings of every run say so."""
    asks_kernels = options.strict_backend or options.threads or options.target is not None
    # What a user computes in 64 bits or quantised is compared with something: bit by bit with the formulas.
    if (options.dtype == "f64" or options.quantized) and not asks_kernels:
        return reference.compile(model, REFERENCE, options)
    absent = cpu.missing(CPU)
    if absent is not None:
        told = replace(model, findings=(*model.findings, _slower(absent)))
        return reference.compile(told, REFERENCE, options)
    return cpu.compile_graph(model, options)


def _slower(absent: str) -> Diagnostic:
    message = f"{absent}, so the graph runs on the reference, which is slower"
    finding = MISSING_PACKAGE.at(NOWHERE, message=message, hint="pip install llvmlite")
    return replace(finding, severity=WARNING)
