"""A parser of PTX: scopes and calls are inlined, each register has a name of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

CLASSES = {"pred": "p", "b16": "h", "u16": "h", "s16": "h", "b32": "w", "u32": "w", "s32": "w", "f32": "w"}
CLASSES |= {"b64": "d", "u64": "d", "s64": "d", "f64": "d", "f16": "h", "bf16": "h"}
SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}


@dataclass(frozen=True, slots=True)
class Address:
    """What stands in brackets: a register or a symbol, bytes behind it, and coordinates of a tensor."""

    base: str
    offset: int = 0
    coordinates: tuple[str, ...] = ()


Operand = str | tuple[str, ...] | Address


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction."""

    name: str
    operands: tuple[Operand, ...]
    guard: str
    """The predicate under which it runs, with ! where that must be false; empty where it always does."""
    text: str

    @property
    def head(self) -> str:
        """The name up to its first dot."""
        return self.name.partition(".")[0]


@dataclass(slots=True)
class Entry:
    """A kernel."""

    name: str
    parameters: dict[str, int]
    """Their offsets."""
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    """The class of each register: p, h, w or d for 1, 16, 32 or 64 bits."""
    shared: dict[str, int] = field(default_factory=dict)
    shared_bytes: int = 0
    local: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    most_threads: int = 1024


@dataclass(frozen=True, slots=True)
class Module:
    """A file of PTX."""

    entries: dict[str, Entry]
    constants: dict[str, bytes]
    """Memory of the device that is there with the code."""


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    results: tuple[str, ...]
    parameters: tuple[str, ...]
    body: str


FUNCTION = re.compile(
    r"^(?:\.visible |\.weak )?\.(entry|func)\s*(\([^)]*\))?\s*(\w+)\s*\(([^)]*)\)([^{;]*)(\{|;)", re.MULTILINE
)
SYMBOL = re.compile(
    r"^(?:\.visible |\.extern |\.weak )?\.(global|const|shared)\s+(?:\.align (\d+) )?\.b(\d+) "
    r"(\w+)\[?(\d*)\]?(?: = \{([^}]*)\})?;",
    re.MULTILINE,
)
LOCAL = re.compile(r"\.(local|shared)\s+(?:\.align (\d+) )?\.b(\d+)\s+(\w+)\[(\d*)\]")
LABEL = re.compile(r"([\w$]+):(?!:)")


def read_ptx(text: str) -> Module:
    """The kernels of a file, and the constants that they read."""
    text = re.sub(r"//[^\n]*", "", text)
    functions, heads = dict[str, _Function](), list[tuple[_Function, str]]()
    for found in FUNCTION.finditer(text):
        kind, results, name, parameters, more, end = found.groups()
        if end == ";":
            continue
        item = _Function(name, _parameters(results or ""), _parameters(parameters), _body(text, found.end()))
        functions[name] = item
        if kind == "entry":
            heads.append((item, more))
    constants, outer = dict[str, bytes](), list[tuple[str, int, int]]()
    for found in SYMBOL.finditer(text):
        kind, align, width, name, count, values = found.groups()
        size = SIZES[width]
        if kind == "shared":
            outer.append((name, int(align or size), int(count or 0) * size))
        else:
            numbers = [int(item) for item in (values or "").split(",") if item.strip()]
            content = b"".join((item % (1 << 8 * size)).to_bytes(size, "little") for item in numbers)
            constants[name] = content.ljust(int(count or 1) * size, b"\0")
    entries = {item.name: _entry(item, more, functions, outer) for item, more in heads}
    return Module(entries, constants)


def _parameters(text: str) -> tuple[str, ...]:
    return tuple(item.split()[-1].strip("()") for item in text.split(",") if ".param" in item)


def _body(text: str, start: int) -> str:
    depth = 1
    for found in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if found[0] == "{" else -1
        if not depth:
            return text[start : found.start()]
    raise ValueError("a function does not end")


def _entry(
    item: _Function, more: str, functions: Mapping[str, _Function], outer: list[tuple[str, int, int]]
) -> Entry:
    found = Entry(item.name, {name: 8 * place for place, name in enumerate(item.parameters)})
    threads = re.search(r"\.maxntid\s+(\d+)(?:,\s*(\d+))?", more)
    if threads:
        found.most_threads = int(threads[1]) * int(threads[2] or 1)
    for name, align, size in outer:
        _place(found, "shared", name, align, size)
    _Reader(found, functions).read(item.body, {}, "")
    return found


def _place(entry: Entry, kind: str, name: str, align: int, size: int) -> None:
    used = entry.shared_bytes if kind == "shared" else entry.local_bytes
    start = -(-used // align) * align
    if kind == "shared":
        entry.shared[name], entry.shared_bytes = start, start + size
    else:
        entry.local[name], entry.local_bytes = start, start + size


class _Reader:
    """Reads bodies into a kernel; what a function does stands where it is called."""

    def __init__(self, entry: Entry, functions: Mapping[str, _Function]) -> None:
        self._entry, self._functions = entry, functions
        self._scopes = 0

    def read(self, body: str, outside: Mapping[str, str], end: str) -> None:
        """Read a body, whose `ret` goes to a label where it is that of a function."""
        self._scopes += 1
        mark = self._scopes
        scopes = [{**outside, **{item: f"{item}:{mark}" for item in LABEL.findall(body)}}]
        """What names mean, in each scope with those outside of it."""
        for kind, text in _statements(body):
            if kind == "{":
                scopes.append(dict(scopes[-1]))
            elif kind == "}":
                scopes.pop()
            elif kind == "label":
                self._entry.labels[f"{text}:{mark}"] = len(self._entry.instructions)
            elif text.startswith("."):
                self._declare(text, scopes[-1])
            else:
                self._add(text, scopes[-1], end)

    def _declare(self, text: str, scope: dict[str, str]) -> None:
        kind, _, rest = text[1:].partition(" ")
        kind = kind.strip()
        if kind in ("reg", "param"):
            width, names = rest.strip().lstrip(".").split(None, 1)
            for name in (item.strip() for item in names.split(",")):
                told = re.fullmatch(r"([%\w]+)<(\d+)>", name)
                each = [f"{told[1]}{item}" for item in range(int(told[2]))] if told else [name]
                for item in each:
                    self._scopes += 1
                    scope[item] = f"{item.lstrip('%')}_{self._scopes}"
                    self._entry.registers[scope[item]] = CLASSES[width]
        elif found := LOCAL.match(text):
            where, align, width, name, count = found.groups()
            size = int(count or 0) * SIZES[width]
            self._scopes += 1
            scope[name] = f"{name}_{self._scopes}"
            _place(self._entry, where, scope[name], int(align or 1), size)

    def _add(self, text: str, names: Mapping[str, str], end: str) -> None:
        guard, rest = "", text
        if text.startswith("@"):
            told, rest = text[1:].split(None, 1)
            guard = "!" * told.startswith("!") + names[told.lstrip("!")]
        name, _, tail = rest.partition(" ")
        if name.startswith("call"):
            self._call(tail, names)
            return
        if name in ("ret", "exit") and end:
            name, tail, names = "bra", end, {end: end}
        operands = tuple(_operand(item, names) for item in _split(tail))
        self._entry.instructions.append(Instruction(name, operands, guard, text))

    def _call(self, text: str, names: Mapping[str, str]) -> None:
        parts = [item.strip() for item in _split(text)]
        lists = [tuple(filter(None, re.split(r"[(),\s]+", item))) for item in parts if item.startswith("(")]
        function = self._functions[next(item for item in parts if not item.startswith("("))]
        given = lists if len(lists) == 2 else [(), *lists] if not function.results else [*lists, ()]
        inside = dict(zip((*function.results, *function.parameters), (*given[0], *given[1]), strict=True))
        self._scopes += 1
        end = f"end:{self._scopes}"
        self.read(function.body, {own: names[other] for own, other in inside.items()}, end)
        self._entry.labels[end] = len(self._entry.instructions)


def _statements(body: str) -> Iterator[tuple[str, str]]:
    place = 0
    while place < len(body):
        if body[place] in " \t\n":
            place += 1
        elif body[place] in "{}":
            yield body[place], ""
            place += 1
        elif found := LABEL.match(body, place):
            yield "label", found[1]
            place = found.end()
        else:
            end = body.index(";", place)
            if text := " ".join(body[place:end].split()):
                yield "statement", text
            place = end + 1


def _split(text: str) -> list[str]:
    """Operands, which commas outside of brackets part."""
    parts, depth, current = list[str](), 0, ""
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append(current)
            current = ""
        else:
            current += letter
    return [item.strip() for item in [*parts, current] if item.strip()]


def _operand(text: str, names: Mapping[str, str]) -> Operand:
    if text.startswith("{"):
        return tuple(names.get(item, item) for item in _split(text[1:-1]))
    if text.startswith("["):
        base, *more = _split(text[1:-1])
        start, _, offset = base.replace(" ", "").partition("+")
        coordinates = _split(more[0][1:-1]) if more else []
        return Address(
            names.get(start, start), int(offset or 0), tuple(names.get(item, item) for item in coordinates)
        )
    return names.get(text, text)
