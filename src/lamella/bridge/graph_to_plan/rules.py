"""The rules of the way from a graph to a plan; their codes are of NEM, which plans are written in."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, Rule

NOT_SELECTED = Rule("NEM200", "Opcodes", "{name} cannot be computed on this device: {reason}")
NOT_TILED = Rule("NEM201", "Memory capacity rule", "the plan does not fit {device}: {reason}")
PLAN_NUMBERS = Rule("NEM202", "Buffers", "'{file}' fills {count} buffers", NOTE)
NO_FLOATS = Rule(
    "NEM203",
    "Opcodes",
    "device '{device}' computes with integers alone, and {name} with real numbers",
    hint="quantise the model first: lamella quantize {file} -o OUT.sknd, and lower that",
)

RULES = (NOT_SELECTED, NOT_TILED, PLAN_NUMBERS, NO_FLOATS)
"""Every rule, in order."""
