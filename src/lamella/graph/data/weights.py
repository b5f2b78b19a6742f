"""The data of a graph's variables: found by name in a folder of tensor files or in a `.safetensors` file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lamella.base import dtype as types
from lamella.base.arrays import Array, cast, element_type_of
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.dtype import ElementType
from lamella.base.errors import InputError, cause_of
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import is_folder, map_bytes, map_bytes_in, read_bytes_in, shown
from lamella.base.source import Span
from lamella.base.writer import make_folder, write_bytes
from lamella.graph.data.dat import Stored, decode_dat, encode_dat, read_dat, refuse, whole
from lamella.graph.data.safetensors import decode_safetensors, write_safetensors
from lamella.graph.nodes import Graph, Quantization, Tensor, Value
from lamella.lang.skriptnd.rules import data as rules

# --- whether stored data are what a variable asks for, and what they are as its array -----------------------


Fitted = tuple[Array | None, list[Diagnostic]]


def describe(tensor: Tensor) -> str:
    """A tensor's type as messages say it."""
    return f"{tensor.element}[{', '.join(str(extent) for extent in tensor.shape)}]"


def fit(variable: Tensor, stored: Stored | Array, place: Span) -> Fitted:
    """The array of a variable from what a file holds, or why it is none."""
    values = stored.values if isinstance(stored, Stored) else stored
    if values.shape != variable.shape:
        return None, [_wrong(variable, place, list(values.shape), shape=True)]
    if isinstance(stored, Stored) and stored.item.is_code:
        return _from_codes(variable, stored, place)
    element = element_type_of(values.dtype)
    wanted = variable.element
    if element == wanted:
        return values, []
    if element is None or element.is_float != wanted.is_float or types.BOOL in (element, wanted):
        return None, [_wrong(variable, place, element or values.dtype)]
    if wanted.is_float:
        return _convert_floats(variable, values, element, place)
    return _convert_integers(variable, values, place)


def _wrong(variable: Tensor, place: Span, found: object, shape: bool = False) -> Diagnostic:
    rule = rules.WRONG_SHAPE if shape else rules.WRONG_TYPE
    return rule.at(place, name=variable.name, type=describe(variable), found=found)


def _convert_floats(variable: Tensor, values: Array, element: ElementType, place: Span) -> Fitted:
    """Wider types hold the numbers of narrower ones; the other way round they are rounded, which is said."""
    converted = cast(values, variable.element)
    if element.bits < variable.element.bits:
        return converted, []
    finding = rules.ROUNDED_DATA.at(place, name=variable.name, found=element, type=variable.element)
    return converted, [finding]


def _convert_integers(variable: Tensor, values: Array, place: Span) -> Fitted:
    """Any integer type will do whose values the variable can hold."""
    least, most = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for value in (least, most):
        if not variable.element.minimum <= value <= variable.element.maximum:
            finding = rules.DATA_DO_NOT_FIT.at(
                place, name=variable.name, type=describe(variable), value=value
            )
            return None, [finding]
    return cast(values, variable.element), []


# --- codes of quantised values ------------------------------------------------------------------------------


def _from_codes(variable: Tensor, stored: Stored, place: Span) -> Fitted:
    if not variable.element.is_float:
        return None, [_wrong(variable, place, f"codes of {stored.bits} bits")]
    numbers = _decode(stored.values.astype(np.float64), variable.quantization)
    if numbers is None:
        finding = rules.CODES_WITHOUT_SCALE.at(place, name=variable.name, bits=stored.bits)
        return None, [finding]
    return cast(numbers, variable.element), []


def _decode(codes: Array, quantization: Quantization | None) -> Array | None:
    """What codes stand for: the second half of the linear quantizers of module `quant`."""
    if quantization is None:
        return None
    attributes = dict(quantization.attributes)
    if quantization.operator == "quant.zero_point_linear_quantize":
        low, part = np.zeros(()), codes - _along(attributes, "zero_point", codes)
        size = _along(attributes, "scale", codes)
    elif quantization.operator == "quant.min_max_linear_quantize":
        low, part = _along(attributes, "min", codes), (codes + _shift(attributes)) / _steps(attributes)
        size = _along(attributes, "max", codes) - low
    else:
        return None
    numbers: Array = part * size + low
    return numbers


def _along(attributes: Mapping[str, Value], name: str, codes: Array) -> Array:
    """An attribute as an array that broadcasts along the channel axis."""
    values = np.asarray(attributes[name], np.float64)
    if values.size <= 1:
        return values.reshape(())
    shape = [1] * codes.ndim
    shape[_integer(attributes, "channel_axis")] = -1
    return values.reshape(shape)


def _integer(attributes: Mapping[str, Value], name: str) -> int:
    value = attributes[name]
    return int(value) if isinstance(value, int) else 0


def _shift(attributes: Mapping[str, Value]) -> float:
    """The code that stands for the minimum, negated."""
    if not attributes["signed"]:
        return 0.0
    return float((1 << _integer(attributes, "bits") - 1) - bool(attributes["symmetric"]))


def _steps(attributes: Mapping[str, Value]) -> float:
    """How many steps lie between the minimum and the maximum."""
    narrowed = bool(attributes["signed"] and attributes["symmetric"])
    return float((1 << _integer(attributes, "bits")) - 1 - narrowed)


TENSOR_FILE, STORE_FILE = ".dat", ".safetensors"


class FoundWeights(NamedTuple):
    """The arrays of variables by name, and what was wrong with the rest."""

    arrays: Mapping[str, Array]
    findings: tuple[Diagnostic, ...]


class _Source(NamedTuple):
    """One stored array that is not read yet."""

    file: str
    read: Callable[[], Stored | Array]


def read_weights(path: Path, graph: Graph, limits: Limits = DEFAULT) -> FoundWeights:
    """The data of every variable of a graph from a folder or a file.

    Variable `blk.w` of graph `G` is stored as `blk.w` or `main.G.blk.w`. A folder holds one `.dat` file for each
    variable, or `.safetensors` files.
    """
    try:
        sources = _sources(path, limits)
    except LamellaError as problem:
        return FoundWeights({}, problem.findings)
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
    return FoundWeights(arrays, tuple(findings))


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
    return _stored(file, decode_safetensors(map_bytes_in(folder, path.name, limits).data, file))


def _sources_in(path: Path, limits: Limits) -> dict[str, list[_Source]]:
    file = shown(path)
    if path.suffix == TENSOR_FILE:
        return {path.name.removesuffix(TENSOR_FILE): [_Source(file, lambda: read_dat(path, limits))]}
    if path.suffix != STORE_FILE:
        hint = "weights are a folder of .dat files or a .safetensors file"
        raise InputError(f"'{file}' is no file of weights", path=file, hint=hint)
    return _stored(file, decode_safetensors(map_bytes(path, limits).data, file))


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
        write_safetensors(path, {name: _in_bytes(array) for name, array in chosen.items()})
        return (path,)
    images = {path / _file_name(name): encode_dat(array, name) for name, array in chosen.items()}
    make_folder(path)
    for file, image in images.items():
        write_bytes(file, image)
    return tuple(images)


def _in_bytes(array: Array) -> Array:
    """Integers of less than a byte as bytes, since the format has no name for them; a variable takes them back."""
    element = element_type_of(array.dtype)
    if element is None or not element.is_integer or element.bits >= 8:
        return array
    return cast(array, types.I8 if element.minimum else types.U8)


def _file_name(variable: str) -> str:
    """The file of a variable; names from other formats may lead elsewhere, and are refused."""
    if "/" in variable or "\0" in variable or variable.startswith("."):
        what, reason = "a variable", "its name is no name of a file"
        refuse(rules.NOT_EXPRESSIBLE.at(whole(variable), name=variable, what=what, reason=reason))
    return f"{variable}{TENSOR_FILE}"
