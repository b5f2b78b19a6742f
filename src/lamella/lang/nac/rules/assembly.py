"""The assembly text: NAC180 to NAC199."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

SYNTAX = Rule("NAC180", "Assembly text", "expected {wanted} {where}, found {found}")
BAD_CHARACTER = Rule("NAC181", "Assembly text", "the text '{text}' has no meaning here")
OPEN_STRING = Rule(
    "NAC182",
    "Assembly text",
    "the string {text} does not end on the line it begins on, or holds an escape that does not exist",
    hint='the escapes are \\" \\\\ \\n \\r \\t and \\u{{HEX}}',
)
NUMBER_FORM = Rule("NAC183", "Assembly text", "'{text}' is not a number", hint="write it as 12, -1.5 or 2e3")
OUT_OF_RANGE = Rule("NAC184", "Assembly text", "{text} is out of range", hint="{repair}")
UNKNOWN_WORD = Rule("NAC185", "Assembly text", "there is no {what} '{text}'", hint="{repair}")
REPEATED = Rule("NAC186", "Assembly text", "{what} is given twice", hint="leave one of them out")
LABEL_INDEX = Rule(
    "NAC187",
    "Assembly text",
    "%{label} is the instruction at index {index}",
    hint="write %{index}, or give it a name that is no number",
)
UNKNOWN_LABEL = Rule(
    "NAC188", "Assembly text", "no instruction of this section is called %{label}", hint="{repair}"
)
OWN_RESULT = Rule(
    "NAC189",
    "Field D",
    "%{label} takes its own result, which an offset of 0 cannot say",
    hint="0 stands for the next constant",
)
ARGUMENT_COUNT = Rule(
    "NAC190",
    "Field D",
    "the signature {codes} has {wanted} arguments, but {given} given",
    hint="each code of a signature is one argument",
)
FULL_TABLE = Rule(
    "NAC191",
    "Assembly text",
    "no id is left for the {what} {text}",
    hint="ids reach to {last}; write the table so that fewer are taken",
)
BAD_DATA = Rule("NAC192", "Assembly text", "these pieces are not {encoding}", hint="{repair}")
COMPANION = Rule("NAC193", "Assembly text", "the data in '{name}' cannot be taken: {reason}", hint="{repair}")
TWO_SCHEDULES = Rule(
    "NAC194",
    "Memory map",
    "commands stand both behind instructions and in the section .schedule",
    hint="write all of them in one way",
)
LIMIT = Rule("NAC195", "Assembly text", "{what} is beyond the limit of {limit}", hint="{repair}")
STEP = Rule(
    "NAC196",
    "Assembly text",
    "{name} {reason}",
    hint="each instruction has operands of its own",
)
NUL = Rule(
    "NAC197",
    "Assembly text",
    "a NUL character ends the text, {count} characters behind it are not read",
    WARNING,
    hint="remove it",
)
