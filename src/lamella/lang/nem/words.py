"""The words of NEM: what is reserved, and the closed lists of the grammar."""

from __future__ import annotations

ELEMENTS = frozenset(["i4", "i8", "i16", "i32", "u8", "u16", "u32", "f16", "bf16", "f32"])
LEVELS = frozenset(("DDR", "L2", "L1"))
UNITS = frozenset(["NMU", "CSTL", "DMA", "VPU", "SEQ", "sDMA", "WDM"])
FORMS = frozenset(("async", "sync"))
MOVES = frozenset(("transfer", "store"))
QUANT_FORMS = frozenset(("per_tensor", "per_channel", "per_group"))
TYPE_WORDS = frozenset(["elem", "shape", "layout", "strides", "quant"])

STATEMENT_WORDS = frozenset(
    ["const", "let", "buffer", "loop", "endloop", "wait", "include", "program", "device", "type_family"]
)
"""Words that begin a statement wherever they stand, so that a parser may go on there after an error."""

KEYWORDS = STATEMENT_WORDS | TYPE_WORDS | frozenset(["region", "in", "out", "extends", "deps", "mod"])
"""Words that are never a name."""

RESERVED = KEYWORDS | LEVELS | ELEMENTS
"""Words that cannot be declared; of these, element types and memory levels may stand where a name is used."""

TASK_DECORATORS = frozenset(["resource", "deterministic", "memmove", "seq_engine"])
"""Decorators that belong to the task also when they are written behind its last operand."""

NOTE_DECORATORS = frozenset(("debug", "profile"))
"""Decorators that belong to the task when they end the statement, and else to what they are written behind."""
