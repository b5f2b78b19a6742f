"""What a descendant says again must be what its ancestor said."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import Limits
from lamella.base.source import Span
from lamella.lang.module.instantiate.bind import Names, runtime_dimension
from lamella.lang.module.instantiate.evaluate import Surroundings, evaluate
from lamella.lang.module.instantiate.inherit import Merged, Restated
from lamella.lang.module.instantiate.parameters import is_measurable, measure
from lamella.lang.module.instantiate.telling import quote
from lamella.lang.module.instantiate.walk import path_text
from lamella.lang.module.nodes import Dim, Name, Param, ParamType, Port, Star, TensorType, Unchanged
from lamella.lang.module.rules import inheritance as rules
from lamella.lang.module.rules import names as name_rules


def check_restated(merged: Merged, names: Names, limits: Limits) -> None:
    """Keep a finding for everything that is restated as something else, or added though it is there."""
    for param in merged.added_twice:
        where = f"'{merged.module.name}'"
        names.findings.add(
            name_rules.DUPLICATE.at(param.span, kind="parameter", name=path_text(param.path), where=where)
        )
    for item in merged.restated:
        finding = names.findings.attempt(partial(_compare, item, names, limits))
        if finding is not None:
            names.findings.add(finding)


def _compare(pair: Restated, names: Names, limits: Limits) -> Diagnostic | None:
    if isinstance(pair.now, Param) and isinstance(pair.before, Param):
        return _compare_params(pair, pair.now, pair.before, names, limits)
    if isinstance(pair.now, tuple) and isinstance(pair.before, tuple):
        return _compare_ports(pair, pair.now, pair.before, names)
    return None


def _compare_params(
    pair: Restated, now: Param, before: Param, names: Names, limits: Limits
) -> Diagnostic | None:
    if isinstance(now.type, TensorType) and isinstance(before.type, TensorType):
        if not (is_measurable(now.type, names) and is_measurable(before.type, names)):
            return None
        name = path_text(now.path)
        new, old = measure(name, now.type, names, limits), measure(name, before.type, names, limits)
        if (new.dims, new.dtype, new.optional) == (old.dims, old.dtype, old.optional):
            return None
        found, wanted = (_shape_text(item.dims, item.dtype, item.optional) for item in (new, old))
    elif now.type == before.type:
        return None
    else:
        found, wanted = _type_text(now.type), _type_text(before.type)
    return _differs(pair, f"'{path_text(now.path)}'", found, wanted, now.span)


def _shape_text(dims: Iterable[object], dtype: str | None, optional: bool) -> str:
    items = [*(str(item) for item in dims), *([dtype] if dtype else [])]
    return f"[{', '.join(items)}]{'?' if optional else ''}"


def _type_text(kind: ParamType) -> str:
    return f"'{quote(kind.span, type(kind).__name__)}'"


def _differs(pair: Restated, what: str, found: str, wanted: str, span: Span) -> Diagnostic:
    return rules.RESTATED.at(
        span,
        name=pair.child.module.name,
        what=what,
        parent=pair.parent.module.name,
        found=found,
        wanted=wanted,
    )


def _compare_ports(
    pair: Restated, now: tuple[Port, ...], before: tuple[Port, ...], names: Names
) -> Diagnostic | None:
    found, wanted = _signature(now, names), _signature(before, names)
    if found == wanted:
        return None
    forward = pair.child.module.forward
    what = "the inputs" if forward is not None and now is forward.inputs else "the outputs"
    span = now[0].span if now else pair.child.module.span
    return _differs(pair, what, _ports_text(now, names), _ports_text(before, names), span)


def _signature(ports: tuple[Port, ...], names: Names) -> list[object]:
    """Shapes in which a dimension of the inputs is the place of its first use, whatever it is called."""
    places: dict[str, int] = {}
    return [
        tuple(_place(item, names, places) for item in port.type.dims)
        if isinstance(port.type, TensorType)
        else port.type
        for port in ports
    ]


def _place(dim: Dim, names: Names, places: dict[str, int]) -> object:
    if isinstance(dim, Name) and dim.id not in names.known:
        return f"#{places.setdefault(dim.id, len(places))}"
    return _extent(dim, names)


def _extent(dim: Dim, names: Names) -> object:
    if isinstance(dim, Star | Unchanged):
        return "*" if isinstance(dim, Star) else "..."
    around = Surroundings(where=f"in '{names.module}'", runtime=runtime_dimension)
    return evaluate(dim, names.known, around)


def _ports_text(ports: tuple[Port, ...], names: Names) -> str:
    shapes = [
        _shape_text((_extent(item, names) for item in port.type.dims), None, port.type.optional)
        if isinstance(port.type, TensorType)
        else quote(port.span, "another kind")
        for port in ports
    ]
    return f"({', '.join(shapes)})" if len(shapes) != 1 else shapes[0]
