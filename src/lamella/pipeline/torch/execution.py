"""Files of torch.export for the API: load; what is loaded is a graph."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import TypeGuard, cast
from zipfile import ZipFile

from lamella.base.diagnostic import Diagnostic, LamellaError, Rule
from lamella.base.errors import InputError, Malformed
from lamella.base.jsontext import decode_json
from lamella.base.limits import Limits
from lamella.base.optional import need
from lamella.base.paths import map_bytes, shown
from lamella.base.source import Binary, Span
from lamella.bridge.torch_to_graph import torch_to_graph
from lamella.bridge.torch_to_graph.program import first_line, torch_errors
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.lang.skriptnd.rules import exports
from lamella.lang.skriptnd.rules.exports import BROKEN_FILE
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.specialise import with_extents

# --- what is in a .pt2 file, looked at before PyTorch loads it ----------------------------------------------


WEIGHTS, CONSTANTS = "data/weights/model_weights_config.json", "data/constants/model_constants_config.json"
PROGRAM, SAMPLES = "models/model.json", "data/sample_inputs/model.pt"
AXES = "extra/axes.json"
"""Where a file may name its open extents, which PyTorch itself does not keep: `{"x": {"0": "batch"}}`."""
PLAIN = re.compile(
    r"data/(?:weights/weight_\d+|constants/tensor_\d+)|extra/.*|archive_format|archive_version|byteorder"
    r"|\.data/\w+|\.format_version|\.storage_alignment|version"
)
"""Records that are bytes, numbers or short words."""
TARGET = re.compile(
    r"torch\.ops\.(?:aten|prims)\.\w+(?:\.\w+)?|torch\.sym_\w+|torch\._sym_sqrt"
    r"|torch\.ops\.higher_order\.(?:cond|while_loop|map_impl|scan|associative_scan|wrap_with_\w+)"
    r"|math\.(?:ceil|floor|trunc)"
    r"|_operator\.(?:add|sub|mul|floordiv|truediv|mod|pow|neg|getitem|eq|ne|lt|le|gt|ge|and_|or_|not_)"
)
"""What a node may call: operations that compute, and arithmetic of sizes."""
FORBIDDEN = re.compile(r"from_file|save|load|print|_cuda|record_stream|set_\b")
TOKEN = re.compile(r"'\w{1,64}'|\"\w{1,64}\"|[A-Za-z_]\w{0,40}|-?\d{1,20}|[(), =]")
WORDS = frozenset(
    [
        *(
            "Symbol",
            "Integer",
            "Rational",
            "Add",
            "Mul",
            "Pow",
            "Max",
            "Min",
            "Mod",
            "Eq",
            "Ne",
            "Lt",
            "Le",
            "Gt",
        ),
        *(
            "Ge",
            "And",
            "Or",
            "Not",
            "true",
            "false",
            "True",
            "False",
            "integer",
            "positive",
            "nonnegative",
            "real",
        ),
        *("FloorDiv", "CeilDiv", "CleanDiv", "PythonMod", "ModularIndexing", "PowByNatural", "CeilToInt"),
        *("FloorToInt", "ToFloat", "TruncToInt", "IntTrueDiv", "FloatTrueDiv", "Where", "Float", "nonzero"),
        *("Equality", "Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan"),
    ]
)
"""Names in the text of a symbolic size."""
LONGEST = 4000


class _Archive:
    """The records of a file, as PyTorch reads them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader = need("torch")._C.PyTorchFileReader(str(path))
        self.names = [str(name) for name in self._reader.get_all_records()]

    def size(self, name: str) -> int:
        """The bytes of a record; torch tells them since 2.13, before it the directory of the archive does."""
        if hasattr(self._reader, "get_record_size"):
            return int(self._reader.get_record_size(name))
        with ZipFile(self._path) as archive:
            sizes = (item.file_size for item in archive.infolist() if item.filename.endswith(f"/{name}"))
            return next(sizes, 0)

    def read(self, name: str) -> bytes:
        """A record."""
        return cast("bytes", self._reader.get_record(name))

    def read_json(self, name: str) -> object:
        """The value of a record; its depth does not matter, because nothing here recurses over it."""
        try:
            return decode_json(self.read(name), max_depth=None)
        except Malformed as problem:
            raise Malformed(f"record '{name}' {problem}") from None


def trees_of(path: Path) -> list[str]:
    """The texts of the trees in which the program of an inspected file takes arguments and gives results."""
    entries = _entries(_Archive(path).read_json(PROGRAM))
    return [
        value for key, value in entries if key in ("in_spec", "out_spec") and isinstance(value, str) and value
    ]


def axes_of_file(path: Path, limits: Limits) -> dict[str, dict[int, str]]:
    """The names that an inspected file gives to the open extents of its inputs, by input and axis."""
    archive = _Archive(path)
    if AXES not in archive.names:
        return {}
    problem = limits.excess("max_file_bytes", archive.size(AXES), f"record '{AXES}' in bytes")
    if problem is not None:
        raise InputError(problem, path=path)
    try:
        found = archive.read_json(AXES)
    except Malformed:
        found = None
    if not _is_axes(found, limits.max_name):
        hint = 'it is written as {"x": {"0": "batch"}}: for each input the names of axes'
        raise InputError(f"record '{AXES}' does not name axes of inputs", path=path, hint=hint)
    return {name: {int(axis): str(word) for axis, word in axes.items()} for name, axes in found.items()}


def _is_axes(found: object, longest: int) -> TypeGuard[Mapping[str, Mapping[str, str]]]:
    """Whether a JSON text names axes of inputs."""
    return isinstance(found, Mapping) and all(
        isinstance(axes, Mapping)
        and all(
            re.fullmatch(r"[0-9]{1,3}", axis)
            and isinstance(word, str)
            and word.isidentifier()
            and len(word) <= longest
            for axis, word in axes.items()
        )
        for axes in found.values()
    )


def inspect_archive(path: Path, limits: Limits) -> list[Diagnostic]:
    """What makes a file unreadable or unsafe; nothing where PyTorch may load it."""
    map_bytes(path, limits)
    place = Span(Binary(shown(path)), 0, 0)

    def report(rule: Rule, reason: str) -> list[Diagnostic]:
        return [rule.at(place, reason=reason)]

    try:
        archive = _Archive(path)
        broken = _what_is_broken(archive, limits)
        if broken is not None:
            return report(exports.BROKEN_FILE, broken)
        unsafe = next(_what_is_unsafe(archive), None)
    except _failures() as problem:
        return report(exports.BROKEN_FILE, first_line(problem))
    return [] if unsafe is None else report(exports.UNSAFE_FILE, unsafe)


def _failures() -> tuple[type[Exception], ...]:
    """What reading a file may raise, here or in PyTorch."""
    return (Malformed, *torch_errors())


def _what_is_broken(archive: _Archive, limits: Limits) -> str | None:
    if len(archive.names) > limits.max_records:
        return f"it has {len(archive.names)} records; the limit max_records is {limits.max_records}"
    missing = [name for name in (PROGRAM, WEIGHTS, CONSTANTS, SAMPLES) if name not in archive.names]
    if missing:
        return f"record '{missing[0]}' is missing"
    for name in (PROGRAM, WEIGHTS, CONSTANTS, SAMPLES):
        problem = limits.excess("max_file_bytes", archive.size(name), f"record '{name}' in bytes")
        if problem is not None:
            return problem
    empty = next(_empty_tensors(archive), None)
    if empty is not None:
        return empty
    total = sum(map(archive.size, archive.names))
    return limits.excess("max_data_bytes", total, "all records in bytes")


def _empty_tensors(archive: _Archive) -> Iterator[str]:
    """Tensors that promise elements and have no bytes: PyTorch would make room for them."""
    for name in (WEIGHTS, CONSTANTS):
        folder = name.rpartition("/")[0]
        for key, item in _entries(archive.read_json(name)):
            if isinstance(item, Mapping) and isinstance(item.get("tensor_meta"), Mapping):
                record = f"{folder}/{item.get('path_name')}"
                sizes = [
                    size for word, size in _entries(item["tensor_meta"].get("sizes")) if word == "as_int"
                ]
                if record in archive.names and not archive.size(record) and 0 not in sizes:
                    yield f"tensor '{key}' has no bytes"


def _what_is_unsafe(archive: _Archive) -> Iterator[str]:
    names = [name.lower() for name in archive.names]
    if len(set(names)) != len(names):
        yield "two records have one name"
    for name in archive.names:
        if name not in (PROGRAM, WEIGHTS, CONSTANTS, SAMPLES) and not PLAIN.fullmatch(name):
            yield f"record '{name}' is not one of tensors"
    for name in (WEIGHTS, CONSTANTS):
        yield from _pickled(name, archive.read_json(name))
    if not _is_plain(archive.read(SAMPLES)):
        yield "its sample inputs are objects, not tensors"
    for key, value in _entries(archive.read_json(PROGRAM)):
        reason = _CHECKS[key](value) if key in _CHECKS else None
        if reason is not None:
            yield reason


def _pickled(name: str, config: object) -> Iterator[str]:
    for key, value in _entries(config):
        if key == "use_pickle" and value is not False:
            yield f"'{name}' names a pickled object"
        if key == "path_name" and not re.fullmatch(r"(?:weight|tensor)_\d+", str(value)):
            yield f"'{name}' names '{value}'"


def _is_plain(sample: bytes) -> bool:
    """Whether the sample inputs load as tensors alone; PyTorch would unpickle anything else."""
    if not sample:
        return True
    torch = need("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.load(BytesIO(sample), weights_only=True)
        except torch_errors():
            return False
    return True


def _entries(tree: object) -> Iterator[tuple[str, object]]:
    """Every key of a JSON text with its value, wherever it stands."""
    waiting = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            yield from item.items()
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _check_target(value: object) -> str | None:
    """What a node calls; an entry that is no word is a tensor of that name."""
    if not isinstance(value, str) or (TARGET.fullmatch(value) and not FORBIDDEN.search(value)):
        return None
    return f"a node calls '{value[:80]}'"


def _check_expression(value: object) -> str | None:
    text = str(value)[: LONGEST + 1]
    words = TOKEN.findall(text)
    known = all(word in WORDS or not (word[0].isalpha() or word[0] == "_") for word in words)
    if known and len(text) <= LONGEST and "".join(words) == text:
        return None
    return f"a size is '{text[:80]}'"


def _check_ranges(value: object) -> str | None:
    names = value if isinstance(value, Mapping) else {}
    odd = next((name for name in names if not re.fullmatch(r"[\w *+()/-]{1,200}", str(name))), None)
    return None if odd is None else f"a size is '{odd[:80]}'"


def _check_tree(value: object) -> str | None:
    """Trees are JSON in JSON; a default dictionary names a module to import."""
    return "a tree of arguments imports a module" if "default_factory" in str(value) else None


_CHECKS: Mapping[str, Callable[[object], str | None]] = MappingProxyType(
    {
        "target": _check_target,
        "expr_str": _check_expression,
        "range_constraints": _check_ranges,
        "in_spec": _check_tree,
        "out_spec": _check_tree,
    }
)


# --- stand-ins for the classes in which a module gave its results, where the package that defines -----------


@contextmanager
def known_containers(trees: Iterable[str]) -> Iterator[None]:
    """PyTorch reads these texts of trees meanwhile; it refuses classes that nobody has registered."""
    registry = need("torch.utils._pytree")
    known = registry.SERIALIZED_TYPE_TO_PYTHON_TYPE
    names = dict.fromkeys(name for text in trees for name in _types(text) if name not in known)
    made = [_stand_in(name, registry._private_register_pytree_node) for name in names]
    try:
        yield
    finally:
        for item in made:
            registry._deregister_pytree_node(item)


def _types(text: str) -> Iterator[str]:
    """The names of all classes in a tree."""
    waiting: list[object] = [decode_json(text, max_depth=None)]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            name = item.get("type")
            if isinstance(name, str):
                yield name
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _stand_in(name: str, register: Callable[..., None]) -> type[object]:
    """A class with children and a context, like any container."""

    def hold(children: Iterable[object], context: object) -> object:
        found = made()
        found.__dict__.update(children=list(children), context=context)
        return found

    made = type(name.rpartition(".")[2], (), {})
    register(
        made,
        lambda item: (item.children, item.context),
        hold,
        serialized_type_name=name,
    )
    return made


def load(path: Path, options: Options) -> Model:
    """The graph of a .pt2 file; LamellaError holds all findings when something is wrong.

    PyTorch's own loader runs code that a file brings: it unpickles custom objects, imports compiled libraries and
    evaluates texts. The file is inspected first, and everything of that kind is refused.
    """
    _require_safe(path, options.limits)
    axes = axes_of_file(path, options.limits)
    try:
        with known_containers(trees_of(path)):
            found = torch_to_graph(_program(path), options.limits, axes)
    except _failures() as problem:
        # A file can say what no export says, and PyTorch finds out anywhere.
        place = Span(Binary(shown(path)), 0, 0)
        raise LamellaError([BROKEN_FILE.at(place, reason=first_line(problem))]) from problem
    _require_open(found, axes, path)
    return with_extents(found, options)


@contextmanager
def opened_program(path: Path, limits: Limits) -> Iterator[object]:
    """The program of a .pt2 file as PyTorch itself runs it, inspected first; its results have their containers."""
    _require_safe(path, limits)
    with known_containers(trees_of(path)):
        try:
            program = _program(path)
        except _failures() as problem:
            place = Span(Binary(shown(path)), 0, 0)
            raise LamellaError([BROKEN_FILE.at(place, reason=first_line(problem))]) from problem
        yield program


def _require_safe(path: Path, limits: Limits) -> None:
    findings = inspect_archive(path, limits)
    if findings:
        raise LamellaError(findings)


def _require_open(model: Model, axes: Mapping[str, Mapping[int, str]], path: Path) -> None:
    """Refuse names for what is no open extent of an input."""
    shapes = {item.name: item.shape for item in model.graph.inputs if isinstance(item, Tensor)}
    for name, words in axes.items():
        shape = shapes.get(name)
        for axis, word in words.items():
            if shape is None or axis >= len(shape) or isinstance(shape[axis], int):
                hint = f"inputs are: {', '.join(shapes)}"
                raise InputError(
                    f"'{word}' names axis {axis} of '{name}', which is not open", path=path, hint=hint
                )


def _program(path: Path) -> object:
    package = need("torch.export.pt2_archive._package")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = package.load_pt2(str(path)).exported_programs["model"]
    # Guards are Python text from the file, which would be run; a graph checks its extents itself.
    found._guards_code = []
    return cast("object", found)
