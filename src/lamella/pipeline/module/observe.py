"""Runs of a model that are watched: what hooks and probes see, and whether its assertions hold."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lamella.backend.drawing import Drawn
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, printable
from lamella.base.placement import OperationPlacement, placement_of
from lamella.bridge.module_to_graph import Compiled, Mark
from lamella.bridge.module_to_ir.graph import layer_of
from lamella.graph.model import Model, Place
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import copy_of, results_of
from lamella.lang.module.annotations.arguments import tensors_in
from lamella.lang.module.instantiate import Instance, children_at
from lamella.lang.module.nodes import Bool, Call, Chain, Expr, Index, Integer, Member, Name, Real, Unary
from lamella.lang.module.rules.annotated import ASSERTION
from lamella.pipeline.backends import make_executable
from lamella.pipeline.module.execution import build_compiled, settings_of
from lamella.pipeline.module.folders import read_source
from lamella.pipeline.module.regions import find_regions
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.specialise import with_extents

# --- conditions of `@assert` and `@probe` on the numbers of a run -------------------------------------------


Held: TypeAlias = "Array | float | int | bool"
FUNCTIONS: Mapping[str, Callable[[Array], Held]] = MappingProxyType(
    {
        "has_nan": lambda x: bool(np.isnan(x).any()),
        "has_inf": lambda x: bool(np.isinf(x).any()),
        "has_nan_or_inf": lambda x: not bool(np.isfinite(x).all()),
        "all": lambda x: bool(np.all(x)),
        "any": lambda x: bool(np.any(x)),
        "min": lambda x: float(np.min(x)),
        "max": lambda x: float(np.max(x)),
        "abs": np.abs,
        "mean": lambda x: float(np.mean(x)),
        "norm": lambda x: float(np.linalg.norm(x)),
    }
)
SIGNS: Mapping[str, Callable[[Held, Held], Held]] = MappingProxyType(
    {
        **{"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le},
        **{">": operator.gt, ">=": operator.ge, "+": operator.add, "-": operator.sub},
        **{"*": operator.mul, "/": operator.truediv},
        **dict.fromkeys(("&&", "and"), np.logical_and),
        **dict.fromkeys(("||", "or"), np.logical_or),
    }
)


def is_true(condition: Expr, find: Callable[[str], Held]) -> bool:
    """Whether a condition holds; `find` gives the numbers of a tensor or the value of a name."""
    with np.errstate(all="ignore"):
        return bool(np.all(_value(condition, find)))


def _value(expr: Expr, find: Callable[[str], Held]) -> Held:
    if isinstance(expr, Integer | Real | Bool):
        return expr.value
    if isinstance(expr, Name):
        return find(expr.id)
    if isinstance(expr, Unary):
        operand = _value(expr.operand, find)
        return -operand if expr.sign == "-" else np.logical_not(operand)
    if isinstance(expr, Call) and isinstance(expr.callee, Name):
        return FUNCTIONS[expr.callee.id](np.asarray(_value(expr.arguments[0].value, find)))
    if isinstance(expr, Index):
        return _extent(expr, find)
    if isinstance(expr, Chain):
        held = _value(expr.first, find)
        for sign, item in expr.rest:
            held = SIGNS[sign](held, _value(item, find))
        return held
    raise LookupError(expr.span.text)


def _extent(expr: Index, find: Callable[[str], Held]) -> int:
    """`x.shape[i]`."""
    owner, item = expr.operand, expr.items[0]
    if not isinstance(owner, Member) or not isinstance(item, Integer | Unary):
        raise LookupError(expr.span.text)
    axis = _value(item, find)
    shape = np.shape(np.asarray(_value(owner.operand, find)))
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        raise LookupError(expr.span.text)
    return int(shape[axis])


TRACE = "trace"
SEEN = ("hook", "probe", TRACE)
SHOWN = 8
"""Numbers that a trace of values prints."""
WATCHED = (*SEEN, "assert")
PREFIX = "observed "
GRADIENT = "grad_"
"""How the captures of probes begin that look at gradients, which only training has."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The outputs of a run, a line for each place that was watched, and the assertions that are false."""

    outputs: Mapping[str, Array]
    lines: tuple[str, ...]
    findings: tuple[Diagnostic, ...]
    drawn: Drawn = field(default_factory=Drawn)
    """What the run drew."""
    placement: tuple[OperationPlacement, ...] = ()
    """Where its operations ran, on a backend that runs kernels."""


def observe(
    path: Path, options: Options, inputs: Mapping[str, npt.ArrayLike], backend: str | None = None
) -> Observed:
    """Run a model once, and look at the tensors that its annotations name."""
    source = read_source(path, options)
    compiled, model = build_compiled(source, options, settings_of(source.program, options))
    watch = _Watch(compiled, source.instance)
    widened = with_extents(watch.widen(model), options)
    run = make_executable(widened, backend, options)
    found = run(**inputs)
    values = {name.removeprefix(PREFIX): found.pop(name) for name in list(found) if name.startswith(PREFIX)}
    lines, findings = watch.report(values)
    return Observed(found, tuple(lines), (*run.findings, *findings), run.drawn, tuple(placement_of(run)))


class _Watch:
    """The tensors that annotations name, and what is said of their numbers."""

    def __init__(self, compiled: Compiled, root: Instance) -> None:
        self._marks = [item for item in compiled.marks if item.annotation.name in WATCHED]
        self._marks += _traced(compiled, root)
        self._forward = [item for item in self._marks if not _is_of_gradient(item)]
        self._names = dict(compiled.names)
        self._root = root

    def widen(self, model: Model) -> Model:
        """The model with what is watched as further outputs."""
        wanted = {item.name: item for item in self._wanted()}
        copies = [replace(item, name=f"{PREFIX}{item.name}", quantization=None) for item in wanted.values()]
        made = (copy_of(item, copy) for item, copy in zip(wanted.values(), copies, strict=True))
        graph = model.graph
        nodes, outputs = (*graph.nodes, *made), (*graph.outputs, *copies)
        return replace(model, graph=replace(graph, nodes=nodes, outputs=outputs))

    def _wanted(self) -> Iterator[Tensor]:
        for mark in self._forward:
            yield mark.tensor
            condition = mark.arguments.get("condition")
            for name in tensors_in(condition) if isinstance(condition, Expr) else ():
                tensor = self._names.get(_place(mark.path, name.id))
                if tensor is not None:
                    yield tensor

    def report(self, values: Mapping[str, Array]) -> tuple[list[str], list[Diagnostic]]:
        """A line for each place, and a finding for each assertion that is false."""
        lines: list[str] = []
        findings: list[Diagnostic] = []
        for mark in self._forward:
            holds = self._holds(mark, values)
            if mark.annotation.name == "assert":
                findings += [] if holds else [self._false(mark)]
            elif holds:
                lines.append(_line(mark, values[mark.tensor.name]))
        return lines, findings

    def _holds(self, mark: Mark, values: Mapping[str, Array]) -> bool:
        """Whether the condition of a mark is true; one without a condition always is."""
        condition = mark.arguments.get("condition")
        if not isinstance(condition, Expr) or mark.arguments.get("enabled") is False:
            return True
        try:
            return is_true(condition, self._finder(mark, values))
        except LookupError:
            return False

    def _finder(self, mark: Mark, values: Mapping[str, Array]) -> Callable[[str], Held]:
        """What a name in the condition of a mark means: a tensor of its declaration, or a value of it."""
        owner = mark.path.rpartition(".")[0]
        instance = children_at(self._root, owner) if owner else self._root

        def find(name: str) -> Held:
            tensor = self._names.get(_place(mark.path, name))
            if tensor is not None and tensor.name in values:
                return values[tensor.name]
            known = instance.values.get(name) if isinstance(instance, Instance) else None
            if known is None or not isinstance(known.value, int | float):
                raise LookupError(name)
            return known.value

        return find

    def places(self) -> Iterator[Place]:
        """The hooks, probes, assertions and traces as others may use them."""
        for mark in self._marks:
            kind = mark.annotation.name
            if kind == TRACE:
                level = str(mark.arguments.get("level"))
                yield Place(kind, mark.path, mark.tensor.name, mark.path, capture=level)
            else:
                condition = mark.arguments.get("condition")
                names = tensors_in(condition) if isinstance(condition, Expr) else ()
                found = (self._names.get(_place(mark.path, name.id)) for name in names)
                yield Place(
                    kind,
                    str(mark.arguments.get("point" if kind == "hook" else "name")),
                    mark.tensor.name,
                    mark.path,
                    layer_of(mark.path),
                    str(mark.arguments.get("mode", "observe")),
                    _whole(mark.arguments.get("priority"), 0),
                    str(mark.arguments.get("capture", "stats")),
                    max(1, _whole(mark.arguments.get("frequency"), 1)),
                    tuple(item.name for item in found if item is not None),
                    partial(self._holds, mark) if isinstance(condition, Expr) else None,
                    self._false(mark) if kind == "assert" else None,
                )

    def _false(self, mark: Mark) -> Diagnostic:
        text = mark.arguments.get("message")
        said = f": {text}" if isinstance(text, str) else ""
        return ASSERTION.at(mark.annotation.span, name=mark.path, message=said)


def find_places(compiled: Compiled, root: Instance) -> tuple[Place, ...]:
    """The hooks, probes, assertions and traces of a model, for those who want to watch it."""
    watch = _Watch(compiled, root)
    return tuple(watch.places())


def _is_of_gradient(mark: Mark) -> bool:
    """Whether a probe looks at a gradient, which a run forward has not."""
    return str(mark.arguments.get("capture", "")).startswith(GRADIENT)


def _place(path: str, name: str) -> str:
    """The path of a name of the declaration in which a tensor stands."""
    owner = path.rpartition(".")[0]
    return f"{owner}.{name}" if owner else name


def _whole(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def _traced(compiled: Compiled, root: Instance) -> Iterator[Mark]:
    """A trace of each tensor with a name in the declarations, graphs and instances that are traced."""
    for region in find_regions(TRACE, compiled, root):
        made = {item.name for node in region.nodes for item in results_of(node)}
        for path, tensor in compiled.names if not region.is_statement else ():
            if tensor.name in made and (not region.path or path.startswith(f"{region.path}.")):
                yield Mark(path, tensor, region.annotation, region.arguments)


def trace_line(path: str, level: str, values: Array) -> str:
    """What a trace tells: that an operation ran, with shapes on request, with numbers on request."""
    text = f"trace {printable(path)}"
    if level == "ops":
        return text
    text += f": {values.dtype} {_extents(values)}"
    if level == "tensors":
        return text
    first = ", ".join(f"{number:.6g}" for number in values.reshape(-1)[:SHOWN].astype(np.float64))
    more = ", …" if values.size > SHOWN else ""
    return f"{text}, {_statistics(values)}, values {first}{more}"


def _extents(values: Array) -> str:
    return "×".join(map(str, values.shape)) or "scalar"


def _statistics(values: Array) -> str:
    numbers = values.astype(np.float64) if values.size else np.zeros(1)
    spread = f"from {numbers.min():.4g} to {numbers.max():.4g}"
    return f"mean {numbers.mean():.4g}, deviation {numbers.std():.4g}, {spread}"


def _line(mark: Mark, values: Array) -> str:
    """What a hook, a probe or a trace sees of a tensor."""
    kind = mark.annotation.name
    if kind == TRACE:
        return trace_line(mark.path, str(mark.arguments.get("level")), values)
    title = mark.arguments.get("point") or mark.arguments.get("name") or ""
    stats = f"{values.dtype} {_extents(values)}, {_statistics(values)}"
    return f"{kind} {printable(str(title))} {printable(mark.path)}: {stats}".replace("  ", " ")
