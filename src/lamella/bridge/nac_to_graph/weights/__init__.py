"""The weights of NAC files as arrays: read, quantised, measured, moved between a file and the one beside it."""

from __future__ import annotations

from lamella.bridge.nac_to_graph.weights.arrays import original_shape, read_stored, read_weight, store_weight
from lamella.bridge.nac_to_graph.weights.convert import (
    Converted,
    Quantised,
    quantise_file,
    with_external,
    with_internal,
)
from lamella.bridge.nac_to_graph.weights.external import (
    Weights,
    companion,
    find_weights,
    own_weights,
    read_external,
)
from lamella.bridge.nac_to_graph.weights.quantise import quantise
from lamella.bridge.nac_to_graph.weights.report import Report, WeightError, measure, report_lines

__all__ = [
    "Converted",
    "Quantised",
    "Report",
    "WeightError",
    "Weights",
    "companion",
    "find_weights",
    "measure",
    "original_shape",
    "own_weights",
    "quantise",
    "quantise_file",
    "read_external",
    "read_stored",
    "read_weight",
    "report_lines",
    "store_weight",
    "with_external",
    "with_internal",
]
