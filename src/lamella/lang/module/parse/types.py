"""Types: of config parameters, of tensors, of parameters; and the paths of parameters."""

from __future__ import annotations

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
from lamella.lang.module.parse.layout import NAME
from lamella.lang.module.parse.lexis import INT
from lamella.lang.module.rules import syntax
from lamella.lang.module.words import DTYPES

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
