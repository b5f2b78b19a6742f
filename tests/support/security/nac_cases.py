"""Hostile NAC files that can be read and must be found wrong: N6 to N15 and N17 of the list of attacks."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace

from lamella.lang.nac import nodes as n
from lamella.lang.nac.nodes import ConstantType, Instruction
from lamella.lang.nac.write import write
from tests.support.lang.nac.containers import container, count, i16, long, patched, short, u16
from tests.support.lang.nac.models import in_blocks, perceptron
from tests.support.security.nac_attacks import place_of, right

Wrong = Iterator[tuple[str, bytes, str]]
"""A name, a file and a code that must be found."""
SCALES = {"zero": 0.0, "NaN": float("nan"), "negative": -1.0, "infinite": float("inf")}


def operations() -> Wrong:
    """N6, N7: numbers of operations and signatures that the file may not give, or that nobody can reach."""
    for number in range(10):
        yield f"N6 operation {number} is redefined", _with_operation(number), "NAC040"
    yield "N7 operation 256", _with_operation(256), "NAC043"
    yield "N7 operation 65535", _with_operation(65535), "NAC043"
    yield "N7 signature 256", _with_signature(256, "T"), "NAC051"
    example = container({"CMAP": count(u16(201) + b"\x0a" + b"custom.op")})
    yield "N7 the length of the printed example", example, "NAC020"


def _with_signature(number: int, codes: str) -> bytes:
    file = perceptron()
    return write(replace(file, signatures=(*file.signatures, n.Signature(number, codes))))


def _with_operation(number: int) -> bytes:
    file = perceptron()
    return write(replace(file, operations=(*file.operations, n.Operation(number, "custom.op"))))


def instructions() -> Wrong:
    """N8, N10: instructions that name what is not there or come where they cannot."""
    yield "N8 an unknown A", _code(Instruction(250, 0)), "NAC070"
    yield "N8 a standard A of newer versions", _code(Instruction(22, 0)), "NAC070"
    yield "N8 a B that is not in PERM", _code(Instruction(201, 9)), "NAC074"
    yield "N8 no constants for a constant", _code(Instruction(202, 2, (), (-1, 0))), "NAC076"
    yield "N8 more constants than zeros", _code(Instruction(202, 2, (2, 3), (-1, 0))), "NAC076"
    yield "N8 a constant that is not there", _code(Instruction(202, 2, (99,), (-1, 0))), "NAC081"
    yield "N8 a constant id below zero", _code(Instruction(202, 2, (-1,), (-1, 0))), "NAC081"
    yield "N8 an integer for a string", _code(Instruction(202, 2, (3,), (-1, 0))), "NAC082"
    yield "N8 a string for an integer", _code(Instruction(11, 3, (2,), (-1, -2, 0))), "NAC082"
    yield "N8 an offset before the first", _code(Instruction(202, 2, (2,), (-9, 0))), "NAC079"
    yield "N8 the farthest offset back", _code(Instruction(202, 2, (2,), (-32768, 0))), "NAC079"
    yield "N8 an offset to itself", _code(Instruction(201, 1, (), (0, -1, -1))), "NAC077"
    yield "N8 an offset forward", _code(Instruction(202, 2, (2,), (1, 0))), "NAC078"
    yield "N8 the farthest offset forward", _code(Instruction(202, 2, (2,), (32767, 0))), "NAC078"
    yield "N8 a cycle", _code(Instruction(202, 2, (2,), (1, 0)), Instruction(202, 2, (2,), (-1, 0))), "NAC078"
    yield "N8 a code that is none", _with_signature(9, "T?"), "NAC052"
    branch = Instruction(6, 0, (0, 0), (-1,))
    yield "N8 a branch without blocks", _code(branch, Instruction(202, 2, (2,), (-1, 0))), "NAC265"
    output = Instruction(n.OUTPUT, 0, (), (-1,))
    yield "N8 the result of an output", _code(output, Instruction(202, 2, (2,), (-1, 0))), "NAC080"
    yield "N10 two final outputs", _code(output), "NAC087"
    yield "N10 no final output", write(_ended(perceptron().instructions[:-1])), "NAC086"
    yield (
        "N10 code after the output",
        write(_ended((*perceptron().instructions, Instruction(n.INPUT)))),
        "NAC088",
    )
    header = patched(right(), 7, u16(2))
    yield "N10 another number of outputs", header, "NAC020"


def _code(*more: Instruction) -> bytes:
    """The perceptron with instructions before its output, which nothing uses."""
    code = perceptron().instructions
    return write(_ended((*code[:-1], *more, Instruction(n.OUTPUT, 0, (), (-1 - len(more),)))))


def _ended(code: tuple[Instruction, ...]) -> n.File:
    return replace(perceptron(), instructions=code, schedule=())


def branches() -> Wrong:
    """N11: branches that leave the program or each other, or run back."""
    yield "N11 a branch past the end", _code(Instruction(6, 0, (1, 1), (-1,))), "NAC094"
    yield "N11 a branch of 32767", _code(Instruction(6, 0, (32767, 0), (-1,))), "NAC094"
    yield "N11 a branch of -1", _code(Instruction(6, 0, (-1, 1), (-1,))), "NAC094"
    inner = Instruction(6, 0, (2, 0), (-1,))
    nested = _code(Instruction(6, 0, (1, 0), (-1,)), replace(inner, offsets=(-2,)), _neg(-3), _neg(-1))
    yield "N11 a branch that leaves the one around it", nested, "NAC095"
    convergence = container(
        {"OPS ": count(b"\2\0", b"\7\0" + i16(2, 5, -5) + i16(-1), b"\3\0" + i16(1, 0) + i16(-2))},
        counts=(1, 1, 0),
    )
    yield "N11 branches that run back", convergence, "NAC094"


def _neg(offset: int) -> Instruction:
    return Instruction(202, 2, (2,), (offset, 0))


def schedules() -> Wrong:
    """N12: commands for what is not there, too early, too late, twice or unknown."""
    lists: Mapping[str, tuple[tuple[n.Tick, ...], str]] = {
        "ticks that go back": ((_tick(4, 30, 5), _tick(3, 10, 3)), "NAC100"),
        "a tick twice": ((_tick(3, 10, 3), _tick(3, 10, 3)), "NAC100"),
        "a tick behind the program": ((_tick(7, 20, 1),), "NAC101"),
        "the last tick there is": ((_tick(65535, 20, 1),), "NAC101"),
        "an unknown action": ((_tick(3, 41, 1),), "NAC102"),
        "a target behind the program": ((_tick(3, 20, 65535),), "NAC103"),
        "FREE of what was never saved": ((_tick(6, 20, 4),), "NAC115"),
        "FREE of what comes later": ((_tick(3, 20, 5),), "NAC110"),
        "FREE twice": ((_tick(4, 20, 1), _tick(5, 20, 1)), "NAC113"),
        "use after FREE": ((_tick(2, 20, 1),), "NAC111"),
        "FREE of an output": ((_tick(5, 10, 5), _tick(6, 20, 5)), "NAC114"),
        "FORWARD to what does not use it": ((_tick(3, 30, 6),), "NAC105"),
        "FORWARD backwards": ((_tick(4, 30, 3),), "NAC105"),
        "FORWARD of what others use": ((_tick(3, 30, 4),), "NAC106"),
        "PRELOAD of a computation": ((_tick(0, 40, 4),), "NAC107"),
        "PRELOAD of an input": ((_tick(0, 40, 0),), "NAC107"),
        "PRELOAD after the load": ((_tick(3, 40, 1),), "NAC108"),
        "PRELOAD twice": ((n.Tick(0, (n.Command(40, 2),)), n.Tick(1, (n.Command(40, 2),))), "NAC109"),
        "SAVE_RESULT of another": ((_tick(3, 10, 4),), "NAC104"),
    }
    for name, (ticks, code) in lists.items():
        yield f"N12 {name}", write(replace(perceptron(), schedule=ticks)), code


def _tick(index: int, action: int, target: int) -> n.Tick:
    return n.Tick(index, (n.Command(action, target),))


def shapes() -> Wrong:
    """N13: numbers that are no sizes, where sizes stand."""
    for name, value in {"NaN": float("nan"), "an infinity": float("inf")}.items():
        constant = n.Constant(9, ConstantType.FLOAT32_LIST, (1.0, value))
        yield f"N13 {name} in a shape", _viewing(constant, "TS"), "NAC082"
        number = n.Constant(9, ConstantType.FLOAT64, value)
        yield f"N13 {name} for an integer", _viewing(number, "Ti"), "NAC082"
        yield f"N13 {name} for a truth value", _viewing(number, "Tb"), "NAC082"


def _viewing(constant: n.Constant, codes: str) -> bytes:
    code = perceptron().instructions
    view = (Instruction(17, 9, (9,), (-1, 0)), Instruction(n.OUTPUT, 0, (), (-1,)))
    file = _ended((*code[:-1], *view))
    signatures = (*file.signatures, n.Signature(9, codes))
    return write(replace(file, constants=(*file.constants, constant), signatures=signatures))


def tensors() -> Wrong:
    """N14: tensors that are not what their metadata say."""
    first, second = perceptron().tensors
    assert isinstance(first.quantization, n.Int8Channel)
    three = first.quantization.scales
    yield "N14 dtype 10", _weights(replace(second, dtype=10)), "NAC140"
    yield "N14 dtype 255", _weights(replace(second, dtype=255)), "NAC140"
    yield "N14 a shape beyond counting", _weights(replace(second, shape=(2**32 - 1,) * 8)), "NAC142"
    yield "N14 a shape of 2^64 bytes", _weights(replace(second, shape=(2**32 - 1, 2**32 - 1, 9))), "NAC142"
    yield "N14 fewer bytes than the shape", _weights(replace(second, data=b"\1\2")), "NAC141"
    yield "N14 an empty shape", _weights(replace(second, shape=(0,))), "NAC141"
    yield "N14 an axis that is not there", _weights(_channel(first, 2, three)), "NAC145"
    yield "N14 axis 255", _weights(_channel(first, 255, three)), "NAC145"
    yield "N14 fewer scales than indices", _weights(_channel(first, 0, three[:8])), "NAC146"
    for name, scale in SCALES.items():
        yield f"N14 a scale that is {name}", _weights(_scaled(second, scale)), "NAC144"
        yield f"N14 one of the scales is {name}", _weights(_one_of_three(first, scale)), "NAC144"
    yield "N14 blocks of nothing", _in_blocks(n.BlockFp8(0, (3,), struct.pack("<f", 0.5))), "NAC147"
    yield (
        "N14 blocks of another tensor",
        _in_blocks(n.BlockFp8(64, (65,), struct.pack("<2f", 1, 1))),
        "NAC148",
    )
    yield "N14 blocks beyond counting", _in_blocks(n.BlockFp8(64, (2**32 - 1,) * 8, b"")), "NAC142"
    yield "N14 a tensor of a parameter without a name", _weights(replace(second, parameter=9)), "NAC137"


def _weights(tensor: n.Tensor) -> bytes:
    """The perceptron with this tensor beside its own of other parameters."""
    others = (item for item in perceptron().tensors if item.parameter != tensor.parameter)
    return write(replace(perceptron(), tensors=(*others, tensor)))


def _scaled(tensor: n.Tensor, scale: float) -> n.Tensor:
    return replace(tensor, quantization=n.Int8Tensor(scale))


def _one_of_three(tensor: n.Tensor, scale: float) -> n.Tensor:
    return _channel(tensor, 0, struct.pack("<3f", 1.0, scale, 1.0))


def _channel(tensor: n.Tensor, axis: int, scales: n.Data) -> n.Tensor:
    return replace(tensor, quantization=n.Int8Channel(axis, scales))


def _in_blocks(quantization: n.BlockFp8) -> bytes:
    first, second = in_blocks().tensors
    return write(replace(in_blocks(), tensors=(first, replace(second, quantization=quantization))))


def manifests() -> Wrong:
    """N16, N17: manifests that are longer than they are, or ask for what has no meaning."""
    pattern = long(b"(a+)+" * 2000)
    rule = b"\0" + pattern
    heads = {
        "N16 a manifest longer than its section": (
            container({"PROC": struct.pack("<I", 99) + b"TISA\1"}),
            "NAC020",
        ),
        "N17 no manifest": (_manifest(b"", b"ZIP!\1"), "NAC162"),
        "N17 manifest version 2": (_manifest(b"", b"TISA\2"), "NAC162"),
        "N17 an unknown instruction": (_manifest(_record(0x99, b"")), "NAC163"),
        "N17 a payload past the end": (_manifest(_record(0x10, b"", 2**32 - 1)), "NAC164"),
        "N17 65535 rules in nine bytes": (_manifest(_record(0x10, b"\xff\xff" + bytes(7))), "NAC164"),
        "N17 fewer rules than it says": (_manifest(_record(0x10, u16(9) + rule)), "NAC164"),
        "N17 a rule that behaves like none": (
            _manifest(_record(0x10, u16(1) + b"\2" + pattern + b"\7")),
            "NAC165",
        ),
        "N17 a form that is none": (_manifest(_record(0x02, short(b"NFX"))), "NAC165"),
        "N17 an empty text is replaced": (_manifest(_record(0x03, long(b"") + long(b"x"))), "NAC165"),
        "N17 a pattern that is no text": (_manifest(_record(0x10, u16(1) + b"\0" + long(b"\xff"))), "NAC165"),
    }
    for name, (data, code) in heads.items():
        yield name, data, code


def _record(opcode: int, payload: bytes, length: int | None = None) -> bytes:
    return bytes([opcode]) + struct.pack("<I", len(payload) if length is None else length) + payload


def _manifest(records: bytes, head: bytes = b"TISA\1") -> bytes:
    return write(replace(perceptron(), manifest=head + records))


def headers() -> Wrong:
    """N3: what is reserved and not zero; it is told, and the file is read."""
    yield "N3 the reserved byte", patched(right(), 9, b"\1"), "NAC005"
    for place in range(84, 88):
        yield f"N3 byte {place} of the padding", patched(right(), place, b"\xff"), "NAC005"
    shifted = patched(right(), place_of("OPS ") + 4, struct.pack("<I", 8))
    yield "N4 one instruction more than there are", shifted, "NAC020"


GROUPS = (headers, operations, instructions, branches, schedules, shapes, tensors, manifests)
CASES: Mapping[str, tuple[bytes, str]] = {
    name: (data, code) for group in GROUPS for name, data, code in group()
}
