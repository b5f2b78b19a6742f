"""Branches and convergences: the blocks of instructions that become regions, and what is made where they join."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import BOOL
from lamella.bridge.nac_to_graph.nodes import FAILED, UNTYPED, Untyped, Value, describe, first_tensor
from lamella.bridge.nac_to_graph.recorder import Recorder
from lamella.graph.nodes import Region, Tensor
from lamella.lang.nac.nodes import CONTROL_FLOW, Instruction
from lamella.lang.nac.regions import Block, read_blocks
from lamella.lang.nac.rules import graphs
from lamella.lang.nac.rules import instructions as rules

CONVERGE = "nac.converge"
USUAL_THRESHOLD = 50
"""The threshold in percent that 0 stands for."""


@dataclass(slots=True)
class _Open:
    """The blocks of an instruction so far: what each one hands over, and as a region where it may be skipped."""

    results: list[Sequence[Tensor] | None] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    untyped: bool = False
    """Whether only a run tells what some block hands over."""


class Flow:
    """Follows the blocks of a checked program while its instructions are translated."""

    def __init__(
        self,
        builder: Recorder,
        instructions: Sequence[Instruction],
        counts: Mapping[int, int],
        report: Callable[[Diagnostic], None],
    ) -> None:
        self._builder = builder
        self._instructions = instructions
        self._counts = counts
        self._report = report
        self._blocks = read_blocks(instructions)
        self._open: dict[int, _Open] = {}

    def enter(self, index: int) -> None:
        """Come to an instruction, which may be the first of a block."""
        block = self._blocks.at(index)
        if block is not None and block.start == index:
            self._open.setdefault(block.owner, _Open())
            if self._is_branch(block):
                self._builder.open_region()

    def leave(self, index: int, values: Sequence[Value]) -> int | None:
        """Leave an instruction; the one whose blocks join behind it, where there is one."""
        block = self._blocks.at(index)
        if block is None or block.stop != index + 1:
            return None
        found, opened = self._results(block, values), self._open[block.owner]
        opened.results.append(found)
        if self._is_branch(block):
            opened.regions.append(self._builder.close_region(found or ()))
        owned = self._blocks.owned[block.owner]
        return block.owner if block.number == len(owned) - 1 else None

    def is_outside(self, index: int, target: int) -> bool:
        """Whether a result comes from before the block of an instruction."""
        return target < self._blocks.start(index)

    def _is_branch(self, block: Block) -> bool:
        return self._instructions[block.owner].operation == CONTROL_FLOW

    # --- what blocks hand over ------------------------------------------------------------------------------

    def _results(self, block: Block, values: Sequence[Value]) -> Sequence[Tensor] | None:
        """The tensors that a block hands over; None where one of them is none."""
        places = [
            (index, index + offset)
            for index in self._blocks.handing(self._instructions, block)
            for offset in self._instructions[index].offsets
        ]
        wanted = self._counts.get(block.owner, len(places)) if self._is_branch(block) else 1
        if wanted > len(places):
            problem = f"lamella.json says {wanted} results; block {block.number} hands over {len(places)}"
            span = self._instructions[block.owner].span
            self._report(rules.RESULT_COUNT.at(span, index=block.owner, problem=problem))
            return None
        found = [self._tensor(*place, number, values) for number, place in enumerate(places[:wanted])]
        tensors = [item for item in found if item is not None]
        return tensors if len(tensors) == len(found) else None

    def _tensor(self, index: int, target: int, number: int, values: Sequence[Value]) -> Tensor | None:
        value = values[target]
        tensor = first_tensor(value)
        if isinstance(value, Untyped):
            block = self._blocks.at(index)
            if block is not None:
                self._open[block.owner].untyped = True
        elif tensor is None and value is not FAILED:
            span, what = self._instructions[index].span, describe(value)
            self._report(graphs.OUTPUT_KIND.at(span, number=number, target=target, what=what))
        return tensor

    # --- joins ----------------------------------------------------------------------------------------------

    def join(self, owner: int, values: Sequence[Value]) -> Value:
        """The result of a branch or of a convergence whose blocks are over."""
        item, opened = self._instructions[owner], self._open.pop(owner)
        found = [results for results in opened.results if results is not None]
        if len(found) != len(opened.results):
            return UNTYPED if opened.untyped else FAILED
        problems = list(self._differences(owner, found))
        for problem in problems:
            self._report(problem)
        if item.operation == CONTROL_FLOW:
            condition = self._condition(owner, values)
            if isinstance(condition, Untyped) and not problems:
                return UNTYPED
            if not isinstance(condition, Tensor) or problems:
                return FAILED
            return self._builder.add_branch(condition, opened.regions)
        if problems:
            return FAILED
        threshold = item.variant or USUAL_THRESHOLD
        return self._builder.call(CONVERGE, tuple(results[0] for results in found), threshold=threshold)

    def _differences(self, owner: int, found: Sequence[Sequence[Tensor]]) -> Iterator[Diagnostic]:
        span = self._instructions[owner].span
        for second, results in enumerate(found[1:], 1):
            if len(results) != len(found[0]):
                problem = f"its blocks hand over {len(found[0])} and {len(results)} results"
                yield rules.RESULT_COUNT.at(span, index=owner, problem=problem)
            for number, (one, other) in enumerate(zip(found[0], results, strict=False)):
                if (one.element, one.shape) != (other.element, other.shape):
                    names = (describe(one), describe(other))
                    told = rules.RESULT_TYPES.at(
                        span, number=number, index=owner, one=names[0], other=names[1], first=0, second=second
                    )
                    yield told

    def _condition(self, owner: int, values: Sequence[Value]) -> Tensor | Untyped | None:
        item = self._instructions[owner]
        value = values[owner + item.offsets[0]]
        if isinstance(value, Untyped):
            return value
        tensor = first_tensor(value)
        if tensor is not None and (tensor.element, tensor.shape) == (BOOL, ()):
            return tensor
        if value is not FAILED:
            self._report(graphs.CONDITION.at(item.span, index=owner, what=describe(value)))
        return None
