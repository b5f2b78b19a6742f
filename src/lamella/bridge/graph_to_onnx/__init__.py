"""Graphs as ONNX models: every operator directly, by its own decomposition, or by its formulas."""

from __future__ import annotations

from lamella.bridge.graph_to_onnx.file import NEXT, OPSET, graph_to_onnx

__all__ = ["NEXT", "OPSET", "graph_to_onnx"]
