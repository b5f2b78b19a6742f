"""The exact numbers of every opcode, on plain arrays: no memory, no regions, no tasks.

`apply` is the one entry: the interpreter of plans and the executor of task-control streams both call it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from lamella.backend.npu.opcodes import (
    convert,
    convolution,
    elementwise,
    linear,
    normalise,
    pooling,
    reductions,
    views,
)
from lamella.backend.npu.opcodes.call import Call, Operand, Report, element_of
from lamella.base.arrays import Array, numpy_dtype
from lamella.lang.nem.resolved import AttributeValue, TensorType
from lamella.lang.nem.rules import UNSUPPORTED

__all__ = ["OPCODES", "Call", "Operand", "Report", "apply"]


def refuse(call: Call) -> list[Array]:
    """Run the escape hatch: no operation behind it is known here; the results are zero."""
    call.report(UNSUPPORTED, name=call.word("op") or call.opcode)
    return [np.zeros(type.shape, numpy_dtype(element_of(type))) for type in call.outputs]


OPCODES: Mapping[str, Callable[[Call], list[Array]]] = MappingProxyType(
    {
        **dict.fromkeys(("transfer", "store"), views.copy),
        **dict.fromkeys(("gemm", "matmul"), linear.gemm),
        **dict.fromkeys(("conv1d", "conv2d", "conv3d", "depthwise_conv2d"), convolution.convolve),
        **dict.fromkeys(elementwise.REAL, elementwise.map_elements),
        **{"relu": elementwise.relu, "div": elementwise.div, "pow": elementwise.power},
        **{"leaky_relu": elementwise.leaky_relu, "clamp": elementwise.clamp},
        **{"maxpool": pooling.maxpool, "avgpool": pooling.avgpool},
        **{"transpose": views.transpose, "reshape": views.reshape, "slice": views.slice_axes},
        **{"concat": views.concat, "split": views.split, "pad": views.pad, "gather": views.gather},
        **{"reduce_sum": reductions.reduce_sum},
        **dict.fromkeys(("reduce_max", "reduce_min"), reductions.reduce_extreme),
        **dict.fromkeys(("argmax", "argmin"), reductions.find_extreme),
        **{"layernorm": normalise.layernorm, "rmsnorm": normalise.rmsnorm},
        **{"softmax": normalise.softmax, "log_softmax": normalise.log_softmax},
        **{"cast": convert.cast, "quantize": convert.quantize, "dequantize": convert.dequantize},
        "compute": refuse,
    }
)
"""What runs each opcode."""


def apply(
    opcode: str,
    inputs: Sequence[Operand],
    outputs: Sequence[TensorType],
    attributes: Mapping[str, AttributeValue],
    report: Report,
) -> list[Array]:
    """The results of an opcode, one array per output, of the shape and NumPy type of that output.

    Operands have passed the checker. Arrays of i4 have one element per item; `transfer` and `store` take and give u8.
    What goes wrong is reported and the results are then defined all the same: an accumulator wraps, x / 0 is 0,
    an index is moved to the nearest legal one, an unknown operation gives zero.
    """
    with np.errstate(all="ignore"):
        return OPCODES.get(opcode, refuse)(Call(opcode, inputs, outputs, attributes, report))
