"""Weights beside a file, or in place of its own: NAC151 to NAC158."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

_EXTERNAL = "6.1 DATA, external weights"

WEIGHT_MISSING = Rule(
    "NAC151",
    _EXTERNAL,
    "parameter '{name}' has no weights among the {count} that are given",
    hint="weights bear the names of parameters; these may belong to another model",
)
WEIGHT_UNUSED = Rule(
    "NAC152",
    _EXTERNAL,
    "weights are given for '{name}', which is no parameter of this file",
    WARNING,
    "they are left out",
)
WEIGHT_SHAPE = Rule(
    "NAC153",
    _EXTERNAL,
    "parameter '{name}' has shape {shape}; the weights that are given have {found}",
    hint="code stays as it is, so weights keep their shapes",
)
WEIGHT_TYPE = Rule(
    "NAC154",
    _EXTERNAL,
    "parameter '{name}' has elements of {dtype}; the weights that are given have {found}",
    hint="floating types are converted into each other, others stay what they are",
)
WEIGHT_ELEMENTS = Rule(
    "NAC155",
    _EXTERNAL,
    "the weights of parameter '{name}' have elements of {found}, which NAC has no code for",
    hint="the types are float32, float64, float16, bfloat16, int32, int64, int16, int8, uint8 and bool",
)
QUANT_ENTRY = Rule(
    "NAC156",
    _EXTERNAL,
    "the quantisation of '{name}' {problem}",
    hint="an object of quant_type, scale or scales, and axis or block_size with original_shape",
)
QUANT_TWICE = Rule(
    "NAC157",
    _EXTERNAL,
    "the quantisation of '{name}' is given under '{first}' and differently under '{key}'",
    hint="keep one of them",
)
CODES_WITHOUT_SCALE = Rule(
    "NAC158",
    _EXTERNAL,
    "parameter '{name}' has elements of int8 in a file of method {method}, and no scales are given at all",
    hint="say in the weights' metadata how they are quantised",
)
WEIGHTS_OF_ANOTHER = Rule(
    "NAC159",
    _EXTERNAL,
    "these weights have the digest {found}; the file was written together with weights of {wanted}",
    hint="write both again, or name the weights themselves where they are to be taken",
)
