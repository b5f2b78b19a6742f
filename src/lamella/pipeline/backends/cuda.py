"""Kernels and graphs on an NVIDIA GPU: as on the processor, with the machine of the device.

Graphs of known extents are compiled once: what was compiled for the same graph, options and device is found again, and
then nothing of the compiler is loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from lamella.backend.cuda import driver
from lamella.backend.cuda.assembler import settle
from lamella.backend.cuda.lists import MakeChoice
from lamella.backend.cuda.memory import SharedDeviceMemory
from lamella.backend.cuda.stored import decode_segment, encode_segment
from lamella.backend.executor.segments import OnceResults, Segment
from lamella.backend.executor.stored import StoredExecutable, StoredExtents
from lamella.base.object_cache import ObjectCache, open_cache
from lamella.base.placement import OperationPlacement
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import members
from lamella.pipeline.backends.graph_keys import digest_graph, is_alike, is_open, is_watched
from lamella.pipeline.backends.late_compiler import late_compiler
from lamella.pipeline.options import Options

if TYPE_CHECKING:
    from lamella.pipeline import languages
    from lamella.pipeline.languages import Executable

NAME = "cuda"


def missing(backend: str) -> str | None:
    """Why no kernel can run on a GPU here; None where one can."""
    return driver.missing()


def start() -> None:
    """Let the device start while a model is read."""
    driver.start()


def compile(model: languages.Model, backend: str, options: Options) -> Executable:
    """Make kernels or a graph callable; the compiled form of a graph of known extents is kept."""
    if not isinstance(model, Model) or is_watched(options) or is_open(model):
        return late_compiler().compile(model, backend, options)
    here, store = driver.device(), open_cache()
    if store is None:
        return late_compiler().compile(model, backend, options)
    options = with_room(options, here)
    key = graph_key(model, options, here)
    settle()
    content = store.get(key)
    tensors, room = outer_tensors(model), SharedDeviceMemory()
    found = None if content is None else decode_segment(content, tensors, options.limits, room, OnceResults())
    if found is not None:
        executable = StoredExecutable(
            model,
            found,
            lambda: late_compiler().compile_open(model, NAME, options),
            seed=options.start_seed,
            dtype=options.dtype or "f32",
            limits=options.limits,
        )
        executable.draws = options.draws
        executable.take_arrays(room.copies)
        return executable
    compiled = late_compiler().compile_open(model, NAME, options)
    segment = compiled.only_segment()
    if segment is not None and is_alike(model, compiled.model):
        kept = encode_segment(segment, compiled.placement)
        if kept is not None:
            store.put(key, kept)
    return compiled


def with_room(options: Options, here: driver.Device) -> Options:
    """The options with as much memory as the device has."""
    room = max(options.limits.max_total_bytes, here.memory_bytes)
    return replace(options, limits=replace(options.limits, max_total_bytes=room))


def graph_key(model: Model, options: Options, here: driver.Device) -> bytes:
    """What a graph that is compiled for the device depends on, beside extents that it leaves open."""
    described = (NAME, here.name, here.architecture, str(here.driver), str(here.multiprocessors))
    return hashlib.sha256(digest_graph(model, options, described).encode()).digest()


def outer_tensors(model: Model) -> dict[str, Tensor]:
    """What a graph is given and what it keeps, by name."""
    graph = model.graph
    found = (*members(graph.inputs), *graph.variables)
    return {item.name: item for item in found if isinstance(item, Tensor)}


class KeptExtents:
    """What was compiled for a GPU of a graph that leaves extents open, in the user's cache."""

    def __init__(
        self, store: ObjectCache, model: Model, options: Options, room: SharedDeviceMemory, choose: MakeChoice
    ) -> None:
        self._store, self._model, self._options = store, model, options
        self._room, self._choose = room, choose

    @cached_property
    def _graph(self) -> bytes:
        return graph_key(self._model, self._options, driver.device())

    def _key(self, extents: Mapping[str, int]) -> bytes:
        return hashlib.sha256(self._graph + repr(sorted(extents.items())).encode()).digest()

    def find(self, extents: Mapping[str, int]) -> StoredExtents | None:
        """What was compiled for such extents before."""
        settle()
        content = self._store.get(self._key(extents))
        if content is None:
            return None
        tensors, limits = outer_tensors(self._model), self._options.limits
        return StoredExtents(
            lambda results: decode_segment(content, tensors, limits, self._room, results, self._choose)
        )

    def keep(
        self, extents: Mapping[str, int], segment: Segment, placement: Sequence[OperationPlacement]
    ) -> None:
        """Keep what was compiled."""
        content = encode_segment(segment, placement)
        if content is not None:
            self._store.put(self._key(extents), content)
