"""Kernel selection for fused attention: the kernels of their own, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_kernels.attention import Attention, write_attention
from lamella.bridge.graph_to_kernels.decode_attention import write_decode_attention
from lamella.bridge.graph_to_kernels.flash_attention import write_flash_attention
from lamella.bridge.graph_to_kernels.mma_attention import write_mma_attention
from lamella.bridge.graph_to_kernels.split_kv_attention import write_split_kv_attention
from lamella.bridge.graph_to_kernels.terms import TensorView
from lamella.bridge.graph_to_kernels.tile_parameters import TileKernel
from lamella.bridge.graph_to_kernels.tiled import Key
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Scalar


def _mma_attention(
    attention: Attention, tensors: Mapping[Key, TensorView], real: Scalar, target: Target
) -> list[TileKernel]:
    return [write_mma_attention(attention, tensors, real, target)]


def _whole_stream(
    attention: Attention, tensors: Mapping[Key, TensorView], real: Scalar, target: Target
) -> list[TileKernel]:
    """Flash attention where no operand has to be packed before."""
    kernels = write_flash_attention(attention, tensors, real, target)
    if len(kernels) > 1:
        raise Unsupported("its factors are no whole tiles of halves")
    return kernels


def _decode_attention(
    attention: Attention, tensors: Mapping[Key, TensorView], real: Scalar, target: Target
) -> list[TileKernel]:
    return [write_decode_attention(attention, tensors, real, target)]


def _attention(
    attention: Attention, tensors: Mapping[Key, TensorView], real: Scalar, target: Target
) -> list[TileKernel]:
    return [write_attention(attention, tensors, real, target)]


WriteAttention: TypeAlias = Callable[[Attention, Mapping[Key, TensorView], Scalar, Target], list[TileKernel]]
"""Gives the kernels of an attention, or says why there are none of its kind."""


def attention_variants(target: Target, narrow: bool) -> Sequence[WriteAttention]:
    """The variants for a target, where operands may be rounded to bf16 or not."""
    if not target.has_threads:
        return (_attention,)
    # Threads are many, and so are the scores: products of their own share them out better than lanes could.
    variants = (_whole_stream, _mma_attention, write_flash_attention) if narrow else ()
    return (write_split_kv_attention, _decode_attention, *variants)
