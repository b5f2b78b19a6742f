"""Weights on their way: read by a second thread where a PRELOAD comes before the load, directly otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from lamella.backend.executor.inputs import fit
from lamella.backend.formula.storage import Storage, known_shape
from lamella.backend.nacvm.program import MemoryEvent
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Malformed
from lamella.base.source import Span
from lamella.graph.nodes import Tensor
from lamella.lang.nac.rules.schedule import PARAMETER_MISFIT


@dataclass(frozen=True, slots=True)
class ParameterLoad:
    """One load: its instruction, the parameter it loads and the tensor that this is."""

    index: int
    parameter: int
    tensor: Tensor
    span: Span


@dataclass(slots=True)
class WeightReader:
    """Reads the weights of one call; the second thread ends with the call, whatever happens in it."""

    read: Callable[[int], Array]
    storage: Storage
    trace: list[MemoryEvent] | None
    _pool: ThreadPoolExecutor | None = None
    _pending: dict[int, Future[Array]] = field(default_factory=dict)

    def start(self, load: ParameterLoad, tick: int) -> None:
        """Begin to read the weights of a load that comes later."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "preload")
        if load.index not in self._pending:
            self._pending[load.index] = self._pool.submit(self._ahead, load, tick)

    def take(self, load: ParameterLoad) -> Array:
        """The weights of a load: those that are on their way, or read now."""
        pending = self._pending.pop(load.index, None)
        self.note("load", load.index, load.index)
        return self._fit(load, self.read(load.parameter) if pending is None else pending.result())

    def forget(self, load: ParameterLoad) -> None:
        """Let go of weights that nobody will take."""
        pending = self._pending.pop(load.index, None)
        if pending is not None:
            pending.cancel()

    def note(self, kind: str, tick: int, target: int) -> None:
        """Remember an event where the run is traced."""
        if self.trace is not None:
            self.trace.append(MemoryEvent(kind, tick, target, threading.get_ident()))

    def close(self) -> None:
        """Forget what nobody took; the thread ends."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None
        self._pending.clear()

    def _ahead(self, load: ParameterLoad, tick: int) -> Array:
        self.note("preload start", tick, load.index)
        try:
            return self.read(load.parameter)
        finally:
            self.note("preload end", tick, load.index)

    def _fit(self, load: ParameterLoad, array: Array) -> Array:
        """The weights as the instructions hold them."""
        tensor, shape = load.tensor, known_shape(load.tensor.shape, {})
        problem = f"of shape {list(np.shape(array))}"
        if np.shape(array) == shape:
            if array.dtype == self.storage.dtype(tensor.element):
                return array
            try:
                return fit(array, tensor.element, self.storage)
            except Malformed as misfit:
                problem = str(misfit)
        kind = f"{tensor.element}{list(shape)}"
        finding = PARAMETER_MISFIT.at(
            load.span, index=load.index, type=kind, id=load.parameter, found=problem
        )
        raise LamellaError([finding])
