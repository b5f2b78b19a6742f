"""The registry of backends: what each runs, which one runs a model by default, and the one way to an executable.

A backend is one row of `ROWS` and one module beside this one, which is loaded when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, cast

from lamella.base.errors import InputError
from lamella.base.gc import gc_paused
from lamella.base.records import dataclass
from lamella.pipeline import languages

if TYPE_CHECKING:
    from lamella.base.diagnostic import Diagnostic
    from lamella.pipeline.languages import Executable, Model
    from lamella.pipeline.options import Options


class Runner(Protocol):
    """The module of a backend, or of several that are alike: `lamella.pipeline.backends.<module>`."""

    def missing(self, backend: str) -> str | None:
        """Why a backend cannot run on this machine; None where it can."""

    def compile(self, model: Model, backend: str, options: Options) -> Executable:
        """Make a model of a form that the backend takes executable."""


class Starts(Protocol):
    """The module of a backend whose device takes long to start."""

    def start(self) -> None:
        """Let the device start while something else is done."""


class GraphChecks(Protocol):
    """What is asked of a graph before any backend takes it."""

    def require_quantization(self, model: Model) -> None:
        """A graph that is to run quantised says how; InputError where it does not."""


class FindsLeft(Protocol):
    """What knows which operations of a graph have kernels."""

    def find_left(self, model: Model, options: Options) -> list[Diagnostic]:
        """A note that names the operations without kernels, and why; nothing where all have some."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A way to run models of some forms."""

    name: str
    takes: tuple[str, ...]
    """The forms that it runs, as `model.language` names them; others become a graph first, where they can."""
    module: str
    title: str
    is_offered: bool = True
    """Whether a user names it; one that is not is a choice between others."""
    starts: bool = False
    """Whether it has a device that takes long to start."""

    def missing(self) -> str | None:
        """Why it cannot run on this machine; None where it can."""
        return self._runner().missing(self.name)

    def compile(self, model: Model, options: Options) -> Executable:
        """Make a model of a form that it takes executable."""
        if options.quantized and model.language == GRAPH:
            cast(GraphChecks, _load("reference")).require_quantization(model)
        return self._runner().compile(model, self.name, options)

    def _runner(self) -> Runner:
        return cast(Runner, _load(self.module))


def _load(module: str) -> object:
    """A module beside this one, loaded where it is used: the one place of this registry that loads by a name."""
    return import_module(f"lamella.pipeline.backends.{module}")


GRAPH, KERNELS, TENSOR, NAC, UNIT, PLAN, PLANS, STREAM = (
    "skriptnd",
    "kernels",
    "tensor",
    "nac",
    "unit",
    "nem",
    "plans",
    "stream",
)
ROWS = (
    Backend("reference", (GRAPH,), "reference", "graphs with NumPy, straight from the formulas"),
    Backend("cpu", (GRAPH, KERNELS, TENSOR), "cpu", "kernels as machine code, through LLVM"),
    Backend(
        "cuda", (GRAPH, KERNELS, TENSOR), "cuda", "kernels on an NVIDIA GPU, through its driver", starts=True
    ),
    Backend(
        "interpreter", (GRAPH, KERNELS, TENSOR), "kernels", "kernels by the letter of the tensor language"
    ),
    Backend("nacvm", (NAC,), "nacvm", "NAC instructions and their memory schedule"),
    Backend(
        "npu",
        (GRAPH, PLAN, PLANS, STREAM),
        "npu",
        "plans and bound streams, bit by bit; graphs by their plans",
    ),
    Backend(
        "native", (GRAPH,), "native", "cpu where LLVM loads and the options allow, else reference", False
    ),
    Backend("either", (TENSOR,), "kernels", "cpu where every loop is seen to end, else interpreter", False),
)
REGISTRY = MappingProxyType({row.name: row for row in ROWS})
BACKENDS = tuple(row.name for row in ROWS if row.is_offered)
"""The names that users know."""
TITLES = "; ".join(f"{row.name}: {row.title}" for row in ROWS if row.is_offered)
"""What each does, as `--help` says it."""
WITH_KERNELS = tuple(row.name for row in ROWS if KERNELS in row.takes)
"""Those that run graphs by kernels."""
DEFAULTS = MappingProxyType(
    {
        GRAPH: "native",
        UNIT: "native",
        KERNELS: "cpu",
        TENSOR: "either",
        NAC: "nacvm",
        PLAN: "npu",
        PLANS: "npu",
        STREAM: "npu",
    }
)
"""The backend of each form where nobody names one."""
JUDGES = MappingProxyType({GRAPH: "reference", UNIT: "reference"})
"""The backend whose numbers others are compared with, for forms whose default is another one."""
_PLURALS = MappingProxyType(
    {
        GRAPH: "graphs",
        KERNELS: "kernels",
        TENSOR: "kernels",
        PLAN: "plans and streams",
        PLANS: "plans and streams",
        STREAM: "plans and streams",
    }
)
_SINGULARS = MappingProxyType(
    {
        GRAPH: "a graph",
        PLAN: "this form",
        PLANS: "this form",
        STREAM: "this form",
        TENSOR: "kernels",
        KERNELS: "kernels",
    }
)


def start(name: str | None) -> None:
    """Let the device of a backend start, which is used as soon as a model is read."""
    found = REGISTRY.get(name or "")
    if found is not None and found.starts:
        cast(Starts, _load(found.module)).start()


@gc_paused()
def make_executable(model: Model, name: str | None, options: Options) -> Executable:
    """Make a model executable on the backend that is named, else on the default of its form."""
    backend = choose_backend(model.language, name, options)
    if model.language in backend.takes:
        return backend.compile(model, options)
    return languages.REGISTRY[model.language].compile_as_graph(model, backend, options)


def find_left(model: Model, options: Options) -> list[Diagnostic]:
    """A note that names the operations of a graph that no kernel computes, and why; nothing where all have some."""
    return cast(FindsLeft, _load("kernels")).find_left(model, options)


def choose_backend(form: str, name: str | None, options: Options) -> Backend:
    """The backend of a model: the one that is named, else the default of its form; InputError where it has no way."""
    if form not in DEFAULTS:
        raise InputError(
            f"a model in the form '{form}' is written, not run", hint="save it, and load the file"
        )
    if name is None:
        return REGISTRY[DEFAULTS[GRAPH if form == NAC and options.dtype == "f64" else form]]
    backend = REGISTRY.get(name)
    if backend is None or not backend.is_offered or not _runs(backend, form):
        known = [row.name for row in ROWS if row.is_offered and _runs(row, form)]
        kind = form if form in _SINGULARS else GRAPH
        hint = f"{_PLURALS[kind]} run on: {', '.join(known)}"
        raise InputError(f"there is no backend '{name[:80]}' for {_SINGULARS[kind]}", hint=hint)
    missing = backend.missing()
    if missing is not None:
        others = [row.name for row in ROWS if row.is_offered and _runs(row, form) and row.missing() is None]
        hint = f"what runs here: {', '.join(others) or 'none'}"
        raise InputError(f"backend '{name}' cannot run here: {missing}", hint=hint)
    return backend


def _runs(backend: Backend, form: str) -> bool:
    becomes_graph = bool(languages.REGISTRY[form].as_graph)
    return form in backend.takes or (becomes_graph and GRAPH in backend.takes)
