"""One call of an operator: attributes and shapes bound, assertions tested, outputs known."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.dim import TooComplex
from lamella.base.dtype import ElementType
from lamella.base.errors import Found
from lamella.base.source import NOWHERE, Span
from lamella.lang.skriptnd.rules.composition import TOO_MANY_ARGUMENTS
from lamella.lang.skriptnd.rules.invocation import TOO_COMPLEX
from lamella.lang.skriptnd.rules.names import GRAPH_ALWAYS_GIVEN
from lamella.ops.bind.attributes import AttributeBinder, take_steps, test_known
from lamella.ops.bind.declare import DeclarationBinder
from lamella.ops.bind.inputs import InputBinder, default_of
from lamella.ops.bind.plan import OperatorPlan
from lamella.ops.bind.state import CallBinding, TypeBinder, as_value
from lamella.ops.fault import Fault
from lamella.ops.instance import Argument, Declared, Definition, Instance, Value
from lamella.ops.library import Library
from lamella.ops.lower import contractions
from lamella.ops.memo import call_key

NOTHING: Mapping[str, Value] = MappingProxyType({})
NO_TYPES: Mapping[str, ElementType] = MappingProxyType({})


def instantiate(
    library: Library,
    definition: Definition,
    arguments: Sequence[Argument],
    attributes: Mapping[str, Value] = NOTHING,
    types: Mapping[str, ElementType] = NO_TYPES,
    results: Sequence[str] = (),
    span: Span = NOWHERE,
) -> Instance:
    """Bind a call; Found says what is wrong with it, at `span` with labels into the definition.

    `results` are the names of the results, for the symbols of extents that only the run tells.
    """
    plan, memo = library.plan(definition), library.calls(definition)
    key = call_key(plan, arguments, attributes, types, results)
    found = None if key is None else memo.find(key, arguments)
    if found is not None:
        return found
    binding, budget = CallBinding(plan, span), library.budget.left
    with findings_at_call(binding):
        found = _bind(binding, arguments, attributes, types, results)
    # Long packs are counted each time, so that a hostile text ends however often it asks for the same ones.
    if library.budget.left == budget:
        memo.keep(key, arguments, found)
        memo.keep(_graph_key(plan, found, results), [value for _, value in found.inputs], found)
    return found


def _graph_key(plan: OperatorPlan, instance: Instance, results: Sequence[str]) -> Hashable | None:
    """The key of the call as a graph holds it: every attribute, type and input is given, and no input is a scalar.

    Binding that again gives what it was written out from: a graph is bound when it is composed and when it is run.
    """
    arguments = [value for _, value in instance.inputs]
    items = [item for value in arguments for item in (value if isinstance(value, tuple) else (value,))]
    if not all(item is None or hasattr(item, "shape") for item in items):
        return None
    return call_key(plan, arguments, dict(instance.attributes), instance.types, results)


@contextmanager
def findings_at_call(binding: CallBinding) -> Iterator[None]:
    """Findings while binding, moved to the place of the call."""
    try:
        yield
    except Found as problem:
        raise Found(*(_at_call(item, binding) for item in problem.findings)) from None
    except Fault as fault:
        raise fault.at(binding.span) from None
    except TooComplex as problem:
        raise binding.problem(TOO_COMPLEX, what=problem) from None


def _at_call(finding: Diagnostic, binding: CallBinding) -> Diagnostic:
    """A finding inside the definition, moved to the call."""
    if binding.span is NOWHERE or finding.span is binding.span:
        return finding
    labels = (Label(finding.span, "here"), *finding.labels) if finding.span.source.text else finding.labels
    message = f"{binding.name}: {finding.message}"
    return Diagnostic(
        finding.code, finding.severity, message, binding.span, finding.hint, labels, finding.origins
    )


def _bind(
    binding: CallBinding,
    arguments: Sequence[Argument],
    attributes: Mapping[str, Value],
    types: Mapping[str, ElementType],
    results: Sequence[str],
) -> Instance:
    plan = binding.plan
    passed = _complete(binding, arguments)
    found = TypeBinder(binding, types)
    found.deduce(passed, attributes)
    bound = AttributeBinder(binding, attributes)
    bound.bind_given()
    inputs = InputBinder(binding, found)

    def bind_rest() -> None:
        inputs.bind_all(passed)
        bound.finish()

    binding.more = bind_rest
    take_steps(binding, plan.early)
    binding.more = None
    try:
        inputs.bind_all(passed)
    except Found:
        test_known(binding)
        raise
    bound.finish()
    take_steps(binding, plan.late)
    instance = finish(binding, found, passed, results)
    if binding.has_unknown:
        contractions(instance)  # a formula that needs such a symbol is refused here, with the call
    return instance


def _complete(binding: CallBinding, arguments: Sequence[Argument]) -> list[Argument]:
    """The arguments with what trailing inputs have by default; None where an input is null or its default waits."""
    inputs = binding.plan.inputs
    if len(arguments) > len(inputs):
        raise binding.problem(TOO_MANY_ARGUMENTS, name=binding.name, left=len(inputs), right=len(arguments))
    found = list(arguments)
    for parameter in inputs[len(arguments) :]:
        constant = parameter.default is not None and not parameter.default_names
        found.append(default_of(binding, parameter) if constant else None)
    return found


def finish(
    binding: CallBinding, types: TypeBinder, arguments: Sequence[Argument], results: Sequence[str]
) -> Instance:
    """The instance of a call whose attributes and inputs are bound."""
    plan = binding.plan
    declarations = DeclarationBinder(binding, types)
    constants = tuple(declarations.constant(item) for item in plan.constants)
    variables = tuple(declarations.declare(item, item.name) for item in plan.variables)
    names = [*results, *[""] * (len(plan.outputs) - len(results))]
    outputs = tuple(
        declarations.declare(item, name or item.name) for item, name in zip(plan.outputs, names, strict=False)
    )
    scope = binding.scope
    return Instance(
        definition=plan.definition,
        types=MappingProxyType(types.found),
        attributes=tuple((item.name, as_value(scope[item.name])) for item in plan.attributes),
        inputs=tuple((item.name, value) for item, value in zip(plan.inputs, arguments, strict=False)),
        symbols=MappingProxyType(scope),
        outputs=outputs,
        constants=constants,
        variables=variables,
        checks=tuple(binding.checks),
        plan=plan,
    )


# --- the main graph bound: no call gives its inputs, their declarations do ----------------------------------


def bind_graph(
    library: Library,
    definition: Definition,
    attributes: Mapping[str, Value] = NOTHING,
    types: Mapping[str, ElementType] = NO_TYPES,
    span: Span = NOWHERE,
) -> Instance:
    """Bind the main graph: `declared` are its inputs, and dynamic extents are symbols.

    `n|10` is the symbol `n`, `~|10` one named after its place: `x.shape[0]`.
    """
    binding = CallBinding(library.plan(definition), span)
    with findings_at_call(binding):
        return _graphs_bind(binding, attributes, types)


def _graphs_bind(
    binding: CallBinding, attributes: Mapping[str, Value], types: Mapping[str, ElementType]
) -> Instance:
    plan = binding.plan
    found = TypeBinder(binding, types)
    found.deduce([None] * len(plan.inputs), attributes)
    bound = AttributeBinder(binding, attributes)
    bound.bind_given()
    _expect_given(binding)
    declarations = DeclarationBinder(binding, found, named=True)

    def declare() -> tuple[Declared, ...]:
        declared = tuple(declarations.declare(item, item.name) for item in plan.inputs)
        binding.scope.update({item.name: item.tensors() for item in declared})
        return declared

    binding.more = declare
    take_steps(binding, plan.early)
    binding.more = None
    declared = declare()
    bound.finish()
    take_steps(binding, plan.late)
    return replace(finish(binding, found, (), ()), declared=declared)


def _expect_given(binding: CallBinding) -> None:
    """Every input of a main graph is given: nothing invokes it without one."""
    for item in binding.plan.inputs:
        if item.type.optional or item.default is not None:
            what = "is optional" if item.type.optional else "has a default value"
            label = Label(item.parameter.span, "declared here")
            raise binding.problem(GRAPH_ALWAYS_GIVEN, [label], name=item.name, what=what)
