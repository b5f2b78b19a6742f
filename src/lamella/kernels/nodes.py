"""The form of kernels: a graph, one tensor-language program, and which kernels compute which operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lamella.graph.model import Model
from lamella.lang.tensor.nodes import Program


@dataclass(frozen=True, slots=True)
class Operand:
    """An argument of a kernel: a tensor of the operation by the name that its operator gives it.

    `shape` is that of the memref, the last dimension of the tensor first; neighbouring dimensions may be one mode.
    """

    name: str
    item: int | None
    """Which tensor of a pack; None for a single tensor."""
    shape: tuple[int, ...]
    element: str


@dataclass(frozen=True, slots=True)
class Call:
    """One launch of a kernel."""

    kernel: str
    operands: tuple[Operand, ...]
    groups: int = 1
    has_fault: bool = False
    """Whether the last parameter is a place where the kernel says that a step has no value."""


@dataclass(frozen=True, slots=True)
class KernelGraph:
    """A graph whose operations are computed by the kernels of a program, launched in order.

    `calls` is keyed by what tells operations apart (`graph.signature`); an operation without calls is native: its
    components are run instead, or the host computes it.
    """

    model: Model
    program: Program
    calls: Mapping[object, tuple[Call, ...]]

    @property
    def language(self) -> str:
        """The form that it is: no language, because it is a graph in one and a program in another."""
        return "kernels"
