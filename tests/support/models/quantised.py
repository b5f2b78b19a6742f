"""Checkpoints of quantised weights, packed code by code as the public descriptions of their formats say it.

Each scheme gives the tensors of a folder, and the numbers that its own reference would make of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Random = np.random.Generator
GROUP = 32
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    ),
)
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class Quantised:
    """The parts of a weight by the endings of their names, and its numbers."""

    parts: Mapping[str, Array]
    numbers: Array


def pack_rows(codes: Array, bits: int) -> Array:
    """Codes along the rows in words of 32 bits, bit by bit."""
    words = np.zeros((codes.shape[0] * bits // 32, codes.shape[1]), np.uint64)
    for row in range(codes.shape[0]):
        for bit in range(bits):
            place = row * bits + bit
            words[place // 32] |= (
                codes[row].astype(np.uint64) >> np.uint64(bit) & np.uint64(1)
            ) << np.uint64(place % 32)
    return words.astype(np.uint32).view(np.int32)


def gptq(
    bits: int, symmetric: bool, ordered: bool = True, version: int = 1
) -> Callable[[Random, int, int], Quantised]:
    def make(random: Random, outputs: int, inputs: int) -> Quantised:
        count = inputs // GROUP
        codes = random.integers(0, 1 << bits, (inputs, outputs))
        scales = (random.random((count, outputs)) * 0.02 + 0.01).astype(np.float16)
        zeros = random.integers(0, 1 << bits, (count, outputs))
        zeros = np.full_like(zeros, 1 << bits - 1) if symmetric else zeros
        groups = np.arange(inputs) // GROUP
        groups = groups if ordered else random.permutation(groups)
        stored = zeros - 1 & (1 << bits) - 1 if version == 1 else zeros
        parts = {
            ".qweight": pack_rows(codes, bits),
            ".qzeros": np.ascontiguousarray(pack_rows(stored.T, bits).T),
            ".scales": scales,
            ".g_idx": groups.astype(np.int32),
        }
        return Quantised(parts, (scales[groups].astype(np.float64) * (codes - zeros[groups])).T)

    return make


def awq(random: Random, outputs: int, inputs: int) -> Quantised:
    codes = random.integers(0, 16, (inputs, outputs))
    zeros = random.integers(0, 16, (inputs // GROUP, outputs))
    scales = (random.random(zeros.shape) * 0.02).astype(np.float16)

    def packed(numbers: Array) -> Array:
        words = np.zeros((len(numbers), outputs // 8), np.uint32)
        for column in range(outputs // 8):
            for place, inner in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
                words[:, column] |= numbers[:, 8 * column + inner].astype(np.uint32) << np.uint32(4 * place)
        return words.view(np.int32)

    parts = {".qweight": packed(codes), ".qzeros": packed(zeros), ".scales": scales}
    return Quantised(parts, ((codes - zeros.repeat(GROUP, 0)) * scales.astype(np.float64).repeat(GROUP, 0)).T)


def int8_rows(random: Random, outputs: int, inputs: int) -> Quantised:
    codes = random.integers(-127, 128, (outputs, inputs)).astype(np.int8)
    scales = random.random(outputs).astype(np.float32)
    parts: dict[str, Array] = {".weight": codes, ".SCB": scales, ".weight_format": np.zeros((), np.uint8)}
    return Quantised(parts, codes * scales[:, None].astype(np.float64) / 127)


def nf4(nested: bool) -> Callable[[Random, int, int], Quantised]:
    def make(random: Random, outputs: int, inputs: int) -> Quantised:
        codes = random.integers(0, 16, outputs * inputs)
        blocks = codes.size // 64
        parts: dict[str, Array] = {
            ".weight": (codes[0::2] << 4 | codes[1::2]).astype(np.uint8)[:, None],
            ".weight.quant_map": np.array(NF4, np.float32),
        }
        state = f'{{"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [{outputs}, {inputs}]'
        if nested:
            table = np.linspace(-1, 1, 256).astype(np.float32)
            inner = random.integers(0, 256, blocks).astype(np.uint8)
            outer = random.random(-(-blocks // 256)).astype(np.float32)
            scales = table[inner] * outer.repeat(256)[:blocks] + 0.25
            parts |= {
                ".weight.absmax": inner,
                ".weight.nested_absmax": outer,
                ".weight.nested_quant_map": table,
            }
            state += ', "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.25'
        else:
            scales = random.random(blocks).astype(np.float32)
            parts[".weight.absmax"] = scales
        parts[".weight.quant_state.bitsandbytes__nf4"] = np.frombuffer((state + "}").encode(), np.uint8)
        numbers = np.array(NF4)[codes] * scales.astype(np.float64).repeat(64)
        return Quantised(parts, numbers.reshape(outputs, inputs))

    return make


def fp8(block: int, name: str) -> Callable[[Random, int, int], Quantised]:
    def make(random: Random, outputs: int, inputs: int) -> Quantised:
        codes = (random.random((outputs, inputs)) * 20 - 10).astype(ml_dtypes.float8_e4m3fn)
        if block:
            scales = random.random((-(-outputs // block), -(-inputs // block))).astype(np.float32) * 0.01
            wide = scales.repeat(block, 0)[:outputs].repeat(block, 1)[:, :inputs]
        else:
            scales = wide = random.random((outputs, 1)).astype(np.float32) * 0.01
        parts = {".weight": codes, f".{name}": scales}
        return Quantised(parts, codes.astype(np.float64) * wide)

    return make


def packed(bits: int, groups: bool, symmetric: bool) -> Callable[[Random, int, int], Quantised]:
    def make(random: Random, outputs: int, inputs: int) -> Quantised:
        size, half = (GROUP if groups else inputs), 1 << bits - 1
        codes = random.integers(-half, half, (outputs, inputs))
        scales = (random.random((outputs, inputs // size)) * 0.02).astype(ml_dtypes.bfloat16)
        zeros = random.integers(-half, half, scales.shape) * (not symmetric)
        parts: dict[str, Array] = {
            ".weight_packed": np.ascontiguousarray(pack_rows((codes + half).T, bits).T),
            ".weight_scale": scales,
            ".weight_shape": np.array([outputs, inputs]),
        }
        if not symmetric:
            parts[".weight_zero_point"] = pack_rows(zeros + half, bits)
        wide = scales.astype(np.float64).repeat(size, 1)
        return Quantised(parts, (codes - zeros.repeat(size, 1)) * wide)

    return make


def int_rows(random: Random, outputs: int, inputs: int) -> Quantised:
    codes = random.integers(-127, 128, (outputs, inputs)).astype(np.int8)
    scales = random.random((outputs, 1)).astype(ml_dtypes.bfloat16)
    return Quantised({".weight": codes, ".weight_scale": scales}, codes * scales.astype(np.float64))


def nvfp4(random: Random, outputs: int, inputs: int) -> Quantised:
    codes = random.integers(0, 16, (outputs, inputs))
    numbers = np.array([*FP4, *(-item for item in FP4)])[codes]
    scales = (random.random((outputs, inputs // 16)) * 8).astype(ml_dtypes.float8_e4m3fn)
    whole = np.array([3.5], np.float32)
    parts = {
        ".weight_packed": (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8),
        ".weight_scale": scales,
        ".weight_global_scale": whole,
    }
    return Quantised(parts, numbers * scales.astype(np.float64).repeat(16, 1) / whole[0])


def _compressed(format_: str, bits: int = 8) -> dict[str, object]:
    weights = {"num_bits": bits, "type": "int", "symmetric": True}
    groups = {"group_0": {"weights": weights, "targets": ["Linear"]}}
    return {"quant_method": "compressed-tensors", "format": format_, "config_groups": groups}


SCHEMES: Mapping[str, tuple[Callable[[Random, int, int], Quantised], dict[str, object], bool]] = {
    "gptq 4": (gptq(4, True), {"quant_method": "gptq", "bits": 4}, True),
    "gptq 4 zeros": (gptq(4, False), {"quant_method": "gptq", "bits": 4}, True),
    "gptq 4 order": (gptq(4, False, ordered=False), {"quant_method": "gptq", "bits": 4}, False),
    "gptq 8 v2": (
        gptq(8, False, version=2),
        {"quant_method": "gptq", "bits": 8, "checkpoint_format": "gptq_v2"},
        True,
    ),
    "gptq 3": (gptq(3, False), {"quant_method": "gptq", "bits": 3}, True),
    "gptq 2": (gptq(2, False), {"quant_method": "gptq", "bits": 2}, True),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "version": "gemm"}, True),
    "int8": (int8_rows, {"quant_method": "bitsandbytes", "load_in_8bit": True}, True),
    "nf4": (nf4(False), {"quant_method": "bitsandbytes", "load_in_4bit": True}, True),
    "nf4 nested": (nf4(True), {"quant_method": "bitsandbytes", "load_in_4bit": True}, True),
    "fp8 blocks": (
        fp8(48, "weight_scale_inv"),
        {"quant_method": "fp8", "weight_block_size": [48, 48]},
        True,
    ),
    "fp8 odd blocks": (
        fp8(24, "weight_scale_inv"),
        {"quant_method": "fp8", "weight_block_size": [24, 24]},
        False,
    ),
    "fp8 even blocks": (
        fp8(32, "weight_scale_inv"),
        {"quant_method": "fp8", "weight_block_size": [32, 32]},
        True,
    ),
    "fp8 rows": (fp8(0, "weight_scale"), {"quant_method": "fbgemm_fp8"}, True),
    "compressed 4": (packed(4, True, True), _compressed("pack-quantized", 4), True),
    "compressed 4 zeros": (packed(4, True, False), _compressed("pack-quantized", 4), True),
    "compressed 8 rows": (packed(8, False, True), _compressed("pack-quantized", 8), True),
    "compressed int8": (int_rows, _compressed("int-quantized"), True),
    "compressed fp8": (fp8(0, "weight_scale"), _compressed("float-quantized"), True),
    "compressed nvfp4": (nvfp4, _compressed("nvfp4-pack-quantized"), True),
}
"""What makes a weight, the `quantization_config`, and whether kernels read its codes as they are."""
