"""What a call of an ATen operation asks for, where it becomes an operation of a graph: SKR370 to SKR375."""

from __future__ import annotations

from lamella.base.diagnostic import Rule

CALLS = "2.9 Operator invocations"

UNSAYABLE = Rule(
    "SKR370",
    CALLS,
    "{name} has no operator: {reason}",
    hint="express it by operations whose results have known shapes",
)
OPERAND_KIND = Rule("SKR371", CALLS, "'{operand}' of {name} is {expected}; {given} is given")
OPERAND_MISSING = Rule("SKR372", CALLS, "{name} needs a value for '{operand}'")
OPERAND_UNKNOWN = Rule("SKR373", CALLS, "{name} has no '{operand}'", hint="it has {names}")
OPERAND_REFUSED = Rule("SKR374", CALLS, "'{operand}' of {name} is {value}; {possible}")
SIZE_ARITHMETIC = Rule("SKR375", "3.1 Dynamic tensor shapes", "{name}({operands}) is no size: {reason}")
