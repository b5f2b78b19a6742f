"""Programmatic dependent launch: memory that kernels may read before their predecessor has ended.

Weights are *unchanging*: no launch of the list writes them. What a launch reads is *settled* where all that write it
have ended before the launch can begin: those of lists before, since the first launch of a list never starts early, and
those before a launch that *settles*. Such a launch waits for all before it, and only then lets its dependents start; so
whichever starts behind it finds the work of all before it done. One is enough for a whole list: positions, which a
small launch computes once and each layer reads, are then known everywhere before the wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lamella.base.records import dataclass
from lamella.kernels.launches import ELEMENT_BYTES, Launch, LaunchList
from lamella.kernels.rewrite import walk
from lamella.lang.tensor.nodes import Blas, CoopMulAdd, Dictionary, DictionaryEntry, Function, Parameter

UNCHANGING, SETTLED, SETTLES = "unchanging", "settled", "settles"
FEW_BYTES, FEWEST_READERS = 1 << 12, 2
"""How small an array is for which a launch settles, and how many launches read it."""
FRONT = 4
"""One of so many launches of a list at its beginning may settle what stands before it."""


@dataclass(frozen=True, slots=True)
class _EarlyLoads:
    """What a kernel is promised: places of its arguments, and whether it settles."""

    unchanging: tuple[int, ...]
    settled: tuple[int, ...]
    askew: tuple[int, ...]
    """Arguments that are less aligned than is promised of them."""
    settles: bool

    def __bool__(self) -> bool:
        return bool(self.unchanging or self.settled or self.askew or self.settles)


def mark_early_loads(
    whole: LaunchList, functions: Mapping[str, Function]
) -> tuple[LaunchList, tuple[Function, ...]]:
    """The list with kernels that know which arrays may be read early, and these kernels.

    Kernels that a copy engine feeds are left as they are. Of an array that begins elsewhere than its kernel expects
    nothing is promised.
    """
    writers = _find_writers(whole.launches)
    still = {whole.inputs[name].buffer for name in whole.bound & whole.inputs.keys()} - writers.keys()
    settling = _find_settling(whole, functions, writers)
    made: dict[tuple[str, _EarlyLoads], Function] = {}
    launches = []
    for number, launch in enumerate(whole.launches):
        function = functions.get(launch.kernel)
        if function is not None:
            known = {
                view.buffer
                for view in launch.arguments
                if _is_settled(writers.get(view.buffer, ()), number, settling)
            }
            plain = _is_plain(function)
            promises = _EarlyLoads(
                _places(launch, still) if plain else (),
                _places(launch, known - still) if number and plain else (),
                _find_askew(launch, function),
                number == settling,
            )
            if promises:
                key = launch.kernel, promises
                if key not in made:
                    made[key] = _with_early_loads(function, promises, f"{launch.kernel}_{len(made)}w")
                launch = replace(launch, kernel=made[key].name)
        launches.append(launch)
    return replace(whole, launches=tuple(launches)), tuple(made.values())


def _find_writers(launches: Sequence[Launch]) -> dict[str, list[int]]:
    """The launches that write each buffer."""
    found: dict[str, list[int]] = {}
    for number, launch in enumerate(launches):
        for buffer in {launch.arguments[place].buffer for place in launch.writes}:
            found.setdefault(buffer, []).append(number)
    return found


def _is_settled(writers: Iterable[int], reader: int, settling: int | None) -> bool:
    """Whether all writers of a buffer have ended when a launch that reads it begins, or come behind it."""
    return all(number > reader or (settling is not None and number < settling < reader) for number in writers)


def _find_settling(
    whole: LaunchList, functions: Mapping[str, Function], writers: Mapping[str, Sequence[int]]
) -> int | None:
    """The launch that settles: behind the last of those near the beginning that make something small for many."""
    readers: dict[str, set[int]] = {}
    for number, launch in enumerate(whole.launches):
        for view in launch.arguments:
            if view.reach <= FEW_BYTES:
                readers.setdefault(view.buffer, set()).add(number)
    found = [
        writers[buffer][0]
        for buffer, places in readers.items()
        if len(writers.get(buffer, ())) == 1
        and writers[buffer][0] < len(whole.launches) // FRONT
        and len([number for number in places if number > writers[buffer][0] + 1]) >= FEWEST_READERS
    ]
    settling = max(found, default=-1) + 1
    is_kernel = 0 < settling < len(whole.launches) and whole.launches[settling].kernel in functions
    return settling if is_kernel else None


def _places(launch: Launch, buffers: set[str]) -> tuple[int, ...]:
    return tuple(place for place, view in enumerate(launch.arguments) if view.buffer in buffers)


def _is_plain(function: Function) -> bool:
    """Whether a kernel multiplies no matrices."""
    return not any(isinstance(item.instruction, CoopMulAdd | Blas) for item in walk(function.body))


def _find_askew(launch: Launch, function: Function) -> tuple[int, ...]:
    """The places of arguments that are less aligned than was promised of them."""
    found = []
    pairs = zip(launch.arguments, function.parameters, strict=False)
    for place, (view, parameter) in enumerate(pairs):
        promised = None if parameter.attributes is None else parameter.attributes.find("alignment")
        if isinstance(promised, int) and view.offset * ELEMENT_BYTES[view.element] % promised:
            found.append(place)
    return tuple(found)


def _with_early_loads(function: Function, promises: _EarlyLoads, name: str) -> Function:
    """A kernel that knows which arrays may be read early, without promises that do not hold."""
    parameters = [
        _annotated(
            parameter,
            {UNCHANGING: place in promises.unchanging, SETTLED: place in promises.settled},
            place in promises.askew,
        )
        for place, parameter in enumerate(function.parameters)
    ]
    attributes = function.attributes
    if promises.settles:
        entries = () if attributes is None else attributes.entries
        attributes = Dictionary((*entries, DictionaryEntry(SETTLES, True)))
    return replace(function, name=name, parameters=tuple(parameters), attributes=attributes)


def _annotated(parameter: Parameter, given: Mapping[str, bool], is_askew: bool) -> Parameter:
    entries = () if parameter.attributes is None else parameter.attributes.entries
    kept = [item for item in entries if not (is_askew and item.key == "alignment")]
    known = {item.key for item in kept}
    kept += [DictionaryEntry(key, True) for key, holds in given.items() if holds and key not in known]
    return replace(parameter, attributes=Dictionary(tuple(kept)) if kept else None)
