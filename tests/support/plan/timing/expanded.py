"""The judge of the simulator: loops unrolled, and the documented rules applied at every moment by plain search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from lamella.lang.nem.resolved import Item, Loop, Plan, Task, Wait
from lamella.plan.timing.cost import Cost, MachineModel, cost_of

TASK, GATE = "task", "gate"
Waits = tuple[tuple[str, int, int], ...]


@dataclass(eq=False)
class Node:
    """A task instance or a gate."""

    number: int
    task: Task | None
    after: list[Node]
    frame: Frame
    tokens: list[Node] = field(default_factory=list)
    values: dict[int, int] = field(default_factory=dict)
    waiters: list[Node] = field(default_factory=list)
    ready: int | None = None
    start: int | None = None
    end: int | None = None
    cause: int = -1
    origin: tuple[int, int] = (-1, -1)
    """The instance, and its task, whose end completes this node: of several the last in program order."""
    units: tuple[int, str] = (0, "")
    unit: int = -1
    waited: Counter[str] = field(default_factory=Counter)
    holder: int = -1


@dataclass(eq=False)
class Frame:
    """A run of a list: the gate that opens it, the run before it, the run around it."""

    gate: Node | None = None
    before: Frame | None = None
    around: Frame | None = None

    def base(self) -> int:
        """From when dependency waits count."""
        if self.gate is None:
            return 0
        if self.before is None and self.around is not None:
            return self.around.base()
        return self.gate.end or 0

    def window(self) -> tuple[int, int]:
        """The cause and the cycles for which the window held the run back."""
        if self.gate is None:
            return -1, 0
        if self.before is None or self.before.gate is None:
            return self.around.window() if self.around else (-1, 0)
        return self.gate.cause, (self.gate.end or 0) - (self.before.gate.end or 0)


class Expanded:
    """Unrolls a plan and simulates it instance by instance."""

    def __init__(self, plan: Plan) -> None:
        self.machine = MachineModel(plan.device)
        self.costs: dict[int, Cost] = {task.number: cost_of(task, self.machine) for task in plan.tasks()}
        self.nodes: list[Node] = []
        self.latest: dict[int, Node] = {}
        self.forced = 0
        self.items(plan.body, Frame(), {})
        self.unready = list(self.nodes)
        self.waiting: list[Node] = []
        self.running: list[Node] = []
        self.begun: list[Node] = []
        self.held: dict[tuple[tuple[int, str], int], int] = {}

    # --- unrolling ------------------------------------------------------------------------------------------

    def add(self, task: Task | None, after: list[Node], frame: Frame, values: Mapping[int, int]) -> Node:
        node = Node(len(self.nodes), task, after, frame, values=dict(values))
        self.nodes.append(node)
        return node

    def items(self, body: tuple[Item, ...], frame: Frame, values: Mapping[int, int]) -> list[Node]:
        gate = frame.gate
        made: list[Node] = []
        for item in body:
            before = [] if gate is None else [gate]
            if isinstance(item, Loop):
                if item.trips <= 0:
                    continue
                node = gate = self.loop(item, frame, values, before)
            else:
                tokens = [self.latest[dep] for dep in dict.fromkeys(item.deps)]
                node = self.add(item if isinstance(item, Task) else None, tokens + before, frame, values)
                node.tokens = tokens
                for token in tokens:
                    token.waiters.append(node)
                if isinstance(item, Task):
                    self.latest[item.number] = node
                if isinstance(item, Wait) or item.sync:
                    gate = node
            made.append(node)
        return made

    def loop(self, loop: Loop, frame: Frame, values: Mapping[int, int], before: list[Node]) -> Node:
        ends: list[Node] = []
        runs: list[Frame] = []
        for trip in range(loop.trips):
            opens = [
                *before,
                *ends[: max(0, trip - loop.window + 1)],
                *(run.gate for run in runs[-1:] if run.gate),
            ]
            run = Frame(before=runs[-1] if runs else None, around=frame)
            here = {**values, loop.number: loop.first + trip}
            run.gate = self.add(None, opens, run, here)
            runs.append(run)
            ends.append(self.add(None, [run.gate, *self.items(loop.body, run, here)], run, here))
        return self.add(None, ends, frame, values)

    # --- simulating -----------------------------------------------------------------------------------------

    def run(self) -> int:
        """Simulate; the cycles of the whole plan."""
        now = 0
        self.pass_gates(now)
        while True:
            self.start_all(now)
            if not self.running:
                return now
            reasons = [(node, self.blocked(node) or "unit") for node in self.waiting]
            later = min(node.end for node in self.running if node.end is not None)
            for node, reason in reasons:
                node.waited[reason] += later - now
            now = later
            self.running = [node for node in self.running if node.end != now]
            self.pass_gates(now)

    def pass_gates(self, now: int) -> None:
        """Find what is ready; gates are complete at once."""
        for node in self.unready:
            if all(other.end is not None and other.end <= now for other in node.after):
                node.ready = max((other.end or 0 for other in node.after), default=0)
                last = [other.origin for other in node.after if other.end == node.ready]
                node.origin = max(last, default=(-1, -1))
                node.cause = node.origin[1]
                if node.task is None:
                    node.start = node.end = node.ready
                else:
                    node.origin = (node.number, node.task.number)
                    self.waiting.append(node)
        self.unready = [node for node in self.unready if node.ready is None]

    def start_all(self, now: int) -> None:
        while True:
            self.waiting.sort(key=lambda node: (node.ready, node.number))
            chosen = next((node for node in self.waiting if self.blocked(node) is None), None)
            if chosen is None and self.waiting and not self.running:
                chosen = self.waiting[0]
                self.forced += 1
            if chosen is None:
                return
            self.start(chosen, now)

    def free(self, node: Node) -> list[int]:
        cost = self.cost(node)
        busy = {other.unit for other in self.running if other.units == cost.place}
        options = list(range(cost.instances))
        if node.task and node.task.resource:
            options = [node.task.resource.index.at(node.values) % cost.instances]
        return [option for option in options if option not in busy]

    def cost(self, node: Node) -> Cost:
        assert node.task is not None
        return self.costs[node.task.number]

    def live(self, engine: int, starting: Node | None) -> int:
        """Tokens of an engine that are live, or would be once a task has started."""
        begun = self.begun if starting is None else [*self.begun, starting]
        return sum(
            any(waiter.start is None and waiter is not starting for waiter in node.waiters)
            for node in begun
            if node.task and (node.task.engine or 0) == engine
        )

    def blocked(self, node: Node) -> str | None:
        """The first thing that is missing, or None."""
        if not self.free(node):
            return "unit"
        limit = self.machine.tokens
        if limit is not None and node.task and node.waiters:
            engine = node.task.engine or 0
            after = self.live(engine, node)
            if after > limit and after > self.live(engine, None):
                return "token"
        for level, rate in self.cost(node).links:
            used = sum(dict(self.cost(other).links).get(level, 0) for other in self.running)
            if used + rate > self.machine.links[level]:
                return "bandwidth"
        return None

    def start(self, node: Node, now: int) -> None:
        cost = self.cost(node)
        node.unit, node.units = self.free(node)[0], cost.place
        node.holder = self.held.get((node.units, node.unit), -1)
        node.start, node.end = now, now + cost.cycles
        self.held[node.units, node.unit] = -1 if node.task is None else node.task.number
        self.waiting.remove(node)
        self.running.append(node)
        self.begun.append(node)

    # --- results --------------------------------------------------------------------------------------------

    def waits(self, node: Node) -> Waits:
        """The stretches of waiting of an instance, as the simulator tells them."""
        held = (node.ready or 0) - node.frame.base()
        cause, window = node.frame.window()
        found = [("dependency", node.cause, held)] if held else [("window", cause, window)]
        found += [("unit", node.holder, node.waited["unit"])]
        found += [(reason, -1, node.waited[reason]) for reason in ("token", "bandwidth")]
        return tuple(item for item in found if item[2])

    def records(self) -> Counter[tuple[int, tuple[int, str], int, Waits]]:
        """How many instances did the same."""
        return Counter(
            (node.task.number, node.units, node.unit, self.waits(node)) for node in self.nodes if node.task
        )
