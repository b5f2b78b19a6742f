"""Weights of a model: recipes over the tensors of a checkpoint, transforms, and arrays made on demand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from lamella.base.arrays import Array, cast, element_type_of, numpy_dtype
from lamella.base.codes import CodeForm, Codes, join_forms, join_rows
from lamella.base.dtype import ElementType, find, find_in
from lamella.base.source import NOWHERE, Span
from lamella.bridge.hf_to_module.checkpoint import Checkpoint
from lamella.lang.module.nodes import Expr, Path

_INDEX = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor parameter of a model that is built: `blocks[3].attention.qkv_weight`.

    `element` is a type by the name that the language or we have for it; empty, it is that of the checkpoint. `tied`
    is the path of the weight whose numbers it shares. `values` are those of the dimensions, for messages.
    """

    path: str
    shape: tuple[int, ...]
    element: str = ""
    optional: bool = False
    tied: str | None = None
    span: Span = NOWHERE
    values: str = ""


@dataclass(frozen=True, slots=True)
class MappingContext:
    """What mappings may ask of a model.

    `evaluate` gives the value of a condition or of a bound of a range, and raises Problem. `declared` are parameters
    that exist only under other values, as `skeleton_of` writes them, each with the condition that is false. `prefix`
    is a first part of tensor names that some checkpoints leave out. `head_dim` is the number of rows of an attention
    head.
    """

    model: str
    evaluate: Callable[[Expr], int | bool]
    declared: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    head_dim: int = 0


@dataclass(frozen=True, slots=True)
class Whole:
    """A tensor of a checkpoint, through a transform function where one is named."""

    name: str
    function: str = ""


@dataclass(frozen=True, slots=True)
class Joined:
    """Parts one behind the other along a dimension; `bounds` are the ranges that the mapping gives them."""

    parts: tuple[WeightRecipe, ...]
    dim: int
    bounds: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Stacked:
    """Parts of one shape along a new first dimension."""

    parts: tuple[WeightRecipe, ...]


@dataclass(frozen=True, slots=True)
class Alias:
    """The numbers of another weight."""

    path: str


WeightRecipe: TypeAlias = Whole | Joined | Stacked | Alias


def names_in(recipe: WeightRecipe) -> Iterator[str]:
    """The tensors of a checkpoint that something is made of, in order."""
    match recipe:
        case Whole(name):
            yield name
        case Joined(parts) | Stacked(parts):
            for part in parts:
                yield from names_in(part)


def indices_in(path: str) -> tuple[int, ...]:
    """The indices in the path of a weight, in order."""
    return tuple(map(int, _INDEX.findall(path)))


def skeleton_of(path: str) -> str:
    """The path of a weight without the numbers in its indices: `blocks[].attention.qkv_weight`."""
    return _INDEX.sub("[]", path)


def pattern_skeleton(path: Path) -> str:
    """The path of an entry of a mapping as `skeleton_of` gives those of weights."""
    return ".".join(part.name + "[]" * len(part.indices) for part in path.parts)


def element_named(name: str) -> ElementType | None:
    """The element type that the language, or our own tables, call by a name."""
    return find_in("module", name) or find(name)


# --- transform functions of mappings, each with its inverse -------------------------------------------------


Shape: TypeAlias = tuple[int, ...]
STACK = "stack"
"""The function that puts tensors one behind the other along a new first dimension, one for each value of a placeholder
that stands only in the name of the tensor."""


@dataclass(frozen=True, slots=True)
class TransformFunction:
    """A transform: its effect on a shape and on numbers, and the name of the function that undoes it.

    `shape` gives a text where a tensor of a shape cannot be taken. Both know the number of rows of an attention head.
    """

    inverse: str
    shape: Callable[[Shape, int], Shape | str]
    apply: Callable[[Array, int], Array]
    computes: bool = False
    """Whether it makes other numbers, for which they must be floating ones."""


def _swap_shape(shape: Shape, head: int) -> Shape | str:
    return (*shape[:-2], shape[-1], shape[-2]) if len(shape) >= 2 else "it needs two dimensions"


def _swap(values: Array, head: int) -> Array:
    return np.swapaxes(values, -1, -2)


def _same(shape: Shape, head: int) -> Shape | str:
    return shape


def _negate(values: Array, head: int) -> Array:
    """The numbers with the other sign, by the sign bit alone: NaN keeps its bits."""
    return np.asarray(np.negative(values))


def _computed(function: Callable[[Array], Array]) -> Callable[[Array, int], Array]:
    """A function of numbers, computed in double precision and rounded once to the type they had."""

    def apply(values: Array, head: int) -> Array:
        element = element_type_of(values.dtype)
        with np.errstate(all="ignore"):
            found = function(values.astype(np.float64))
        return found if element is None else cast(found, element)

    return apply


def _squeezed(shape: Shape, head: int) -> Shape | str:
    fits = len(shape) >= 2 and shape[1] == 1
    return (shape[0], *shape[2:]) if fits else "its second dimension is not 1"


def _unsqueezed(shape: Shape, head: int) -> Shape | str:
    return (shape[0], 1, *shape[1:]) if shape else "it has no dimension"


def _pairs(shape: Shape, head: int) -> Shape | str:
    if head <= 0 or head % 2:
        return f"a head has {head} rows" if head else "the number of rows of a head (head_dim) is not known"
    fits = bool(shape) and shape[0] % head == 0
    return shape if fits else f"its rows are no heads of {head}"


def _interleave(values: Array, head: int) -> Array:
    """Rows k and k + head/2 of each head side by side."""
    return _turn(values, (2, head // 2))


def _separate(values: Array, head: int) -> Array:
    """The even rows of each head, then the odd ones."""
    return _turn(values, (head // 2, 2))


def _turn(values: Array, rows: tuple[int, int]) -> Array:
    # Without elements there is nothing to reorder, and -1 could stand for any extent.
    heads = values.reshape(-1, *rows, *values.shape[1:]) if values.size else values
    return heads.swapaxes(1, 2).reshape(values.shape) if values.size else values


def _squeeze(values: Array, head: int) -> Array:
    return values.reshape(values.shape[0], *values.shape[2:])


def _unsqueeze(values: Array, head: int) -> Array:
    return values.reshape(values.shape[0], 1, *values.shape[1:])


FUNCTIONS: Mapping[str, TransformFunction] = MappingProxyType(
    {
        "transpose": TransformFunction("transpose", _swap_shape, _swap),
        "neg": TransformFunction("neg", _same, _negate, computes=True),
        "negate_exp": TransformFunction(
            "log_negate", _same, _computed(lambda x: np.negative(np.exp(x))), computes=True
        ),
        "log_negate": TransformFunction(
            "negate_exp", _same, _computed(lambda x: np.log(np.negative(x))), computes=True
        ),
        "exp": TransformFunction("log", _same, _computed(np.exp), computes=True),
        "log": TransformFunction("exp", _same, _computed(np.log), computes=True),
        "squeeze_1": TransformFunction("unsqueeze_1", _squeezed, _squeeze),
        "unsqueeze_1": TransformFunction("squeeze_1", _unsqueezed, _unsqueeze),
        "half_to_interleaved": TransformFunction("interleaved_to_half", _pairs, _interleave),
        "interleaved_to_half": TransformFunction("half_to_interleaved", _pairs, _separate),
    }
)
"""Every function of one tensor, by name."""


ROW_ORDERS = ("half_to_interleaved", "interleaved_to_half")
"""The functions that change nothing but the order of rows."""


def _row_order(count: int, function: str, head: int) -> Array:
    return FUNCTIONS[function].apply(np.arange(count), head)


def function_names() -> tuple[str, ...]:
    """Every name that may stand behind `fn:`."""
    return (*FUNCTIONS, STACK)


_CHUNK = 1 << 22
"""Elements that are converted at a time, so that what the conversion needs meanwhile stays small."""


@dataclass(frozen=True, slots=True)
class WeightImport:
    """A weight and what it is made of; both types are None where that is another weight."""

    path: str
    shape: tuple[int, ...]
    element: ElementType | None
    stored: ElementType | None
    recipe: WeightRecipe
    span: Span = NOWHERE


class StoredWeights(Mapping[str, Array]):
    """Arrays of weights by path. Nothing is kept: who asks twice has it made twice.

    A tensor that is taken as it is stored is a read-only view of its file; all else is a new array, also read-only.
    """

    def __init__(
        self,
        items: Sequence[WeightImport],
        checkpoint: Checkpoint,
        head_dim: int,
        element: ElementType | None = None,
    ) -> None:
        self._items = {item.path: item for item in items}
        self._checkpoint = checkpoint
        self._head = head_dim
        self._element = element
        self._lent: str | None = None
        """The tensor whose view was given last: who streams weights has copied it when the next is asked for."""

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, path: object) -> bool:
        return path in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __getitem__(self, path: str) -> Array:
        item = self._items[path]
        if isinstance(item.recipe, Alias):
            return self[item.recipe.path]
        element = item.element
        if self._element is not None and element is not None and element.is_float:
            element = self._element
        if isinstance(item.recipe, Whole):
            values = self._lend(item.recipe)
            # A writeable array is one that a transform computed; a view of the file is read-only.
            as_it_lies = values.flags.aligned and values.flags.c_contiguous and not values.flags.writeable
            if as_it_lies and (element is None or values.dtype == numpy_dtype(element)):
                return values.reshape(item.shape)
        found = np.empty(item.shape, numpy_dtype(element) if element is not None else None)
        self._fill(found, item.recipe, element)
        # Whoever keeps it need not copy it: nobody else can change it.
        found.setflags(write=False)
        return found

    def form_of(self, path: str) -> CodeForm | None:
        """How the codes of a weight lie that a kernel may read as they are; None where it has numbers alone."""
        return self._form(self._items[path].recipe) if path in self._items else None

    def _form(self, recipe: WeightRecipe) -> CodeForm | None:
        match recipe:
            case Alias(path):
                return self.form_of(path)
            case Whole(name, function) if not function or function in ROW_ORDERS:
                coded = self._checkpoint.coded.get(name)
                return None if coded is None else coded.form
            case Joined(parts, 0):
                forms = [form for part in parts if (form := self._form(part)) is not None]
                return join_forms(forms) if len(forms) == len(parts) else None
        return None

    def codes_of(self, path: str) -> Codes:
        """The codes of a weight that has a form."""
        return self._codes(self._items[path].recipe)

    def _codes(self, recipe: WeightRecipe) -> Codes:
        match recipe:
            case Alias(path):
                return self.codes_of(path)
            case Whole(name, function):
                found = self._checkpoint.coded[name].load()
                self._checkpoint.release(name)
                if isinstance(found, Codes):
                    return (
                        found.rows(_row_order(len(found.codes), function, self._head)) if function else found
                    )
            case Joined(parts):
                return join_rows([self._codes(part) for part in parts])
        raise TypeError("a weight without a form has numbers alone")

    def _lend(self, recipe: Whole) -> Array:
        """A view of a tensor; the memory of the one before is given back."""
        if self._lent is not None:
            self._checkpoint.release(self._lent)
        self._lent = recipe.name
        return self._read(recipe)

    def _read(self, recipe: Whole) -> Array:
        values = self._checkpoint.read(recipe.name)
        function = FUNCTIONS.get(recipe.function)
        return values if function is None else function.apply(values, self._head)

    def _fill(self, target: Array, recipe: WeightRecipe, element: ElementType | None) -> None:
        match recipe:
            case Whole(name):
                _convert_into(target, self._read(recipe), element)
                self._checkpoint.release(name)
            case Stacked(parts):
                for index, part in enumerate(parts):
                    self._fill(target[index, ...], part, element)
            case Joined(parts, dim):
                position = 0
                for part in parts:
                    size = self._extent(part, dim)
                    place = (slice(None),) * dim + (slice(position, position + size),)
                    self._fill(target[place], part, element)
                    position += size

    def _extent(self, recipe: WeightRecipe, dim: int) -> int:
        """The extent of a part along a dimension."""
        match recipe:
            case Whole(name, function):
                shape: object = self._checkpoint.tensors[name].shape
                if function in FUNCTIONS:
                    shape = FUNCTIONS[function].shape(self._checkpoint.tensors[name].shape, self._head)
                return shape[dim] if isinstance(shape, tuple) else 0
            case Stacked(parts):
                return self._extent(parts[0], dim - 1) if dim else len(parts)
            case Joined(parts, along):
                sizes = [self._extent(part, dim) for part in parts]
                return sum(sizes) if along == dim else sizes[0]
            case Alias():
                return 0


def _convert_into(target: Array, values: Array, element: ElementType | None) -> None:
    """Copy numbers into an array of an element type, a part at a time."""
    if element is None or target.dtype == values.dtype:
        target[...] = values
        return
    if target.ndim == 0 or target.size <= _CHUNK:
        target[...] = cast(values, element)
        return
    rows = max(1, _CHUNK * target.shape[0] // target.size)
    for start in range(0, target.shape[0], rows):
        target[start : start + rows] = cast(values[start : start + rows], element)
