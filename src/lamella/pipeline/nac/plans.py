"""Plans of NAC files: the outside that a plan may reach, as far as somebody allows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lamella.backend.mep import PlanBudget, PlanResult, patch_constants, run_plan
from lamella.backend.mep import PlanTokenizer as PlanTokenizer
from lamella.backend.mep.state import UntrainedModel
from lamella.backend.tisa import load_tokenizer
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.paths import map_bytes_in, read_bytes_in, shown
from lamella.base.writer import write_pieces
from lamella.lang.nac import parse
from lamella.lang.nac.blocks import extract_block
from lamella.pipeline.arrays import read_array
from lamella.pipeline.languages import Console
from lamella.pipeline.nac.execution import save
from lamella.pipeline.nac.model import Model, check_model
from lamella.pipeline.nac.running import Executable, compile_file
from lamella.pipeline.options import Options

OWN = "self"
"""The path by which a plan names the model of its own file."""


@dataclass(slots=True)
class LoadedModel(UntrainedModel):
    """A model as a plan runs it: arrays in the order of its inputs, arrays in the order of its outputs."""

    model: Model
    options: Options
    run: Executable = field(init=False)
    _blocks: dict[tuple[int, int], Executable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.run = compile_file(self.model, self.options)

    def __call__(self, *inputs: Array) -> Sequence[Array]:
        """Run once."""
        return _call(self.run, inputs)

    def run_block(self, first: int, last: int, values: Sequence[Array]) -> Sequence[Array]:
        """Run some of the instructions, with the results from before as inputs."""
        key = (first, last)
        if key not in self._blocks:
            file = extract_block(self.model.file, first, last)
            self._blocks[key] = compile_file(replace(self.model, file=file), replace(self.options, shape={}))
        return _call(self._blocks[key], values)


def _call(run: Executable, values: Sequence[Array]) -> list[Array]:
    if len(values) != len(run.inputs):
        names = ", ".join(run.inputs) or "none"
        reason = f"it takes {len(run.inputs)} inputs ({names}), and {len(values)} are given"
        raise InputError(reason, hint="give one slot for each input of the model")
    found = run(**dict(zip(run.inputs, values, strict=True)))
    return list(found.values())


@dataclass(slots=True)
class FileHost:
    """The outside of a plan: its own file, and folders that were allowed."""

    model: Model
    options: Options
    console: Console
    folders: Mapping[str, Path]

    @property
    def own_names(self) -> Sequence[str]:
        """Paths that name the file of the plan itself."""
        return (self.model.path.name,)

    def load_model(self, path: str, /) -> LoadedModel:
        """A model by its path below the folder that was allowed."""
        return LoadedModel(self._model(path), self.options)

    def _model(self, path: str) -> Model:
        if path == OWN or path in self.own_names:
            return self.model
        mapped = map_bytes_in(self._folder("models"), path, self.options.limits)
        file, findings = parse(mapped.data, path, self.options.limits)
        found = Model(mapped.path, file, findings, mapped)
        wrong = errors(check_model(found))
        if wrong:
            raise LamellaError(wrong)
        return found

    def _folder(self, capability: str) -> Path:
        return self.folders.get(capability, Path())

    def tokenizer(self, path: str, /) -> PlanTokenizer:
        """The tokenizer that a file brings."""
        return load_tokenizer(self._model(path).file)

    def prompt(self, question: str, /) -> str:
        """The answer of a person."""
        return self.console.ask(question)

    def read_array(self, path: str, /) -> Array:
        """The array of a `.npy` file."""
        read_bytes_in(self._folder("read"), path, self.options.limits)  # no link leads out of the folder
        return read_array(self._folder("read") / path, self.options.limits)

    def read_image(self, path: str, height: int, width: int, /) -> Array:
        """Pictures need a library that reads them."""
        raise InputError("pictures cannot be read here", hint="give the picture as an array in a .npy file")

    def print_text(self, stream: str, text: str, /) -> None:
        """Print for a person."""
        self.console.echo(stream, text)

    def write_file(self, path: str, data: bytes, append: bool, /) -> None:
        """Write a file whole, or add to its end, which writes it whole again."""
        folder = self._folder("write")
        target = folder / path
        if any(parent.is_symlink() for parent in target.parents if parent not in folder.parents):
            raise InputError(f"a link leads to '{path}'", hint="write into a folder without links")
        old = read_bytes_in(folder, path, self.options.limits) if append and target.exists() else b""
        write_pieces(target, (old, data), through_links=False)


MakeHost = Callable[[Model, Options, Console, Mapping[str, Path]], FileHost]
"""Makes the outside of a plan."""


def patch(model: Model, values: Mapping[str, str]) -> Model:
    """The model with constants of its plan replaced."""
    return replace(model, file=patch_constants(model.file, values)) if values else model


def rewrite(model: Model) -> None:
    """Write a patched model in the place of its file, whole or not at all."""
    save(model, model.path)


def execute(
    model: Model,
    console: Console,
    options: Options,
    *,
    answers: Sequence[str] = (),
    allowed: Mapping[str, Path] | None = None,
    make_host: MakeHost | None = None,
) -> PlanResult:
    """Run the plan of a file; `allowed` are capabilities with the folder that each may reach.

    `make_host` makes an outside that can do more than this one, such as training.
    """
    if not model.file.orchestrator.bytecode:
        hint = (
            "`lamella convert FOLDER chat.nac` writes one for a Hugging Face folder with a tokenizer.json; another"
            " model takes its own: `lamella convert FILE chat.nac --tokenizer tokenizer.json --plan PLAN.nacs`"
            " (docs/languages/plans.md); without --plan and --answer the model itself is run"
        )
        raise InputError(f"'{shown(model.path)}' has no plan", path=shown(model.path), hint=hint)
    folders = dict(allowed or {})
    host = (make_host or FileHost)(model, options, console, folders)
    budget = PlanBudget.of(options.limits)
    return run_plan(
        model.file, host, answers=answers, grants=tuple(folders), budget=budget, seed=options.start_seed
    )
