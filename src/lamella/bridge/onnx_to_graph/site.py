"""A node of an ONNX graph while it is translated: its inputs, its attributes, and calls of our operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np

from lamella.base.arrays import Array, element_type_of, numpy_dtype
from lamella.base.dim import Condition, Dim, Extent
from lamella.base.dtype import BOOL, F32, ElementType
from lamella.base.errors import Found
from lamella.base.source import NOWHERE
from lamella.bridge.onnx import rules
from lamella.bridge.onnx.nodes import ELEMENTS, AttributeValue, Graph, Node, TensorProto
from lamella.bridge.onnx_to_graph.values import Value, as_single, known_value
from lamella.graph.build import Builder, Given
from lamella.graph.nodes import Pack, Shape, Tensor
from lamella.graph.nodes import Value as GraphValue
from lamella.lang.skriptnd.nodes import Dtype

Result: TypeAlias = "Tensor | Value | None"
Results: TypeAlias = "Result | Sequence[Result]"
MOST_CONSTANT = 64
"""Items of a tensor that is written into the graph; more are a variable."""


class ValueNeeded(Exception):
    """An operation asks for the content of a value that only the run tells."""

    def __init__(self, site: NodeSite, what: str, name: str) -> None:
        super().__init__(what)
        self.what = what
        self.name = name
        self.finding = rules.VALUE_NEEDED.at(
            NOWHERE, node=site.title, what=what, operator=site.node.op_type, name=name
        )


@dataclass(slots=True)
class NodeSite:
    """One node with what it reads."""

    builder: Builder
    node: Node
    version: int
    values: Sequence[Value | None]
    attributes: dict[str, AttributeValue]
    materialise: Callable[[Value], Tensor]
    """The tensor that a value is."""
    translate: Callable[[Graph, Sequence[Value]], list[Value]]
    """What the nodes of an inner graph give, for values of its inputs."""
    attempt: Callable[[Callable[[], Results]], Results]
    """What a translation gives; None where something in it cannot be translated, which is then not reported."""
    read: Callable[[TensorProto], Array]
    """The array of a tensor of the file."""

    # --- findings -------------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        """The node as messages name it."""
        return f"node '{self.node.title}' ({self.node.op_type})"

    def refuse(self, reason: str) -> NoReturn:
        """Say why the node cannot be translated."""
        raise Found(
            rules.NOT_SUPPORTED.at(NOWHERE, node=self.title, operator=self.node.op_type, reason=reason)
        )

    def refuse_open(self, doing: str, extent: object) -> NoReturn:
        """Say that the node can be translated once an extent is known."""
        self.refuse(f"{doing} {extent}, an extent that is open; --shape NAME=N makes it known")

    # --- inputs ---------------------------------------------------------------------------------------------

    def has(self, index: int) -> bool:
        """Whether an input is there."""
        return index < len(self.values) and self.values[index] is not None

    def _value(self, index: int) -> Value:
        found = self.values[index] if index < len(self.values) else None
        if found is None:
            self.refuse(f"needs input {index + 1}, which is left out")
        return found

    def tensor(self, index: int = 0) -> Tensor:
        """An input as a tensor."""
        return self.materialise(self._value(index))

    def optional(self, index: int) -> Tensor | None:
        """An input as a tensor; None where it is left out."""
        return self.tensor(index) if self.has(index) else None

    def tensors(self) -> tuple[Tensor, ...]:
        """All inputs as tensors."""
        return tuple(self.tensor(index) for index in range(len(self.values)))

    def element(self, index: int = 0) -> ElementType:
        """The element type of an input."""
        value = self._value(index)
        return value.tensor.element if value.tensor is not None else value.element

    def content(self, index: int) -> Array | None:
        """The content of an input where it is known."""
        value = self.values[index] if index < len(self.values) else None
        return None if value is None else value.known

    def known(self, index: int, what: str) -> Array:
        """The content of an input, which must be known."""
        found = self.content(index)
        if found is None:
            raise ValueNeeded(self, what, self.node.inputs[index])
        return found

    def extents(self, index: int, what: str) -> tuple[Extent, ...]:
        """An input that must be known integers, or extents."""
        found: list[Extent] = []
        for item in self.known(index, what).reshape(-1).tolist():
            if isinstance(item, Condition) or (isinstance(item, float) and not item.is_integer()):
                self.refuse(f"has {what} that are no integers: '{self.node.inputs[index]}' holds {item}")
            found.append(item if isinstance(item, Dim) else int(item))
        return tuple(found)

    def integers(self, index: int, what: str) -> tuple[int, ...]:
        """An input that must be known integers."""
        found = self.extents(index, what)
        known = tuple(item for item in found if isinstance(item, int))
        if len(known) != len(found):
            self.refuse(
                f"has {what} that only the run tells: '{self.node.inputs[index]}' is {list(map(str, found))}"
            )
        return known

    def numbers(self, index: int, what: str) -> tuple[float, ...]:
        """An input that must be known numbers."""
        content = self.known(index, what)
        if content.dtype == object:
            self.refuse(
                f"has {what} that only the run tells: '{self.node.inputs[index]}' depends on open extents"
            )
        return tuple(float(item) for item in content.reshape(-1).astype(np.float64))

    # --- attributes -----------------------------------------------------------------------------------------

    def integer(self, name: str, default: int | None = None) -> int:
        """An attribute that is an integer."""
        found = self.attributes.get(name)
        if isinstance(found, int):
            return found
        if default is None:
            self.refuse(f"needs the attribute '{name}'")
        return default

    def flag(self, name: str, default: bool = False) -> bool:
        """An attribute that is true or false."""
        return bool(self.integer(name, default))

    def real(self, name: str, default: float) -> float:
        """An attribute that is a number."""
        found = self.attributes.get(name)
        return float(found) if isinstance(found, int | float) else default

    def ints(self, name: str) -> tuple[int, ...] | None:
        """An attribute that is a list of integers; None where it is not given."""
        found = self.attributes.get(name)
        if not isinstance(found, tuple):
            return None
        return tuple(item for item in found if isinstance(item, int))

    def reals(self, name: str) -> tuple[float, ...] | None:
        """An attribute that is a list of numbers; None where it is not given."""
        found = self.attributes.get(name)
        if not isinstance(found, tuple):
            return None
        return tuple(float(item) for item in found if isinstance(item, int | float))

    def text(self, name: str, default: str) -> str:
        """An attribute that is a word."""
        found = self.attributes.get(name)
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else default

    def texts(self, name: str) -> tuple[str, ...] | None:
        """An attribute that is a list of words; None where it is not given."""
        found = self.attributes.get(name)
        if not isinstance(found, tuple):
            return None
        return tuple(item.decode("utf-8", "replace") for item in found if isinstance(item, bytes))

    def graph(self, name: str) -> Graph:
        """An attribute that is a graph."""
        found = self.attributes.get(name)
        if not isinstance(found, Graph):
            self.refuse(f"needs the graph '{name}'")
        return found

    def type_of(self, name: str, default: ElementType | None = None) -> ElementType:
        """An attribute that is the number of an element type."""
        number = self.attributes.get(name)
        if not number and default is not None:
            return default
        found = ELEMENTS.get(number) if isinstance(number, int) else None
        if found is None:
            self.refuse(f"asks for elements of type {number!r}, which nothing computes with here")
        return found

    def groups(self) -> int:
        """The attribute that says into how many groups channels are divided."""
        found = self.integer("group", 1)
        if found < 1:  # an operator of ours reads 0 as one group for each channel
            self.refuse(f"divides channels into {found} groups")
        return found

    def axes(self, rank: int, index: int = 1, since: int = 13) -> tuple[int, ...] | None:
        """Axes, which are an attribute before a version and an input from it on; counted from the start."""
        if self.version < since or self.ints("axes") is not None:
            given = self.ints("axes")
        else:
            given = self.integers(index, "axes") if self.has(index) else None
        return None if given is None else tuple(self.axis_in(item, rank) for item in given)

    def axis_in(self, axis: int, rank: int) -> int:
        """An axis counted from the start."""
        if not -rank <= axis < max(rank, 1):
            self.refuse(f"has axis {axis}, and the tensor {rank} dimensions")
        return axis + rank if axis < 0 else axis

    # --- operations -----------------------------------------------------------------------------------------

    def call(self, operator: str, *inputs: Given, **attributes: GraphValue) -> Tensor:
        """Call an operator that gives one tensor."""
        found = self.call_all(operator, *inputs, **attributes)
        return found[0]

    def call_all(self, operator: str, *inputs: Given, **attributes: GraphValue) -> tuple[Tensor, ...]:
        """Call an operator; all the tensors that it gives."""
        return self._flat(self.builder.call_all(operator, *inputs, types=None, results=(), **attributes))

    def make(self, operator: str, element: ElementType, *inputs: Given, **attributes: GraphValue) -> Tensor:
        """Call an operator whose first generic type its inputs do not determine."""
        definition = self.builder.library.find_operator(operator)
        generic = [] if definition is None else list(definition.items("dtype"))
        types = {item.name: element for item in generic[:1] if isinstance(item, Dtype)}
        return self._flat(self.builder.call_all(operator, *inputs, types=types, results=(), **attributes))[0]

    def _flat(self, outputs: Sequence[object]) -> tuple[Tensor, ...]:
        found: list[Tensor] = []
        for item in outputs:
            if isinstance(item, Pack):
                self.refuse(f"gives {item.size} results, a number that only the run tells")
            found += (item,) if isinstance(item, Tensor) else item if isinstance(item, tuple) else ()
        return tuple(found)

    def cast(self, value: Tensor, element: ElementType) -> Tensor:
        """A tensor converted where it has another type."""
        return value if value.element == element else self.make("layout.cast", element, value)

    def scalar(self, value: float, element: ElementType) -> Tensor:
        """A constant without dimensions."""
        if element == BOOL:
            return self.builder.constant(bool(value), BOOL)
        return self.builder.constant(float(value) if element.is_float else int(value), element)

    def constant(self, content: Array, element: ElementType | None = None) -> Tensor:
        """A small array as a constant."""
        kind = element or element_type_of(content.dtype) or F32
        return constant_tensor(self.builder, content, kind)

    # --- common steps ---------------------------------------------------------------------------------------

    def reshape(self, tensor: Tensor, shape: Sequence[Extent]) -> Tensor:
        """A tensor in another shape."""
        if tuple(shape) == tensor.shape:
            return tensor
        return self.call("layout.reshape", tensor, shape=tuple(shape))

    def transpose(self, tensor: Tensor, perm: Sequence[int]) -> Tensor:
        """A tensor with its axes in another order."""
        if tuple(perm) == tuple(range(len(tensor.shape))):
            return tensor
        return self.call("layout.transpose", tensor, perm=tuple(perm))

    def expand(self, tensor: Tensor, shape: Shape) -> Tensor:
        """A tensor repeated along axes of extent 1, and along new ones before."""
        lifted = self.reshape(tensor, (1,) * (len(shape) - len(tensor.shape)) + tensor.shape)
        return lifted if lifted.shape == shape else self.call("layout.broadcast", lifted, shape=shape)

    def add(self, left: Tensor, right: Tensor) -> Tensor:
        """A sum, with broadcasting."""
        return self.call("math.add", left, right)

    def mul(self, left: Tensor, right: Tensor) -> Tensor:
        """A product, with broadcasting."""
        return self.call("math.mul", left, right)

    def scaled(self, tensor: Tensor, factor: float) -> Tensor:
        """A tensor times a number."""
        return tensor if factor == 1.0 else self.mul(tensor, self.scalar(factor, tensor.element))

    def known_result(self, content: Array, element: ElementType | None = None) -> Value:
        """A result whose content is known."""
        return known_value(content, element=element)


def constant_tensor(builder: Builder, content: Array, element: ElementType) -> Tensor:
    """An array as a constant of a graph."""
    if content.dtype != object and element_type_of(content.dtype) != element:
        content = content.astype(numpy_dtype(element))
    items = [as_single(item) for item in content.reshape(-1).tolist()]
    if element.is_float:
        items = [item if isinstance(item, Dim | Condition) else float(item) for item in items]
    if content.ndim == 0:
        return builder.constant(items[0], element)
    uniform = len(items) > 0 and all(repr(item) == repr(items[0]) for item in items[1:])
    value = items[0] if uniform else tuple(items)
    return builder.constant(value, element, tuple(content.shape))
