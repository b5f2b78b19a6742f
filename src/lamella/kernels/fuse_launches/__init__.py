"""Launch fusion: on a GPU a launch costs more than a small kernel computes.

Small launches in a row are *phases* of one kernel with one work-group: each subgroup takes work-groups of a phase in
turn. Independent phases run side by side (horizontal fusion), in many work-groups where there are no others; barriers
stand between the others. What one multiprocessor moves slower than a launch begins stays a launch. A larger launch
absorbs small producers that it alone reads, unless that costs more: each of its work-groups recomputes them in local
memory (the norm before a product, the activation between two). A contiguous copy is no launch at all: who reads it
reads the original.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.fuse_launches.consumers import ConsumerFusion
from lamella.kernels.fuse_launches.copies import forward_copies
from lamella.kernels.fuse_launches.dependent_launch import FEW_BYTES, mark_early_loads
from lamella.kernels.fuse_launches.phase_writer import PhaseMemory, PhaseWriter
from lamella.kernels.fuse_launches.phases import (
    LAUNCH_BYTES,
    MOST_SUBGROUPS,
    Phase,
    find_levels,
    find_phase,
)
from lamella.kernels.launches import Launch, LaunchList
from lamella.lang.tensor.nodes import Function

SHARED_SUBGROUPS = 8
"""Subgroups of a work-group that recomputes what it reads."""
MOST_PHASES = 24
BESIDE_SUBGROUPS = 4
"""Subgroups of a work-group of horizontally fused launches."""
MULTIPROCESSORS = 132
"""Those of the GPU for which it is decided what is worth recomputing: it changes no number."""
MOST_REPEATED = 1 << 13
"""The most work-groups of a launch that may each recompute what a small launch did."""


def fuse_launches(
    whole: LaunchList, functions: Mapping[str, Function]
) -> tuple[LaunchList, tuple[Function, ...]]:
    """The list with fewer launches, and the kernels that these need beside those that there are.

    A list that overwrites states for good stays as it is: what may fail has to come before that.
    """
    if whole.overwritten:
        return whole, ()
    forwarded = _first_things_first(forward_copies(whole, functions), functions)
    fusing = _Fusing(forwarded, functions)
    for launch in forwarded.launches:
        fusing.add(launch)
    fusing.flush()
    made = {item.name: item for item in fusing.made.values()}
    fewer, promised = mark_early_loads(
        _pruned(replace(forwarded, launches=tuple(fusing.done))), {**functions, **made}
    )
    used = {launch.kernel for launch in fewer.launches}
    return fewer, tuple(item for item in (*made.values(), *promised) if item.name in used)


def _first_things_first(whole: LaunchList, functions: Mapping[str, Function]) -> LaunchList:
    """The list with small independent launches hoisted to its beginning.

    Positions are such: each layer rotates by them, and the first one would wait for its own norm as well otherwise.
    """
    front: list[Launch] = []
    rest: list[Launch] = []
    touched: set[str] = set()
    written: set[str] = set()
    for launch in whole.launches:
        phase = find_phase(launch, functions)
        made = {launch.arguments[place].buffer for place in launch.writes}
        used = {item.buffer for item in launch.arguments}
        waits = bool(used & written or made & touched)
        is_little = all(item.reach <= FEW_BYTES for item in launch.arguments)
        if phase is not None and phase.is_small and is_little and not waits:
            front.append(launch)
        else:
            rest.append(launch)
            touched |= used
            written |= made
    return replace(whole, launches=(*front, *rest))


def _pruned(whole: LaunchList) -> LaunchList:
    """The list with the buffers that it uses."""
    used = {item.buffer for launch in whole.launches for item in launch.arguments}
    used |= {view.buffer for view in (*whole.inputs.values(), *whole.outputs.values())}
    return replace(whole, buffers={name: item for name, item in whole.buffers.items() if name in used})


@dataclass(slots=True)
class _Fusing:
    """A list while its launches become fewer."""

    whole: LaunchList
    functions: Mapping[str, Function]
    done: list[Launch] = field(default_factory=list)
    made: dict[object, Function] = field(default_factory=dict)
    _row: list[Phase] = field(default_factory=list)
    _uses: Counter[str] = field(default_factory=Counter)
    _outside: frozenset[str] = frozenset()
    _owners: ConsumerFusion = field(init=False)

    def __post_init__(self) -> None:
        self._owners = ConsumerFusion(self.whole, self.functions)
        for launch in self.whole.launches:
            self._uses.update({item.buffer for item in launch.arguments})
        views = (*self.whole.inputs.values(), *self.whole.outputs.values())
        self._outside = frozenset(item.buffer for item in views)

    def add(self, launch: Launch) -> None:
        """The next launch of the list."""
        phase = find_phase(launch, self.functions)
        if phase is None:
            if not self._add_consumer(launch):
                self.flush()
                self.done.append(launch)
        elif phase.is_small:
            if len(self._row) == MOST_PHASES:
                self.flush()
            self._row.append(phase)
        else:
            self._add_large(phase)

    def _add_large(self, phase: Phase) -> None:
        """A launch of many work-groups, with producers before it that each of them can recompute."""
        for count in range(min(len(self._row), MOST_PHASES), 0, -1):
            rest, taken = self._row[:-count], self._row[-count:]
            worth = phase.launch.groups <= MOST_REPEATED and _is_worth_repeating(taken, phase)
            if worth and self._is_private(taken, phase):
                try:
                    launch = self._fuse([*taken, phase], repeated=True)
                except Unsupported:
                    continue
                self._row = rest
                self.flush()
                self.done.append(launch)
                return
        self.flush()
        self.done.append(phase.launch)

    def _add_consumer(self, launch: Launch) -> bool:
        """A launch of larger work-groups, with producers before it that each can compute for itself."""
        consumer = self._owners.find(launch) if self._row else None
        for count in range(len(self._row) if consumer is not None else 0, 0, -1):
            rest, taken = self._row[:-count], self._row[-count:]
            try:
                found = self._absorb(taken, consumer) if consumer is not None else launch
            except Unsupported:
                continue
            self._row = rest
            self.flush()
            self.done.append(found)
            return True
        return False

    def _absorb(self, taken: Sequence[Phase], consumer: Phase) -> Launch:
        """One launch for a consumer and the producers that it absorbs."""
        sharing = self._owners.find_sharing(taken, consumer)
        phases = (*taken, consumer)
        memory = PhaseMemory(self.whole, phases, self._private(phases), False, sharing.parts)
        before = {launch.arguments[place].buffer for launch in self.done for place in launch.writes}
        waiting = {item.launch.arguments[place].buffer for item in self._row for place in item.launch.writes}
        own = {item.launch.arguments[place].buffer for item in taken for place in item.launch.writes}
        settled = memory.kept.keys() - before - (waiting - own)
        numbers = tuple(number for number, name in enumerate(memory.views) if name in settled)
        key = PhaseWriter(memory, 0).key(phases, False), numbers, sharing.teams
        if key not in self.made:
            name = f"owned_{len(self.made)}"
            self.made[key] = self._owners.write(name, memory, taken, consumer, (sharing, settled))
        return self._launch(self.made[key], memory, consumer.launch.groups, consumer.launch)

    def _is_private(self, taken: Sequence[Phase], phase: Phase) -> bool:
        """Whether only these and the last launch touch what these write (no other reader)."""
        private = self._private([*taken, phase])
        made = {item.launch.arguments[place].buffer for item in taken for place in item.launch.writes}
        read = {item.buffer for item in phase.launch.arguments}
        return (
            bool(made)
            and made <= private
            and bool(made & read)
            and not any(item.launch.has_fault for item in taken)
        )

    def _private(self, phases: Sequence[Phase]) -> set[str]:
        """The buffers that only these launches touch."""
        here: Counter[str] = Counter()
        for item in phases:
            here.update({view.buffer for view in item.launch.arguments})
        return {
            name
            for name, count in here.items()
            if count == self._uses[name] and name not in self._outside and not self.whole.buffers[name].zeroed
        }

    def flush(self) -> None:
        """Emit the small launches that wait, fused where possible."""
        row, self._row = self._row, []
        for run in _runs(row):
            self.done += self._join(run)

    def _join(self, run: Sequence[Phase]) -> Sequence[Launch]:
        """Vertical fusion: one launch for several that follow each other, where possible."""
        if len(run) > 1:
            with suppress(Unsupported):
                beside = len(find_levels(run)) == 1
                return [self._put_beside(run) if beside else self._fuse(run, repeated=False)]
        return [item.launch for item in run]

    def _put_beside(self, phases: Sequence[Phase]) -> Launch:
        """Horizontal fusion: one launch for several independent ones."""
        memory = PhaseMemory(self.whole, phases, set(), False)
        writer = PhaseWriter(memory, BESIDE_SUBGROUPS)
        key = "beside", writer.key(phases, False)
        if key not in self.made:
            self.made[key] = writer.write_beside(f"beside_{len(self.made)}", phases)
        count = sum(item.launch.groups for item in phases)
        return self._launch(self.made[key], memory, -(-count // writer.subgroups), phases[0].launch)

    def _launch(self, function: Function, memory: PhaseMemory, groups: int, origin: Launch) -> Launch:
        return Launch(
            function.name,
            tuple(memory.views.values()),
            tuple(place for place, name in enumerate(memory.views) if name in memory.written),
            groups,
            memory.has_fault,
            origin.operator,
            origin.origin,
        )

    def _fuse(self, phases: Sequence[Phase], repeated: bool) -> Launch:
        """One launch for several; with `repeated` all but the last are recomputed in each work-group of the last."""
        memory = PhaseMemory(self.whole, phases, self._private(phases), repeated)
        groups = phases[-1].launch.groups
        writer = PhaseWriter(memory, _subgroups(phases, repeated))
        key = writer.key(phases, repeated)
        if key not in self.made:
            self.made[key] = writer.write(f"phases_{len(self.made)}", phases, repeated)
        first = phases[-1].launch if repeated else phases[0].launch
        return self._launch(self.made[key], memory, -(-groups // writer.subgroups) if repeated else 1, first)


def _runs(row: Sequence[Phase]) -> Iterator[list[Phase]]:
    """Launches that may become one: small ones that move little; others as long as they run side by side."""
    run: list[Phase] = []
    for item in row:
        joins = bool(run) and run[-1].is_heavy == item.is_heavy
        if joins and item.is_heavy:
            joins = len(find_levels([*run, item])) == 1
        if run and not joins:
            yield run
            run = []
        run.append(item)
    if run:
        yield run


def _is_worth_repeating(taken: Sequence[Phase], phase: Phase) -> bool:
    """Whether recomputing launches in each work-group moves less than those launches would cost."""
    turns = -(-phase.launch.groups // (SHARED_SUBGROUPS * MULTIPROCESSORS))
    return turns * sum(item.moved for item in taken) <= LAUNCH_BYTES * len(taken)


def _subgroups(phases: Sequence[Phase], repeated: bool) -> int:
    most = max(sum(item.launch.groups for item in level) for level in find_levels(phases))
    return SHARED_SUBGROUPS if repeated else min(MOST_SUBGROUPS, -(-most // 4) * 4)
