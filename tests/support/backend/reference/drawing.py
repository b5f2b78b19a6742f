"""Generated contractions: loops, tensors, indices of every kind, formulas, conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from lamella.base.arrays import Array
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Lookup, Loop, Scalar

REALS = (-2.0, -1.0, 0.0, 0.5, 1.0, 3.0, float("inf"), float("-inf"), float("nan"))
SIGNS: Mapping[str, tuple[str, ...]] = {
    "real": ("=", ":=", "+=", "*=", "<=", ">="),
    "int": ("=", ":=", "+=", "*=", "<=", ">="),
    "bool": ("=", ":=", "&=", "|="),
}
KINDS = ("real", "int", "bool")


@dataclass(frozen=True)
class Case:
    """A contraction with its tensors; `y` is written, and read where the case says so."""

    contraction: Contraction
    tensors: dict[str, Array | tuple[Array, ...]]


@st.composite
def arrays(draw: st.DrawFn, kind: str, shape: tuple[int, ...], finite: bool = False) -> Array:
    """An array of a kind, of small numbers that sum and multiply exactly."""
    count = int(np.prod(shape, dtype=np.int64))
    item = {
        "real": st.sampled_from(REALS[:6] if finite else REALS),
        "int": st.integers(-3, 4),
        "bool": st.booleans(),
    }[kind]
    values = draw(st.lists(item, min_size=count, max_size=count))
    dtype = {"real": np.float64, "int": np.int64, "bool": np.bool_}[kind]
    return np.array(values, dtype).reshape(shape)


def shapes(least: int = 0, most: int = 3) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of few small extents."""
    return st.lists(st.integers(1, 4), min_size=least, max_size=most).map(tuple)


class _Drawing:
    """Terms over the loops and tensors of one case."""

    def __init__(
        self, draw: st.DrawFn, loops: tuple[Loop, ...], tensors: dict[str, Array | tuple[Array, ...]]
    ) -> None:
        self.draw = draw
        self.loops = loops
        self.tensors = tensors
        self.readable = list(tensors)

    def affine(self, extent: int) -> Scalar:
        """A sum of multiples of loop indices; often one that stays inside."""
        if len(self.loops) > 0 and self.draw(st.booleans()):
            fitting = [loop.index for loop in self.loops if loop.extent == extent] or [self.loops[0].index]
            return Index(self.draw(st.sampled_from(fitting)))
        term: Scalar = self.draw(st.integers(-1, max(extent, 1)))
        for loop in self.loops:
            factor = self.draw(st.sampled_from((0, 0, 1, 1, -1, 2)))
            if factor:
                one = Apply("*", (factor, Index(loop.index)), "int") if factor != 1 else Index(loop.index)
                term = Apply("+", (term, one), "int")
        return term

    def index(self, extent: int, depth: int) -> Scalar | Guard:
        """An index: affine or computed, guarded or not."""
        kind = self.draw(st.sampled_from(("inside", "affine", "computed", "inside")))
        if kind == "inside" and extent:
            return self.inside(extent)
        term = self.affine(extent) if kind != "computed" or depth <= 0 else self.term("int", depth - 1)
        guard = self.draw(st.sampled_from(("skip", "skip", "remap", "none", "half")))
        if guard == "none":
            return term
        if guard == "skip":
            return Guard(term)
        below = self.draw(st.integers(0, max(extent - 1, 0)))
        above: Scalar = self.affine(extent) if self.draw(st.booleans()) else max(extent - 1, 0)
        return Guard(term, below, above) if guard == "remap" else Guard(term, None, above)

    def inside(self, extent: int) -> Scalar:
        """An affine index that stays inside."""
        fitting = [
            loop.index for loop in self.loops if isinstance(loop.extent, int) and loop.extent <= extent
        ]
        options: list[Scalar] = [Index(name) for name in fitting]
        for loop in self.loops:
            if loop.extent == extent:
                options.append(Apply("-", (extent - 1, Index(loop.index)), "int"))
        return self.draw(st.sampled_from([0, extent - 1, *options]))

    def element(self, kind: str, depth: int) -> Scalar | None:
        """An element of a tensor of a kind."""
        dtype = {"real": "f", "int": "i", "bool": "b"}[kind]
        names = [name for name in self.readable if _first(self.tensors[name]).dtype.kind == dtype]
        if not names:
            return None
        name = self.draw(st.sampled_from(names))
        tensor = self.tensors[name]
        indices = tuple(self.index(size, depth) for size in _first(tensor).shape)
        return Element(name, indices, kind, self.item(len(tensor)) if isinstance(tensor, tuple) else None)

    def item(self, count: int) -> Scalar:
        """The number of a pack's item, known or computed."""
        if len(self.loops) > 0 and self.draw(st.booleans()):
            return Apply("%", (self.affine(count), count), "int")
        return self.draw(st.integers(0, count - 1))

    def term(self, kind: str, depth: int) -> Scalar:
        """A formula of a kind."""
        if depth <= 0 or self.draw(st.booleans()):
            return self.leaf(kind, depth)
        form = self.draw(st.sampled_from(("binary", "binary", "choice", "cast", "table", "compare")))
        if form == "choice":
            options = (self.term("bool", depth - 1), self.term(kind, depth - 1), self.term(kind, depth - 1))
            return Apply("?:", options, kind)
        if form == "cast":
            return Apply("cast", (self.term(self.draw(st.sampled_from(KINDS)), depth - 1),), kind)
        if form == "table":
            table = tuple(self.leaf(kind, 0) for _ in range(self.draw(st.integers(1, 3))))
            return Lookup(table, Apply("%", (self.term("int", depth - 1), len(table)), "int"), kind)
        if kind == "bool":
            other = self.draw(st.sampled_from(("real", "int")))
            sign = self.draw(st.sampled_from(("<", "<=", ">", ">=", "==", "!=")))
            if form == "compare":
                return Apply(sign, (self.term(other, depth - 1), self.term(other, depth - 1)), "bool")
            sign = self.draw(st.sampled_from(("&&", "||", "^", "=>")))
            return Apply(sign, (self.term(kind, depth - 1), self.term(kind, depth - 1)), kind)
        signs = ("+", "-", "*", "*", "<<", ">>", *(("/", "\\", "%") if kind == "int" else ("/",)))
        parts = (self.term(kind, depth - 1), self.term(kind, depth - 1))
        return Apply(self.draw(st.sampled_from(signs)), parts, kind)

    def leaf(self, kind: str, depth: int) -> Scalar:
        """An element, a loop index or a number."""
        found = self.element(kind, depth) if self.draw(st.integers(0, 3)) else None
        if found is not None:
            return found
        if kind == "int":
            return self.affine(3)
        number: Scalar = self.draw(st.booleans() if kind == "bool" else st.sampled_from(REALS[:6]))
        return number


def _first(tensor: Array | tuple[Array, ...]) -> Array:
    return tensor[0] if isinstance(tensor, tuple) else tensor


@st.composite
def cases(draw: st.DrawFn, depth: int = 2, finite: bool = False, own: bool = True) -> Case:
    """A contraction with one target, with all tensors of a pack or with a picked one; `own` may read what it writes."""
    count = draw(st.integers(0, 4))
    loops = tuple(
        Loop(f"i.{number}", draw(st.sampled_from((1, 2, 3, 4, 2, 3, 0)))) for number in range(count)
    )
    kind = draw(st.sampled_from(("real", "real", "int", "bool")))
    tensors: dict[str, Array | tuple[Array, ...]] = {
        "x": draw(arrays("real", draw(shapes()), finite)),
        "w": draw(arrays("real", draw(shapes()), finite)),
        "n": draw(arrays("int", draw(shapes()))),
        "b": draw(arrays("bool", draw(shapes(most=2)))),
    }
    shape = draw(shapes(1, 2))
    tensors["p"] = tuple(draw(arrays("real", shape, finite)) for _ in range(draw(st.integers(1, 2))))
    drawing = _Drawing(draw, loops, tensors)
    target_shape = draw(shapes())
    form = draw(st.sampled_from(("single", "single", "single", "packed", "picked")))
    count = 1 if form == "single" else 2
    outputs = tuple(draw(arrays(kind, target_shape, finite)) for _ in range(count))
    tensors["y"] = outputs if count > 1 else outputs[0]
    indices = tuple(drawing.index(size, 1) for size in target_shape)
    packed: list[Scalar | None] = [0, 1]
    items: list[Scalar | None] = [None] if form == "single" else [drawing.item(2)]
    items = packed if form == "packed" else items
    sign = draw(st.sampled_from(SIGNS[kind]))
    if own and draw(st.integers(0, 3)) == 0:
        drawing.readable.append("y")
    targets = tuple(Element("y", indices, kind, item) for item in items)
    values = tuple(drawing.term(kind, depth) for _ in items)
    condition = drawing.term("bool", depth) if draw(st.integers(0, 2)) == 0 else None
    return Case(Contraction(targets, sign, values, loops, condition), tensors)
