"""Cases for the traits of operators: types, attributes and numbers with which their operators are run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import BOOL, F32, F64, I4, I64, ElementType
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Operation, Tensor, Value, tensors
from lamella.lang.skriptnd.nodes import Dtype
from lamella.ops.library import Library

LIBRARY = Library()
OPERATORS = [f"{module}.{name}" for module in sorted(LIBRARY.standard) for name in LIBRARY.operators(module)]
SPECIAL: Mapping[str, Sequence[float | int | bool]] = {
    "f": (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.5, 1.5, 3.4e38, 1e-45),
    "i": (0, 1, -1, 2, -2, 3, -7, 12, 2**32, -(2**63), 2**63 - 1, 5),
    "b": (False, True) * 6,
}
ELEMENTS: Mapping[str, tuple[ElementType, ...]] = {
    "real": (F32,),
    "f64": (F64,),
    "int": (I64,),
    "i4": (I4,),
    "bool": (BOOL,),
    "num": (F32, I64),
    "arith": (F32, I64, BOOL),
    "type": (F32, I64, BOOL),
}
KIND_OF = {"f": "real", "i": "int", "b": "bool"}
Attributes = Mapping[str, Value]
Sample = tuple[tuple[int, ...], Attributes]
"""The shape of the inputs, and attributes."""
GRID = (12, 12)
"""The shape in which each special number of one input meets each of another."""
PLAIN: tuple[Sample, ...] = ((GRID, {}),)
SAMPLES: Mapping[str, tuple[Sample, ...]] = {
    **{
        name: (((2, 3, 4), {"axes": (1,)}), ((2, 3, 4), {"axes": (2, 0)}))
        for name in OPERATORS
        if name.endswith("_reduce") or name in ("nn.softmax", "nn.l1_norm", "nn.l2_norm")
    },
    **{
        f"nn.{name}_pool": (((2, 5, 4, 3), {"axes": (1, 3), "size": (3, 2), "stride": (2, 1)}),)
        for name in ("max", "sum", "avg", "rms")
    },
    "nn.lp_pool": (((2, 5, 4, 3), {"axes": (1, 3), "size": (3, 2), "stride": (2, 1), "p": 2.0}),),
    "misc.all_reduce": ((GRID, {}),),
    "onnx._from_end": ((GRID, {"size": 7}),),
    "math.lp_reduce": (((2, 3, 4), {"axes": (1,), "p": 2.0}),),
    "layout.transpose": (((2, 3, 4), {"perm": (2, 0, 1)}), ((2, 3, 4), {"axis": 1, "perm": (2, 1)})),
    "aten.permute": (((2, 3, 4), {"dims": (1, 2, 0)}), ((2, 3, 4), {"dims": (-1, 0, 1)})),
    "aten.transpose": (((2, 3, 4), {"dim0": 0, "dim1": -1}), ((2, 3, 4), {"dim0": 1, "dim1": 1})),
    "aten.t": (((3, 4), {}), ((3,), {})),
    "aten.flip": (((3, 4), {"dims": (0,)}),),
    "layout.reshape": (((2, 3, 4), {"shape": (6, 4)}),),
    "layout.flatten": (((2, 3, 4), {"axis": 1}), ((2, 3, 4), {})),
    "layout.unflatten": (((2, 12), {"axis": 1, "shape": (3, 4)}),),
    "layout.squeeze": (((2, 1, 3), {"axes": (1,)}),),
    "layout.unsqueeze": (((2, 3), {"axes": (1,)}),),
    "aten.view": (((2, 3, 4), {"size": (4, -1)}),),
    "aten.reshape": (((2, 3, 4), {"shape": (4, -1)}),),
    "aten.flatten": (((2, 3, 4), {"start_dim": 1}),),
    "aten.unflatten": (((2, 12), {"dim": 1, "sizes": (3, -1)}),),
    "aten.squeeze": (((2, 1, 3), {}),),
    "aten.unsqueeze": (((2, 3), {"dim": -1}),),
    "layout.tile": (((2, 3), {"repeats": (1, 1)}),),
    "layout.broadcast": (((2, 3), {"shape": (2, 3)}), ((1, 3), {"shape": (4, 3)})),
    "layout.uniform": (((), {"shape": (2, 3)}),),
    "aten.expand": (((2, 3), {"size": (2, -1)}), ((1, 3), {"size": (2, 4, 3)})),
    "aten.repeat": (((2, 3), {"repeats": (1, 1)}),),
    "aten.slice": (((4, 3), {}), ((4, 3), {"start": -9, "end": 9}), ((1, 3), {"step": 2})),
    "aten.narrow": (
        ((4, 3), {"dim": 0, "start": 0, "length": 4}),
        ((4, 3), {"dim": 1, "start": -3, "length": 3}),
    ),
    "aten.full": (((), {"size": (2, 3)}),),
    **{f"aten.{name}": (((), {"size": (2, 3)}),) for name in ("zeros", "empty", "ones")},
    "aten.arange": (((), {"end": 5}),),
    "aten.linspace": (((), {"start": 0.0, "end": 1.0, "steps": 4}),),
    "aten.eye": (((), {"n": 3}),),
    "aten.scalar_tensor": (((), {"s": 2}),),
    "layout.concat": (((2, 3), {"axis": 1}),),
    "aten.cat": (((2, 3), {"dim": 1}),),
    "aten.split": (((4, 3), {"split_size": 4}), ((4, 3), {"split_size": 3, "dim": 1})),
    "aten.split_with_sizes": (((4, 3), {"split_sizes": (4,)}),),
    "aten.chunk": (((4, 3), {"chunks": 1}),),
    "nn.thresholded_relu": ((GRID, {"theta": 0.5}),),
    "aten.threshold": ((GRID, {"threshold": 0.5, "value": 2.0}),),
    "llm._inverse_root": ((GRID, {"eps": 0.5}),),
    "quant.linear_codes": ((GRID, {"scale": (0.5,)}),),
    **{f"quant.{name}": ((GRID, {"scale": 0.5, "zero_point": 3}),) for name in ("_to_codes", "_to_numbers")},
    "quant._centre": ((GRID, {"zero_point": 3}),),
    "onnx.cap": ((GRID, {"cap": 2.0}),),
    "onnx._bounded": ((GRID, {"bits": 4}),),
    "quant.look_up": ((GRID, {"numbers": tuple(number / 8 for number in range(16))}),),
    "llm.scale": ((GRID, {"factor": 2.0}),),
    "rand.uniform": (((), {"shape": (40,)}),),
    "rand.normal": (((), {"shape": (40,)}),),
    "rand.bernoulli": (((), {"prob": 0.5, "shape": (40,)}),),
}


def as_number(value: Value, element: ElementType) -> Value:
    """An attribute of a generic type as a number of the type that was chosen."""
    assert isinstance(value, int)
    return bool(value) if element is BOOL else float(value) if element is F32 else value


class Case:
    """An operator with one choice of its types and one sample of attributes."""

    def __init__(self, name: str, types: Mapping[str, ElementType], sample: Sample) -> None:
        self.name, self.types = name, types
        self.shape = sample[0]
        definition = LIBRARY.find(name)
        assert definition is not None
        declared = {item.name: item.type.name for item in definition.operator.parameters("attrib")}
        self.attributes = {
            key: as_number(value, types[declared[key]]) if declared[key] in types else value
            for key, value in sample[1].items()
        }
        self.parameters = [item.type for item in definition.operator.parameters("input")]
        outputs = [item.type for item in definition.operator.parameters("output")]
        self.generic = {item: types[item] for item in types if item in {spec.name for spec in outputs}}
        self.elements = [types.get(spec.name) or ELEMENTS[spec.name][0] for spec in self.parameters]
        self.random = np.random.default_rng(len(name))

    def kind(self) -> str:
        """The kind of the first input's elements."""
        return KIND_OF[numpy_dtype(self.elements[0]).kind] if self.elements else ""

    def array(self, number: int = 0, finite: bool = False) -> Array:
        """Random numbers for an input, special ones among them."""
        dtype = numpy_dtype(self.elements[number])
        if finite or dtype.kind not in SPECIAL:
            return np.asarray((np.round(self.random.normal(size=self.shape) * 4) / 2).astype(dtype))
        special = np.array(SPECIAL[dtype.kind], dtype)
        if self.shape == GRID:
            return np.repeat(special, 12).reshape(GRID) if number % 2 else np.tile(special, 12).reshape(GRID)
        return np.asarray(self.random.choice(special, self.shape))

    def arrays(self) -> list[Array]:
        """Random numbers for every input that must be there."""
        return [self.array(number) for number, spec in enumerate(self.parameters) if not spec.optional]

    def run(self, *inputs: Array | Sequence[Array], **attributes: Value) -> list[Array]:
        """What the operator computes of arrays, or of packs of arrays."""
        return self.operate(inputs, attributes)[1]

    def operate(
        self, inputs: Sequence[Array | Sequence[Array]], attributes: Attributes
    ) -> tuple[Operation, list[Array]]:
        """The operation, and what it computes."""
        builder = Builder(LIBRARY, "once")
        feeds: dict[str, Array] = {}

        def declare(array: Array, element: ElementType) -> Tensor:
            tensor = builder.input("x", element, array.shape)
            feeds[tensor.name] = array
            return tensor

        arguments: list[Argument] = [
            declare(item, element)
            if isinstance(item, np.ndarray)
            else tuple(declare(one, element) for one in item)
            for item, element in zip(inputs, self.elements, strict=False)
        ]
        given = {**self.attributes, **attributes}
        outputs = builder.call_all(self.name, *arguments, types=self.generic, **given)  # type: ignore[arg-type]
        wanted = [item for output in outputs for item in tensors(output)]
        graph = builder.finish(*wanted)
        results = compile_model(Model(graph, LIBRARY), seed=1)(**feeds)
        (operation, *_) = graph.operations()
        return operation, [results[item.name] for item in graph.outputs if isinstance(item, Tensor)]


def cases(name: str) -> Iterator[Case]:
    """An operator with every choice of types and every sample."""
    definition = LIBRARY.find(name)
    assert definition is not None
    generics = [item for item in definition.operator.items("dtype") if isinstance(item, Dtype)]
    for chosen in product(*(ELEMENTS[item.base] for item in generics)):
        if name.startswith("aten.bitwise") and F32 in chosen:
            continue  # its assertion refuses them, which a type cannot say
        for sample in SAMPLES.get(name, PLAIN):
            yield Case(
                name, {item.name: element for item, element in zip(generics, chosen, strict=True)}, sample
            )


def differ(left: Array, right: Array) -> bool:
    """Whether arrays differ in shape or in any bit but the payload of NaN."""
    if left.shape != right.shape:
        return True
    if left.dtype.kind != "f":
        return not np.array_equal(left, right)
    signs = np.signbit(left) == np.signbit(right)
    return not np.array_equal(left, right, equal_nan=True) or not np.all(signs | np.isnan(left))
