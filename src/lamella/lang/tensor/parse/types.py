"""Types and attributes."""

from __future__ import annotations

from lamella.lang.tensor.nodes import (
    Attribute,
    Coopmatrix,
    Dictionary,
    Entry,
    Group,
    Memref,
    Scalar,
    Size,
    Text,
    Type,
    make_memref,
)
from lamella.lang.tensor.nodes.attributes import KEYS
from lamella.lang.tensor.nodes.types import INTEGERS, USES
from lamella.lang.tensor.parse.lexis import INT, STRING, Lexis
from lamella.lang.tensor.words import SCALARS

ELEMENTS = frozenset(SCALARS)
INTEGER_TYPES = frozenset(INTEGERS)


class Types(Lexis):
    """The rules of the grammar from `type` to `attribute`."""

    open_braces = 0
    """Braces of dictionaries that are open; what leaves a statement must know of them."""

    def type(self, where: str) -> Type:
        """`bool`, a scalar type, a memref, a group or a cooperative matrix."""
        text = self.text
        if text in ELEMENTS or text == "bool":
            self.next()
            return Scalar(text)
        if text == "memref":
            return self.memref(where)[0]
        if text == "group":
            return self.group()
        if text == "coopmatrix":
            return self.coopmatrix(where)
        raise self.problem("a type", where)

    def result_type(self, where: str) -> Type:
        """`':' type`."""
        self.expect(":", where)
        return self.type("after ':'")

    def element(self, where: str) -> str:
        """A scalar type as the element of a memref or a cooperative matrix."""
        if self.text not in ELEMENTS:
            raise self.problem("a scalar type", where)
        return self.texts[self.next()]

    def integer_type(self) -> Scalar:
        """The type of a loop variable."""
        if self.text not in INTEGER_TYPES:
            raise self.problem("an integer type", "after ':'")
        return Scalar(self.texts[self.next()])

    def memref(self, where: str) -> tuple[Memref, bool]:
        """A memref type, and whether it names its address space."""
        first = self.expect("memref", where)
        self.expect("<", "after 'memref'")
        element = self.element("as the element of a memref")
        shape: list[Size] = []
        while self.accept("x"):
            shape.append(self.size("after 'x'"))
        if len(shape) > self.limits.max_rank:
            raise self.exceed(first, "the order of the memref", self.limits.max_rank, "max_rank")
        stride = None
        if self.text == "," and self.ahead() == "strided":
            self.next()
            stride = self.strides()
        space = ""
        if self.accept(","):
            if self.text not in ("global", "local"):
                wanted = "'global' or 'local'" if stride is not None else "'strided', 'global' or 'local'"
                raise self.problem(wanted, "in a memref type")
            space = self.texts[self.next()]
        self.expect(">", "at the end of a memref type")
        return make_memref(element, tuple(shape), stride, space == "local"), bool(space)

    def strides(self) -> tuple[Size, ...]:
        """`strided<1,?>`."""
        self.next()
        self.expect("<", "after 'strided'")
        found = [] if self.text == ">" else self.separated(lambda: self.size("in a stride"))
        self.expect(">", "at the end of the strides")
        return tuple(found)

    def size(self, where: str) -> Size:
        """A number or `?`."""
        return None if self.accept("?") else self.integer("a size or '?'", where)

    def group(self) -> Group:
        """`group<memref x size, offset: …>`."""
        self.next()
        self.expect("<", "after 'group'")
        memref, _ = self.memref("in a group type")
        self.expect("x", "after the memref of a group")
        size = self.size("as the size of a group")
        offset: Size = 0
        if self.accept(","):
            self.expect("offset", "in a group type")
            self.expect(":", "after 'offset'")
            offset = self.size("as the offset of a group")
        self.expect(">", "at the end of a group type")
        return Group(memref, size, offset)

    def coopmatrix(self, where: str) -> Coopmatrix:
        """`coopmatrix<element x rows x columns, use>`."""
        self.expect("coopmatrix", where)
        self.expect("<", "after 'coopmatrix'")
        element = self.element("as the component of a cooperative matrix")
        self.expect("x", "before the rows")
        rows = self.integer("the number of rows", "in a cooperative matrix type")
        self.expect("x", "before the columns")
        columns = self.integer("the number of columns", "in a cooperative matrix type")
        self.expect(",", "before the use of a cooperative matrix")
        if self.text not in USES:
            raise self.problem("'matrix_a', 'matrix_b' or 'matrix_acc'", "in a cooperative matrix type")
        use = self.texts[self.next()]
        self.expect(">", "at the end of a cooperative matrix type")
        return Coopmatrix(element, rows, columns, use)

    # --- attributes -----------------------------------------------------------------------------------------

    def dictionary(self, where: str) -> Dictionary:
        """`{key = value, …}`; the order of the text means nothing, so the keys are sorted."""
        first = self.expect("{", where)
        self.open_braces += 1
        self.descend("of attributes")
        found = [] if self.text == "}" else self.separated(self.entry)
        self.expect("}", "at the end of the attributes")
        self.open_braces -= 1
        self.depth_left += 1
        return Dictionary(tuple(sorted(found, key=lambda item: item.key)), self.span_from(first))

    def entry(self) -> Entry:
        """`key = value`."""
        first = self.index
        if self.text not in KEYS and self.kind != STRING:
            raise self.problem("the name of an attribute", "here")
        key = self.string() if self.kind == STRING else self.texts[self.next()]
        self.expect("=", "after the name of an attribute")
        return Entry(key, self.attribute(), self.span_from(first))

    def attribute(self) -> Attribute:
        """The value of an attribute."""
        text = self.text
        if text == "[":
            return self.array()
        if text == "{":
            return self.dictionary("here")
        if self.kind == INT:
            return self.integer("an integer", "here")
        if self.kind == STRING:
            return Text(self.string())
        if text in ("true", "false"):
            self.next()
            return text == "true"
        raise self.problem("a boolean, an integer, a string, '[' or '{'", "as the value of an attribute")

    def array(self) -> tuple[Attribute, ...]:
        """`[value, …]`."""
        self.next()
        self.descend("of attributes")
        found = [] if self.text == "]" else self.separated(self.attribute)
        self.expect("]", "at the end of an array")
        self.depth_left += 1
        return tuple(found)
