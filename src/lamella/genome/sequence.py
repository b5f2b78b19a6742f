"""What a model computes, as a canonical sequence: no names, no framework, no sizes, no numbers of weights.

Every operator is written out by its own definition, and what each formula does is read from it: sums of products with
weights (`linear`, `conv3x3`), of activations with each other (`product`), reductions (`sum`, `max`), picks by data
(`gather`). These are the instructions. Functions of single elements (`exp`, `tanh`) are letters of the next instruction
that reads them; what only moves, scales or shifts is silent. Values of different descent meet in `add` or `gate`. So
one product that is cut in three and three products of one input are the same, and so are a norm that is one
operator and one that is written as six.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from hashlib import blake2b
from itertools import combinations

from lamella.base.card import Card, make_table, show_html, show_line
from lamella.base.dim import Extent
from lamella.base.errors import Found
from lamella.base.records import dataclass
from lamella.graph.binding import bind_operation, signature
from lamella.graph.model import Model
from lamella.graph.nodes import Loop, Node, Operation, Pack, Tensor, regions
from lamella.graph.passes.decompose_all import decompose_all
from lamella.graph.passes.products import FixedTensors
from lamella.graph.rewrite import members, operands_of, results_of
from lamella.ops.fault import Fault
from lamella.ops.formula import Apply, Contraction, Element, Index
from lamella.ops.library import Library
from lamella.ops.lower import contractions, operands, reachable
from lamella.ops.scalars.functions import REAL_FUNCTIONS

SPOKEN = frozenset(REAL_FUNCTIONS) - {"round", "floor", "ceil", "frac"}
"""Functions that are letters; rounding comes and goes with number formats."""
BOUNDS = {">>": "floor", "<<": "cap"}
"""Signs that keep an element above or below a number: a rectifier is a floor."""
REDUCTIONS = {"+=": "sum", "*=": "multiply", ">=": "max", "<=": "min", "&=": "all", "|=": "any"}
CUTS = frozenset(("layout.split", "layout.slice", "layout.gather", "layout.unstack"))
"""Operators whose results are parts of their input."""
DEPTHS = 4
"""Genes reach over one instruction, its operands, and so on, so many generations in all."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of the sequence, its operands by their numbers; all that is equal is one."""

    word: str
    letters: tuple[str, ...] = ()
    operands: tuple[int, ...] = ()

    def __str__(self) -> str:
        return "·".join((*self.letters, self.word))


@dataclass(frozen=True, slots=True)
class Genome:
    """The instructions of a model in canonical order, and the names of the weights that each of them reads."""

    instructions: tuple[Instruction, ...]
    weights: tuple[tuple[str, ...], ...] = field(default=(), compare=False)

    __repr__ = show_line
    _repr_html_ = show_html

    def _card(self) -> Card:
        """How long it is, and what it reads; the instructions as a table."""
        read = {name for names in self.weights for name in names}
        rows = (
            (str(place), str(item), ", ".join(map(str, item.operands)), ", ".join(names))
            for place, (item, names) in enumerate(zip(self.instructions, self.weights, strict=False))
        )
        heads = ("", "instruction", "operands", "weights")
        facts = (("instructions", f"{len(self.instructions):,}"), ("weights", f"{len(read):,}"))
        return Card("genome", "", facts, (make_table("instructions", heads, rows, len(self.instructions)),))

    def genes(self) -> list[dict[str, str]]:
        """By generations: what is computed there, by its mark, with words for it."""
        marks = texts = [str(item) for item in self.instructions]
        found = [dict(zip(marks, texts, strict=True))]
        for _ in range(DEPTHS - 1):
            marks = [_mark(item, marks) for item in self.instructions]
            texts = [_text(item, texts) for item in self.instructions]
            found.append(dict(zip(marks, texts, strict=True)))
        return found


def _mark(instruction: Instruction, marks: list[str]) -> str:
    """A short mark of an instruction and those of its operands."""
    inner = sorted({marks[number] for number in instruction.operands})
    return blake2b("\0".join((str(instruction), *inner)).encode(), digest_size=6).hexdigest()


def _text(instruction: Instruction, texts: list[str]) -> str:
    inner = sorted({texts[number] for number in instruction.operands})
    return f"{instruction}({', '.join(inner)})" if inner else str(instruction)


def read_genome(model: Model) -> Genome:
    """The genome of a graph."""
    reader = _GraphReader(decompose_all(model))
    return _in_order(*reader.read())


# --- the graph as instructions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Value:
    """What a tensor comes from: instructions, each with the part of its result, and the letters since then."""

    sources: frozenset[tuple[int, str]] = frozenset()
    letters: frozenset[str] = frozenset()

    @property
    def numbers(self) -> frozenset[int]:
        return frozenset(number for number, _ in self.sources)


class _GraphReader:
    """Reads a graph once, from its inputs to its results."""

    def __init__(self, model: Model) -> None:
        self._graph = model.graph
        self._library = model.library
        self._fixed = FixedTensors(model.graph, model.library)
        self._variables = {item.name: {item.name: None} for item in model.graph.variables}
        """The variables behind a tensor that is the same in every run."""
        self._values: dict[str, _Value] = {}
        self._numbers: dict[Instruction, int] = {}
        self._weights: list[dict[str, None]] = []
        self._known: dict[object, Meaning] = {}

    def read(self) -> tuple[list[Instruction], list[dict[str, None]], frozenset[int]]:
        """The instructions as they come, the weights of each, and those that the results come from."""
        updated = [item.variable for item in self._graph.updates]
        # running statistics, as of batch normalisation, are weights that happen to be written
        self._fixed.names |= {item.name for item in updated if len(item.shape) <= 1}
        for state in updated:
            if not self._is_fixed(state):
                self._set(state, self._take(Instruction("state"), state.name))
        for given in members(self._graph.inputs):
            word = "input" if given.element.is_float else "tokens"
            self._set(given, self._take(Instruction(word), given.name))
        self._walk(self._graph.nodes)
        kept = (item.value for item in self._graph.updates if not self._is_fixed(item.variable))
        results = (*members(self._graph.outputs), *kept)
        numbers = _union(self._value(item) for item in results).numbers
        return list(self._numbers), self._weights, numbers

    def _walk(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if self._fixed.add(node):
                behind = self._variables_of(operands_of(node))
                self._variables |= {item.name: behind for item in results_of(node)}
            elif isinstance(node, Operation):
                self._operation(node)
            else:
                self._control(node)

    def _variables_of(self, items: Iterable[Tensor | Pack]) -> dict[str, None]:
        return {name: None for item in items for name in self._variables.get(item.name, ())}

    def _control(self, node: Node) -> None:
        """A loop or a branch: what it runs, and an instruction that gathers it."""
        outside = _union(self._value(item) for item in operands_of(node))
        for region in regions(node):
            for given in region.inputs:
                self._set(given, outside)
            self._walk(region.nodes)
        inner = _union(self._value(item) for region in regions(node) for item in region.outputs)
        word = "loop" if isinstance(node, Loop) else "branch"
        made = self._take(self._instruction(word, (outside, inner)), word)
        for item in results_of(node):
            self._set(item, made)

    def _operation(self, operation: Operation) -> None:
        meaning = self._meaning(operation)
        given = (item for place, item in enumerate(operation.inputs) if place not in meaning.unread)
        values = [self._value(item) for item in members(given) if not self._is_fixed(item)]
        results = list(results_of(operation))
        word = meaning.word or (meaning.meets if _are_strangers(values, meaning.meets) else "")
        if word:
            instruction = self._instruction(word, values, meaning.letters)
            weights = self._variables_of(members(operation.inputs))
            behind = _union(values).sources if meaning.reduces else frozenset()
            for item in results:
                made = self._take(instruction, item.name, weights)
                self._set(item, _Value(made.sources | behind))
            return
        joined = _union(values)
        is_cut = len(results) > 1 or operation.operator in CUTS
        for item in results:
            part = f"/{item.name}" if is_cut else ""
            sources = frozenset((number, old + part) for number, old in joined.sources)
            self._set(item, _Value(sources, joined.letters | meaning.letters))

    def _instruction(
        self, word: str, values: Iterable[_Value], more: frozenset[str] = frozenset()
    ) -> Instruction:
        joined = _union(values)
        return Instruction(word, tuple(sorted(joined.letters | more)), tuple(sorted(joined.numbers)))

    def _take(self, instruction: Instruction, name: str, weights: Mapping[str, None] | None = None) -> _Value:
        """The value of an instruction, which is made where there is none like it."""
        number = self._numbers.setdefault(instruction, len(self._numbers))
        if number == len(self._weights):
            self._weights.append({})
        self._weights[number].update(weights or {})
        return _Value(frozenset([(number, name)]))

    def _meaning(self, operation: Operation) -> Meaning:
        fixed = tuple(map(self._is_fixed, members(operation.inputs)))
        key = signature(operation), fixed
        if key not in self._known:
            self._known[key] = meaning_of(self._library, operation, self._is_fixed)
        return self._known[key]

    def _is_fixed(self, item: object) -> bool:
        return self._fixed.holds(item)

    def _value(self, item: Tensor | Pack) -> _Value:
        return self._values.get(item.name, _Value())

    def _set(self, item: Tensor | Pack, value: _Value) -> None:
        self._values[item.name] = value


def _union(values: Iterable[_Value]) -> _Value:
    listed = list(values)
    return _Value(
        frozenset().union(*(item.sources for item in listed)),
        frozenset().union(*(item.letters for item in listed)),
    )


def _are_strangers(values: list[_Value], meets: str) -> bool:
    """Whether two of the values are of different descent: neither comes from what the other comes from.

    Parts of one result are strangers where they are multiplied, as a gate and what it lets through are; where they are
    added, as the halves of a rotation, they are not.
    """
    if meets == "gate":
        return any(not _covers(a, b) and not _covers(b, a) for a, b in combinations(values, 2))
    pairs = combinations([item.numbers for item in values if item.numbers], 2)
    return any(not a <= b and not b <= a for a, b in pairs)


def _covers(one: _Value, other: _Value) -> bool:
    """Whether all that one value comes from is behind the other too, as a whole or as a part."""
    return all(
        any(number == its and (part.startswith(of) or of.startswith(part)) for its, of in other.sources)
        for number, part in one.sources
    )


def _in_order(
    instructions: list[Instruction], weights: list[dict[str, None]], results: frozenset[int]
) -> Genome:
    """The instructions that the results come from, operands first, those of one in the order of words and marks."""
    marks: list[str] = []
    for item in instructions:
        marks.append(_mark(item, marks))

    def rank(number: int) -> tuple[str, str]:
        return str(instructions[number]), marks[number]

    places: dict[int, int] = {}
    waiting = sorted(results, key=rank, reverse=True)
    while waiting:
        number = waiting[-1]
        open_ones = [item for item in instructions[number].operands if item not in places]
        if number in places or not open_ones:
            places.setdefault(number, len(places))
            waiting.pop()
        else:
            waiting += sorted(open_ones, key=rank, reverse=True)
    ordered = sorted(places, key=lambda number: places[number])
    made = (
        Instruction(item.word, item.letters, tuple(sorted(places[number] for number in item.operands)))
        for item in map(instructions.__getitem__, ordered)
    )
    return Genome(tuple(made), tuple(tuple(weights[number]) for number in ordered))


# --- what formulas do ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the formulas of one operation do."""

    word: str = ""
    """The instruction that it is; empty where it is one of single elements or of moves."""
    letters: frozenset[str] = frozenset()
    meets: str = ""
    """The instruction that it is where its operands are of different descent."""
    unread: frozenset[int] = frozenset()
    """Inputs that only decide between values."""

    @property
    def reduces(self) -> bool:
        """Whether it only sums up what there is: a value that meets its own sum is no stranger to it."""
        return self.word.startswith(tuple(REDUCTIONS.values()))


def meaning_of(library: Library, operation: Operation, is_fixed: Callable[[object], bool]) -> Meaning:
    """What an operation does, by its formulas."""
    try:
        instance = bind_operation(library, operation)
        formulas = contractions(instance)
    except (Fault, Found):  # packs of open length: only a run knows them
        formulas = ()
        instance = None
    if not formulas or instance is None:
        return Meaning(operation.operator.rpartition(".")[2])
    names = [name for name, _ in instance.inputs]
    given = dict(zip(names, operation.inputs, strict=False))
    varying = {name for name, item in given.items() if any(not is_fixed(part) for part in members((item,)))}
    read = [_FormulaReader(item, varying) for item in formulas]
    words = [item.word() for item in read]
    word = next(filter(None, words), "")
    letters = frozenset(letter for item in read for letter in item.letters())
    meets = {item.meets() for item in read}
    used = {name for item in read for name in item.used}
    unread = frozenset(place for place, name in enumerate(names) if name not in used)
    joins = "gate" if "gate" in meets else "add" if "add" in meets else ""
    return Meaning(word, letters, joins, unread)


class _FormulaReader:
    """What one formula does with the inputs that change from run to run."""

    def __init__(self, formula: Contraction, varying: set[str]) -> None:
        self._formula = formula
        self._varying = varying
        self._terms = list(_chosen(*formula.values))
        self._elements = [item for item in self._terms if isinstance(item, Element)]
        free = set().union(*(_indices(item) for item in formula.targets))
        self._extents: dict[str, Extent] = {
            loop.index: loop.extent for loop in formula.loops if loop.extent != 1
        }
        self._reduced = {name for name in self._extents if name not in free}
        self.used = {item.tensor for item in reachable(*self._elements) if isinstance(item, Element)}
        """What values or places of values are read from."""

    def word(self) -> str:
        """The instruction that the formula is."""
        targets = {item.tensor for item in self._formula.targets}
        if any(item.tensor in targets for item in self._elements):
            return "scan"
        if self._is_gather():
            return "gather"
        if self._formula.sign not in REDUCTIONS or not self._reduced:
            return ""
        window = self._window()
        size = "x".join(str(self._extents[name]) for name in window)
        if self._formula.sign == "+=" and self._multiplies():
            fixed = any(item.tensor not in self._varying for item in self._factors())
            if not fixed:
                return "product"
            if not window:
                return "linear"
            return f"{'conv' if self._reduced - set(window) else 'depthwise'}{size}"
        return f"{REDUCTIONS[self._formula.sign]}{size}"

    def letters(self) -> Iterator[str]:
        """The functions of single elements."""
        for term in self._terms:
            if isinstance(term, Apply) and term.type == "real":
                if term.function in SPOKEN:
                    yield term.function
                elif term.function in BOUNDS and self._is_bound(term):
                    yield BOUNDS[term.function]
                elif term.function == "**" and self._reads(term.operands[0]):
                    exponent = term.operands[1]
                    if isinstance(exponent, float | int):
                        yield from ("sqrt",) * (abs(exponent) == 0.5)
                    else:
                        yield "power"

    def meets(self) -> str:
        """How values of different inputs are joined."""
        found = ""
        for term in self._terms:
            if isinstance(term, Apply) and term.type == "real" and len(term.operands) == 2:
                one, other = (self._reads(item) for item in term.operands)
                if one and other and len(one | other) > 1:
                    if term.function in ("*", "/", "**"):
                        return "gate"
                    if term.function in ("+", "-", ">>", "<<"):
                        found = "add"
        return found

    def _is_bound(self, term: Apply) -> bool:
        return any(self._reads(item) for item in term.operands) and not all(
            self._reads(item) for item in term.operands
        )

    def _reads(self, *terms: object) -> set[str]:
        """The inputs that terms depend on and that change."""
        found = (item.tensor for item in reachable(*terms) if isinstance(item, Element))
        return {name for name in found if name in self._varying}

    def _is_gather(self) -> bool:
        inner = (index for item in (*self._elements, *self._formula.targets) for index in item.indices)
        return bool(self._reads(*inner))

    def _factors(self) -> list[Element]:
        """The elements that are multiplied with each other."""
        for term in self._terms:
            if isinstance(term, Apply) and term.function == "*":
                sides = [
                    [item for item in reachable(part) if isinstance(item, Element)] for part in term.operands
                ]
                if all(sides) and len({item.tensor for side in sides for item in side}) > 1:
                    return [item for side in sides for item in side]
        return []

    def _multiplies(self) -> bool:
        """Whether what is summed up are products of two inputs, each of which has the index of the sum."""
        having = [item for item in self._factors() if _indices(item) & self._reduced]
        return len({item.tensor for item in having}) > 1

    def _window(self) -> list[str]:
        """The loops over the places of a window: they move an index that the result has by itself."""
        places = (item for target in self._formula.targets for item in target.indices)
        alone = {item.name for item in places if isinstance(item, Index) and item.name in self._extents}
        found: dict[str, None] = {}
        for element in self._elements:
            for index in element.indices:
                names = {item.name for item in reachable(index) if isinstance(item, Index)}
                if element.tensor in self._varying and names & alone:
                    found |= dict.fromkeys(name for name in self._extents if name in names & self._reduced)
        return [name for name in self._extents if name in found]


def _chosen(*values: object) -> Iterator[object]:
    """Every term inside values, once, without what only decides between two of them."""
    done: set[int] = set()
    waiting = list(values)
    while waiting:
        term = waiting.pop()
        if id(term) not in done:
            done.add(id(term))
            yield term
            waiting += (
                operands(term)[1:] if isinstance(term, Apply) and term.function == "?:" else operands(term)
            )


def _indices(element: Element) -> set[str]:
    return {item.name for item in reachable(*element.indices) if isinstance(item, Index)}
