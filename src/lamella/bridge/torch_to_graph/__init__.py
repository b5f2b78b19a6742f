"""The road from PyTorch: programs of torch.export as graphs."""

from __future__ import annotations

from lamella.bridge.torch_to_graph.translate import torch_to_graph

__all__ = ["torch_to_graph"]
