"""The words of the assembly text and the numbers they stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from lamella.lang.nac.nodes import (
    CONTROL_FLOW,
    CONVERGENCE,
    INPUT,
    OUTPUT,
    V1_5,
    V1_6,
    V1_7,
    V1_8,
    Action,
    Method,
)
from lamella.lang.nac.operations import (
    FINAL,
    LIFTED,
    PARAMETER,
    SAVED,
    STATE,
    SUBGRAPH,
    TARGET,
    TRAINED,
    UPDATE,
    USER,
)

VERSIONS = (V1_5, V1_6, V1_7, V1_8)
NUMBERS = ("inputs", "outputs", "d_model")
STORAGE = ("internal", "external")
FIELDS = ("weights", "quantization", *NUMBERS)
"""The fields behind `nac VERSION`, in their canonical order."""

OPERATIONS, SIGNATURES, CONSTANTS = "operations", "signatures", "constants"
PARAMETERS, INPUTS, CODE, SCHEDULE, TRAINING = "parameters", "inputs", "code", "schedule", "training"
TENSORS, ARRAYS, MANIFEST, ORCHESTRATOR = "tensors", "arrays", "manifest", "orchestrator"
RESOURCES = "resources"
SECTIONS = (
    *(OPERATIONS, SIGNATURES, CONSTANTS, PARAMETERS, INPUTS, CODE, SCHEDULE, TRAINING),
    *(TENSORS, ARRAYS, MANIFEST, ORCHESTRATOR, RESOURCES),
)
"""The sections in their canonical order: what is read before what is only carried."""

METHODS: Mapping[str, Method] = MappingProxyType({method.name.lower(): method for method in Method})
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "int16", "int8", "uint8", "bool")
"""The element types; the place in this list is the number in a file."""
ACTIONS: Mapping[str, int] = MappingProxyType(
    {
        **{"save": Action.SAVE_RESULT, "free": Action.FREE, "forward": Action.FORWARD},
        **{"preload": Action.PRELOAD, "save_for_grad": Action.SAVE_FOR_GRAD},
        **{"free_after_trng": Action.FREE_AFTER_TRNG},
    }
)
SYSTEM: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        **{"input": (INPUT, USER), "parameter": (INPUT, PARAMETER), "state": (INPUT, STATE)},
        **{"constant": (INPUT, LIFTED), "saved": (INPUT, SAVED), "target": (INPUT, TARGET)},
        **{"output": (OUTPUT, FINAL), "suboutput": (OUTPUT, SUBGRAPH), "update": (OUTPUT, UPDATE)},
        **{"finish": (OUTPUT, TRAINED), "branch": (CONTROL_FLOW, 0)},
        **{"converge": (CONVERGENCE, 0)},
    }
)
"""The instructions that have no signature: field A and field B; that of `converge` is its threshold."""
RAW = "raw"
RESERVED = frozenset({*SYSTEM, RAW, "inf", "nan"})
"""Words that are not read as the name of an operation."""
ZEROS, HEX, BASE64, TEXT, FILE = "zeros", "hex", "base64", "text", "file"

_BARE = re.compile(r"[A-Za-z_][0-9A-Za-z_]*+(?:\.[0-9A-Za-z_]++)*+")


def is_bare(name: str) -> bool:
    """Whether a name can be written without quotes."""
    return _BARE.fullmatch(name) is not None and name not in ("inf", "nan")
