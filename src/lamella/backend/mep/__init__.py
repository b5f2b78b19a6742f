"""The machine of plans: runs the orchestrator's bytecode, and touches nothing that is not granted."""

from __future__ import annotations

from lamella.backend.mep.host import CAPABILITIES, Host, HostError, Model, Tokenizer
from lamella.backend.mep.machine import Outcome, run_plan
from lamella.backend.mep.patch import constant_names, patch_constants
from lamella.backend.mep.state import Budget
from lamella.backend.mep.values import Value

__all__ = [
    "CAPABILITIES",
    "Budget",
    "Host",
    "HostError",
    "Model",
    "Outcome",
    "Tokenizer",
    "Value",
    "constant_names",
    "patch_constants",
    "run_plan",
]
