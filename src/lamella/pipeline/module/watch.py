"""Models whose tensors others see while they run: hooks that observe or change them, probes that keep numbers.

Without a hook and with probes off the model is compiled as it is: what nobody looks at costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Unpack, cast

import numpy as np
import numpy.typing as npt

from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import InputError
from lamella.base.suggest import did_you_mean
from lamella.graph.insert_calls import insert_calls
from lamella.graph.model import Model, Place
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import copy_of, members, results_of
from lamella.pipeline.api_options import WatchOptions
from lamella.pipeline.backends import make_executable
from lamella.pipeline.given import options_of
from lamella.pipeline.languages import Executable
from lamella.pipeline.module.execution import build_compiled, settings_of
from lamella.pipeline.module.folders import read_source
from lamella.pipeline.module.observe import GRADIENT, TRACE, find_places, trace_line
from lamella.pipeline.signatures import documented
from lamella.pipeline.skriptnd.specialise import with_extents

OBSERVE, MODIFY, REPLACE = "observe", "modify", "replace"
MODES = (OBSERVE, MODIFY, REPLACE)
HOOK, PROBE, ASSERT = "hook", "probe", "assert"
PREFIX = "watched "
BINS = 64
SAMPLES = 64

HookFunction = Callable[[Array, "int | None", object], object]
"""Takes a tensor, the number of its layer, and a stream, which only a device has; `replace` takes what it returns."""


@dataclass(frozen=True, slots=True, eq=False)
class Hook:
    """A function at a point; `remove()` takes it away."""

    point: str
    function: HookFunction
    mode: str
    owner: Watching = field(repr=False)

    def remove(self) -> None:
        """Take it away."""
        self.owner.remove_hook(self)


@dataclass(frozen=True, slots=True)
class ProbeData:
    """What a probe kept of a tensor in the last call that it looked at."""

    name: str
    path: str
    layer: int | None
    shape: tuple[int, ...]
    mean: float
    std: float
    min: float
    max: float
    norm: float
    counts: Array | None = None
    """Of a histogram: how many numbers lie between two `edges`."""
    edges: Array | None = None
    values: Array | None = None
    """Some numbers (sample), or all (full)."""


def capture(place: Place, array: Array) -> ProbeData:
    """What a probe keeps of a tensor."""
    numbers = array.astype(np.float64) if array.size else np.zeros(1)
    finite = numbers[np.isfinite(numbers)]
    counts = edges = values = None
    if place.capture == "histogram":
        counts, edges = np.histogram(finite if finite.size else np.zeros(1), BINS)
    elif place.capture == "sample":
        chosen = np.random.default_rng(0).permutation(array.size)[:SAMPLES]
        values = array.reshape(-1)[np.sort(chosen)]
    elif place.capture.endswith("full"):
        values = np.array(array)
    with np.errstate(all="ignore"):
        return ProbeData(
            place.name,
            place.path,
            place.layer,
            tuple(array.shape),
            float(numbers.mean()),
            float(numbers.std()),
            float(numbers.min()),
            float(numbers.max()),
            float(np.linalg.norm(numbers)),
            counts,
            edges,
            values,
        )


class Watching:
    """The hooks and probes of one model: what of it is watched now, and what was seen."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.places = tuple(places)
        self.hooks: list[Hook] = []
        self.has_probes = self.has_asserts = False
        self.tell: Callable[[str], None] | None = None
        """What takes the lines of traces; None where nobody wants them."""
        self.changes = 0
        """How often it changed what is watched."""
        self._calls = 0
        self._found: dict[tuple[str, str], ProbeData] = {}
        self._seen_as: dict[str, str] = {}
        """The outputs that show tensors."""
        self.changed: dict[str, str] = {}
        """The tensors that hooks change, and what becomes of them."""

    # --- what users say -----------------------------------------------------------------------------------------

    def register_hook(self, point: str, function: HookFunction, mode: str | None = None) -> Hook:
        """Let a function see the tensors at a point, in the mode of the point where none is given."""
        found = [item for item in self.places if item.kind == HOOK and item.name == point]
        if not found:
            known = sorted({item.name for item in self.places if item.kind == HOOK})
            hint = did_you_mean(point, known) or (
                f"points are: {', '.join(known)}" if known else "it has none"
            )
            raise InputError(f"the model has no hook point '{point[:80]}'", hint=hint)
        allowed = max((item.mode for item in found), key=MODES.index)
        chosen = mode or allowed
        if chosen not in MODES or MODES.index(chosen) > MODES.index(allowed):
            hint = f"modes are: {', '.join(MODES[: MODES.index(allowed) + 1])}; the model says which"
            raise InputError(f"a hook at '{point}' cannot '{chosen[:40]}'", hint=hint)
        hook = Hook(point, function, chosen, self)
        self.hooks.append(hook)
        self.changes += 1
        return hook

    def remove_hook(self, hook: Hook) -> None:
        """Take a hook away."""
        self.hooks = [item for item in self.hooks if item is not hook]
        self.changes += 1

    def enable_probes(self, on: bool = True) -> None:
        """Let probes look at the calls from now on, or not any more."""
        self.changes += on != self.has_probes
        self.has_probes, self._calls = on, 0

    def enable_asserts(self, on: bool = True) -> None:
        """Let calls end with a LamellaError where an assertion of the model is false, or not any more."""
        self.changes += on != self.has_asserts and any(item.kind == ASSERT for item in self.places)
        self.has_asserts = on

    def enable_traces(self, tell: Callable[[str], None] | None) -> None:
        """Let `tell` have a line for each tensor that the model traces, in every call; None takes it away."""
        has_places = any(item.kind == TRACE for item in self.places)
        self.changes += (tell is None) != (self.tell is None) and has_places
        self.tell = tell

    def get_probe(self, name: str, layer: int | None = None) -> ProbeData:
        """What a probe kept last; where several layers have it, `layer` says which."""
        found = [
            item
            for (known, _), item in self._found.items()
            if known == name and (layer is None or item.layer == layer)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            layers = ", ".join(str(item.layer) for item in found)
            raise InputError(f"probe '{name[:80]}' is in layers {layers}", hint="get_probe(name, layer=N)")
        known = {item.name for item in self.places if item.kind == PROBE}
        if name not in known:
            raise InputError(f"the model has no probe '{name[:80]}'", hint=did_you_mean(name, known) or "")
        hint = "enable_probes(), then call; its condition or frequency may have kept it from looking"
        raise InputError(f"probe '{name}' has seen nothing yet", hint=hint)

    # --- what a model becomes -----------------------------------------------------------------------------------

    def active(self) -> list[Place]:
        """The places that something looks at now."""
        points = {item.point for item in self.hooks}
        on = {PROBE: self.has_probes, ASSERT: self.has_asserts, TRACE: self.tell is not None}
        return [item for item in self.places if (item.name in points if item.kind == HOOK else on[item.kind])]

    def prepare(self, model: Model) -> tuple[Model, dict[object, Callable[[Array], Array]]]:
        """The model with what is looked at as further outputs, and with calls for what is changed."""
        called, functions = self.insert(model)
        return self.widen(called), functions

    def insert(self, model: Model) -> tuple[Model, dict[object, Callable[[Array], Array]]]:
        """The model with calls for what is changed, and what they call."""
        changed: dict[str, list[Place]] = {}
        for place in self.active():
            if any(item.point == place.name and item.mode != OBSERVE for item in self.hooks):
                changed.setdefault(place.tensor, []).append(place)
        numbers = {name: number for number, name in enumerate(changed)}
        called, self.changed = insert_calls(model, numbers)
        return called, {
            numbers[name]: self._function(items) for name, items in changed.items() if name in self.changed
        }

    def widen(self, called: Model) -> Model:
        """The model with what is looked at as further outputs."""
        results = self.changed
        seen = {name for item in self.active() for name in (item.tensor, *item.reads)}
        made = {item.name: item for node in called.graph.nodes for item in results_of(node)}
        made |= {item.name: item for item in members(called.graph.inputs)}
        wanted = [made[results.get(name, name)] for name in sorted(seen) if results.get(name, name) in made]
        pairs = [
            (item, replace(item, name=f"{PREFIX}{item.name}", quantization=None))
            for item in wanted
            if isinstance(item, Tensor)
        ]
        graph = replace(
            called.graph,
            nodes=(*called.graph.nodes, *(copy_of(*pair) for pair in pairs)),
            outputs=(*called.graph.outputs, *(copy for _, copy in pairs)),
        )
        self._seen_as = {name: f"{PREFIX}{results.get(name, name)}" for name in seen}
        return replace(called, graph=graph)

    def _function(self, places: Sequence[Place]) -> Callable[[Array], Array]:
        """What the hooks of a tensor make of it, the ones of higher priority first."""
        order = sorted(places, key=lambda item: -item.priority)

        def call(array: Array) -> Array:
            held = np.array(array)
            for place in order:
                for hook in self.hooks:
                    if hook.point == place.name and hook.mode != OBSERVE:
                        held = _changed(hook, place, held)
            return held

        return call

    def take(self, outputs: dict[str, Array]) -> None:
        """Show what was seen to hooks and probes, and take it out of the outputs; LamellaError of false assertions."""
        if not self._seen_as:
            return
        values = {name: outputs[seen] for name, seen in self._seen_as.items() if seen in outputs}
        for name in [item for item in outputs if item.startswith(PREFIX)]:
            del outputs[name]
        false: list[Diagnostic] = []
        for place in sorted(self.active(), key=lambda item: -item.priority):
            if place.tensor not in values:
                continue
            if place.kind == HOOK:
                for hook in self.hooks:
                    if hook.point == place.name and hook.mode == OBSERVE:
                        hook.function(_read_only(values[place.tensor]), place.layer, None)
            elif place.kind == TRACE:
                if self.tell is not None:
                    self.tell(trace_line(place.path, place.capture, values[place.tensor]))
            elif place.kind == ASSERT:
                if place.finding is not None and place.holds is not None and not place.holds(values):
                    false.append(place.finding)
            elif self._calls % place.frequency == 0 and (place.holds is None or place.holds(values)):
                self._found[place.name, place.path] = capture(place, values[place.tensor])
        self._calls += 1
        if false:
            raise LamellaError(false)


def _changed(hook: Hook, place: Place, array: Array) -> Array:
    given = hook.function(array, place.layer, None)
    if hook.mode == MODIFY:
        return array
    if given is None:
        raise InputError(
            f"the hook at '{place.name}' gave nothing",
            hint="one that replaces returns a tensor of the same shape",
        )
    found = np.asarray(given)
    if found.shape != array.shape:
        shapes = f"{list(found.shape)}, not {list(array.shape)}"
        raise InputError(f"the hook at '{place.name}' gave a tensor of shape {shapes}")
    return np.ascontiguousarray(found.astype(array.dtype, copy=False))


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


class WatchableExecutable(Executable, Protocol):
    """An executable graph: its variables are known, and what stands outside can change its tensors."""

    state: dict[str, Array]

    @property
    def calls(self) -> dict[object, Callable[[Array], Array]]:
        """What changes tensors while a call runs, by the numbers of `misc.call`."""


class WatchedModel:
    """A model with hooks and probes; it runs like any other, and is compiled anew when something else is watched."""

    def __init__(self, model: Model, make: Callable[[Model], WatchableExecutable]) -> None:
        self._model, self._make = model, make
        self.watching = Watching(item for item in model.places if not item.capture.startswith(GRADIENT))
        self.executable = make(model)
        """The model as it was compiled last."""
        self._made_for = self.watching.changes

    def register_hook(self, point: str, function: HookFunction, mode: str | None = None) -> Hook:
        """Let `function(tensor, layer, stream)` see, modify or replace the tensors at a point of the model."""
        return self.watching.register_hook(point, function, mode)

    def enable_probes(self) -> None:
        """Let probes look at the calls from now on."""
        self.watching.enable_probes()

    def disable_probes(self) -> None:
        """Let probes look at no call any more."""
        self.watching.enable_probes(False)

    def enable_asserts(self, on: bool = True) -> None:
        """Let calls end with a LamellaError where an `@assert` of the model is false, or not any more."""
        self.watching.enable_asserts(on)

    def enable_traces(self, tell: Callable[[str], None] | None = print) -> None:
        """Let `tell` have a line for each tensor with a `@trace`, in every call; None takes it away."""
        self.watching.enable_traces(tell)

    def get_probe(self, name: str, layer: int | None = None) -> ProbeData:
        """What a probe kept last; where several layers have it, `layer` says which."""
        return self.watching.get_probe(name, layer)

    def __call__(self, /, *arrays: npt.ArrayLike, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once, and show what is watched to those who watch."""
        if self._made_for != self.watching.changes:
            model, functions = self.watching.prepare(self._model)
            fresh = self._make(model)
            fresh.calls.update(functions)
            fresh.state.update(self.executable.state)
            self.executable, self._made_for = fresh, self.watching.changes
        found = self.executable(*arrays, **inputs)
        self.watching.take(found)
        return found


@documented(WatchOptions)
def watch(path: str | Path, /, backend: str | None = None, **options: Unpack[WatchOptions]) -> WatchedModel:
    """A model of the Module DSL, a file or a folder, whose hooks and probes can be used while it runs."""
    chosen = options_of(options)
    source = read_source(Path(path), chosen)
    compiled, model = build_compiled(source, chosen, settings_of(source.program, chosen))
    model = replace(with_extents(model, chosen), places=find_places(compiled, source.instance))

    def make(item: Model) -> WatchableExecutable:
        return cast(WatchableExecutable, make_executable(item, backend, chosen))

    return WatchedModel(model, make)
