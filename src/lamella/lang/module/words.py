"""The words of the Module DSL: all are contextual, and some cannot be declared."""

from __future__ import annotations

from types import MappingProxyType

DTYPES = frozenset(
    [
        "bf16",
        "fp32",
        "fp16",
        "fp64",
        "fp8_e4m3",
        "fp8_e5m2",
        "fp4_e2m1",
        "int4",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "bool",
    ]
)
"""Element types; the last item of a tensor type is one when it has this name."""

KINDS = frozenset(("module", "block", "model"))
"""Words that begin a declaration with sections."""

SETTINGS = frozenset(("verify_backward", "topology", "groups"))
"""Words that begin a block of settings of a file."""

OPENERS = KINDS | {"abstract", "primitive", "recipe", "preset", "import", "from", "export"}
"""Words that begin an item of a file."""

SECTIONS = frozenset(
    [
        "let",
        "constraint",
        "constants",
        "params",
        "pattern",
        "forward",
        "backward",
        "hf_config",
        "hf_mapping",
        "hf_export",
    ]
)
"""Words that begin a section of a declaration."""

HEADERS = (SECTIONS | SETTINGS | {"graph", "sublayers", "param_mapping", "inputs", "outputs"}) - {"pattern"}
"""Words that stand alone before ':' at the head of a block."""

CONFIG_TYPES = ("int", "float", "bool", "string", "dtype", "dict", "enum")
"""Types of config parameters."""

SCALARS = frozenset(("int", "float"))
"""Types of inputs that are numbers."""

OPERATOR_WORDS = frozenset(("if", "else", "elif", "and", "or", "not"))
"""Words that are never a name in an expression."""

TABLES = frozenset(
    (
        *("precompute_rope_freqs", "precompute_yarn_freqs", "rotary_table", "sinusoid_table"),
        *("zeros", "ones", "full", "arange"),
    )
)
"""Functions that `constants:` may call."""

KEYWORDS = frozenset(
    [
        "module",
        "block",
        "model",
        "primitive",
        "forward",
        "backward",
        "params",
        "let",
        "in",
        "out",
        "if",
        "else",
        "graph",
        "save",
        "recompute",
        "pattern",
        "impl",
        "extends",
        "abstract",
        "import",
        "true",
        "false",
        "None",
        "constraint",
    ]
)
"""The keywords of the specification; they are keywords only where they are one."""

RESERVED = (
    KEYWORDS
    | DTYPES
    | {"Tensor", "int", "float", "bool", "string"}
    | {"zeros", "ones", "full", "arange", "tied_to", "fuse", "split", "transform", "saved"}
    | {"memory", "hook", "adapter", "dtype", "precision", "nofuse", "shard", "checkpoint"}
)
"""Names that cannot be declared; tensors are free of this, and so are parameters named like a primitive."""

STACKED = "StackedBlocks"
"""The operation that calls every element of an array in turn."""

SUGAR = MappingProxyType(
    {
        "Embedding": "embedding",
        "RMSNorm": "rmsnorm",
        "LayerNorm": "layernorm",
        "Add": "add",
        "ReLU": "relu",
        "Split": "split",
        "Fork": "fork",
        "FlashAttention": "flash_attention",
    }
)
"""Capitalised words of the specification's first chapters, and the primitives they mean."""

ROPE_KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
"""Kinds of rotary positions that a table can have."""


def called_rope(found: object) -> str:
    """What we call a kind of rotary positions: older files of Phi-3 have a word of their own for one.

    In a text alone all sections of multi-modal positions are the same ones.
    """
    others = {"su": "longrope", "mrope": "default"}
    return others.get(found, found) if isinstance(found, str) else "?"
