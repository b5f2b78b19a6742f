"""Composition, control flow, updates and quantisation: SKR200 to SKR259."""

from __future__ import annotations

from lamella.base.diagnostic import Rule

COMPOSING = "2.10 Composing operators"
CONTROL = "2.10.1 Control flow"

# Results
RESULT_TWICE = Rule(
    "SKR200", COMPOSING, "'{name}' is assigned twice", hint="each tensor of a composition has its own name"
)
OUTPUT_MISSING = Rule("SKR201", COMPOSING, "output '{name}' is never assigned")
VARIABLE_ASSIGNED = Rule(
    "SKR202",
    "2.11 Updating variables",
    "variable '{name}' is assigned in @compose",
    hint="assign it in @update",
)
PARAMETER_ASSIGNED = Rule("SKR203", COMPOSING, "'{name}' is {what} and cannot be assigned")
RESULT_COUNT = Rule(
    "SKR204",
    COMPOSING,
    "{what} gives {right} results and {left} are taken",
    hint="name every result, or skip it with '~'",
)

# Invocations
TOO_MANY_ARGUMENTS = Rule("SKR205", COMPOSING, "'{name}' takes {left} inputs and gets {right}")
ARGUMENT_MISSING = Rule("SKR206", COMPOSING, "'{name}' is invoked without its input '{input}'")
UNKNOWN_ATTRIBUTE = Rule("SKR207", COMPOSING, "'{name}' has no attribute '{attribute}'")
ATTRIBUTE_MISSING = Rule("SKR208", COMPOSING, "'{name}' is invoked without its attribute '{attribute}'")
ATTRIBUTE_TWICE = Rule("SKR209", COMPOSING, "attribute '{attribute}' is given twice")
ATTRIBUTE_TYPE = Rule("SKR210", COMPOSING, "attribute '{attribute}' of '{name}' is {left} and gets {right}")
ARGUMENT_TYPE = Rule(
    "SKR211",
    COMPOSING,
    "input '{input}' of '{name}' is of type {left} and gets {right}",
    hint="there is no implicit conversion; see layout.cast",
)
OMITTED_ARGUMENT = Rule("SKR212", COMPOSING, "input '{input}' of '{name}' cannot be left out with '~'")
TYPE_COUNT = Rule("SKR213", "2.13 Generics", "'{name}' has {left} generic types and gets {right}")
TYPE_BASE = Rule(
    "SKR214", "2.13 Generics", "the type '{generic}' of '{name}' is restricted by {base} and becomes {type}"
)
TYPE_OPEN = Rule(
    "SKR215",
    "2.13 Generics",
    "nothing determines the type '{generic}' of '{name}'",
    hint="give it: {name}<type>(…)",
)
TYPE_CONFLICT = Rule(
    "SKR216",
    "2.13 Generics",
    "the type '{generic}' of '{name}' is {left} and {right} at once",
    hint="there is no implicit conversion; write numbers as 2 or 2.0, and see layout.cast for tensors",
)
LABEL_TWICE = Rule("SKR217", COMPOSING, "label '{label}' is used twice")
LABEL_NEEDED = Rule(
    "SKR218",
    COMPOSING,
    "'{name}' holds variables and is invoked without a label",
    hint="write label: {name}(…), or take a single result",
)
ARGUMENT_RANK = Rule(
    "SKR219", COMPOSING, "input '{input}' of '{name}' has rank {left} and gets a tensor of rank {right}"
)
ARGUMENT_PACK = Rule("SKR220", COMPOSING, "input '{input}' of '{name}' is {left} and gets {right}")
RESULT_LENGTH = Rule(
    "SKR221",
    COMPOSING,
    "'{name}' is a pack of results and its length is not written",
    hint="write {name}..(length)",
)
RESULT_PATTERN = Rule("SKR222", COMPOSING, "a single tensor is taken apart like a pack")
OUTPUT_TYPE = Rule("SKR223", COMPOSING, "'{name}' is declared as {left} and gets {right}")
OUTPUT_RANK = Rule("SKR224", COMPOSING, "'{name}' is declared with rank {left} and gets rank {right}")
OUTPUT_PACK = Rule("SKR225", COMPOSING, "'{name}' is declared as {left} and gets {right}")

# Control flow
CONDITION = Rule("SKR230", CONTROL, "{what} is {found}, not one bool")
BRANCH_COUNT = Rule("SKR231", CONTROL, "the branches give {left} and {right} results")
BRANCH_TYPE = Rule("SKR232", CONTROL, "result {number} of the branches is {left} and {right}")
BRANCH_RANK = Rule("SKR233", CONTROL, "result {number} of the branches has rank {left} and {right}")
ENDLESS = Rule(
    "SKR234", CONTROL, "the loop has no end", hint="it needs a count, a 'for' clause or a 'while' condition"
)
UNROLL_WHILE = Rule(
    "SKR235", CONTROL, "'unroll' has a condition", hint="only the run knows when the condition ends; write do"
)
CARRIED_COUNT = Rule("SKR236", CONTROL, "the loop carries {left} values and its body gives {right} results")
CARRIED_TYPE = Rule("SKR237", CONTROL, "the carried '{name}' is {left} and its body gives {right}")
SCAN_PACK = Rule(
    "SKR238", CONTROL, "'for {name}' runs over a single value", hint="a scan takes a pack of tensors"
)
SCAN_LENGTHS = Rule("SKR239", CONTROL, "the loop scans packs of lengths {left} and {right}")
COUNT_TYPE = Rule("SKR240", CONTROL, "the count of the loop is {found}, not one int")
UNROLL_TENSOR = Rule(
    "SKR241", CONTROL, "'unroll' is counted by a tensor", hint="the count is known before the run; write do"
)
BODY_PACK = Rule("SKR242", CONTROL, "the body of the loop gives a pack as result {number}")
TWO_CONDITIONS = Rule("SKR243", CONTROL, "the loop has a condition before and one behind its body")
SCAN_LIMIT = Rule(
    "SKR244",
    CONTROL,
    "the loop collects results and nothing bounds how many",
    hint="give it a count or a 'for' clause",
)
UNROLL_OPEN = Rule("SKR245", CONTROL, "'unroll' has neither a count nor a 'for' clause")

# Updates and quantisation
UPDATE_TARGET = Rule(
    "SKR250",
    "2.11 Updating variables",
    "'{name}' is {what} and cannot be updated",
    hint="@update assigns variables",
)
UNKNOWN_TENSOR = Rule("SKR252", "2.14 Quantization", "there is no tensor '{name}' to quantise")
QUANTISED_TWICE = Rule("SKR253", "2.14 Quantization", "'{name}' is quantised twice")
QUANTISER = Rule(
    "SKR254",
    "2.14 Quantization",
    "'{name}' does not quantise: {what}",
    hint="a quantiser has one input and one output, both single tensors of one type",
)
QUANTISED_OPERATOR = Rule(
    "SKR255",
    "2.14 Quantization",
    "operator '{name}' has a @quantize block",
    hint="quantisation is said in the graph, with names scoped by labels",
)
