"""Random small programs: nests, windows, deps, waits, sync, outer tokens, mod and div offsets."""

from __future__ import annotations

import random

from lamella.lang.nem.resolved import Buffer, Index, Item, Plan, Region, Task
from tests.support.plan.build import Builder, index, loop, operation, plus, region, variable, wait

SIZE = 48


class Writer:
    """Writes one program from a seed; every choice is the seed's."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.build = Builder()
        self.buffers = [self.build.buffer(name, SIZE) for name in ("A", "B")]
        self.left = self.random.randint(2, 7)
        self.unusual = self.random.random() < 0.15

    def plan(self) -> Plan:
        return self.build.plan(self.items([], [], 0))

    def items(self, tokens: list[Task], loops: list[tuple[int, int, int]], depth: int) -> list[Item]:
        """One statement list; tokens of the lists around are visible, new ones only here."""
        visible = list(tokens)
        found: list[Item] = []
        for _ in range(self.random.randint(1, 4)):
            kind = self.random.random()
            if kind < 0.3 and depth < 3:
                found.append(self.loop(visible, loops, depth))
            elif kind < 0.42 and visible:
                found.append(wait(*self.some(visible, 1)))
            elif self.left > 0:
                self.left -= 1
                task = self.task(visible, loops)
                visible.append(task)
                found.append(task)
        return found

    def some(self, tokens: list[Task], least: int) -> list[Task]:
        count = min(len(tokens), self.random.choice((least, least, 1, 2)))
        return self.random.sample(tokens, count)

    def loop(self, tokens: list[Task], loops: list[tuple[int, int, int]], depth: int) -> Item:
        number = self.build.loop_number()
        first = self.random.randint(-2, 3)
        trips = self.random.choice((0, 1, 2, 3, 3, 4, 5))
        window = self.random.randint(1, 4)
        inner = [*loops, (number, first, first + trips - 1)]
        return loop(number, first, first + trips - 1, window, self.items(tokens, inner, depth + 1))

    def task(self, tokens: list[Task], loops: list[tuple[int, int, int]]) -> Task:
        inputs = [self.region(loops) for _ in range(self.random.randint(0, 2))]
        outputs = [self.region(loops) for _ in range(self.random.choice((0, 1, 1, 2)))]
        opcode = self.random.choice(("add", "transfer", "conv2d"))
        deps = self.some(tokens, 0)
        return self.build.task(opcode, inputs, outputs, deps, sync=self.random.random() < 0.08)

    def region(self, loops: list[tuple[int, int, int]]) -> Region:
        where: Buffer = self.random.choice(self.buffers)
        extent = self.random.choice((1, 2, 3, 4, 6))
        offset = index(self.random.randint(0, 12))
        for number, _, _ in loops:
            if self.random.random() < 0.75:
                offset = plus(
                    offset, self.term(number, loops), self.random.choice((-3, -1, 1, 2, 3, 4, 6, 8))
                )
        return region(where, offset, extent)

    def term(self, number: int, loops: list[tuple[int, int, int]]) -> Index:
        of = variable(number)
        other = variable(self.random.choice(loops)[0])
        kind = self.random.random()
        if kind < 0.4:
            return of
        of = plus(index(self.random.randint(-1, 3)), of, self.random.choice((1, 1, 1, 2, 3)))
        if kind < 0.5:
            of = plus(of, other)
        if self.unusual and kind > 0.8:
            return operation("*", of, other)
        sign = self.random.choice(("mod", "mod", "/"))
        return operation(sign, of, self.random.choice((2, 2, 3, 4, -3)))
