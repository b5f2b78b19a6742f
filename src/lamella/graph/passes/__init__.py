"""Passes: pure functions from a model to a model, one file each.

`fold_constants`, `specialise_shapes` and `optimise` need more than the model, and are imported from their files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from lamella.graph.model import Model
from lamella.graph.passes.cancel_transposes import cancel_transposes
from lamella.graph.passes.merge_equal import merge_equal
from lamella.graph.passes.propagate_layout import propagate_layout
from lamella.graph.passes.relax import relax
from lamella.graph.passes.remove_dead import remove_dead
from lamella.graph.passes.remove_unused_variables import remove_unused_variables
from lamella.graph.passes.simplify import simplify

Pass: TypeAlias = Callable[[Model], Model]

PASSES: Mapping[str, Pass] = MappingProxyType(
    {
        "simplify": simplify,
        "propagate_layout": propagate_layout,
        "cancel_transposes": cancel_transposes,
        "merge_equal": merge_equal,
        "remove_dead": remove_dead,
        "remove_unused_variables": remove_unused_variables,
        "relax": relax,
    }
)
"""The passes that need nothing but the model, in the order in which they help each other; the last changes numbers."""
