"""Annotations: known, complete, in their place, not against each other: E008; and those without effect: W116."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.lang.module.annotations.arguments import read_annotation, tensors_in
from lamella.lang.module.annotations.table import (
    KINDS,
    PARAMETER,
    PARAMETER_MODES,
    STRATEGIES,
    AnnotationKind,
    ArgumentValue,
)
from lamella.lang.module.check.views import DeclarationView, Spot, flows_in, operations_of, spots_of
from lamella.lang.module.nodes import (
    Annotation,
    Argument,
    Backward,
    Call,
    Chain,
    Index,
    List,
    Member,
    Name,
    Recipe,
    Select,
    Text,
    Unary,
)
from lamella.lang.module.rules import annotated as rules
from lamella.lang.module.rules import names as name_rules
from lamella.lang.module.rules.annotated import INERT as RULE
from lamella.lang.module.rules.annotated import SILENT
from lamella.lang.module.suggest import Suggestions, suggest

# --- annotations without effect: read, checked and kept, and obeyed by nothing yet --------------------------


@dataclass(frozen=True, slots=True)
class Inert:
    """What has no effect: an annotation, in some places or in all, or an argument, with some values or with all."""

    argument: str = ""
    values: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    beside: tuple[str, tuple[str, ...]] = ("", ())
    """Another argument, and those values of it beside which this one says nothing."""


STAYING = "mode", ("save", "recompute", "temporary", "pin")
"""Modes of `@memory` by which nothing leaves the memory: how it would come and go says nothing then."""


def _unless(*strategies: str) -> tuple[str, tuple[str, ...]]:
    """Beside other strategies of `@scaling` than these."""
    return "strategy", tuple(item for item in STRATEGIES if item not in strategies)


INERT: Mapping[str, tuple[Inert, ...]] = MappingProxyType(
    {
        "kernel": (Inert("workspace"),),
        "memory": tuple(Inert(name, beside=STAYING) for name in ("priority", "prefetch", "async")),
        "scaling": (
            Inert("history_len", beside=_unless("delayed")),
            Inert("update_interval", beside=_unless("delayed")),
            Inert("block_size", beside=_unless("per_block")),
        ),
    }
)
"""For each annotation what of it nothing obeys; one that is not here has its effect."""


def find_inert(
    annotation: Annotation, place: str, arguments: Mapping[str, ArgumentValue]
) -> Iterator[Diagnostic]:
    """A note for an annotation that has no effect where it stands, or for each argument of it that has none."""
    known = INERT.get(annotation.name, ())
    rows = [row for row in known if not row.places or place in row.places]
    if any(not row.argument for row in rows):
        yield RULE.at(annotation.span, what=f"'@{annotation.name}'", place=place)
        return
    given = dict(_given(annotation))
    for row in rows:
        other, values = row.beside
        if row.argument not in given or (row.values and arguments.get(row.argument) not in row.values):
            continue
        argument = given[row.argument]
        shown = argument.span.text if argument.name else f"{row.argument}={argument.span.text}"
        if not other:
            yield RULE.at(argument.span, what=f"'{shown}' of '@{annotation.name}'", place=place)
        elif arguments.get(other) in values:
            said = f"'@{annotation.name}({arguments[other]})'"
            yield SILENT.at(argument.span, what=f"'{shown}'", said=said)


def _given(annotation: Annotation) -> Iterator[tuple[str, Argument]]:
    """The arguments that are written, by the names of their parameters."""
    names = [item.name for item in KINDS[annotation.name].parameters]
    for number, argument in enumerate(annotation.arguments):
        name = argument.name or (names[number] if number < len(names) else "")
        yield name, argument


ACTIVATION_SHARDS = ("sequence", "batch")
"""Strategies that divide what no parameter has."""
VIEWS = frozenset(("alias", "view", "reshape", "transpose", "permute", "contiguous", "split", "fork"))
"""Operations whose result may share the storage of what flows in."""
ADAPTER_ARGUMENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "lora": ("rank", "alpha", "dropout", "targets"),
        "ia3": ("targets",),
        "prefix": ("length", "hidden_dim"),
        "prompt": ("length",),
        "adapter": ("bottleneck_dim", "activation"),
    }
)
"""The arguments that each kind of adapter takes."""
_EXPRESSIONS = Name | Member | Index | Call | Chain | Unary | Select | List


def check_annotations(view: DeclarationView) -> Iterator[Diagnostic]:
    """What is wrong with the annotations of a declaration."""
    names = _names(view)
    for spot in spots_of(view.module):
        yield from _check_spot(spot, view, names)


def _check_spot(spot: Spot, view: DeclarationView, names: _AnnotationNames) -> Iterator[Diagnostic]:
    seen: list[str] = []
    for annotation in spot.annotations:
        reading = read_annotation(annotation, {}, view.constants)
        yield from reading.findings
        kind = KINDS.get(annotation.name)
        if kind is None:
            continue
        if not _fits(kind, spot):
            found, wanted = _found(spot), " or ".join(kind.places)
            yield rules.TARGET.at(annotation.span, name=kind.name, found=found, wanted=wanted)
        elif not reading.findings:
            yield from find_inert(annotation, spot.place, reading.arguments)
        yield from _check_clash(annotation, kind, seen)
        seen.append(kind.name)
        yield from _check_values(annotation, spot, reading.arguments, view)
        if kind.name == "lifetime":
            yield from _check_lifetime(annotation, reading.arguments, names)
        if view.inputs is not None:
            yield from _check_condition(annotation, reading.arguments.get("condition"), view, names)


# --- places -------------------------------------------------------------------------------------------------


def _fits(kind: AnnotationKind, spot: Spot) -> bool:
    if kind.name == "alias" and spot.operations:
        return _last_name(spot) in VIEWS
    return spot.place in kind.places


def _found(spot: Spot) -> str:
    return f"'{_last_name(spot)}'" if spot.operations else spot.place


def _last_name(spot: Spot) -> str:
    return spot.operations[-1].callee.span.text


def _check_clash(annotation: Annotation, kind: AnnotationKind, seen: list[str]) -> Iterator[Diagnostic]:
    """Annotations of one spot that cannot both hold."""
    for other in seen:
        if other == kind.name and not kind.repeated:
            yield rules.TWICE.at(annotation.span, name=kind.name)
            return
        if other in kind.excludes or kind.name in KINDS[other].excludes:
            yield rules.CLASH.at(annotation.span, name=other, other=kind.name)


# --- values -------------------------------------------------------------------------------------------------


def _check_values(
    annotation: Annotation, spot: Spot, arguments: Mapping[str, ArgumentValue], view: DeclarationView
) -> Iterator[Diagnostic]:
    """Values that depend on the place or on other declarations."""
    span, name = annotation.span, annotation.name
    mode = arguments.get("mode")
    if name == "memory" and spot.place == PARAMETER and mode is not None and mode not in PARAMETER_MODES:
        wanted = f"one of {', '.join(PARAMETER_MODES)}"
        yield rules.VALUE.at(
            span,
            name=name,
            argument="mode",
            found=f"'{mode}' on a parameter",
            wanted=wanted,
            repair="a parameter is not computed, it is kept or fetched",
        )
    if name == "gradient" and spot.place == PARAMETER and mode == "checkpoint":
        yield rules.VALUE.at(
            span,
            name=name,
            argument="mode",
            found="'checkpoint' on a parameter",
            wanted="compute, skip or accumulate",
            repair="a parameter is not computed, so that it cannot be computed again",
        )
    if name == "shard" and spot.place == PARAMETER and arguments.get("strategy") in ACTIVATION_SHARDS:
        yield rules.VALUE.at(
            span,
            name=name,
            argument="strategy",
            found=f"'{arguments['strategy']}' on a parameter",
            wanted="column, row, head, expert or replicated",
            repair="a parameter has neither sequences nor batches; mark the tensor that has them",
        )
    once = name in ("adapter", "checkpoint") or (name == "memory" and mode == "recompute")
    if spot.goes_back and (once or (name == "gradient" and mode == "checkpoint")):
        wanted = "a statement of the forward graph; gradients are computed once, and only there"
        said = name if mode is None else f"{name}({mode})"
        yield rules.TARGET.at(span, name=said, found="a gradient", wanted=wanted)
    if name == "gradient" and spot.port == "output" and mode in ("checkpoint", "accumulate"):
        wanted = "the statement that makes the tensor"
        yield rules.TARGET.at(span, name=f"gradient({mode})", found="an output", wanted=wanted)
    is_changed = mode not in (None, "skip")
    if name == "gradient" and (spot.port == "gradient" or (spot.port == "input" and is_changed)):
        wanted = "the statement that makes the tensor; an input may only be skipped"
        found = "an input" if spot.port == "input" else "a gradient"
        yield rules.TARGET.at(span, name=name, found=found, wanted=wanted)
    if name == "precision" and spot.place == PARAMETER and not arguments.get("storage", True):
        repair = "of a parameter the type of its storage is said"
        yield rules.MISSING.at(span, name=name, argument="storage", repair=repair)
    if name == "precision" and spot.place != PARAMETER and arguments.get("storage"):
        yield rules.ARGUMENT.at(
            span, name=name, argument="storage", repair="it belongs to a parameter; say output=… here"
        )
    if name == "adapter":
        yield from _check_adapter(annotation, str(arguments.get("type")))
    if name == "recipe" and isinstance(arguments.get("name"), str):
        yield from _check_recipe(annotation, str(arguments["name"]), view)


def _check_adapter(annotation: Annotation, type_: str) -> Iterator[Diagnostic]:
    """Every kind of adapter has arguments of its own."""
    own = ADAPTER_ARGUMENTS.get(type_)
    for argument in annotation.arguments:
        if own is not None and argument.name is not None and argument.name not in ("type", *own):
            repair = f"{type_} has {', '.join(own)}"
            yield rules.ARGUMENT.at(
                argument.span, name=annotation.name, argument=argument.name, repair=repair
            )


def _check_lifetime(
    annotation: Annotation, arguments: Mapping[str, ArgumentValue], names: _AnnotationNames
) -> Iterator[Diagnostic]:
    """A lifetime begins and ends at operations of the same declaration."""
    for name in ("start", "end"):
        found = arguments.get(name)
        if isinstance(found, str) and found not in names.operations:
            yield rules.VALUE.at(
                annotation.span,
                name=annotation.name,
                argument=name,
                found=f"'{found}'",
                wanted="an operation of this declaration",
                repair=names.near.suggest(found),
            )


def _check_recipe(annotation: Annotation, name: str, view: DeclarationView) -> Iterator[Diagnostic]:
    if view.scope is None:
        return
    found = view.scope.find(name)
    if found is None:
        known = (item for item, other in view.scope.local.items() if isinstance(other.declaration, Recipe))
        yield name_rules.UNKNOWN.at(annotation.span, name=name, where="here", repair=suggest(name, known))
    elif not isinstance(found.declaration, Recipe):
        yield rules.VALUE.at(
            annotation.span,
            name=annotation.name,
            argument="name",
            found=f"'{name}', no recipe",
            wanted="the name of a recipe",
            repair="declare it with recipe NAME:",
        )


def _check_condition(
    annotation: Annotation, condition: ArgumentValue, view: DeclarationView, names: _AnnotationNames
) -> Iterator[Diagnostic]:
    """The names that a condition reads."""
    if not isinstance(condition, _EXPRESSIONS):
        return
    quoted = any(isinstance(item.value, Text) for item in annotation.arguments)
    for name in tensors_in(condition):
        if name.id not in names.tensors and name.id not in view.constants:
            # A condition in a string is a text of its own: the place that counts is that of the annotation.
            span = annotation.span if quoted else name.span
            where, repair = f"in '{view.module.name}'", names.near.suggest(name.id)
            yield name_rules.UNKNOWN.at(span, name=name.id, where=where, repair=repair)


@dataclass(frozen=True, slots=True)
class _AnnotationNames:
    """The tensors that conditions may speak of, and the operations that lifetimes may."""

    tensors: frozenset[str]
    operations: frozenset[str]
    near: Suggestions


def _names(view: DeclarationView) -> _AnnotationNames:
    tensors = view.data_names() | {port.name or "out" for port in view.outputs or ()}
    operations: set[str] = set()
    for part in (view.module.forward, view.module.backward):
        if part is None:
            continue
        gradients = part.gradients if isinstance(part, Backward) else ()
        tensors |= {port.name or "in" for port in (*(part.inputs or ()), *gradients)}
        for flow in flows_in(part.graph or ()):
            tensors |= {target.name for target in flow.targets}
            operations |= {item.callee.span.text for item in operations_of(flow)}
    return _AnnotationNames(
        frozenset(tensors), frozenset(operations), Suggestions(lambda: tensors | operations)
    )
