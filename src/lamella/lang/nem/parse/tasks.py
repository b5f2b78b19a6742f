"""Tasks: transfers, stores and compute operations."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.base.cursor import SHOWN, SyntaxProblem
from lamella.base.suggest import nearest
from lamella.lang.nem import rules
from lamella.lang.nem.nodes import (
    Attribute,
    Decorator,
    Expr,
    Name,
    Operand,
    Quant,
    Region,
    Task,
    TypeAttributes,
)
from lamella.lang.nem.parse.expressions import Expressions
from lamella.lang.nem.parse.lexis import NAME
from lamella.lang.nem.words import (
    FORMS,
    KEYWORDS,
    MOVES,
    NOTE_DECORATORS,
    QUANT_FORMS,
    TASK_DECORATORS,
    TYPE_WORDS,
)

# --- regions, their types, and operands ---------------------------------------------------------------------


@dataclass(slots=True)
class _Parts:
    """The type attributes of one region, as they are found."""

    first: int | None = None
    elem: Name | None = None
    shape: tuple[Expr, ...] | None = None
    layout: Name | None = None
    strides: tuple[Expr, ...] | None = None
    quant: Quant | None = None


class Regions(Expressions):
    """The rules of the grammar from `region` to `operand`."""

    def region(self) -> Region:
        """`region := 'region' '(' ID ',' expr ',' expr (',' tattrs)? ')' tattrs?`."""
        first = self.next()
        self.expect("(", "after 'region'")
        buffer = self.use("the name of a buffer", "in a region")
        self.expect(",", "after the buffer of a region")
        offset = self.expression()
        self.expect(",", "after the offset of a region")
        extent = self.expression()
        parts = _Parts()
        if self.accept(","):
            self.type_attributes(parts)
        self.expect(")", "after a region")
        if self.text in TYPE_WORDS:
            self.type_attributes(parts)
        return Region(buffer, offset, extent, self._type(parts), self.span_from(first))

    def _type(self, parts: _Parts) -> TypeAttributes | None:
        if parts.first is None:
            return None
        span = self.span_from(parts.first)
        return TypeAttributes(parts.elem, parts.shape, parts.layout, parts.strides, parts.quant, span)

    def type_attributes(self, parts: _Parts) -> None:
        """`tattrs := tattr (',' tattr)*`; a comma continues only before another attribute."""
        parts.first = self.index if parts.first is None else parts.first
        self.type_attribute(parts)
        while self.text == "," and self.ahead() in TYPE_WORDS:
            self.next()
            self.type_attribute(parts)
        if self.text in TYPE_WORDS and self.text != "strides":
            raise self.problem("','", "between type attributes")

    def type_attribute(self, parts: _Parts) -> None:
        """`tattr := 'elem' '=' ELEM | 'shape' '=' … | 'layout' '=' ID | 'strides' '=' … | 'quant' '=' quant`."""
        word = self.text
        if word not in TYPE_WORDS:
            raise self.problem("a type attribute", "in a region")
        first = self.next()
        self.expect("=", "after a type attribute")
        value: Name | Quant | tuple[Expr, ...]
        if word == "elem":
            value = self.element()
        elif word == "layout":
            value = self.use("the name of a layout", "after 'layout ='")
        elif word == "quant":
            value = self.quant()
        else:
            value = self.expressions("around sizes")
        if getattr(parts, word) is None:
            setattr(parts, word, value)
        else:
            self.report(rules.DOUBLE_TYPE.at(self.span(first), what=word))

    def quant(self) -> Quant:
        """`quant := ('per_tensor' | 'per_channel' | 'per_group') '(' (ID '=' value),+ ')'`."""
        form = self.text
        if form not in QUANT_FORMS:
            raise self.problem("per_tensor, per_channel or per_group", "after 'quant ='")
        first = self.next()
        self.expect("(", "after the form of a quant descriptor")
        fields = self.separated(self.attribute)
        self.expect(")", "after a quant descriptor")
        return Quant(form, tuple(fields), self.span_from(first))

    def operand(self) -> Operand:
        """`operand := (ID | region) deco*`; a name that is followed by '=' or '.' belongs to the next statement."""
        first = self.index
        value: Name | Region
        if self.text == "region":
            value = self.region()
        elif self.ahead() in ("=", "."):
            raise self.problem("a region", "as an operand")
        else:
            value = self.use("a region", "as an operand")
        return Operand(value, self.decorators(), self.span_from(first))


class Tasks(Regions):
    """The rules of the grammar from `move` to `hatch`."""

    def at_call(self, distance: int = 0) -> bool:
        """Whether `NAME '.' FORM` stands ahead."""
        texts, index = self.texts, self.index + distance
        return texts[index + 1] == "." and texts[index + 2] in FORMS and self.kinds[index] == NAME

    def at_definition(self) -> bool:
        """Whether `ID '='` stands ahead, followed by `region` or `NAME '.' FORM`: the beginning of a statement."""
        if self.kind != NAME or self.texts[self.index + 1] != "=":
            return False
        return self.texts[self.index + 2] == "region" or self.at_call(2)

    def task(self, first: int, token: Name | None) -> Task:
        """`(ID '=')? (move | compute)`, from the opcode on."""
        opcode = self.use("an opcode", "here")
        self.next()
        form = self.text
        self.next()
        if opcode.id in MOVES:
            return self.move(first, token, opcode, form)
        return self.compute(first, token, opcode, form)

    # --- moves ----------------------------------------------------------------------------------------------

    def move(self, first: int, token: Name | None, opcode: Name, form: str) -> Task:
        """`('transfer' | 'store') '.' FORM '(' (('dst' | 'src') '=' operand | deps),+ ')' deco*`."""
        ends: dict[str, Operand] = {}
        deps: tuple[Name, ...] | None = None
        self.expect("(", "after a transfer or store")
        while True:
            if self.text == "deps":
                deps = self.dependencies(deps)
            else:
                self.move_end(opcode, ends)
            if not self.accept(","):
                break
        self.expect(")", "after the operands")
        decorators = self.decorators()
        missing = [word for word in ("dst", "src") if word not in ends]
        if missing:
            problem = f"has no {' and no '.join(missing)}"
            raise self.report(rules.MOVE_OPERANDS.at(opcode.span, opcode=opcode.id, problem=problem))
        places = ((ends["src"],), (ends["dst"],))
        return Task(token, opcode, form, *places, (), deps or (), decorators, *self.finish(first))

    def move_end(self, opcode: Name, ends: dict[str, Operand]) -> None:
        """`('dst' | 'src') '=' operand`."""
        word = self.text
        if word not in ("dst", "src"):
            raise self.problem("dst, src or deps", "in a transfer or store")
        first = self.next()
        self.expect("=", "after dst or src")
        operand = self.operand()
        if word in ends:
            problem = f"has two {word}"
            self.report(rules.MOVE_OPERANDS.at(self.span(first), opcode=opcode.id, problem=problem))
        else:
            ends[word] = operand

    def dependencies(self, given: tuple[Name, ...] | None) -> tuple[Name, ...]:
        """`'deps' '=' '[' ID,* ']'`."""
        word = self.next()
        self.expect("=", "after 'deps'")
        self.expect("[", "after 'deps ='")
        found = [] if self.text == "]" else self.separated(self.token_name)
        self.expect("]", "after the tokens")
        if given is not None:
            self.report(rules.DUPLICATE_ATTRIBUTE.at(self.span(word), name="deps"))
            return given
        return tuple(found)

    def token_name(self) -> Name:
        """The name of a token."""
        return self.use("the name of a token", "here")

    def _no_move(self, opcode: Name) -> SyntaxProblem:
        """Brackets behind an opcode that moves nothing: a misspelt move, or a task that is written another way."""
        close = nearest(opcode.id, MOVES)
        hint = f"did you mean {close[0]}?" if close else ""
        return self.problem("'in'", f"after '{opcode.id[:SHOWN]}.{self.texts[self.index - 1]}'", hint)

    # --- compute --------------------------------------------------------------------------------------------

    def compute(self, first: int, token: Name | None, opcode: Name, form: str) -> Task:
        """`OPCODE '.' FORM hatch? 'in' operand,+ 'out' operand,+ attr* deco*`."""
        attributes = self.hatch() if self.text == "(" and opcode.id == "compute" else []
        if self.text == "(" and not attributes:
            raise self._no_move(opcode)
        self.expect("in", "before the inputs of a task")
        inputs = self.separated(self.operand)
        self.expect("out", "before the outputs of a task")
        outputs = self.separated(self.operand)
        before = self.index
        deps = self.attributes(attributes)
        last, moved = _divide(outputs[-1], ends_task=self.index == before)
        outputs[-1] = last
        return Task(
            token,
            opcode,
            form,
            tuple(inputs),
            tuple(outputs),
            tuple(attributes),
            deps,
            moved + self.decorators(),
            *self.finish(first),
        )

    def attributes(self, found: list[Attribute]) -> tuple[Name, ...]:
        """`attr*`, `attr := 'deps' '=' '[' ID,* ']' | ID '=' value`; the list ends before a definition."""
        deps: tuple[Name, ...] | None = None
        while True:
            if self.text == "deps":
                deps = self.dependencies(deps)
            elif self.at_attribute():
                found.append(self.attribute())
            elif self.at_misspelt_attribute():
                self.next()
                raise self.problem("'='", "after the name of an attribute")
            else:
                return deps or ()

    def at_attribute(self) -> bool:
        """Whether an attribute stands ahead, rather than the next statement."""
        if self.kind != NAME or (self.text in KEYWORDS and self.text != "strides"):
            return False
        return self.texts[self.index + 1] == "=" and not self.at_definition()

    def at_misspelt_attribute(self) -> bool:
        """Whether a name stands ahead, on the same line, that begins neither an attribute nor a statement."""
        if self.kind != NAME or self.text in KEYWORDS or self.at_definition() or self.at_call():
            return False
        return self.source.text.find("\n", self.end_of(self.index - 1), self.starts[self.index]) < 0

    def hatch(self) -> list[Attribute]:
        """`'(' 'op' '=' STRING (',' 'attrs' '=' '{' (ID ('='|':') value),* '}')? ')'`, as attributes."""
        self.next()
        word = self.expect("op", "in compute(…)")
        self.expect("=", "after 'op'")
        text = self.string("as the name of the operation")
        found = [Attribute(Name("op", self.span(word)), text, self.span_from(word))]
        if self.accept(","):
            self.expect("attrs", "after the name of the operation")
            self.expect("=", "after 'attrs'")
            self.expect("{", "after 'attrs ='")
            found += [] if self.text == "}" else self.separated(self.hatch_attribute)
            self.expect("}", "after the attributes")
        self.expect(")", "after compute(…")
        return found

    def hatch_attribute(self) -> Attribute:
        """`ID ('='|':') value`."""
        first = self.index
        name = self.attribute_name()
        if self.text not in ("=", ":"):
            raise self.problem("'=' or ':'", "after the name of an attribute")
        self.next()
        return Attribute(name, self.value(), self.span_from(first))


def _divide(last: Operand, ends_task: bool) -> tuple[Operand, tuple[Decorator, ...]]:
    """The last operand without the decorators that belong to its task, and these decorators.

    `@resource`, `@deterministic`, `@memmove` and `@seq_engine` always belong to the task; `@debug` and `@profile` do
    when no attribute follows them, for then they end the statement; all others stay on the operand.
    """
    if not last.decorators:
        return last, ()
    kinds = TASK_DECORATORS | NOTE_DECORATORS if ends_task else TASK_DECORATORS
    moved = tuple(item for item in last.decorators if item.name in kinds)
    kept = tuple(item for item in last.decorators if item.name not in kinds)
    return Operand(last.value, kept, last.span), moved
