"""Frozen weights in few bits: codes that operations of the graph make numbers of, where they are used.

nf4    sixteen quantiles of a normal distribution, two codes in a byte, a scale for each 64 elements
int8   codes of 8 bits, a scale for each row
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lamella.base.arrays import Array
from lamella.base.dtype import I8, U8
from lamella.base.errors import InputError
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Node, Tensor
from lamella.graph.rewrite import defined, operands_of
from lamella.train.adapters.places import Product

NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""The numbers of NF4, as the paper on QLoRA lists them."""
BLOCK = 64


def encode_nf4(values: Array) -> tuple[Array, Array]:
    """The codes of a matrix, two in a byte, and the scale of each block."""
    flat = np.asarray(values, np.float64).ravel()
    if flat.size % 2:
        raise InputError(
            f"a weight of {list(values.shape)} has an odd number of elements", hint="say --base int8"
        )
    padded = np.pad(flat, (0, -flat.size % BLOCK)).reshape(-1, BLOCK)
    scales = np.abs(padded).max(axis=1)
    shares = padded / np.where(scales > 0, scales, 1.0)[:, None]
    numbers = np.asarray(NF4)
    codes = np.searchsorted((numbers[1:] + numbers[:-1]) / 2, shares).astype(np.uint8).ravel()[: flat.size]
    return (codes[::2] << 4 | codes[1::2]).astype(np.uint8), scales


def decode_nf4(codes: Array, scales: Array, shape: Sequence[int]) -> Array:
    """The numbers that codes stand for."""
    both = np.stack([codes >> 4, codes & 15], axis=1).ravel()
    numbers: Array = np.asarray(NF4)[both] * np.repeat(scales, BLOCK)[: both.size]
    return numbers.reshape(shape)


def encode_int8(values: Array, axis: int) -> tuple[Array, Array]:
    """Codes of 8 bits and a scale for each row, which lies along an axis."""
    wide = np.asarray(values, np.float64)
    scales = np.abs(wide).max(axis=1 - axis, keepdims=True) / 127
    codes = np.rint(wide / np.where(scales > 0, scales, 1.0))
    return codes.astype(np.int8), scales


def with_base(model: Model, products: Sequence[Product], base: str) -> tuple[Model, tuple[str, ...]]:
    """The model whose weights of products are codes, and the names of the tensors that are made of them."""
    narrow = {item.weight.name: item for item in products}
    builder = Builder(model.library, model.graph.name)
    for item in defined(model.graph):
        if item.name not in narrow:
            builder.fresh(item.name)
    data = {name: array for name, array in (model.data or {}).items() if name not in narrow}
    done: set[str] = set()
    for node in model.graph.nodes:
        for name in _read(node, narrow):
            if name in done:
                continue
            done.add(name)
            data |= _decode(builder, narrow[name], np.asarray((model.data or {})[name]), base)
        builder.add_node(node)
    made = builder.finish()
    graph = replace(
        model.graph,
        nodes=made.nodes,
        variables=(*(item for item in model.graph.variables if item.name not in narrow), *made.variables),
        constants=(*model.graph.constants, *made.constants),
    )
    return replace(model, graph=graph, data=data), tuple(narrow)


def _read(node: Node, narrow: dict[str, Product]) -> list[str]:
    return list(dict.fromkeys(item.name for item in operands_of(node) if item.name in narrow))


def _decode(builder: Builder, product: Product, values: Array, base: str) -> dict[str, Array]:
    """The operations that make the numbers of a weight, right before they are used; gives what is stored."""
    weight: Tensor = product.weight
    real = values.dtype
    if base == "nf4":
        codes, scales = encode_nf4(values)
        stored = builder.variable(f"{weight.name}.codes", U8, codes.shape)
        factors = builder.variable(f"{weight.name}.scales", weight.element, scales.shape)
        numbers = builder.constant(NF4, weight.element, (len(NF4),))
        builder.call(
            "quant.pick", stored, factors, numbers, shape=weight.shape, block=BLOCK, results=(weight.name,)
        )
    else:
        codes, scales = encode_int8(values, 1 if product.is_turned else 0)
        stored = builder.variable(f"{weight.name}.codes", I8, codes.shape)
        factors = builder.variable(f"{weight.name}.scales", weight.element, scales.shape)
        wide = builder.call("layout.cast", stored, types={"R": weight.element})
        builder.call("math.mul", wide, factors, results=(weight.name,))
    return {stored.name: codes, factors.name: scales.astype(real)}
