"""What a graph has and NAC cannot say: NAC208 to NAC218."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, Rule

_OPERATIONS = "3.2 Field A"

CONTROL_FLOW = Rule(
    "NAC208",
    "7.3 <CONTROL_FLOW>",
    "'{tensor}' is made by {what}, and instructions of NAC never run twice",
    hint="unroll the loop before the model is written, or let a plan run the model several times",
)
UPDATED = Rule(
    "NAC209",
    "7.1 <INPUT>",
    "variable '{name}' is {type} and becomes {found} after a run; a state of NAC keeps its type and its shape",
    hint="give the new value the type and the shape of the variable",
)
OPEN_PACK = Rule(
    "NAC210",
    "3.5 Field D",
    "'{name}' is a pack of {size} tensors, a number that only the run tells",
    hint="give the extents their values before the model is written",
)
NOT_SHIPPED = Rule(
    "NAC211",
    _OPERATIONS,
    "no reader knows operator '{operator}', which makes '{tensor}'",
    hint="decompose it into operators of the library",
)
QUANTIZED = Rule(
    "NAC212",
    "6.1 DATA",
    "tensor '{name}' is quantised by '{operator}' while the graph runs; NAC has no field for that",
    hint="leave the quantisation out, or call the operator in the graph",
)
EXTENT = Rule(
    "NAC213",
    "3.5 Field D",
    "operator '{operator}' needs '{extent}', which {problem}",
    hint="give the extents their values before the model is written",
)
ELEMENT = Rule(
    "NAC214",
    "6.1.1 Metadata",
    "{what} '{name}' has elements of {element}, which NAC has no code for",
    hint="the types are float32, float64, float16, bfloat16, int32, int64, int16, int8, uint8 and bool",
)
NO_VALUES = Rule(
    "NAC215",
    "6.1 DATA",
    "variable '{name}' {problem}",
    hint="load the model with its weights, or write the file without them",
)
TOO_MANY = Rule(
    "NAC216",
    "3 Instructions",
    "the graph needs {count} {what}; a file has room for {limit}",
)
LEFT_OUT = Rule("NAC217", "4 MMAP, 6.1 DATA", "{what} is left out: {reason}", NOTE)
OTHERWISE = Rule(
    "NAC218",
    _OPERATIONS,
    "operator '{operator}' makes '{tensor}' as {wanted}; written down it makes {found}",
    hint="decompose it into operators of the library",
)
