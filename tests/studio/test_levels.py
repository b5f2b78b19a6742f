"""What a page is made of: levels that are linked by origins, numbers that NumPy confirms, names that stay names."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import lamella
from lamella.base.dtype import F32
from lamella.base.errors import InputError
from lamella.base.origin import Origin
from lamella.cli import lamella as command
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.ops.library import Library
from lamella.pipeline.options import Options
from lamella.studio.compare import ALONE, CHANGED, SAME, add_comparison
from lamella.studio.gather import gather
from lamella.studio.graph_level import path_of
from lamella.studio.weights import statistics
from tests.support.repository import ROOT
from tests.support.studio.graphs import make_layers

DIGITS = ROOT / "examples" / "digits"
LLAMA = ROOT / "examples" / "llama" / "page.module"


def data_of(html: str) -> dict[str, Any]:
    """What a page holds for its script."""
    found = json.loads(html.split('id="data">')[1].split("</script>")[0])
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def llama() -> dict[str, Any]:
    return gather(LLAMA, Options(shape={"B": 1, "T": 8})).data()


@pytest.fixture(scope="module")
def digits() -> dict[str, Any]:
    options = Options(weights=DIGITS / "digits.safetensors", device="npm_lite", profile=True)
    return gather(DIGITS / "digits.sknd", options).data()


def covered(lists: list[list[int]]) -> set[int]:
    return {thing for things in lists for thing in things}


def test_every_operation_is_found_at_every_level(llama: dict[str, Any], digits: dict[str, Any]) -> None:
    for model in (llama, digits):
        whole = set(range(len(model["graph"]["ops"]["operator"])))
        assert covered(model["nac"]["things"]) == whole
        assert covered([kernel["things"] for kernel in model["kernels"]]) == whole
        assert covered([things for source in model["sources"] for things in source["things"]]) == whole
    assert covered(digits["plan"]["things"]) == set(range(8))
    assert all(digits["plan"]["things"])


def test_lines_of_sources_name_what_they_make(digits: dict[str, Any]) -> None:
    (own,) = (source for source in digits["sources"] if not source["shipped"])
    graph = digits["graph"]
    for line, things in zip(own["lines"], own["things"], strict=True):
        for op in things:
            name = graph["tensors"]["name"][graph["ops"]["outputs"][op][0]]
            assert re.search(rf"\b{name}\b", line), (line, name)


def test_tasks_carry_the_opcodes_of_their_operations(digits: dict[str, Any]) -> None:
    opcodes = {
        "conv": "conv2d",
        "relu": "relu",
        "max_pool": "maxpool",
        "linear": "gemm",
        "flatten": "transpose",
    }
    graph, plan = digits["graph"], digits["plan"]
    for task, things in zip(plan["tasks"], plan["things"], strict=True):
        if task["opcode"] in opcodes.values():
            (op,) = things
            operator = graph["operators"][graph["ops"]["operator"][op]].rpartition(".")[2]
            assert opcodes[operator] == task["opcode"], task["title"]


def test_code_is_linked_with_the_lines_that_it_comes_from(digits: dict[str, Any]) -> None:
    for kernel in digits["kernels"]:
        stores = [number for number, line in enumerate(kernel["lines"], 1) if re.match(r"\s*\w*store", line)]
        assert stores
        for form, word in (("llvm", "store|scatter"), ("asm", "mov")):
            code = kernel[form]
            assert len(code["lines"]) == len(code["from"])
            assert max(code["from"]) <= len(kernel["lines"])
            found = {
                at for line, at in zip(code["lines"], code["from"], strict=True) if re.search(word, line)
            }
            assert found & set(stores), (kernel["name"], form)


def test_work_and_time_are_numbers_of_operations(digits: dict[str, Any]) -> None:
    ops = digits["graph"]["ops"]
    assert ops["macs"] == [16 * 9 * 64, 0, 0, 32 * 16 * 9 * 16, 0, 0, 0, 1280]
    assert all(second > 0 for second in ops["seconds"])


def test_weights_are_described_as_numpy_does(digits: dict[str, Any]) -> None:
    row = next(item for item in digits["weights"] if item["name"] == "conv2.filter")
    model = lamella.load(DIGITS / "digits.sknd", weights=DIGITS / "digits.safetensors")
    assert isinstance(model, Model)
    assert model.data is not None
    array = model.data["conv2.filter"].astype(np.float64)
    assert row["mean"] == pytest.approx(array.mean())
    assert row["deviation"] == pytest.approx(array.std())
    assert (row["low"], row["high"]) == (array.min(), array.max())
    assert sum(row["histogram"]) == array.size
    assert row["things"] == [3]


@pytest.mark.parametrize(
    "array",
    [
        np.array([np.nan, np.inf, 0, 1], np.float32),
        np.zeros((0, 3), np.float32),
        np.array([True, False]),
        np.array(3.0, ml_dtypes.bfloat16),
        np.full(5, 7, np.int8),
    ],
)
def test_odd_weights_have_statistics(array: np.ndarray[Any, Any]) -> None:
    found = statistics(array)
    finite = np.isfinite(array.astype(np.float64))
    assert found["odd"] == (~finite).sum()
    if finite.any():
        assert sum(found["histogram"]) == finite.sum()  # type: ignore[call-overload]
    json.dumps(found, allow_nan=False)


def test_the_critical_path_leads_from_the_start_to_the_end(digits: dict[str, Any]) -> None:
    plan = digits["plan"]
    slices = plan["slices"]
    path = plan["critical"]
    assert slices["end"][path[0]] == max(slices["end"])
    for later, earlier in pairwise(path):
        assert slices["end"][earlier] <= slices["start"][later]
    assert slices["start"][path[-1]] == min(slices["start"])


def test_names_become_modules() -> None:
    assert path_of("layers.0.attention.q") == ["layers.0", "attention"]
    assert path_of("/model/layers.1/mlp/up/MatMul_output_0") == ["model", "layers.1", "mlp", "up"]
    assert path_of("split:2") == []


def test_crowds_and_long_lists_are_divided() -> None:
    level = gather(make_layers(30), Options(levels=("source",))).levels["graph"]
    assert isinstance(level, dict)
    assert level["modules"]["name"][:3] == ["many", "blocks", "blocks.0"]
    build = Builder(Library(), "flat")
    x = build.input("x", F32, (2,))
    for number in range(130):
        x = build.call("math.neg", x, results=(f"t{number}",))
    flat = gather(Model(build.finish(x), build.library), Options(levels=("source",))).levels["graph"]
    assert isinstance(flat, dict)
    assert flat["modules"]["name"][1:] == [
        "operations 1–40",
        "operations 41–80",
        "operations 81–120",
        "operations 121–130",
    ]


def test_control_flow_follows_what_it_runs(tmp_path: Path) -> None:
    body = "a = with s = x do..(3) math.add(s, x); b = math.any_reduce{squeeze=true}(c);"
    body += " y = if b then math.exp(a) else { z = math.neg(a); yield z; };"
    head = "import math;\ngraph G { @input { x: real[2]; c: bool[2]; } @output { y: real[2]; } "
    (tmp_path / "flow.sknd").write_text(f"{head}@compose {{ {body} }} }}", "utf-8")
    graph = gather(tmp_path / "flow.sknd", Options(levels=("source",))).levels["graph"]
    assert isinstance(graph, dict)
    ops = graph["ops"]
    assert [graph["operators"][item] for item in ops["operator"]][-1] == "if"
    assert graph["modules"]["name"] == ["G", "do a", "if y"]
    made = {tensor: op for op, outputs in enumerate(ops["outputs"]) for tensor in outputs}
    assert all(made.get(tensor, -1) < op for op, inputs in enumerate(ops["inputs"]) for tensor in inputs)


def test_modules_of_pytorch_are_found_by_origin() -> None:
    build = Builder(Library(), "exported")
    graph = build.finish(build.call("math.neg", build.input("x", F32, (2,)), results=("neg",)))
    (node,) = graph.nodes
    origin = Origin("aten.neg.default", above=Origin("blocks.0.act (Neg)", above=Origin("Net")))
    model = Model(replace(graph, nodes=(replace(node, origin=origin),)), build.library)
    level = gather(model, Options(levels=("source",))).levels["graph"]
    assert isinstance(level, dict)
    assert level["modules"]["name"] == ["exported", "blocks.0", "act"]


# --- two models -----------------------------------------------------------------------------------------------------


def test_two_models_are_paired_and_told_apart(tmp_path: Path) -> None:
    text = (DIGITS / "digits.sknd").read_text(encoding="utf-8")
    other = tmp_path / "other.sknd"
    other.write_text(text.replace("relu2 = nn.relu", "relu2 = nn.sigmoid"), "utf-8")
    sides = [gather(path, Options(levels=("source",))) for path in (DIGITS / "digits.sknd", other)]
    found = add_comparison(*sides)
    assert found is not None
    assert found["partner"] == [list(range(8))] * 2
    assert found["status"] == [[SAME] * 4 + [CHANGED] + [SAME] * 3] * 2


def test_renamed_models_are_paired_by_structure_and_changed_shapes_are_changes() -> None:
    one, other = make_layers(2), make_layers(2, width=9, name="other")
    found = add_comparison(
        gather(one, Options(levels=("source",))), gather(other, Options(levels=("source",)))
    )
    assert found is not None
    assert found["status"] == [[CHANGED] * 16, [CHANGED] * 16]
    build = Builder(Library(), "renamed")
    x = build.input("a", F32, (2, 8))
    y = build.call("math.neg", build.call("math.exp", x, results=("p",)), results=("q",))
    renamed = Model(build.finish(y), build.library)
    found = add_comparison(
        gather(one, Options(levels=("source",))), gather(renamed, Options(levels=("source",)))
    )
    assert found is not None
    assert found["partner"][1] == [0, 1]  # type: ignore[index]
    assert found["status"][0] == [SAME] * 2 + [ALONE] * 14  # type: ignore[index]


def test_weights_are_compared_by_what_reads_them() -> None:
    model = lamella.load(DIGITS / "digits.sknd", weights=DIGITS / "digits.safetensors")
    assert isinstance(model, Model)
    data = {name: np.array((model.data or {})[name]) for name in model.data or {}}
    name = "conv2.filter"
    other = replace(model, data={**data, name: -data[name]})
    found = add_comparison(*(gather(item, Options(levels=("source",))) for item in (model, other)))
    assert found is not None
    weights = found["weights"]
    assert weights == {
        "same": len(data) - 1,
        "changed": [{"names": [name, name], "unlike": "", "relative": 2.0, "cosine": pytest.approx(-1)}],
    }


def test_errors_are_those_of_the_comparison() -> None:
    found = lamella.view(LLAMA, shape={"B": 1, "T": 4}, levels=("source",), errors=True)
    errors = data_of(found.html)["models"][0]["graph"]["ops"]["error"]
    known = [item for item in errors if item is not None]
    assert len(known) > 30
    assert 0 < max(known) < 1e-5


# --- pages ------------------------------------------------------------------------------------------------------------


def test_names_are_names_everywhere() -> None:
    steering = "</script><script>\u202e\x1b"
    build = Builder(Library(), steering)
    x = build.input(f"x{steering}", F32, (2, 3))
    model = Model(build.finish(build.call("math.exp", x, results=(f"y{steering}",))), build.library)
    page = lamella.view(model)
    assert page.html.count("<script") == 2
    assert not re.search(
        "[\u202a-\u202e\u2066-\u2069\x1b]", json.dumps(data_of(page.html), ensure_ascii=False)
    )
    frame = page._repr_html_()
    assert "<script" not in frame
    assert 'sandbox="allow-scripts' in frame
    assert "allow-same-origin" not in frame


def test_a_page_asks_for_nothing_and_allows_nothing_else(tmp_path: Path) -> None:
    page = lamella.view(LLAMA, output=tmp_path / "a.html", levels=("source",))
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert text == page.html
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert "connect-src" not in policy[1]
    assert not re.findall(r"https?://(?!www\.w3\.org/)", text)
    assert "style=" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_the_same_model_gives_the_same_page() -> None:
    first, second = (lamella.view(LLAMA, levels=("nac", "kernels"), shape={"B": 1, "T": 4}) for _ in range(2))
    assert first.html == second.html


def test_what_is_not_shown_is_said(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["view", str(LLAMA), "-o", str(tmp_path / "o.html"), "--json"])
    found = json.loads(result.stdout)
    assert found["bytes"] == (tmp_path / "o.html").stat().st_size
    assert any("those of B=8, T=8" in item for item in found["notes"])
    assert any("--device npm_lite" in item for item in found["notes"])


def test_every_kind_of_file_has_a_page(tmp_path: Path) -> None:
    levels = {
        "onnx/attention.onnx": {"graph", "weights"},
        "nac/words.nacs": {"nac"},
        "kernels/rows.tensor": {"kernels"},
        "npu/conv_relu.nem": {"plan"},
        "digits/digits.safetensors": {"weights"},
    }
    for name, wanted in levels.items():
        (model,) = data_of(lamella.view(ROOT / "examples" / name).html)["models"]
        assert wanted <= model.keys(), name
    folder = tmp_path / "hf"
    assert CliRunner().invoke(command, ["convert", str(LLAMA), str(folder), "--seed", "1"]).exit_code == 0
    (model,) = data_of(lamella.view(folder, levels=("weights",)).html)["models"]
    assert model["kind"] == "Hugging Face folder"
    assert len(model["weights"]) == len(lamella.load(folder).graph.variables)  # type: ignore[attr-defined]


def test_one_model_or_two() -> None:
    with pytest.raises(InputError, match="3 models are given"):
        lamella.view(LLAMA, LLAMA, LLAMA)
    with pytest.raises(lamella.LamellaError):
        lamella.view(ROOT / "nothing.sknd")
