"""Graphs as NAC files: canonised, laid out, scheduled."""

from __future__ import annotations

from lamella.bridge.graph_to_nac.file import Writing, Written, canonical, graph_to_nac

__all__ = ["Writing", "Written", "canonical", "graph_to_nac"]
