"""The common type of operands, judged by torch for all pairs of types, ranks and numbers."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from lamella.bridge.aten.promotion import promote, real_type, result_type
from lamella.graph.nodes import Tensor
from tests.support.bridge.aten.draws import ANY
from tests.support.bridge.aten.judge import element_of, torch

TYPES = (*ANY, torch.int16)
NUMBERS = (True, 3, 2.5)


def test_pairs_of_types() -> None:
    for left, right in product(TYPES, repeat=2):
        expected = element_of(torch.promote_types(left, right))
        assert promote(element_of(left), element_of(right)) == expected, (left, right)


def test_pairs_of_operands() -> None:
    for left, right, first, second in product(TYPES, TYPES, (0, 1), (0, 1)):
        a, b = torch.zeros([2] * first, dtype=left), torch.zeros([2] * second, dtype=right)
        pair = [Tensor(str(item.dtype), element_of(item.dtype), tuple(item.shape)) for item in (a, b)]
        assert result_type(pair) == element_of(torch.result_type(a, b)), (left, first, right, second)


def test_tensors_and_numbers() -> None:
    for dtype, rank, number in product(TYPES, (0, 1), NUMBERS):
        tensor = torch.zeros([2] * rank, dtype=dtype)
        ours = Tensor("x", element_of(dtype), tuple(tensor.shape))
        assert result_type((ours, number)) == element_of(torch.result_type(tensor, number))


@given(st.lists(st.tuples(st.sampled_from(TYPES), st.integers(0, 1)), min_size=1, max_size=4))
def test_many_operands(drawn: list[tuple[object, int]]) -> None:
    """Joining tensors promotes all of them at once."""
    tensors = [torch.zeros([1] * rank, dtype=dtype) for dtype, rank in drawn]
    expected = torch.stack([torch.zeros(1, dtype=item.dtype) for item in tensors]).dtype
    ours = [Tensor("x", element_of(item.dtype), (1,)) for item in tensors]
    assert result_type(ours) == element_of(expected)


def test_results_with_fractions() -> None:
    for dtype in TYPES:
        assert real_type(element_of(dtype)) == element_of(torch.exp(torch.zeros(1, dtype=dtype)).dtype)
