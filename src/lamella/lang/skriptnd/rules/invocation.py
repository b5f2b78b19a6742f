"""What a call asks of an operator, where only the call can tell: SKR260 to SKR299."""

from __future__ import annotations

from lamella.base.diagnostic import Rule

BINDING = "2.6.1 Binding order of input shapes"
INPUTS = "2.6 Operator inputs and outputs"

# Values
NOT_COMPUTABLE = Rule("SKR260", "2.4 Expressions", "{what} has no value: {reason}")
TOO_LARGE = Rule(
    "SKR261",
    "2.4 Expressions",
    "{what}; the limit {limit} is {bound}",
    hint="raise it with --limit {limit}=N",
)
UNDECIDED = Rule(
    "SKR262", "3.1 Dynamic tensor shapes", "{what} must be known before the run, and {value} is not"
)
TOO_COMPLEX = Rule("SKR263", "3.1 Dynamic tensor shapes", "{what} cannot be followed")
NO_VALUE = Rule(
    "SKR264", BINDING, "'{name}' has no value here", hint="an empty pack of tensors tells no extents"
)

# Attributes and types
PACK_LENGTH = Rule(
    "SKR270",
    BINDING,
    "'{name}' of {operator} has {length} items, but its length '{expression}' is {expected}",
)
UNKNOWN_LENGTH = Rule(
    "SKR271",
    BINDING,
    "attribute '{name}' of {operator} is one value, and its length '{expression}' is not known from the inputs",
    hint="give all its values: {name}=[…]",
)
FLOAT_WIDTHS = Rule(
    "SKR272",
    "2.3 Type system",
    "the real tensors of one call share one width: '{first}' of {operator} is {width}, '{name}' is {other}",
    hint="layout.cast<{width}>(…) converts",
)
UNSUPPORTED_TYPE = Rule(
    "SKR273", "2.3 Type system", "tensors of type {type} cannot be computed with ('{name}' of {operator})"
)

ELEMENT_RANGE = Rule(
    "SKR274",
    "2.3 Type system",
    "'{name}' of {operator} holds {type} and gets {value}",
    hint="an element is one of {low} to {high}",
)

# Shapes
RANK_MISMATCH = Rule(
    "SKR280",
    INPUTS,
    "input '{name}' of {operator} is declared {declared}, which needs {expected} dimensions; {given} has {rank}",
)
EXTENT_MISMATCH = Rule(
    "SKR281", INPUTS, "{operator}: {subject} is {expected} by {by}, but {value} by {other}"
)
NOT_DIVISIBLE = Rule(
    "SKR282", INPUTS, "{operator}: '{expression}' is {value} by {by}, and no whole '{symbol}' makes it so"
)
FAILED_ASSERTION = Rule("SKR283", "2.8 Operator validity checking", "{operator}: {message}{values}")
BAD_EXTENT = Rule("SKR284", INPUTS, "{operator}: extent {axis} of '{name}' is {value}; {reason}")
FREE_EXTENT = Rule(
    "SKR285",
    "2.10 Composing operators",
    "{operator}: the scalar for input '{name}' has no shape of its own, and '{symbol}' is not known otherwise",
)
UNEQUAL_RANKS = Rule(
    "SKR286",
    "2.3 Type system",
    "the tensors of a pack have one rank; '{name}' of {operator} got {first} and {other}",
)
TOO_MANY_DIMENSIONS = Rule(
    "SKR287",
    INPUTS,
    "{operator}: '{name}' has {rank} dimensions; the limit max_rank is {limit}",
    hint="raise it with --limit max_rank=N",
)
