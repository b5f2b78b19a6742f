"""The compiler of graphs, which is loaded when something has to be compiled: what was kept starts without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from lamella.base.optional import load_late
from lamella.graph.model import Model
from lamella.pipeline.options import Options

if TYPE_CHECKING:
    from lamella.backend.executor.kernels import KernelExecutable
    from lamella.graph.passes.cut_batch import BatchCut
    from lamella.pipeline import languages
    from lamella.pipeline.languages import Executable


class Compiler(Protocol):
    """What compiles where nothing is kept: `lamella.pipeline.backends.kernels`."""

    def compile(self, model: languages.Model, backend: str, options: Options) -> Executable:
        """Make kernels or a graph callable."""

    def compile_open(self, model: Model, backend: str, options: Options) -> KernelExecutable:
        """Make a graph callable."""

    def cut_batch(self, model: Model) -> BatchCut | None:
        """The graph for a part of its batch; None where it runs on all of it at once."""


def late_compiler() -> Compiler:
    """Load it."""
    return cast(Compiler, load_late("lamella.pipeline.backends.kernels"))
