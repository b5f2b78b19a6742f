"""What a body knows while it is composed: its names, where it stands, and the graph that grows around it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Extent, symbol, symbols
from lamella.base.dtype import ElementType, find_in
from lamella.base.errors import Found
from lamella.base.limits import Limits
from lamella.base.origin import Origin
from lamella.base.records import dataclass
from lamella.base.source import Span
from lamella.graph.build import settle_shape
from lamella.graph.nodes import Constant, Node, Quantization, Shape, Single, Tensor, Update
from lamella.lang.skriptnd.check.definitions import Definitions
from lamella.lang.skriptnd.nodes import Expr, ListPattern, Omitted, Pack, Pattern, Result, TypeSpec, Unzip
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.evaluate import Code, Compiler
from lamella.ops.fault import Fault
from lamella.ops.instance import Check, Definition
from lamella.ops.library import FUSED, Library
from lamella.ops.scalars.values import expect_known

# --- names of tensors: the path of labels that leads to them, and how they stay unique ----------------------


@dataclass(frozen=True, slots=True)
class LabelPath:
    """The labels on the way from the graph to an operator's body.

    `step` counts the steps of unrolled loops; the next label takes it, so that each step has tensors of its own.
    """

    prefix: str = ""
    step: str = ""

    def name(self, tensor: str) -> str:
        """The name in the graph of a tensor of this scope."""
        return f"{self.prefix}{tensor}{self.step}"

    def behind(self, label: str) -> LabelPath:
        """The scope behind a label."""
        return LabelPath(f"{self.prefix}{label}{self.step}.")

    def at_step(self, number: int) -> LabelPath:
        """The scope of one step of an unrolled loop, counted from 1."""
        return LabelPath(self.prefix, f"{self.step}:{number}")


class TensorNames:
    """The names a graph has given away, and those it has promised."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._promised: set[str] = set()
        self._last: dict[str, int] = {}

    def promise(self, name: str) -> bool:
        """Keep a name for a tensor that is made later; False where somebody else has it."""
        if name in self._taken or name in self._promised:
            return False
        self._promised.add(name)
        return True

    def is_taken(self, name: str) -> bool:
        """Whether a tensor has this name already."""
        return name in self._taken

    def redeem(self, name: str) -> str:
        """A name that was promised; the next one like it where it has been redeemed before."""
        if name in self._promised:
            self._promised.discard(name)
            self._taken.add(name)
            return name
        return self.fresh(name)

    def fresh(self, name: str) -> str:
        """A name that nothing else has: the one asked for where it is free, else one that no text can spell."""
        found = name
        while found in self._taken or found in self._promised:
            number = self._last[name] = self._last.get(name, 1) + 1
            found = f"{name}~{number}"
        self._taken.add(found)
        return found


# --- what one composition has made so far, and what it may still spend --------------------------------------


class TensorName(NamedTuple):
    """A name for a tensor, whether `@quantize` and files may call it so, and whether it was promised."""

    name: str
    exposed: bool = False
    promised: bool = False


class Quantizer(Protocol):
    """An entry of `@quantize` that waits for its tensor."""

    def bind(self, tensor: Tensor) -> Quantization | None:
        """The quantisation of the tensor, every attribute with its value; None where that failed and was reported."""

    def miss(self) -> None:
        """Remember that only a hidden tensor has the name."""


class Session:
    """The graph under construction: all that its parts share."""

    def __init__(self, library: Library, keep: Callable[[Definition], bool], limits: Limits) -> None:
        self.library = library
        library.budget.renew()
        self.keep = keep
        self.limits = limits
        self.names = TensorNames()
        self.findings: list[Diagnostic] = []
        self.nodes: list[Node] = []
        self.regions = 0
        self.constants: list[Constant] = []
        self.variables: dict[str, Tensor] = {}
        self.updates: list[Update] = []
        self.checks: list[Check] = []
        self.quantizers: dict[str, Quantizer] = {}
        self.known: dict[str, Tensor] = {}
        """Tensors that exist already under names that are made again (when a graph is decomposed)."""
        self.codes: dict[int, tuple[Expr, Code]] = {}
        """Expressions made ready, by identity; those of one body are evaluated for each of its calls."""
        self._symbols: list[str] = []
        self._scalars: dict[tuple[object, ...], Tensor] = {}
        self._exhausted = False
        self._spent = 0
        self._depth = 0
        self._steps = 1

    def report(self, origin: Origin | None, *findings: Diagnostic) -> None:
        """Keep findings, each with the calls that led to it."""
        path = () if origin is None else origin.words()
        self.findings += [item if item.origins or not path else item.from_origin(*path) for item in findings]

    def collect(self, origin: Origin | None, problem: Found) -> None:
        """Keep the findings of a part that failed, so that the parts after it are composed too.

        Not where a limit was passed: that ends the whole composition, or a hostile text would be charged once for each
        part.
        """
        if self._exhausted:
            raise problem
        self.report(origin, *problem.findings)

    def _exhaust(self, finding: Diagnostic) -> Found:
        """What ends the composition, whoever collects findings on the way."""
        self._exhausted = True
        return Found(finding)

    def leave(self, checks: Sequence[Check]) -> None:
        """Leave assertions to the run of the graph, or of the region that is being composed."""
        self.checks += checks

    # --- limits -----------------------------------------------------------------------------------------------

    def spend(self, amount: int, span: Span) -> None:
        """Count work that a text can multiply; the composition ends when it is too much."""
        self._spent += amount
        if self._spent > self.limits.max_operations:
            raise self._exhaust(rules.TOO_MANY.at(span, limit=self.limits.max_operations))

    @contextmanager
    def deeper(self, span: Span) -> Iterator[None]:
        """One level of nesting further in."""
        if self._depth >= self.limits.max_depth:
            raise self._exhaust(rules.TOO_DEEP.at(span, limit=self.limits.max_depth))
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    @contextmanager
    def unrolled(self, steps: int, span: Span) -> Iterator[None]:
        """Steps of an unrolled loop; nested loops multiply, which is refused before any of it is done."""
        outer, self._steps = self._steps, self._steps * max(steps, 1)
        if self._steps > self.limits.max_operations:
            raise self._exhaust(rules.TOO_MANY.at(span, limit=self.limits.max_operations))
        try:
            yield
        finally:
            self._steps = outer

    # --- what is made -------------------------------------------------------------------------------------------

    @contextmanager
    def region(self, span: Span) -> Iterator[tuple[list[Node], list[Check]]]:
        """Nodes and assertions made inside belong to a region of their own; all work on a graph descends into it."""
        most = self.limits.max_depth // 2
        if self.regions >= most:
            raise self._exhaust(rules.TOO_DEEP.at(span, limit=most))
        nodes, checks = self.nodes, self.checks
        self.nodes, self.checks = [], []
        self.regions += 1
        try:
            yield self.nodes, self.checks
        finally:
            self.nodes, self.checks = nodes, checks
            self.regions -= 1

    def take(self, named: TensorName) -> str:
        """The name itself where it was promised or is free; otherwise the next one like it."""
        return self.names.redeem(named.name) if named.promised else self.names.fresh(named.name)

    def tensor(
        self,
        named: TensorName,
        element: ElementType,
        shape: Shape,
        origin: Origin | None,
        taken: bool = False,
    ) -> Tensor:
        """A new tensor; `taken` says that its name was taken before."""
        name = named.name if taken else self.take(named)
        known = self.known.get(name)
        if known is not None and known.element == element:
            return known
        made = Tensor(name, element, shape, origin=origin)
        return self._quantized(made, named.exposed) if self.quantizers else made

    def _quantized(self, tensor: Tensor, exposed: bool) -> Tensor:
        """The tensor as `@quantize` has it; an item of a pack goes by the name of the pack as well."""
        pack, _, number = tensor.name.rpartition(":")
        for name in (tensor.name, pack) if number.isdigit() else (tensor.name,):
            entry = self.quantizers.get(name)
            if entry is not None and exposed:
                return replace(tensor, quantization=entry.bind(tensor))
            if entry is not None:
                entry.miss()
        return tensor

    def scalar(self, prefix: str, value: Single, element: ElementType, shape: Shape = ()) -> Tensor:
        """A constant with one value; equal ones of a scope are one."""
        key = (prefix, type(value), repr(value), element, shape)
        found = self._scalars.get(key)
        if found is None:
            name = self.names.fresh(f"{prefix}constant")
            found = self._scalars[key] = Tensor(name, element, shape)
            self.constants.append(Constant(found, value))
        return found

    # --- extents that only the run tells ------------------------------------------------------------------------

    def symbol(self, name: str, high: int, low: int = 0) -> Extent:
        """A new extent that only the run tells."""
        self._symbols.append(name)
        return symbol(name, high, low)

    def settle(self, name: str, shapes: Sequence[Shape], hidden: frozenset[str] = frozenset()) -> Shape:
        """The shape of a tensor that takes one of several, with new extents where they differ or are hidden."""
        return settle_shape(name, shapes, hidden, self.symbol)

    def learn(self, shapes: Iterable[Shape]) -> None:
        """Remember the symbols that an operation has introduced with the shapes of a result."""
        self._symbols += [item.name for shape in shapes for extent in shape for item in symbols(extent)]

    def mark(self) -> int:
        """A point in time, for `since`."""
        return len(self._symbols)

    def since(self, mark: int) -> frozenset[str]:
        """The symbols introduced after a point in time: inside a region, they mean nothing outside."""
        return frozenset(self._symbols[mark:])


# --- the left side of `=`: which name takes which part of a result, and what the tensors are called ---------


T = TypeVar("T")
Length: TypeAlias = Callable[[Expr], int]
"""The value of the expression of a pack's length."""


class ResultNames(Protocol):
    """The name or names of one result; None where nothing is said."""

    def single(self) -> TensorName | None:
        """The name of a result that is one tensor, or of a pack as a whole."""

    def items(self, count: int) -> Sequence[TensorName | None]:
        """The names of the tensors of a packed result, in order."""


@dataclass(frozen=True, slots=True)
class Unnamed:
    """A result that is left out, or has a name only in its region."""

    def single(self) -> TensorName | None:
        """No name."""
        return None

    def items(self, count: int) -> Sequence[TensorName | None]:
        """No names."""
        return (None,) * count


UNNAMED = Unnamed()


@dataclass(frozen=True, slots=True)
class SingleName:
    """A name; the items of a pack are numbered from 1."""

    named: TensorName

    def single(self) -> TensorName | None:
        """The name itself."""
        return self.named

    def items(self, count: int) -> Sequence[TensorName | None]:
        """The name with numbers."""
        name, exposed, promised = self.named
        return [TensorName(f"{name}:{number + 1}", exposed, promised) for number in range(count)]


@dataclass(frozen=True, slots=True)
class SettledNames:
    """Names that are settled one by one."""

    names: tuple[TensorName, ...]

    def single(self) -> TensorName | None:
        """The only name."""
        return self.names[0] if self.names else None

    def items(self, count: int) -> Sequence[TensorName | None]:
        """The names as they are."""
        return (*self.names[:count], *(None,) * (count - len(self.names)))


@dataclass(frozen=True, slots=True)
class ListedNames:
    """`[a, b..]`: names for the items of a pack."""

    pattern: ListPattern
    resolve: Callable[[str], ResultNames]
    length: Length

    def single(self) -> TensorName | None:
        """The list as a whole has no name."""
        return None

    def items(self, count: int) -> Sequence[TensorName | None]:
        """The names in the list, packed ones with numbers."""
        found: list[TensorName | None] = [None] * count
        for item, places in spread(self.pattern, range(count), self.length):
            wanted = self.resolve(item.name)
            if isinstance(places, tuple):
                for place, named in zip(places, wanted.items(len(places)), strict=True):
                    found[place] = named
            else:
                found[places] = wanted.single()
        return found


def pack_of(item: Result) -> Pack | None:
    """What is said of the length of a result, behind its name or behind its type."""
    return item.pack or (item.type.pack if item.type is not None else None)


def names_in(pattern: Pattern) -> Iterator[Result]:
    """The names of a pattern, in order."""
    if isinstance(pattern, Result):
        yield pattern
    elif isinstance(pattern, ListPattern):
        for item in pattern.items:
            yield from item.items if isinstance(item, Unzip) else [item] if isinstance(item, Result) else []


def spread(
    pattern: ListPattern, values: Sequence[T], length: Length
) -> Iterator[tuple[Result, T | tuple[T, ...]]]:
    """The names of a list with the values they take."""
    start = 0
    for item, count in zip(pattern.items, _counts(pattern, len(values), length), strict=True):
        taken = tuple(values[start : start + count])
        start += count
        if isinstance(item, Unzip):
            step = len(item.items)
            yield from ((name, taken[place::step]) for place, name in enumerate(item.items))
        elif isinstance(item, Result):
            yield item, (taken if pack_of(item) is not None else taken[0])


def _counts(pattern: ListPattern, total: int, length: Length) -> list[int]:
    """How many values each item of a list takes."""
    counts = [_count(item, length) for item in pattern.items]
    rest = total - sum(count for count in counts if count is not None)
    flexible = [place for place, count in enumerate(counts) if count is None]
    whole = rest % _width(pattern.items[flexible[0]]) == 0 if flexible else rest == 0
    if rest < 0 or not whole or len(flexible) > 1:
        raise Found(rules.PATTERN_LENGTH.at(pattern.span, wanted=total - rest, found=total))
    return [rest if count is None else count for count in counts]


def _count(item: Result | Unzip | Omitted, length: Length) -> int | None:
    if isinstance(item, Omitted):
        return 1
    pack = item.pack if isinstance(item, Unzip) else pack_of(item)
    if pack is None:
        return 1
    if pack.length is None or isinstance(pack.length, Omitted):
        return None
    return _width(item) * length(pack.length)


def _width(item: Result | Unzip | Omitted) -> int:
    return len(item.items) if isinstance(item, Unzip) else 1


# --- the body of an operator while it is composed: what its names mean, and where it stands -----------------


class SymbolTable(dict[str, object]):
    """What names mean in a body; those it does not declare mean what they mean around it."""

    __slots__ = ("around",)

    def __init__(self, around: Mapping[str, object]) -> None:
        super().__init__()
        self.around = around

    def __missing__(self, name: str) -> object:
        return self.around[name]

    def find(self, name: str) -> object:
        """The meaning of a name; None where it has none."""
        try:
            return self[name]
        except KeyError:
            return None


class ResultPlace(NamedTuple):
    """Where the results of a callee go: their names, the label of a call that has none, the component's span."""

    wanted: Sequence[ResultNames] | None
    label: str | None
    span: Span

    def names(self, count: int) -> Sequence[ResultNames]:
        """One name for each of so many results; what is too much is reported by whoever assigns them."""
        given = self.wanted or ()
        return (*given[:count], *(UNNAMED,) * (count - len(given)))


@dataclass(slots=True)
class BodyScope:
    """One body: an operator's, a graph's, or that of a block inside it."""

    session: Session
    module: str
    compiler: Compiler
    types: Mapping[str, ElementType]
    real: ElementType
    """What `real` means here: the width that the reals of the call share."""
    env: SymbolTable
    scope: LabelPath
    origin: Origin | None
    exposed: bool
    outputs: Mapping[str, ResultNames]
    promised: set[str] = field(default_factory=set)
    """The names of the text that were promised for tensors of this very body."""

    def value(self, expr: Expr) -> object:
        """The value of an expression."""
        found = self.session.codes.get(id(expr))
        if found is None:
            found = self.session.codes[id(expr)] = (expr, self.compiler.compile(expr))
        return found[1](self.env)

    def known(self, expr: Expr) -> int:
        """The value of an integer expression that must be known before the run."""
        try:
            return expect_known(self.value(expr), "a length")
        except Fault as fault:
            raise fault.at(expr.span) from None

    def element(self, name: str) -> ElementType | None:
        """The element type that a type's name stands for in this body."""
        return self.real if name == "real" else self.types.get(name) or find_in("skriptnd", name)

    def inside(self, scope: LabelPath, outputs: Mapping[str, ResultNames]) -> BodyScope:
        """The body of a block in this one, in which names may be given a new meaning."""
        return replace(self, scope=scope, env=SymbolTable(self.env), outputs=outputs, promised=set())

    def behind(self, label: str | None) -> LabelPath:
        """The scope behind a label; this one where there is none."""
        return self.scope.behind(label) if label else self.scope

    def name(self, text: str) -> ResultNames:
        """What a name of the text is called in the graph: an output goes by the caller's name."""
        given = self.outputs.get(text)
        if given is not None:
            return given
        return SingleName(TensorName(self.scope.name(text), self.exposed, text in self.promised))

    def wanted(self, pattern: Pattern) -> ResultNames:
        """What a result is called in the graph."""
        if isinstance(pattern, Result):
            return self.name(pattern.name)
        return ListedNames(pattern, self.name, self.known) if isinstance(pattern, ListPattern) else UNNAMED


# --- which operators stay whole in a graph ------------------------------------------------------------------


def keeper(library: Library, keep: Callable[[str], bool] | None) -> Callable[[Definition], bool]:
    """Whether an operator stays whole: a primitive always, one with variables or open extents never.

    Of the others the caller chooses by name; without a choice the shipped ones and fused groups stay, and a user's are
    composed.
    """
    known: dict[str, bool] = {}
    definitions = Definitions("main", {}, library.find_operator, qualify=library.resolve)

    def is_kept(definition: Definition) -> bool:
        found = known.get(definition.name)
        if found is None:
            operator = definition.operator
            whole = definition.standard or definition.module == FUSED
            chosen = whole if keep is None else keep(definition.name)
            found = operator.kind != "compose" or (chosen and not must_compose(definition, definitions))
            known[definition.name] = found
        return found

    return is_kept


def must_compose(definition: Definition, definitions: Definitions) -> bool:
    """Whether only the composed body says what a compound operator gives, or no other module may name it."""
    operator = definition.operator
    private = operator.name.startswith("_")
    if operator.graph or private or is_open(definition):
        return True
    return definitions.holds_variables(definition.name, operator)


def is_open(definition: Definition) -> bool:
    """Whether some extent or length of an output is left to the run."""
    return any(_is_open(item.type) for item in definition.operator.parameters("output"))


def _is_open(declared: TypeSpec) -> bool:
    if declared.shape is None or (declared.pack is not None and declared.pack.bound is not None):
        return True
    return any(isinstance(item.value, Omitted) or item.bound is not None for item in declared.shape)


# --- room for functions that call each other as deep as a text nests ----------------------------------------


FRAMES = 60
"""Calls of ours for one level of nesting, at most."""


@contextmanager
def recursion_limit(limits: Limits) -> Iterator[None]:
    """Raise the interpreter's limit of recursion by what the limit of nesting can ask for."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + FRAMES * limits.max_depth)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
