"""Primitives: what they are implemented by, what they keep for their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Span
from lamella.lang.module.instantiate.telling import names_in
from lamella.lang.module.nodes import Call, Expr, Field, List, Member, Name, Primitive, Text
from lamella.lang.module.resolve.near import guess
from lamella.lang.module.rules import constants, gradients, names

IMPL, INVARIANTS, BACKWARD_USES = "impl", "invariants", "backward_uses"


def check_primitive(primitive: Primitive) -> Iterator[Diagnostic]:
    """What is wrong with the sections of a primitive."""
    if primitive.stub:
        return
    if primitive.forward is None:
        yield constants.MISSING_SECTION.at(
            primitive.span,
            module=primitive.name,
            section="forward section",
            repair="say what it takes and gives",
        )
        return
    for section in primitive.sections:
        if section.name == IMPL:
            yield from _check_impl(section, primitive)
        elif section.name == INVARIANTS and isinstance(section.value, tuple):
            yield from _check_invariants(section.value, primitive)
    yield from _check_save(primitive)


def _check_impl(section: Field, primitive: Primitive) -> Iterator[Diagnostic]:
    """Every way names an operator by its dotted name, or says in words what is done."""
    fields = section.value if isinstance(section.value, tuple) else (section,)
    for item in fields:
        if isinstance(item.value, str) or (not isinstance(item.value, tuple) and _is_operator(item.value)):
            continue
        yield constants.KIND.at(
            item.span,
            what=f"'{item.name}' of '{primitive.name}'",
            found="no name",
            wanted="the name of an operator",
            repair="write it as in forward: llm.rmsnorm",
        )


def _is_operator(value: Expr) -> bool:
    while isinstance(value, Member | Call):
        value = value.operand if isinstance(value, Member) else value.callee
    return isinstance(value, Name)


def tensors_of(primitive: Primitive) -> list[str]:
    """The inputs and outputs of a primitive, by name."""
    forward = primitive.forward
    if forward is None:
        return []
    inputs = [port.name or "in" for port in forward.inputs or ()]
    return [*inputs, *(port.name or "out" for port in forward.outputs or ())]


def _check_save(primitive: Primitive) -> Iterator[Diagnostic]:
    """What is saved is an input or an output."""
    known = tensors_of(primitive)
    condition = primitive.save.condition if primitive.save is not None else None
    params = [param.name for param in primitive.params]
    words = {word for param in primitive.params if param.type is not None for word in param.type.choices}
    for name in names_in(condition) if condition is not None else ():
        if condition is not None and name not in params and name not in words:
            where = f"among the parameters of '{primitive.name}'"
            yield names.UNKNOWN.at(condition.span, name=name, where=where, repair=guess(name, params))
            break
    for item in primitive.save.items if primitive.save is not None else ():
        if item.spread or any(fnmatchcase(name, item.text) for name in known):
            continue
        yield _unknown(item.text, item.span, primitive, known)


def _unknown(name: str, span: Span, primitive: Primitive, known: list[str]) -> Diagnostic:
    where = f"among the inputs and outputs of '{primitive.name}'"
    return names.UNKNOWN.at(span, name=name, where=where, repair=guess(name, known))


def _check_invariants(fields: tuple[Field, ...], primitive: Primitive) -> Iterator[Diagnostic]:
    """Tensors that the gradient uses are inputs or outputs, and they are saved."""
    known = tensors_of(primitive)
    saved = [item.text for item in primitive.save.items] if primitive.save is not None else []
    for field in fields:
        if field.name != BACKWARD_USES:
            continue
        for name in _listed(field):
            if name not in known:
                yield _unknown(name, field.span, primitive, known)
            elif not any(fnmatchcase(name, pattern) for pattern in saved):
                repair = f"add '{name}' to save:"
                yield gradients.NOT_SAVED.at(field.span, name=name, module=primitive.name, repair=repair)


def _listed(field: Field) -> list[str]:
    """The names in a list of a field."""
    items = field.value.items if isinstance(field.value, List) else (field.value,)
    texts = [
        item.id if isinstance(item, Name) else item.value if isinstance(item, Text) else "" for item in items
    ]
    return [text for text in texts if text]
