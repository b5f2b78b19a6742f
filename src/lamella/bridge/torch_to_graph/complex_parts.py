"""Complex numbers of an exported program as two tensors of reals: a graph has no others.

Sums, layouts and copies are those of both parts; products, angles and Fourier transforms are written out. A transform
is a product with its matrix: what networks transform is short, and the product is one that every backend is fast at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import pi, prod
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import ElementType
from lamella.base.errors import Unsupported
from lamella.graph.build import Builder
from lamella.graph.nodes import Tensor

if TYPE_CHECKING:
    from lamella.bridge.torch_to_graph.program import FxNode

LONGEST = 8192
"""Elements of the longest transform: its matrices have the square of that."""
LINEAR = frozenset(
    (
        *("view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze", "permute"),
        *("transpose", "t", "expand", "slice", "select", "narrow", "cat", "stack", "split", "chunk"),
        *("split_with_sizes", "unbind", "index", "index_select", "gather", "clone", "contiguous", "alias"),
        *("detach", "sum", "mean", "flip", "roll", "repeat", "constant_pad_nd", "neg"),
        *("reflection_pad1d", "unfold", "as_strided", "copy", "lift_fresh_copy", "diagonal"),
    )
)
"""What is done to a complex tensor by doing it to its parts."""


@dataclass(frozen=True, slots=True)
class ComplexParts:
    """A complex tensor: its real and its imaginary part, of one type and shape."""

    real: Tensor
    imag: Tensor


Given: TypeAlias = "Tensor | ComplexParts"
Argument: TypeAlias = object


class ComplexCalls:
    """The calls of one builder on complex numbers; `table` makes a variable of numbers that are known."""

    def __init__(self, builder: Builder, table: Callable[[str, Array, ElementType], Tensor]) -> None:
        self._builder = builder
        self._table = table

    def call(self, name: str, arguments: Sequence[Argument]) -> Given | tuple[ComplexParts, ...]:
        """What an operation with complex operands gives; Unsupported where it is not known."""
        made = MAKERS.get(name)
        if made is None:
            raise Unsupported("there is nothing like it for complex numbers here")
        return made(self, *arguments)

    def parts(self, value: Argument) -> ComplexParts:
        """A tensor as a complex one."""
        if isinstance(value, ComplexParts):
            return value
        if isinstance(value, Tensor):
            return ComplexParts(value, self._builder.call("aten.zeros_like", value))
        raise Unsupported("it takes something that is no tensor")

    # --- between reals and complex numbers ---------------------------------------------------------------------

    def view_as_complex(self, value: Argument) -> Given:
        """Pairs along the last dimension."""
        tensor = _tensor(value)
        real, imag = (self._builder.call("aten.select", tensor, dim=-1, index=place) for place in (0, 1))
        return ComplexParts(real, imag)

    def view_as_real(self, value: Argument) -> Given:
        """Its parts side by side along a new last dimension."""
        found = self.parts(value)
        parts = [self._builder.call("aten.unsqueeze", item, dim=-1) for item in (found.real, found.imag)]
        return self._builder.call("aten.cat", cast("Tensor", tuple(parts)), dim=-1)

    def complex(self, real: Argument, imag: Argument) -> Given:
        """A complex tensor of its parts."""
        return ComplexParts(_tensor(real), _tensor(imag))

    def polar(self, size: Argument, angle: Argument) -> Given:
        """Of its absolute value and its angle."""
        large, turned = _tensor(size), _tensor(angle)
        parts = (self._binary("mul", large, self._unary(word, turned)) for word in ("cos", "sin"))
        return ComplexParts(*parts)

    def real(self, value: Argument) -> Given:
        """The real part."""
        return self.parts(value).real

    def imag(self, value: Argument) -> Given:
        """The imaginary part."""
        return self.parts(value).imag

    def conjugate(self, value: Argument) -> Given:
        """With the other sign of the imaginary part."""
        found = self.parts(value)
        return ComplexParts(found.real, self._unary("neg", found.imag))

    def size(self, value: Argument) -> Given:
        """The absolute value."""
        found = self.parts(value)
        return self._binary("hypot", found.real, found.imag)

    def angle(self, value: Argument) -> Given:
        """The angle."""
        found = self.parts(value)
        return self._binary("atan2", found.imag, found.real)

    # --- arithmetic --------------------------------------------------------------------------------------------

    def mul(self, left: Argument, right: Argument) -> Given:
        """A product; a factor that is real scales both parts."""
        if isinstance(left, ComplexParts) and isinstance(right, ComplexParts):
            one, two = left, right
            real = self._binary("sub", *self._products((one.real, two.real), (one.imag, two.imag)))
            imag = self._binary("add", *self._products((one.real, two.imag), (one.imag, two.real)))
            return ComplexParts(real, imag)
        pair, factor = (left, right) if isinstance(left, ComplexParts) else (right, left)
        return self._scaled(self.parts(pair), factor, "mul")

    def div(self, left: Argument, right: Argument) -> Given:
        """A quotient."""
        if not isinstance(right, ComplexParts):
            return self._scaled(self.parts(left), right, "div")
        above = self.mul(self.parts(left), self.conjugate(right))
        square = self._binary("add", *self._products((right.real, right.real), (right.imag, right.imag)))
        return self._scaled(self.parts(above), square, "div")

    def add(self, left: Argument, right: Argument, factor: Argument = 1) -> Given:
        """A sum; a number is added to the real part."""
        return self._sum(left, right, factor, "add")

    def sub(self, left: Argument, right: Argument, factor: Argument = 1) -> Given:
        """A difference."""
        return self._sum(left, right, factor, "sub")

    def _sum(self, left: Argument, right: Argument, factor: Argument, word: str) -> ComplexParts:
        one = self.parts(left)
        if isinstance(right, int | float) and isinstance(factor, int | float):
            return ComplexParts(self._builder.call(f"aten.{word}", one.real, float(right * factor)), one.imag)
        two = self._scaled(self.parts(right), factor, "mul") if factor != 1 else self.parts(right)
        return ComplexParts(self._binary(word, one.real, two.real), self._binary(word, one.imag, two.imag))

    def exp(self, value: Argument) -> Given:
        """The exponential."""
        found = self.parts(value)
        return self.polar(self._unary("exp", found.real), found.imag)

    def _products(self, *pairs: tuple[Tensor, Tensor]) -> list[Tensor]:
        return [self._binary("mul", *pair) for pair in pairs]

    def _scaled(self, pair: ComplexParts, factor: Argument, word: str) -> ComplexParts:
        if isinstance(factor, Tensor):
            return ComplexParts(self._binary(word, pair.real, factor), self._binary(word, pair.imag, factor))
        if isinstance(factor, int | float):
            parts = (
                self._builder.call(f"aten.{word}", item, float(factor)) for item in (pair.real, pair.imag)
            )
            return ComplexParts(*parts)
        raise Unsupported("it takes something that is no real number")

    def _unary(self, word: str, tensor: Tensor) -> Tensor:
        return self._builder.call(f"aten.{word}", tensor)

    def _binary(self, word: str, left: Tensor, right: Tensor) -> Tensor:
        return self._builder.call(f"aten.{word}", left, right)

    # --- eigenvalues -------------------------------------------------------------------------------------------

    def eigenvectors(self, matrix: Argument) -> tuple[ComplexParts, ComplexParts]:
        """The eigenvalues of real matrices, and their eigenvectors."""
        found = self._builder.call_all("linalg.eig", _tensor(matrix))
        real, imag, vectors, across = map(_tensor, found)
        return ComplexParts(real, imag), ComplexParts(vectors, across)

    def eigenvalues(self, matrix: Argument) -> Given:
        """The eigenvalues of real matrices."""
        return self.eigenvectors(matrix)[0]

    # --- Fourier transforms ------------------------------------------------------------------------------------

    def transform(
        self, value: Argument, dims: Argument, scaling: Argument, forward: Argument = True
    ) -> Given:
        """The transform of complex numbers along dimensions, or the way back."""
        found, axes = self.parts(value), _axes(dims)
        for axis in axes:
            found = self._along(found, axis, sign=-1 if forward else 1)
        return self._normal(found, axes, scaling)

    def transform_reals(self, value: Argument, dims: Argument, scaling: Argument, half: Argument) -> Given:
        """The transform of reals; `half` keeps of the last dimension what the rest follows from."""
        tensor, axes = _tensor(value), _axes(dims)
        *others, last = axes
        count = self._length(tensor, last)
        found = self._along_reals(tensor, last, count // 2 + 1 if half else count)
        for axis in others:
            found = self._along(found, axis, sign=-1)
        return self._normal(found, axes, scaling, prod(self._length(tensor, axis) for axis in axes))

    def transform_back(self, value: Argument, dims: Argument, scaling: Argument, length: Argument) -> Given:
        """Reals from what `transform_reals` keeps."""
        found, (*others, last) = self.parts(value), _axes(dims)
        if not isinstance(length, int):
            raise Unsupported("the length of a transform is not known")
        for axis in others:
            found = self._along(found, axis, sign=1)
        total = length * prod(self._length(found.real, axis) for axis in others)
        kept = length // 2 + 1
        weights = np.full((kept, 1), 2.0)
        weights[0] = 1.0
        if length % 2 == 0:
            weights[-1] = 1.0
        cosines, sines = _turns(kept, length)
        real = self._apply(found.real, last, weights * cosines, f"fourier.back.cos{length}")
        imag = self._apply(found.imag, last, weights * sines, f"fourier.back.sin{length}")
        return self._normal(ComplexParts(self._binary("sub", real, imag), imag), (), scaling, total).real

    def _along(self, value: ComplexParts, axis: int, sign: int) -> ComplexParts:
        """One dimension of a transform: exp(sign · 2πi · jk / n)."""
        count = self._length(value.real, axis)
        cosines, sines = _turns(count, count)
        first, second = (
            [
                self._apply(part, axis, table, f"fourier.{word}{count}")
                for word, table in (("cos", cosines), ("sin", sines))
            ]
            for part in (value.real, value.imag)
        )
        words = ("sub", "add") if sign > 0 else ("add", "sub")
        real = self._binary(words[0], first[0], second[1])
        return ComplexParts(real, self._binary(words[1], second[0], first[1]))

    def _along_reals(self, tensor: Tensor, axis: int, kept: int) -> ComplexParts:
        count = self._length(tensor, axis)
        cosines, sines = _turns(count, count)
        real = self._apply(tensor, axis, cosines[:, :kept], f"fourier.cos{count}.{kept}")
        imag = self._apply(tensor, axis, -sines[:, :kept], f"fourier.minus.sin{count}.{kept}")
        return ComplexParts(real, imag)

    def _apply(self, tensor: Tensor, axis: int, matrix: Array, name: str) -> Tensor:
        """A product with a matrix along a dimension."""
        table = self._table(name, matrix.astype(numpy_dtype(tensor.element)), tensor.element)
        place = axis % len(tensor.shape)
        last = len(tensor.shape) - 1
        moved = (
            tensor if place == last else self._builder.call("aten.transpose", tensor, dim0=place, dim1=last)
        )
        found = self._binary("matmul", moved, table)
        return found if place == last else self._builder.call("aten.transpose", found, dim0=place, dim1=last)

    def _length(self, tensor: Tensor, axis: int) -> int:
        count = tensor.shape[axis]
        if not isinstance(count, int):
            raise Unsupported("it transforms a dimension whose length is open; export it with a known one")
        if count > LONGEST:
            raise Unsupported(
                f"a transform of {count} elements is a product with their square; {LONGEST} is the most"
            )
        return count

    def _normal(
        self, value: ComplexParts, axes: Sequence[int], scaling: Argument, count: int | None = None
    ) -> ComplexParts:
        """Divided by the number of elements, by its root, or by nothing."""
        total = prod(self._length(value.real, axis) for axis in axes) if count is None else count
        if scaling not in (1, 2):
            return value
        return self._scaled(value, 1.0 / (total if scaling == 2 else total**0.5), "mul")


def _tensor(value: Argument) -> Tensor:
    if not isinstance(value, Tensor):
        raise Unsupported("it takes something that is no tensor of reals")
    return value


def _axes(dims: Argument) -> tuple[int, ...]:
    found = tuple(item for item in dims if isinstance(item, int)) if isinstance(dims, list | tuple) else ()
    if not found:
        raise Unsupported("it names no dimensions")
    return found


def _turns(rows: int, count: int) -> tuple[Array, Array]:
    """The cosines and sines of 2π · jk / n; products are taken by their rest, so that angles stay small."""
    angles = np.outer(np.arange(rows), np.arange(count)) % count * (2 * pi / count)
    return np.cos(angles), np.sin(angles)


def is_complex_node(node: FxNode) -> bool:
    """Whether a line gives complex numbers."""
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else (value,)
    return any("complex" in str(getattr(item, "dtype", "")) for item in values)


MAKERS: Mapping[str, Callable[..., Given | tuple[ComplexParts, ...]]] = MappingProxyType(
    {
        "view_as_complex": ComplexCalls.view_as_complex,
        "view_as_real": ComplexCalls.view_as_real,
        "view_as_real_copy": ComplexCalls.view_as_real,
        "view_as_complex_copy": ComplexCalls.view_as_complex,
        "complex": ComplexCalls.complex,
        "polar": ComplexCalls.polar,
        "real": ComplexCalls.real,
        "imag": ComplexCalls.imag,
        "abs": ComplexCalls.size,
        "angle": ComplexCalls.angle,
        **dict.fromkeys(("conj", "_conj", "conj_physical", "_conj_physical"), ComplexCalls.conjugate),
        "add": ComplexCalls.add,
        "sub": ComplexCalls.sub,
        "mul": ComplexCalls.mul,
        "div": ComplexCalls.div,
        "exp": ComplexCalls.exp,
        "linalg_eig": ComplexCalls.eigenvectors,
        **dict.fromkeys(("linalg_eigvals", "_linalg_eigvals"), ComplexCalls.eigenvalues),
        "_fft_c2c": ComplexCalls.transform,
        "_fft_r2c": ComplexCalls.transform_reals,
        "_fft_c2r": ComplexCalls.transform_back,
    }
)
"""What makes the operations on complex numbers, by their names in ATen."""
