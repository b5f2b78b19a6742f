"""Operators of `aten` against those of torch that they are named after."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.support.judges.draws import Array
from tests.support.judges.harness import Input, Result, near, run
from tests.support.judges.registry import Given

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch

__all__ = ("agree", "judge", "tensor_of", "torch")


def tensor_of(value: Input) -> Any:
    """What torch takes in place of an input: tensors for arrays, lists of them for packs."""
    if isinstance(value, tuple):
        return [tensor_of(item) for item in value]
    return torch.tensor(value) if isinstance(value, np.ndarray) else value


def agree(
    name: str,
    inputs: Sequence[Input],
    attributes: Mapping[str, Given],
    expected: Any,
    types: Sequence[str] = (),
    tolerance: float | None = None,
) -> None:
    """See that an operator gives what torch gave: one tensor, or several."""
    found = [item for result in run(f"aten.{name}", inputs, attributes, types) for item in _items(result)]
    wanted = list(expected) if isinstance(expected, tuple | list) else [expected]
    assert len(found) == len(wanted)
    for array, other in zip(found, wanted, strict=True):
        near(array, np.asarray(other), tolerance)


def judge(name: str, *inputs: Input, **attributes: Given) -> None:
    """See that an operator gives what its namesake gives for the same inputs and attributes."""
    written = {key: list(value) if isinstance(value, tuple) else value for key, value in attributes.items()}
    expected = getattr(torch.ops.aten, name)(*map(tensor_of, inputs), **written)
    agree(name, inputs, attributes, expected)


def _items(result: Result) -> tuple[Array, ...]:
    return result if isinstance(result, tuple) else (result,)
