"""A training from beginning to end: a model and data as options name them, steps, evaluations, and what is saved."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Unpack

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.base.card import Card, show_html, show_line
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import InputError
from lamella.base.paths import is_folder, shown
from lamella.base.writer import make_folder, require_room
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import members
from lamella.lang.skriptnd.rules.graphs import CHECK_FAILED
from lamella.pipeline.api_options import TrainOptions
from lamella.pipeline.given import options_of
from lamella.pipeline.options import Options
from lamella.pipeline.signatures import documented
from lamella.pipeline.skriptnd.specialise import with_extents
from lamella.train.adapters.files import write_adapter
from lamella.train.adapters.merge import merged
from lamella.train.adapters.model import find_adapters
from lamella.train.checkpoints import (
    KEPT,
    Checkpoint,
    checkpoint_file,
    checkpoint_folder,
    read_last,
    require_same,
)
from lamella.train.data.batches import (
    TARGETS,
    Batches,
    Dataset,
    RenamedTargets,
    VirtualTokens,
    require_batches,
)
from lamella.train.data.files import DataRequest, from_arrays, open_data
from lamella.train.gradients import trainable
from lamella.train.initial import with_initial
from lamella.train.loop import LoopSettings, StepReport, TrainingLoop
from lamella.train.memory import MemoryPlan, read_budget, within_budget
from lamella.train.ranks.launch import joined
from lamella.train.ranks.mesh import read_mesh
from lamella.train.ranks.pipeline import StageTrainer
from lamella.train.ranks.trainer import RankTrainer, World
from lamella.train.saving import require_new, require_save, save_trained
from lamella.train.schedules import Schedule, require_schedule
from lamella.train.settings import StepSettings
from lamella.train.sources import TrainableGraph
from lamella.train.trainer import Trainer

RATE = 3e-4
BATCH = 8
SEQUENCE = 128
SAMPLE = 1024
"""Numbers at each end of an array that tell it from another."""
BACKENDS = (None, "cpu", "cuda", "reference")
FULL, PRECISIONS = "f32", ("f32", "bf16")
"""What products of a step compute in where nobody says otherwise, and all that they may."""

Data = str | Path | Mapping[str, npt.ArrayLike] | npt.ArrayLike


class Fit:
    """A training that is ready to take steps."""

    def __init__(
        self, path: Path, options: Options, data: Data | None = None, world: World | None = None
    ) -> None:
        require_backend(options)
        self.world = world
        """The ranks that take the steps together, of which this process is one; None where it is alone."""
        self.path, self.options = path, options
        self.adapters = find_adapters(path, options)
        """The adapters that are trained; None where the weights themselves are."""
        if options.save is not None:
            self._require_save(options.save)
            require_room(options.save)
        self.source, self.drawn = self._trainable()
        """The weights that begin with random numbers, by the names of their variables, are `drawn`."""
        request = self._request()
        self.source = self._closed(request.sequence)
        self.batches = self._batches(data if data is not None else options.data, request, options.shuffle)
        evaluation = options.eval_data
        self.evaluation = (
            None if evaluation is None else self._batches(evaluation, request, False, is_evaluated=True)
        )
        self.plan: MemoryPlan | None = None
        """The memory of a step, where there is a budget for it."""
        self.trainer = self._trainer(request.sequence)
        self.trainer.enable_asserts(options.observe)
        self.settings = self._loop_settings()
        self.loop = TrainingLoop(self.trainer, self.batches, self.settings, self.evaluation)
        self.resumed = self._resume()
        """The step behind which this run goes on; 0 where it begins."""
        self._require_space()

    def _require_space(self) -> None:
        """OutputError where a disk has no room for what the run will write: the weights, and two checkpoints.

        Ranks would have to gather what they hold to tell how much that is.
        """
        options, folder, is_alone = self.options, self.settings.checkpoints, self.world is None
        if options.save is not None and is_alone:
            require_room(options.save, sum(item.nbytes for item in self.trainer.parameters.values()))
        if options.save_every and folder is not None:
            make_folder(folder)
            size = sum(item.nbytes for item in self.trainer.state.values()) if is_alone else 0
            require_room(checkpoint_file(folder, self.loop.done), size * KEPT)

    # --- what it is made of -------------------------------------------------------------------------------------

    def _trainable(self) -> tuple[TrainableGraph, tuple[str, ...]]:
        if self.adapters is not None:
            return self.adapters.trainable, self.adapters.drawn
        source = trainable(self.path, self.options)
        model, drawn = with_initial(source.model, self.options)
        return replace(source, model=model), drawn

    def _closed(self, length: int | None) -> TrainableGraph:
        """The model for sequences of one length, where ranks have slices of them: each knows its own then."""
        is_cut = any(
            item.strategy == "sequence" or item.exchange in ("reduce_scatter", "all_to_all")
            for item in self.source.marks.values()
        )
        extents = [item.shape[1] for item in self.ports if len(item.shape) > 1]
        names = {str(item) for item in extents if not isinstance(item, int)}
        if self.world is None or not is_cut or length is None or len(names) != 1:
            return self.source
        options = replace(self.options, shape={names.pop(): length})
        return replace(self.source, model=with_extents(self.source.model, options))

    def _within_budget(
        self, length: int | None, source: TrainableGraph, settings: StepSettings
    ) -> TrainableGraph:
        """What is trained within the budget that the options name; what has to be offloaded for it is."""
        if self.options.memory_budget is None:
            return source
        shares = 1 if self.world is None else self.world.mesh.shares
        sizes = (self.batches.size // settings.accumulation // shares, length)
        extents = {
            str(extent): size
            for item in self.ports
            for extent, size in zip(item.shape, sizes, strict=False)
            if size is not None and not isinstance(extent, int)
        }
        options = replace(self.options, shape={**extents, **self.options.shape})
        budget = read_budget(self.options.memory_budget)
        found, self.plan = within_budget(source, settings, options, budget)
        return found

    def _trainer(self, length: int | None) -> Trainer:
        settings, backend = step_settings(self.options), self.options.backend or "cpu"
        fit_memory = partial(self._within_budget, length)
        if self.world is None:
            self.source = fit_memory(self.source, settings)
            return Trainer(self.source, settings, backend, self.options)
        made = StageTrainer if self.world.mesh.pp > 1 else RankTrainer
        has_budget = self.options.memory_budget is not None
        return made(
            self.source, settings, backend, self.options, self.world, fit_memory if has_budget else None
        )

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.world is None or self.world.transport.rank == 0

    @property
    def ports(self) -> tuple[Tensor, ...]:
        """The inputs of the model."""
        other = {*self.source.seeds.values(), *self.source.targets, self._draws}
        if self.source.auxiliary is not None:
            other.add(self.source.auxiliary.seed)
        found = members(self.source.model.graph.inputs)
        return tuple(item for item in found if isinstance(item, Tensor) and item.name not in other)

    @property
    def _draws(self) -> str:
        """The input that says what dropout drops; empty where there is none."""
        return "" if self.adapters is None else self.adapters.adapted.draws

    def _request(self) -> DataRequest:
        """What the data are for."""
        seeds = self.source.seeds
        scored = (item for item in members(self.source.model.graph.outputs) if item.name in seeds)
        last = next((item.shape[-1] for item in scored if item.shape), None)
        length = self.options.sequence or _fixed(self.ports, 1) or SEQUENCE
        folder = self.path if is_folder(self.path) else None
        vocabulary = last if isinstance(last, int) else None
        return DataRequest(self.ports, length, vocabulary, folder, self.options.limits)

    def _batches(
        self, data: Data | None, request: DataRequest, shuffled: bool, is_evaluated: bool = False
    ) -> Batches:
        if data is None:
            raise InputError("there are no data to learn from", hint="say --data F")
        found = _dataset(data, request)
        if self.adapters is not None and self.adapters.adapted.virtual:
            tokens = frozenset(item.name for item in request.ports if not item.element.is_float)
            found = VirtualTokens(found, self.adapters.adapted.virtual, tokens)
        found = _named(found, self.source.targets)
        own = _fixed(self.ports, 0)
        if own is not None and self.world is not None and not is_evaluated:
            own *= self.world.mesh.shares
        size = self.options.batch or own or min(BATCH, max(1, found.size))
        if is_evaluated and own is None:
            size = min(size, max(1, found.size))
        batches = Batches(found, size, shuffled, self.options.start_seed, self._draws, is_evaluated)
        require_batches(batches)
        if not is_evaluated:
            self._require_parts(size)
        if own is not None and own != size:
            hint = (
                f"say --batch {own}, or let the model take another: its text may have an attribute for --set"
            )
            raise InputError(f"the model takes {own} examples at once, not {size}", hint=hint)
        return batches

    def _require_parts(self, size: int) -> None:
        """InputError for a batch that ranks and accumulation cannot cut into equal parts, before ranks begin."""
        ranks, parts = 1 if self.world is None else self.world.mesh.shares, self.options.accumulate
        if size % (ranks * parts):
            whose = f"{ranks} ranks with {parts} parts each" if ranks > 1 else f"--accumulate {parts}"
            hint = f"say --batch {-(-size // (ranks * parts)) * ranks * parts}"
            raise InputError(f"a batch of {size} has no equal parts for {whose}", hint=hint)

    def _loop_settings(self) -> LoopSettings:
        options = self.options
        steps = options.steps or self.batches.epoch
        peak = RATE if options.lr is None else options.lr
        lowest = min(options.min_lr, peak) if options.schedule == "constant" else options.min_lr
        schedule = Schedule(options.schedule, peak, steps, options.warmup, options.decay, lowest)
        require_schedule(schedule)
        folder = None if options.save is None else checkpoint_folder(options.save)
        return LoopSettings(
            steps,
            schedule,
            options.eval_every,
            options.save_every,
            folder,
            self.is_first,
            self._fingerprint(schedule),
        )

    def _fingerprint(self, schedule: Schedule) -> dict[str, object]:
        """What decides every number of a run; a checkpoint of another one is refused."""
        settings = step_settings(self.options)
        words = {name: getattr(settings, name) for name in settings.__slots__}
        decays = schedule.name != "constant"
        return {
            **{key: list(item) if isinstance(item, tuple) else item for key, item in words.items()},
            "model": self.source.model.graph.name,
            "parameters": self.parameter_count,
            "data": self.batches.data.describe(),
            "numbers of the data": _checksum(
                self.batches.batch(0), self.batches.batch(self.batches.epoch - 1)
            ),
            "frozen weights": _checksum(self.trainer.fixed),
            "batch": self.batches.size,
            "shuffle": self.batches.shuffled,
            "seed": self.options.start_seed,
            "rate": schedule.peak,
            "schedule": schedule.name,
            "warmup": schedule.warmup,
            "decay": schedule.decay,
            "lowest rate": schedule.lowest,
            "adapters": list(self.options.adapters),
            "base": self.options.base,
            "recipe": self.options.recipe,
            **({} if self.options.precision == FULL else {"precision": self.options.precision}),
            **({"steps": schedule.steps} if decays else {}),
        }

    @property
    def parameter_count(self) -> int:
        """How many numbers are trained."""
        shapes = self.weight_shapes()
        return sum(math.prod(shapes[name]) for name in self.source.gradients)

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """The extents of all weights, by the names of their variables."""
        weights = set(self.source.policies) or {item.name for item in self.source.model.graph.variables}
        return {
            item.name: tuple(size for size in item.shape if isinstance(size, int))
            for item in self.source.model.graph.variables
            if item.name in weights
        }

    def _resume(self) -> int:
        folder = self.settings.checkpoints
        if not self.options.resume or folder is None:
            return 0
        found: Checkpoint | None = read_last(folder, self.options.limits)
        if found is None:
            return 0
        require_same(found.fingerprint, self.settings.fingerprint or {}, (), folder)
        if found.step > self.settings.steps:
            hint = f"say --steps {found.step} or more"
            raise InputError(f"'{shown(folder)}' is {found.step} steps on already", hint=hint)
        self.loop.resume(found)
        return found.step

    # --- what it does -------------------------------------------------------------------------------------------

    def run(self) -> Iterator[StepReport]:
        """The steps, each taken when it is asked for; then one evaluation where none was asked for in between.

        Ranks gather what they have trained in the end, all together: only one of them saves it.
        """
        try:
            yield from self.loop.run()
        except LamellaError as problem:
            if all(item.code != CHECK_FAILED.code for item in problem.findings):
                raise
            raise LamellaError([self._with_repair(item) for item in problem.findings]) from None
        if self.evaluation is not None and not self.options.eval_every:
            self.loop.evaluate()
        if isinstance(self.trainer, RankTrainer):
            self.trainer.gather()

    def _with_repair(self, finding: Diagnostic) -> Diagnostic:
        """A finding of a step; where the model asserts something about extents, those that options tell."""
        if finding.code != CHECK_FAILED.code or finding.hint:
            return finding
        said = f"batches have {self.batches.size} examples with {self.batches.data.tokens} targets each"
        return replace(finding, hint=f"{said}: say another --sequence or --batch")

    @property
    def trained(self) -> dict[str, Array]:
        """The trained parameters, by the names of their variables."""
        paths = {self.source.policy(name).path: name for name in self.source.gradients}
        return {paths[path]: array for path, array in self.trainer.parameters.items()}

    def every(self) -> Mapping[str, Array]:
        """The numbers of all weights as they were before the first step."""
        frozen = self.source.model if self.adapters is None else self.adapters.frozen
        data = frozen.data or {}
        return {name: data[name] for name in self.weight_shapes() if name in data}

    def save(self, target: Path) -> tuple[tuple[Path, ...], tuple[Diagnostic, ...]]:
        """Write what was trained; gives the files written."""
        self._require_save(target)
        if self.adapters is None:
            return save_trained(self.path, target, self.trained, self.every, self.options)
        if not self.options.merge:
            return write_adapter(target, self.adapters.adapted, self.trained, str(self.path)), ()
        return save_trained(self.path, target, merged(self.adapters, self.trained), self.every, self.options)

    def _require_save(self, target: Path) -> None:
        """InputError for a place where nothing can be saved; adapters are a folder."""
        if self.adapters is None or self.options.merge:
            require_save(self.path, target, self.options)
            return
        if target.suffix:
            hint = "name a folder, or say --merge"
            raise InputError(f"adapters are a folder, and '{target.name}' is the name of a file", hint=hint)
        require_new(target)


def _named(data: Dataset, targets: tuple[str, ...]) -> Dataset:
    """The data whose targets are called as the model calls them."""
    if targets == (TARGETS,):
        return data
    if len(targets) != 1:
        raise InputError(f"the model compares {len(targets)} outputs with targets", hint="data hold one")
    return RenamedTargets(data, targets[0])


def _checksum(*groups: Mapping[str, Array]) -> str:
    """A checksum of the beginnings and ends of arrays, which tells others of the same shapes."""
    found = 0
    for name, array in ((name, group[name]) for group in groups for name in sorted(group)):
        flat = array.reshape(-1)
        ends = np.concatenate([flat[:SAMPLE], flat[-SAMPLE:]]).tobytes()
        found = zlib.crc32(ends, zlib.crc32(f"{name}{array.dtype}{array.shape}".encode(), found))
    return f"{found:08x}"


def _dataset(data: Data, request: DataRequest) -> Dataset:
    if isinstance(data, str | Path):
        return open_data(str(data), request)
    if isinstance(data, Mapping):
        return from_arrays({name: np.asarray(item) for name, item in data.items()}, request, "the arrays")
    return from_arrays({"tokens": np.asarray(data)}, request, "the array")


def _fixed(ports: tuple[Tensor, ...], axis: int) -> int | None:
    """The extent that inputs have along an axis, where a graph leaves no choice."""
    found = [item.shape[axis] for item in ports if len(item.shape) > axis]
    return next((item for item in found if isinstance(item, int)), None)


def require_backend(options: Options) -> None:
    """InputError for a backend that takes no steps of training, and for a precision in which none are taken."""
    if options.backend not in BACKENDS:
        raise InputError(
            f"backend '{options.backend}' takes no steps of training", hint="there are: cpu, cuda, reference"
        )
    if options.precision not in PRECISIONS:
        raise InputError(
            f"steps of training are not taken in '{options.precision}'",
            hint=f"there are: {', '.join(PRECISIONS)}; --base int8 keeps frozen weights in 8 bits",
        )


def step_settings(options: Options) -> StepSettings:
    """How a step changes parameters, as options say."""
    return StepSettings(
        optimizer=options.optimizer,
        weight_decay=options.weight_decay,
        betas=(options.beta1, options.beta2),
        momentum=options.momentum,
        clip=options.clip,
        accumulation=options.accumulate,
        dtype=options.dtype or "f32",
    )


class Trained:
    """What a training gave."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self.losses: list[float] = fit.loop.losses
        """The loss of each step, before its update."""
        self.evaluations: list[tuple[int, float]] = fit.loop.evaluations
        """Pairs of a step and the loss of the data that were not learnt from."""
        self.trainer: Trainer = fit.trainer
        """What took the steps, for more of them."""

    __repr__ = show_line
    _repr_html_ = show_html

    def _card(self) -> Card:
        """What was trained, and how the loss went."""
        losses = f"loss {self.losses[0]:.5g} → {self.losses[-1]:.5g}" if self.losses else "no step"
        count = sum(item.size for item in self.parameters.values())
        facts = (("steps", f"{len(self.losses):,}"), ("parameters", f"{count:,}"), ("losses", losses))
        return Card("trained", self._fit.path.name, facts)

    @property
    def parameters(self) -> Mapping[str, Array]:
        """The trained parameters by path."""
        return self.trainer.parameters

    def save(self, path: str | Path) -> tuple[Path, ...]:
        """Write weights (.safetensors), the model with them, or a Hugging Face folder; gives the files written."""
        return self._fit.save(Path(path))[0]


@documented(TrainOptions)
def train(
    path: str | Path,
    data: Data,
    /,
    *,
    watch: Callable[[StepReport], None] | None = None,
    **options: Unpack[TrainOptions],
) -> Trained:
    """Train the model of a path on data: tokens along one axis, arrays by name with targets, or the path of data.

    Options are those of the command: `steps=`, `batch=`, `sequence=`, `optimizer=`, `lr=`, `schedule=`, `clip=`,
    `seed=`, `save=` and others, and those of loading. `watch` is given each step as it is taken.
    """
    words: Mapping[str, object] = {**options, "data": str(data)} if isinstance(data, str | Path) else options
    chosen = options_of(words, by_command=True)
    with ranked(Path(path), chosen, data) as world:
        fit = Fit(Path(path), chosen, data, world)
        for report in fit.run():
            if watch is not None:
                watch(report)
        if fit.options.save is not None and fit.is_first:
            fit.save(fit.options.save)
        return Trained(fit)


@contextmanager
def ranked(path: Path, options: Options, data: Data | None = None) -> Iterator[World | None]:
    """The ranks that options ask for, all of which take the same steps; None where this process is alone."""
    if options.ranks is None:
        yield None
        return
    mesh = read_mesh(options.ranks)
    with joined(mesh, partial(follow, path, options, data), options.backend) as world:
        yield world


def follow(path: Path, options: Options, data: Data | None, world: World) -> None:
    """Take the steps of a training as a rank that neither prints nor writes."""
    for _ in Fit(path, options, data, world).run():
        pass
