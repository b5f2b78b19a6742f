"""Gradients of Module DSL instances: derived from the primitives, or as their backward sections say."""

from __future__ import annotations

from lamella.bridge.module_to_graph.backward.differentiate import declares_gradients, differentiate
from lamella.bridge.module_to_graph.backward.nodes import Differentiated
from lamella.bridge.module_to_graph.backward.verify import Verification, verify_backward

__all__ = ["Differentiated", "Verification", "declares_gradients", "differentiate", "verify_backward"]
