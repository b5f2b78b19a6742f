"""SkriptND on the command line, executed: run and lower, judged by NumPy on the files they write."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lamella import compile, load
from lamella.cli.lower import _difference
from lamella.graph.data import write_dat, write_safetensors
from lamella.pipeline.arrays import file_name
from tests.support.cli.skriptnd_models import MODELS, call, report, write_models

Floats = NDArray[np.float32]
W = np.arange(12, dtype=np.float32).reshape(3, 4) / 8
GRAPHS = {
    "two": ["--model", "Second"],
    "packs": [],
    "state": [],
    "quantized": [],
    "compound": [],
}
FIRST = ["--model", "First", "--set", "n=3"]


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)


def drawn(*shape: int) -> Floats:
    """Numbers that f32 holds and whose sums are exact."""
    return np.random.default_rng(3).integers(-8, 8, shape).astype(np.float32) / np.float32(4)


def given(**arrays: Floats) -> list[str]:
    """Arrays as files, in the words of the command."""
    words = []
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
        words += ["--input", f"{name.replace('_', ':')}={name}.npy"]
    return words


def ran(model: str, *words: str) -> dict[str, Floats]:
    """What a run writes."""
    result = call("run", f"{model}.sknd", *words, "--output", "out")
    assert result.exit_code == 0, result.output
    return {path.stem: np.load(path) for path in Path("out").glob("*.npy")}


def test_inputs_and_weights_come_from_files() -> None:
    write_safetensors(Path("w.safetensors"), {"w": W})
    x = drawn(5, 4)
    words = ["--model", "Second", *given(x=x), "--weights", "w.safetensors"]
    found = ran("two", *words)
    assert list(found) == ["y"]
    np.testing.assert_array_equal(found["y"], x @ W.T)
    assert "SKR336" not in call("run", "two.sknd", *words).output


@pytest.mark.parametrize("place", ["beside", "folder", "main"])
def test_weights_are_found_where_the_model_lies(tmp_path: Path, place: str) -> None:
    home = tmp_path if place == "beside" else tmp_path / "model"
    home.mkdir(exist_ok=True)
    text = MODELS["two"].replace("graph First", "graph Unused")
    path = home / ("beside.sknd" if place == "beside" else "main.sknd")
    path.write_text(text, encoding="utf-8")
    if place == "beside":
        write_safetensors(home / "beside.safetensors", {"main.Second.w": W})
    else:
        write_dat(home / "main.Second.w.dat", W)
    x = drawn(2, 4)
    source = home if place == "folder" else path
    result = call("run", source, "--model", "Second", *given(x=x), "--output", "out")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load("out/y.npy"), x @ W.T)


def test_missing_weights_are_random_and_said_once() -> None:
    result = call("run", "two.sknd", "--model", "Second")
    assert result.exit_code == 0
    assert result.stderr.count("graph 'Second' has 1 variable without data") == 1
    assert "SKR336" not in result.stdout
    found = json.loads(call("run", "two.sknd", "--model", "Second", "--json").stdout)
    assert [item["code"] for item in found["diagnostics"]] == ["SKR336"]


def test_the_seed_picks_what_nobody_gives() -> None:
    def digests(*words: str) -> object:
        return report("run", "two.sknd", "--model", "Second", *words)["outputs"]

    assert digests() == digests("--seed", "0")
    assert digests("--seed", "1") != digests("--seed", "2")


@pytest.mark.parametrize(("extent", "rows"), [([], 8), (["--shape", "b=3"], 3), (["--shape", "b=1"], 1)])
def test_open_extents_are_the_largest_unless_they_are_named(extent: list[str], rows: int) -> None:
    assert ran("two", "--model", "Second", *extent)["y"].shape == (rows, 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shape", "b=30"], "extent 'b' is to be 30; it lies between 0 and 8"),
        (["--shape", "q=3"], "has no open extent 'q'"),
        (["--backend", "npu"], "graph 'Second' leaves 'b' open"),
        (["--weights", "nowhere"], "is no file of weights"),
        (["--model", "Third"], "there is no graph 'Third' here"),
        (["--set", "n=1"], "graph 'Second' has no attribute or type 'n'"),
    ],
    ids=lambda item: item[0] if isinstance(item, list) else None,
)
def test_what_does_not_fit_is_told(words: list[str], message: str) -> None:
    result = call("run", "two.sknd", "--model", "Second", *words)
    assert result.exit_code == 1
    assert message in result.output
    found = report("run", "two.sknd", "--model", "Second", *words)
    assert found["ok"] is False


def test_all_wrong_inputs_are_told_at_once() -> None:
    words = given(x=drawn(2, 5), z=drawn(1))
    found = report("run", "two.sknd", "--model", "Second", *words)
    told = found["diagnostics"]
    assert isinstance(told, list)
    assert {item["code"] for item in told} == {"SKR329", "SKR333"}
    assert {item["file"] for item in told} == {"two.sknd"}


def test_element_types_are_set_and_widened() -> None:
    x = np.array([1, 2, 3], dtype=np.int8)
    np.save("x.npy", x)
    found = ran("two", *FIRST, "--set", "T=i8", "--input", "x=x.npy")["y"]
    np.testing.assert_array_equal(found, x + x)
    assert found.dtype == np.int8
    assert ran("two", *FIRST, "--dtype", "f64")["y"].dtype == np.float64
    assert ran("two", *FIRST, "--set", "T=f16")["y"].dtype == np.float16


def test_packs_go_in_and_out_item_by_item() -> None:
    items = [drawn(2, 2) + number for number in range(3)]
    found = ran("packs", *given(xs_1=items[0], xs_2=items[1], xs_3=items[2]))
    assert sorted(found) == ["sum", "ys:1", "ys:2", "ys:3"]
    np.testing.assert_array_equal(found["sum"], sum(items))
    for number, item in enumerate(items, 1):
        np.testing.assert_array_equal(found[f"ys:{number}"], -item)


def test_quantisation_is_applied_when_it_is_asked_for() -> None:
    x = np.array([0.1, 0.2, -0.4, 100.0], dtype=np.float32)
    np.testing.assert_array_equal(ran("quantized", *given(x=x))["y"], x + x)
    rounded = np.clip(np.round((x + x) / 0.5), -128, 127) * 0.5
    np.testing.assert_array_equal(ran("quantized", *given(x=x), "--quantized")["y"], rounded)


def test_the_profile_adds_up() -> None:
    found = report("run", "compound.sknd", "--profile", "--backend", "reference")["profile"]
    assert isinstance(found, dict)
    operators = found["operators"]
    assert {name: item["count"] for name, item in operators.items()} == {
        "nn.linear": 2,
        "math.add": 2,
        "nn.softmax": 2,
    }
    assert 0 < sum(item["seconds"] for item in operators.values()) <= found["run"]
    told = call("run", "compound.sknd", "--profile", "--backend", "reference").stderr
    assert "2 × nn.softmax" in told
    assert "2 × fused.softmax" in call("run", "compound.sknd", "--profile").stderr


def test_the_timeline_has_a_slice_for_each_step_with_its_origin(tmp_path: Path) -> None:
    report("run", "compound.sknd", "--timeline", str(tmp_path / "t.json"), "--backend", "reference")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert [item["name"] for item in events] == ["nn.linear", "math.add", "nn.softmax"] * 2
    for before, after in pairwise(events):
        assert before["ts"] + before["dur"] <= after["ts"] + 1e-3
    assert len({item["args"]["result"] for item in events}) == 6
    assert all("compound.sknd:" in " ".join(map(str, item["args"].values())) for item in events)


def test_names_of_tensors_stay_in_the_folder() -> None:
    names = ["a/b", "a%2fb", "../x", "a\\b", "a\nb", "ys:1", "ä.b"]
    found = [file_name(name) for name in names]
    assert len(set(found)) == len(names)
    assert not [name for name in found if "/" in name or "\\" in name or not name.isprintable()]
    assert file_name("ys:1") == "ys:1"


# --- lower --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GRAPHS)
def test_a_lowered_model_reads_back_equal(name: str) -> None:
    words = GRAPHS[name]
    result = call("lower", f"{name}.sknd", *words, "--to", "sknd", "-o", "low")
    assert result.exit_code == 0, result.output
    assert "read again, largest difference 0\n" in result.output
    model = words[1] if words else None
    assert load("low") == load(f"{name}.sknd", model=model)
    assert call("check", "low").exit_code == 0
    assert call("fmt", "low/main.sknd", "--check").exit_code == 0


def test_weights_and_origins_travel_with_a_model() -> None:
    write_safetensors(Path("w.safetensors"), {"first.w": W[:, :3], "second.w": W[:, 1:]})
    words = ["--weights", "w.safetensors", "--to", "sknd"]
    assert call("lower", "compound.sknd", *words, "-o", "low.nnef2").exit_code == 0
    files = {path.name for path in Path("low.nnef2").iterdir()}
    assert {"main.sknd", "origins.json"} < files
    assert len([name for name in files if name.endswith(".dat")]) == 2
    x = drawn(2, 3)
    before = compile("compound.sknd", weights="w.safetensors")(x=x)["y"]
    after = compile("low.nnef2")
    np.testing.assert_array_equal(after(x=x)["y"], before)
    assert not after.findings
    origins = json.loads(Path("low.nnef2/origins.json").read_text(encoding="utf-8"))
    assert any(
        "compound.sknd:" in word for item in origins["tensors"].values() for word in item.get("origin", [])
    )
    assert call("lower", "compound.sknd", *words, "-o", "one.sknd").exit_code == 0
    np.testing.assert_array_equal(compile("one.sknd")(x=x)["y"], before)


def test_passes_decomposition_and_comparison_are_chosen() -> None:
    words = ["lower", "compound.sknd", "--to", "sknd", "-o", "low"]
    found = report(*words, "--decompose", "all", "--pass", "simplify", "--pass", "remove_dead")
    assert found["ok"] is True
    assert "softmax" not in Path("low/main.sknd").read_text(encoding="utf-8")
    assert report(*words, "--no-compare")["largest_difference"] is None
    wrong = call(*words, "--pass", "nope")
    assert wrong.exit_code == 1
    assert "there is no pass 'nope'" in wrong.output
    assert (
        "hint: choose one with --device" in call("lower", "compound.sknd", "--to", "stcb", "-o", "low").output
    )


def test_a_folder_that_cannot_be_made_is_told() -> None:
    Path("file").write_text("", encoding="utf-8")
    for place in ("file", "file/below"):
        result = call("lower", "packs.sknd", "--to", "sknd", "-o", place)
        assert result.exit_code == 1
        assert "error[LAM002]" in result.output


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 4.0], [1.0, 5.0], 0.25),
        ([0.0, 0.5], [0.0, 0.0], 0.5),
        ([np.nan, np.inf], [np.nan, np.inf], 0.0),
        ([np.inf], [-np.inf], np.inf),
        ([1.0], [np.nan], np.inf),
        ([1.0], [1.0, 2.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_differences_are_measured(one: list[float], other: list[float], difference: float) -> None:
    assert _difference(np.array(one), np.array(other)) == difference
