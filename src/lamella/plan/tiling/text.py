"""From the program under construction to NEM: buffers, constants, regions, tasks and loops as nodes of the language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from lamella.base.quant import PerChannel, PerGroup, PerTensor, Quant
from lamella.base.shape import row_major_strides
from lamella.base.source import Trivia
from lamella.lang.nem import nodes
from lamella.lang.nem.nodes import Attribute, Chain, Expr, Integer, Items, Name, Operand, Real, Text, Value
from lamella.lang.nem.resolved import AttributeValue, TensorType
from lamella.lang.nem.words import MOVES, RESERVED
from lamella.plan.tiling.program import OWN, AffineAddress, Barrier, Bytes, Line, Repeat, Step


def integer(value: int) -> Expr:
    """An integer literal; negative ones have a sign."""
    return nodes.Negate(Integer(-value)) if value < 0 else Integer(value)


def real(value: float) -> Expr:
    """A FLOAT literal."""
    return nodes.Negate(Real(-value)) if value < 0 else Real(value)


def numbers(values: Iterable[int]) -> tuple[Expr, ...]:
    """Integer literals."""
    return tuple(integer(value) for value in values)


LONG_NAME = 12
"""Letters of a name that is written as it is."""
PLACE = "at_"
"""How the names of places in L2 begin."""


def abbreviated(name: str) -> str:
    """A name as it is where it is short, else the first letters of its words, and its numbers."""
    if len(name) <= LONG_NAME:
        return name
    return "".join(word if word.isdigit() else word[:1] for word in _identifier(name).split("_"))


def aliases(labels: Sequence[str]) -> dict[str, str]:
    """Names of stages with what they are called in the text, each by another word."""
    found: dict[str, str] = {}
    taken = set(labels)
    for label in labels:
        base = abbreviated(label)
        alias = base
        for number in count(2):
            if alias == label or alias not in taken:
                break
            alias = f"{base}x{number}"
        found[label] = alias
        taken.add(alias)
    return found


def _identifier(wanted: str) -> str:
    """A name that the language allows."""
    base = "".join(char if char.isalnum() and char.isascii() else "_" for char in wanted) or "t"
    return base if base[0].isalpha() or base[0] == "_" else f"t_{base}"


class Writer:
    """Makes statements of lines; quantisation tables and constants are declared once, before all tasks."""

    def __init__(self, taken: Iterable[str], aliases: Mapping[str, str]) -> None:
        self.tables: dict[tuple[object, ...], str] = {}
        self.constants: dict[tuple[str, int], str] = {}
        self.heads: list[nodes.Statement] = []
        self.named: set[str] = set(taken) | RESERVED
        self.aliases = aliases
        self.labels = {*aliases, *aliases.values()}
        """Names of stages, which only their own tasks may have: they tell which section a task belongs to."""
        self.variable = self.fresh("i")
        self.arenas: dict[str, str] = {}

    # --- names ------------------------------------------------------------------------------------------------------

    def fresh(self, wanted: str) -> str:
        """A name that nothing else has."""
        base = _identifier(self._short(wanted))
        found, number = base, 2
        while found in self.named or (found in self.labels and found != base):
            found, number = f"{base}_{number}", number + 1
        self.named.add(found)
        return found

    def _short(self, wanted: str) -> str:
        """A name that begins with that of a stage, or is that of a place, with what is long in it abbreviated."""
        if wanted.startswith(PLACE):
            stem, _, kind = wanted.removeprefix(PLACE).rpartition("_")
            return f"{PLACE}{self.aliases.get(stem) or abbreviated(stem)}_{kind}" if stem else wanted
        stem = wanted
        while stem and stem not in self.aliases:
            stem = stem.rpartition("_")[0]
        return self.aliases[stem] + wanted[len(stem) :] if stem else wanted

    def table(self, values: Sequence[int] | Sequence[float], wanted: str) -> Name:
        """A list by its name; equal lists are one."""
        key = (type(values[0]).__name__, *values)
        if key not in self.tables:
            name = self.tables[key] = self.fresh(wanted)
            items = tuple(real(v) if isinstance(v, float) else integer(v) for v in values)
            self.heads.append(nodes.Let(Name(name), Items(items)))
        return Name(self.tables[key])

    def buffer(self, name: str) -> Name:
        """A buffer by its name in the text; those of our own get one that nothing else has."""
        if not name.startswith(OWN):
            return Name(name)
        if name not in self.arenas:
            self.arenas[name] = self.fresh(name[len(OWN) :])
        return Name(self.arenas[name])

    def offset(self, place: AffineAddress) -> Expr:
        """The expression of an offset; products come first, so that a reader from left to right is right."""
        terms: list[Expr] = []
        start = place.start
        if place.step:
            terms.append(Chain(Name(self.variable), (("*", Integer(place.step)),)))
        if place.slot and place.slots > 1:
            ring = Chain(Name(self.variable), (("mod", Integer(place.slots)),))
            terms.append(Chain(ring, (("*", Integer(place.slot)),)))
        if place.name:
            terms.append(self._constant(place))
            start -= place.named
        if start or not terms:
            terms.append(Integer(start))
        return terms[0] if len(terms) == 1 else Chain(terms[0], tuple(("+", term) for term in terms[1:]))

    def _constant(self, place: AffineAddress) -> Name:
        key = place.name, place.named
        if key not in self.constants:
            name = self.constants[key] = self.fresh(place.name)
            self.heads.append(nodes.Const(Name(name), Integer(place.named)))
        return Name(self.constants[key])

    # --- regions ----------------------------------------------------------------------------------------------------

    def quant(self, quant: Quant) -> nodes.Quant:
        """A quantisation descriptor; long tables are named."""
        if isinstance(quant, PerTensor):
            fields = [("scale", real(quant.scale)), ("zero_point", integer(quant.zero_point))]
            return nodes.Quant("per_tensor", tuple(Attribute(Name(key), value) for key, value in fields))
        listed: list[tuple[str, Value]] = [("axis", integer(quant.axis))]
        if isinstance(quant, PerGroup):
            listed.append(("group_size", Integer(quant.group_size)))
        listed.append(("scales", self.table([float(item) for item in quant.scales], "scales")))
        listed.append(("zero_points", self.table(quant.zero_points, "zeros")))
        form = "per_channel" if isinstance(quant, PerChannel) else "per_group"
        return nodes.Quant(form, tuple(Attribute(Name(key), value) for key, value in listed))

    def type(self, type: TensorType) -> nodes.TypeAttributes:
        """The type of a region, with a layout where it is dense."""
        plain = type.layout is not None and type.strides == row_major_strides(type.shape)
        return nodes.TypeAttributes(
            elem=Name(type.elem),
            shape=numbers(type.shape),
            layout=Name(type.layout) if plain and type.layout else None,
            strides=None if plain else numbers(type.strides),
            quant=None if type.quant is None else self.quant(type.quant),
        )

    def region(self, item: Bytes) -> nodes.Region:
        """A region with its type."""
        type = None if item.type is None else self.type(item.type)
        return nodes.Region(self.buffer(item.buffer), self.offset(item.place), Integer(item.extent), type)

    # --- statements -------------------------------------------------------------------------------------------------

    def lines(self, lines: Sequence[Line]) -> list[nodes.Statement]:
        """The statements of a program."""
        names: dict[int, str] = {}
        found: list[nodes.Statement] = []
        regions: dict[tuple[object, ...], str] = {}
        for line in lines:
            if isinstance(line, Step):
                found += self.step(line, names, regions)
            elif isinstance(line, Barrier):
                found.append(nodes.Wait(tuple(Name(names[step.number]) for step in line.steps)))
            else:
                found += self._loop(line, names, regions)
        return found

    def _loop(
        self, line: Repeat, names: dict[int, str], regions: dict[tuple[object, ...], str]
    ) -> list[nodes.Statement]:
        """A loop, and before it its regions that stay where they are, once for all engines.

        Names of its other regions end with it.
        """
        fixed: list[nodes.Statement] = []
        for step in line.body:
            for item in (*step.inputs, *step.outputs):
                if _is_named(step, item) and not (item.place.step or item.place.slot):
                    fixed += self._declared(item, regions)
        own = dict(regions)
        body = [item for step in line.body for item in self.step(step, names, own)]
        window = nodes.Decorator("max_in_flight", (Integer(line.window),))
        loop = nodes.Loop(
            Name(self.variable),
            Integer(0),
            Integer(line.trips - 1),
            (window,) if line.window > 1 else (),
            tuple(body),
        )
        return _noted([*fixed, loop], line.comments)

    def _declared(self, item: Bytes, regions: dict[tuple[object, ...], str]) -> list[nodes.Statement]:
        """The declaration of a named region, where it has none yet."""
        key = (item.buffer, item.place, item.extent, item.type)
        if key in regions:
            return []
        regions[key] = self.fresh(item.name)
        return [nodes.RegionDef(Name(regions[key]), self.region(item), let=True)]

    def step(
        self, step: Step, names: dict[int, str], regions: dict[tuple[object, ...], str]
    ) -> list[nodes.Statement]:
        """A task, and before it the regions that it is the first to name."""
        found: list[nodes.Statement] = []
        operands: list[Operand] = []
        for item in (*step.inputs, *step.outputs):
            if not _is_named(step, item):
                bare = replace(item, type=None) if step.opcode in MOVES else item
                operands.append(Operand(self.region(bare)))
                continue
            found += self._declared(item, regions)
            operands.append(Operand(Name(regions[item.buffer, item.place, item.extent, item.type])))
        if step.awaited:
            names[step.number] = self.fresh(step.label or step.opcode)
        count = len(step.inputs)
        task = nodes.Task(
            token=Name(names[step.number]) if step.awaited else None,
            opcode=Name(step.opcode),
            form="async",
            inputs=tuple(operands[:count]),
            outputs=tuple(operands[count:]),
            attributes=tuple(
                Attribute(Name(key), value_of(v)) for key, v in step.attributes.items() if (key, v) != _PLAIN
            ),
            deps=tuple(Name(names[other.number]) for other in step.deps),
            decorators=tuple(self._decorators(step)),
        )
        return _noted([*found, task], step.comments)

    def _decorators(self, step: Step) -> Iterator[nodes.Decorator]:
        if step.sequencer:
            yield nodes.Decorator("seq_engine", (Integer(step.sequencer),))
        if step.unit:
            turn: Expr = Integer(step.turn)
            if step.turns > 1:
                turn = Chain(Name(self.variable), (("mod", Integer(step.turns)),))
            yield nodes.Decorator("resource", (nodes.UnitRef(step.unit, turn),))


_PLAIN = ("groups", 1)
"""What a convolution has where nothing is said."""
_WORDS = frozenset(
    {"i4", "i8", "i16", "i32", "u8", "u16", "u32", "f16", "bf16", "f32", "constant", "edge", "reflect"}
)


def value_of(value: AttributeValue) -> Value:
    """An attribute value as the text has it."""
    if isinstance(value, bool):
        return Name("true" if value else "false")
    if isinstance(value, int):
        return integer(value)
    if isinstance(value, float):
        return real(value)
    if isinstance(value, str):
        return Name(value) if value in _WORDS else Text(value)
    return Items(numbers(value))


def _is_named(step: Step, item: Bytes) -> bool:
    """Whether an operand is written by its name: a move is one of bytes, so it takes no view with strides."""
    plain = item.type is None or item.type.strides == row_major_strides(item.type.shape)
    return bool(item.name) and (step.opcode not in MOVES or plain)


def _noted(statements: list[nodes.Statement], comments: tuple[str, ...]) -> list[nodes.Statement]:
    """Statements with comments before the first."""
    if not comments:
        return statements
    notes = Trivia(tuple(f"# {line}" for line in comments), blank=True)
    return [replace(statements[0], notes=notes), *statements[1:]]
