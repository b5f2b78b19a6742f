"""Patterns of tokenizers in linear time: by Python's own matcher where that is proved, else by an automaton."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple

from lamella.backend.tisa.patterns.nodes import (
    LAST,
    LAST_BASIC,
    Begin,
    Chars,
    Choice,
    Concatenation,
    Look,
    Node,
    One,
    Repeat,
)
from lamella.backend.tisa.patterns.parse import parse_pattern
from lamella.base.errors import Malformed

# --- proof that a backtracking matcher runs in linear time, by the shape of the branches of a pattern -------
#
# A branch is *bounded* where it takes few characters in few ways. It is *sure* where it has a loop behind a bounded
# part and cannot fail once the loop has what it needs: what it has read, it takes. Another branch with a loop is
# *covered* where the next sure branch begins alike and takes at least what was read in vain. Then every character
# is read a fixed number of times.


FEW, SHORT_PART = 64, 64
"""Ways through a bounded part, and characters that it takes."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """A branch by its loop; without one it is bounded."""

    sure: bool
    prefix: tuple[Node, ...] = ()
    loop: Chars | None = None


def runs_linear(rules: Sequence[Node]) -> bool:
    """Whether a backtracking matcher reads each character of a text a fixed number of times at most."""
    branches = [branch for rule in rules for branch in branches_of(rule)]
    shapes = [_shape(branch) for branch in branches]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or any(least(branch) == 0 for branch in branches):
        return False
    return all(shape.sure or _covered(known[place:]) for place, shape in enumerate(known))


def branches_of(node: Node) -> tuple[Node, ...]:
    """The branches of a choice, or the one that there is."""
    return node.options if isinstance(node, Choice) else (node,)


def _covered(shapes: Sequence[_Shape]) -> bool:
    """Whether a sure branch takes what the first branch may have read in vain, with nothing else between."""
    first = shapes[0]
    vain = list(takewhile(lambda shape: not shape.sure, shapes))
    rest = shapes[len(vain) :]
    return bool(rest) and all(_alike(shape, rest[0]) for shape in [*vain, rest[0]]) and _alike(first, rest[0])


def _alike(shape: _Shape, cover: _Shape) -> bool:
    if shape.loop is None or cover.loop is None or shape.prefix != cover.prefix:
        return False
    return shape.loop.within(cover.loop)


def _shape(branch: Node) -> _Shape | None:
    items = branch.items if isinstance(branch, Concatenation) else (branch,)
    place = next((i for i, item in enumerate(items) if not _bounded([item])), len(items))
    if not _bounded(items[:place]):
        return None
    if place == len(items):
        return _Shape(True)
    loop, tail = items[place], items[place + 1 :]
    if (
        not isinstance(loop, Repeat)
        or not isinstance(loop.item, One)
        or not loop.eager
        or loop.low > SHORT_PART
    ):
        return None
    if _sure(loop, loop.item.chars, tail):
        return _Shape(True, items[:place], loop.item.chars)
    return _Shape(False, items[:place], loop.item.chars) if _ends_soon(tail) else None


def _sure(loop: Repeat, chars: Chars, tail: Sequence[Node]) -> bool:
    """Nothing behind the loop can fail: optional parts, or a look that one step back satisfies."""
    if len(tail) == 1 and isinstance(tail[0], Look):
        return not loop.final and chars.within(tail[0].chars)
    return all(map(_optional, tail))


def _optional(node: Node) -> bool:
    if not isinstance(node, Repeat) or node.low or not node.eager:
        return False
    return isinstance(node.item, One) or (node.high == 1 and _bounded([node.item]))


def _ends_soon(tail: Sequence[Node]) -> bool:
    """A bounded part or a second loop, and then nothing that can fail."""
    first, rest = tail[:1], tail[1:]
    if _bounded(first):
        return _bounded(tail) or all(map(_optional, rest))
    second = first[0]
    if not isinstance(second, Repeat) or not isinstance(second.item, One):
        return False
    return second.eager and second.low <= SHORT_PART and all(map(_optional, rest))


def _bounded(items: Sequence[Node]) -> bool:
    ways = longest = 1
    for item in items:
        ways *= _ways(item)
        longest += _longest(item)
    return ways <= FEW and longest <= SHORT_PART


def _ways(node: Node) -> int:
    """How many ways lead through a part at most; many where it is nested."""
    match node:
        case Concatenation(items):
            ways = 1
            for item in items:
                ways = min(ways * _ways(item), FEW + 1)
            return ways
        case Choice(options):
            return min(sum(map(_ways, options)), FEW + 1)
        case Repeat(One(), low, high):
            return FEW + 1 if high is None else high - low + 1
        case Repeat(item, 0, 1):
            return 1 + _ways(item)
        case Repeat():
            return FEW + 1
    return 1


def _longest(node: Node) -> int:
    match node:
        case Concatenation(items):
            return min(sum(map(_longest, items)), SHORT_PART + 1)
        case Choice(options):
            return max(map(_longest, options))
        case Repeat(item, _, high):
            return SHORT_PART + 1 if high is None else min(_longest(item) * high, SHORT_PART + 1)
        case One():
            return 1
    return 0


def least(node: Node) -> int:
    """Characters that a part takes at least."""
    match node:
        case Concatenation(items):
            return sum(map(least, items))
        case Choice(options):
            return min(map(least, options))
        case Repeat(item, low, _):
            return least(item) * low
        case One():
            return 1
    return 0


# --- patterns as NFA programs with ordered threads (Thompson) -----------------------------------------------


MOST_STEPS = 4000
TAKE, FORK, LOOK, BEGIN, ACCEPT = range(5)


class ProgramInstruction(NamedTuple):
    """One step: `first` is the next one; of a fork it is preferred to `second`; a set is an index."""

    kind: int
    first: int = 0
    second: int = 0
    chars: int = 0
    end: bool = False


@dataclass
class PatternProgram:
    """The steps of an ordered choice of rules, and the sets that they test."""

    steps: list[ProgramInstruction] = field(default_factory=list)
    sets: dict[Chars, int] = field(default_factory=dict)
    start: int = 0

    def add(self, step: ProgramInstruction) -> int:
        """One more step."""
        if len(self.steps) >= MOST_STEPS:
            raise Malformed(f"needs more than {MOST_STEPS} steps")
        self.steps.append(step)
        return len(self.steps) - 1

    def index(self, chars: Chars) -> int:
        """The index of a set."""
        return self.sets.setdefault(chars, len(self.sets))

    def emit(self, node: Node, after: int) -> int:
        """The first step of a part behind which another step comes."""
        match node:
            case One(chars):
                return self.add(ProgramInstruction(TAKE, after, chars=self.index(chars)))
            case Look(chars, end):
                return self.add(ProgramInstruction(LOOK, after, chars=self.index(chars), end=end))
            case Begin():
                return self.add(ProgramInstruction(BEGIN, after))
            case Concatenation(items):
                for item in reversed(items):
                    after = self.emit(item, after)
                return after
            case Choice(options):
                return self._fork([self.emit(item, after) for item in options])
            case Repeat():
                return self._repeat(node, after)

    def _fork(self, starts: Sequence[int]) -> int:
        start = starts[-1]
        for other in reversed(starts[:-1]):
            start = self.add(ProgramInstruction(FORK, other, start))
        return start

    def _repeat(self, node: Repeat, after: int) -> int:
        if node.high is None:
            after = self._loop(node, after)
        else:
            leave = after
            for _ in range(node.high - node.low):
                after = self._maybe(node, self.emit(node.item, after), leave)
        for _ in range(node.low):
            after = self.emit(node.item, after)
        return after

    def _maybe(self, node: Repeat, inside: int, leave: int) -> int:
        first, second = (inside, leave) if node.eager else (leave, inside)
        return self.add(ProgramInstruction(FORK, first, second))

    def _loop(self, node: Repeat, leave: int) -> int:
        fork = self.add(ProgramInstruction(FORK))
        inside = self.emit(node.item, fork)
        first, second = (inside, leave) if node.eager else (leave, inside)
        self.steps[fork] = ProgramInstruction(FORK, first, second)
        return fork


def build_program(rules: Sequence[Node]) -> PatternProgram:
    """The steps of rules of which the first that fits is taken; each accepts with its own number."""
    program = PatternProgram()
    program.add(ProgramInstruction(ACCEPT, -1))
    starts = []
    for number, rule in enumerate(rules):
        accept = program.add(ProgramInstruction(ACCEPT, number))
        starts.append(program.emit(rule, accept))
    program.start = program._fork(starts) if starts else 0
    return program


# --- lazily built DFA: all matches in time linear in the text -----------------------------------------------


PatternMatch = tuple[int, int, int]
"""Start, end and the number of the rule."""

AT_END = -1
NOTHING = -1
SHORT = 16
"""Characters read in vain that are not worth remembering."""
MOST_STATES = 10_000
_WIDTH = 2 * MOST_STATES
MOST_VAIN = 4_000_000
"""Places and states that are remembered as read in vain."""
FREE_WORK, WORK_EACH = 2_000_000, 400
"""Steps that building states may take for any text, and for each character of it."""


class _Classes(dict[str, int]):
    """Characters by the sets that hold them: those of one class are alike to the pattern."""

    def __init__(self, sets: Sequence[Chars]) -> None:
        super().__init__()
        self.sets = sets
        self.members: dict[tuple[int, ...], int] = {}

    def __missing__(self, character: str) -> int:
        held = tuple(place for place, chars in enumerate(self.sets) if character in chars)
        number = self.members.setdefault(held, len(self.members))
        self[character] = number
        return number


class Automaton:
    """A program, and the states that it has needed so far."""

    def __init__(self, program: PatternProgram) -> None:
        self._steps = program.steps
        self._classes = _Classes(list(program.sets))
        self._cores: dict[tuple[int, ...], int] = {}
        self._threads: list[tuple[int, ...]] = []
        self._moves: list[dict[int, tuple[int, int]]] = []
        self._dead = self._state(())
        self._starts = self._state((1, program.start)), self._state((0, program.start))
        self._work = 0

    def find(self, text: str) -> list[PatternMatch]:
        """The matches from left to right that take a character at least, none within another."""
        classes = [self._classes[item] for item in text]
        self._work = FREE_WORK + WORK_EACH * len(text)
        found: list[PatternMatch] = []
        vain: set[int] = set()
        position = 0
        while position < len(classes):
            end, rule = self._match(classes, position, vain)
            if end > position:
                found.append((position, end, rule))
            position = max(end, position + 1)
        return found

    def _match(self, classes: list[int], start: int, vain: set[int]) -> tuple[int, int]:
        """Where the match at a place ends, and its rule."""
        end, rule, position = start, NOTHING, start
        state = self._starts[start > 0]
        trail: list[int] = []
        while state != self._dead and (mark := position * _WIDTH + state) not in vain:
            trail.append(mark)
            at_end = position == len(classes)
            accepted, state = self._move(state, AT_END if at_end else classes[position])
            if accepted != NOTHING:
                end, rule, trail = position, accepted, []
            if at_end:
                break
            position += 1
        if len(trail) > SHORT:
            vain.update(trail)
            if len(vain) > MOST_VAIN:
                raise Malformed("reads too far ahead in this text")
        return end, rule

    def _move(self, state: int, kind: int) -> tuple[int, int]:
        """What is accepted before a character of a class, and the state behind it."""
        known = self._moves[state].get(kind)
        if known is None:
            known = self._moves[state][kind] = self._compute(self._threads[state], kind)
        return known

    def _compute(self, core: tuple[int, ...], kind: int) -> tuple[int, int]:
        held = frozenset(next((key for key, number in self._classes.members.items() if number == kind), ()))
        begin, stack = bool(core[0]), list(reversed(core[1:]))
        seen: set[int] = set()
        after: dict[int, None] = {}
        accepted = NOTHING
        while stack:
            number = stack.pop()
            if number in seen:
                continue
            seen.add(number)
            step = self._steps[number]
            if step.kind == ACCEPT:
                accepted = step.first
                break
            if step.kind == TAKE:
                if kind != AT_END and step.chars in held:
                    after[step.first] = None
            elif step.kind == FORK:
                stack += (step.second, step.first)
            elif self._holds(step.kind, begin, step.end if kind == AT_END else step.chars in held):
                stack.append(step.first)
        self._spend(len(seen))
        return accepted, self._state((0, *after) if after else ())

    @staticmethod
    def _holds(kind: int, begin: bool, looked: bool) -> bool:
        return begin if kind == BEGIN else kind == LOOK and looked

    def _spend(self, steps: int) -> None:
        self._work -= steps
        if self._work < 0 or len(self._threads) > MOST_STATES:
            raise Malformed("needs more states for this text than are made")

    def _state(self, core: tuple[int, ...]) -> int:
        """The number of a state: whether the text begins here, and its threads in order."""
        number = self._cores.setdefault(core, len(self._threads))
        if number == len(self._threads):
            self._threads.append(core)
            self._moves.append({})
        return number


# --- possessive repetitions, where they change nothing: an automaton does not backtrack ---------------------


def settle(rule: Node) -> Node:
    """The same pattern without such repetitions; Malformed where one of them matters."""
    branches = tuple(_settle_row(branch) for branch in branches_of(rule))
    return branches[0] if len(branches) == 1 else Choice(branches)


def _settle_row(branch: Node) -> Node:
    items = branch.items if isinstance(branch, Concatenation) else (branch,)
    return Concatenation(tuple(_settle_item(item, items[place + 1 :]) for place, item in enumerate(items)))


def _settle_item(item: Node, rest: Sequence[Node]) -> Node:
    if isinstance(item, Repeat) and item.final:
        taken = item.item.chars if isinstance(item.item, One) else None
        if rest and (taken is None or _first(rest).meets(taken)):
            raise Malformed("keeps what a repetition took although the rest could take it")
        item = replace(item, final=False)
    if _keeps(item):
        raise Malformed("keeps what a repetition within a group took")
    return item


def _keeps(node: Node) -> bool:
    match node:
        case Concatenation(items) | Choice(items):
            return any(map(_keeps, items))
        case Repeat(item):
            return node.final or _keeps(item)
    return False


def _first(items: Sequence[Node]) -> Chars:
    """The characters with which some parts can begin, and all where they can be empty before the end of the pattern."""
    found = Chars()
    for item in items:
        found |= _starts(item)
        if least(item) > 0 or isinstance(item, Look):
            return found
    return found


def _starts(node: Node) -> Chars:
    match node:
        case One(chars) | Look(chars):
            return chars
        case Concatenation(items):
            return _first(items)
        case Choice(options):
            found = Chars()
            for option in options:
                found |= _starts(option)
            return found
        case Repeat(item):
            return _starts(item)
        case Begin():
            return ~Chars()


# --- patterns for Python's own matcher, where it runs in linear time ----------------------------------------


def translate(node: Node, last: int) -> str:
    """The pattern for texts without characters beyond a code point."""
    match node:
        case One(chars):
            return _set(chars.up_to(last))
        case Look(chars, end):
            beyond = (~chars).up_to(last)
            return f"(?!{_set(beyond)})" if end else f"(?={_set(chars.up_to(last))})"
        case Begin():
            return r"\A"
        case Concatenation(items):
            return "".join(translate(item, last) for item in items)
        case Choice(options):
            return f"(?:{'|'.join(translate(item, last) for item in options)})"
        case Repeat(item, low, high):
            inner = translate(item, last)
            grouped = inner if isinstance(item, One) else f"(?:{inner})"
            return f"{grouped}{_count(low, high)}{'+' if node.final else '' if node.eager else '?'}"


def _count(low: int, high: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high))
    return short or f"{{{low},{'' if high is None else high}}}"


def _set(chars: Chars) -> str:
    if not chars.ranges:
        return r"(?!)"
    if len(chars) == 1:
        return re.escape(chr(chars.ranges[0][0]))
    return "[" + "".join(f"{_code(start)}-{_code(end)}" for start, end in chars.ranges) + "]"


def _code(code: int) -> str:
    return f"\\U{code:08x}"


__all__ = ["Matcher", "Node", "PatternMatch", "parse_pattern"]

_ASTRAL = re.compile(f"[{chr(LAST_BASIC + 1)}-{chr(LAST)}]")
MOST_GROUPS = 1000


class Matcher:
    """An ordered choice of patterns; the leftmost match is taken, at one place that of the first pattern."""

    def __init__(self, rules: Sequence[Node]) -> None:
        self._rules = rules
        self.linear = runs_linear(rules) and len(rules) <= MOST_GROUPS
        """Whether Python's own matcher does the work."""
        self._automaton = None if self.linear else Automaton(build_program([settle(rule) for rule in rules]))
        self._compiled: dict[tuple[int, bool], re.Pattern[str]] = {}

    def find(self, text: str) -> list[PatternMatch]:
        """The matches from left to right: start, end, number of the pattern."""
        if self._automaton is not None:
            return self._automaton.find(text)
        matches = self._pattern(text, numbered=True).finditer(text)
        return [(*found.span(), (found.lastindex or 1) - 1) for found in matches]

    def matches(self, text: str) -> list[str]:
        """The matches as texts."""
        if self._automaton is None:
            found: list[str] = self._pattern(text, numbered=False).findall(text)
            return found
        return [text[start:end] for start, end, _ in self.find(text)]

    def cut(self, text: str) -> list[str]:
        """The text in pieces: matches, and what lies between them."""
        if self._automaton is None:
            pieces = self.matches(text)
            # nothing lies between matches that have all characters
            if len("".join(pieces)) == len(text):
                return pieces
        return self._cut(text, lambda piece: piece)

    def replace(self, text: str, change: Callable[[str], str]) -> str:
        """The text with each match changed."""
        if self._automaton is None:
            return self._pattern(text, numbered=False).sub(lambda found: change(found[0]), text)
        return "".join(self._cut(text, change))

    def _cut(self, text: str, change: Callable[[str], str]) -> list[str]:
        pieces, at = [], 0
        for start, end, _ in self.find(text):
            pieces += [text[at:start], change(text[start:end])]
            at = end
        return [piece for piece in (*pieces, text[at:]) if piece]

    def _pattern(self, text: str, numbered: bool) -> re.Pattern[str]:
        """The compiled patterns; sets without characters beyond the basic plane are much faster."""
        last = LAST_BASIC if text.isascii() or not _ASTRAL.search(text) else LAST
        known = self._compiled.get((last, numbered))
        if known is None:
            mark = "(" if numbered else "(?:"
            rules = ["|".join(translate(item, last) for item in branches_of(rule)) for rule in self._rules]
            words = "|".join(f"{mark}{rule})" for rule in rules) if len(rules) > 1 else rules[0]
            known = self._compiled[last, numbered] = re.compile(words)
        return known
