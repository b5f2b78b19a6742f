"""Tensor parameters with their shapes, and what the others ask for."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.base.limits import Limits, OutOfRange, product
from lamella.base.source import Span
from lamella.lang.module.instantiate.bind import Names, evaluate_argument, match_arguments
from lamella.lang.module.instantiate.evaluate import evaluate, evaluate_int
from lamella.lang.module.instantiate.nodes import BuiltConstant, Known, TensorSlot
from lamella.lang.module.instantiate.telling import names_in, quote
from lamella.lang.module.nodes import (
    Annotation,
    Argument,
    ArrayType,
    ConfigParam,
    Constant,
    Dim,
    InstanceType,
    Name,
    Star,
    TensorType,
    Unchanged,
)
from lamella.lang.module.resolve.lineage import Generation, config_params, find_module, trace_lineage
from lamella.lang.module.resolve.near import guess
from lamella.lang.module.resolve.nodes import Declared, Scope
from lamella.lang.module.rules import constants as rules
from lamella.lang.module.rules import names as name_rules
from lamella.lang.module.rules import syntax
from lamella.lang.module.words import DTYPES, TABLES

LAYER = "layer"
"""In the arguments of an array's element, the index of that element."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An instance that is asked for: the declaration, where it is read, its arguments and the place that asks."""

    declared: Declared
    scope: Scope
    given: Mapping[str, Known]
    span: Span
    name: str = ""


def measure(
    name: str, kind: TensorType, names: Names, limits: Limits, annotations: tuple[Annotation, ...] = ()
) -> TensorSlot:
    """A tensor with all its extents; Found where one is not a size."""
    dims, dtype = _without_dtype(kind, names)
    if len(dims) > limits.max_rank:
        what = f"the rank of '{name}'"
        raise Found(syntax.LIMIT.at(kind.span, what=what, limit=limits.max_rank, option="max_rank"))
    sizes = tuple(_size(item, f"dimension {index} of '{name}'", names) for index, item in enumerate(dims))
    try:
        product(sizes)
    except OutOfRange:
        what, found = f"the number of elements of '{name}'", "too large"
        raise Found(rules.OUT_OF_RANGE.at(kind.span, what=what, found=found, repair="")) from None
    return TensorSlot(name, sizes, dtype, kind.optional, None, annotations, kind.span)


def _without_dtype(kind: TensorType, names: Names) -> tuple[tuple[Dim, ...], str | None]:
    """The dimensions and the element type, which may be a config parameter in the last place."""
    last = kind.dims[-1] if kind.dims else None
    known = names.known.get(last.id) if isinstance(last, Name) else None
    if kind.dtype is None and known is not None and isinstance(known.value, str) and known.value in DTYPES:
        return kind.dims[:-1], known.value
    return kind.dims, kind.dtype


def _size(dim: Dim, what: str, names: Names) -> int:
    if isinstance(dim, Star | Unchanged):
        found = "'*'" if isinstance(dim, Star) else "'...'"
        raise Found(rules.KIND.at(dim.span, what=what, found=found, wanted="a size", repair=""))
    size = evaluate_int(dim, names.known, what, names.around)
    if size < 0:
        raise Found(rules.KIND.at(dim.span, what=what, found=size, wanted="a size of 0 or more", repair=""))
    return size


def is_measurable(kind: TensorType, names: Names) -> bool:
    """Whether a shape is free of names that failed before."""
    return names.failed.isdisjoint(names_in(*kind.dims))


def count_elements(name: str, kind: ArrayType, names: Names, limits: Limits) -> int:
    """The length of an array; Found where it is none that we could build."""
    what = f"the length of '{name}'"
    count = _size(kind.size, what, names)
    if count > limits.max_operations:
        limit, told = limits.max_operations, f"{what}, {count},"
        raise Found(syntax.LIMIT.at(kind.size.span, what=told, limit=limit, option="max_operations"))
    return count


def ask(name: str, kind: InstanceType, generation: Generation, names: Names) -> Wanted | None:
    """The instance that a parameter wants; None where an argument has a mistake, which is then kept."""
    declared = find_module(kind, generation.scope)
    scope = generation.scope.of(declared)
    params = config_params(trace_lineage(declared, scope))
    before = len(names.findings.items)
    found = match_arguments(kind.module, params, kind.arguments, names.findings)
    given = {param.name: _give(found[param.name], param, names) for param in params if param.name in found}
    known = {key: value for key, value in given.items() if value is not None}
    if len(known) < len(given) or len(names.findings.items) > before:
        return None
    return Wanted(declared, scope, known, kind.span, name)


def _give(argument: Argument, param: ConfigParam, names: Names) -> Known | None:
    return names.attempt(argument.value, lambda: evaluate_argument(argument.value, param, names))


def uses_layer(kind: InstanceType, names: Names) -> bool:
    """Whether the elements of an array differ by their index; a declared name of that spelling is what it is."""
    used = names_in(*(argument.value for argument in kind.arguments))
    return LAYER not in names.known and LAYER in used


def with_layer(names: Names, index: int) -> Names:
    """The names as the arguments of one element see them."""
    known: ChainMap[str, Known] = ChainMap({LAYER: Known(index, "its place in the array")}, names.known)
    return replace(names, known=known)


def build_constants(constants: tuple[Constant, ...], names: Names) -> Iterator[tuple[str, BuiltConstant]]:
    """The entries of `constants:` with the values of their arguments; element types are words there."""
    types = {word: Known(word) for word in DTYPES} if constants else {}
    inner = replace(names, known=ChainMap(names.known, types))
    for constant in constants:
        wrong = tuple(_check_table(constant, names.module))
        inner.findings.add(*wrong)
        found = [(item.name, _argument(item, inner)) for item in constant.value.arguments]
        values = [(name, known.value) for name, known in found if known is not None]
        if len(values) == len(found) and not wrong:
            callee = constant.value.callee
            function = callee.id if isinstance(callee, Name) else quote(callee.span, "")
            positional = tuple(value for name, value in values if name is None)
            named = {name: value for name, value in values if name is not None}
            yield constant.name, BuiltConstant(function, positional, named, constant.span)


def _check_table(constant: Constant, module: str) -> Iterator[Diagnostic]:
    """Whether there is a function of that name."""
    callee = constant.value.callee
    name = callee.id if isinstance(callee, Name) else quote(callee.span, "this")
    if name not in TABLES:
        where = f"in the constants of '{module}'"
        repair = guess(name, TABLES) or f"there are {', '.join(sorted(TABLES))}"
        yield name_rules.UNKNOWN.at(callee.span, name=name, where=where, repair=repair)


def _argument(argument: Argument, names: Names) -> Known | None:
    return names.attempt(argument.value, lambda: Known(evaluate(argument.value, names.known, names.around)))
