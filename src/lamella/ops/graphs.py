"""The main graph bound: no call gives its inputs, their declarations do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lamella.base.diagnostic import Label
from lamella.base.dtype import ElementType
from lamella.base.source import NOWHERE, Span
from lamella.lang.skriptnd.rules.names import GRAPH_ALWAYS_GIVEN
from lamella.ops.bind.attributes import Attributes
from lamella.ops.bind.declare import Declarations
from lamella.ops.bind.state import Binding
from lamella.ops.bind.steps import take_steps
from lamella.ops.bind.types import Types
from lamella.ops.instance import Declared, Definition, Instance, Value
from lamella.ops.instantiate import NO_TYPES, NOTHING, finish, told_at_call
from lamella.ops.library import Library


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
    binding = Binding(library.plan(definition), span)
    with told_at_call(binding):
        return _bind(binding, attributes, types)


def _bind(binding: Binding, attributes: Mapping[str, Value], types: Mapping[str, ElementType]) -> Instance:
    plan = binding.plan
    found = Types(binding, types)
    found.deduce([None] * len(plan.inputs), attributes)
    bound = Attributes(binding, attributes)
    bound.bind_given()
    _expect_given(binding)
    declarations = Declarations(binding, found, named=True)

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


def _expect_given(binding: Binding) -> None:
    """Every input of a main graph is given: nothing invokes it without one."""
    for item in binding.plan.inputs:
        if item.type.optional or item.default is not None:
            what = "is optional" if item.type.optional else "has a default value"
            label = Label(item.parameter.span, "declared here")
            raise binding.problem(GRAPH_ALWAYS_GIVEN, [label], name=item.name, what=what)
