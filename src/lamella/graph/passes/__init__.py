"""Passes: pure functions from a model to a model, one file each.

`fold_constants`, `specialise_shapes` and `optimise` need more than the model, `merge_products` and `fuse` need
numpy: they are imported from their files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from lamella.graph.model import Model
from lamella.graph.passes.cancel_transposes import cancel_transposes
from lamella.graph.passes.chunk_scores import chunk_scores
from lamella.graph.passes.cse import cse
from lamella.graph.passes.dce import dce
from lamella.graph.passes.decompose_all import decompose_all
from lamella.graph.passes.fast_math import fast_math
from lamella.graph.passes.fold_batch_norm import fold_batch_norm
from lamella.graph.passes.fold_transposes import fold_transposes
from lamella.graph.passes.local_views import local_views
from lamella.graph.passes.propagate_layout import propagate_layout
from lamella.graph.passes.simplify import simplify
from lamella.graph.passes.variable_dce import variable_dce

Pass: TypeAlias = Callable[[Model], Model]

PASSES: Mapping[str, Pass] = MappingProxyType(
    {
        "decompose_all": decompose_all,
        "simplify": simplify,
        "propagate_layout": propagate_layout,
        "cancel_transposes": cancel_transposes,
        "cse": cse,
        "dce": dce,
        "variable_dce": variable_dce,
        "fast_math": fast_math,
        "fold_transposes": fold_transposes,
        "fold_batch_norm": fold_batch_norm,
        "local_views": local_views,
        "chunk_scores": chunk_scores,
    }
)
"""The passes that need nothing but the model, in the order in which they help each other."""

BEFORE_KERNELS = (
    "decompose_all",
    "simplify",
    "cancel_transposes",
    "fold_transposes",
    "cse",
    "dce",
    "fold_batch_norm",
    "merge_products",
    "local_views",
    "cse",
    "dce",
    "fuse",
)
"""What a graph goes through on its way to kernels, in order."""

INEXACT: Mapping[str, str] = MappingProxyType(
    {
        "propagate_layout": "sums may be added up in another order",
        "variable_dce": "variables that nothing reads go, and with them their numbers",
        "fast_math": "floating-point identities that hold for real numbers alone",
        "fold_transposes": "sums may be added up in another order",
        "fold_batch_norm": "weights are rounded after they are scaled",
        "chunk_scores": "gradients of a weight are added up chunk by chunk",
        "merge_products": "sums may be added up in another order",
    }
)
"""What changes by passes that do not keep every bit of every tensor; all others are tested to do so."""

FORMER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "merge_equal": "cse",
        "remove_dead": "dce",
        "remove_unused_variables": "variable_dce",
        "relax": "fast_math",
    }
)
"""What passes were called before they had the names of the field; asked for by these, they still run."""
