"""Weights, bytes, and the programs that are not code: the rules of the grammar from `operands` to `data`."""

from __future__ import annotations

import binascii
from collections.abc import Collection, Mapping
from types import MappingProxyType

from lamella.lang.nac.assembly import words
from lamella.lang.nac.assembly.nodes import (
    Blob,
    Bytes,
    Encoding,
    Scaled,
    Slice,
    Step,
    StepOperand,
    Weights,
    Written,
    Zeros,
)
from lamella.lang.nac.assembly.parse.code import CodeParser
from lamella.lang.nac.assembly.parse.lexis import STRING
from lamella.lang.nac.rules import assembly as rules

_ENCODINGS: Mapping[str, Encoding] = MappingProxyType({"hex": "hex", "base64": "base64", "text": "text"})
DATA = (words.ZEROS, *_ENCODINGS, words.FILE)
_REPAIRS = MappingProxyType(
    {"hex": "two digits stand for each byte", "base64": "four characters stand for three bytes", "text": ""}
)


class DataParser(CodeParser):
    """Reads the rows of sections that hold data, and instructions of a manifest or a plan."""

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
