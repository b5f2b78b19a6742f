"""The executor of graphs, which every backend that runs a graph node by node shares: inputs, states, live tensors.

What runs single operations is an `OperatorRunner`: formulas with NumPy (the reference), or kernels with the
formulas as their fallback (cpu, interpreter).
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import prod
from operator import is_
from typing import NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from lamella.backend.drawing import Drawn, name_inputs, types_of
from lamella.backend.executor.again import RepeatedCall
from lamella.backend.executor.batches import Batch, EndRun, Flight, map_batches
from lamella.backend.executor.extents import Extents, require_checks
from lamella.backend.executor.findings import findings_at
from lamella.backend.executor.inputs import (
    GraphInputs,
    as_array,
    draw_variable,
    find_picks,
    fit,
    generator,
    list_parts,
    reading,
    smallest,
)
from lamella.backend.executor.profile import LaunchProfile
from lamella.backend.executor.results import (
    DeviceSide,
    Out,
    OutputTargets,
    RunResult,
    SpareStates,
    Upload,
    place_outputs,
)
from lamella.backend.executor.run import ExecutionContext, GraphRun, OperatorRunner, names_of, tell_times
from lamella.backend.executor.segments import EndSegment, ListMachine, Segment
from lamella.backend.formula.storage import Storage, TensorValue, known_shape
from lamella.backend.progress import Progress, clock_of, no_progress
from lamella.base import arrays
from lamella.base.arrays import Array, DType, uniform_value
from lamella.base.background import Background
from lamella.base.card import Card, show_html, show_line
from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Extent
from lamella.base.errors import Found, InputError, Malformed
from lamella.base.limits import DEFAULT, Limits
from lamella.base.mapping import FileMemory, check_maps, copy_to_file, map_of
from lamella.base.placement import OperationPlacement
from lamella.base.source import NOWHERE, Span
from lamella.graph.model import Model
from lamella.graph.nodes import Operation, Pack, Tensor
from lamella.kernels.launches import LaunchTime
from lamella.lang.skriptnd.rules.data import WRONG_SHAPE, WRONG_TYPE
from lamella.lang.skriptnd.rules.graphs import RANDOM_WEIGHTS
from lamella.ops.fault import Fault
from lamella.ops.formula import Contraction
from lamella.ops.instance import Instance
from lamella.ops.library import Library

PRECISIONS = ("f32", "f64")


class MakeRunner(Protocol):
    """What makes the part that runs single operations."""

    def __call__(self, library: Library, storage: Storage, limits: Limits) -> OperatorRunner:
        """The runner of a library's operations."""


class _WholeRun(NamedTuple):
    """A run of a graph that is one segment."""

    segment: Segment
    given: Mapping[str, Array]
    wanted: Mapping[str, Array]
    """Arrays that launches are to write."""
    in_place: Mapping[str, str]

    def run(self, times: list[LaunchTime] | None) -> dict[str, Array] | None:
        """Run it."""
        return self.segment.run(self.given, self.wanted, times)

    def begin(self) -> EndSegment:
        """Begin it."""
        return self.segment.begin(self.given, self.wanted)


class GraphExecutable:
    """Runs a graph node by node; `make_runner` makes what runs single operations.

    Its variables keep their values from call to call.
    """

    def __init__(
        self,
        model: Model,
        make_runner: MakeRunner,
        seed: int = 0,
        dtype: str = "f32",
        quantized: bool = False,
        limits: Limits = DEFAULT,
    ) -> None:
        if seed < 0:
            raise InputError(f"the seed is {seed}; seeds start at 0")
        if dtype not in PRECISIONS:
            known = ", ".join(PRECISIONS)
            raise InputError(f"'{dtype[:40]}' is no precision to run in", hint=f"precisions are: {known}")
        self.model = model
        self.findings: list[Diagnostic] = []
        """What the last call found: that weights are random where the model has none, or rounded."""
        self.progress: Progress = no_progress
        """Wraps the nodes of a call, for a progress bar."""
        self.draws = True
        """Whether inputs that a call does not give are random; where not, they are missing."""
        self.drawn = Drawn()
        """What the last call drew."""
        self._state: dict[str, Array] = {}
        self._settle: Callable[[], None] = _nothing
        """Brings home what calls have left of variables elsewhere."""
        self._filling = Background()
        """Draws what random variables begin with, while a call is compiled."""
        self._maps: list[mmap.mmap] = []
        """The files whose pages variables are."""
        self._seed = seed
        self._busy = threading.RLock()
        self._spare = SpareStates()
        self._device: DeviceSide | None = None
        """What knows arrays of a device, where launches run on one."""
        self._flight: Flight | None = None
        """A run that has begun, and that nobody has waited for."""
        self._is_whole = True
        """Whether the last run was one segment; the host computes in others."""
        graph = model.graph
        self._tested: tuple[Mapping[str, Array], Sequence[Tensor]] | None = None
        """Variables that no call updates, as they were found to be what their graph declares, and all others."""
        self._checked: dict[str, int] | None = None
        """Extents with which all checks held."""
        self._dtypes: dict[str, DType] = {}
        """The types that variables have, as far as somebody asked."""
        self._last: RepeatedCall | None = None
        """The last call, where one like it needs no more than its segment."""
        self._updated = {item.variable.name for item in graph.updates}
        self._needed = frozenset(names_of([*graph.outputs, *(item.value for item in graph.updates)]))
        storage = Storage(dtype == "f64", limits.max_total_bytes)
        runner = make_runner(model.library, storage, limits)
        self._context = ExecutionContext(storage, limits, quantized, runner)
        self._inputs = GraphInputs(model.graph, storage, seed, partial(_declaration, model))
        self.reset()

    __repr__ = show_line
    _repr_html_ = show_html

    def _card(self) -> Card:
        """The card of the graph as it runs."""
        return replace(self.model._card(), kind="executable graph")

    @property
    def calls(self) -> dict[object, Callable[[Array], Array]]:
        """What stands outside and changes tensors while a call runs, by the numbers of `misc.call`."""
        return self._context.calls

    @property
    def state(self) -> dict[str, Array]:
        """The variables by name, as they are now; after a call, who wants their values asks for them anew."""
        with self._busy:
            self._land()
            self._filling.wait()
            self._settle()
            return self._state

    @state.setter
    def state(self, values: dict[str, Array]) -> None:
        with self._busy:
            self._land()
            self._filling.wait()
            self._settle()
            self._state = values

    def restart(self, values: Mapping[str, Array]) -> None:
        """Give variables other values; what calls have made of them is dropped, wherever it lies."""
        with self._busy:
            self._land()
            self._filling.wait()
            for name, array in values.items():
                self._spare.exchange(self._state, name, array)

    def take_arrays(self, device: DeviceSide) -> None:
        """Let calls be given arrays of a device, too, and give such."""
        self._device = device
        self._inputs = replace(self._inputs, adopt=device.adopt)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return tuple(item.name for item in list_parts(self.model.graph.inputs))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return tuple(item.name for item in list_parts(self.model.graph.outputs))

    @property
    def placement(self) -> list[OperationPlacement]:
        """Where each operation ran in the last call; nothing of what has no kernels, or none yet."""
        return self._context.runner.placement()

    def reset(self) -> None:
        """Give the variables the values they started with."""
        with self._busy:
            self._land()
            self._reset()

    def _reset(self) -> None:
        self._filling.wait()
        self._settle()
        self._refuse_large_draws()
        for tensor in self.model.graph.variables:
            with findings_at(tensor.name, tensor.origin, _declaration(self.model, tensor.name)):
                array = self._start(tensor)
                if tensor.name in self.model.streams and map_of(array) is None:
                    self._filling.wait()
                    self._spare.replace(self._state, tensor.name, copy_to_file(array))
                else:
                    self._state[tensor.name] = array
        maps = (map_of(array) for array in self._state.values())
        self._maps = [item for item in maps if item is not None and not isinstance(item, FileMemory)]
        self._maps = list({id(item): item for item in self._maps}.values())

    def __call__(self, /, *arrays: npt.ArrayLike, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once, inputs in order or by name; what is not given is drawn where that is wanted, else missing."""
        return self.run(name_inputs(self.inputs, arrays, inputs) if arrays else inputs)

    def run(self, inputs: Mapping[str, npt.ArrayLike], out: Out | None = None) -> dict[str, Array]:
        """Run once; outputs for which `out` has an array are written there, the others are new arrays.

        Arrays of other libraries are taken by DLPack or `__array_interface__`: results are then views of their memory.
        On a GPU arrays of the device are taken, too, and with `out="device"` all outputs stay there, each a
        `DeviceArray` with memory of its own. Calls from several threads run one after the other.
        """
        with self._busy:
            self._land()
            if self._last is not None and out is None and self.progress is no_progress:
                check_maps(self._maps)
                found = self._last.run(inputs, self._state)
                if found is not None:
                    self.findings, self.drawn = [], self._last.drawn
                    return found
            return self._run(inputs, {} if out is None else out)

    def map(self, batches: Iterable[Batch], out: str | None = None) -> Iterator[dict[str, Array]]:
        """The outputs for each of some batches, in their order: the numbers of one `run` after the other.

        On a GPU the next batch is asked for, and copied there, while one runs, and outputs come home while the next one
        runs, which begins before they are handed out unless it changes states. With `out="device"` they stay there.
        """
        return map_batches(self, batches, out, self._device, not self._updated)

    def feed_back(self, output: str, following: str, count: int) -> Array | None:
        """The likeliest number of an output of the last call, and of calls like it that are given the one before.

        So many numbers; the last one was given to no call. None where no device does that: who calls has to choose.
        """
        return None

    def profile(self, inputs: Mapping[str, npt.ArrayLike]) -> list[LaunchTime]:
        """Run once, and tell the seconds of each launch, and of each operation that launches nothing."""
        with self._busy:
            self._land()
            before, self.progress = self.progress, LaunchProfile()
            try:
                self._run(inputs, {})
                return self.progress.times
            finally:
                self.progress = before

    # --- runs that are ahead of who looks at them --------------------------------------------------------------

    def upload(self, batch: Batch) -> Upload | None:
        """Begin to copy all inputs to the device; None where some of them cannot be, or the host computes."""
        device = self._device
        if device is None or not self._is_whole or not isinstance(batch, Mapping):
            return None
        if any(map(device.has, batch.values())):
            return None
        arrays = self._inputs.fit_all(batch)
        return None if arrays is None else device.upload(arrays)

    def begin_run(self, batch: Batch, upload: Upload | None, out: Out) -> Flight:
        """Begin a run, behind the one that began before; what goes wrong is raised in its turn."""
        with self._busy:
            self._land()
            flight = Flight(upload)
            with flight.later:
                if upload is not None:
                    upload.enter()
                given = batch if upload is None else cast(Batch, upload.arrays)
                flight.end = self._begin(given, out, is_ahead=clock_of(self.progress) is None)
                self._flight = flight
            return flight

    def end_run(self, flight: Flight) -> None:
        """Wait for a run that has begun, where nobody has waited for it yet."""
        with self._busy:
            if flight is self._flight:
                self._land()

    def _land(self) -> None:
        """Wait for a run that has begun; who began it is told its outputs later."""
        flight, self._flight = self._flight, None
        if flight is not None and flight.end is not None:
            end, flight.end = flight.end, None
            with flight.later:
                flight.outputs = end()
            flight.findings, flight.drawn = self.findings, self.drawn

    def _run(self, inputs: Mapping[str, npt.ArrayLike], out: Out) -> dict[str, Array]:
        return self._begin(inputs, out)()

    def _begin(self, inputs: Mapping[str, npt.ArrayLike], out: Out, is_ahead: bool = False) -> EndRun:
        """Begin a run, as far as a device does it by itself where it is to be ahead: what ends it."""
        if not isinstance(inputs, Mapping):
            raise InputError(f"inputs are given by their names, not as '{type(inputs).__name__[:80]}'")
        targets = place_outputs(self.outputs, out, self._device)
        extents, graph = Extents(), self.model.graph
        check_maps(self._maps)
        self.findings = [*self.model.findings, *self.find_random()]
        taken = self._inputs.take(inputs, extents, lambda name: self._picks.get(name, ()), self.draws)
        drawn = types_of({name: item for name, item in taken.items() if name not in inputs})
        self.drawn = Drawn(drawn, len(self._random), len(graph.variables))
        self._context.runner.begin(extents)
        if extents != self._checked:
            require_checks(graph.checks, extents)
            self._checked = dict(extents)
        self._last = None
        self._filling.wait()
        told, whole = (self.findings, self.drawn), self._find_whole(taken, targets)
        self._is_whole = whole is not None
        begun = [] if whole is None else [(whole, whole.begin() if is_ahead else None)]
        del whole  # nobody must hold states when they get their next values

        def end() -> dict[str, Array]:
            self.findings, self.drawn = told
            found = self._end_whole(*begun.pop(), targets) if begun else None
            found = found or self._run_nodes(taken, extents)
            outputs = self._deliver(found.outputs, targets)
            # All updates at once, from what the run computed.
            states = dict(found.states)
            del found
            for name in list(states):
                self._spare.replace(self._state, name, states.pop(name))
            return outputs

        return end

    def _deliver(self, found: Mapping[str, Array], targets: OutputTargets) -> dict[str, Array]:
        """The outputs where they are wanted."""
        dtype = self._context.storage.dtype
        types = {item.name: dtype(item.element) for item in list_parts(self.model.graph.outputs)}
        return {name: targets.deliver(name, array, types[name]) for name, array in found.items()}

    def _run_nodes(self, taken: Mapping[str, TensorValue], extents: Extents) -> RunResult:
        """Run node by node, or segment by segment."""
        graph = self.model.graph
        self._settle()
        run = GraphRun(self._context, extents, np.random.default_rng(self._seed))
        self._enter(run, taken)
        require_checks(graph.checks, run.extents)
        run.run(graph.nodes, self.inputs, self._needed, self.progress)
        require_checks(graph.checks, run.extents)
        outputs = {item.name: _leave(run, item) for item in list_parts(graph.outputs)}
        states = {item.variable.name: np.array(run.array(item.value)) for item in graph.updates}
        return RunResult(outputs, states)

    def _find_whole(self, taken: Mapping[str, TensorValue], targets: OutputTargets) -> _WholeRun | None:
        """The run of a graph that is one segment; None where it is not."""
        graph = self.model.graph
        steps = self._context.runner.cut(graph.nodes, self._needed)
        if len(steps) != 1 or not isinstance(steps[0], Segment) or self._context.quantized:
            return None
        segment = steps[0]
        in_place = segment.in_place
        if not self._needed <= segment.outputs.keys() | set(in_place.values()):
            return None
        foreign = self._spare.list_foreign(self._state, in_place)
        for tensor in graph.variables if foreign else ():
            if tensor.name in foreign:
                self._spare.replace(self._state, tensor.name, self._own_copy(tensor, segment.machine))
        given = {name: item for name, item in taken.items() if isinstance(item, np.ndarray)}
        given |= self._variables()
        updates = [item for item in graph.updates if item.variable.name not in in_place]
        wanted = targets.take(segment, [*given.values()], {item.value.name for item in updates})
        for item in updates:
            spare = None if item.value.name in self.outputs else self._spare.take(item.variable.name)
            if spare is not None:
                wanted[item.value.name] = spare
        return _WholeRun(segment, given, wanted, in_place)

    def _end_whole(
        self, whole: _WholeRun, end: EndSegment | None, targets: OutputTargets
    ) -> RunResult | None:
        """Run a graph that is one segment, or wait for it; None where the formulas must say what is wrong."""
        found: dict[str, Array] | None = None
        times: list[LaunchTime] | None = None if clock_of(self.progress) is None else []
        for _ in self.progress((whole.segment,), 1):
            found = whole.run(times) if end is None else end()
            tell_times(self.progress, times)
        if times is not None and self._device is not None:
            self.findings = [*self.findings, *self._device.findings()]
        if found is None:
            return None
        if not (self.findings or self.drawn.inputs or self.model.graph.updates or targets.given):
            self._remember(whole.segment, whole.given)
        return self._split(found, whole.in_place, targets)

    def _own_copy(self, tensor: Tensor, machine: ListMachine) -> Array:
        """A variable, as it is now, in memory that launches may write."""
        array = self._entered(tensor)
        if tensor.name in self.model.streams:
            self._settle()
            return copy_to_file(array)
        return machine.copy(array, self._spare.take(tensor.name))

    def _remember(self, segment: Segment, given: Mapping[str, Array]) -> None:
        """Remember a call that needed nothing but its segment, was given everything and had nothing to say."""
        parts, tested = list_parts(self.model.graph.inputs), self._tested
        if tested is None or tested[1] or not all(isinstance(part, Tensor) for part in parts):
            return
        types = {part.name: (given[part.name].dtype, given[part.name].shape) for part in parts}
        self._last = RepeatedCall(segment, types, tested[0], self.outputs, self.drawn)

    def _split(
        self, found: Mapping[str, Array], in_place: Collection[str], targets: OutputTargets
    ) -> RunResult:
        """What a segment gave, as outputs and states that share no memory."""
        outputs = {
            name: found[name] if name in targets.lent else arrays.to_exchange(found[name])
            for name in self.outputs
        }
        states, given = {}, set(self.outputs)
        for item in self.model.graph.updates:
            name = item.value.name
            if item.variable.name in in_place:
                continue
            states[item.variable.name] = np.array(found[name]) if name in given else found[name]
            given.add(name)
        return RunResult(outputs, states)

    def draw_inputs(self) -> dict[str, Array]:
        """The inputs of a call that gives none, in order, as arrays that many calls can be given."""
        taken = self._inputs.take({}, Extents(), lambda name: self._picks.get(name, ()))
        # the items of a pack have one shape
        whole = {name: np.stack(item) if isinstance(item, tuple) else item for name, item in taken.items()}
        found = {name: arrays.to_exchange(item) for name, item in whole.items() if item is not None}
        # They are drawn in another order: what indexes others comes behind them.
        return {name: found[name] for name in self.inputs if name in found}

    def index_ends(self) -> dict[str, int]:
        """For each input of integers the number below which random ones are drawn: rows that the model picks."""
        extents = Extents()
        parts = [item for item in list_parts(self.model.graph.inputs) if item.element.is_integer]
        return {item.name: smallest(self._picks.get(item.name, ()), extents) for item in parts}

    def _enter(self, run: GraphRun, taken: Mapping[str, TensorValue]) -> None:
        graph = self.model.graph
        for part in list_parts(graph.inputs):
            with findings_at(part.name, part.origin, _declaration(self.model, part.name)):
                run.put(part, taken[part.name])
        for tensor in graph.variables:
            with findings_at(tensor.name, tensor.origin, _declaration(self.model, tensor.name)):
                array = self._kept(tensor)
                run.put(tensor, array if uniform_value(array) is None else np.array(array))
        for constant in graph.constants:
            with findings_at(constant.tensor.name, constant.tensor.origin):
                run.put_constant(constant)

    def _variables(self) -> dict[str, Array]:
        """The variables as they are now, tested against their declarations; arrays that were tested are not again."""
        if self._tested is not None:
            same, changing = self._tested
            if all(map(is_, map(self._state.get, same), same.values())):
                return {**same, **{item.name: self._entered(item) for item in changing}}
        variables = self.model.graph.variables
        found = {item.name: self._entered(item) for item in variables}
        tested = {
            name: array
            for name, array in found.items()
            if array is self._state[name] and name not in self._updated
        }
        self._tested = tested, tuple(item for item in variables if item.name not in tested)
        return found

    def _entered(self, tensor: Tensor) -> Array:
        """A variable as it is now, tested against its declaration."""
        found, dtype = self._state.get(tensor.name), self._dtypes.get(tensor.name)
        if dtype is None:
            dtype = self._dtypes[tensor.name] = self._context.storage.dtype(tensor.element)
        if isinstance(found, np.ndarray) and found.dtype == dtype and found.shape == tensor.shape:
            return found
        with findings_at(tensor.name, tensor.origin, _declaration(self.model, tensor.name)):
            array = self._kept(tensor)
            Extents().bind(tensor.name, tensor.shape, array.shape)
        return array

    def _kept(self, tensor: Tensor) -> Array:
        """A variable as it is now; `state` is open to everybody, so what stands there is tested."""
        found = self._state.get(tensor.name)
        if isinstance(found, np.ndarray) and found.dtype == self._context.storage.dtype(tensor.element):
            return found
        if found is None:
            raise InputError(
                f"'state' has nothing for variable '{tensor.name}'", hint="reset() gives it its start"
            )
        try:
            return fit(as_array(found), tensor.element, self._context.storage)
        except Malformed as problem:
            kind = f"{tensor.element}{list(tensor.shape)}"
            raise Fault(WRONG_TYPE, name=tensor.name, type=kind, found=str(problem)) from None

    def _refuse_large_draws(self) -> None:
        """Random weights, which nobody can want in such numbers, are not drawn beyond what memory may hold."""
        random, limit = set(self._random), self._context.limits.max_total_bytes
        if not random:
            return
        needed = sum(
            self._context.storage.dtype(item.element).itemsize * prod(known_shape(item.shape, {}))
            for item in self.model.graph.variables
            if item.name in random
        )
        if needed > limit:
            count = f"the {len(random)} weights of '{self.model.graph.name}' that are to be random"
            raise InputError(
                f"{count} take {needed:,} bytes of memory; the limit max_total_bytes is {limit:,}",
                hint="give them with --weights, choose a smaller --preset, or raise --limit max_total_bytes=N",
            )

    def _start(self, tensor: Tensor) -> Array:
        storage, name = self._context.storage, tensor.name
        shape = known_shape(tensor.shape, {})
        given = None if self.model.data is None else self.model.data.get(name)
        if given is None:
            return draw_variable(generator(self._seed, name), tensor, shape, storage, self._filling)
        kind = f"{tensor.element}{list(shape)}"
        if tuple(given.shape) != shape:
            raise Fault(WRONG_SHAPE, name=name, type=kind, found=list(given.shape))
        try:
            return fit(given, tensor.element, storage)
        except Malformed as problem:
            raise Fault(WRONG_TYPE, name=name, type=kind, found=str(problem)) from None

    def find_random(self) -> list[Diagnostic]:
        """That variables have random values, where the model has none for them."""
        graph, names = self.model.graph, self._random
        if not names:
            return []
        found = self.model.library.find(f"main.{graph.name}")
        span = NOWHERE if found is None else found.operator.span
        total = len(graph.variables)
        count = (
            f"{total} variable{'s' * (total > 1)}"
            if len(names) == total
            else f"{len(names)} of {total} variables"
        )
        return [RANDOM_WEIGHTS.at(span, name=graph.name, count=count, seed=self._seed)]

    @cached_property
    def _random(self) -> list[str]:
        """The variables that the model has no numbers for."""
        data = self.model.data or {}
        return [item.name for item in self.model.graph.variables if item.name not in data]

    @cached_property
    def _picks(self) -> Mapping[str, Sequence[Extent]]:
        return find_picks(self.model.graph, self._bound_operations())

    def _bound_operations(self) -> Iterator[tuple[Sequence[str], Instance, Sequence[Contraction]]]:
        model = self.model
        for operation in reading(model.library, model.graph, model.graph.operations()):
            names = [item.name if isinstance(item, Tensor) else "" for item in operation.inputs]
            prepared = self._prepare(operation)
            if prepared is not None:
                yield names, *prepared

    def _prepare(self, operation: Operation) -> tuple[Instance, Sequence[Contraction]] | None:
        try:
            return self._context.runner.formulas_of(operation)
        except (Fault, Found):
            return None


def _nothing() -> None:
    """All variables are at home."""


def _leave(run: GraphRun, part: Tensor | Pack) -> Array:
    """An output as outsiders read it; the tensors of a pack of unknown length are stacked."""
    value = run.held[part.name]
    if isinstance(value, tuple):
        if not value:
            shape = known_shape(part.shape, run.extents)
            return arrays.to_exchange(
                run.context.storage.allocate((0, *shape), arrays.numpy_dtype(part.element))
            )
        value = np.stack(value)
    return np.array(arrays.to_exchange(value))


def _declaration(model: Model, name: str) -> Span:
    """Where the text declares an input or a variable of the graph."""
    found = model.library.find(f"main.{model.graph.name}")
    if found is not None:
        for section in ("input", "variable"):
            for parameter in found.operator.parameters(section):
                if parameter.name == name.partition(":")[0]:
                    return parameter.span
    return NOWHERE
