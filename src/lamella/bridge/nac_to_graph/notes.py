"""The resource `lamella.json`: what a file says beyond NAC's own fields."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeGuard

from lamella.base import dim
from lamella.base.diagnostic import Diagnostic, printable
from lamella.base.dim import Extent, Truth
from lamella.base.dtype import ElementType, find, find_in
from lamella.base.limits import DEFAULT, LARGEST, Limits
from lamella.base.source import NOWHERE, Span
from lamella.bridge.nac_to_graph.nodes import InputType, KeptState
from lamella.lang.nac.check.tables import LAST_CONSTANT
from lamella.lang.nac.nodes import File, Resource
from lamella.lang.nac.notes import FORMAT, NAME, read_object
from lamella.lang.nac.rules import graphs as rules
from lamella.ops.instance import Check
from lamella.ops.library import DIALECTS, SPECIFICATION

# --- symbolic extents from the text that they are written as: `n`, `2 * n + 1`, `((n + 1) / 2)` -------------


LONGEST = 10_000
"""Characters of one extent."""
DEEPEST = 64
"""Parentheses inside each other."""
_TOKEN = re.compile(r"\s*(\d{1,19}|[^\W\d][\w.~]*(?:\[\d+\])*|<<|>>|[-+*/\\%()])")
_SIGNS: Mapping[str, Callable[[Extent, Extent], Extent]] = MappingProxyType(
    {
        **{"/": dim.floor_divide, "\\": dim.ceil_divide, "%": dim.remainder},
        **{"<<": dim.smaller, ">>": dim.larger},
    }
)

COMPARISONS: Mapping[str, Callable[[Extent, Extent], Truth]] = MappingProxyType(
    {"==": dim.equal, "<": dim.less, "<=": dim.less_equal, "!=": lambda a, b: dim.negate(dim.equal(a, b))}
)
"""What two extents may be compared by."""
Ranges = Mapping[str, tuple[int, int]]


def read_extent(text: str, ranges: Ranges) -> Extent:
    """The extent that a text says; ValueError or ArithmeticError where it says none."""
    if text in ranges:
        return _symbol(text, ranges)
    if len(text) > LONGEST:
        raise ValueError("too long")
    reader = _ExtentReader(text, ranges)
    found = reader.sum(0)
    if reader.next:
        raise ValueError(f"unexpected '{reader.next}'")
    return found


def _symbol(name: str, ranges: Ranges) -> Extent:
    low, high = ranges.get(name, (0, LARGEST))
    return dim.symbol(name, high, low)


class _ExtentReader:
    """Reads an extent word by word."""

    def __init__(self, text: str, ranges: Ranges) -> None:
        self._text = text.rstrip()
        self._ranges = ranges
        self._place = 0
        self.next = ""
        self._step()

    def _step(self) -> str:
        """The current word; the one behind it becomes the current one, an empty one at the end."""
        word = self.next
        match = _TOKEN.match(self._text, self._place)
        if match is None and self._place < len(self._text):
            raise ValueError(f"unexpected '{self._text[self._place : self._place + 20]}'")
        self.next = "" if match is None else match[1]
        self._place = len(self._text) if match is None else match.end()
        return word

    def sum(self, depth: int) -> Extent:
        """Products with signs between them."""
        found: Extent = 0
        sign = self._step() if self.next in ("+", "-") else "+"
        while True:
            term = self._product(depth)
            found = dim.add(found, term) if sign == "+" else dim.sub(found, term)
            if self.next not in ("+", "-"):
                return found
            sign = self._step()

    def _product(self, depth: int) -> Extent:
        found = self._factor(depth)
        while self.next == "*":
            self._step()
            found = dim.mul(found, self._factor(depth))
        return found

    def _factor(self, depth: int) -> Extent:
        word = self._step()
        if word == "(":
            return self._inner(depth + 1)
        if word.isdigit():
            return int(word)
        if not word or not (word[0].isalpha() or word[0] == "_"):
            raise ValueError(f"unexpected '{word or 'end'}'")
        return _symbol(word, self._ranges)

    def _inner(self, depth: int) -> Extent:
        """What stands in parentheses: a sum, or sums with a sign between them that no polynomial has."""
        if depth > DEEPEST:
            raise ValueError("too many parentheses inside each other")
        found = self.sum(depth)
        while self.next in _SIGNS:
            rule = _SIGNS[self._step()]
            found = rule(found, self.sum(depth))
        if self._step() != ")":
            raise ValueError("a parenthesis is not closed")
        return found


_MOST_FINDINGS = 100


@dataclass(slots=True)
class Notes:
    """What the resource says: names and types of inputs, names of outputs, where instructions come from."""

    graph: str = ""
    dialect: str = SPECIFICATION
    """Which library gives operators of SkriptND their meaning."""
    inputs: dict[str, InputType] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    constants: set[str] = field(default_factory=set)
    """Parameters that were constants of the graph."""
    elements: dict[str, ElementType] = field(default_factory=dict)
    """What parameters are once they are read, where that is not what their quantisation gives."""
    origins: dict[int, str] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    branches: dict[int, int] = field(default_factory=dict)
    """By the instructions of branches how many results their blocks hand over."""
    states: list[KeptState] | None = None
    """What is kept between runs; None where the file does not speak of it."""
    checks: list[Check] = field(default_factory=list)
    """What a run tests of the extents of its inputs."""
    span: Span = NOWHERE
    """Where the resource stands."""
    findings: list[Diagnostic] = field(default_factory=list)


def read_notes(file: File, limits: Limits = DEFAULT) -> Notes:
    """The notes of a file; without the resource there are none. What is wrong with them is a finding each."""
    resource = next((item for item in file.resources if item.name == NAME), None)
    if resource is None:
        return Notes()
    most = len(file.instructions) + sum(len(item.offsets) for item in file.instructions)
    return _NotesReader(resource, limits, most).read()


class _NotesReader:
    """Reads the resource key by key; unknown keys are left, malformed ones are findings.

    No list describes more things than the instructions of the file make and take.
    """

    def __init__(self, resource: Resource, limits: Limits, most: int) -> None:
        self._resource = resource
        self._limits = limits
        self._most = most
        self._notes = Notes(span=resource.span)

    def _report(self, problem: str) -> None:
        if len(self._notes.findings) < _MOST_FINDINGS:
            finding = rules.NOTES_MALFORMED.at(self._resource.span, problem=problem)
            self._notes.findings.append(finding)

    def read(self) -> Notes:
        """All that it says."""
        content = self._load()
        if content is None:
            return self._notes
        readers: Mapping[str, Callable[[object], None]] = {
            "format": self._format,
            "graph": self._graph,
            "dialect": self._dialect,
            "extents": self._extents,
            "inputs": self._inputs,
            "outputs": self._outputs,
            "constants": self._constants,
            "elements": self._elements,
            "origins": self._origins,
            "branches": self._branches,
            "states": self._states,
            "checks": self._checks,
        }
        for key, read in readers.items():
            if key in content or key == "format":
                read(content.get(key))
        return self._notes

    def _load(self) -> Mapping[str, object] | None:
        size = len(self._resource.data)
        problem = self._limits.excess("max_file_bytes", size, "its length in bytes")
        if problem:
            self._report(problem)
            return None
        content = read_object(self._resource, self._limits.max_file_bytes)
        if content is None:
            self._report("it is no JSON object")
            return None
        return content

    def _format(self, value: object) -> None:
        if not _is_integer(value) or value != FORMAT:
            self._report(f"its format is {_shown(value)}, and only {FORMAT} is known")

    def _graph(self, value: object) -> None:
        if isinstance(value, str) and self._fits(value):
            self._notes.graph = value
        else:
            self._report("'graph' is no name")

    def _dialect(self, value: object) -> None:
        if isinstance(value, str) and value in DIALECTS:
            self._notes.dialect = value
        else:
            self._report(f"there is no dialect {_shown(value)}")

    def _fits(self, name: str) -> bool:
        return 0 < len(name) <= self._limits.max_name

    def _extents(self, value: object) -> None:
        for name, ends in self._items(value, "extents"):
            match ends:
                case [int(low), int(high)] if 0 <= low <= high <= LARGEST and _are_integers(ends):
                    self._notes.ranges[name] = (int(low), int(high))
                case _:
                    self._report(f"the range of extent '{name}' is no pair of numbers")

    def _items(self, value: object, key: str) -> Iterator[tuple[str, object]]:
        if isinstance(value, dict):
            yield from value.items()
        else:
            self._report(f"'{key}' is no object")

    def _described(self, value: object, key: str) -> Iterator[tuple[str, Mapping[str, object]]]:
        """The objects of a list, each with its name."""
        if not isinstance(value, list):
            self._report(f"'{key}' is no list")
            return
        if len(value) > self._most:
            self._report(f"'{key}' has {len(value)} items, more than the instructions of the file speak of")
            return
        for number, item in enumerate(value):
            if len(self._notes.findings) >= _MOST_FINDINGS:
                return
            name = item.get("name") if isinstance(item, dict) else None
            if isinstance(item, dict) and isinstance(name, str) and self._fits(name):
                yield name, item
            else:
                self._report(f"item {number} of '{key}' has no name")

    def _inputs(self, value: object) -> None:
        for name, item in self._described(value, "inputs"):
            if name in self._notes.inputs:
                self._report(f"input '{name}' is described twice")
                continue
            element, shape = _element(item.get("dtype")), self._shape(item.get("shape"))
            if element is None:
                self._report(f"input '{name}' has element type {_shown(item.get('dtype'))}")
            elif shape is None:
                self._report(f"input '{name}' has shape {_shown(item.get('shape'))}")
            else:
                self._notes.inputs[name] = InputType(element, shape)

    def _shape(self, value: object) -> tuple[Extent, ...] | None:
        if not isinstance(value, list) or len(value) > self._limits.max_rank:
            return None
        found = [self._extent(item) for item in value]
        shape = tuple(item for item in found if item is not None)
        return shape if len(shape) == len(found) else None

    def _extent(self, value: object) -> Extent | None:
        if isinstance(value, str):
            try:
                return read_extent(value, self._notes.ranges)
            except (ValueError, ArithmeticError):
                return None
        return value if isinstance(value, int) and _is_integer(value) and 0 <= value <= LARGEST else None

    def _checks(self, value: object) -> None:
        items = value if isinstance(value, list) and len(value) <= self._limits.max_operations else [value]
        for number, item in enumerate(items):
            found = self._check(item)
            if found is None:
                self._report(f"item {number} of 'checks' compares no extents")
            else:
                self._notes.checks.append(found)

    def _check(self, item: object) -> Check | None:
        """A comparison of two extents with the sentence for when it is false; None where it is none."""
        match item:
            case {"test": [str(left), str(sign), str(right)], "message": str(message)} if sign in COMPARISONS:
                try:
                    sides = read_extent(left, self._notes.ranges), read_extent(right, self._notes.ranges)
                    truth = COMPARISONS[sign](*sides)
                except (ValueError, ArithmeticError):
                    return None
                return Check(truth, printable(message[: self._limits.max_name]), NOWHERE)
        return None

    def _states(self, value: object) -> None:
        self._notes.states = []
        for name, item in self._described(value, "states"):
            found = self._state(name, item)
            if isinstance(found, KeptState):
                self._notes.states.append(found)
            else:
                self._report(f"state '{name}' has {found} {_shown(item.get(found))}")

    def _state(self, name: str, item: Mapping[str, object]) -> KeptState | str:
        """A state, or the key whose value is no such thing."""
        element, shape = _element(item.get("dtype")), self._shape(item.get("shape"))
        id_, update, initial = (item.get(key) for key in ("id", "update", "initial"))
        if element is None:
            return "dtype"
        known = None if shape is None else tuple(extent for extent in shape if isinstance(extent, int))
        if shape is None or known != shape:
            return "shape"
        if not _is_id(id_):
            return "id"
        if not _is_id(update):
            return "update"
        if initial is not None and not _is_id(initial):
            return "initial"
        return KeptState(id_, name, element, known, initial, update)

    def _outputs(self, value: object) -> None:
        self._notes.outputs = [name for name, _ in self._described(value, "outputs")]
        twice = (name for name, count in Counter(self._notes.outputs).items() if count > 1)
        for name in twice:
            self._report(f"output '{name}' is described twice")

    def _elements(self, value: object) -> None:
        for name, word in self._items(value, "elements"):
            element = _element(word)
            if element is None or not element.is_float:
                self._report(f"parameter '{name}' has element type {_shown(word)}")
            else:
                self._notes.elements[name] = element

    def _constants(self, value: object) -> None:
        self._notes.constants = {name for name, _ in self._items(value, "constants")}

    def _branches(self, value: object) -> None:
        for key, count in self._items(value, "branches"):
            if _is_index(key) and isinstance(count, int) and _is_integer(count) and count > 0:
                self._notes.branches[int(key)] = count
            else:
                self._report(f"the results of branch '{key}' are no count for a number")

    def _origins(self, value: object) -> None:
        for key, text in self._items(value, "origins"):
            if _is_index(key) and isinstance(text, str):
                self._notes.origins[int(key)] = text
            else:
                self._report(f"the origin of instruction '{key}' is no text for a number")


def _is_index(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 10


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LAST_CONSTANT


def _are_integers(values: Sequence[object]) -> bool:
    return all(map(_is_integer, values))


def _element(value: object) -> ElementType | None:
    """An element type by one of our names; torch's are understood too."""
    return (find(value) or find_in("nac", value)) if isinstance(value, str) else None


def _shown(value: object) -> str:
    return json.dumps(value)[:80]
