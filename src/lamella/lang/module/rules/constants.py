"""The constant world: values, kinds, guards, constraints: E003, E012, E016, E026, E027."""

from __future__ import annotations

from lamella.base.diagnostic import Rule

KIND = Rule("E003", "3.6 Type Inference", "{what} is {found}, {wanted} is needed", hint="{repair}")
UNKNOWN_TYPE = KIND.also("there is no type '{name}' that '{param}' could have", hint="{repair}")
ARITY = KIND.also("'{operation}' gives {given}, but {taken} are taken", hint="{repair}")
NONE_GIVEN = KIND.also("'{name}' is None where '{operation}' needs a tensor", hint="{repair}")
DIVISION = KIND.also("{what} divides by zero", hint="{repair}")
OUT_OF_RANGE = KIND.also("{what} is {found}, beyond what a number may be here", hint="{repair}")
POSITION = KIND.also("{what} is {found}, but '{name}' has {count} elements", hint="{repair}")
LENGTH = KIND.also("{what} has {found} elements, {wanted} are needed", hint="{repair}")
MISSING = Rule("E012", "4.1 Module Declaration", "'{module}' needs a value for '{name}'", hint="{repair}")
MISSING_SECTION = MISSING.also("'{module}' has no {section}", hint="{repair}")
NOT_CONSTANT = Rule(
    "E016",
    "3.7.3 Enforcement Rules",
    "{what} is not constant: {why}",
    hint="only config parameters, let names and literals are known when the graph is built",
)
CONSTRAINT_FORM = Rule(
    "E026", "3.5.1 Compile-time Constraints", "the constraint '{text}' is {found}, not true or false"
)
CONSTRAINT = Rule("E027", "3.5.1 Compile-time Constraints", "{message}: '{text}' is false{values}")
