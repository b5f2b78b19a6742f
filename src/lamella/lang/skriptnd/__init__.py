"""SkriptND, the language of operators and graphs."""

from lamella.lang.skriptnd.check import Find, check, check_operator
from lamella.lang.skriptnd.nodes import Document
from lamella.lang.skriptnd.parse import Entry, Outline, Parsed, outline, parse, parse_operator
from lamella.lang.skriptnd.rules import RULES
from lamella.lang.skriptnd.write import write, write_expression

__all__ = [
    "RULES",
    "Document",
    "Entry",
    "Find",
    "Outline",
    "Parsed",
    "check",
    "check_operator",
    "outline",
    "parse",
    "parse_operator",
    "write",
    "write_expression",
]
