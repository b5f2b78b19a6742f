"""Types, packs and optional values: SKR070 to SKR119."""

from __future__ import annotations

from lamella.base.diagnostic import Rule

# Types
OPERAND_TYPES = Rule(
    "SKR070",
    "2.4 Expressions",
    "'{sign}' takes two operands of one type, not {left} and {right}",
    hint="there is no implicit conversion; cast one of them: real(x), int(x)",
)
OPERAND = Rule("SKR071", "2.4 Expressions", "'{sign}' is not defined for {type}")
NOT_BOOL = Rule("SKR072", "2.4 Expressions", "{what} is of type {type}, not bool")
SELECT_TYPES = Rule("SKR073", "2.4 Expressions", "'? :' selects between {left} and {right}")
LIST_TYPES = Rule("SKR074", "2.4 Expressions", "a list holds {left} and {right}; items are of one type")
CAST_TYPE = Rule(
    "SKR075",
    "2.4 Expressions",
    "{left} cannot be cast to {right}",
    hint="casts lead between int, real and bool",
)
FUNCTION_TYPE = Rule("SKR076", "2.4 Expressions", "'{name}' takes {wanted}, not {type}")
INDEX_TYPE = Rule(
    "SKR078",
    "2.4 Expressions",
    "{what} is not indexed by {type}",
    hint="an index is an int or a pack of int; a pack of bool chooses items where nothing is replaced",
)
SUBSTITUTE_TYPE = Rule("SKR079", "2.4 Expressions", "'<-' puts {right} into a pack of {left}")
SUBSTITUTE_INDEX = Rule("SKR080", "2.4 Expressions", "'<-' takes {wanted} at {index}, not {found}")
GENERIC_OPERAND = Rule(
    "SKR081",
    "2.13 Generics",
    "'{sign}' needs a type of {wanted}; '{name}' may be any type of {base}",
    hint="restrict it in @dtype: {name}: {wanted};",
)
ABSTRACT_TYPE = Rule(
    "SKR083",
    "2.13 Generics",
    "'{name}' has the abstract type {type}",
    hint="name a generic type in @dtype and use that name",
)
DTYPE_DEFAULT = Rule(
    "SKR084", "2.13 Generics", "the default {type} of '{name}' is not a concrete type of {base}"
)
DTYPE_BASE = Rule(
    "SKR085", "2.13 Generics", "'{name}' is restricted by {type}; the restriction is type, arith or num"
)
DEFAULT_TYPE = Rule("SKR086", "2.5 Operator attributes", "'{name}' is of type {left} and gets {right}")
UNTYPED_LIST = Rule("SKR087", "2.4 Expressions", "nothing says what the items of the empty list '{name}' are")
INTEGER_NEEDED = Rule("SKR088", "2.4 Expressions", "{what} is of type {type}, not int")

# Packs
NOT_A_PACK = Rule("SKR090", "2.4 Expressions", "{what} needs a pack, and '{text}' is a single value")
EXPANSION_MISSING = Rule(
    "SKR091",
    "2.4 Expressions",
    "the pack '{text}' stands in a list without '..'",
    hint="packs are not nested; write {text}.. to expand it",
)
EXPANSION_LENGTH = Rule(
    "SKR092",
    "2.4 Expressions",
    "'{text}..' repeats a single value without saying how often",
    hint="write {text} ..(count)",
)
EXPANSION_COUNT = Rule("SKR093", "2.4 Expressions", "an expansion is counted by int or bool, not by {type}")
PACK_HERE = Rule("SKR094", "2.3 Type system", "{what} is one value, and '{text}' is a pack")
PACK_LENGTHS = Rule("SKR095", "2.4 Expressions", "'{sign}' joins packs of lengths {left} and {right}")
MASK_LENGTH = Rule("SKR096", "2.4 Expressions", "a mask of length {left} is put on a pack of length {right}")
ZIP_LENGTHS = Rule("SKR097", "2.4 Expressions", "packs of lengths {left} and {right} are zipped")
INDEX_RANGE = Rule(
    "SKR098", "2.4 Expressions", "index {index} is out of the range of a pack of length {length}"
)
RANGE_STEP = Rule("SKR099", "2.4 Expressions", "the step of a range is zero")
DIVISION_BY_ZERO = Rule("SKR100", "2.4 Expressions", "'{sign}' divides by zero")
EXPANSION_PLACE = Rule(
    "SKR101", "2.4 Expressions", "'{text}' stands for {length} items where {wanted} are needed"
)

# Optional values
COALESCE_LEFT = Rule(
    "SKR105",
    "2.4 Expressions",
    "'??' has nothing to replace: '{text}' is never null",
    hint="the left side is an optional expression",
)
COALESCE_RIGHT = Rule("SKR106", "2.4 Expressions", "the replacement '{text}' may be null itself")
COALESCE_TYPES = Rule("SKR107", "2.4 Expressions", "'??' replaces {left} by {right}")
NULL_TEST = Rule("SKR108", "2.4 Expressions", "'?{name}' is always true: '{name}' is not optional")
SELECT_PACK = Rule(
    "SKR109",
    "2.4 Expressions",
    "the condition of '?' without ':' is a pack",
    hint="a whole value is there or not; write the other branch",
)
OPTIONAL_HERE = Rule(
    "SKR110",
    "2.4.1 Null propagation",
    "'{text}' may be null; {what} needs a value",
    hint="replace null with '??', or test it with '?name' first",
)
