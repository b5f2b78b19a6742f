"""Quantisation: from a model of real numbers and chosen codes to the integer graph, whose numbers are exact.

normal = to_normal_form(model, evaluate)     # batch norms folded, compounds taken apart: its tensors have codes
found = to_integers(normal, codes)           # conv, linear, ... become quant.conv, quant.matmul, ...
"""

from __future__ import annotations

from lamella.graph.quantize.codes import TensorCodes, decode, encode
from lamella.graph.quantize.integers import FloatOperation, IntegerModel, to_integers
from lamella.graph.quantize.normal_form import to_normal_form

__all__ = [
    "FloatOperation",
    "IntegerModel",
    "TensorCodes",
    "decode",
    "encode",
    "to_integers",
    "to_normal_form",
]
