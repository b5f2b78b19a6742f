"""The form of kernels: a graph, one tensor-language program, and which kernels compute which operation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from math import prod

from lamella.base.card import Card, join_names, show_html, show_line
from lamella.base.errors import Unsupported
from lamella.base.levels import at_level
from lamella.base.placement import KERNEL, REFERENCE, OperationPlacement
from lamella.base.records import dataclass
from lamella.base.tuning import TuningReport
from lamella.graph.binding import signature
from lamella.graph.model import Model
from lamella.graph.nodes import Branch, Node, Operation, tensors, walk
from lamella.kernels.launches import ELEMENT_BYTES, Layout, reach_of_memref
from lamella.lang.tensor.nodes import Program
from lamella.lang.tensor.nodes.types import packed_stride
from lamella.lang.tensor.write import card_of_kernels

CONTROL_FLOW = "control flow is the host's; what it runs is counted by itself"


@dataclass(frozen=True, slots=True)
class KernelOperand:
    """An argument of a kernel: a tensor of the operation by the name that its operator gives it.

    `shape` is that of the memref, the last dimension of the tensor first; neighbouring dimensions may be one mode.
    """

    name: str
    item: int | None
    """Which tensor of a pack; None for a single tensor."""
    shape: tuple[int, ...]
    element: str
    whole: bool = False
    """Whether the kernels of the operation write every element of it; what they do not write whole starts as zero."""

    strides: tuple[int, ...] | None = None
    """Of the memref, in elements; without gaps where none are given."""
    offset: int = 0
    """How far behind the start of the tensor's memory the memref begins, in elements."""

    @property
    def is_temporary(self) -> bool:
        """Whether it is memory that only the kernels of one operation share: its name begins with a dot."""
        return self.name.startswith(".")

    @property
    def reach(self) -> int:
        """The elements of memory from the start of the tensor to its last one."""
        strides = self.strides or tuple(stride or 0 for stride in packed_stride(self.shape))
        found = reach_of_memref(self.shape, strides)
        return found and self.offset + found


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One launch of a kernel."""

    kernel: str
    operands: tuple[KernelOperand, ...]
    groups: int = 1
    has_fault: bool = False
    """Whether the last parameter is a place where the kernel says that a step has no value."""
    renames: bool = False
    """Whether it copies its second operand to its first, byte by byte: where both share memory it need not run."""
    shift: int = 0
    """How far behind the start of the second operand's memory that of the first is then, in elements."""
    once: bool = False
    """Whether it reads weights alone, or what is made of them: it need not run in each call."""


def find_temporaries(calls: Iterable[KernelCall]) -> dict[str, KernelOperand]:
    """The temporaries of an operation's kernels by name; Unsupported where two that differ have one name.

    One of two sizes is memory that a kernel leaves, one of two types are numbers that it takes for others.
    """
    found: dict[str, KernelOperand] = {}
    for operand in (item for call in calls for item in call.operands if item.is_temporary):
        known = found.setdefault(operand.name, operand)
        if (known.element, known.reach) != (operand.element, operand.reach):
            raise Unsupported(f"two temporaries are called '{operand.name}'")
    return found


@dataclass(frozen=True, slots=True)
class InPlaceCalls:
    """The launches of an operation that writes its output into a state, and the one that takes that back."""

    state: str
    """The variable that the output is the next value of."""
    undo: str
    """The operand that holds what was overwritten."""
    calls: tuple[KernelCall, ...]
    restore: KernelCall

    @property
    def saved_bytes(self) -> int:
        """The size of what is overwritten."""
        (saved,) = (item for item in self.restore.operands if item.name == self.undo)
        return ELEMENT_BYTES[saved.element] * prod(saved.shape)


@dataclass(frozen=True, slots=True)
class KernelGraph:
    """A graph whose operations are computed by the kernels of a program, launched in order.

    `calls` is keyed by what tells operations apart (`key`); an operation without calls is native: the host computes
    it, and `native` says why. Extents that the graph leaves open have the numbers of `extents`.
    """

    model: Model
    program: Program
    calls: Mapping[object, tuple[KernelCall, ...]]
    native: Mapping[object, str] = field(default_factory=dict)
    extents: Mapping[str, int] = field(default_factory=dict)
    quantizers: tuple[Operation, ...] = ()
    """What quantises tensors as they are produced, where a run does."""
    keys: Mapping[str, object] = field(default_factory=dict)
    """What tells operations apart beside their signature, by the name of their first output: weights, layouts."""

    layouts: Mapping[str, Layout] = field(default_factory=dict)
    """How tensors of the graph lie that do not lie row by row."""
    in_place: Mapping[str, InPlaceCalls] = field(default_factory=dict)
    """How operations run whose output may take the place of a state, by the name of the output."""
    tuning: TuningReport | None = None
    """What was measured to choose its kernels, where somebody asked for that."""

    __repr__ = show_line
    _repr_html_ = show_html
    at = at_level

    def _card(self) -> Card:
        """What it is: its kernels, and the graph that launches them."""
        graph = self.model.graph
        native = [item.operation for item in self.placement if item.where == REFERENCE]
        kernels = card_of_kernels(graph.name, self.program)
        launches = sum(map(len, self.calls.values()))
        facts = (("operations", f"{sum(1 for _ in graph.operations()):,}"), ("launches", f"{launches:,}"))
        left = (("native", f"without kernels: {join_names(native)}"),) if native else ()
        return Card("graph with kernels", graph.name, (*facts, *kernels.facts, *left), kernels.tables)

    def key(self, operation: Operation) -> object:
        """The identity by which operations share kernels."""
        first = next((item.name for output in operation.outputs for item in tensors(output)), "")
        return signature(operation), self.keys.get(first)

    @property
    def renaming(self) -> frozenset[str]:
        """The kernels that only copy what need not move: a launch list has none of them."""
        calls = [call for row in self.calls.values() for call in row]
        calls += [call for item in self.in_place.values() for call in (*item.calls, item.restore)]
        moving = {call.kernel for call in calls if not call.renames}
        return frozenset(call.kernel for call in calls) - moving

    @property
    def language(self) -> str:
        """The form that it is: no language, because it is a graph in one and a program in another."""
        return "kernels"

    @property
    def placement(self) -> list[OperationPlacement]:
        """The placement of each operation (kernel or reference), in order."""
        return [place for _, place in self.placed()]

    def placed(self) -> Iterator[tuple[Node, OperationPlacement]]:
        """Every operation and every branch and loop of the graph, with where it runs."""
        for node in (*walk(self.model.graph.nodes), *self.quantizers):
            if not isinstance(node, Operation):
                yield (
                    node,
                    OperationPlacement("if" if isinstance(node, Branch) else "do", REFERENCE, CONTROL_FLOW),
                )
                continue
            reason = self.native.get(self.key(node))
            yield (
                node,
                OperationPlacement(node.operator, KERNEL if reason is None else REFERENCE, reason or ""),
            )
