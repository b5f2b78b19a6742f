"""Gradients of Module DSL instances: derived from the primitives, or as their backward sections say."""

from __future__ import annotations

from lamella.bridge.module_to_graph.backward.differentiate import declares_gradients, differentiate
from lamella.bridge.module_to_graph.backward.nodes import Differentiated

__all__ = ["Differentiated", "declares_gradients", "differentiate"]
