"""What a declaration takes over from another: E011."""

from __future__ import annotations

from lamella.base.diagnostic import Rule

RESTATED = Rule(
    "E011", "4.3 Module Inheritance", "'{name}' restates {what} of '{parent}' as {found}, it is {wanted}"
)
ABSTRACT = RESTATED.also(
    "'{name}' is abstract and cannot be used as it is", hint="extend it and give the extension a graph"
)
NO_GRAPH = RESTATED.also(
    "'{name}' has no graph, its own or inherited", hint="add a graph to its forward section"
)
CYCLE = RESTATED.also("'{name}' extends itself: {cycle}")
NOT_A_MODULE = RESTATED.also("'{name}' extends '{parent}', which is {found}")
