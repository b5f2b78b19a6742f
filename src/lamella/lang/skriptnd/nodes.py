"""SkriptND on one page: the nodes of a document, in the words of the specification.

Spans and notes (comments, blank lines) are carried and never compared, so `parse(write(d)) == d` is plain equality.
The newer spellings have no nodes of their own: the parser reads them into these and says so in a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from operator import is_
from typing import TypeAlias

from lamella.base.records import dataclass, replace
from lamella.base.source import Span, Trivia, beside, where

# --- expressions: everything that has a value ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer literal."""

    value: int
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Real:
    """A real literal: one with a point or an exponent."""

    value: float
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Bool:
    """`true` or `false`."""

    value: bool
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Constant:
    """`inf` or `pi`."""

    name: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Text:
    """A string; adjacent literals are one, backslashes stay as they are written."""

    value: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Format:
    """A string with `{expression}` holes: text and expressions in turn; an escaped brace stays escaped in the text."""

    parts: tuple[str | Expr, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier that is used."""

    id: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Omitted:
    """`~`: an extent, a pack length, an argument or a result that is left out."""

    span: Span = where()


@dataclass(frozen=True, slots=True)
class Member:
    """`x.shape`, `x.rank` or `x.size`."""

    name: str
    field: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Range:
    """`begin:end:step` as a list item, a pack index or (newer) a tensor index; parts may be missing where allowed."""

    begin: Expr | None
    end: Expr | None
    step: Expr | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Expand:
    """`e..` or `e..(count)`."""

    operand: Expr
    count: Expr | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Zip:
    """`(a, b, …)..`: packs interleaved."""

    operands: tuple[Expr, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class List:
    """`[item, …]`."""

    items: tuple[Item, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Index:
    """`pack[index]`: one item, the items of a pack of indices, those of a mask, or a range of them."""

    operand: Expr
    index: Expr | Range
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Substitute:
    """`pack[index] <- value`: the pack with some items replaced."""

    target: Index
    value: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Bounded:
    """`|index|` skips what is out of range; `|index <> below : above|` remaps it."""

    index: Expr
    below: Expr | None = None
    above: Expr | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Access:
    """`tensor[i, j..]` or `pack[k][i, j..]`: elements of a tensor; no indices for a tensor of rank 0."""

    tensor: str
    item: Expr | None
    indices: tuple[Expr | Expand | Range, ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Unary:
    """`+x`, `-x` or `!x`."""

    sign: str
    operand: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class NullTest:
    """`?name`: whether an optional value is there."""

    name: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators of one precedence level, from left to right: `first (sign operand)…`, flat however long.

    Signs are the specification's: `=>  && || ^  < <= > >= == != is in  << >>  + -  * / \\ %  **`.
    """

    first: Expr
    rest: tuple[tuple[str, Expr], ...]
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Fold:
    """`pack sign ..`, or with three dots its cumulative form."""

    operand: Expr
    sign: str
    cumulative: bool = False
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Select:
    """`condition ? then : otherwise`; without the second branch the result is optional."""

    condition: Expr
    then: Expr
    otherwise: Expr | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Coalesce:
    """`value ?? default`."""

    value: Expr
    default: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Cast:
    """`type(x)`, or the default value `type()` of a type; the type is primitive, sized or a `@dtype` name."""

    type: str
    operand: Expr | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Call:
    """A built-in function of one argument."""

    function: str
    operand: Expr
    span: Span = where()


Expr: TypeAlias = (
    Integer
    | Real
    | Bool
    | Constant
    | Text
    | Format
    | Name
    | Member
    | List
    | Index
    | Substitute
    | Bounded
    | Access
    | Unary
    | NullTest
    | Chain
    | Fold
    | Select
    | Coalesce
    | Cast
    | Call
)
Item: TypeAlias = Expr | Range | Expand | Zip


# --- types, shapes and parameters: what the blocks from `@dtype` to `@variable` declare ---------------------


@dataclass(frozen=True, slots=True)
class Pack:
    """`..`, `..(length)` or `..(length|bound)` behind a type or an extent.

    `control` is the newer draft's `static` or `dynamic`, empty where nothing is said.
    """

    length: Expr | Omitted | None = None
    bound: Expr | None = None
    control: str = ""
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Extent:
    """One item of a shape: `e`, `~`, `e|bound`, `e..(n)`, or `..e` with one extent for each item of the pack."""

    value: Expr | Omitted
    bound: Expr | None = None
    pack: Pack | None = None
    spread: bool = False
    static: bool = False
    span: Span = where()


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """`optional real^(rank)[shape]..(length)`; a `shape` of None is no tensor (or one whose shape is left out)."""

    name: str
    optional: bool = False
    dynamic: bool = False
    rank: str | None = None
    shape: tuple[Extent, ...] | None = None
    pack: Pack | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Dtype:
    """A generic type: its name, the abstract type that restricts it, its default."""

    name: str
    base: str
    default: str | None = None
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Bound:
    """`index < limit`: an index symbol that runs from 0 up to a limit."""

    index: str
    limit: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Parameter:
    """An attribute, input, output, constant or variable."""

    name: str
    type: TypeSpec
    value: Expr | None = None
    bounds: tuple[Bound, ...] = ()
    span: Span = where()
    notes: Trivia = beside()


# --- what stands in the blocks that compute: `@using`, `@assert`, `@lower`, `@compose`, `@update` -----------


@dataclass(frozen=True, slots=True)
class Result:
    """A name on the left of `=`, with what is said of its type and length."""

    name: str
    type: TypeSpec | None = None
    pack: Pack | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Unzip:
    """`(a, b)..` on the left of `=`: a pack taken apart in turn."""

    items: tuple[Result, ...]
    pack: Pack
    span: Span = where()


@dataclass(frozen=True, slots=True)
class ListPattern:
    """`[a, b..]` on the left of `=`: a pack taken apart in order."""

    items: tuple[Result | Unzip | Omitted, ...]
    span: Span = where()


Pattern: TypeAlias = Result | ListPattern | Omitted


@dataclass(frozen=True, slots=True)
class Using:
    """A helper symbol."""

    target: Pattern
    value: Expr
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Printed:
    """A value that a failed assertion prints, with its label."""

    value: Expr
    label: str | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Assertion:
    """A condition that must hold, what to say when it does not, and what to print."""

    condition: Expr
    message: Text | Format | None = None
    values: tuple[Printed, ...] = ()
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Iteration:
    """`..(index -> count)` behind `do` or `unroll`."""

    index: str | None = None
    count: Expr | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Local:
    """An intermediate value inside the loops of a lowering."""

    name: str
    value: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Lowering:
    """One formula: `target sign value, bounds | condition`; the sign is one of `= := += *= &= |= <= >=`."""

    target: Access
    sign: str
    value: Expr | List
    bounds: tuple[Bound, ...] = ()
    condition: Expr | None = None
    locals: tuple[Local, ...] = ()
    unroll: Iteration | None = None
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Attribute:
    """`name = value` in the braces of an invocation."""

    name: str
    value: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Invocation:
    """`label: module.operator<types>{attributes}(arguments)`."""

    operator: str
    types: tuple[str, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    arguments: tuple[Expr | Omitted, ...] = ()
    label: str | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Block:
    """`label: { components; yield results; }`."""

    components: tuple[Component, ...]
    results: tuple[Expr, ...]
    label: str | None = None
    span: Span = where()
    end: Trivia = beside()
    """The notes of the `yield`."""


Callee: TypeAlias = Invocation | Block | Expr


@dataclass(frozen=True, slots=True)
class Branch:
    """`if c then a elif d then b else e`: conditions with their consequents, and the alternative."""

    cases: tuple[tuple[Callee, Callee], ...]
    otherwise: Callee
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Carried:
    """`with name: type = value`: a value carried from step to step."""

    name: str
    value: Expr
    type: TypeSpec | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Scan:
    """`for name : pack`: the items of a pack, one for each step."""

    name: str
    value: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop in all its forms; `before` is a `while` in front of the body, `after` one behind it."""

    body: Callee
    carried: tuple[Carried, ...] = ()
    scans: tuple[Scan, ...] = ()
    before: Callee | None = None
    after: Callee | None = None
    iteration: Iteration | None = None
    unroll: bool = False
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Component:
    """`results = value`: one step of a composition or an update."""

    results: tuple[Pattern, ...]
    value: Callee | Branch | Loop
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Quantization:
    """`tensor: operator{attributes}`: how a tensor is quantised; the tensor's name may be scoped by labels."""

    tensor: str
    operator: str
    types: tuple[str, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    span: Span = where()
    notes: Trivia = beside()


# --- operators, graphs and the modules that hold them -------------------------------------------------------


Statement: TypeAlias = Dtype | Parameter | Using | Assertion | Lowering | Component | Quantization


@dataclass(frozen=True, slots=True)
class Section:
    """One block of an operator, `@attrib { … }`; `name` is written without the `@`."""

    name: str
    items: tuple[Statement, ...]
    span: Span = where()
    notes: Trivia = beside()
    end: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator, or a graph: the definition on which everything else stands."""

    name: str
    sections: tuple[Section, ...]
    public: bool = False
    graph: bool = False
    span: Span = where()
    notes: Trivia = beside()
    end: Trivia = beside()

    def items(self, section: str) -> tuple[Statement, ...]:
        """What stands in a block; nothing where the block is absent."""
        return next((item.items for item in self.sections if item.name == section), ())

    def parameters(self, section: str) -> Iterator[Parameter]:
        """The parameters of `attrib`, `input`, `output`, `constant` or `variable`."""
        return (item for item in self.items(section) if isinstance(item, Parameter))

    @property
    def kind(self) -> str:
        """`lower`, `compose`, or `intrinsic` for an operator that has neither."""
        return next((name for name in ("lower", "compose") if self.items(name)), "intrinsic")


@dataclass(frozen=True, slots=True)
class Import:
    """`import a, b;`."""

    modules: tuple[str, ...]
    span: Span = where()
    notes: Trivia = beside()


@dataclass(frozen=True, slots=True)
class Document:
    """A module: imports, then operators and graphs in their order."""

    imports: tuple[Import, ...]
    declarations: tuple[Operator, ...]
    span: Span = where()
    end: Trivia = beside()

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the imported modules, in order."""
        return tuple(name for item in self.imports for name in item.modules)

    @property
    def graphs(self) -> tuple[Operator, ...]:
        """The graphs, the first being the primary one."""
        return tuple(item for item in self.declarations if item.graph)


def rebuilt(node: object, change: Callable[[object], object]) -> object:
    """A piece of syntax with each node in it as a function changes it, inner ones first; what stays is not copied."""
    if isinstance(node, tuple) and not isinstance(node, Span):
        items = tuple(rebuilt(item, change) for item in node)
        return node if all(map(is_, items, node)) else items
    kind: type = type(node)
    names = _fields_of(kind)
    if names is None:
        return node
    new: dict[str, object] = {}
    for name in names:
        old = getattr(node, name)
        item = rebuilt(old, change)
        if item is not old:
            new[name] = item
    return change(replace(node, **new) if new else node)


@cache
def _fields_of(kind: type) -> tuple[str, ...] | None:
    """The fields of a class of nodes; None for any other class."""
    if not is_dataclass(kind) or issubclass(kind, (Span, Trivia)):
        return None
    return tuple(item.name for item in fields(kind))
