"""The registry of languages: one typed object each, by name and by file ending; it loads a language when asked to.

A language or another format of files is one row of `ROWS`. Commands and the API go through its methods: nothing else in
the pipeline loads code by a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, cast

from lamella.base.diagnostic import Diagnostic, Rule, printable
from lamella.base.errors import InputError, cause_of
from lamella.base.gc import gc_paused
from lamella.base.limits import Limits
from lamella.base.paths import is_folder, is_there, shipped, shown, suggest_path
from lamella.base.placement import OperationPlacement
from lamella.base.records import dataclass
from lamella.base.suggest import list_known
from lamella.kernels.target import TARGETS

if TYPE_CHECKING:
    import numpy.typing as npt

    from lamella.backend.drawing import Drawn
    from lamella.backend.mep import PlanResult
    from lamella.backend.progress import Progress
    from lamella.base.arrays import Array
    from lamella.base.levels import Level
    from lamella.base.source import Source
    from lamella.bridge.nac_to_graph import InputType
    from lamella.bridge.nac_to_graph.nodes import KeptState
    from lamella.graph.model import Model as GraphModel
    from lamella.lang.nac.nodes import File
    from lamella.lang.nem.resolved import ComputeKernel, Plan
    from lamella.pipeline.backends import Backend
    from lamella.pipeline.generate import Generated
    from lamella.pipeline.module.observe import Observed
    from lamella.pipeline.nac.model import Model as NacModel
    from lamella.pipeline.nac.results import Results
    from lamella.pipeline.nem.reports import FitReport
    from lamella.pipeline.options import Options
    from lamella.plan.stcb import Stream

# --- what languages hand around ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Description:
    """What is in a file: as text, as data, and what is wrong with it."""

    text: str
    data: Mapping[str, object]
    findings: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """What a model and what was written of it gave, by name, and where the operations of the latter ran."""

    numbers: Mapping[str, tuple[Array, Array]]
    placement: tuple[OperationPlacement, ...] = ()
    tolerance: float | None = None
    """How far they may lie apart, in parts of the largest; None leaves it to whoever asks."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What was written, the main file last, and what there is to say about it."""

    written: tuple[Path, ...]
    findings: tuple[Diagnostic, ...] = ()
    lines: tuple[str, ...] = ()
    data: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Console:
    """How the plan of an application talks to a person: what it prints, and what it asks."""

    echo: Callable[[str, str], None]
    ask: Callable[[str], str]


class Model(Protocol):
    """What the API hands around: a program, a stream or a graph."""

    @property
    def language(self) -> str:
        """The row of the registry that knows the model."""

    def at(self, level: str, **options: object) -> Level:
        """The model at a level: `sknd`, `nac`, `tensor`, `llvm`, `asm` or `nem`."""


class Executable(Protocol):
    """Something to call with arrays by name."""

    findings: list[Diagnostic]
    """What the last call found."""
    progress: Progress
    """Wraps the steps of a call, for a progress bar."""
    draws: bool
    """Whether inputs that a call does not give are random, from the seed; where not, they are missing."""

    @property
    def drawn(self) -> Drawn:
        """What the last call drew."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""

    def __call__(self, /, *arrays: npt.ArrayLike, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once; inputs are given in their order or by name."""


# --- parts of a language: modules of its folder in the pipeline, each loaded when it is used ---------------------
# tests/house/test_languages_alike.py compares each module with its protocol.


class Files(Protocol):
    """The part of a language that checks and formats its files."""

    def check(self, path: Path, options: Options) -> list[Diagnostic]:
        """What is wrong in a file."""

    def canonical(self, path: Path, limits: Limits) -> tuple[str, str]:
        """The text of a file and its canonical form."""


class Shows(Protocol):
    """The part of a language that says what is in its files."""

    def describe(self, name: str, options: Options) -> Description:
        """What is in a file, or in what else goes by a name."""


class Loads(Protocol):
    """The part of a language that makes models of its files."""

    def load(self, path: Path, options: Options) -> Model:
        """Read and check a file; LamellaError holds all findings when something is wrong."""


class Saves(Protocol):
    """The part of a language that makes files of its models."""

    def save(self, model: Model, path: Path) -> None:
        """Write a model by the ending of the path."""


class Lowers(Protocol):
    """The part of a language that lowers its models."""

    def lower(self, model: Model, to: str, options: Options) -> Model:
        """Lower a model to a form below it."""


class AsGraph(Protocol):
    """The part of a language that runs its models on a backend for graphs."""

    def compile_as_graph(self, model: Model, backend: Backend, options: Options) -> Executable:
        """Make the graph of a model executable."""


class FromGraph(Protocol):
    """The part of a language that a graph is written in."""

    def from_graph(self, model: GraphModel, path: Path, options: Options) -> Model:
        """The graph in this language; the path is that of the file it will be."""


class Rules(Protocol):
    """The rules of a published language."""

    RULES: tuple[Rule, ...]


class Explains(Protocol):
    """The part of a language whose models become graphs, for `lamella lower --explain`."""

    def explain(self, model: Model, options: Options) -> list[str]:
        """What a pass does to the graph of a model, and why."""


class Prints(Protocol):
    """The part of a language whose models are printed, for `lamella lower`."""

    def printed(self, model: Model) -> str:
        """The text of a lowered model."""


class Spells(Prints, Protocol):
    """The part of a language whose text has identifiers, for `lamella convert`."""

    def respelled(self, model: Model) -> list[str]:
        """Lines about the names of a model that a text calls otherwise."""


class Printing(Prints, Protocol):
    """The part of a language whose models are printed and written by stages, for `lamella lower`."""

    def write_into(self, model: Model, folder: Path, stem: str) -> Path:
        """Write every stage into a folder; gives the file of the last."""

    def compare(self, before: Model, lowered: Model, path: Path, options: Options) -> Compared:
        """The numbers of a model and of what was written of it."""


class PlanReports(Protocol):
    """What is said of graphs on their way to plans."""

    def explain_selection(self, model: GraphModel, options: Options) -> list[str]:
        """How each operation of a graph is computed on a device."""

    def fit(self, model: GraphModel, options: Options) -> FitReport:
        """What a graph needs of the memories of a device."""


class Architectures(Protocol):
    """What only the sources of a graph can do: .module files and Hugging Face folders."""

    def build_unit(self, path: Path, options: Options) -> Model:
        """The compiled unit of a source."""

    def export(
        self, path: Path, target: Path, options: Options
    ) -> tuple[tuple[Path, ...], tuple[Diagnostic, ...]]:
        """Write a source as a Hugging Face folder."""

    def with_parts(self, path: Path, options: Options) -> Options:
        """The options that also put the config and the tokenizer of a folder into a NAC file."""

    def generate_text(
        self, path: Path, prompt: str, options: Options, emit: Callable[[str], None] | None = None
    ) -> Generated:
        """What follows a prompt; `emit` gets each piece of the text as it is known."""

    def generate_tokens(self, path: Path, prompt: Sequence[int], options: Options) -> Generated:
        """The tokens that follow others."""

    def verify(self, path: Path, options: Options) -> tuple[list[Diagnostic], list[str]]:
        """Gradients against finite differences; this executes the model."""

    def observe(
        self, path: Path, options: Options, inputs: Mapping[str, Array], backend: str | None
    ) -> Observed:
        """Run once, and collect what the annotations of a model watch."""


class NacGraphs(Protocol):
    """NAC files as graphs."""

    def find_foreign(self, model: NacModel, limits: Limits) -> list[Diagnostic]:
        """The operations that no table knows."""

    def check_lowering(self, model: NacModel, options: Options) -> list[Diagnostic]:
        """What keeps a file from becoming a graph."""

    def to_graph(
        self, model: NacModel, options: Options, known: Mapping[str, InputType] | None = None
    ) -> GraphModel:
        """The graph of a file."""


class NacResults(Protocol):
    """What NAC files give and keep, as far as it can be known without a run."""

    def find_states(self, file: File) -> list[KeptState]:
        """What a file keeps between runs."""

    def find_results(self, model: NacModel, options: Options) -> Results:
        """What the instructions of a file give."""


class NacWriting(Protocol):
    """Graphs and files as other NAC files."""

    def convert_to_nac(self, model: Model, target: Path, options: Options) -> Conversion:
        """Write a model as a NAC file with all that the options ask for."""


class NacPlans(Protocol):
    """The plans of NAC applications."""

    def patch(self, model: Model, values: Mapping[str, str]) -> NacModel:
        """The file with other constants in its plan."""

    def rewrite(self, model: NacModel) -> None:
        """Write the file in place."""

    def execute(
        self,
        model: NacModel,
        console: Console,
        options: Options,
        answers: Sequence[str] = (),
        allowed: Mapping[str, Path] | None = None,
        make_host: Callable[..., object] | None = None,
    ) -> PlanResult:
        """Run a plan within what is allowed."""


class TrainingPlans(Protocol):
    """Plans that train: `lamella.train.plans`."""

    TrainingHost: Callable[..., object]
    """Makes the outside of a plan whose models can be trained."""


class PlanKernels(Protocol):
    """The kernels that `compute` tasks of plans and streams run."""

    def read_kernels(
        self, source: Source, limits: Limits
    ) -> tuple[Mapping[str, ComputeKernel] | None, list[Diagnostic]]:
        """The kernels of a text, and what is wrong with it."""

    def link(
        self, plan: Plan, kernels: Mapping[str, ComputeKernel], file: str
    ) -> tuple[Plan, list[Diagnostic]]:
        """The plan with its kernels, and what does not fit."""

    def check_stream(self, stream: Stream) -> None:
        """Refuse a stream whose records do not fit their kernels."""


# --- the registry -----------------------------------------------------------------------------------------------


def _part(name: str, package: str = "pipeline") -> object:
    """A module of the pipeline, loaded where it is used: the one place of this registry that loads by a name."""
    return import_module(f"lamella.{package}.{name}")


@dataclass(frozen=True, slots=True)
class Language:
    """A language, or another format of files: its endings, and the modules of the pipeline that know it."""

    name: str
    endings: tuple[str, ...] = ()
    files: str = ""
    """What checks and formats its files."""
    shows: str = ""
    """What says what is in them."""
    loads: str = ""
    """What makes a model of a file: of this language, or a graph."""
    saves: str = ""
    """What makes a file of a model."""
    lowers: str = ""
    """What lowers a model."""
    as_graph: str = ""
    """What runs its models on a backend for graphs."""
    writing: str = ""
    """What writes a graph in it."""
    printing: str = ""
    """What prints its models, where `lower` writes them by stages."""
    prints: str = ""
    """What prints its models, where `lower` writes them as they are."""
    is_published: bool = False
    """Whether it is one of the five languages."""

    def check(self, path: Path, options: Options) -> list[Diagnostic]:
        """What is wrong in a file; nothing in it is executed."""
        return cast(Files, _part(self.files)).check(path, options)

    def format(self, path: Path, limits: Limits) -> tuple[str, str]:
        """The text of a file and its canonical form."""
        return cast(Files, _part(self.files)).canonical(path, limits)

    def show(self, name: str, options: Options) -> Description:
        """What is in a file, or in what else goes by a name."""
        return cast(Shows, _part(self.shows)).describe(name, options)

    @gc_paused()
    def load(self, path: Path, options: Options) -> Model:
        """The model of a file; LamellaError holds all findings when something is wrong."""
        if not self.loads:
            raise InputError("the file holds data, not a model", hint="give it to a model with --weights")
        return cast(Loads, _part(self.loads)).load(path, options)

    def lower(self, model: Model, to: str, options: Options) -> Model:
        """A model in a form below it."""
        return cast(Lowers, _part(self.lowers)).lower(model, to, options)

    def explain(self, model: Model, options: Options) -> list[str]:
        """What a pass does to the graph of a model, and why: one line for each thing."""
        return cast(Explains, _part(self.lowers)).explain(model, options)

    def save(self, model: Model, path: Path) -> None:
        """Write a model by the ending of the path."""
        cast(Saves, _part(self.saves)).save(model, path)

    def compile_as_graph(self, model: Model, backend: Backend, options: Options) -> Executable:
        """A model on a backend for graphs."""
        return cast(AsGraph, _part(self.as_graph)).compile_as_graph(model, backend, options)

    def from_graph(self, model: GraphModel, path: Path, options: Options) -> Model:
        """A graph in this language; the path is that of the file it will be."""
        return cast(FromGraph, _part(self.writing)).from_graph(model, path, options)

    def printer(self) -> Printing | None:
        """What prints and writes models by stages; None where they are one file."""
        return cast(Printing, _part(self.printing)) if self.printing else None

    def text(self, model: Model) -> str | None:
        """The text of a model; None where its language has none that is printed."""
        part = self.printing or self.prints
        return cast(Prints, _part(part)).printed(model) if part else None

    def respelled(self, model: Model) -> list[str]:
        """Lines about the names of a model that a text of this language cannot spell."""
        return cast(Spells, _part(self.prints)).respelled(model) if self.prints else []

    def rules(self) -> tuple[Rule, ...]:
        """The rules of a published language, in order."""
        return cast(Rules, _part(f"{self.name}.rules", "lang")).RULES


def bridge_rules() -> tuple[Rule, ...]:
    """The rules of what is read and translated beyond the published languages: ONNX files, and graphs to plans."""
    parts = (_part(name, "bridge") for name in ("onnx.rules", "graph_to_plan.rules"))
    return tuple(rule for part in parts for rule in cast(Rules, part).RULES)


MODULE = Language(
    "module",
    (".module",),
    files="module.files",
    shows="module.describe",
    loads="module.execution",
    is_published=True,
)
FOLDER = Language(
    "folder", (".gguf",), files="module.folder_check", shows="module.describe", loads="module.execution"
)
"""A checkpoint of Hugging Face, or a GGUF file, which is read as one."""
UNIT = Language(
    "unit",
    files="module.units",
    shows="module.units",
    loads="module.units",
    saves="module.units",
    lowers="module.units",
    as_graph="module.units",
)
"""A compiled unit of the Module DSL."""
STANDARD = Language("standard", shows="module.library")
"""The shipped library of architectures: a name, not a file."""
SKRIPTND = Language(
    "skriptnd",
    (".sknd",),
    files="skriptnd.files",
    shows="skriptnd.describe",
    loads="skriptnd.loading",
    saves="skriptnd.execution",
    lowers="skriptnd.execution",
    prints="skriptnd.execution",
    is_published=True,
)
NAC = Language(
    "nac",
    (".nac", ".nacs"),
    files="nac.files",
    shows="nac.describe",
    loads="nac.execution",
    saves="nac.execution",
    lowers="nac.execution",
    as_graph="nac.running",
    writing="nac.convert",
    is_published=True,
)
TENSOR = Language(
    "tensor",
    (".tensor", ".ir"),
    files="tensor.files",
    shows="tensor.files",
    loads="tensor.execution",
    saves="tensor.execution",
    lowers="tensor.stages",
    printing="tensor.stages",
    is_published=True,
)
KERNELS = Language(
    "kernels",
    saves="kernels.execution",
    lowers="kernels.execution",
    writing="kernels.execution",
    printing="kernels.stages",
)
"""A graph with its kernels: only handed around."""
NEM = Language(
    "nem",
    (".nem",),
    files="nem.files",
    shows="nem.files",
    loads="nem.execution",
    saves="nem.execution",
    lowers="nem.execution",
    is_published=True,
)
STREAM = Language(
    "stream",
    files="nem.files",
    shows="nem.files",
    loads="nem.execution",
    saves="nem.execution",
    lowers="nem.execution",
)
"""A plan that is bound to a device: STCB, by its ending or as JSON."""
PLANS = Language(
    "plans",
    saves="nem.lowering",
    lowers="nem.lowering",
    writing="nem.lowering",
    printing="nem.stages",
)
"""A graph with its plans: only handed around."""
DATA = Language("data", (".dat", ".safetensors"), files="data.files", shows="data.files")
"""Files that hold the numbers of a model."""
TORCH = Language("torch", (".pt2",), files="torch.files", shows="torch.files", loads="torch.execution")
"""Programs that torch.export saved."""
ONNX = Language(
    "onnx",
    (".onnx",),
    files="onnx.files",
    shows="onnx.describe",
    loads="onnx.files",
    saves="onnx.writing",
    writing="onnx.writing",
)
"""Models in the ONNX format."""

ROWS = (MODULE, NAC, NEM, SKRIPTND, TENSOR, DATA, TORCH, ONNX, FOLDER, UNIT, STANDARD, KERNELS, PLANS, STREAM)
REGISTRY = MappingProxyType({row.name: row for row in ROWS})
LANGUAGES = tuple(row.name for row in ROWS if row.is_published)
"""The five languages."""
ENDINGS = MappingProxyType({ending: row.name for row in ROWS for ending in row.endings})


def architectures() -> Architectures:
    """What only .module files and Hugging Face folders can do."""
    return cast(Architectures, _part("module.sources"))


def nac_graphs() -> NacGraphs:
    """NAC files as graphs."""
    return cast(NacGraphs, _part("nac.graphs"))


def nac_results() -> NacResults:
    """What NAC files give and keep."""
    return cast(NacResults, _part("nac.results"))


def nac_writing() -> NacWriting:
    """Graphs and files as other NAC files."""
    return cast(NacWriting, _part("nac.convert"))


def nac_plans() -> NacPlans:
    """The plans of NAC applications."""
    return cast(NacPlans, _part("nac.plans"))


def training_plans() -> TrainingPlans:
    """The plans of NAC applications that train."""
    return cast(TrainingPlans, _part("plans", "train"))


def plan_reports() -> PlanReports:
    """What is said of graphs on their way to plans."""
    return cast(PlanReports, _part("nem.reports"))


def plan_kernels() -> PlanKernels:
    """The kernels of `compute` tasks: a second language, which most programs never need."""
    return cast(PlanKernels, _part("nem.kernels"))


# --- the language of a path ------------------------------------------------------------------------------------

MODULE_MARKS = ("config.json", "config_schema.json", "model.safetensors", "architecture.module")
"""Files by which a folder is known as one of Hugging Face, or as a compiled unit of the Module DSL."""
UNIT_MARK = "config_schema.json"
"""The file by which a folder is known as a compiled unit."""
DOCUMENT = ".json"
"""A stream as text, or any other JSON: only what is in it says."""
STREAM_ENDINGS = (".stcb", DOCUMENT)


def fixed_inputs(model: Model) -> tuple[str, ...]:
    """Inputs of the source of a graph for whose contents it was made; those of other models are all open."""
    found: tuple[str, ...] = getattr(model, "fixed", ())
    return found


def language_of(path: Path, language: str | None) -> Language:
    """The language of a file: as the user says, else by its ending, else by what a folder holds."""
    if language is None and str(path) == "-":
        raise InputError("standard input has no ending", hint=f"say --language {' or '.join(LANGUAGES)}")
    name = language or ENDINGS.get(path.suffix.lower())
    if name is None and is_stream(path):
        return STREAM
    row = REGISTRY.get(name or "")
    if row is None and name is None and is_folder(path):
        row = _language_of_folder(path)
    if row is None or not (row.is_published or row in (DATA, TORCH, ONNX, FOLDER)):
        known = [ending for ending, name in ENDINGS.items() if name != DATA.name]
        hint = list_known(path.suffix.lower(), known, "known endings are")
        if not is_there(path):
            raise InputError(f"there is no file or folder '{path}'", hint=suggest_path(path) or hint)
        raise InputError(f"cannot tell the language of '{path}'", path=path, hint=hint)
    if row is MODULE and is_folder(path):
        return UNIT if is_there(path / UNIT_MARK) else FOLDER
    return row


def file_language(path: Path, language: str | None) -> Language:
    """The language that checks and shows a file: as `language_of`, but a JSON text may be anything."""
    if language is None and path.suffix.lower() == DOCUMENT:
        return DATA
    return language_of(path, language)


def subject_of(path: Path, language: str | None) -> str:
    """The kind of input that a path is, as the table of options tells them apart."""
    row = language_of(path, language)
    return "sknd" if row is SKRIPTND else row.name


def shown_language(name: str, language: str | None) -> Language:
    """The language of what `show` is asked for: a file, or a name of the libraries, of a target, of a device."""
    if _is_file(name, language):
        return file_language(Path(name), language)
    return SHOWN_NAMES[_kind_of_name(name)]


def shown_subject(name: str, language: str | None) -> str:
    """The kind of what `show` is asked for: an input, or a name that is no file."""
    if _is_file(name, language):
        return subject_of(Path(name), language)
    return _kind_of_name(name)


SHOWN_NAMES = MappingProxyType({"target": TENSOR, "standard": STANDARD, "library": SKRIPTND, "device": NEM})
"""What is known by a name alone, and what shows it."""


def _is_file(name: str, language: str | None) -> bool:
    path = Path(name)
    return bool(language) or is_there(path) or path.suffix.lower() in ENDINGS or is_stream(path)


def _kind_of_name(name: str) -> str:
    """What a word that is no file names: a device where nothing else is known by it."""
    if name in TARGETS:
        return "target"
    if is_standard(name):
        return "standard"
    return "library" if name.partition(".")[0] in standard_modules() else "device"


def _language_of_folder(path: Path) -> Language:
    """The language of a model folder, by the files in it; InputError where none of them is a model."""
    if any(is_there(path / item) for item in MODULE_MARKS):
        return MODULE
    if is_there(path / "main.sknd"):
        return SKRIPTND
    try:
        names = sorted(item.name for item in path.iterdir())
    except OSError as problem:
        raise InputError(f"cannot read '{shown(path)}': {cause_of(problem)}", path=shown(path)) from problem
    if any(name.endswith((".safetensors", ".module")) for name in names):
        return MODULE
    listed = ", ".join(f"'{printable(name, 80)}'" for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    what = f"holds no model, only {listed}{more}" if names else "is empty"
    hint = "a model folder holds main.sknd (SkriptND), or config.json and model.safetensors (Hugging Face)"
    raise InputError(f"the folder '{shown(path)}' {what}", path=shown(path), hint=hint)


def is_standard(name: str) -> bool:
    """Whether a word is a name of the standard library of the Module DSL, and not that of a file."""
    return name == "std" or name.startswith("std.")


def standard_modules() -> list[str]:
    """The modules of the shipped operator library, and the one of gradients, which are derived."""
    return sorted([*(path.stem for path in shipped("ops").glob("*.sknd")), "gradient"])


def is_stream(path: Path) -> bool:
    """Whether a file is a task-control stream, by its ending."""
    return path.suffix.lower() in STREAM_ENDINGS
