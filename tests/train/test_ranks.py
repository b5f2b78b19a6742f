"""Training on several ranks gives the numbers of one process; a rank that is lost ends the run in words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.optional import need
from lamella.cli import lamella as command
from lamella.graph.data import read_safetensors
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import members, results_of
from lamella.pipeline.options import Options
from lamella.train import StepSettings, TrainableGraph, Trainer, trainable
from lamella.train.adapters.model import find_adapters
from lamella.train.initial import with_initial
from lamella.train.ranks.divide import divide
from lamella.train.ranks.launch import joined
from lamella.train.ranks.mesh import Mesh, read_mesh
from lamella.train.ranks.pipeline import StageTrainer, one_forward_one_backward
from lamella.train.ranks.stages import plan_stages
from lamella.train.ranks.trainer import RankTrainer, World, buckets, gradient_buckets, gradient_marks
from lamella.train.ranks.transport import (
    Link,
    Processes,
    RankLostError,
    Threads,
    choose_link,
    given_place,
    run_threads,
)
from lamella.train.step import StepBuilder
from tests.support.repository import ROOT
from tests.support.train.ranks import (
    MESHES,
    MIXED,
    MUCH,
    OPTIONS,
    SETTINGS,
    SHARDED,
    SHARDED_EXPERTS,
    STAGED,
    STREAMED,
    TEXT,
    batch,
    marked,
    send_much,
    source,
    take,
)


def ranked(made: TrainableGraph, mesh: Mesh) -> list[tuple[list[float], dict[str, np.ndarray]]]:
    """The same on every rank of a mesh, as threads."""
    kind = StageTrainer if mesh.pp > 1 else RankTrainer

    def work(place: Threads) -> object:
        return take(kind(made, SETTINGS, "reference", OPTIONS, World(mesh, place)))

    return run_threads(mesh.size, work)  # type: ignore[return-value]


def require_equal(made: TrainableGraph, mesh: Mesh) -> None:
    """Every rank has the losses, norms and parameters that one process has."""
    numbers, parameters = take(Trainer(made, SETTINGS, "reference", OPTIONS))
    for found, arrays in ranked(made, mesh):
        np.testing.assert_allclose(found, numbers, rtol=1e-9)
        assert set(arrays) == set(parameters)
        for name, item in parameters.items():
            np.testing.assert_allclose(arrays[name], item, rtol=1e-7, atol=1e-9, err_msg=name)


# --- meshes -----------------------------------------------------------------------------------------------------


def test_ranks_and_positions_are_inverse_and_groups_partition() -> None:
    mesh = read_mesh("tp=2, dp=3,pp=2")
    assert (mesh.size, str(mesh)) == (12, "dp=3,pp=2,tp=2")
    for rank in range(mesh.size):
        assert mesh.rank(mesh.position(rank)) == rank
    for axis, extent in mesh.extents.items():
        groups = {mesh.group(rank, axis) for rank in range(mesh.size)}
        assert sorted(sum(groups, ())) == list(range(mesh.size))
        assert {len(item) for item in groups} == {extent}
    assert mesh.group(0, "tp") == (0, 1)


@pytest.mark.parametrize("text", ["", "dp", "dp=0", "dp=2,dp=2", "xx=2", "dp=-1", "dp=99999,tp=99999"])
def test_texts_that_are_no_mesh_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_mesh(text)


def test_buckets_hold_all_names_in_order_and_are_no_larger_than_they_may_be() -> None:
    sizes = {str(number): number % 7 + 1 for number in range(40)}
    found = list(buckets(sizes, 9))
    assert [name for item in found for name in item] == list(sizes)
    assert all(len(item) == 1 or sum(map(sizes.__getitem__, item)) <= 9 for item in found)


def test_places_come_from_a_launcher_or_not_at_all() -> None:
    assert given_place({}) is None
    assert given_place({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "h"}) == (1, 4)
    with pytest.raises(InputError):
        given_place({"RANK": "4", "WORLD_SIZE": "4", "MASTER_ADDR": "h"})


def test_processes_without_a_mesh_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "localhost")):
        monkeypatch.setenv(name, value)
    path = tmp_path / "m.module"
    path.write_text(TEXT)
    done = CliRunner().invoke(command, ["train", str(path), "--data", "x.npy"])
    assert done.exit_code == 1
    assert "2 processes were started" in done.output
    assert "--ranks dp=2" in done.output


def test_a_thread_that_fails_ends_the_others() -> None:
    def work(place: Threads) -> object:
        if place.rank:
            raise ValueError("gone")
        return place.all_reduce(np.ones(2), (0, 1))

    with pytest.raises((ValueError, RankLostError)):
        run_threads(2, work)


# --- numbers ----------------------------------------------------------------------------------------------------


def test_data_parallel_steps_are_those_of_one_process(tmp_path: Path) -> None:
    require_equal(source(tmp_path), Mesh(dp=4))


@pytest.mark.parametrize("mesh", [Mesh(tp=2), Mesh(dp=2, tp=2)], ids=str)
def test_tensor_parallel_steps_are_those_of_one_process(tmp_path: Path, mesh: Mesh) -> None:
    require_equal(source(tmp_path, SHARDED), mesh)


@pytest.mark.parametrize(
    ("text", "kind", "mesh"),
    [
        (SHARDED, "lora:rank=2,targets=up,down,head", Mesh(tp=2)),
        (SHARDED, "lora:rank=2,targets=up", Mesh(dp=2)),
        (SHARDED_EXPERTS, "lora:rank=2,targets=experts,head", Mesh(ep=2)),
    ],
    ids=str,
)
def test_adapters_on_ranks_have_the_numbers_of_one_process(
    text: str, kind: str, mesh: Mesh, tmp_path: Path
) -> None:
    """They are called after weights that ranks divide, and are not divided like these."""
    path = tmp_path / "net.module"
    path.write_text(text, encoding="utf-8")
    model = find_adapters(path, replace(OPTIONS, adapters=(kind,)))
    assert model is not None
    require_equal(model.trainable, mesh)


MARKS = {
    "narrow @shard(sequence)": ("reduce_scatter", "narrow"),
    "narrow @shard(sequence, reduce_scatter=false)": ("all_reduce", "narrow_sum"),
    "bent @shard(replicated)": ("all_gather", "bent_made_whole"),
    'bent @comm(all_to_all, group="tp")': ("all_to_all", "bent_made_turned"),
    "narrow @comm(reduce_scatter)": ("reduce_scatter", "narrow"),
    "narrow @comm(all_reduce, async=false)": ("all_reduce", "narrow"),
    "bent @comm(all_gather)": ("all_gather", "bent_made_whole"),
    "sum @shard(head)": ("all_gather", "sum_whole"),
    "sum @shard(batch)": ("all_reduce", "narrow"),
    'bent @comm(all_gather, group="ep")': ("all_reduce", "narrow"),
}
"""What is said of tensors, and an exchange that there is then."""


@pytest.mark.parametrize("said", MARKS)
def test_tensors_lie_as_the_text_says_and_steps_are_those_of_one_process(tmp_path: Path, said: str) -> None:
    name, _, mark = said.partition(" ")
    made = source(tmp_path, marked(**{name: mark}))
    assert MARKS[said] in [(item.kind, item.tensor) for item in divide(made, Mesh(tp=2), 0).exchanges]
    require_equal(made, Mesh(tp=2))


@pytest.mark.parametrize("strategy", ["column", "row"])
def test_products_are_divided_where_the_text_says_so(tmp_path: Path, strategy: str) -> None:
    made = source(tmp_path, TEXT.replace("-> narrow\n", f"-> narrow @shard({strategy})\n"))
    require_equal(made, Mesh(tp=2))
    (node,) = (
        item
        for item in divide(made, Mesh(tp=2), 1).source.model.graph.operations()
        if item.operator == "llm.matmul" and next(results_of(item)).name.startswith("narrow")
    )
    factors = [item.shape for item in members(node.inputs) if isinstance(item, Tensor)]
    assert [shape[-1] for shape in factors] == ([12, 12] if strategy == "column" else [6, 6])
    assert factors[1][0] == (4 if strategy == "column" else 8)


@pytest.mark.parametrize("mesh", [Mesh(pp=2), Mesh(dp=2, pp=2), Mesh(pp=2, tp=2)], ids=str)
def test_pipelined_steps_are_those_of_one_process(tmp_path: Path, mesh: Mesh) -> None:
    require_equal(source(tmp_path, STAGED), mesh)


INSTANCES = """\
from std.modules import MLP

model Net(d: int = 8, classes: int = 6):
  params:
    first: MLP(d, 12) @partition(0)
    second: MLP(d, 12) @partition(1)
    head: [classes, d]
  forward:
    in: x: [B, T, d]
    out: logits: [B, T, classes]
    graph:
      x -> first() -> a
      a -> second() -> b
      (b, head) -> matmul(transpose=NT) -> logits
"""


def test_instances_have_stages_and_what_follows_is_of_the_last(tmp_path: Path) -> None:
    made = source(tmp_path, INSTANCES)
    require_equal(made, Mesh(pp=2))
    plan = plan_stages(StepBuilder(made, SETTINGS).collection(), made, 2)
    assert plan.owners == {name: 0 if name.startswith("first") else 1 for name in made.gradients}
    assert plan.sent == {(0, 1): ("first.out",)}
    swapped = source(tmp_path, INSTANCES.replace("(0)", "(2)").replace("(1)", "(0)").replace("(2)", "(1)"))
    step = StepBuilder(swapped, SETTINGS).collection()
    with pytest.raises(InputError, match=r"of stage 0 reads 'first\.out' of stage 1"):
        plan_stages(step, swapped, 2)


@pytest.mark.parametrize(
    ("said", "parts", "is_smaller"),
    [("", 2, False), (", micro_batch=false", 1, False), (", recompute=true", 2, True)],
)
def test_stages_take_parts_and_compute_again_as_the_text_says(
    tmp_path: Path, said: str, parts: int, is_smaller: bool
) -> None:
    made, mesh = source(tmp_path, STAGED.replace("@partition(1", f"@partition(1{said}")), Mesh(pp=2)

    def work(place: Threads) -> object:
        trainer = StageTrainer(made, SETTINGS, "reference", OPTIONS, World(mesh, place))
        return take(trainer), trainer.parts, len(list(members(trainer.cut.forward.graph.outputs)))

    numbers, _ = take(Trainer(made, SETTINGS, "reference", OPTIONS))
    found: list[tuple[tuple[list[float], object], int, int]] = run_threads(2, work)  # type: ignore[assignment]
    for (losses, _), count, _ in found:
        np.testing.assert_allclose(losses, numbers, rtol=1e-9)
        assert count == parts
    # Stage 1 of the text is in the first of two: five tensors are kept for the way back, or none.
    assert found[0][2] == (1 if is_smaller else 6)


@given(st.integers(1, 6), st.integers(1, 9))
def test_every_part_goes_forward_before_it_goes_back_and_few_are_held(stages: int, parts: int) -> None:
    for stage in range(stages):
        held: set[int] = set()
        done = []
        for is_back, number in one_forward_one_backward(stage, stages, parts):
            held = held - {number} if is_back and number in held else held | {number}
            assert len(held) <= stages - stage
            done += [number] if is_back else []
        assert not held
        assert done == list(range(parts))


def test_streamed_parameters_are_stored_as_slices_and_steps_are_those_of_one_process(tmp_path: Path) -> None:
    made = source(tmp_path, STREAMED)
    require_equal(made, Mesh(dp=2))
    own = divide(made, Mesh(dp=2), 1)
    assert own.stored == {"up", "down"}
    shapes = {item.name: item.shape for item in own.source.model.graph.variables}
    assert (shapes["up"], shapes["down"], shapes["head"]) == ((6, 8), (4, 12), (6, 8))
    assert [item.tensor for item in own.exchanges if item.kind == "reduce_scatter"] == [
        "d_up",
        "d_down",
    ]


@pytest.mark.parametrize("mesh", [Mesh(dp=2, ep=2), Mesh(pp=2, ep=2)], ids=str)
def test_expert_parallel_steps_are_those_of_one_process(tmp_path: Path, mesh: Mesh) -> None:
    text = MIXED.replace("-> mixed", "-> mixed @partition(0)").replace("-> logits", "-> logits @partition(1)")
    made = source(tmp_path, text if mesh.pp > 1 else MIXED)
    require_equal(made, mesh)
    own = divide(made, mesh, 0)
    assert set(own.slices) == {"experts.gate_up", "experts.down"}
    kinds = Counter(item.kind for item in own.exchanges)
    assert kinds == {"all_gather": 1, "all_to_all": 4}, "rows go to their experts and back, both ways"


@pytest.mark.parametrize("said", ['@comm(all_gather, group="ep")', "@shard(replicated)"])
def test_experts_without_a_rule_are_gathered_and_their_gradients_scattered(tmp_path: Path, said: str) -> None:
    # No operator on experts reads these weights by offsets, or the text wants the rows back between two of them.
    text = SHARDED_EXPERTS.replace("-> wide", f"-> wide {said}")
    made = source(tmp_path, text)
    require_equal(made, Mesh(ep=2))
    kinds = Counter(item.kind for item in divide(made, Mesh(ep=2), 0).exchanges)
    assert kinds["reduce_scatter"] == 1  # of the table that a product of matrices takes whole
    assert kinds["all_to_all"] == (7 if "comm" in said else 4)


def test_a_step_is_taken_again_with_more_room_where_one_rank_has_most_of_the_rows(tmp_path: Path) -> None:
    made = source(tmp_path, MIXED)
    data = dict(made.model.data or {})
    data["experts.router"] = np.zeros((4, 8))  # all tokens go to the first two experts
    made = replace(made, model=replace(made.model, data=data))
    require_equal(made, Mesh(ep=2))

    def work(place: Threads) -> object:
        trainer = RankTrainer(made, SETTINGS, "reference", OPTIONS, World(Mesh(ep=2), place))
        before = trainer.division
        first = trainer.evaluate(batch(0, 2))
        return first, trainer.evaluate(batch(0, 2)), before is trainer.division

    loss = Trainer(made, SETTINGS, "reference", OPTIONS).evaluate(batch(0, 2))
    found: list[tuple[float, float, bool]] = run_threads(2, work)  # type: ignore[assignment]
    for first, second, is_same in found:
        np.testing.assert_allclose([first, second], loss, rtol=1e-9)
        assert not is_same


def test_hooks_of_experts_see_the_rows_of_the_experts_of_their_rank(tmp_path: Path) -> None:
    made = source(tmp_path, MIXED)

    def work(place: Threads) -> object:
        seen: list[np.ndarray] = []
        trainer = RankTrainer(made, SETTINGS, "reference", OPTIONS, World(Mesh(ep=2), place))
        trainer.register_hook("AfterExpertCompute", lambda item, *_: seen.append(np.array(item)))
        trainer.step(batch(0, 2), 0.01)
        return seen[-1]

    whole: list[np.ndarray] = []
    trainer = Trainer(made, SETTINGS, "reference", OPTIONS)
    trainer.register_hook("AfterExpertCompute", lambda item, *_: whole.append(np.array(item)))
    trainer.step(batch(0, 2), 0.01)
    found: list[np.ndarray] = run_threads(2, work)  # type: ignore[assignment]
    np.testing.assert_allclose(np.concatenate([item[item.any(1)] for item in found]), whole[0], rtol=1e-9)


# --- narrow types -----------------------------------------------------------------------------------------------

NARROW = """\
recipe Narrow:
  forward_activation_dtype: {0}
  backward_gradient_dtype: {1}
  output_dtype: {2}
  weight_storage_dtype: {2}
  scaling_strategy: delayed
  amax_history_len: 3

model Net(d: int = 8, hidden: int = 12, classes: int = 6):
  @recipe(Narrow)
  params:
    up: [hidden, d] @shard(column)
    down: [d, hidden] @shard(row)
    head: [classes, d]
  forward:
    in: x: [B, d, fp32]
    out: logits: [B, classes]
    graph:
      (x, up) -> matmul(transpose=NT) -> wide @partition(0)
      wide -> relu() -> bent @partition(0)
      (bent, down) -> matmul(transpose=NT) -> narrow @partition(1)
      (narrow, head) -> matmul(transpose=NT) -> logits @partition(1)
"""
NARROW_MESHES = [Mesh(dp=2), Mesh(tp=2), Mesh(pp=2)]


def narrow_source(folder: Path, *types: str) -> TrainableGraph:
    path = folder / "net.module"
    path.write_text(NARROW.format(*types), encoding="utf-8")
    found = trainable(path, Options())
    return replace(found, model=with_initial(found.model, Options())[0])


@pytest.mark.parametrize("mesh", NARROW_MESHES, ids=str)
def test_ranks_scale_by_the_largest_numbers_of_all(tmp_path: Path, mesh: Mesh) -> None:
    """Histories are those of one process, and the same on all ranks; what is rounded differs by its rounding."""
    made = narrow_source(tmp_path, "fp8_e4m3", "fp8_e5m2", "bf16")
    kind = StageTrainer if mesh.pp > 1 else RankTrainer
    batches = [batch(number) for number in range(3)]

    def steps(trainer: Trainer) -> tuple[list[float], dict[str, np.ndarray]]:
        losses = [trainer.step({**item, "x": item["x"].astype(np.float32)}, 0.01).loss for item in batches]
        losses.append(trainer.evaluate({**batches[0], "x": batches[0]["x"].astype(np.float32)}))
        return losses, {name: np.array(item) for name, item in trainer.state.items()}

    settings = StepSettings("sgd")
    one = replace(settings, accumulation=mesh.pp)
    losses, state = steps(Trainer(made, one, "reference", Options()))
    work = lambda place: steps(kind(made, settings, "reference", Options(), World(mesh, place)))  # noqa: E731
    found: list[tuple[list[float], dict[str, np.ndarray]]] = run_threads(mesh.size, work)  # type: ignore[assignment]
    for own, held in found:
        np.testing.assert_allclose(own, losses, rtol=2e-3)
        assert set(held) == set(state)
        for name in (item for item in state if ".amax" in item):
            np.testing.assert_array_equal(held[name], found[0][1][name], err_msg=name)
            np.testing.assert_allclose(held[name], state[name], rtol=0.05, err_msg=name)


@pytest.mark.parametrize(
    ("types", "scaling", "sent"),
    [(("bf16",) * 3, "per_tensor", 4), (("fp8_e4m3", "fp8_e5m2", "bf16"), "delayed", 6)],
    ids=["bf16", "fp8"],
)
def test_experts_of_narrow_types_are_computed_where_they_are(
    tmp_path: Path, types: tuple[str, ...], scaling: str, sent: int
) -> None:
    """Weights are rounded as slices, rows where their experts are, by the largest numbers of all ranks."""
    recipe = NARROW.partition("model Net")[0].format(*types).replace("delayed", scaling)
    text = recipe + MIXED.replace("  params:", "  @recipe(Narrow)\n  params:", 1).replace(
        "in: x: [B, T, d]", "in: x: [B, T, d, fp32]"
    )
    (tmp_path / "net.module").write_text(text, encoding="utf-8")
    found = trainable(tmp_path / "net.module", Options())
    made = replace(found, model=with_initial(found.model, Options())[0])
    kinds = Counter(item.kind for item in divide(made, Mesh(ep=2), 0).exchanges)
    assert (kinds["all_to_all"], kinds["reduce_scatter"]) == (sent, 0)
    given = [{**item, "x": item["x"].astype(np.float32)} for item in (batch(0, 2), batch(1, 2))]

    def steps(trainer: Trainer) -> tuple[list[float], dict[str, np.ndarray]]:
        losses = [trainer.step(item, 0.05).loss for item in given]
        return losses, {name: np.array(item, np.float64) for name, item in trainer.state.items()}

    settings = StepSettings("sgd")
    losses, state = steps(Trainer(made, settings, "reference", Options()))
    work = lambda place: steps(RankTrainer(made, settings, "reference", Options(), World(Mesh(ep=2), place)))  # noqa: E731
    ranks: list[tuple[list[float], dict[str, np.ndarray]]] = run_threads(2, work)  # type: ignore[assignment]
    for own, held in ranks:
        np.testing.assert_allclose(own, losses, rtol=1e-6)
        for name, item in state.items():
            np.testing.assert_allclose(held[name], item, rtol=0.01, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("mesh", NARROW_MESHES, ids=str)
def test_ranks_scale_a_loss_together(tmp_path: Path, mesh: Mesh) -> None:
    """Where one rank finds a gradient that is not finite all of them skip the step, and halve the scale."""
    made = narrow_source(tmp_path, "fp16", "fp16", "fp16")
    kind = StageTrainer if mesh.pp > 1 else RankTrainer
    given = batch(0)
    large = {**given, "x": (given["x"] * 100).astype(np.float32)}
    large["x"][4:] = 0  # the second half of a batch has small gradients
    small = {**given, "x": (given["x"] / 100).astype(np.float32)}

    def steps(trainer: Trainer) -> tuple[object, ...]:
        before = np.array(trainer.parameters["up"])
        first = trainer.step(large, 0.01).is_skipped
        held, scale = np.array_equal(trainer.parameters["up"], before), trainer.loss_scale
        second = [trainer.step(small, 0.01).is_skipped for _ in range(6)]
        return first, held, scale, second, trainer.loss_scale, trainer.steps

    settings = StepSettings("adamw")
    wanted = steps(Trainer(made, settings, "reference", Options()))
    assert wanted[:3] == (True, True, 32768.0)
    work = lambda place: steps(kind(made, settings, "reference", Options(), World(mesh, place)))  # noqa: E731
    assert run_threads(mesh.size, work) == [wanted] * mesh.size


CHECKED = """\
module First(d: int):
  params:
    weight: [d, d]
  forward:
    in: [B, 4, d]
    out: [B, 4, d]
    graph:
      (in, weight) -> matmul(transpose=NT) -> out

model Net(d: int = 8, classes: int = 6):
  params:
    first: First(d) @partition(0)
    head: [classes, d]
  forward:
    in: x: [B, T, d]
    out: logits: [B, T, classes]
    graph:
      x -> first() -> given
      (given, head) -> matmul(transpose=NT) -> logits @partition(1)
"""


def test_stages_check_the_extents_that_the_text_declares(tmp_path: Path) -> None:
    made, mesh = source(tmp_path, CHECKED), Mesh(pp=2)
    work = lambda place: take(StageTrainer(made, SETTINGS, "reference", OPTIONS, World(mesh, place)))  # noqa: E731
    with pytest.raises(LamellaError, match=r"is declared \[B, 4, d\]"):
        run_threads(2, work)


OWN_BACKWARD = """\
model Net(d: int = 8, classes: int = 6):
  params:
    first: [d, d]
    head: [classes, d]
  forward:
    in: x: [B, d]
    out: logits: [B, classes]
    graph:
      (x, first) -> matmul(transpose=NT) -> given
      (given, head) -> matmul(transpose=NT) -> logits
    save: [x, given]
  backward:
    d_logits: [B, classes]
    d_x: [B, d]
    graph:
      (d_logits, head) -> matmul(transpose=NN) -> d_given
      (d_logits, saved.given) -> matmul(transpose=TN) -> d_head @comm(all_reduce, group="dp", bucket_size=64)
      (d_given, saved.x) -> matmul(transpose=TN) -> d_first @comm(all_reduce, group="dp", async=false)
      (d_given, first) -> matmul(transpose=NN) -> d_x
"""


def test_gradients_travel_as_the_text_says(tmp_path: Path) -> None:
    made = source(tmp_path, OWN_BACKWARD)
    require_equal(made, Mesh(dp=2))
    found = list(gradient_buckets(made, {"first": 512, "head": 384}))
    assert [(item.names, item.is_later) for item in found] == [(["first"], False), (["head"], True)]
    marks = dict(gradient_marks(made))
    assert (marks["head"].bucket, marks["first"].bucket) == (64, None)


@pytest.mark.parametrize("is_later", [True, False])
def test_sums_go_on_while_a_rank_computes_where_the_text_lets_them(tmp_path: Path, is_later: bool) -> None:
    said = "@shard(column)" if is_later else "@shard(column, async_comm=false)"
    text = OWN_BACKWARD.replace("head: [classes, d]", f"head: [classes, d] {said}")
    require_equal(source(tmp_path, text), Mesh(tp=2))
    found = divide(source(tmp_path, text), Mesh(tp=2), 0)
    assert any(item.is_later for item in found.exchanges) == is_later
    waits = [item for item in found.source.model.graph.operations() if item.operator == "misc.wait"]
    assert bool(waits) == is_later


def test_column_and_row_pairs_sum_once_forward_and_once_backward(tmp_path: Path) -> None:
    found = divide(
        source(tmp_path, SHARDED.replace("head: [classes, d] @shard(column)", "head: [classes, d]")),
        Mesh(tp=2),
        0,
    )
    exchanges = [(item.kind, item.tensor) for item in found.exchanges]
    assert exchanges == [("all_reduce", "narrow"), ("all_reduce", "flat.d_A")]


@pytest.mark.parametrize(
    ("text", "mesh", "words"),
    [
        (SHARDED.replace("column", "column, tp_size=4"), Mesh(tp=2), "'up' is written for tp=4"),
        (SHARDED.replace("column", "column, ep_size=4"), Mesh(ep=2), "'up' is written for ep=4"),
        (SHARDED.replace("column", "column, pp_size=4"), Mesh(pp=2), "'up' is written for pp=4"),
        (TEXT, Mesh(tp=2), "no parameter is divided along tp"),
        (SHARDED, Mesh(tp=5), "which 5 ranks cannot divide"),
        (TEXT, Mesh(ep=2), "no parameter is divided along ep"),
    ],
)
def test_what_cannot_be_divided_is_said(tmp_path: Path, text: str, mesh: Mesh, words: str) -> None:
    with pytest.raises(InputError, match=words):
        divide(source(tmp_path, text), mesh, 0)


# --- processes --------------------------------------------------------------------------------------------------


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def lamella(*words: str) -> list[str]:
    return [sys.executable, "-c", "from lamella.cli import main; main()", *words]


def test_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.support.train.ranks", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = read_safetensors(tmp_path / "found.safetensors")
    for name, (text, _) in MESHES.items():
        numbers, parameters = take(Trainer(source(tmp_path, text), SETTINGS, "reference", OPTIONS))
        np.testing.assert_allclose(found[name], numbers, rtol=1e-9, err_msg=name)
        for path, item in parameters.items():
            np.testing.assert_allclose(found[f"{name} {path}"], item, rtol=1e-7, atol=1e-9, err_msg=name)


@pytest.mark.parametrize(
    ("backend", "gpus", "has_nccl", "name", "words"),
    [
        ("cpu", 4, True, "gloo", ""),
        ("cuda", 4, True, "nccl", ""),
        ("cuda", 1, True, "gloo", "torch sees 1 GPUs for 2 ranks"),
        ("cuda", 2, False, "gloo", "no NCCL"),
    ],
)
def test_arrays_go_between_gpus_where_there_is_one_for_each_rank(
    monkeypatch: pytest.MonkeyPatch, backend: str, gpus: int, has_nccl: bool, name: str, words: str
) -> None:
    torch = need("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: has_nccl)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7,8,9"[: 2 * gpus - 1])
    before = os.environ["CUDA_VISIBLE_DEVICES"]
    link = choose_link(backend, 1, 2)
    assert (link.name, link.device) == (name, "cuda" if name == "nccl" else "cpu")
    assert words in link.reason
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ("7" if name == "nccl" else before)


@pytest.mark.parametrize(
    "name", ["gloo", pytest.param("nccl", marks=[pytest.mark.gpu, pytest.mark.real_gpu])]
)
def test_a_link_carries_the_arrays_of_one_rank(name: str, tmp_path: Path) -> None:
    """On one GPU NCCL has one rank: every collective goes through it all the same."""
    link = Link("nccl", "cuda") if name == "nccl" else Link()
    ranks = Processes(0, 1, f"file://{tmp_path}/meeting", link)
    try:
        ranks.prepare([[0]], fewest=1)
        array = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
        for found in (
            ranks.all_reduce(array, [0]),
            ranks.begin_all_reduce(array, [0])(),
            ranks.all_gather(array, [0], 1),
            ranks.reduce_scatter(array, [0], 0),
            ranks.all_to_all(array, [0], 0, 1),
        ):
            assert found is not array
            np.testing.assert_array_equal(found, array)
        ranks.finish()
    finally:
        ranks.close()


def test_a_rank_that_is_done_waits_for_what_it_has_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # the other process finds its work there
    mesh = read_mesh("dp=2")
    with joined(mesh, send_much) as world:
        time.sleep(0.5)  # the other one has long ended its work
        assert world.transport.receive(1).sum() == MUCH


def test_processes_train_and_a_lost_one_ends_the_run_with_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.module").write_text(TEXT, encoding="utf-8")
    rows = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=rows, targets=np.arange(64) % 6)
    words = ["train", "net.module", "--data", "data.npz", "--batch", "4", "--backend", "reference"]
    words += ["--ranks", "dp=2", "--save", "w.safetensors", "--save-every", "1"]
    running = subprocess.Popen(
        lamella(*words, "--steps", "1000000"),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        kept = tmp_path / "w.safetensors.training"
        wait_for(lambda: kept.is_dir() and any(kept.glob("step-*.safetensors")))
        os.kill(other_rank(running.pid), signal.SIGKILL)
        _, errors = running.communicate(timeout=120)
    finally:
        running.kill()
    assert running.returncode == 1
    assert "rank 1 was killed by signal 9, and the training ended" in errors
    assert "--resume" in errors
    assert "Traceback" not in errors
    done = max(int(item.stem.rpartition("-")[2]) for item in kept.glob("step-*.safetensors"))
    # A checkpoint is whole: it says nothing of ranks, so that one process may go on.
    alone = [word for word in words if word not in ("--ranks", "dp=2")]
    monkeypatch.chdir(tmp_path)
    again = CliRunner().invoke(command, [*alone, "--steps", str(done + 1), "--resume"])
    assert f"goes on behind step {done}" in again.output


def other_rank(pid: int) -> int:
    """The process that is rank 1."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if b"lamella.train.ranks.process" in Path(f"/proc/{child}/cmdline").read_bytes():
            return int(child)
    raise AssertionError("there is no other rank")


def wait_for(condition: object, seconds: float = 120) -> None:
    """Wait until something is so."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
