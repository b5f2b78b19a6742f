"""Graphs for pages: many operations in modules, and names that do harm where they are taken for more."""

from __future__ import annotations

from lamella.base.dtype import F32
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.ops.library import Library


def make_layers(layers: int, width: int = 8, name: str = "many") -> Model:
    """A chain of blocks of eight operations, two of which are a branch that is added again."""
    build = Builder(Library(), name)
    x = build.input("x", F32, (2, width))
    for number in range(layers):
        x = _block(build, x, f"blocks.{number}")
    return Model(build.finish(x), build.library)


def _block(build: Builder, x: Tensor, path: str) -> Tensor:
    inner = build.call("math.exp", x, results=(f"{path}.norm.exp",))
    inner = build.call("math.neg", inner, results=(f"{path}.norm.neg",))
    left = build.call("nn.relu", inner, results=(f"{path}.mlp.relu",))
    left = build.call("math.abs", left, results=(f"{path}.mlp.abs",))
    right = build.call("nn.sigmoid", inner, results=(f"{path}.gate.sigmoid",))
    right = build.call("math.neg", right, results=(f"{path}.gate.neg",))
    both = build.call("math.mul", left, right, results=(f"{path}.mul",))
    return build.call("math.add", both, x, results=(f"{path}.add",))
