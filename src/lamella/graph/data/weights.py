"""The data of a graph's variables: found by name in a folder of tensor files or in a `.safetensors` file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import InputError, cause_of
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import is_folder, read_bytes_in, shown
from lamella.base.source import Span
from lamella.base.writer import make_folder, write_bytes
from lamella.graph.data.dat import Stored, decode_dat, encode_dat, read_dat
from lamella.graph.data.fit import describe, fit
from lamella.graph.data.header import refuse, whole
from lamella.graph.data.safetensors import decode_safetensors, read_safetensors, write_safetensors
from lamella.graph.nodes import Graph, Tensor
from lamella.lang.skriptnd.rules import data as rules

TENSOR_FILE, STORE_FILE = ".dat", ".safetensors"


class Weights(NamedTuple):
    """The arrays of variables by name, and what was wrong with the rest."""

    arrays: Mapping[str, Array]
    findings: tuple[Diagnostic, ...]


class _Source(NamedTuple):
    """One stored array that is not read yet."""

    file: str
    read: Callable[[], Stored | Array]


def read_weights(path: Path, graph: Graph, limits: Limits = DEFAULT) -> Weights:
    """The data of every variable of a graph from a folder or a file.

    Variable `blk.w` of graph `G` is stored as `blk.w` or `main.G.blk.w`. A folder holds one `.dat` file for each
    variable, or `.safetensors` files.
    """
    try:
        sources = _sources(path, limits)
    except LamellaError as problem:
        return Weights({}, problem.findings)
    place = whole(shown(path))
    arrays: dict[str, Array] = {}
    findings: list[Diagnostic] = []
    used: set[str] = set()
    for variable in graph.variables:
        names = [name for name in _names(variable, graph) if name in sources]
        used.update(names)
        array, problems = _read(variable, [item for name in names for item in sources[name]], place)
        findings += problems
        if array is not None:
            arrays[variable.name] = array
    findings += _unused(sources, used, graph, place)
    return Weights(arrays, tuple(findings))


def _qualified(graph: Graph) -> str:
    return graph.name if graph.name.startswith("main.") else f"main.{graph.name}"


def _names(variable: Tensor, graph: Graph) -> tuple[str, str]:
    """Under what names a variable may be stored."""
    return variable.name, f"{_qualified(graph)}.{variable.name}"


def _read(variable: Tensor, sources: list[_Source], place: Span) -> tuple[Array | None, list[Diagnostic]]:
    if not all(isinstance(extent, int) for extent in variable.shape):
        shape = describe(variable)
        return None, [rules.OPEN_SHAPE.at(place, name=variable.name, shape=shape)]
    if not sources:
        files = f"{variable.name}{TENSOR_FILE}"
        return None, [rules.NO_DATA.at(place, name=variable.name, type=describe(variable), files=files)]
    if len(sources) > 1:
        files = ", ".join(item.file for item in sources[:10])
        return None, [rules.SEVERAL_DATA.at(place, name=variable.name, files=files)]
    try:
        return fit(variable, sources[0].read(), whole(sources[0].file))
    except LamellaError as problem:
        return None, list(problem.findings)


def _unused(
    sources: Mapping[str, list[_Source]], used: set[str], graph: Graph, place: Span
) -> Iterator[Diagnostic]:
    """Data without a variable; what is named after another graph belongs to that one."""
    for name in sorted(set(sources) - used):
        if name.startswith("main.") and not name.startswith(f"{_qualified(graph)}."):
            continue
        for item in sources[name]:
            yield rules.UNUSED_DATA.at(place, file=item.file, graph=graph.name)


def _sources(path: Path, limits: Limits) -> dict[str, list[_Source]]:
    """Everything that is stored at a path, by name."""
    if not is_folder(path):
        return _sources_in(path, limits)
    try:
        files = sorted(item for item in path.iterdir() if item.suffix in (TENSOR_FILE, STORE_FILE))
    except OSError as problem:
        raise InputError(f"cannot read '{shown(path)}': {cause_of(problem)}", path=shown(path)) from problem
    found: dict[str, list[_Source]] = {}
    for file in files:
        for name, sources in _sources_beside(file, limits).items():
            found.setdefault(name, []).extend(sources)
    return found


def _sources_beside(path: Path, limits: Limits) -> dict[str, list[_Source]]:
    """What a file of a folder holds; the folder was named, not the file, so it is not followed through links."""
    file, folder = shown(path), path.parent
    if path.suffix == TENSOR_FILE:

        def read() -> Stored:
            return decode_dat(read_bytes_in(folder, path.name, limits), file)

        return {path.name.removesuffix(TENSOR_FILE): [_Source(file, read)]}
    return _stored(file, decode_safetensors(read_bytes_in(folder, path.name, limits), file))


def _sources_in(path: Path, limits: Limits) -> dict[str, list[_Source]]:
    file = shown(path)
    if path.suffix == TENSOR_FILE:
        return {path.name.removesuffix(TENSOR_FILE): [_Source(file, lambda: read_dat(path, limits))]}
    if path.suffix != STORE_FILE:
        hint = "weights are a folder of .dat files or a .safetensors file"
        raise InputError(f"'{file}' is no file of weights", path=file, hint=hint)
    return _stored(file, read_safetensors(path, limits))


def _stored(file: str, arrays: Mapping[str, Array]) -> dict[str, list[_Source]]:
    return {name: [_Source(f"{file}: {name}", _giver(array))] for name, array in arrays.items()}


def _giver(array: Array) -> Callable[[], Array]:
    return lambda: array


def write_weights(path: Path, graph: Graph, arrays: Mapping[str, Array]) -> tuple[Path, ...]:
    """Write the variables of a graph that have data: a `.safetensors` file, else one `.dat` file each in a folder.

    Everything is converted before the first file is written, so what cannot be expressed leaves no half of a model.
    """
    chosen: dict[str, Array] = {}
    findings: list[Diagnostic] = []
    for variable in graph.variables:
        if variable.name in arrays:
            array, problems = fit(variable, arrays[variable.name], whole(shown(path)))
            findings += [] if array is not None else problems
            chosen |= {} if array is None else {variable.name: array}
    if findings:
        raise LamellaError(findings)
    if path.suffix == STORE_FILE:
        write_safetensors(path, chosen)
        return (path,)
    images = {path / _file_name(name): encode_dat(array, name) for name, array in chosen.items()}
    make_folder(path)
    for file, image in images.items():
        write_bytes(file, image)
    return tuple(images)


def _file_name(variable: str) -> str:
    """The file of a variable; names from other formats may lead elsewhere, and are refused."""
    if "/" in variable or "\0" in variable or variable.startswith("."):
        what, reason = "a variable", "its name is no name of a file"
        refuse(rules.NOT_EXPRESSIBLE.at(whole(variable), name=variable, what=what, reason=reason))
    return f"{variable}{TENSOR_FILE}"
