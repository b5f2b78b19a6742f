"""SkriptND, the language of operators and graphs."""

from lamella.lang.skriptnd.check import Find, check, check_operator
from lamella.lang.skriptnd.nodes import Document
from lamella.lang.skriptnd.parse import Outline, OutlineEntry, ParsedSkriptnd, outline, parse, parse_operator
from lamella.lang.skriptnd.rules import RULES
from lamella.lang.skriptnd.write import write, write_expression

__all__ = [
    "RULES",
    "Document",
    "Find",
    "Outline",
    "OutlineEntry",
    "ParsedSkriptnd",
    "check",
    "check_operator",
    "outline",
    "parse",
    "parse_operator",
    "write",
    "write_expression",
]
