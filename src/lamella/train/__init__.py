"""Training: steps as graphs, optimisers as operators, and what goes on around them."""

from __future__ import annotations

from lamella.train.gradients import trainable, trainable_file, trainable_graph, trainable_source
from lamella.train.settings import StepSettings
from lamella.train.sources import ParameterPolicy, TrainableGraph
from lamella.train.step import StepBuilder, StepGraph
from lamella.train.trainer import StepResult, Trainer

__all__ = [
    "ParameterPolicy",
    "StepBuilder",
    "StepGraph",
    "StepResult",
    "StepSettings",
    "TrainableGraph",
    "Trainer",
    "trainable",
    "trainable_file",
    "trainable_graph",
    "trainable_source",
]
