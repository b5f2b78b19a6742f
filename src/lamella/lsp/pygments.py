"""Lexers for Pygments, from the grammars that editors use; Pygments finds them by an entry point."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from pygments.lexer import RegexLexer
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Punctuation, String, Text

from lamella.pipeline import grammars
from lamella.pipeline.grammars import GRAMMARS, Grammar

TOKENS: Mapping[str, object] = MappingProxyType(
    {
        grammars.COMMENT_SCOPE: Comment.Single,
        grammars.STRING: String,
        "string.quoted.docstring": String.Doc,
        grammars.NUMBER: Number,
        grammars.ILLEGAL: Error,
        grammars.KEYWORD: Keyword,
        grammars.CONTROL: Keyword,
        grammars.TYPE: Keyword.Type,
        grammars.CONSTANT: Keyword.Constant,
        grammars.FUNCTION: Name.Builtin,
        grammars.DEFINED: Name.Function,
        grammars.VARIABLE: Name,
        grammars.OPERATOR: Operator,
        grammars.DECORATOR: Name.Decorator,
        grammars.BRACKET: Punctuation,
    }
)
"""What Pygments calls a scope."""


def _states(grammar: Grammar) -> dict[str, list[tuple[str, object]]]:
    rules: list[tuple[str, object]] = [(r"\s+", Text)]
    for item in grammar.patterns:
        pattern = item.match
        if item.end:
            pattern = rf"{item.match}(?s:.*?)(?:{item.end}|\Z)"
        # Python looks behind by a fixed width only; each alternative gets its own.
        behind = re.match(r"\(\?<=((?:\w+ \|?)+)\)", pattern)
        if behind is not None:
            words = "|".join(f"(?<={word})" for word in behind[1].split("|"))
            pattern = f"(?:{words}){pattern[behind.end() :]}"
        rules.append((pattern, TOKENS[item.scope]))
    return {"root": rules}


class _GrammarLexer(RegexLexer):
    """A lexer whose states come from a grammar."""

    flags = re.MULTILINE | re.ASCII


class ModuleLexer(_GrammarLexer):
    """The Module DSL."""

    name, aliases, filenames = "Module DSL", ["lamella-module", "module-dsl"], ["*.module"]
    tokens = _states(GRAMMARS["module"])


class SkriptndLexer(_GrammarLexer):
    """SkriptND."""

    name, aliases, filenames = "SkriptND", ["skriptnd", "sknd"], ["*.sknd"]
    tokens = _states(GRAMMARS["skriptnd"])


class TensorLexer(_GrammarLexer):
    """The tensor language."""

    name, aliases, filenames = "Tensor language", ["lamella-tensor"], ["*.tensor"]
    tokens = _states(GRAMMARS["tensor"])


class NemLexer(_GrammarLexer):
    """NEM."""

    name, aliases, filenames = "NEM", ["nem"], ["*.nem"]
    tokens = _states(GRAMMARS["nem"])
