"""What a call declares: the tensors it starts from, its constants and variables, what updates them, its outputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from lamella.base.dtype import F32, ElementType
from lamella.base.errors import Found
from lamella.base.origin import Origin
from lamella.base.source import Span
from lamella.graph.compose.calls import BoundCall, describe, find_operator, given_attributes, given_types
from lamella.graph.compose.operations import argument_of, as_tensor, rename
from lamella.graph.compose.scope import (
    UNNAMED,
    BodyScope,
    LabelPath,
    Session,
    SingleName,
    SymbolTable,
    TensorName,
    names_in,
)
from lamella.graph.nodes import Constant, Quantization, Shape, Tensor, Update
from lamella.lang.skriptnd import nodes
from lamella.lang.skriptnd.nodes import Component, Operator
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.instance import Declared, Definition
from lamella.ops.instantiate import instantiate
from lamella.ops.scalars.values import Unknown

# --- `@quantize`: entries that wait for the tensors they name -----------------------------------------------


HIDDEN = "only variables, constants and the tensors of graphs and 'public' operators can be named"


class QuantizeEntry:
    """One line of `@quantize`, until its tensor is made."""

    def __init__(self, frame: BodyScope, text: nodes.Quantization) -> None:
        self.frame = frame
        self.text = text
        self.used = False
        self.hidden = False

    def bind(self, tensor: Tensor) -> Quantization | None:
        """The quantisation of the tensor; None where the operator does not take it, which is reported."""
        self.used = True
        frame, text = self.frame, self.text
        try:
            definition = find_operator(frame, text.operator, text.span)
            attributes = given_attributes(frame, text.attributes)
            types = given_types(frame, definition, text.types)
            bound = instantiate(
                frame.session.library, definition, [tensor], attributes, types, span=text.span
            )
        except Found as problem:
            frame.session.collect(frame.origin, problem)
            return None
        return Quantization(definition.name, bound.attributes)

    def miss(self) -> None:
        """Remember that only a hidden tensor has the name."""
        self.hidden = True

    def report(self) -> None:
        """Say so where no tensor came."""
        if not self.used:
            hint = HIDDEN if self.hidden else ""
            finding = rules.NO_TENSOR_TO_QUANTIZE.at(self.text.span, hint=hint, name=self.text.tensor)
            self.frame.session.report(self.frame.origin, finding)


def expect_quantized(frame: BodyScope, definition: Definition) -> None:
    """Wait for the tensors that an operator's `@quantize` names, and find those that others wait for here.

    A name may be full, as in `main.G.a`, or relative to the graph, as in `a`.
    """
    session, operator = frame.session, definition.operator
    for item in operator.items("quantize"):
        if isinstance(item, nodes.Quantization):
            tensor = item.tensor.removeprefix(f"{definition.name}.")
            session.quantizers[f"{frame.scope.prefix}{tensor}"] = QuantizeEntry(frame, item)
    if frame.exposed and session.quantizers:
        _share_names(frame, operator)


def _share_names(frame: BodyScope, operator: nodes.Operator) -> None:
    """The outputs of a public operator have two names, the caller's and their own; its inputs become copies."""
    session = frame.session
    renamed = dict(frame.outputs)
    for name, wanted in frame.outputs.items():
        entry, given = session.quantizers.get(frame.scope.name(name)), wanted.single()
        if entry is not None and given is not None:
            session.quantizers[given.name] = entry
            renamed[name] = SingleName(TensorName(given.name, True, given.promised))
    frame.outputs = renamed
    for parameter in operator.parameters("input"):
        name, tensor = frame.scope.name(parameter.name), frame.env.find(parameter.name)
        entry = session.quantizers.get(name)
        if isinstance(entry, QuantizeEntry) and isinstance(tensor, Tensor) and frame.origin is not None:
            frame.env[parameter.name] = rename(frame, tensor, TensorName(name, True), entry.text.span)


def report_missing(session: Session) -> None:
    """Report the entries for which no tensor came."""
    for entry in dict.fromkeys(session.quantizers.values()):
        if isinstance(entry, QuantizeEntry):
            entry.report()


def open_body(frame: BodyScope, call: BoundCall) -> BodyScope:
    """The frame of an operator's body, in which its inputs are tensors and its outputs go by the caller's names."""
    instance = call.instance
    operator = instance.definition.operator
    env = SymbolTable(instance.symbols)
    for name, _ in instance.inputs:
        env[name] = argument_of(frame, instance.symbols[name], call.span)
    real = instance.symbols.get("real")
    wanted = zip(instance.outputs, call.wanted, strict=True)
    return BodyScope(
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


def declare(frame: BodyScope, call: BoundCall) -> None:
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


def _declared(frame: BodyScope, declared: Declared, call: BoundCall) -> Iterator[Tensor]:
    """The tensors of a constant or variable, a packed one with numbers."""
    name = frame.scope.name(declared.name)
    if declared.items is None:
        yield _storable(frame, name, declared, declared.shape or (), call)
    for number, shape in enumerate(declared.items or ()):
        yield _storable(frame, f"{name}:{number + 1}", declared, shape, call)


def _storable(frame: BodyScope, name: str, declared: Declared, shape: Shape, call: BoundCall) -> Tensor:
    """A tensor that has exactly this name; a graph that is called again has the same variables."""
    session = frame.session
    known = session.variables.get(name)
    rooted = call.scope == LabelPath(f"{call.instance.definition.name}.")
    if rooted and known is not None and (known.element, known.shape) == (declared.element, shape):
        return known
    if session.names.is_taken(name):
        raise Found(rules.TAKEN_NAME.at(call.span, name=name, operator=call.instance.definition.name))
    origin = declared_at(call.instance.definition.operator, declared.name, call.origin)
    return session.tensor(TensorName(name, True, True), declared.element, shape, origin)


def declared_at(operator: Operator, name: str, above: Origin | None) -> Origin | None:
    """Where an input, variable or constant stands in its definition."""
    for section in ("input", "variable", "constant"):
        for parameter in operator.parameters(section):
            if parameter.name == name:
                return Origin(f"{section} {name}", parameter.span, above)
    return above


# --- updates ------------------------------------------------------------------------------------------------


def update(
    frame: BodyScope, call: BoundCall, compose: Callable[[BodyScope, Sequence[Component]], None]
) -> None:
    """Compose the new values of variables, which they take after the run."""
    operator = call.instance.definition.operator
    components = [item for item in operator.items("update") if isinstance(item, Component)]
    if not components:
        return
    if frame.session.regions:
        name = call.instance.definition.name
        raise Found(rules.UPDATE_IN_FLOW.at(call.span, operator=name))
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


def _update(frame: BodyScope, name: str, variable: object, span: Span) -> None:
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
