"""The two programs that a file carries beside its code, instruction by instruction: manifest and plan."""

from __future__ import annotations

from lamella.lang.nac.assembly.programs.jumps import resolve_jumps
from lamella.lang.nac.assembly.programs.manifest import (
    MANIFEST_NAMES,
    decode_manifest,
    encode_manifest,
    encode_manifest_step,
)
from lamella.lang.nac.assembly.programs.plan import PLAN_NAMES, PLAN_WORDS, decode_plan, encode_plan_step
from lamella.lang.nac.assembly.programs.problem import StepProblem

__all__ = [
    "MANIFEST_NAMES",
    "PLAN_NAMES",
    "PLAN_WORDS",
    "StepProblem",
    "decode_manifest",
    "decode_plan",
    "encode_manifest",
    "encode_manifest_step",
    "encode_plan_step",
    "resolve_jumps",
]
