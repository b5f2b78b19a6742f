"""Reading a pattern: Unicode classes, groups, choices, counts, a look at the next character."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from lamella.backend.tisa.patterns.nodes import (
    END,
    SPACE,
    Begin,
    Chars,
    Choice,
    Concatenation,
    Look,
    Node,
    One,
    Repeat,
    category,
    digit,
    fold,
    from_text,
    merge,
    single,
    word,
)
from lamella.base.errors import Malformed

DEEPEST = 50
LONGEST = 20_000
HIGHEST_COUNT = 1000
_COUNT = re.compile(r"\{(\d{0,5})(,?)(\d{0,5})\}")
_PROPERTY = re.compile(r"\{\s*(\^?)\s*(\w{1,30})\s*\}|([A-Za-z])")
_HEX = re.compile(r"x\{([0-9A-Fa-f]{1,8})\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})")
_CONTROLS: Mapping[str, str] = MappingProxyType(
    {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b", "0": "\0"}
)
_CLASSES: Mapping[str, Callable[[], Chars]] = MappingProxyType(
    {"s": lambda: SPACE, "d": digit, "w": word, "h": lambda: from_text("0123456789abcdefABCDEF")}
)
_LONG_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt",
        "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Mark": "M", "Nonspacing_Mark": "Mn", "Number": "N",
        "Decimal_Number": "Nd", "Letter_Number": "Nl", "Other_Number": "No", "Punctuation": "P", "Punct": "P",
        "Symbol": "S", "Separator": "Z", "Space_Separator": "Zs", "Other": "C", "Control": "Cc", "Format": "Cf",
    }
)  # fmt: skip
_ANY_BUT_NEWLINE = ~single("\n")


def parse_pattern(text: str) -> Node:
    """The tree of a pattern; Malformed where it is not one that is taken."""
    if len(text) > LONGEST:
        raise Malformed(f"has {len(text)} characters; {LONGEST} are the most")
    parser = _Parser(text)
    node = parser.choice(0)
    if parser.position < len(text):
        raise Malformed(f"has a ')' without its '(' at character {parser.position}")
    return node


class _Parser:
    """A pattern, and how far it is read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.folding = False

    def choice(self, depth: int) -> Node:
        """Rows between bars."""
        if depth > DEEPEST:
            raise Malformed(f"is nested deeper than {DEEPEST} groups")
        folding = self.folding
        options = [self._row(depth)]
        while self._take("|"):
            options.append(self._row(depth))
        self.folding = folding
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _row(self, depth: int) -> Node:
        items: list[Node] = []
        while self.position < len(self.text) and self.text[self.position] not in "|)":
            item = self._item(depth)
            items += [] if item is None else [self._repeated(item)]
        return items[0] if len(items) == 1 else Concatenation(tuple(items))

    def _take(self, words: str) -> bool:
        found = self.text.startswith(words, self.position)
        self.position += len(words) * found
        return found

    def _next(self) -> str:
        if self.position >= len(self.text):
            raise Malformed("ends in the middle")
        self.position += 1
        return self.text[self.position - 1]

    def _item(self, depth: int) -> Node | None:
        character = self._next()
        match character:
            case "(":
                return self._group(depth)
            case "[":
                return One(self._set())
            case ".":
                return One(_ANY_BUT_NEWLINE)
            case "^":
                return Begin()
            case "$":
                return END
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise Malformed(f"repeats nothing at character {self.position - 1}")
        return One(self._cased(single(character)))

    def _cased(self, chars: Chars) -> Chars:
        return fold(chars) if self.folding else chars

    # --- groups ---------------------------------------------------------------------------------------------

    def _group(self, depth: int) -> Node | None:
        folding = self.folding
        if self._take("?"):
            looking = self._take("=") or (None if not self._take("!") else False)
            if looking is not None:
                return self._look(depth, looking)
            if self._option():
                return None
        node = self.choice(depth + 1)
        self.folding = folding
        self._close()
        return node

    def _close(self) -> None:
        if not self._take(")"):
            raise Malformed("has a '(' without its ')'")

    def _option(self) -> bool:
        """`?:`, `?i:` and `?i)`; True where the rest of the group around is meant."""
        for words, folding in ((":", self.folding), ("i:", True), ("-i:", False)):
            if self._take(words):
                self.folding = folding
                return False
        if self._take("i)"):
            self.folding = True
            return True
        raise Malformed(f"has a group that is not taken at character {self.position}")

    def _look(self, depth: int, positive: bool) -> Node:
        node = self.choice(depth + 1)
        self._close()
        options = node.options if isinstance(node, Choice) else (node,)
        chars, end = Chars(), False
        for option in options:
            if isinstance(option, One):
                chars |= option.chars
            elif option == END:
                end = True
            else:
                raise Malformed("looks further ahead than one character")
        return Look(chars, end) if positive else Look(~chars, not end)

    # --- single characters ----------------------------------------------------------------------------------

    def _escape(self) -> Node:
        match self.text[self.position : self.position + 1]:
            case "A" | "G":
                self.position += 1
                return Begin()
            case "z" | "Z":
                self.position += 1
                return END
            case "b" | "B" | "K" | "X" | "R" | "k" | "g":
                raise Malformed(f"has '\\{self.text[self.position]}', which is not taken")
        return One(self._cased(self._escaped()))

    def _escaped(self) -> Chars:
        """What stands behind a backslash, as a set."""
        found = _HEX.match(self.text, self.position)
        if found:
            self.position = found.end()
            return self._code(next(filter(None, found.groups())))
        letter = self._next()
        if letter in "pP":
            return self._property(letter == "P")
        if letter.lower() in _CLASSES:
            chars = _CLASSES[letter.lower()]()
            return chars if letter.islower() else ~chars
        if letter in _CONTROLS:
            return single(_CONTROLS[letter])
        if letter.isalnum():
            raise Malformed(f"has '\\{letter}', which is not taken")
        return single(letter)

    def _code(self, digits: str) -> Chars:
        code = int(digits, 16)
        if code > 0x10FFFF:
            raise Malformed(f"names the character {code:X}; 10FFFF is the last")
        return merge([(code, code)])

    def _property(self, negative: bool) -> Chars:
        found = _PROPERTY.match(self.text, self.position)
        if not found:
            raise Malformed("has '\\p' without the name of a class")
        self.position = found.end()
        name = found[2] or found[3]
        chars = category(_LONG_NAMES.get(name, name))
        if name.lower() in ("space", "white_space"):
            chars = SPACE
        if chars is None:
            raise Malformed(f"names the class '{name}'; general categories such as 'Lu' are taken")
        return ~chars if negative != bool(found[1]) else chars

    # --- sets -----------------------------------------------------------------------------------------------

    def _set(self) -> Chars:
        negative, ranges, first = self._take("^"), list[tuple[int, int]](), True
        while first or not self._take("]"):
            start = self._member(first)
            first = False
            if len(start) == 1 and self._is_range():
                self.position += 1
                start = self._span(start, self._member(False))
            ranges += start.ranges
        chars = self._cased(merge(ranges))
        return ~chars if negative else chars

    def _is_range(self) -> bool:
        return self.text.startswith("-", self.position) and not self.text.startswith("-]", self.position)

    def _span(self, start: Chars, end: Chars) -> Chars:
        low, high = start.ranges[0][0], end.ranges[0][1] if len(end) == 1 else -1
        if high < low:
            raise Malformed(f"has a range without characters at character {self.position}")
        return merge([(low, high)])

    def _member(self, first: bool) -> Chars:
        if self.text.startswith("&&", self.position) or self.text.startswith("[", self.position):
            raise Malformed("has a set within a set; a '[' in a set is written '\\['")
        character = self._next()
        if character == "]" and not first:
            raise Malformed("has a range without its end")
        if character != "\\":
            return single(character)
        if self._take("b"):
            return single("\b")
        return self._escaped()

    # --- counts ---------------------------------------------------------------------------------------------

    def _repeated(self, item: Node) -> Node:
        counts = self._counts()
        if counts is None:
            return item
        if isinstance(item, Look | Begin):
            raise Malformed("repeats what takes no character")
        lazy = self._take("?")
        final = not lazy and self._take("+")
        if self._counts() is not None:
            raise Malformed(f"repeats a repetition at character {self.position - 1}")
        return Repeat(item, *counts, eager=not lazy, final=final)

    def _counts(self) -> tuple[int, int | None] | None:
        for word_, low, high in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._take(word_):
                return low, high
        found = _COUNT.match(self.text, self.position)
        if not found or not (found[1] or found[3]):
            return None
        self.position = found.end()
        low = int(found[1] or 0)
        high = int(found[3]) if found[3] else None if found[2] else low
        if low > HIGHEST_COUNT or (high is not None and not low <= high <= HIGHEST_COUNT):
            raise Malformed(f"has the count '{found[0]}'; counts ascend, up to {HIGHEST_COUNT}")
        return low, high
