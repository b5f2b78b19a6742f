"""Weights, bytes, and the programs that are not code: the rules of the grammar from `operands` to `data`."""

from __future__ import annotations

import binascii
from collections.abc import Collection, Mapping
from types import MappingProxyType

from lamella.lang.nac.assembly import words
from lamella.lang.nac.assembly.nodes import (
    Argument,
    Blob,
    Bytes,
    Call,
    Encoding,
    Id,
    Label,
    Line,
    Order,
    Raw,
    Scaled,
    Slice,
    Step,
    StepOperand,
    System,
    Value,
    Weights,
    Written,
    Zeros,
)
from lamella.lang.nac.assembly.parse.lexis import INT, LABEL, NAMES, STRING, WORD, Lexis
from lamella.lang.nac.assembly.words import ACTIONS, RAW, SYSTEM
from lamella.lang.nac.rules import assembly as rules

# --- instructions and memory commands: the rules of the grammar from `instruction` to `target` --------------


NUMBERED = ("state", "saved", "target")


_ENCODINGS: Mapping[str, Encoding] = MappingProxyType({"hex": "hex", "base64": "base64", "text": "text"})
DATA = (words.ZEROS, *_ENCODINGS, words.FILE)
_REPAIRS = MappingProxyType(
    {"hex": "two digits stand for each byte", "base64": "four characters stand for three bytes", "text": ""}
)


class DataParser(Lexis):
    """Reads the rows of sections that hold data, and instructions of a manifest or a plan."""

    def line(self) -> Line:
        """`LABEL '=' body command*`."""
        first = self.index
        label = self.label("here")
        self.expect("=", "after a label")
        body = self.body()
        orders = self.orders()
        return Line(label, body, orders, self.span_from(first))

    def body(self) -> System | Call | Raw:
        """What an instruction does."""
        if self.kind == WORD and self.text in SYSTEM:
            return self.system(self.texts[self.next()])
        if self.kind == WORD and self.text == RAW:
            self.next()
            return self.raw()
        return self.call()

    # --- system operations ----------------------------------------------------------------------------------

    def system(self, word: str) -> System:
        """An instruction without signature, behind its word."""
        self.expect("(", f"after '{word}'")
        found = self._inside(word)
        self.expect(")", f"after the operands of '{word}'")
        return found

    def _inside(self, word: str) -> System:
        if word == "input":
            return System(word)
        if word == "parameter":
            return System(word, (self.parameter(),))
        if word in NUMBERED:
            return System(word, (self.integer("an id", f"in '{word}(…)'"),))
        if word == "constant":
            return System(word, (self.constant("in 'constant(…)'"),))
        if word == "update":
            return System(word, (self.parameter(),), self._more_labels())
        if word == "branch":
            return self._branch()
        if word == "converge":
            return self._converge()
        return System(word, (), self._labels(word))

    def parameter(self) -> int | str:
        """A parameter by its id or by its name."""
        if self.kind == INT:
            return self.integer("an id", "here")
        return self.name("the id or the name of a parameter", "in '(…)'")

    def constant(self, where: str) -> Value | Id:
        """A constant by its value or by its id."""
        return self.id(where) if self.text == "#" else self.value(where)

    def _labels(self, word: str) -> tuple[Label, ...]:
        if self.text == ")":
            return ()
        return tuple(self.separated(lambda: self.label(f"in '{word}(…)'")))

    def _more_labels(self) -> tuple[Label, ...]:
        found: list[Label] = []
        while self.accept(","):
            found.append(self.label("in 'update(…)'"))
        return tuple(found)

    def _branch(self) -> System:
        label = self.label("in 'branch(…)'")
        self.expect(",", "in 'branch(…)'")
        yes = self.integer("the length of the first branch", "in 'branch(…)'")
        self.expect(",", "in 'branch(…)'")
        return System("branch", (yes, self.integer("the length of the second", "in 'branch(…)'")), (label,))

    def _converge(self) -> System:
        label = self.label("in 'converge(…)'")
        self.expect(",", "in 'converge(…)'")
        found = [self.integer("the threshold in percent", "in 'converge(…)'")]
        while self.accept(","):
            found.append(self.integer("the length of a block", "in 'converge(…)'"))
        return System("converge", tuple(found), (label,))

    # --- regular operations ---------------------------------------------------------------------------------

    def raw(self) -> Raw:
        """`'(' INT ',' INT ',' ints ',' ints ')'`."""
        self.expect("(", "after 'raw'")
        operation = self.integer("field A", "in 'raw(…)'")
        self.expect(",", "after field A")
        variant = self.integer("field B", "in 'raw(…)'")
        self.expect(",", "after field B")
        constants = self.integers("before field C")
        self.expect(",", "after field C")
        offsets = self.integers("before field D")
        self.expect(")", "after field D")
        return Raw(operation, variant, constants, offsets)

    def call(self) -> Call:
        """`(operation | id) (':' name)? '(' argument,* ')'`."""
        operation = self._operation()
        signature = self.name("a signature", "after ':'") if self.accept(":") else None
        self.expect("(", "after an operation")
        arguments = [] if self.text == ")" else self.separated(self.argument)
        self.expect(")", "after arguments")
        return Call(operation, signature, tuple(arguments))

    def _operation(self) -> str | Id:
        if self.text == "#":
            return self.id("here")
        if self.kind not in NAMES:
            raise self.problem("an operation", "after '='")
        return self.name("an operation", "after '='")

    def argument(self) -> Argument:
        """`LABEL | value | id`."""
        return self.label("here") if self.kind == LABEL else self.constant("among arguments")

    # --- memory commands ------------------------------------------------------------------------------------

    def orders(self) -> tuple[Order, ...]:
        """`command*`."""
        found: list[Order] = []
        while self.text == "@":
            found.append(self.order())
        return tuple(found)

    def order(self) -> Order:
        """`'@' (ACTION | INT) '(' target (',' target)* ')'`."""
        first = self.next()
        action = self._action()
        self.expect("(", "after an action")
        targets = self.separated(self.target)
        self.expect(")", "after the targets of an action")
        return Order(action, tuple(targets), self.span_from(first))

    def _action(self) -> int:
        if self.kind == INT:
            return self.integer("an action", "after '@'")
        return ACTIONS[self.choose("action", ACTIONS, "after '@'")]

    def target(self) -> Label | int:
        """An instruction by its label or by its index."""
        if self.kind == LABEL:
            return self.label("here")
        return self.integer("a label or an index", "in '@…(…)'")

    def key(self, what: str) -> int:
        """`INT '='`, which begins a row."""
        number = self.size(what, "at the beginning of a row")
        self.expect("=", f"after {what}")
        return number

    # --- data -----------------------------------------------------------------------------------------------

    def tensor(self) -> Weights:
        """`INT '=' type shape quantization? data`."""
        first = self.index
        return self._weights(first, self.key("an id"), quantized=True)

    def array(self) -> Weights:
        """`name '=' type shape data`."""
        first = self.index
        return self._weights(first, self._name_before("an array"), quantized=False)

    def _name_before(self, what: str) -> str:
        name = self.name(f"the name of {what}", "at the beginning of a row")
        self.expect("=", "after a name")
        return name

    def _weights(self, first: int, key: int | str, quantized: bool) -> Weights:
        dtype = self.id("here").number if self.text == "#" else self._dtype()
        shape = self._shape("before a shape")
        scaled = self.scaled() if quantized and self.text in words.METHODS and self.text != "none" else None
        return Weights(key, dtype, shape, scaled, self.data(), self.span_from(first))

    def _shape(self, where: str) -> tuple[int, ...]:
        return self.listed(lambda: self.size("a dimension", "in a shape"), where)

    def _dtype(self) -> int:
        return words.DTYPES.index(self.choose("element type", words.DTYPES, "after '='"))

    def scaled(self) -> Scaled:
        """`fp16`, or a method with its numbers in parentheses."""
        method = self.texts[self.next()]
        if method == "fp16":
            return Scaled(method)
        self.expect("(", f"after '{method}'")
        found = self._scaled(method)
        self.expect(")", f"after the scales of '{method}'")
        return found

    def _scaled(self, method: str) -> Scaled:
        if method == "int8_tensor":
            return Scaled(method, (self.single("in 'int8_tensor(…)'"),))
        size = self.integer("an axis or a block size", f"in '{method}(…)'")
        self.expect(",", f"in '{method}(…)'")
        shape: tuple[int, ...] = ()
        if method == "block_fp8":
            shape = self._shape("before the original shape")
            self.expect(",", "after the original shape")
        return Scaled(method, self._scales(), size, shape)

    def _scales(self) -> tuple[float, ...] | Bytes:
        return self.singles("before the scales") if self.text == "[" else self.data()

    def resource(self) -> Blob:
        """`name '=' data`."""
        first = self.index
        name = self._name_before("a resource")
        return Blob(name, self.data(), self.span_from(first))

    def nameless(self) -> Blob:
        """`data` alone."""
        first = self.index
        return Blob(None, self.data(), self.span_from(first))

    def data(self) -> Bytes:
        """Bytes in one of their forms."""
        first = self.index
        word = self.choose("form of data", DATA, "here")
        self.expect("(", f"after '{word}'")
        found = self._data(word, first)
        self.expect(")", f"after what '{word}' takes")
        return found

    def _data(self, word: str, first: int) -> Bytes:
        if word == words.ZEROS:
            size = self.size("a number of bytes", "in 'zeros(…)'")
            return Zeros(size, self.span_from(first))
        if word == words.FILE:
            return self._slice(first)
        pieces = self.separated(lambda: self.string("a string", f"in '{word}(…)'"))
        span = self.span_from(first)
        try:
            return Written(_ENCODINGS[word], _decode(word, "".join(pieces)), span)
        except ValueError:
            raise self.report(rules.BAD_DATA.at(span, encoding=word, repair=_REPAIRS[word])) from None

    def _slice(self, first: int) -> Slice:
        name = self.string("the name of a file", "in 'file(…)'")
        self.expect(",", "after the name of a file")
        offset = self.size("an offset", "in 'file(…)'")
        self.expect(",", "after the offset")
        size = self.size("a number of bytes", "in 'file(…)'")
        return Slice(name, offset, size, self.span_from(first))

    # --- manifest and plan ----------------------------------------------------------------------------------

    def step(self, names: Collection[str]) -> Step:
        """`WORD '(' operand,* ')'`."""
        first = self.index
        name = self.choose("instruction", names, "here")
        self.expect("(", f"after '{name}'")
        operands = [] if self.text == ")" else self.separated(self._operand)
        self.expect(")", f"after the operands of '{name}'")
        return Step(name, tuple(operands), self.span_from(first))

    def _operand(self) -> StepOperand:
        return self.listed(self._atom, "here") if self.text == "[" else self._atom()

    def _atom(self) -> int | str:
        if self.kind == STRING:
            return self.string("a string", "here")
        return self.integer("a number, a string or a list", "among operands")


def _decode(encoding: str, text: str) -> bytes:
    """The bytes of a text; a ValueError where it is not in the encoding."""
    if encoding == words.TEXT:
        return text.encode("utf-8")
    if encoding == words.HEX:
        return bytes.fromhex(text)
    return binascii.a2b_base64(text.encode("ascii"), strict_mode=True) if text else b""
