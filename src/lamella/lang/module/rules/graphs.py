"""Graphs: shapes, element types, order and single assignment: E004, E007, E014, E015, E017, W005."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

SHAPE = Rule(
    "E004", "3.2 Tensor Types", "{what} has shape {found}, {wanted} is needed{values}", hint="{repair}"
)
OPERANDS = SHAPE.also("shapes do not fit in '{operation}': {why}{values}", hint="{repair}")
INDEX = SHAPE.also("the index {index} is outside of dimension {dim} of '{name}', which has {extent}{values}")
VIEW = SHAPE.also("'{name}' with shape {found} has {count} elements, {wanted} has {other}{values}")
SPLIT = SHAPE.also("the parts {parts} make {total}, dimension {dim} of '{name}' has {extent}{values}")
CYCLE = Rule("E007", "5.11.5 Evaluation Order", "'{name}' depends on itself: {cycle}")
IMPORT_CYCLE = CYCLE.also("the file '{name}' imports itself: {cycle}")
CONTAINS_ITSELF = CYCLE.also("'{name}' contains itself: {cycle}")
UNKNOWN_OPERATION = Rule("E014", "6 Primitive Operations", "there is no operation '{name}'", hint="{repair}")
NOT_AN_OPERATION = UNKNOWN_OPERATION.also("'{name}' is {found}, not an operation", hint="{repair}")
NO_IMPLEMENTATION = UNKNOWN_OPERATION.also("'{name}' is a sketch and has no implementation", hint="{repair}")
OPERATOR_CLASH = UNKNOWN_OPERATION.also(
    "two files are the operator module '{name}': {first} and {second}", hint="rename one of them"
)
DTYPE = Rule("E015", "3.3 Dtype Specifiers", "'{operation}' does not take {found} as {what}", hint="{repair}")
CAST = DTYPE.also("{found} does not become {wanted} by itself", hint="{repair}")
REBOUND = Rule(
    "E017",
    "5.11.1 Single Static Assignment (SSA)",
    "'{name}' is already bound in this scope",
    hint="give the new tensor another name",
)
DECLARED = Rule(
    "E123",
    "3.2 Tensor Types",
    "{message}; in this run {values}",
    hint="give dimensions that are equal one name, or declare the shape that the graph gives",
)
NARROWING = Rule(
    "W005",
    "7.4.4 Explicit Cast Semantics",
    "'{name}' is narrowed from {found} to {wanted}",
    WARNING,
    hint="say so with @dtype({wanted})",
)
