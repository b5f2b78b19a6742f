"""What annotations do to a graph: conversions, storage, order, and marks with typed arguments."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamella
from lamella.backend.reference import compile_model
from lamella.base.source import Source
from lamella.bridge.module_to_graph import Compiled, Mark, module_to_graph
from lamella.bridge.module_to_graph.backward import differentiate
from lamella.graph.model import Model
from lamella.graph.nodes import Operation
from lamella.lang.module.instantiate import instantiate
from lamella.lang.module.nodes import Chain
from lamella.lang.module.resolve import Workspace, resolve
from tests.support.bridge.module_texts import written

F32 = npt.NDArray[np.float32]
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(4, 64)).astype(np.float32)
W = RANDOM.normal(size=(32, 64)).astype(np.float32)
NARROW = {
    "bf16": (ml_dtypes.bfloat16, 0.0),
    "fp16": (np.float16, 0.0),
    "fp8_e4m3": (ml_dtypes.float8_e4m3fn, 448.0),
    "fp8_e5m2": (ml_dtypes.float8_e5m2, 57344.0),
    "fp4_e2m1": (ml_dtypes.float4_e2m1fn, 6.0),
    "int8": (np.int8, 127.0),
}


def compiled(text: str) -> Compiled:
    """The last declaration of a text as a graph."""
    workspace = Workspace()
    resolved = resolve(workspace.take(Source("test.module", dedent(text))), workspace)
    assert not resolved.findings, "\n".join(map(str, resolved.findings))
    declared = list(resolved.scope.local.values())[-1]
    found = instantiate(declared, {}, resolved.scope)
    assert found.instance is not None, found.findings
    made = module_to_graph(found.instance)
    assert not [item for item in made.findings if item.severity == "error"], made.findings
    return made


def operators(made: Compiled) -> list[str]:
    """The operators of a graph in their order."""
    assert made.model is not None
    return [node.operator for node in made.model.graph.nodes if isinstance(node, Operation)]


def linear(annotations: str = "", parameter: str = "", declaration: str = "", recipe: str = "") -> str:
    """A projection with annotations in several places."""
    return f"""\
{recipe}
module M():
  {declaration}
  params:
    weight: [32, 64] {parameter}
  forward:
    in: x: [B, 64]
    out: y: [B, 32]
    graph:
      (x, weight) -> matmul(transpose=NT) -> y {annotations}
"""


def computed(folder: Path, text: str) -> F32:
    """What a projection gives in the types that its text says."""
    model = lamella.load(written(folder, text))
    assert isinstance(model, Model)
    executable = compile_model(model)
    executable.state["weight"] = W.astype(executable.state["weight"].dtype)
    return np.asarray(executable(x=X)["y"], np.float32)


def rounded(values: F32, name: str, axes: tuple[int, ...] | None = None, margin: float = 0.0) -> F32:
    """Values as a narrow type holds them, over a scale for each group where the type needs one."""
    kind, limit = NARROW[name]
    if not limit:
        plain: F32 = values.astype(kind).astype(np.float32)
        return plain
    largest = np.max(np.abs(values), axis=axes, keepdims=True)
    scale = largest * np.float32((1.0 + margin) / limit)
    there = values / scale
    there = np.rint(there) if kind is np.int8 else there
    found: F32 = there.astype(kind).astype(np.float32) * scale
    return found


# --- precision --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NARROW)
def test_operands_are_rounded_to_the_type_of_computing(name: str, tmp_path: Path) -> None:
    found = computed(tmp_path, linear(f"@precision(compute={name}, output=fp32)"))
    np.testing.assert_allclose(found, rounded(X, name) @ rounded(W, name).T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("strategy", "axes_x", "axes_w"),
    [
        ("per_tensor", None, None),
        ("delayed", None, None),
        ("dynamic", None, None),
        ("per_token", (1,), (1,)),
        ("per_channel", None, (1,)),
    ],
)
@pytest.mark.parametrize("name", ["fp8_e4m3", "int8"])
def test_scales_are_shared_as_the_strategy_says(
    strategy: str, axes_x: tuple[int, ...], axes_w: tuple[int, ...], name: str, tmp_path: Path
) -> None:
    text = linear(f"@precision(compute={name}, output=fp32) @scaling({strategy}, margin=0.25)")
    expected = rounded(X, name, axes_x, 0.25) @ rounded(W, name, axes_w, 0.25).T
    np.testing.assert_allclose(computed(tmp_path, text), expected, rtol=1e-5, atol=1e-5)


def test_blocks_have_scales_of_their_own(tmp_path: Path) -> None:
    text = linear("@precision(compute=fp4_e2m1, output=fp32) @scaling(per_block, block_size=(16, 32))")
    x = rounded(X.reshape(4, 1, 2, 32), "fp4_e2m1", (1, 3)).reshape(4, 64)
    w = rounded(W.reshape(2, 16, 2, 32), "fp4_e2m1", (1, 3)).reshape(32, 64)
    np.testing.assert_allclose(computed(tmp_path, text), x @ w.T, rtol=1e-5, atol=1e-5)


def test_blocks_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    text = linear("@precision(compute=fp4_e2m1) @scaling(per_block, block_size=(16, 24))")
    assert [item.code for item in lamella.check(written(tmp_path, text))] == ["E008"]


@pytest.mark.parametrize(
    ("policy", "compute", "output"),
    [
        ("fp32", "", ""),
        ("bf16", "bf16", "bf16"),
        ("fp16", "fp16", "fp16"),
        ("fp8_hybrid", "fp8_e4m3", "bf16"),
    ],
)
def test_policies(policy: str, compute: str, output: str, tmp_path: Path) -> None:
    x, w = (rounded(item, compute) if compute else item for item in (X, W))
    expected = x @ w.T
    expected = rounded(expected, output) if output else expected
    found = computed(tmp_path, linear(f"@precision(policy={policy})"))
    np.testing.assert_allclose(found, expected, rtol=1e-2 if output else 1e-5, atol=1e-5)


def test_precision_reaches_into_what_is_called(tmp_path: Path) -> None:
    text = """\
    module Inner():
      params:
        weight: [32, 64]
      forward:
        in: x: [B, 64]
        out: y: [B, 32]
        graph:
          x -> relu() -> r
          (r, weight) -> matmul(transpose=NT) -> y
    module M():
      params:
        inner: Inner()
      forward:
        in: x: [B, 64]
        out: y: [B, 32]
        graph:
          x -> inner() -> y @precision(compute=bf16, output=fp32)
    """
    made = operators(compiled(text))
    assert made.count("layout.cast") == 4
    assert made.index("math.relu" if "math.relu" in made else made[0]) < made.index("layout.cast")


@pytest.mark.parametrize(
    ("recipe", "annotations", "expected"),
    [
        ("forward_activation_dtype: bf16\n  output_dtype: fp32", "", "bf16"),
        ("forward_activation_dtype: bf16\n  output_dtype: fp32", "@precision(policy=fp32)", ""),
        ("forward_activation_dtype: int8\n  scaling_strategy: per_tensor", "", "int8"),
        ("accumulation_dtype: fp32", "", ""),
    ],
)
def test_recipes_hold_unless_a_statement_says_otherwise(
    recipe: str, annotations: str, expected: str, tmp_path: Path
) -> None:
    text = linear(annotations, declaration="@recipe(R)", recipe=f"recipe R:\n  {recipe}\n")
    x, w = (rounded(item, expected) if expected else item for item in (X, W))
    np.testing.assert_allclose(computed(tmp_path, text), x @ w.T, rtol=1e-5, atol=1e-5)


def test_gradients_pass_through_conversions() -> None:
    """The gradient of rounding is one, and that of a scale is none."""
    workspace = Workspace()
    text = linear("@precision(compute=fp8_e4m3, output=fp32) @scaling(per_token)")
    resolved = resolve(workspace.take(Source("test.module", text)), workspace)
    instance = instantiate(resolved.scope.local["M"], {}, resolved.scope).instance
    assert instance is not None
    found = differentiate(instance)
    assert found.model is not None, found.findings
    executable = compile_model(found.model)
    executable.state["weight"] = W
    d_y = RANDOM.normal(size=(4, 32)).astype(np.float32)
    results = executable(x=X, d_y=d_y)
    np.testing.assert_allclose(results["d_x"], d_y @ rounded(W, "fp8_e4m3", (1,)), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        results["d_weight"], d_y.T @ rounded(X, "fp8_e4m3", (1,)), rtol=1e-4, atol=1e-4
    )


# --- storage and types ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bf16", "fp16", "fp8_e4m3"])
@pytest.mark.parametrize(
    "place", ["@dtype({})", "@precision(storage={})", "recipe"], ids=["dtype", "precision", "recipe"]
)
def test_parameters_are_kept_in_their_type_and_widened_in_use(name: str, place: str, tmp_path: Path) -> None:
    if place == "recipe":
        text = linear(declaration="@recipe(R)", recipe=f"recipe R:\n  weight_storage_dtype: {name}\n")
    else:
        text = linear(parameter=place.format(name))
    (weight,) = compiled(text).weights
    kind, _ = NARROW[name]
    assert weight.tensor.element.bits == np.dtype(kind).itemsize * 8
    kept = W.astype(kind).astype(np.float32)
    np.testing.assert_allclose(computed(tmp_path, text), X @ kept.T, rtol=1e-5, atol=1e-5)


def test_the_type_of_a_tensor_is_binding(tmp_path: Path) -> None:
    made = compiled(linear("@dtype(bf16)"))
    assert made.model is not None
    (output,) = made.model.graph.outputs
    assert str(getattr(output, "element", "")) == "bf16"
    expected = (X @ W.T).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_allclose(computed(tmp_path, linear("@dtype(bf16)")), expected, rtol=1e-2)


PAIRS = {
    ("fp32", "bf16"): ["W005"],
    ("fp32", "fp16"): ["W005"],
    ("fp64", "fp32"): ["W005"],
    ("bf16", "fp16"): ["W005"],
    ("bf16", "fp32"): [],
    ("fp16", "fp32"): [],
    ("fp8_e4m3", "bf16"): [],
    ("fp32", "fp32"): [],
    ("bf16", "fp8_e4m3"): ["E015"],
    ("bf16", "fp4_e2m1"): ["E015"],
    ("int8", "bf16"): ["E015"],
    ("bf16", "int8"): ["E015"],
    ("int32", "int64"): [],
}
"""What happens where a type becomes another without a word."""


@pytest.mark.parametrize(("found", "wanted"), PAIRS)
@pytest.mark.parametrize("explicit", [False, True])
def test_types_that_become_others(found: str, wanted: str, explicit: bool, tmp_path: Path) -> None:
    mark = f"@dtype({wanted})" if explicit else ""
    text = f"""\
    module M():
      forward:
        in: x: [B, 4, {found}]
        out: y: [B, 4, {wanted}] {mark}
        graph:
          x -> y
    """
    codes = [item.code for item in lamella.check(written(tmp_path, text))]
    assert codes == ([] if explicit else PAIRS[found, wanted])


def test_types_of_inner_inputs_are_kept_too(tmp_path: Path) -> None:
    text = """\
    module Inner():
      forward:
        in: x: [B, 4, bf16]
        out: y: [B, 4]
        graph:
          x -> relu() -> y
    module M():
      params:
        inner: Inner()
      forward:
        in: x: [B, 4, fp32]
        out: y: [B, 4]
        graph:
          x -> inner() -> y
    """
    assert [item.code for item in lamella.check(written(tmp_path, text))] == ["W005"]


# --- order and storage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mark", "count"), [("", 0), ("@alias", 0), ("@noalias", 1)])
def test_noalias_gives_a_tensor_of_its_own(mark: str, count: int) -> None:
    text = f"""\
    module M():
      forward:
        in: x: [B, 4]
        out: y: [B, 4]
        graph:
          x -> relu() -> a
          a -> b {mark}
          (a, b) -> add() -> y
    """
    assert operators(compiled(text)).count("math.iden") == count


@settings(max_examples=60)
@given(st.data())
def test_barriers_hold(data: st.DataObject) -> None:
    """Statements written behind a barrier run behind it, unless the barrier needs them."""
    count = data.draw(st.integers(2, 8))
    order = data.draw(st.permutations(range(count)))
    barriers = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    needs = {number: data.draw(st.integers(0, number)) for number in range(1, count)}
    lines = [
        f"{'x' if number == 0 or needs[number] == number else f't{needs[number]}'} -> relu() -> t{number}"
        + (" @barrier" if number in barriers else "")
        for number in order
    ]
    sums = ", ".join(f"t{number}" for number in range(count))
    body = "".join(f"      {line}\n" for line in [*lines, f"({sums}) -> concat(dim=0) -> y"])
    head = "module M():\n  forward:\n    in: x: [2, 4]\n    out: y: [N, 4]\n    graph:\n"
    made = compiled(head + body)
    assert made.model is not None
    names = [
        getattr(node.outputs[0], "name", "") for node in made.model.graph.nodes if isinstance(node, Operation)
    ]
    ran = {int(name[1:]): place for place, name in enumerate(names) if name.startswith("t")}
    for first in barriers:
        ancestors, at = set(), first
        while at and needs[at] != at:
            at = needs[at]
            ancestors.add(at)
        # what stands before the barrier may itself need what is written behind it
        before = set(order[: order.index(first)])
        for number in list(before):
            at = number
            while at and needs[at] != at:
                at = needs[at]
                before.add(at)
        for second in order[order.index(first) + 1 :]:
            if second not in ancestors | before:
                assert ran[first] < ran[second], (lines, names)


# --- marks ------------------------------------------------------------------------------------------------------

STATEMENTS: dict[str, tuple[str, dict[str, object]]] = {
    "memory": ("@memory(recompute)", {"mode": "recompute", "priority": 0, "prefetch": True, "async": True}),
    "checkpoint": ("@checkpoint", {"granularity": "full", "preserve": ()}),
    "lifetime": ("@lifetime(block)", {"scope": "block", "start": None, "end": None}),
    "hook": ("@hook(AfterQKV, mode=modify)", {"point": "AfterQKV", "mode": "modify", "priority": 0}),
    "kernel": ('@kernel("k")', {"name": "k", "autotune": True, "workspace": None, "fallback": True}),
    "shard": ("@shard(row, tp_size=n)", {"strategy": "row", "tp_size": 2, "ep_size": None, "pp_size": None}),
    "partition": ("@partition(n - 1)", {"stage": 1, "micro_batch": True, "recompute": False}),
    "comm": ("@comm(all_reduce)", {"op": "all_reduce", "group": "default", "async": True}),
    "fuse": ("@fuse(ops=[relu])", {"pattern": None, "ops": ("relu",), "scope": "local"}),
    "fuse_required": ("@fuse_required(ops=[relu])", {"ops": ("relu",)}),
    "nofuse": ("@nofuse", {"reason": None}),
    "profile": ('@profile("p")', {"name": "p", "memory": False, "cuda_events": True, "nvtx": True}),
    "trace": ("@trace", {"level": "ops"}),
    "gradient": ("@gradient(scale=0.5)", {"mode": "compute", "scale": 0.5, "clip": None}),
    "adapter": ("@adapter(ia3, targets=[k, v])", {"type": "ia3", "targets": ("k", "v")}),
    "alias": ("@alias", {}),
    "barrier": ("@barrier", {}),
    "probe": ('@probe("p", frequency=n)', {"name": "p", "frequency": 2, "condition": None}),
}
"""Annotations that leave the numbers as they are, and some of their arguments."""


def marks(made: Compiled, path: str) -> dict[str, Mark]:
    """The marks at a path by annotation."""
    return {item.annotation.name: item for item in made.marks if item.path == path}


@pytest.mark.parametrize("name", STATEMENTS)
def test_marks_carry_typed_arguments(name: str) -> None:
    written_mark, expected = STATEMENTS[name]
    operation = "view([B, 4])" if name == "alias" else "relu()"
    text = f"""\
    module M(n: int = 2):
      forward:
        in: x: [B, 4]
        out: y: [B, 4]
        graph:
          x -> {operation} -> a {written_mark}
          a -> silu() -> y
    """
    made = compiled(text)
    mark = marks(made, "a")[name]
    assert expected.items() <= mark.arguments.items()
    assert mark.tensor.name == "a"
    plain = compiled(text.replace(written_mark, ""))
    assert operators(made) == operators(plain)


def test_conditions_are_kept_as_expressions() -> None:
    text = """\
    module M():
      forward:
        in: x: [B, 4]
        out: y: [B, 4]
        graph:
          x -> relu() -> y @assert(all(y >= 0) && y.shape[-1] == 4) @probe("y", condition="has_nan(y)")
    """
    found = marks(compiled(text), "y")
    assert isinstance(found["assert"].arguments["condition"], Chain)
    assert found["probe"].arguments["condition"] is not None


def test_parameters_are_marked_with_what_is_said_from_above() -> None:
    text = """\
    module Inner():
      params:
        weight: [4] @trainable(lr_scale=0.5)
      forward:
        in: x: [B, 4]
        out: y: [B, 4]
        graph:
          (x, weight) -> mul() -> y
    module M():
      params:
        parts: [2] x Inner()
        parts[{i}].weight: [...] @frozen @memory(stream)
      forward:
        in: x: [B, 4]
        out: y: [B, 4]
        graph:
          x -> parts() -> y
    """
    found = marks(compiled(text), "parts[1].weight")
    assert found["trainable"].arguments == {"lr_scale": 0.5, "wd_scale": 1.0, "grad_clip": None}
    assert found["memory"].arguments["mode"] == "stream"
    assert found["frozen"].tensor.name == "parts.1.weight"


def test_annotations_in_the_middle_of_a_chain_are_kept() -> None:
    text = """\
    module M():
      forward:
        in: x: [B, 4]
        out: y: [B, 4]
        graph:
          x -> relu() @partition(0) -> silu() @hook(H) -> y @trace
    """
    names = [(item.annotation.name, item.tensor.name) for item in compiled(text).marks]
    assert [name for name, _ in names] == ["partition", "hook", "trace"]
    assert names[0][1] != names[1][1] == names[2][1] == "y"


def test_values_are_judged_where_they_are_known(tmp_path: Path) -> None:
    text = """\
    module M(stage: int = -1):
      forward:
        in: x: [B, 4]
        out: y: [B, 4]
        graph:
          x -> relu() -> y @partition(stage)
    """
    found = lamella.check(written(tmp_path, text))
    assert [item.code for item in found if item.severity != "note"] == ["E008"]
