"""Random NEM programs in text: nests of loops with loads, rings, reloads, work and stores; chains over all levels."""

from __future__ import annotations

import random
from itertools import pairwise

HEAD = """\
buffer A : L2 (size=512)
buffer Y : L2 (size=1024)
buffer B0 : L1 (size=64)
buffer B1 : L1 (size=64)
buffer B2 : L1 (size=64)
"""


class Writer:
    """Writes one program; every choice is the seed's."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.names = 0
        self.rings = {name: self.random.choice((1, 1, 2, 3)) for name in ("B0", "B1", "B2")}

    def text(self) -> str:
        self.body([], [], 0)
        return HEAD + "\n".join(self.lines) + "\n"

    def put(self, line: str, depth: int) -> None:
        self.lines.append("    " * depth + line)

    def body(self, loops: list[str], tokens: list[str], depth: int) -> None:
        visible = list(tokens)
        for _ in range(self.random.randint(2, 5)):
            kind = self.random.random()
            if kind < 0.25 and depth < 2:
                self.loop(loops, visible, depth)
            elif kind < 0.35 and visible:
                self.put(f"wait({', '.join(visible)})", depth)
            else:
                self.task(loops, visible, depth)

    def loop(self, loops: list[str], tokens: list[str], depth: int) -> None:
        variable = "ik"[depth]
        last, window = self.random.randint(0, 3), self.random.choice((1, 1, 1, 2, 3))
        mark = f" @max_in_flight({window})" if window > 1 else ""
        self.put(f"loop {variable} in [0..{last}]{mark}:", depth)
        self.body([*loops, variable], tokens, depth + 1)
        self.put("endloop", depth)

    def task(self, loops: list[str], tokens: list[str], depth: int) -> None:
        deps = [name for name in tokens if self.random.random() < 0.9]
        sync = self.random.random() < 0.2
        form = "sync" if sync else "async"
        self.names += 1
        name = f"t{self.names}"
        kind = self.random.random()
        wait = f", deps=[{', '.join(deps)}]" if deps else ""
        if kind < 0.45:
            self.put(
                f"{name} = transfer.{form}(dst={self.slot(loops)}, src={self.tile('A', loops)}{wait})", depth
            )
        elif kind < 0.65:
            self.put(
                f"{name} = store.{form}(dst={self.tile('Y', loops)}, src={self.slot(loops)}{wait})", depth
            )
        else:
            typed = "elem=i8, shape=[16], layout=N"
            inputs = f"{self.slot(loops)} {typed}, {self.slot(loops)} {typed}"
            after = f" deps=[{', '.join(deps)}]" if deps else ""
            self.put(f"{name} = add.{form} in {inputs} out {self.slot(loops)} {typed}{after}", depth)
        tokens.append(name)

    def slot(self, loops: list[str]) -> str:
        """A place in L1: fixed, or in a ring of the outermost loop."""
        buffer = self.random.choice(("B0", "B1", "B2"))
        modulus = self.rings[buffer]
        if modulus == 1 or not loops:
            return f"region({buffer}, {self.random.choice((0, 0, 16, 32, 48, 40))}, 16)"
        return f"region({buffer}, (i mod {modulus}) * 16, 16)"

    def tile(self, buffer: str, loops: list[str]) -> str:
        """A place in L2: fixed, or moving with some of the loops."""
        terms = [f"{name} * {self.random.choice((16, 64))}" for name in loops if self.random.random() < 0.6]
        return f"region({buffer}, {' + '.join([*terms, str(16 * self.random.randint(0, 8))])}, 16)"


class Chain:
    """A chain over all levels for npm_lite, one slot a buffer: DDR → L2 → L1, work, L1 → L2 → DDR, tile by tile."""

    def __init__(self, seed: int) -> None:
        pick = random.Random(seed)
        self.tiles, self.size = pick.randint(1, 20), pick.choice((64, 256, 1024, 8192, 65536))
        self.stages, self.slots = pick.randint(1, 3), pick.choice((1, 1, 1, 2))
        self.store = pick.choice(("store", "transfer"))
        self.sync = pick.choice(("async", "async", "sync"))

    def text(self) -> str:
        names = [f"B{stage}" for stage in range(self.stages + 1)]
        lines = ['include "npm_lite.nem"', "device npm_lite", "program chain:"]
        lines += [f"buffer {name} : DDR (size={self.tiles * self.size})" for name in "XY"]
        lines += [f"buffer {name} : L2 (size={self.slots * self.size})" for name in ("XM", "YM")]
        lines += [f"buffer {name} : L1 (size={self.slots * self.size})" for name in names]
        window = f" @max_in_flight({self.slots})" if self.slots > 1 else ""
        lines += [f"loop i in [0..{self.tiles - 1}]{window}:"]
        lines += [f"    {line}" for line in self._body(names)]
        return "\n".join([*lines, "endloop", ""])

    def _body(self, names: list[str]) -> list[str]:
        tile = f"i * {self.size}, {self.size}"
        moves = [
            (f"{self.sync}(dst={self._slot('XM')}, src=region(X, {tile})", "transfer"),
            (f"async(dst={self._slot('B0')}, src={self._slot('XM')}", "transfer"),
        ]
        lines = [f"m{n} = {word}.{move}{self._deps(n)})" for n, (move, word) in enumerate(moves)]
        typed = f"elem=i8, shape=[{self.size}], layout=N"
        last = "m1"
        for stage, (source, target) in enumerate(pairwise(names)):
            regions = f"in {self._slot(source)} {typed} out {self._slot(target)} {typed}"
            lines.append(f"c{stage} = relu.async {regions} deps=[{last}]")
            last = f"c{stage}"
        lines.append(
            f"s = {self.store}.async(dst={self._slot('YM')}, src={self._slot(names[-1])}, deps=[{last}])"
        )
        lines.append(f"transfer.async(dst=region(Y, {tile}), src={self._slot('YM')}, deps=[s])")
        return lines

    def _deps(self, number: int) -> str:
        return f", deps=[m{number - 1}]" if number else ""

    def _slot(self, buffer: str) -> str:
        offset = f"(i mod {self.slots}) * {self.size}" if self.slots > 1 else "0"
        return f"region({buffer}, {offset}, {self.size})"
