"""Files that several tests begin with, made of nodes by hand."""

from __future__ import annotations

import struct
from dataclasses import replace

from lamella.lang.nac import nodes as n
from lamella.lang.nac.nodes import ConstantType, Instruction


def perceptron() -> n.File:
    """A linear layer, a GELU and a sum; all nine sections, constants and quantisations of most kinds."""
    return n.File(
        header=n.Header(internal=True, inputs=1, outputs=1, d_model=3, method=n.Method.INT8_CHANNEL),
        operations=(n.Operation(201, "aten.linear.default"), n.Operation(202, "aten.gelu.default")),
        signatures=(n.Signature(1, "TTT"), n.Signature(2, "Ts"), n.Signature(3, "TTi")),
        constants=(
            n.Constant(2, ConstantType.STRING, "tanh"),
            n.Constant(3, ConstantType.INT64, 2),
            n.Constant(4, ConstantType.BOOL, True),
            n.Constant(5, ConstantType.FLOAT64, 1e-5),
            n.Constant(6, ConstantType.INT32_LIST, (1, -1)),
            n.Constant(7, ConstantType.FLOAT32_LIST, (0.5,)),
            n.Constant(8, ConstantType.NULL, None),
        ),
        instructions=(
            Instruction(n.INPUT),
            Instruction(n.INPUT, 1, (1,)),
            Instruction(n.INPUT, 1, (2,)),
            Instruction(201, 1, (), (-3, -2, -1)),
            Instruction(202, 2, (2,), (-1, 0)),
            Instruction(11, 3, (3,), (-1, -2, 0)),
            Instruction(n.OUTPUT, 0, (), (-1,)),
        ),
        schedule=(
            n.Tick(0, (n.Command(40, 1), n.Command(40, 2))),
            n.Tick(3, (n.Command(10, 3),)),
            n.Tick(4, (n.Command(30, 5), n.Command(20, 1), n.Command(20, 2))),
            n.Tick(5, (n.Command(10, 5),)),
            n.Tick(6, (n.Command(20, 3),)),
        ),
        parameters=(n.Parameter(1, "fc.weight"), n.Parameter(2, "fc.bias")),
        inputs=(n.Input(0, "x"),),
        tensors=(
            n.Tensor(1, 7, (3, 2), n.Int8Channel(0, struct.pack("<3f", 0.5, 1.0, 2.0)), bytes(range(6))),
            n.Tensor(2, 7, (3,), n.Int8Tensor(0.25), b"\1\2\3"),
        ),
        manifest=b"TISA\1\1\0\0\0\0",
        orchestrator=n.Orchestrator(b"\x04\0\0\0\xfe\1\0", (n.Constant(0, ConstantType.INT64, 7),)),
        resources=(n.Resource("vocab.json", b'{"a": 0}'), n.Resource("merges.txt", b"")),
    )


def in_blocks() -> n.File:
    """The same file with its weights in blocks."""
    file = perceptron()
    header = replace(file.header, method=n.Method.BLOCK_FP8)
    return replace(file, header=header, tensors=(_blocks(1, (2, 3)), _blocks(2, (3,))))


def _blocks(parameter: int, shape: tuple[int, ...]) -> n.Tensor:
    """A tensor that fills one block."""
    return n.Tensor(parameter, 7, (64,), n.BlockFp8(64, shape, struct.pack("<f", 0.5)), bytes(64))
