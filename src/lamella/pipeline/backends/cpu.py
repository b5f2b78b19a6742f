"""Graphs as machine code, compiled once: what was compiled for the same graph, options and machine is found again.

Nothing of the compiler is loaded where a compiled graph is found: that is half of what a process would load.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from lamella.backend.cpu.host import host_target
from lamella.backend.cpu.jit import LLVM_FILE, host_machine, object_key, open_cache
from lamella.backend.cpu.run.pool import alone_code, count_threads, shared_pool
from lamella.backend.cpu.run.stored import StoredGraph, decode_graph, encode_graph
from lamella.backend.executor import GraphExecutable
from lamella.backend.executor.stored import StoredExecutable
from lamella.base.child_process import may_fork, run_in_child
from lamella.base.diagnostic import LamellaError
from lamella.base.mapping import release_heap, release_library
from lamella.base.object_cache import ObjectCache
from lamella.base.optional import need
from lamella.base.watching import COMPILING
from lamella.graph.model import Model
from lamella.graph.rewrite import extents, members
from lamella.pipeline.backends.graph_keys import digest_graph, is_alike, is_open, is_watched
from lamella.pipeline.backends.late_compiler import late_compiler
from lamella.pipeline.options import Options

if TYPE_CHECKING:
    from lamella.pipeline import languages
    from lamella.pipeline.languages import Executable

NAME = "cpu"
LARGE_BYTES = 1 << 22
"""Weights beyond this take more memory than it takes time to load LLVM's code again, where somebody compiles more."""


def missing(backend: str) -> str | None:
    """Why LLVM does not load, which every installation should have."""
    try:
        need("llvmlite")
        host_machine()
    except LamellaError as problem:
        return problem.findings[0].message
    return None


def compile(model: languages.Model, backend: str, options: Options) -> Executable:
    """Make kernels or a graph callable."""
    if not isinstance(model, Model):
        return late_compiler().compile(model, backend, options)
    return compile_graph(model, options)


def compile_graph(model: Model, options: Options) -> GraphExecutable:
    """Make a graph callable; the compiled form of one of known extents is kept."""
    if is_watched(options) or is_open(model):
        return late_compiler().compile_open(model, NAME, options)
    return compile_stored(model, options)


def compile_stored(model: Model, options: Options) -> GraphExecutable:
    """A graph of known extents as it was compiled before, else compiled now and kept."""
    store = open_cache()
    key = b"" if store is None else graph_key(model, options)
    content = None if store is None else store.get(key)
    found = None if content is None else decode_graph(content, options.limits, options.threads or None)
    if found is None and store is not None and _is_large(model) and may_fork():
        found = _compile_in_child(model, options, store, key)
    if found is not None:
        return _stored(model, found, options)
    return _compile_here(model, options, store, key)


def _compile_here(model: Model, options: Options, store: ObjectCache | None, key: bytes) -> GraphExecutable:
    """A graph compiled in this process, and kept."""
    part = _compile_part(model, options)
    executable: GraphExecutable
    if part is not None:
        executable = _stored(model, part, options)
    else:
        executable, part = _compile_whole(model, options)
    if store is not None and part is not None:
        content = encode_graph(part.segment, part.placement)
        if content is not None:
            store.put(key, content)
    if _is_large(model):
        # Weights are about to come into memory: LLVM is most of what else would be there with them. A pool of threads
        # may need LLVM for its own loops: it is made before.
        shared_pool(options.threads or count_threads())
        release_library(LLVM_FILE)
        release_heap()
    return executable


def _compile_in_child(model: Model, options: Options, store: ObjectCache, key: bytes) -> StoredGraph | None:
    """A graph compiled in a child of this process and kept; None where that is not what came of it.

    A compiler and LLVM take more memory than most models. In a child it is gone before weights come into memory, and
    who only serves a model never has it.
    """
    note = hashlib.sha256(b"compiled here" + key).digest()
    if store.get(note) is not None:
        return None

    def work(tell: Callable[[bytes], None]) -> None:
        gc.disable()  # what a compiler makes has next to no cycles, and all of it ends with the child
        COMPILING.set(lambda done, total: tell(b"%d %d" % (done, total)))
        _compile_here(model, options, store, key)
        alone_code()
        if store.get(key) is None:
            store.put(note, b"what is no single list of launches is not kept")

    def told(line: bytes) -> None:
        done, _, total = line.partition(b" ")
        look(int(done), int(total))

    look = COMPILING.get()
    if not run_in_child(work, told):
        return None
    content = store.get(key)
    return None if content is None else decode_graph(content, options.limits, options.threads or None)


def _compile_whole(model: Model, options: Options) -> tuple[GraphExecutable, StoredGraph | None]:
    """A graph compiled as it is, and what can be kept of it."""
    compiled = late_compiler().compile_open(model, NAME, options)
    segment = compiled.whole_segment()
    if segment is None or not is_alike(model, compiled.model):
        return compiled, None
    return compiled, StoredGraph(segment, compiled.placement)


def _stored(model: Model, found: StoredGraph, options: Options) -> StoredExecutable:
    executable = StoredExecutable(
        model,
        found,
        lambda: late_compiler().compile_open(model, NAME, options),
        seed=options.start_seed,
        dtype=options.dtype or "f32",
        limits=options.limits,
    )
    executable.draws = options.draws
    return executable


def _compile_part(model: Model, options: Options) -> StoredGraph | None:
    """A graph that runs on some items of its batch at a time; None where it runs on all of them at once."""
    cut = late_compiler().cut_batch(model)
    _, found = (None, None) if cut is None else _compile_whole(cut.model, options)
    if cut is None or found is None or found.segment.states or found.segment.updated:
        return None
    outputs = {
        name: ((shape[0] * cut.parts, *shape[1:]), dtype)
        for name, (shape, dtype) in found.segment.outputs.items()
    }
    segment = replace(found.segment, outputs=outputs, parts=cut.parts, batched=cut.batched)
    return StoredGraph(segment, found.placement)


def _is_large(model: Model) -> bool:
    """Whether the weights of a graph take much memory."""
    shapes = [list(extents(item)) for item in members(model.graph.variables)]
    count = sum(prod(size for size in shape if isinstance(size, int)) for shape in shapes)
    return 4 * count >= LARGE_BYTES


# --- the key ---------------------------------------------------------------------------------------------------


def graph_key(model: Model, options: Options) -> bytes:
    """What a compiled graph depends on."""
    return object_key(digest_graph(model, options, (repr(host_target()),)), host_machine())
