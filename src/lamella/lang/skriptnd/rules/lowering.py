"""Formulas: SKR160 to SKR199, and SKR390."""

from __future__ import annotations

from lamella.base.diagnostic import Rule

SECTION = "2.12 Defining lower level computation"

TARGET = Rule(
    "SKR160",
    SECTION,
    "a formula assigns '{name}', which is not an output",
    hint="the left side accesses an output",
)
UNINITIALISED = Rule(
    "SKR161",
    SECTION,
    "':=' updates '{name}' before it has a value",
    hint="initialise it with '=' in a formula before this one",
)
TOO_MANY = Rule(
    "SKR162",
    SECTION,
    "'{name}' has more formulas than one that initialises it and one that accumulates",
    hint="the first assigns with '=', the second accumulates or updates",
)
LATE_INITIAL = Rule(
    "SKR163", SECTION, "'{name}' is initialised with '=' after another formula has assigned it"
)
INDEX_TWICE = Rule(
    "SKR165", SECTION, "'{name}' is already {what}", hint="index symbols and local values have new names"
)
GUARD_PLACE = Rule(
    "SKR166",
    SECTION,
    "'|{text}|' stands outside of a tensor index",
    hint="guards belong to the indices of tensor accesses or to local values used there",
)
CONDITION_PACK = Rule(
    "SKR167", SECTION, "the condition of the formula is a pack", hint="fold it with && .. in parentheses"
)
RANK = Rule("SKR168", SECTION, "'{name}' has rank {rank} and is accessed with {count} indices")
ACCESS_PLACE = Rule(
    "SKR169",
    SECTION,
    "an element of '{name}' is read in @{block}",
    hint="elements of tensors are known only to the formulas of @lower",
)
NOT_A_TENSOR = Rule(
    "SKR170",
    SECTION,
    "'{name}' is {what} and is accessed like a tensor",
    hint="a pack is indexed by one index without a comma: {name}[i]",
)
PACKED_RIGHT = Rule(
    "SKR171",
    SECTION,
    "a pack of values is assigned to the single tensor '{name}'",
    hint="fold the pack, or index it",
)
PACKED_LENGTH = Rule(
    "SKR172", SECTION, "a pack of {right} values is assigned to the {left} tensors of '{name}'"
)
ITEM_OF_TENSOR = Rule("SKR173", SECTION, "'{name}' is a single tensor and has no items to choose from")
RIGHT_TYPE = Rule("SKR174", SECTION, "'{name}' is of type {left} and gets {right}")
ACCUMULATION = Rule("SKR175", SECTION, "'{sign}' does not accumulate {type}")
TENSOR_INDEX = Rule("SKR176", SECTION, "an index of '{name}' is of type {type}, not int")
READS_ITSELF = Rule(
    "SKR177",
    SECTION,
    "'{name}' is read while '=' initialises it",
    hint="only an update may read the output it writes",
)
UNROLL_COUNT = Rule("SKR178", SECTION, "'unroll' has no count", hint="write unroll..(index -> count)")
NO_ASSIGNMENT = Rule("SKR179", SECTION, "output '{name}' is never assigned")
TENSOR_RANGE = Rule(
    "SKR180", SECTION, "'{name}' is a single tensor; write {name}[index,] to read an element of it"
)
READS_LATER = Rule(
    "SKR390",
    SECTION,
    "a formula reads output '{name}', which no formula before it assigns",
    hint="formulas run in the order they are written: put the one that assigns '{name}' first",
)
