"""Colours without a server: the tables of the lexers as TextMate grammars, for pages, and as rules for Pygments.

A grammar is a list of patterns, each with a scope as TextMate names them; the first that matches wins. Patterns of
numbers, strings and comments are those of the language's own lexer, words are its own tables.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.cursor import COMMENT
from lamella.lang.module import words as module
from lamella.lang.module.parse.tokens import LEXER as MODULE_LEXER
from lamella.lang.nem import words as nem
from lamella.lang.nem.parse.tokens import LEXER as NEM_LEXER
from lamella.lang.nem.registry import load_registry
from lamella.lang.skriptnd import words as skriptnd
from lamella.lang.skriptnd.parse.tokens import LEXER as SKRIPTND_LEXER
from lamella.lang.tensor import words as tensor
from lamella.lang.tensor.parse.tokens import LEXER as TENSOR_LEXER

NAME = r"[A-Za-z_][0-9A-Za-z_]*"
COMMENT_SCOPE, STRING, NUMBER, ILLEGAL = (
    "comment.line",
    "string.quoted",
    "constant.numeric",
    "invalid.illegal",
)
KEYWORD, CONTROL, TYPE, CONSTANT = "keyword.other", "keyword.control", "storage.type", "constant.language"
FUNCTION, DEFINED, VARIABLE, OPERATOR = (
    "support.function",
    "entity.name.function",
    "variable.other",
    "keyword.operator",
)
DECORATOR, BRACKET = "entity.name.tag", "punctuation"


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a stretch of text looks like, and its scope; with an `end` it may go over several lines."""

    scope: str
    match: str
    end: str = ""


@dataclass(frozen=True, slots=True)
class Grammar:
    """The colours of a language: its name, the name editors know it by, its endings, how a comment begins."""

    title: str
    id: str
    endings: tuple[str, ...]
    comment: str
    patterns: tuple[Pattern, ...]

    def textmate(self) -> dict[str, object]:
        """The grammar as editors read it."""
        return {
            "name": self.title,
            "scopeName": f"source.{self.id}",
            "fileTypes": [ending.lstrip(".") for ending in self.endings],
            "patterns": [self._rule(item) for item in self.patterns],
        }

    def javascript(self) -> list[tuple[str, str, str]]:
        """The grammar as pages read it: scopes, patterns, and what ends those that go over several lines."""
        return [(item.scope, _to_greedy(item.match), item.end) for item in self.patterns]

    def _rule(self, item: Pattern) -> dict[str, str]:
        name = f"{item.scope}.{self.id}"
        if item.end:
            return {"name": name, "begin": item.match, "end": item.end}
        return {"name": name, "match": item.match}


def _to_greedy(pattern: str) -> str:
    """A pattern without possessive quantifiers, which JavaScript does not have; what it matches stays the same.

    They only keep a lexer from going back over long texts: a page lexes line by line.
    """
    found: list[str] = []
    inside = escaped = quantified = False
    for letter in pattern:
        if quantified and letter == "+":
            quantified = False
            continue
        quantified = not inside and not escaped and letter in "*+?}"
        found.append(letter)
        if not escaped:
            inside = letter != "]" if inside else letter == "["
        escaped = letter == "\\" and not escaped
    return "".join(found)


def _any(words: Collection[str]) -> str:
    """One of these words, and not the beginning of a longer one."""
    listed = "|".join(map(re.escape, sorted(words, key=lambda word: (-len(word), word))))
    return rf"(?<![0-9A-Za-z_])(?:{listed})(?![0-9A-Za-z_])"


def _lexical(patterns: Mapping[str, str], *numbers: str) -> list[Pattern]:
    """Comments, strings and numbers as the lexer cuts them."""
    found = [Pattern(COMMENT_SCOPE, patterns[COMMENT])]
    found += [Pattern(STRING, patterns["string"]), Pattern(ILLEGAL, patterns["open"])]
    # Before numbers: a name may end in digits.
    return [*found, *(Pattern(NUMBER, rf"(?<![0-9A-Za-z_])(?:{patterns[kind]})") for kind in numbers)]


def _skriptnd() -> tuple[Pattern, ...]:
    patterns = SKRIPTND_LEXER.patterns
    types, blocks = skriptnd.TYPE_WORDS, [f"@{name}" for name in skriptnd.BLOCKS]
    constants = {"inf", "pi", "true", "false"}
    return (
        *_lexical(patterns, "int", "real"),
        Pattern(DECORATOR, _any(blocks)),
        Pattern(ILLEGAL, patterns["block"]),
        Pattern(DEFINED, rf"(?<=operator |graph ){NAME}"),
        Pattern(TYPE, _any(types)),
        Pattern(CONSTANT, _any(constants)),
        Pattern(KEYWORD, _any(skriptnd.KEYWORDS - types - constants)),
        Pattern(FUNCTION, patterns["builtin"]),
        Pattern(VARIABLE, NAME),
        Pattern(OPERATOR, patterns["sign"]),
    )


def _tensor() -> tuple[Pattern, ...]:
    patterns = TENSOR_LEXER.patterns
    scalars = "|".join(tensor.SCALARS)
    types = {"memref", "group", "coopmatrix", "strided", "bool", "local", "global"}
    control = {"for", "foreach", "foreach_tile", "if", "else", "yield", "parallel", "init"}
    others = (
        {*tensor.PLAIN, *tensor.OTHERS, *tensor.NEWER} - types - control - {"func", "x"} - set(tensor.SCALARS)
    )
    dotted = r"(?:arith|cmp|math|builtin|subgroup_(?:add|max|min))\.[A-Za-z_][0-9A-Za-z_]*"
    return (
        *_lexical(patterns, "float", "int"),
        Pattern(VARIABLE, patterns["local"]),
        Pattern(DEFINED, patterns["global"]),
        Pattern(TYPE, rf"(?<![0-9A-Za-z_.])(?:{scalars})(?=x[0-9?]|[^0-9A-Za-z_]|$)"),
        Pattern(FUNCTION, dotted),
        Pattern(TYPE, _any(types)),
        Pattern(CONTROL, _any(control)),
        Pattern(KEYWORD, _any({"func", *others} - {"true", "false"})),
        Pattern(CONSTANT, _any({"true", "false"})),
        Pattern(OPERATOR, r"x(?![A-Za-z_])"),
        Pattern(NUMBER, r"(?<=x)[0-9]+"),
        Pattern(DECORATOR, patterns["modifier"]),
        Pattern(ILLEGAL, NAME),
        Pattern(OPERATOR, patterns["sign"]),
    )


def _nem() -> tuple[Pattern, ...]:
    patterns = NEM_LEXER.patterns
    control = {"loop", "endloop", "wait", "in", "out", "deps"}
    levels = nem.LEVELS | nem.UNITS
    return (
        *_lexical(patterns, "float", "int"),
        Pattern(DECORATOR, rf"@{NAME}"),
        Pattern(DEFINED, rf"(?<=buffer |device |program ){NAME}"),
        Pattern(FUNCTION, rf"{_any(load_registry())}(?=\.(?:async|sync))"),
        Pattern(TYPE, _any(nem.ELEMENTS)),
        Pattern(CONSTANT, _any(levels)),
        Pattern(CONTROL, _any(control)),
        Pattern(KEYWORD, _any((nem.KEYWORDS | nem.FORMS | nem.QUANT_FORMS) - control)),
        Pattern(VARIABLE, NAME),
        Pattern(OPERATOR, patterns["sign"]),
    )


def _module() -> tuple[Pattern, ...]:
    patterns = MODULE_LEXER.patterns
    constants = {"true", "false", "None"}
    types = module.DTYPES | set(module.CONFIG_TYPES) | {"Tensor"}
    heads = module.HEADERS | module.SECTIONS | {"in", "out", "save", "recompute", "impl"}
    return (
        Pattern("string.quoted.docstring", r'"""', r'"""'),
        *_lexical(patterns, "int", "float"),
        Pattern(DECORATOR, rf"@{NAME}"),
        Pattern(DEFINED, rf"(?<=module |block |model |primitive |recipe |preset ){NAME}"),
        Pattern(CONTROL, _any(module.OPERATOR_WORDS)),
        Pattern(KEYWORD, rf"{_any(heads)}(?=\s*:)"),
        Pattern(
            KEYWORD, rf"(?:^|(?<=\s)){_any(module.OPENERS | {'extends', 'as', 'tied_to', 'fuse', 'split'})}"
        ),
        Pattern(TYPE, _any(types)),
        Pattern(CONSTANT, _any(constants)),
        Pattern(VARIABLE, NAME),
        Pattern(OPERATOR, patterns["sign"]),
    )


GRAMMARS: Mapping[str, Grammar] = MappingProxyType(
    {
        "module": Grammar("Module DSL", "lamella-module", (".module",), "#", _module()),
        "skriptnd": Grammar("SkriptND", "skriptnd", (".sknd",), "#", _skriptnd()),
        "tensor": Grammar("Tensor language", "lamella-tensor", (".tensor", ".ir"), ";", _tensor()),
        "nem": Grammar("NEM", "nem", (".nem",), "#", _nem()),
    }
)
"""The text languages."""
