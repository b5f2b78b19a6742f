"""Text that is not the language: E001, and our own E101 to E109, W101 to W109."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, Rule

SYNTAX = Rule("E001", "Appendix A", "expected {wanted} {where}, found {found}")
BAD_CHARACTER = SYNTAX.also("the text '{text}' has no meaning here")
OPEN_DOC = SYNTAX.also("this docstring never ends", hint='close it with """')
UNCLOSED = SYNTAX.also("this '{sign}' is never closed", hint="close it with '{closing}'")
TOO_LARGE = SYNTAX.also(
    "the number {text} is too large", hint="integers have 64 bits, reals are finite doubles"
)
MISPLACED = SYNTAX.also("{what} cannot stand {where}", hint="{repair}")
TAB = SYNTAX.also("a tab in the indentation", hint="indent with spaces")
INDENTATION = SYNTAX.also("this line is indented by {found} spaces, {wanted}", hint="{repair}")
STUB = SYNTAX.also("'{name}' is not finished: '...' stands in its body", hint="write the body")
TWICE = SYNTAX.also("'{section}:' stands twice in {where}", hint="a section is written once")
LIMIT = Rule(
    "E101", "Limits", "{what} is beyond the limit of {limit}", hint="raise it with --limit {option}=N"
)
OLD_TYPE = Rule("W101", "3.2 Tensor Types", "'{text}' is an older spelling", NOTE, hint="write {repair}")
OLD_TRANSPOSE = Rule(
    "W102",
    "6.1.1 matmul",
    "transpose={given} means {meaning} here",
    NOTE,
    hint="write transpose={repair}",
)
