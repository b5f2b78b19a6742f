"""Lines and blocks of them, and how reading goes on after an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lamella.base.cursor import END, SyntaxProblem
from lamella.base.limits import Limits
from lamella.base.source import Source, Span
from lamella.lang.module.nodes import (
    ArrayType,
    ConfigType,
    Dim,
    InstanceType,
    Name,
    ParamType,
    Path,
    PathPart,
    Star,
    TensorType,
    TiedType,
    Unchanged,
)
from lamella.lang.module.parse.expressions import Expressions
from lamella.lang.module.parse.layout import DEDENT, INDENT, LAYOUT, NAME, NEWLINE
from lamella.lang.module.parse.lexis import DOC, INT
from lamella.lang.module.rules import syntax
from lamella.lang.module.words import DTYPES

# --- types: of config parameters, of tensors, of parameters; and the paths of parameters --------------------


TIMES = frozenset(("x", "×"))
TENSOR = "Tensor"


class Types(Expressions):
    """The rules of the grammar that begin with `type`."""

    # --- tensors --------------------------------------------------------------------------------------------

    def at_tensor(self) -> bool:
        """Whether a tensor type is ahead."""
        return (
            self.text == "["
            or (self.text == "scalar" and self.ahead() != "(")
            or (self.text == TENSOR and self.ahead() in ("[", "<"))
        )

    def tensor(self) -> TensorType:
        """`'[' dim,* ']' '?'?`, `scalar`, and the older spellings `Tensor[…]` and `Tensor<[…]>`."""
        first = self.index
        if self.accept("scalar"):
            return TensorType((), None, self.accept("?"), self.span_from(first))
        is_old = self.accept(TENSOR)
        is_generic = is_old and self.accept("<")
        self.expect("[", "at the beginning of a tensor type")
        dims, dtype = self._dims()
        if is_generic:
            self.expect(">", "after the type of a tensor")
        optional = self.accept("?")
        found = TensorType(dims, dtype, optional, self.span_from(first))
        if is_old:
            text = " ".join(found.span.text.split())
            repair = text.removeprefix(TENSOR).lstrip().removeprefix("<").replace(">", "")
            self.report(syntax.OLD_TYPE.at(found.span, text=text, repair=repair))
        return found

    def _dims(self) -> tuple[tuple[Dim, ...], str | None]:
        """The dimensions up to the closing bracket; the last item is the element type if it is the name of one."""
        self.descend("of a type")
        dims: list[Dim] = []
        while self.text != "]":
            dims.append(self._dim())
            if not self.accept(","):
                break
        self.depth_left += 1
        self.expect("]", "after the dimensions of a tensor")
        dtype = None
        if dims and isinstance(dims[-1], Name) and dims[-1].id in DTYPES:
            dtype = dims[-1].id
            del dims[-1]
        return tuple(dims), dtype

    def _dim(self) -> Dim:
        """`'*' | '...' | expression`; `...` stands for a whole shape, or for some dimensions among others."""
        first, before = self.index, self.texts[self.index - 1]
        behind = self.ahead()
        if self.text == "*" and behind in (",", "]"):
            self.next()
            return Star(self.span(first))
        if self.accept("..."):
            return Unchanged(self.span(first)) if before == "[" and behind == "]" else Star(self.span(first))
        return self.expression()

    # --- parameters -----------------------------------------------------------------------------------------

    def param_type(self) -> ParamType:
        """`tensor | '[' size ']' ('x' | '×') element | 'Array' '<' size ',' element '>' | tied | instance`."""
        if self.at_tensor():
            return self._tensor_or_array()
        if self.text == "Array" and self.ahead() == "<":
            return self._generic_array()
        if self.text == "tied_to" and self.ahead() == "(":
            return self.tied()
        return self.instance()

    def _tensor_or_array(self) -> TensorType | ArrayType:
        first = self.index
        found = self.tensor()
        if self.text not in TIMES:
            return found
        size = found.dims[0] if len(found.dims) == 1 else None
        if size is None or isinstance(size, Star | Unchanged) or found.dtype or found.optional:
            raise self.problem("a single size in brackets", f"before '{self.text}'")
        self.next()
        return ArrayType(size, self._element(), self.span_from(first))

    def _generic_array(self) -> ArrayType:
        first = self.next()
        self.next()
        size = self.sum()
        self.expect(",", "after the size of an array")
        element = self._element()
        self.expect(">", "after the type of the elements of an array")
        return ArrayType(size, element, self.span_from(first))

    def _element(self) -> TensorType | InstanceType:
        return self.tensor() if self.at_tensor() else self.instance()

    def instance(self) -> InstanceType:
        """`name ('.' name)* ('(' argument,* ')')?`."""
        first = self.index
        module = self.dotted("a type", "here")
        arguments = self.arguments() if self.text == "(" else ()
        return InstanceType(module, arguments, self.span_from(first))

    def tied(self) -> TiedType:
        """`'tied_to' '(' path ')'`."""
        first = self.next()
        self.expect("(", "after 'tied_to'")
        path = self.path("the parameter that is shared", "in 'tied_to'")
        self.expect(")", "after the path")
        return TiedType(path, self.span_from(first))

    # --- paths ----------------------------------------------------------------------------------------------

    def path(self, wanted: str, where: str) -> Path:
        """`part ('.' part)*`."""
        first = self.index
        parts = [self._path_part(wanted, where)]
        while self.accept("."):
            parts.append(self._path_part("a name", "after '.'"))
        return Path(tuple(parts), self.span_from(first))

    def _path_part(self, wanted: str, where: str) -> PathPart:
        """`name ('[' ('{' name '}' | integer) ']')*`."""
        name = self.name(wanted, where)
        indices: list[str | int] = []
        while self.accept("["):
            if self.accept("{"):
                indices.append(self.name("the name of a placeholder", "after '{'"))
                self.expect("}", "after a placeholder")
            elif self.kind == INT:
                indices.append(self.integer().value)
            else:
                raise self.problem("a placeholder such as {i}, or an index", "after '['")
            self.expect("]", "after an index")
        return PathPart(name, tuple(indices))

    # --- config parameters ----------------------------------------------------------------------------------

    def config_type(self) -> ConfigType:
        """`(item | '[' item ']') '?'?`, where an item is a name or `'enum' '(' name,+ ')'`."""
        first = self.index
        listed = self.accept("[")
        name = self.name("a type such as int or [int]", "after ':'")
        choices: tuple[str, ...] = ()
        if name == "enum":
            self.expect("(", "after 'enum'")
            choices = tuple(self.separated(lambda: self.name("the name of a choice", "in an enum")))
            self.expect(")", "after the choices of an enum")
        if listed:
            self.expect("]", "after the type of the items of a list")
        optional = self.accept("?")
        return ConfigType(name, choices, listed, optional, self.span_from(first))

    def at_named(self) -> bool:
        """Whether `name :` is ahead."""
        return self.kind == NAME and self.ahead() == ":"


T = TypeVar("T")


class Blocks(Types):
    """Reads the lines of a block one by one; what is wrong with one never keeps the others from being read."""

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source, limits)
        self._block_column = 0
        self.lost: set[str] = set()
        """Names that stand in lines that could not be read."""

    def end_line(self, where: str) -> None:
        """The end of a line."""
        if self.kind != NEWLINE:
            raise self.problem("the end of the line", where)
        self.next()

    def lines(self, parse: Callable[[], T | None]) -> tuple[list[T], tuple[str, ...]]:
        """The lines of the block whose head ends here, and the comments at its end; a block may have no lines.

        `parse` reads one line with its end, and the block below it.
        """
        self.end_line("at the head of a block")
        if self.kind != INDENT:
            return [], self.blocks.within(self._block_column + 1, self._next_start())
        column = self._column()
        self.next()
        found = self.members(parse, column)
        last = self.blocks.within(column, self._next_start())
        if self.kind == DEDENT:
            self.next()
        return found, last

    def members(self, parse: Callable[[], T | None], column: int) -> list[T]:
        """What the lines up to the end of a block hold; one that is indented too far is read like the others.

        A line that cannot be read is passed over, with the block below it.
        """
        found: list[T] = []
        extra, depth, around = 0, self.depth_left, self._block_column
        self._block_column = column
        while self.kind != END and (extra or self.kind != DEDENT):
            if self.kind in (INDENT, DEDENT):
                extra += self._change(column)
                continue
            read: Callable[[], T | None] = self._skip_doc if self.kind == DOC else parse
            try:
                item = read()
            except SyntaxProblem:
                self.depth_left = depth
                self.pass_line()
                continue
            if item is not None:
                found.append(item)
        self._block_column = around
        return found

    def _change(self, column: int) -> int:
        """Pass over a change of indentation inside a block; its beginning is reported."""
        if self.kind == DEDENT:
            self.next()
            return -1
        self._report_indent(column)
        self.next()
        return 1

    def body(self, parse: Callable[[], T | None], where: str) -> tuple[tuple[T, ...], tuple[str, ...]]:
        """What stands behind a colon: a block below it, or one line of it on the same line."""
        self.descend(where)
        last: tuple[str, ...] = ()
        if self.kind != NEWLINE:
            item = parse()
            found = [] if item is None else [item]
        else:
            found, last = self.lines(parse)
        self.depth_left += 1
        return tuple(found), last

    def _skip_doc(self) -> None:
        """A docstring, where it documents nothing or has been read already."""
        self.next()
        self.end_line("after a docstring")

    def pass_line(self) -> None:
        """Go to the end of a broken line, and over the block below it."""
        self.pass_words()
        if self.kind == NEWLINE:
            self.next()
        self.pass_block()

    def pass_words(self) -> None:
        """Go to the end of a broken line; the names on it are noted."""
        start = self.index
        while start and self.kinds[start - 1] not in LAYOUT:
            start -= 1
        self.skip_to(lambda: self.kind == NEWLINE)
        self._lose(start)

    def _lose(self, start: int) -> None:
        """Note the names that stand between a token and this place, in a text that could not be read."""
        kinds, texts = self.kinds, self.texts
        self.lost.update(texts[number] for number in range(start, self.index) if kinds[number] == NAME)

    def pass_block(self) -> None:
        """Go over the block that begins here, if one does."""
        opened, start = 0, self.index
        while self.kind == INDENT or (opened and self.kind != END):
            opened += (self.kind == INDENT) - (self.kind == DEDENT)
            self.next()
            if not opened:
                break
        self._lose(start)

    def _column(self) -> int:
        """How far the token ahead is indented."""
        start = self.starts[self.index]
        return start - self.source.text.rfind("\n", 0, start) - 1

    def _next_start(self) -> int:
        """Where the next token with a text begins."""
        index = self.index
        while self.kinds[index] == DEDENT:
            index += 1
        return self.starts[index]

    def _report_indent(self, column: int) -> None:
        start, width = self.starts[self.index], self._column()
        finding = syntax.INDENTATION.at(
            Span(self.source, start - width, start),
            found=width,
            wanted=f"the block it stands in by {column}",
            repair=f"indent it by {column}",
        )
        self.report(finding)

    # --- sections -------------------------------------------------------------------------------------------

    def section_head(self) -> int:
        """`name ':'` of a section that has no notes of its own."""
        first = self.next()
        self.expect(":", f"after '{self.texts[first]}'")
        self.carry(first)
        return first

    def section(self, parse: Callable[[], T | None]) -> tuple[T, ...]:
        """`name ':'` with the lines below it; the comments at its end go to the node that follows."""
        self.section_head()
        found, last = self.body(parse, "of sections")
        self.carry_over(last)
        return found

    def twice(self, first: int, where: str) -> None:
        """Report a section that was there before."""
        self.report(syntax.TWICE.at(self.span(first), section=self.texts[first], where=where))
