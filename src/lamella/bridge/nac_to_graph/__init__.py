"""What a NAC file says, as a graph and its data."""

from __future__ import annotations

from lamella.bridge.nac_to_graph.nodes import InputType, Translation
from lamella.bridge.nac_to_graph.translate import check_translation, find_unknown, nac_to_graph

__all__ = ["InputType", "Translation", "check_translation", "find_unknown", "nac_to_graph"]
