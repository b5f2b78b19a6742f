"""What each instruction of a plan does."""

from __future__ import annotations

from types import MappingProxyType

from lamella.backend.mep.actions.mathematics import MATHEMATICS
from lamella.backend.mep.actions.output import OUTPUT
from lamella.backend.mep.actions.running import RUNNING, TRAINING, refuse_training, run_models
from lamella.backend.mep.actions.sources import SOURCES
from lamella.backend.mep.actions.tensors import TENSORS
from lamella.backend.mep.actions.texts import TEXTS
from lamella.backend.mep.state import Actions

ACTIONS: Actions = MappingProxyType({**SOURCES, **TEXTS, **TENSORS, **MATHEMATICS, **OUTPUT})
"""The instructions that need nothing but their operands."""

__all__ = ["ACTIONS", "RUNNING", "TRAINING", "refuse_training", "run_models"]
