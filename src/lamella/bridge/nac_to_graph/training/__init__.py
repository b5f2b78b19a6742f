"""Training graphs of NAC files: found, joined with their programs, translated."""

from __future__ import annotations

from lamella.bridge.nac_to_graph.training.find import find_backward, has_training, no_training
from lamella.bridge.nac_to_graph.training.join import join_training
from lamella.bridge.nac_to_graph.training.nodes import Backward, Change, Step, Trained
from lamella.bridge.nac_to_graph.training.translate import check_training, step_of, translate_step

__all__ = [
    "Backward",
    "Change",
    "Step",
    "Trained",
    "check_training",
    "find_backward",
    "has_training",
    "join_training",
    "no_training",
    "step_of",
    "translate_step",
]
