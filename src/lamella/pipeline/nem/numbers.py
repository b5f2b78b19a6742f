"""The numbers of a plan that was made from a model: a `.safetensors` file beside it, and the ports that it tells of.

The file holds one array for each buffer that the plan imports, and the first content of each state. Its metadata say
which regions are the inputs, the outputs and the states of the model, so that a plan is called like its model: real
numbers become codes, or floats of fewer bits, at the border, and come back as numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from lamella.backend.drawing import Drawn, name_inputs, types_of
from lamella.backend.executor.inputs import SMALL, draw, generator
from lamella.backend.formula.storage import Storage
from lamella.backend.npu import PlanExecutable
from lamella.backend.progress import Progress
from lamella.base import arrays
from lamella.base.arrays import Array
from lamella.base.card import Card, join_names, show_html, show_line
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dtype import find, find_in
from lamella.base.errors import InputError, Malformed
from lamella.base.jsontext import parse_json
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import is_there, map_bytes, read_bytes, shown
from lamella.base.quant import Quant
from lamella.base.safetensors import ELEMENTS, read_index
from lamella.base.source import NOWHERE, Source, Span
from lamella.base.writer import write_bytes
from lamella.bridge.graph_to_plan.rules import PLAN_NUMBERS
from lamella.graph.data.safetensors import decode_store, write_safetensors
from lamella.graph.nodes import Tensor
from lamella.lang.nem.resolved import Plan, TensorType

ENDING = ".safetensors"
PORTS = "lamella.ports"
"""The text of the file that tells of ports."""
INPUT, OUTPUT, STATE = "input", "output", "state"
KINDS = (INPUT, OUTPUT, STATE)


@dataclass(frozen=True, slots=True)
class Port:
    """An input, an output or a state of the model: its name, type and shape there, and its region in the plan.

    Random integers for it are drawn below `end`. Files that were written before say neither shape nor end.
    """

    kind: str
    name: str
    element: str
    region: str
    shape: tuple[int, ...] | None = None
    end: int = SMALL


@dataclass(frozen=True, slots=True)
class PlanNumbers:
    """What fills the buffers of a plan, by their names, and what its ports are."""

    arrays: Mapping[str, Array]
    ports: tuple[Port, ...]
    file: str = ""

    def write(self, path: Path) -> None:
        """Write the file; one of that name which tells of no ports holds somebody else's numbers, and stays."""
        if is_there(path) and not _tells_of_ports(path):
            raise InputError(
                f"'{shown(path)}' is in the way: the numbers of the plan go there, and it holds something else",
                hint="choose another name or folder for the plan",
            )
        ports = [
            [item.kind, item.name, item.element, item.region, item.shape, item.end] for item in self.ports
        ]
        write_safetensors(
            path, {name: _storable(item) for name, item in self.arrays.items()}, {PORTS: json.dumps(ports)}
        )


def output_buffers(plan: Plan, numbers: PlanNumbers | None) -> set[str]:
    """The buffers that hold results of the model."""
    made = [] if numbers is None else [item.region for item in numbers.ports if item.kind == OUTPUT]
    return {plan.regions[name].buffer.name for name in made if name in plan.regions}


def _storable(array: Array) -> Array:
    """An array of a type that the format has; others are bytes."""
    element = arrays.element_type_of(array.dtype)
    return array if element in ELEMENTS.values() else arrays.to_memory(array)


def read_numbers(plan: Path, limits: Limits) -> PlanNumbers | None:
    """The numbers that lie beside a plan; None where there are none that tell of ports."""
    if plan.suffix not in (".nem", ".stcb") or not is_there(path := plan.with_suffix(ENDING)):
        return None
    content = decode_store(read_bytes(path, limits), shown(path))
    if PORTS not in content.metadata:
        return None
    found = parse_json(Source(shown(path), content.metadata[PORTS]), limits)
    return PlanNumbers(content.arrays, _read_ports(found, path), path.name)


def carry_numbers(plan: Path, target: Path, limits: Limits) -> Path | None:
    """Put the numbers of a plan beside another form of it, where they are looked for; the file, if one was written.

    A file of that name which tells of no ports is somebody else's and stays: nothing would be read from it either.
    """
    numbers = read_numbers(plan, limits)
    if numbers is None:
        return None
    path, own = target.with_suffix(ENDING), plan.with_suffix(ENDING)
    if path.absolute() == own.absolute():
        return None
    if is_there(path) and not _tells_of_ports(path):
        raise InputError(
            f"'{path.name}' is in the way: the numbers of '{plan.name}' go there, and it holds something else",
            path=shown(path),
            hint="choose another name or folder for the result",
        )
    write_bytes(path, read_bytes(own, limits))
    return path


def _tells_of_ports(path: Path) -> bool:
    """Whether a file was written beside a plan."""
    try:
        metadata = read_index(map_bytes(path).data).metadata
    except (LamellaError, Malformed):
        return False
    return isinstance(metadata, dict) and PORTS in metadata


def _read_ports(found: object, path: Path) -> tuple[Port, ...]:
    """Ports as the file tells of them; nothing is taken for granted."""
    if not isinstance(found, list):
        raise InputError(f"'{PORTS}' is no list", path=shown(path))
    ports: list[Port] = []
    for item in found:
        if not _is_port(item):
            raise InputError(f"'{PORTS}' holds what is no port", path=shown(path))
        if item[0] not in KINDS or find(item[2]) is None:
            raise InputError(f"'{PORTS}' holds the port of an unknown kind or type", path=shown(path))
        shape, end = (item[4], item[5]) if len(item) > 4 else (None, SMALL)
        kind, name, element, region = item[:4]
        ports.append(Port(kind, name, element, region, None if shape is None else tuple(shape), end))
    return tuple(ports)


def _is_port(item: object) -> TypeGuard[list[Any]]:
    if not isinstance(item, list) or len(item) not in (4, 6):
        return False
    if not all(isinstance(word, str) for word in item[:4]):
        return False
    shape, end = (item[4], item[5]) if len(item) == 6 else (None, SMALL)
    sizes = shape is None or (isinstance(shape, list) and all(type(size) is int for size in shape))
    return sizes and type(end) is int and end > 0


# --- the border ----------------------------------------------------------------------------------------------


def stored(name: str, values: npt.ArrayLike, kind: TensorType) -> Array:
    """Numbers of the model as a region holds them: codes of the nearest, or rounded to its type."""
    element, given = find_in("nem", kind.elem), np.asarray(values)
    if element is None:
        raise InputError(f"'{name}' has elements of an unknown type")
    if given.shape != kind.shape and not (kind.shape == (1,) and given.shape == ()):
        raise InputError(f"'{name}' has shape {list(given.shape)}; the plan takes {list(kind.shape)}")
    given = given.reshape(kind.shape)
    if element.is_integer and kind.quant is not None and given.dtype.kind in "fV":
        scale, zero = arrays.scales_along(kind.quant, kind.shape)
        return arrays.cast(np.rint(given.astype(np.float64) / scale) + zero, element)
    if element.is_integer and given.dtype.kind in "iub":
        low, high = int(given.min(initial=0)), int(given.max(initial=0))
        if low < element.minimum or high > element.maximum:
            raise InputError(
                f"'{name}' holds {low if low < element.minimum else high}, which is no {kind.elem}"
            )
    return arrays.to_exchange(arrays.cast(given, element))


def numbers_of(values: Array, quant: Quant | None, element: str) -> Array:
    """What a region holds as numbers of the model."""
    wanted = find(element)
    found = values
    if quant is not None and wanted is not None and wanted.is_float:
        scale, zero = arrays.scales_along(quant, values.shape)
        found = (scale * (values.astype(np.float64) - zero)).astype(np.float32)
    return found if wanted is None else arrays.to_exchange(arrays.cast(found, wanted))


class PortedPlan:
    """A plan that is called like the model it was made from; it keeps its states from call to call."""

    def __init__(
        self,
        inner: PlanExecutable,
        numbers: PlanNumbers,
        shapes: Mapping[str, tuple[int, ...]],
        seed: int = 0,
        limits: Limits = DEFAULT,
    ) -> None:
        self.inner = inner
        self._seed = seed
        self._storage = Storage(False, limits.max_total_bytes)
        self._drawn = Drawn()
        self.findings: list[Diagnostic] = []
        self._numbers = numbers
        self._shapes = shapes
        self._ports = {item.name: item for item in numbers.ports if item.kind in (INPUT, STATE)}
        self._states: dict[str, Array] = {}
        names = {item.name for item in inner.plan.buffers}
        self._fixed = {name: arrays.to_memory(item) for name, item in numbers.arrays.items() if name in names}

    __repr__ = show_line
    _repr_html_ = show_html

    def _card(self) -> Card:
        """The card of the plan, with the inputs and outputs of the model."""
        card = self.inner._card()
        interface = f"{join_names(self.inputs)} -> {join_names(self.outputs)}"
        return replace(card, facts=(*card.facts[:-1], ("interface", interface)))

    @property
    def progress(self) -> Progress:
        """What wraps the steps of a call."""
        return self.inner.progress

    @progress.setter
    def progress(self, value: Progress) -> None:
        self.inner.progress = value

    @property
    def draws(self) -> bool:
        """Whether inputs that a call does not give are random."""
        return self.inner.draws

    @draws.setter
    def draws(self, value: bool) -> None:
        self.inner.draws = value

    @property
    def drawn(self) -> Drawn:
        """What the last call drew: inputs of the model, and what a plan reads beside them."""
        inner = self.inner.drawn
        return Drawn({**self._drawn.inputs, **inner.inputs}, inner.weights, inner.variables)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs of the model."""
        return tuple(item.name for item in self._numbers.ports if item.kind == INPUT)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs of the model."""
        return tuple(item.name for item in self._numbers.ports if item.kind == OUTPUT)

    def __call__(self, /, *arrays: npt.ArrayLike, **inputs: npt.ArrayLike) -> dict[str, Array]:
        """Run once; numbers go through the border, what names no port is given to the plan as it is."""
        inputs = name_inputs(self.inputs, arrays, inputs)
        given: dict[str, npt.ArrayLike] = {**self._fixed, **self._states}
        drawn = self._draw(inputs) if self.draws else {}
        self._drawn = Drawn(types_of(drawn))
        for name, values in {**drawn, **inputs}.items():
            port = self._ports.get(name)
            kind = None if port is None else self._type(port)
            if port is None:
                given[name] = values
            elif kind is not None:  # an input that no task reads has no region in the plan
                given[port.region] = stored(name, values, kind)
        found = self.inner(**given)
        note = PLAN_NUMBERS.at(
            _start(self.inner.plan.source), file=self._numbers.file, count=len(self._fixed)
        )
        self.findings = [*([note] if self._numbers.file else []), *self.inner.findings]
        self._states = {item.region: found[item.region] for item in self._numbers.ports if item.kind == STATE}
        return {item.name: self._result(item, found) for item in self._numbers.ports if item.kind == OUTPUT}

    def _draw(self, given: Mapping[str, object]) -> dict[str, Array]:
        """The inputs that a call does not give, as the model draws them from the seed."""
        found: dict[str, Array] = {}
        for port in self._numbers.ports:
            element, kind = find(port.element), self._type(port)
            named = port.name in given or port.region in given
            if port.kind != INPUT or named or element is None or kind is None:
                continue
            random = generator(self._seed, port.name)
            shape = kind.shape if port.shape is None else port.shape
            found[port.name] = arrays.to_exchange(draw(random, element, shape, self._storage, port.end))
        return found

    def _type(self, port: Port) -> TensorType | None:
        region = self.inner.plan.regions.get(port.region)
        return None if region is None else region.type

    def _result(self, port: Port, found: Mapping[str, Array]) -> Array:
        kind = self._type(port)
        if kind is None or port.region not in found:
            raise InputError(f"the plan has no region '{port.region}' for the output '{port.name}'")
        values = numbers_of(found[port.region], kind.quant, port.element)
        shape = values.shape if port.shape is None else port.shape
        return values.reshape(self._shapes.get(port.name, shape))


def _start(source: Source) -> Span:
    return Span(source, 0, 0) if source.text else NOWHERE


def list_ports(
    kinds: Mapping[str, Sequence[Tensor]], regions: Mapping[str, str], ends: Mapping[str, int]
) -> tuple[Port, ...]:
    """Ports from tensors of the model by kind, the names of regions, and where random integers end."""
    return tuple(
        Port(kind, item.name, str(item.element), regions[item.name], _sizes(item), ends.get(item.name, SMALL))
        for kind, items in kinds.items()
        for item in items
    )


def _sizes(tensor: Tensor) -> tuple[int, ...] | None:
    """The shape of a tensor whose extents are known."""
    found = tuple(extent for extent in tensor.shape if isinstance(extent, int))
    return found if len(found) == len(tensor.shape) else None
