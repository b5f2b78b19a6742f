"""Expressions, arguments, annotations, types, paths and config parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lamella.base.cursor import SyntaxProblem
from lamella.base.source import Span
from lamella.lang.module.nodes import (
    Annotation,
    Argument,
    ArrayType,
    Bool,
    Call,
    Chain,
    ConfigParam,
    ConfigType,
    Dict,
    DictEntry,
    Dim,
    Expr,
    Index,
    InstanceType,
    List,
    Member,
    Name,
    Null,
    ParamType,
    Path,
    PathPart,
    Rest,
    Select,
    Set,
    Slice,
    Star,
    Subscript,
    TensorType,
    TiedType,
    Unary,
    Unchanged,
)
from lamella.lang.module.parse.layout import NAME, NEWLINE
from lamella.lang.module.parse.tokens import DOC, FLOAT, INT, OPEN, OPEN_DOC, STRING, ModuleTokens
from lamella.lang.module.rules import syntax
from lamella.lang.module.words import DTYPES, OPERATOR_WORDS

LOGIC = {"or": 1, "||": 1, "and": 2, "&&": 2}
COMPARISONS = {"==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "in": 3, "not": 3}
ARITHMETIC = {"+": 4, "-": 4, "*": 5, "/": 5, "//": 5, "%": 5}
TERMS = COMPARISONS | ARITHMETIC
OPERATORS = LOGIC | TERMS
SIGNS = frozenset(("-", "!"))
BRACKETS = {"(": ")", "[": "]", "{": "}"}
POSTFIX = frozenset((".", "[", "("))
TIMES = frozenset(("x", "×"))
TENSOR = "Tensor"
NO_TEXT = frozenset((NEWLINE, DOC, OPEN, OPEN_DOC))
_Parse: TypeAlias = Callable[[], Expr]


class ModuleCursor(ModuleTokens):
    """Reads what the rules of the grammar are made of: expressions, annotations, types, paths and config parameters.

    A level of nesting takes at most six calls, so that `DEEPEST` levels fit into Python's own stack.
    """

    def expression(self) -> Expr:
        """`expression := condition ('if' condition 'else' expression)?`."""
        value = self._first_operand()
        if self.text in OPERATORS:
            value = self.chain(value, OPERATORS, self._operand, self._chained)
        return self._choice(value) if self.text == "if" else value

    def condition(self) -> Expr:
        """An expression without a choice at its top: `or` and `and` of comparisons of sums."""
        return self.chain(self._first_operand(), OPERATORS, self._operand, self._chained)

    def sum(self) -> Expr:
        """An expression without comparisons, as it stands before `>`."""
        return self.chain(self._unary(), ARITHMETIC, self._unary, self._chained)

    def _choice(self, value: Expr) -> Select:
        self.descend("of an expression")
        self.next()
        condition = self.condition()
        self.expect("else", "after the condition of a choice")
        otherwise = self.expression()
        self.depth_left += 1
        return Select(value, condition, otherwise, value.span.to(otherwise.span))

    def _chained(self, first: Expr, rest: list[tuple[str, Expr]]) -> Expr:
        """The node of a chain; `not` is the first word of `not in`."""
        signs = tuple(("not in" if sign == "not" else sign, operand) for sign, operand in rest)
        return Chain(first, signs, first.span.to(rest[-1][1].span))

    # --- operands -------------------------------------------------------------------------------------------

    def _first_operand(self) -> Expr:
        """An operand at the beginning of an expression, where `not` may stand."""
        if self.text == "not":
            return self._signed(("not",), self._comparison)
        return self._signed(SIGNS, self.postfix) if self.text in SIGNS else self.postfix()

    def _operand(self) -> Expr:
        """The operand behind an operator; `not` may stand behind `and` and `or`, and before `in` is part of it."""
        before = self.texts[self.index - 1]
        if before in LOGIC:
            return self._first_operand()
        if before == "not":
            self.expect("in", "after 'not'")
        return self._signed(SIGNS, self.postfix) if self.text in SIGNS else self.postfix()

    def _unary(self) -> Expr:
        """`('-' | '!')* power`."""
        return self._signed(SIGNS, self.postfix)

    def _comparison(self) -> Expr:
        """`sum (('==' | '<' | … | 'in' | 'not' 'in') sum)*`."""
        return self.chain(self._unary(), TERMS, self._operand, self._chained)

    def _signed(self, signs: tuple[str, ...] | frozenset[str], operand: _Parse) -> Expr:
        """An operand behind as many signs as there are."""
        taken = []
        while self.text in signs:
            self.descend("of an expression")
            taken.append(self.next())
        value = operand()
        for sign in reversed(taken):
            value = Unary(self.texts[sign], value, Span(self.source, self.starts[sign], value.span.end))
        self.depth_left += len(taken)
        return value

    def _power(self, base: Expr) -> Chain:
        """`postfix '**' unary`."""
        self.descend("of an expression")
        self.next()
        exponent = self._unary()
        self.depth_left += 1
        return Chain(base, (("**", exponent),), base.span.to(exponent.span))

    # --- primaries ------------------------------------------------------------------------------------------

    def postfix(self) -> Expr:
        """`primary ('.' name | '[' subscript,+ ']' | '(' argument,* ')')* ('**' unary)?`."""
        first, depth = self.index, self.depth_left
        value = self._bracketed() if self.text in BRACKETS else self._atom()
        # The nodes nest as deep as the chain is long, so each link counts as a level.
        while self.text in POSTFIX:
            self.descend("of an expression")
            if self.accept("."):
                field = self.name("a name", "after '.'")
                value = Member(value, field, self.span_from(first))
            elif self.text == "(":
                arguments = self.arguments()
                value = Call(value, arguments, self.span_from(first))
            else:
                items = self._subscripts()
                value = Index(value, items, self.span_from(first))
        self.depth_left = depth
        return self._power(value) if self.text == "**" else value

    def _atom(self) -> Expr:
        """A literal or a name."""
        kind = self.kind
        if kind == NAME:
            return self._named()
        if kind == INT:
            return self.integer()
        if kind == FLOAT:
            return self.real()
        if kind == STRING:
            return self.string("a string", "here")
        raise self.problem("a value", "here")

    def _named(self) -> Expr:
        text = self.text
        if text in OPERATOR_WORDS:
            raise self.problem("a value", "here")
        span = self.span(self.index)
        if text == "true" or text == "false":
            self.next()
            return Bool(text == "true", span)
        if text == "None":
            self.next()
            return Null(span)
        return Name(self.name("a name", "here"), span)

    def _bracketed(self) -> Expr:
        """`'[' item,* ']'`, a dict, a set, or `'(' expression ')'`; several in parentheses, or none, are a list too."""
        if self.text == "{":
            return self._braced()
        first = self.next()
        end = BRACKETS[self.texts[first]]
        self.descend("of an expression")
        items: list[Expr | Rest] = []
        while self.text != end:
            items.append(self._item(items) if end == "]" else self.expression())
            if not self.accept(","):
                break
        # `(a)` is a group, `(a,)` and `()` are lists.
        is_group = end == ")" and len(items) == 1 and self.texts[self.index - 1] != ","
        self.depth_left += 1
        self.expect(end, "after an expression" if end == ")" else "after a list")
        group = items[0] if is_group else None
        return (
            List(tuple(items), self.span_from(first)) if group is None or isinstance(group, Rest) else group
        )

    def _item(self, before: list[Expr | Rest]) -> Expr | Rest:
        """An item of a list; `...` stands between two others."""
        if self.text != "...":
            return self.expression()
        if not before or isinstance(before[-1], Rest):
            raise self.problem(
                "a value", "here", "'...' stands between the first and the last number of a row"
            )
        rest = Rest(self.span(self.next()))
        if self.text != "," or self.ahead() == "]":
            raise self.problem("',' and a value", "after '...'")
        return rest

    def _braced(self) -> Dict | Set:
        """`'{' (name | string) ':' expression,* '}'`, or `'{' expression,+ '}'`; empty braces are a dict."""
        first = self.next()
        self.descend("of an expression")
        entries: list[DictEntry] = []
        items: list[Expr] = []
        is_dict = self.text == "}" or (self.kind in (NAME, STRING) and self.ahead() == ":")
        while self.text != "}":
            if is_dict:
                entries.append(self._entry())
            else:
                items.append(self.expression())
            if not self.accept(","):
                break
        self.depth_left += 1
        self.expect("}", "after a dict" if is_dict else "after a set")
        span = self.span_from(first)
        return Dict(tuple(entries), span) if is_dict else Set(tuple(items), span)

    def _entry(self) -> DictEntry:
        """`(name | string) ':' expression`."""
        first = self.index
        if self.kind == STRING:
            key = self.string("a key", "in a dict").value
        else:
            key = self.name("a key", "in a dict")
        self.expect(":", "after a key")
        return DictEntry(key, self.expression(), self.span_from(first))

    def _subscripts(self) -> tuple[Subscript, ...]:
        """`'[' subscript (',' subscript)* ']'`."""
        self.next()
        items = [self._subscript()]
        while self.accept(","):
            items.append(self._subscript())
        self.expect("]", "after an index")
        return tuple(items)

    def _subscript(self) -> Subscript:
        """`'...' | expression | expression? ':' expression?`."""
        first = self.index
        if self.accept("..."):
            return Rest(self.span(first))
        begin = None if self.text == ":" else self.expression()
        if not self.accept(":"):
            return begin if begin is not None else self.expression()
        end = None if self.text in (",", "]") else self.expression()
        return Slice(begin, end, self.span_from(first))

    # --- arguments and annotations --------------------------------------------------------------------------

    def arguments(self) -> tuple[Argument, ...]:
        """`'(' (argument (',' argument)* ','?)? ')'`."""
        self.next()
        found: list[Argument] = []
        while self.text != ")":
            if self.text == "...":
                self.unfinished("an argument")
            else:
                found.append(self.argument())
            if not self.accept(","):
                break
        self.expect(")", "after the arguments")
        return tuple(found)

    def unfinished(self, what: str) -> None:
        """Report and pass over `...` where it stands for what is not written."""
        span, where = self.span(self.next()), f"in the place of {what}"
        self.report(syntax.MISPLACED.at(span, what="'...'", where=where, repair=f"write {what}"))

    def argument(self) -> Argument:
        """`(name '=')? expression`."""
        first = self.index
        name = None
        if self.kind == NAME and self.ahead() == "=":
            name = self.name("a name", "of an argument")
            self.next()
        value = self.expression()
        return Argument(name, value, self.span_from(first))

    def annotations(self) -> tuple[Annotation, ...]:
        """`annotation*`."""
        if self.text != "@":
            return ()
        found = []
        while self.text == "@":
            found.append(self.annotation())
        return tuple(found)

    def annotation(self) -> Annotation:
        """`'@' name ('(' argument,* ')')?`."""
        first = self.next()
        name = self.name("the name of an annotation", "after '@'")
        arguments = self.arguments() if self.text == "(" else ()
        return Annotation(name, arguments, self.span_from(first))

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

    def free_value(self) -> Expr | str:
        """The rest of a line: an expression if it is one, its text if it is not."""
        first, depth, findings = self.index, self.depth_left, len(self.findings)
        try:
            value: Expr | str = self.expression()
        except SyntaxProblem:
            value = ""
        if self.kind == NEWLINE and len(self.findings) == findings:
            return value
        self.move_to(first)
        self.depth_left = depth
        # A line that is no expression is no mistake here: its findings are taken back, and it is kept as text.
        del self.findings[findings:]
        return self._text()

    def _text(self) -> str:
        """The text of the rest of a line; one that takes several lines is put on one."""
        first = self.index
        self.skip_to(lambda: self.kind in NO_TEXT)
        if self.index == first or self.kind != NEWLINE:
            raise self.problem("a value", "in a field")
        text = self.source.text[self.starts[first] : self.end_of(self.index - 1)]
        return " ".join(self.texts[first : self.index]) if "\n" in text else text

    def annotation_line(self) -> tuple[Annotation, ...]:
        """Annotations of a whole section or declaration, on a line of their own."""
        first = self.index
        found = self.annotations()
        self.carry(first)
        self.end_line("after an annotation")
        return found

    # --- config parameters ----------------------------------------------------------------------------------

    def config_params(self) -> tuple[ConfigParam, ...]:
        """`'(' config_param,* ')'`."""
        self.next()
        found: list[ConfigParam] = []
        while self.text != ")":
            if not self._unwritten():
                found.append(self.config_param())
            elif not self.accept(","):
                break
            if self.texts[self.index - 1] != ",":
                break
        self.expect(")", "after the parameters")
        return tuple(found)

    def _unwritten(self) -> bool:
        """Pass over `...` or `name...` in a list of parameters, with a finding."""
        is_spread = self.kind == NAME and self.ahead() == "..."
        if not is_spread and self.text != "...":
            return False
        if is_spread:
            self.next()
        self.unfinished("a parameter")
        self.has_stub = True
        return True

    def config_param(self) -> ConfigParam:
        """`name (':' type)? ('=' expression)?`, with the comma behind it."""
        first = self.index
        name = self.name("the name of a parameter", "here")
        type_ = self.config_type() if self.accept(":") else None
        default = self.expression() if self.accept("=") else None
        span = self.span_from(first)
        self.accept(",")
        return ConfigParam(name, type_, default, self.settle(first)[1], span)

    def config_line(self) -> ConfigParam | None:
        """A config parameter on a line of its own, in `params:` of a primitive."""
        if self.skip_stub():
            return None
        found = self.config_param()
        self.end_line("after a parameter")
        return found
