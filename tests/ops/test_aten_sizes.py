"""The operators of `aten` that resize or pad, judged by torch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.judges.aten import agree, tensor_of, torch
from tests.support.judges.draws import ANY, arrays, shapes
from tests.support.judges.registry import Given, judged

Data = st.DataObject
Shape = tuple[int, ...]
NEAREST = {"upsample_nearest1d": 1, "upsample_nearest2d": 2, "upsample_nearest3d": 3}
LINEAR = {"upsample_linear1d": 1, "upsample_bilinear2d": 2, "upsample_trilinear3d": 3}
FACTORS = st.sampled_from((0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.3))


@judged("torch", *(f"aten.{name}" for name in NEAREST))
@pytest.mark.parametrize("name", NEAREST)
@given(shapes(3, 3, 2, 5), st.booleans(), st.data())
def test_nearest(name: str, image: Shape, by_factor: bool, data: Data) -> None:
    axes = NEAREST[name]
    x = data.draw(arrays((1, 2, *image[:axes]), ("float32",)))
    size = tuple(data.draw(st.integers(1, 7)) for _ in range(axes))
    factors = tuple(data.draw(FACTORS) for _ in range(axes))
    found = getattr(torch.ops.aten, name).vec
    expected = found(tensor_of(x), None, factors) if by_factor else found(tensor_of(x), size, None)
    agree(name, [x], {"scale_factors": factors} if by_factor else {"output_size": size}, expected)


@judged("torch", *(f"aten.{name}" for name in LINEAR))
@pytest.mark.parametrize("name", LINEAR)
@given(shapes(3, 3, 2, 5), st.booleans(), st.booleans(), st.data())
def test_linear(name: str, image: Shape, aligned: bool, by_factor: bool, data: Data) -> None:
    axes = LINEAR[name]
    x = data.draw(arrays((1, 2, *image[:axes]), ("float32",)))
    size = tuple(data.draw(st.integers(1, 7)) for _ in range(axes))
    factors = tuple(data.draw(FACTORS) for _ in range(axes))
    found = getattr(torch.ops.aten, name).vec
    given_: dict[str, Given] = {"align_corners": aligned}
    given_ |= {"scale_factors": factors} if by_factor else {"output_size": size}
    expected = found(tensor_of(x), None if by_factor else size, aligned, factors if by_factor else None)
    agree(name, [x], given_, expected, tolerance=1e-4)


@judged("torch", "aten.upsample_bicubic2d")
@given(shapes(2, 2, 2, 5), shapes(2, 2, 1, 7), st.booleans(), st.data())
def test_cubic(image: Shape, size: Shape, aligned: bool, data: Data) -> None:
    x = data.draw(arrays((1, 2, *image), ("float32",)))
    expected = torch.ops.aten.upsample_bicubic2d.vec(tensor_of(x), size, aligned, None)
    agree(
        "upsample_bicubic2d", [x], {"output_size": size, "align_corners": aligned}, expected, tolerance=2e-4
    )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@judged("torch", "aten.upsample_bilinear2d_aa", "aten.upsample_bicubic2d_aa")
@given(shapes(2, 2, 1, 13), st.integers(1, 15), st.integers(2, 15), st.data())
def test_filtered(mode: str, image: Shape, high: int, wide: int, data: Data) -> None:
    """Results are two wide at least: of one column, torch reads other elements than those of the image."""
    x = data.draw(arrays((1, 2, *image), ("float32",)))
    operation = getattr(torch.ops.aten, f"_upsample_{mode}2d_aa")
    expected = operation(tensor_of(x), (high, wide), False)
    agree(f"upsample_{mode}2d_aa", [x], {"output_size": (high, wide)}, expected, tolerance=2e-4)


def test_cubic_by_a_factor() -> None:
    x = torch.arange(12.0).reshape(1, 1, 3, 4)
    expected = torch.ops.aten.upsample_bicubic2d.vec(x, None, False, (2.0, 3.0))
    agree("upsample_bicubic2d", [x.numpy()], {"scale_factors": (2.0, 3.0)}, expected, tolerance=2e-4)


@given(shapes(1, 3, 2, 5), st.data())
def test_what_is_taken_away(shape: Shape, data: Data) -> None:
    x = data.draw(arrays(shape, ANY))
    count = data.draw(st.integers(1, len(shape)))
    pad = tuple(data.draw(st.integers(-1, 2)) for _ in range(2 * count))
    value = data.draw(st.none() | arrays((), (x.dtype.name,)))
    expected = torch.ops.aten.constant_pad_nd(tensor_of(x), pad, 0 if value is None else value.item())
    agree("constant_pad_nd", [x, value], {"pad": pad}, expected)
    agree("pad", [x, value], {"pad": pad}, expected)


@given(shapes(1, 3, 2, 4), st.data())
def test_tensors_that_surround_themselves(image: Shape, data: Data) -> None:
    x = data.draw(arrays((1, 2, *image), ("float32",)))
    pad = tuple(data.draw(st.integers(0, 2)) for _ in range(2 * len(image)))
    expected = torch.ops.aten.pad(tensor_of(x), pad, "circular")
    agree("pad", [x], {"pad": pad, "mode": "circular"}, expected)
