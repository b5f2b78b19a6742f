"""The 43 variants of the specification's own expansion tables, and devices made of some of them."""

from __future__ import annotations

from lamella.lang.nem.device import ResolvedDevice, VariantId

# "Variant Expansion Reference": variant, class, operands in order (bias last among the inputs), accum, quant.
EXPANSION = """
conv2d.int8<i8>.no_bias      MUST  i8 i8 -> i8          i32 required
conv2d.int8<i8>.with_bias    MUST  i8 i8 i32 -> i8      i32 required
conv2d.int8<i16>.with_bias   MAY   i8 i8 i32 -> i16     i32 required
conv2d.float<f16>.no_bias    MUST  f16 f16 -> f16       f32 absent
conv2d.float<f16>.with_bias  MUST  f16 f16 f16 -> f16   f32 absent
conv2d.float<bf16>.no_bias   MAY   bf16 bf16 -> bf16    f32 absent
conv2d.float<bf16>.with_bias MAY   bf16 bf16 bf16 -> bf16  f32 absent
conv2d.float<f32>.no_bias    MAY   f32 f32 -> f32       f32 absent
conv2d.float<f32>.with_bias  MAY   f32 f32 f32 -> f32   f32 absent
conv2d.int4.no_bias          MAY   i8 i4 -> i8          i32 required
conv2d.int4.with_bias        MAY   i8 i4 i32 -> i8      i32 required
gemm.int8<i8>.no_bias        MUST  i8 i8 -> i8          i32 required
gemm.int8<i8>.with_bias      MUST  i8 i8 i32 -> i8      i32 required
gemm.int8<i16>.with_bias     MAY   i8 i8 i32 -> i16     i32 required
gemm.float<f16>.no_bias      MUST  f16 f16 -> f16       f32 absent
gemm.float<f16>.with_bias    MUST  f16 f16 f16 -> f16   f32 absent
gemm.float<bf16>.no_bias     MAY   bf16 bf16 -> bf16    f32 absent
gemm.float<f32>.no_bias      MAY   f32 f32 -> f32       f32 absent
gemm.int4.no_bias            MAY   i8 i4 -> i8          i32 required
gemm.int4.with_bias          MAY   i8 i4 i32 -> i8      i32 required
eltwise<i8>.default          MUST  i8 -> i8
eltwise<i16>.default         MAY   i16 -> i16
eltwise<i32>.default         MAY   i32 -> i32
eltwise<f16>.default         MUST  f16 -> f16
eltwise<bf16>.default        MAY   bf16 -> bf16
eltwise<f32>.default         MAY   f32 -> f32
view<i8>.default             MUST  i8 -> i8
view<i16>.default            MAY   i16 -> i16
view<i32>.default            MAY   i32 -> i32
view<f16>.default            MUST  f16 -> f16
view<bf16>.default           MAY   bf16 -> bf16
view<f32>.default            MAY   f32 -> f32
norm<f16>.default            MUST  f16 -> f16
norm<bf16>.default           MAY   bf16 -> bf16
norm<f32>.default            MAY   f32 -> f32
softmax<f16>.default         MUST  f16 -> f16
softmax<bf16>.default        MAY   bf16 -> bf16
softmax<f32>.default         MAY   f32 -> f32
cast.default                 MUST  any -> any
quantize<f16,i8>.default     MUST  f16 -> i8
quantize<f32,i8>.default     MAY   f32 -> i8
dequantize<i8,f16>.default   MUST  i8 -> f16
dequantize<i8,f32>.default   MAY   i8 -> f32
"""
Row = tuple[str, tuple[str, ...], str, str, bool]


def read_rows() -> list[Row]:
    """The table: variant, input types, output type, accumulator, MUST."""
    rows = []
    for line in EXPANSION.strip().splitlines():
        left, _, right = line.partition(" -> ")
        name, level, *inputs = left.split()
        output, accum, *_ = [*right.split(), "", ""]
        rows.append((name, tuple(inputs), output, accum, level == "MUST"))
    return rows


ROWS = read_rows()


def variant_id(name: str) -> VariantId:
    """`gemm.float<f16>.no_bias` in parts."""
    family, _, variant = name.rpartition(".")
    base, _, elems = family.partition("<")
    return VariantId(base, tuple(elems.removesuffix(">").split(",")) if elems else (), variant)


def device_with(*names: str) -> ResolvedDevice:
    """A device that has these variants only."""
    return ResolvedDevice("tiny", ("tiny",), "1.0", None, {}, {variant_id(n): "tiny" for n in names}, {})
