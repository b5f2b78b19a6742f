"""Training: steps as graphs, optimisers as operators, and what goes on around them.

`lamella.train(model, data, …)` is the function, and `lamella.train` the package with its parts: whichever of the two
was loaded first, the name means both.
"""

from __future__ import annotations

import sys
from types import ModuleType

from lamella.train.fit import Trained, train
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
    "Trained",
    "Trainer",
    "train",
    "trainable",
    "trainable_file",
    "trainable_graph",
    "trainable_source",
]


class _CallablePackage(ModuleType):
    """A package that is called like its function: importing it puts it where the function is looked for."""

    __call__ = staticmethod(train)


sys.modules[__name__].__class__ = _CallablePackage
