"""Attributes, shapes and the binding order: SKR120 to SKR159."""

from __future__ import annotations

from lamella.base.diagnostic import Rule

# Attributes
ATTRIBUTE_TENSOR = Rule(
    "SKR120", "2.5 Operator attributes", "attribute '{name}' has a shape", hint="tensors are inputs"
)
OPTIONAL_DEFAULT = Rule(
    "SKR121",
    "2.5 Operator attributes",
    "the optional {what} '{name}' has a default value",
    hint="without a value it is null",
)
DEFAULT_UNKNOWN = Rule(
    "SKR122",
    "2.6.1 Binding order of input shapes",
    "the default of '{name}' cannot be evaluated: {cause}",
    hint="it may use attributes and extents that are known without it",
)
LENGTH_TYPE = Rule("SKR123", "2.3 Type system", "the pack length of '{name}' is of type {type}, not int")

# Inputs
INPUT_SHAPE = Rule(
    "SKR124",
    "2.6 Operator inputs and outputs",
    "{what} '{name}' has no shape",
    hint="only graphs may leave shapes out",
)
EXTENT_TYPE = Rule(
    "SKR125", "2.6 Operator inputs and outputs", "an extent of '{name}' is of type {type}, not int"
)
NOT_AFFINE = Rule(
    "SKR126",
    "2.6 Operator inputs and outputs",
    "'{text}' does not determine {names}",
    hint="an extent that declares a name is A * name + B with numbers A and B; "
    "name the whole extent and compute the rest in @using",
)
AMBIGUOUS = Rule(
    "SKR127",
    "2.6.1 Binding order of input shapes",
    "the shape of input '{name}' cannot be bound: the lengths of {packs} are not known",
    hint="at most one length may be open; fix the others by int attributes or by other inputs",
)
SPREAD_PACK = Rule(
    "SKR128", "2.6 Operator inputs and outputs", "'..{text}' spreads an extent that is a pack itself"
)
SPREAD_SINGLE = Rule(
    "SKR129",
    "2.6 Operator inputs and outputs",
    "'..{text}' needs a pack of tensors, and '{name}' is a single one",
)
BOUND_NAME = Rule(
    "SKR130",
    "2.6 Operator inputs and outputs",
    "'{text}' has an upper bound and is not a name",
    hint="the bound follows a name or '~'",
)
OMITTED_EXTENT = Rule(
    "SKR131",
    "2.6 Operator inputs and outputs",
    "'~' leaves out an extent of {what} '{name}'",
    hint="{repair}",
)
EXTENT_PACK = Rule(
    "SKR132",
    "2.6 Operator inputs and outputs",
    "the extent '{text}' of '{name}' is a pack",
    hint="write {text}.. to expand it",
)
NEGATIVE_EXTENT = Rule(
    "SKR133", "2.6 Operator inputs and outputs", "an extent of '{name}' is {value}; extents are not negative"
)
BOUND_STATIC = Rule(
    "SKR134",
    "2.6 Operator inputs and outputs",
    "'{name}' has a bound and is known already",
    hint="leave it out",
)

# Constants, variables, outputs
VARIABLE_VALUE = Rule(
    "SKR136",
    "2.7 Variable and constant tensors",
    "variable '{name}' has a value",
    hint="values of variables are stored in files; a fixed value is a @constant",
)
OUTPUT_VALUE = Rule(
    "SKR137",
    "2.6 Operator inputs and outputs",
    "output '{name}' has a value",
    hint="outputs are assigned in @lower or @compose",
)
CONSTANT_VALUE = Rule("SKR138", "2.7 Variable and constant tensors", "constant '{name}' has no value")
CONSTANT_LENGTH = Rule(
    "SKR139",
    "2.7 Variable and constant tensors",
    "constant '{name}' has {left} elements and gets {right} values",
)
CONSTANT_PACK = Rule(
    "SKR140", "2.7 Variable and constant tensors", "the pack '{name}' of constants needs a list of values"
)
INDEX_PLACE = Rule(
    "SKR141",
    "2.7 Variable and constant tensors",
    "{what} '{name}' has index symbols",
    hint="index symbols belong to constants and to @lower",
)
INDEX_COUNT = Rule(
    "SKR142",
    "2.7 Variable and constant tensors",
    "constant '{name}' has rank {rank} and its index symbols cover {count} dimensions",
)
RANK_PLACE = Rule(
    "SKR143", "2.6 Operator inputs and outputs", "{what} '{name}' captures its rank; only inputs do"
)
PACK_LENGTH_MISSING = Rule(
    "SKR144",
    "2.7 Variable and constant tensors",
    "the pack '{name}' has no length",
    hint="write ..(length) behind its type, or ..(~|most) where only the run tells the length",
)
NEVER_NULL = Rule("SKR145", "2.7 Variable and constant tensors", "{what} '{name}' is declared optional")

# Helper symbols
HINT_LENGTH = Rule(
    "SKR150",
    "2.9 Using helper symbols",
    "'{name}' is said to have length {left} and has length {right}",
)
PATTERN_FLEXIBLE = Rule(
    "SKR151",
    "2.9 Using helper symbols",
    "the pattern has {count} parts of open length; at most one can be deduced",
)
PATTERN_LENGTH = Rule(
    "SKR152", "2.9 Using helper symbols", "a pattern for {left} items takes apart a pack of length {right}"
)
