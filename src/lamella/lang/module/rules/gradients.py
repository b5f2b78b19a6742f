"""Backward graphs: E005, E006, E018 to E022, W003, W004, and E014 for what has no backward."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule
from lamella.lang.module.rules.graphs import UNKNOWN_OPERATION

MISSING = Rule(
    "E005",
    "5.12.2 Gradient Requirements",
    "the backward graph of '{module}' gives no '{name}'",
    hint="compute it, or mark {what} with {repair}",
)
NOT_SAVED = Rule(
    "E006",
    "5.10 Saved Tensor Access",
    "'{name}' is not available in the backward graph of '{module}'",
    hint="{repair}",
)
SHAPE = Rule(
    "E018", "5.12.5 Backward Graph Validation", "'{name}' has shape {found}, '{primal}' has {wanted}{values}"
)
CYCLE = Rule("E019", "5.12.5 Backward Graph Validation", "'{name}' depends on itself: {cycle}")
DTYPE = Rule(
    "E020", "5.12.5 Backward Graph Validation", "'{name}' is {found}, the gradient of {wanted} {why}"
)
NOT_DERIVABLE = Rule(
    "E021",
    "7.2.0 Memory Policy Precedence",
    "'{name}' cannot be recomputed: it needs '{leaf}', which is not saved",
    hint="save '{leaf}'",
)
RECOMPUTE_CYCLE = Rule(
    "E022", "7.2.0 Memory Policy Precedence", "'{name}' is recomputed from itself: {cycle}"
)
BEYOND = Rule(
    "W003",
    "5.12.6 Automatic Backward Derivation",
    "the derived backward of '{module}' also needs {names}, beyond its save list",
    WARNING,
    hint="add {names} to save:, or accept that {names} are recomputed",
)
UNUSED = Rule(
    "W004",
    "9.4.2 Saved Tensor Analysis",
    "'{name}' is saved, but nothing in the backward graph of '{module}' reads it",
    WARNING,
    hint="drop it from save:",
)
NO_MATCH = UNUSED.also("'{name}' in {section}: of '{module}' matches no tensor", hint="{repair}")
NO_BACKWARD = UNKNOWN_OPERATION.also(
    "no gradient goes back through '{operation}' to '{name}'", hint="mark what it gives with @gradient(skip)"
)
DIFFERS = Rule(
    "E103",
    "9.8.1 Autograd Oracle Check",
    "'{name}' of '{module}' is not the gradient: it is {found}, differences give {wanted}",
    hint="compare the statements that give '{name}' with the derivative of the forward graph",
)
