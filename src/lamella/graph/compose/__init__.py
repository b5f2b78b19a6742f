"""Composition: the text of a graph becomes tensors and operations."""

from lamella.graph.compose.decompose import compose_call, decompose
from lamella.graph.compose.entry import Composed, compose

__all__ = ["Composed", "compose", "compose_call", "decompose"]
