"""What a call declares: the tensors it starts from, its constants and variables, what updates them, its outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from lamella.base.dtype import F32, ElementType
from lamella.base.origin import Origin
from lamella.base.source import Span
from lamella.graph.compose.calls import Call
from lamella.graph.compose.operations import argument_of, as_tensor
from lamella.graph.compose.scope.frame import Frame, Meanings
from lamella.graph.compose.scope.names import Scope
from lamella.graph.compose.scope.session import Named
from lamella.graph.compose.scope.wanted import UNNAMED, names_in
from lamella.graph.compose.values import describe
from lamella.graph.nodes import Constant, Shape, Tensor, Update
from lamella.lang.skriptnd.nodes import Component, Operator
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.instance import Declared
from lamella.ops.problem import Problem
from lamella.ops.scalars.values import Unknown


def open_frame(frame: Frame, call: Call) -> Frame:
    """The frame of an operator's body, in which its inputs are tensors and its outputs go by the caller's names."""
    instance = call.instance
    operator = instance.definition.operator
    env = Meanings(instance.symbols)
    for name, _ in instance.inputs:
        env[name] = argument_of(frame, instance.symbols[name], call.span)
    real = instance.symbols.get("real")
    wanted = zip(instance.outputs, call.wanted, strict=True)
    return Frame(
        session=frame.session,
        module=instance.definition.module,
        compiler=frame.session.library.plan(instance.definition).compiler,
        types=instance.types,
        real=real if isinstance(real, ElementType) else F32,
        env=env,
        scope=call.scope,
        origin=call.origin,
        exposed=operator.public or operator.graph,
        outputs={declared.name: name for declared, name in wanted if name is not UNNAMED},
    )


# --- constants and variables --------------------------------------------------------------------------------


def declare(frame: Frame, call: Call) -> None:
    """Make the constants and variables of a call; both always go by their scoped names."""
    session, instance = frame.session, call.instance
    for declared, value in instance.constants:
        made = list(_declared(frame, declared, call))
        many = declared.items is not None and isinstance(value, tuple)
        values = value if many and isinstance(value, tuple) else (value,) * len(made)
        session.constants += [Constant(tensor, item) for tensor, item in zip(made, values, strict=True)]
        frame.env[declared.name] = made[0] if declared.items is None else tuple(made)
    for declared in instance.variables:
        made = list(_declared(frame, declared, call))
        session.variables |= {tensor.name: tensor for tensor in made}
        frame.env[declared.name] = made[0] if declared.items is None else tuple(made)


def _declared(frame: Frame, declared: Declared, call: Call) -> Iterator[Tensor]:
    """The tensors of a constant or variable, a packed one with numbers."""
    name = frame.scope.name(declared.name)
    if declared.items is None:
        yield _storable(frame, name, declared, declared.shape or (), call)
    for number, shape in enumerate(declared.items or ()):
        yield _storable(frame, f"{name}:{number + 1}", declared, shape, call)


def _storable(frame: Frame, name: str, declared: Declared, shape: Shape, call: Call) -> Tensor:
    """A tensor that has exactly this name; a graph that is called again has the same variables."""
    session = frame.session
    known = session.variables.get(name)
    rooted = call.scope == Scope(f"{call.instance.definition.name}.")
    if rooted and known is not None and (known.element, known.shape) == (declared.element, shape):
        return known
    if session.names.is_taken(name):
        raise Problem(rules.TAKEN_NAME.at(call.span, name=name, operator=call.instance.definition.name))
    origin = declared_at(call.instance.definition.operator, declared.name, call.origin)
    return session.tensor(Named(name, True, True), declared.element, shape, origin)


def declared_at(operator: Operator, name: str, above: Origin | None) -> Origin | None:
    """Where an input, variable or constant stands in its definition."""
    for section in ("input", "variable", "constant"):
        for parameter in operator.parameters(section):
            if parameter.name == name:
                return Origin(f"{section} {name}", parameter.span, above)
    return above


# --- updates ------------------------------------------------------------------------------------------------


def update(frame: Frame, call: Call, compose: Callable[[Frame, Sequence[Component]], None]) -> None:
    """Compose the new values of variables, which they take after the run."""
    operator = call.instance.definition.operator
    components = [item for item in operator.items("update") if isinstance(item, Component)]
    if not components:
        return
    if frame.session.regions:
        name = call.instance.definition.name
        raise Problem(rules.UPDATE_IN_FLOW.at(call.span, operator=name))
    variables = {item.name: frame.env[item.name] for item in call.instance.variables}
    compose(frame, components)
    for name, span in _updated(components, variables.keys()):
        _update(frame, name, variables[name], span)


def _updated(components: Sequence[Component], variables: Collection[str]) -> Iterator[tuple[str, Span]]:
    """The variables that components assign, each once."""
    found = {
        item.name: component.span
        for component in components
        for pattern in component.results
        for item in names_in(pattern)
    }
    return ((name, span) for name, span in found.items() if name in variables)


def _update(frame: Frame, name: str, variable: object, span: Span) -> None:
    value = frame.env[name]
    if isinstance(value, Unknown):
        return
    olds = variable if isinstance(variable, tuple) else (variable,)
    news = value if isinstance(value, tuple) else (value,)
    for old, new in zip(olds, news, strict=False):
        made = as_tensor(frame, new, f"the new value of '{name}'", span, old)
        if len(olds) != len(news) or (made.element, made.shape) != (old.element, old.shape):
            found, declared = describe(value), describe(variable)
            frame.session.report(
                frame.origin, rules.UPDATE_SHAPE.at(span, name=name, declared=declared, found=found)
            )
            return
        frame.session.updates.append(Update(old, made))
