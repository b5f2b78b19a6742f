"""Lexical structure, grammar, lenient and newer spellings: TEN001 to TEN039."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, WARNING, Rule

SYNTAX = Rule("TEN001", "Core rules", "expected {wanted} {where}, found {found}")
BAD_CHARACTER = Rule(
    "TEN002",
    "Core rules",
    "the text '{text}' has no meaning here",
    hint="comments begin with ';', names with '%' or '@'",
)
UNKNOWN_WORD = Rule("TEN003", "Core rules", "there is no word '{text}'", hint="{repair}")
IDENTIFIER_FORM = Rule(
    "TEN004",
    "Identifier",
    "'{text}' is not an identifier",
    hint="behind the sigil stand digits, or a letter with letters, digits and underscores behind it",
)
NUMBER_FORM = Rule(
    "TEN005", "Constants", "'{text}' is not a number", hint="write it as 12, -1.5, 2e3 or 0x1.8p+1"
)
LITERAL_RANGE = Rule("TEN006", "Constants", "the number {text} is out of range", hint="{repair}")
OPEN_STRING = Rule(
    "TEN007",
    "Attributes",
    "the string {text} does not end on the line it begins on",
    hint="close it with '\"'",
)
LIMIT = Rule(
    "TEN008", "Core rules", "{what} is beyond the limit of {limit}", hint="raise it with --limit {option}=N"
)
RESULTS = Rule(
    "TEN009", "Instructions", "'{instruction}' produces {produced}, but {given} named", hint="{repair}"
)
UNSUPPORTED = Rule(
    "TEN010",
    "Instructions",
    "'{word}' belongs to a newer version of the language and has no counterpart in the specification",
    hint="{repair}",
)
MODIFIER = Rule("TEN011", "Instructions", "'{instruction}' does not take '{modifier}'{why}", hint="{repair}")
NO_SIZE = Rule(
    "TEN012",
    "Subview",
    "':' stands for all of a mode, but mode {mode} of %{operand} is not known here",
    hint="write offset:size",
)
NUL = Rule(
    "TEN013",
    "Core rules",
    "a NUL character ends the program, {count} characters behind it are not read",
    WARNING,
    hint="remove it",
)

# --- spellings that the specification's own examples use ----------------------------------------------------

CONSTANT_ARROW = Rule(
    "TEN014", "Constant", "'->' stands before the type of a constant", NOTE, hint="write ':' instead of '->'"
)
BARE_GROUP_ID = Rule(
    "TEN015",
    "Builtin (mixed)",
    "'group_id' is short for 'builtin.group_id'",
    NOTE,
    hint="write 'builtin.group_id'",
)
LONE_COLON = Rule(
    "TEN016", "Subview", "':' stands for all of mode {mode}", NOTE, hint="write the slice as {repair}"
)
ALLOCA_SPACE = Rule(
    "TEN017", "Alloca", "the type of an alloca does not name its address space", NOTE, hint="write '{repair}'"
)
COMPARE_TYPE = Rule(
    "TEN018",
    "Comparison",
    "the type of the operands stands where that of the result, bool, is expected",
    NOTE,
    hint="write ': bool'",
)
LITERAL_OPERAND = Rule(
    "TEN019",
    "Load",
    "the number {text} stands where a value is expected",
    NOTE,
    hint="write '%{name} = constant {text} : {type}' before, and %{name} here",
)
MODIFIER_ORDER = Rule(
    "TEN020",
    "Instructions",
    "the modifiers of '{instruction}' stand in another order than the specification's",
    NOTE,
    hint="write '{repair}'",
)

# --- spellings of a newer version ---------------------------------------------------------------------------

NEWER_NAME = Rule(
    "TEN030", "Instructions", "'{word}' is a newer name", NOTE, hint="the specification writes '{repair}'"
)
NO_TRANSPOSE = Rule(
    "TEN031",
    "GEMM",
    "'{instruction}' without all of its transposes is a newer spelling",
    NOTE,
    hint="the specification writes '{repair}'",
)
NEWER_ATTRIBUTES = Rule(
    "TEN033",
    "For",
    "'attributes' behind a loop is a newer spelling",
    NOTE,
    hint="the specification writes the dictionary alone",
)
NEWER_CONSTANT = Rule("TEN034", "Constants", "'{text}' is a constant of a newer version", NOTE)
EXTENSION = Rule(
    "TEN035",
    "Instructions",
    "{feature} is an extension of Lamella",
    NOTE,
    hint="the specification has {instead}",
)
