"""Generated plans, straight and with loops: the machine does what a second interpreter does with the same bytes."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lamella.backend.mep import PlanBudget, run_plan
from lamella.base.diagnostic import LamellaError
from lamella.lang.nac.nodes import Constant, ConstantType, File, Header, Orchestrator
from tests.support.backend.mep.fakes import RecordingHost
from tests.support.backend.mep.interpreter import Judge, WrongError

STEPS = 300
CONSTANTS: list[tuple[ConstantType, Any]] = [
    (ConstantType.INT64, 0),
    (ConstantType.INT64, 1),
    (ConstantType.INT64, 2),
    (ConstantType.INT64, -1),
    (ConstantType.FLOAT64, 0.5),
    (ConstantType.BOOL, True),
    (ConstantType.INT32_LIST, (1, 2, 3)),
    (ConstantType.INT32_LIST, (2, 1)),
    (ConstantType.FLOAT32_LIST, (0.5, -1.5, 3.0)),
    (ConstantType.STRING, "words"),
    (ConstantType.INT64, (1 << 62) + 1),
    (ConstantType.STRING, "{} and {}"),
]
FORMAT = 11
NUMBERS, ARRAYS, TEXT, SHARES = (0, 1, 2, 3), (4, 5, 6, 7), 8, 9
"""Slots by what they mostly hold."""


@dataclass
class Writer:
    """Bytecode while it is drawn."""

    draw: st.DrawFn
    data: bytearray = field(default_factory=bytearray)

    def slot(self, usual: tuple[int, ...]) -> int:
        """A slot of the usual kind, and sometimes another."""
        odd = self.draw(st.integers(0, 19)) == 0
        return self.draw(st.sampled_from((*NUMBERS, *ARRAYS, TEXT) if odd else usual))

    def number(self) -> int:
        """A slot that mostly holds one number."""
        return self.slot(NUMBERS)

    def array(self) -> int:
        """A slot that mostly holds an array."""
        return self.slot(ARRAYS)

    def put(self, code: int, *operands: int) -> None:
        """One instruction whose operands are bytes."""
        self.data += bytes([code, *operands])

    def statement(self) -> None:
        """One instruction that computes."""
        draw = self.draw
        kind = draw(st.sampled_from(list(WRITERS)))
        WRITERS[kind](self)

    def body(self, depth: int) -> None:
        """Instructions, loops and branches."""
        for _ in range(self.draw(st.integers(0, 4))):
            choice = self.draw(st.integers(0, 7))
            if choice == 0 and depth < 3:
                self.loop(depth)
            elif choice == 1:
                self.branch(depth)
            else:
                self.statement()

    def loop(self, depth: int) -> None:
        """A loop, perhaps with a break in it."""
        self.put(0xA0, self.number())
        start = len(self.data)
        self.body(depth + 1)
        breaks = []
        if self.draw(st.booleans()):
            breaks.append(len(self.data))
            self.put(0xA9, self.number(), 0, 0)
            self.body(depth + 1)
        end = len(self.data) + 3
        self.data += b"\xa1" + struct.pack("<h", start - end)
        for place in breaks:
            struct.pack_into("<h", self.data, place + 2, end - place - 4)

    def branch(self, depth: int) -> None:
        """A branch over some instructions."""
        place = len(self.data)
        self.put(0xA8, self.number(), 0, 0)
        self.body(depth + 2)
        struct.pack_into("<h", self.data, place + 2, len(self.data) - place - 4)


WRITERS = {
    "constant": lambda w: w.put(0x04, w.number(), w.draw(st.integers(0, 5)), 0),
    "list": lambda w: w.put(0x04, w.array(), w.draw(st.integers(6, 8)), 0),
    "copy": lambda w: w.put(0x59, w.array(), w.array()),
    "format": lambda w: w.put(0x2A, TEXT, FORMAT, 0, 2, w.number(), w.array()),
    "create": lambda w: w.put(0x30, w.array(), w.draw(st.sampled_from([0, 5])), 0, w.array()),
    "range": lambda w: w.put(0x30, w.array(), w.draw(st.sampled_from([0, 5])), 1, w.number()),
    "ones": lambda w: w.put(0x30, w.array(), w.draw(st.sampled_from([0, 5])), w.draw(st.integers(2, 3)), 7),
    "pad": lambda w: w.put(0x38, 1, w.array(), w.array(), w.number(), w.number()),
    "axes": lambda w: w.put(0x38, w.draw(st.integers(2, 3)), w.array(), w.array(), w.number()),
    "join": lambda w: w.put(0x39, 0, w.array(), 2, w.array(), w.array(), w.number()),
    "shape": lambda w: w.put(0x3A, 0, w.array(), w.array()),
    "extent": lambda w: w.put(0x3A, 1, w.number(), w.array(), w.number()),
    "scalar": lambda w: w.put(0x3A, 2, w.number(), w.array()),
    "extract": lambda w: w.put(0x3B, w.draw(st.sampled_from(NUMBERS + ARRAYS)), w.array(), w.number()),
    "softmax": lambda w: w.put(0x60, 0, SHARES, w.array()),
    "unary": lambda w: w.put(0x60, w.draw(st.sampled_from([2, 3, 5])), w.array(), w.array()),
    "count": lambda w: w.put(0x61, w.draw(st.sampled_from([0, 1, 2, 3, 5, 6])), w.number(), w.number(), w.number()),
    "binary": lambda w: w.put(0x61, w.draw(st.integers(0, 6)), w.array(), w.array(), w.slot(NUMBERS + ARRAYS)),
    "argmax": lambda w: w.put(0x62, 0, w.number(), w.array()),
    "compare": lambda w: w.put(0x68, w.draw(st.integers(0, 3)), w.number(), w.number(), w.number()),
    "compared": lambda w: w.put(0x68, w.draw(st.integers(0, 3)), w.array(), w.array(), w.number()),
    "top": lambda w: w.put(0x70, w.array(), w.number(), w.array(), w.array()),
    "say": lambda w: w.put(0xE0, TEXT, w.slot(NUMBERS + ARRAYS), w.draw(st.integers(0, 1))),
}  # fmt: skip


@st.composite
def plans(draw: st.DrawFn) -> bytes:
    """Plans whose slots are all filled in the beginning."""
    writer = Writer(draw)
    for slot in (*NUMBERS, *ARRAYS, TEXT, SHARES):
        if slot in NUMBERS:
            constant = draw(st.sampled_from([0, 1, 1, 2, 2, 3, 4, 5, 10]))
        else:
            constant = draw(st.integers(6, 8)) if slot in ARRAYS else 9
        writer.put(0x04, slot, constant, 0)
    writer.put(0x30, 4, draw(st.sampled_from([0, 5])), 0, 4)
    writer.put(0x38, 2, 5, 5, 0)
    writer.body(0)
    writer.put(0xFE, 10, *NUMBERS, *ARRAYS, TEXT, SHARES)
    return bytes(writer.data)


def machine(data: bytes) -> tuple[list[Any] | None, int]:
    """What the machine returns; or None and the byte of the instruction that was wrong."""
    pool = tuple(Constant(id_, type_, value) for id_, (type_, value) in enumerate(CONSTANTS))
    file = File(Header("1.8"), orchestrator=Orchestrator(data, pool))
    host = RecordingHost()
    try:
        return list(run_plan(file, host, budget=PlanBudget(STEPS, 1 << 24)).values), 0
    except LamellaError as problem:
        (finding,) = problem.findings
        assert finding.code in ("NAC246", "NAC247"), str(finding)
        place = re.search(r"at byte (\d+)", finding.message)
        assert place is not None
        return None, int(place[1])
    finally:
        assert not host.touched


def same(a: Any, b: Any) -> bool:
    """Whether two values are of one kind and equal, shares nearly so."""
    if isinstance(a, np.ndarray):
        close = np.allclose(a, b, rtol=1e-6, atol=1e-7, equal_nan=True)
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and close
    if isinstance(a, tuple):
        return list(a) == list(b)
    return type(a) is type(b) and (a == b or a != a)


def judged(data: bytes) -> tuple[list[Any] | None, int]:
    """What the judge returns; or None and the byte of the instruction that is wrong."""
    try:
        return Judge(data, {id_: value for id_, (_, value) in enumerate(CONSTANTS)}).run(STEPS), 0
    except WrongError as wrong:
        return None, int(wrong.args[0])


@given(plans())
def test_the_machine_does_what_the_table_says(data: bytes) -> None:
    found, place = machine(data)
    wanted, there = judged(data)
    assert (found is None, place) == (wanted is None, there), (found, wanted)
    pairs = zip(found or (), wanted or (), strict=True)
    assert all(same(a, b) for a, b in pairs), (found, wanted)
