"""Target descriptions: what they hold together, and how they are printed."""

from __future__ import annotations

import json

import pytest

from lamella.base.diagnostic import LamellaError
from lamella.kernels.target import TARGETS, Target, describe, find_target, target_to_json

ALL = pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)


@ALL
def test_a_target_is_consistent(target: Target) -> None:
    assert find_target(target.name) is target
    assert list(target.subgroup_sizes) == sorted({*target.subgroup_sizes})
    assert all(size & (size - 1) == 0 for size in target.subgroup_sizes)
    assert target.subgroup_sizes[-1] <= target.max_work_group_size
    assert target.default_alignment % target.vector_bytes == 0
    assert target.default_subgroup_size in (None, *target.subgroup_sizes)
    assert target.matrix_subgroup_size in (None, *target.subgroup_sizes)
    assert (target.matrix_subgroup_size is None) == (not target.matrix_shapes)


@ALL
def test_a_description_names_what_matters(target: Target) -> None:
    text = describe(target)
    assert text.startswith(f"{target.name}: ")
    for fact in (target.max_work_group_size, target.local_bytes, *target.subgroup_sizes, target.triple):
        assert str(fact) in text
    assert all(str(shapes) in text for shapes in target.matrix_shapes)


@ALL
def test_a_target_is_plain_data(target: Target) -> None:
    data = json.loads(json.dumps(target_to_json(target)))
    assert data["name"] == target.name
    assert data["subgroup_sizes"] == list(target.subgroup_sizes)
    assert len(data["matrix_shapes"]) == len(target.matrix_shapes)


def test_subgroups_of_a_work_group() -> None:
    assert [find_target("pvc").max_subgroups(size) for size in (16, 32)] == [64, 32]
    assert [find_target("pvc-large").max_subgroups(size) for size in (16, 32)] == [32, 32]
    assert find_target("cuda").max_subgroups(32) == 32


def test_an_unknown_target_is_told() -> None:
    with pytest.raises(LamellaError, match="there is no target 'cpu-sse'"):
        find_target("cpu-sse")
