"""Schedules carried out byte by byte: what an op reads is still there, and the peak is what is in use at most."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamella.bridge.ir_to_graph import read_ir
from lamella.bridge.module_to_graph import CompilationSettings
from lamella.bridge.module_to_graph.backward import differentiate
from lamella.bridge.module_to_ir import module_to_ir, read_unit
from lamella.graph.model import Model
from tests.support.bridge.module_ir import (
    MODELS,
    TINY,
    TYPES,
    Array,
    built,
    built_text,
    evaluator,
    instance_of,
    known_sizes,
    tiny,
    values_of,
    written,
)


def carry_out(plan: dict[str, Any], graph: dict[str, Any], values: dict[str, Array]) -> None:
    """Run a plan on plain memory, with the numbers that each op would compute.

    Before an op its operands must lie where the plan says, so memory that is given away too early shows.
    """
    memory = {pool["name"]: np.full(pool["bytes"], 255, np.uint8) for pool in plan["pools"]}
    buffers = {item["id"]: item for item in plan["buffers"]}
    literals = {item["name"]: item["value"] for item in graph["literals"]}

    def image(name: str) -> Array:
        buffer = buffers[name]
        if name in literals:
            count = buffer["bytes"] // np.dtype(TYPES[buffer["dtype"]]).itemsize
            found = np.resize(np.asarray(literals[name], TYPES[buffer["dtype"]]), count)
        else:
            found = np.ascontiguousarray(values[name], TYPES[buffer["dtype"]])
        return np.frombuffer(found.tobytes(), np.uint8)

    def region(name: str, ref: dict[str, Any]) -> Array:
        """The memory of a tensor, as the op and as its buffer say; both must be the same place."""
        buffer, owner = buffers[name], buffers[ref["buffer"]]
        start = owner["offset"] + ref.get("offset", 0)
        assert (owner["pool"], start, ref["size"]) == (buffer["pool"], buffer["offset"], buffer["bytes"])
        assert ref.get("offset", 0) + ref["size"] <= owner["bytes"]
        assert start + ref["size"] <= len(memory[buffer["pool"]])
        found: Array = memory[buffer["pool"]][start : start + ref["size"]]
        return found

    for item in plan["buffers"]:
        if item["first"] < 0 and not item.get("aliases"):
            region(item["id"], {"buffer": item["id"], "size": item["bytes"]})[:] = image(item["id"])
    for op, node in zip(plan["ops"], graph["nodes"], strict=True):
        assert op["node"] == node["id"]
        operands, results = _flat(node["inputs"]), _flat(node["outputs"])
        for name, ref in zip(operands, op["inputs"], strict=True):
            np.testing.assert_array_equal(region(name, ref), image(name), f"{name} for {node['op']}")
        for name, ref in zip(results, op["outputs"], strict=True):
            if buffers[name].get("aliases"):
                np.testing.assert_array_equal(region(name, ref), image(name), name)
            else:
                assert op["kernel"] == node["op"]
                region(name, ref)[:] = image(name)
    kept = [item["name"] for item in plan["activation_layout"]["fields"]] if "gradients" not in graph else []
    for name in (*graph["outputs"], *(item["value"] for item in graph["updates"]), *kept):
        ref = {"buffer": name, "size": buffers[name]["bytes"]}
        np.testing.assert_array_equal(region(name, ref), image(name), name)


def _flat(arguments: list[Any]) -> list[str]:
    return [
        name for item in arguments if item is not None for name in ([item] if isinstance(item, str) else item)
    ]


def check_peaks(plan: dict[str, Any]) -> None:
    """The peak of each kind is the most that is in use at once; a pool is large enough for all in it."""
    owners = [item for item in plan["buffers"] if not item.get("aliases")]
    for peak in plan["peaks"]:
        own = [item for item in owners if item["kind"] == peak["kind"]]
        sums = [
            sum(item["bytes"] for item in own if item["first"] <= time <= item["last"])
            for time in range(-1, len(plan["ops"]))
        ]
        assert peak["bytes"] == max(sums)
        assert peak["unshared"] == sum(item["bytes"] for item in own)
    for time in range(-1, len(plan["ops"])):
        alive = [item for item in owners if item["first"] <= time <= item["last"] and item["bytes"]]
        for pool in plan["pools"]:
            places = sorted(
                (item["offset"], item["offset"] + item["bytes"])
                for item in alive
                if item["pool"] == pool["name"]
            )
            assert all(first[1] <= second[0] for first, second in pairwise(places))
    assert all(item["offset"] % plan["alignment"] == 0 for item in owners)


def check_streams(plan: dict[str, Any]) -> None:
    """Whatever an op reads from another stream, or overwrites there, is behind a point where its stream waits."""
    ops, buffers = plan["ops"], {item["id"]: item for item in plan["buffers"]}

    def done(op: int, before: int) -> bool:
        """Whether an op is over when another begins: by order in one stream, else by a wait in between."""
        if ops[op]["stream"] == ops[before]["stream"]:
            return op < before
        stream = ops[before]["stream"]
        waits = [
            item["after_op"]
            for item in plan["sync_points"]
            if item["stream"] == stream and item["before"] <= before
        ]
        return any(op <= item and ops[item]["stream"] == ops[op]["stream"] for item in waits)

    def places(refs: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
        return [
            (buffers[ref["buffer"]]["pool"], start, start + ref["size"])
            for ref in refs
            for start in [buffers[ref["buffer"]]["offset"] + ref.get("offset", 0)]
        ]

    for later, op in enumerate(ops):
        for earlier in range(later):
            before = ops[earlier]
            touched = [
                (places(before["outputs"]), places([*op["inputs"], *op["outputs"]])),
                (places(before["inputs"]), places(op["outputs"])),
            ]
            if any(_meet(left, right) for left, right in touched):
                assert done(earlier, later), (before["node"], op["node"])


def _meet(left: list[tuple[str, int, int]], right: list[tuple[str, int, int]]) -> bool:
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a in left for b in right)


def judge(
    plan: dict[str, Any], graph: dict[str, Any], model: Model, inputs: dict[str, Array]
) -> dict[str, Any]:
    """Carry out a plan for inputs of these shapes, and give it with every size known."""
    known: dict[str, int] = {}
    table = {item["id"]: item["text"] for item in graph["symbols"] if item["kind"] == "symbol"}
    for item in graph["inputs"]:
        for size, extent in zip(inputs[item["name"]].shape, item["shape"], strict=True):
            known |= {table[extent]: size} if extent < 0 else {}
    concrete: dict[str, Any] = known_sizes(plan, evaluator(plan["symbols"], known))
    carry_out(concrete, graph, values_of(model.graph, model, inputs))
    check_peaks(concrete)
    return concrete


TOKENS = np.random.default_rng(0).integers(0, 32, (2, 5))


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3", "mixtral"])
def test_models_run_in_the_memory_that_is_planned(name: str, tmp_path: Path) -> None:
    found = built(instance_of(MODELS / f"{name}.module", **_taken(name)))
    files = written(found.unit, tmp_path)
    plan = judge(files["schedule"], files["graph"], found.model, {found.unit.graph.inputs[0].name: TOKENS})
    activation = plan["peaks"][0]
    assert activation["bytes"] < activation["unshared"]


def _taken(name: str) -> dict[str, object]:
    """The small sizes that a model has parameters for."""
    text = (MODELS / f"{name}.module").read_text()
    return {key: value for key, value in TINY.items() if f"{key}:" in text}


def test_known_extents_are_packed_tighter(tmp_path: Path) -> None:
    inputs = {"token_ids": TOKENS}
    open_ones, known = tiny(), tiny(settings=CompilationSettings(extents={"B": 2, "T": 5}))
    files = [written(item.unit, tmp_path / str(number)) for number, item in enumerate((open_ones, known))]
    assert not files[1]["schedule"]["symbols"]
    plans = [
        judge(part["schedule"], part["graph"], item.model, inputs)
        for part, item in zip(files, (open_ones, known), strict=True)
    ]
    assert plans[0]["peaks"] == plans[1]["peaks"]
    sizes = [{item["name"]: item["bytes"] for item in plan["pools"]} for plan in plans]
    assert sizes[1]["scratch"] <= sizes[0]["scratch"]


def test_a_graph_with_gradients_frees_what_was_saved_after_its_last_use(tmp_path: Path) -> None:
    found = tiny()
    trained = differentiate(found.instance)
    assert trained.model is not None
    unit = module_to_ir(found.compiled, found.instance, trained=trained)
    files = written(unit, tmp_path)
    inputs: dict[str, Array] = {"token_ids": TOKENS, "d_logits": np.ones((2, 5, 32), np.float32)}
    plan = judge(files["training_schedule"], files["training"], trained.model, inputs)
    fields = {item["name"] for item in plan["activation_layout"]["fields"]}
    assert fields == set(trained.saved) - {"token_ids"}
    spans = [item for item in plan["buffers"] if item["id"] in fields]
    assert min(item["last"] for item in spans) < len(plan["ops"]) - 1
    gradients = {item["name"] for item in plan["gradient_layout"]["fields"]}
    assert set(trained.gradients.values()) <= gradients
    forward = judge(files["schedule"], files["graph"], found.model, {"token_ids": TOKENS})
    kept = {item["name"] for item in forward["activation_layout"]["fields"]}
    assert kept == fields
    assert {item["last"] for item in forward["buffers"] if item["id"] in kept} == {len(forward["ops"]) - 1}


COLLECTIVE = """
    module M(d: int = 8):
      params:
        w: [d, d]
      forward:
        in: x: [B, d]
        out: y: [B, d]
        graph:
          (x, w) -> matmul(transpose=NT) -> h
          h -> all_reduce() -> r
          x -> relu() -> a
          a -> silu() -> b
          b -> copy() -> c
          (r, c) -> add() -> s
          s -> all_reduce() -> t
          (s, t) -> add() -> y
"""


def test_streams_wait_where_they_share_memory(tmp_path: Path) -> None:
    found = built_text(tmp_path, COLLECTIVE, CompilationSettings(extents={"B": 2}))
    files = written(found.unit, tmp_path / "ir")
    x = np.random.default_rng(1).normal(size=(2, 8)).astype(np.float32)
    plan = judge(files["schedule"], files["graph"], found.model, {"x": x})
    talking = [item for item in plan["ops"] if item["stream"] == "comm"]
    assert [item["kernel"] for item in talking] == ["math.iden"] * 2
    assert {item["kind"] for item in plan["sync_points"]} == {"stream_sync", "comm_wait"}
    check_streams(plan)
    assert found.unit.metadata.collectives == ("n1", "n6")


# --- lives that are said -----------------------------------------------------------------------------------------

LIVES = """
module Inner():
  forward:
    in: x: [B, 8]
    out: y: [B, 8]
    graph:
      x -> relu() -> a LIFE
      a -> silu() -> b
      b -> gelu() -> c
      c -> softmax() -> y

module Outer():
  params:
    layers: [2] x Inner()

  forward:
    in: x: [B, 8]
    out: y: [B, 8]
    graph:
      x -> sigmoid() -> before
      before -> layers[0]() -> p
      p -> layers[1]() -> q
      q -> sigmoid() -> r
      r -> relu() -> y
"""
LASTS = {
    "": ("silu", "silu"),
    "@lifetime(operation)": ("silu", "silu"),
    "@lifetime(end=gelu)": ("gelu", "gelu"),
    "@lifetime(start=relu, end=softmax)": ("softmax", "softmax"),
    "@lifetime(sublayer)": ("softmax", "softmax"),
    "@lifetime(layer)": ("softmax", "softmax"),
    "@lifetime(block)": ("relu", "relu"),
    "@lifetime(global)": ("relu", "relu"),
}
"""The op at whose end the memory of a tensor is free, in each of two layers."""


@pytest.mark.parametrize("life", LASTS)
def test_memory_is_held_as_long_as_a_lifetime_says(life: str, tmp_path: Path) -> None:
    found = built_text(tmp_path, LIVES.replace("LIFE", life), CompilationSettings(extents={"B": 2}))
    plan = found.unit.schedule
    held = [item for item in plan.buffers if item.id.endswith(".a")]
    kernels = [plan.ops[item.last].kernel.partition(".")[2] for item in held]
    assert tuple(kernels) == LASTS[life]
    begun = [plan.ops[item.first].kernel.partition(".")[2] for item in held]
    assert begun == ["relu", "relu"]
    last = {"@lifetime(block)", "@lifetime(global)"}
    assert all((item.last == len(plan.ops) - 1) == (life in last) for item in held)


# --- random modules ---------------------------------------------------------------------------------------------

UNARY = ("relu()", "silu()", "softmax()", "scale(0.5)", "copy()", "view([B, -1])", "contiguous()")
MARKS = ("", "", "", " @memory(save)", " @memory(pin)", " @noalias", " @lifetime(global)")


@st.composite
def modules(draw: st.DrawFn) -> str:
    """A module of some statements over tensors of two widths, some of which it saves."""
    widths = {"x": 4}
    lines: list[str] = []
    for number in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from(sorted(widths)))
        width, target, kind = widths[name], f"t{number}", draw(st.integers(0, 6))
        mark = draw(st.sampled_from(MARKS))
        if kind == 0:
            other = draw(st.sampled_from(sorted(key for key in widths if widths[key] == width)))
            operation = draw(st.sampled_from(["add()", "mul()"]))
            lines.append(f"({name}, {other}) -> {operation} -> {target}{mark}")
        elif kind == 1 and width == 4:
            lines.append(f"{name} -> split([2, 2], dim=-1) -> ({target}, {target}b)")
            widths |= {target: 2, f"{target}b": 2}
            continue
        elif kind == 2 and width == 2:
            lines.append(f"({name}, {name}) -> concat(dim=-1) -> {target}{mark}")
            width = 4
        elif kind == 3:
            alias = draw(st.sampled_from(["", " @alias"]))
            lines.append(f"{name}[:, 0:2] -> {target}{alias}")
            width = 2
        elif kind == 4 and width == 4:
            lines.append(f"({name}, w) -> matmul(transpose=NT) -> {target}{mark}")
        else:
            lines.append(f"{name} -> {draw(st.sampled_from(UNARY))} -> {target}{mark}")
        widths[target] = width
    last = draw(st.sampled_from(sorted(widths)))
    lines.append(f"{last} -> relu() -> y")
    saved = draw(st.lists(st.sampled_from(sorted(widths)), unique=True, max_size=3))
    body = "\n".join(f"      {line}" for line in lines)
    return (
        "module M():\n  params:\n    w: [4, 4]\n  forward:\n    in: x: [B, 4]\n"
        f"    out: y: [B, {widths[last]}]\n    graph:\n{body}\n    save: [{', '.join(saved)}]\n"
    )


@given(text=modules(), rows=st.integers(1, 3), known=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
def test_random_modules_are_read_back_and_run_in_the_memory_that_is_planned(
    text: str, rows: int, known: bool, tmp_path: Path
) -> None:
    found = built_text(tmp_path, text, CompilationSettings(extents={"B": rows} if known else {}))
    files = written(found.unit, tmp_path / "ir")
    assert read_unit(tmp_path / "ir") == found.unit
    assert read_ir(tmp_path / "ir") == found.model
    x = np.random.default_rng(rows).normal(size=(rows, 4)).astype(np.float32)
    judge(files["schedule"], files["graph"], found.model, {"x": x})
