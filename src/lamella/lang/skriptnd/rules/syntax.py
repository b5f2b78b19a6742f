"""Lexical structure and grammar: SKR001 to SKR029, and the notes on newer spellings."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, Rule

GRAMMAR = "2.16 Formal grammar definition"
LITERALS = "2.4 Expressions"

SYNTAX = Rule("SKR001", GRAMMAR, "expected {wanted} {where}, found {found}")
BAD_CHARACTER = Rule("SKR002", LITERALS, "the text '{text}' has no meaning here")
NUMBER_FORM = Rule("SKR003", LITERALS, "'{text}' is not a number", hint="{repair}")
LITERAL_RANGE = Rule("SKR004", LITERALS, "the number {text} is too large")
OPEN_STRING = Rule(
    "SKR005",
    LITERALS,
    "the string {text} does not end on the line it begins on",
    hint="close it, and go on with another string behind it: adjacent strings are one",
)
HOLE = Rule("SKR006", "2.4 String formatting", "the string {problem}", hint="{repair}")
LIMIT = Rule(
    "SKR007", GRAMMAR, "{what} is beyond the limit of {limit}", hint="raise it with --limit {option}=N"
)
KEYWORD = Rule(
    "SKR008",
    LITERALS,
    "'{name}' is a word of the language and cannot be {what}",
    hint="choose another name",
)
UNKNOWN_FUNCTION = Rule(
    "SKR009", "2.4 Built-in functions", "there is no built-in function '{name}'", hint="{repair}"
)
NO_FOLD = Rule(
    "SKR010",
    "2.4 Folding",
    "'{sign}' does not fold a pack{form}",
    hint="{repair}",
)
FOLD_CONTINUED = Rule(
    "SKR011",
    "2.4 Folding",
    "'{sign}' follows the fold '{fold} {dots}'; only '{fold}' may go on there",
    hint="put the fold into parentheses",
)
UNKNOWN_BLOCK = Rule("SKR012", "2.2 Operator definitions", "there is no block '{name}'", hint="{repair}")
DOUBLE_BLOCK = Rule(
    "SKR013",
    "2.2 Operator definitions",
    "'{operator}' has a second block @{name}",
    hint="write all of it in one block",
)
LATE_IMPORT = Rule(
    "SKR014", "2.15 Modules and imports", "an import stands behind a definition", hint="imports come first"
)
NO_ACCESS = Rule(
    "SKR015",
    "2.12 Defining lower level computation",
    "the left side of a formula must be an access of a tensor",
    hint="{repair}",
)
ACCESS_OPERAND = Rule(
    "SKR016",
    "2.4 Tensor access",
    "only a tensor, or one item of a pack of tensors, has elements that '[{indices}]' can access",
    hint="a single index without a comma takes an item of a pack",
)
NESTED_CALL = Rule(
    "SKR017",
    "2.10 Composing operators",
    "'{operator}' is invoked within an expression",
    hint="give the result a name in a component of its own, and use the name",
)
NEWER_FUNCTION = Rule(
    "SKR018",
    "2.4 Built-in functions",
    "a newer draft writes built-in functions like '{name}' without back-ticks",
    NOTE,
    hint="the specification writes `{name}`(…)",
)
NEWER_EXTREME = Rule(
    "SKR019",
    "2.4 Unary and binary operators",
    "'{sign}' is a newer draft's sign",
    NOTE,
    hint="the specification writes '{other}'",
)
NEWER_LOCALS = Rule(
    "SKR020",
    "2.12 Intermediate values",
    "'with … :' before a formula is a newer draft's form",
    NOTE,
    hint="the specification writes the local values before the formula, with a comma behind each",
)
NEWER_CONTROL = Rule(
    "SKR021",
    "2.5 Operator attributes",
    "'{word}' is a word of a newer draft",
    NOTE,
    hint="the specification does without it",
)
NEWER_RANGE = Rule(
    "SKR022",
    "2.4 Tensor access",
    "a range as the index of a tensor is a newer draft's form",
    NOTE,
    hint="the specification indexes by a list that is expanded, [0:n] with two points behind it",
)
