"""Numbers that are stored: constants as arrays, variables as tensors of the file."""

from __future__ import annotations

import math

import numpy as np

from lamella.base.arrays import Array, cast, element_type_of, to_memory
from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import name_in
from lamella.base.errors import Found
from lamella.base.source import NOWHERE
from lamella.bridge.nac_to_graph.weights import store_weight
from lamella.graph.model import Model
from lamella.graph.nodes import Constant, Single, Tensor
from lamella.lang.nac import nodes as n
from lamella.lang.nac.rules import roads as rules


def constant_array(constant: Constant) -> Array:
    """The elements of a constant of known shape and values, rounded to its element type."""
    tensor, value = constant.tensor, constant.value
    shape = tuple(extent for extent in tensor.shape if isinstance(extent, int))
    items = value if isinstance(value, tuple) else (value,) * math.prod(shape)
    numbers = [item for item in items if isinstance(item, int | float)]
    if name_in("nac", tensor.element) is None or len(numbers) != len(items):
        raise Found(rules.ELEMENT.at(NOWHERE, what="constant", name=tensor.name, element=tensor.element))
    flat = np.array(numbers, np.float64 if tensor.element.is_float else np.int64)
    return cast(flat, tensor.element).reshape(shape)


def stored_constant(constant: Constant) -> Constant:
    """The constant as it is read again: rounded, and one value where all elements have the same bits."""
    values = constant_array(constant)
    flat = np.ascontiguousarray(values).reshape(-1)
    bits = flat.view(f"u{flat.dtype.itemsize}")
    wide = flat.astype(np.float64) if constant.tensor.element.is_float else flat
    items: tuple[Single, ...] = tuple(math.nan if item != item else item for item in wide.tolist())
    same = bits.size > 0 and bool((bits == bits[0]).all())
    return Constant(constant.tensor, items[0] if same else items)


def store_variable(model: Model, variable: Tensor, id_: int) -> n.Tensor | Diagnostic:
    """The tensor of a variable, a view of its array where that is possible, or why there is none."""
    if name_in("nac", variable.element) is None:
        return rules.ELEMENT.at(NOWHERE, what="variable", name=variable.name, element=variable.element)
    values = None if model.data is None else model.data.get(variable.name)
    if values is None:
        return rules.NO_VALUES.at(NOWHERE, name=variable.name, problem="has no values")
    found = element_type_of(values.dtype)
    if (found, values.shape) != (variable.element, variable.shape):
        shape = ", ".join(map(str, variable.shape))
        problem = (
            f"is {variable.element}[{shape}]; its values are {values.dtype} of shape {list(values.shape)}"
        )
        return rules.NO_VALUES.at(NOWHERE, name=variable.name, problem=problem)
    stored = store_weight(values, id_)
    if stored is None:
        return rules.ELEMENT.at(NOWHERE, what="variable", name=variable.name, element=found)
    return stored


def begins_as_zeros(model: Model, variable: Tensor) -> bool:
    """Whether all the bits of a variable are known to be zero, so that nothing need be stored."""
    values = None if model.data is None else model.data.get(variable.name)
    if values is None or (element_type_of(values.dtype), values.shape) != (variable.element, variable.shape):
        return False
    return name_in("nac", variable.element) is not None and not to_memory(values).any()
