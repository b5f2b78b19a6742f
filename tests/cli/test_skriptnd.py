"""SkriptND on the command line, before a run: check, fmt, show, rules, explain."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lamella.graph.data import write_dat, write_safetensors
from lamella.pipeline.data import files
from tests.support.cli.skriptnd_models import COMPOUND, PACKS, TWO, call, report, write_models
from tests.support.repository import ROOT

SPACED = "import   math ;\ngraph G{@input{x:real[2];}@output{y:real[2];}@compose{y=math.neg(x);}}  # why\n"
OLD_AND_NEW = """import layout;

graph G {
    @input { x: real[2, 3]; }
    @output { y: real[2, 3]; }
    @compose { y = layout.broadcast{shape=[2, 1]}(x); }
}
"""


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)


def test_a_graph_that_lacks_values_is_noted_and_the_others_are_checked() -> None:
    result = call("check", "two.sknd")
    assert result.exit_code == 0
    assert "note[SKR331]: graph 'First' was not composed: n has no value" in result.output
    assert call("check", "two.sknd", "--strict").exit_code == 0


def test_a_graph_that_is_chosen_needs_its_values() -> None:
    result = call("check", "two.sknd", "--model", "First")
    assert result.exit_code == 1
    assert "error[SKR330]" in result.output
    assert "--set n=" in result.output
    assert call("check", "two.sknd", "--model", "Second").exit_code == 0


@pytest.mark.parametrize(
    "values",
    [
        ["n=3"],
        ["n=2 + 1", "scale=3", "mode=hello"],
        ["n=3", "T=f16", "flags=[true, true]", "sizes=[]", "mode='b'", "maybe=4"],
        ["n=3", "T=i8", "flags=true", "sizes=[1:5]", "scale=-0.5"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("model", [["--model", "First"], []], ids=["chosen", "all"])
def test_values_of_every_type_are_set(values: list[str], model: list[str]) -> None:
    words = [word for value in values for word in ("--set", value)]
    result = call("check", "two.sknd", *model, *words)
    assert result.exit_code == 0, result.output
    assert "nothing found" in result.output


@pytest.mark.parametrize(
    ("words", "line", "message"),
    [
        (["n=x"], 6, "'x' is no value for 'n'"),
        (["n=1; m: int = 2"], 6, "is no value for 'n'"),
        (["n="], 6, "'' is no value for 'n'"),
        (["n=1.5"], 3, "attribute 'n' of 'main.First' is int and gets real 1.5"),
        (["n=-1"], 3, "extents are not negative"),
        (["n=3", "T=str"], 4, "'str' is no type for 'T'"),
        (["n=3", "T=bool"], 3, "T"),
        (["n=3", "flags=[true]"], 3, "'flags' of main.First has 1 items"),
        (["n=3", "m=4"], 3, "has no attribute or type 'm'"),
        (["n=" + "(" * 5000 + "1" + ")" * 5000], 6, "is no value for 'n'"),
        (["n=10 ** 10 ** 10"], 3, "extents have 63 bits"),
        (["n=10 ** 99 ** 99 ** 99"], 6, "is no value for 'n'"),
        (["n=3", "scale=1" + "0" * 400], 7, "beyond the largest real"),
    ],
    ids=lambda item: item[0][:20] if isinstance(item, list) else None,
)
def test_values_that_do_not_fit_are_told_in_the_file(words: list[str], line: int, message: str) -> None:
    given = [word for value in words for word in ("--set", value)]
    found = json.loads(call("check", "two.sknd", "--model", "First", *given, "--json").stdout)
    assert not found["ok"]
    assert message in found["diagnostics"][0]["message"]
    assert (found["diagnostics"][0]["file"], found["diagnostics"][0]["line"]) == ("two.sknd", line)


def test_a_value_that_no_graph_takes_is_told() -> None:
    result = call("check", "two.sknd", "--set", "q=1")
    assert result.exit_code == 1
    assert "no graph here has an attribute or type 'q'" in result.output


def test_an_unknown_graph_is_told_with_those_there_are() -> None:
    result = call("check", "two.sknd", "--model", "Third")
    assert result.exit_code == 1
    assert "there is no graph 'Third' here; the graphs are 'First', 'Second'" in result.output


def test_standard_input_is_read_as_the_language_that_is_named() -> None:
    assert call("check", "-", "--language", "skriptnd", text=PACKS).exit_code == 0
    assert call("check", "-", text=PACKS).exit_code == 1
    assert "graph Packs" in call("show", "-", "--language", "skriptnd", text=PACKS).output


def test_several_files_and_folders_are_checked_together() -> None:
    result = call("check", "packs.sknd", "state.sknd", ROOT / "examples" / "alexnet")
    assert result.exit_code == 0
    assert "3 files checked: nothing found" in result.output


def test_each_dialect_has_its_library(tmp_path: Path) -> None:
    (tmp_path / "old.sknd").write_text(OLD_AND_NEW, encoding="utf-8")
    assert call("check", "old.sknd").exit_code == 1
    assert call("check", "old.sknd", "--dialect", "newer").exit_code == 0


def test_imported_modules_are_checked_too(tmp_path: Path) -> None:
    main = "import part;\ngraph G { @input { x: real[2]; } @output { y: real[2]; } @compose { y = part.f(x); } }\n"
    part = (
        "operator f { @input { x: real[n]; } @output { y: real[n]; } @lower { y[i,] = x[i,] + 1, i < n; } }\n"
    )
    (tmp_path / "main.sknd").write_text(main, encoding="utf-8")
    (tmp_path / "part.sknd").write_text(part, encoding="utf-8")
    found = json.loads(call("check", "main.sknd", "--json").stdout)
    assert [(item["file"], item["line"]) for item in found["diagnostics"]] == [("part.sknd", 1)]


def test_fmt_writes_what_it_prints_and_keeps_comments(tmp_path: Path) -> None:
    path = tmp_path / "spaced.sknd"
    path.write_text(SPACED, encoding="utf-8")
    printed = call("fmt", path).output
    assert "# why" in printed
    assert call("fmt", path, "--check").exit_code == 1
    assert path.read_text(encoding="utf-8") == SPACED
    assert call("fmt", path, "--write").exit_code == 0
    assert path.read_text(encoding="utf-8") == printed
    assert call("fmt", path, "--check").exit_code == 0
    assert call("fmt", "-", "--language", "skriptnd", text=SPACED).output == printed


def test_fmt_of_a_folder_names_its_files() -> None:
    result = call("fmt", ROOT / "examples" / "alexnet")
    assert result.exit_code == 1
    assert "name the file in it, such as main.sknd" in result.output


def test_show_lists_the_graphs_and_composes_the_chosen_one() -> None:
    listed = call("show", "two.sknd")
    assert listed.exit_code == 0
    assert "graph First  {n, scale=2.0, flags=[true, false]" in listed.output
    assert "graph First needs --set n=" in listed.output
    composed = call("show", "two.sknd", "--model", "Second")
    assert "input    x: f32[b ≤ 8, 4]" in composed.output
    assert "1 variable, 12 parameters" in composed.output
    found = report("show", "two.sknd", "--model", "Second")
    assert found["ok"] is True
    graph = found["graph"]
    assert isinstance(graph, dict)
    assert graph["outputs"] == ["y: f32[b ≤ 8, 3]"]
    assert graph["variables"] == {"w": [3, 4]}
    assert graph["operations"] == {"nn.linear": 1}


def test_show_says_packs_and_quantisation_in_the_language() -> None:
    assert "xs:1 … xs:3: f32[n ≤ 4, 2]" in call("show", "packs.sknd").output
    shown = call("show", "quantized.sknd").output
    assert (
        "quantised y: quant.zero_point_linear_quantize{zero_point=[0], scale=[0.5], bits=8, signed=true"
        in shown
    )


def test_show_of_a_wrong_model_fails_with_findings_in_json(tmp_path: Path) -> None:
    (tmp_path / "wrong.sknd").write_text(TWO.replace("real[3, 4]", "real[3, 5]"), encoding="utf-8")
    result = call("show", "wrong.sknd", "--model", "Second", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert not found["ok"]
    assert found["diagnostics"]
    assert [item["name"] for item in found["graphs"]] == ["First", "Second"]


def test_show_of_the_library() -> None:
    assert call("show", "nn.conv").output.startswith("# lower, ops/nn.sknd\noperator conv {")
    assert "broadcast" in call("show", "layout.broadcast", "--dialect", "newer").output
    module = call("show", "nn").output
    assert "\n  relu" in module
    assert "_lstm" not in module
    wrong = call("show", "nn.cnv")
    assert wrong.exit_code == 1
    assert "close to it: nn.conv" in wrong.output


def test_show_of_data(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_dat(tmp_path / "w.dat", array)
    write_safetensors(tmp_path / "all.safetensors", {"w": array, "b": np.array([True])})
    assert "w: float32[2, 3]  0 .. 5, mean 2.5" in call("show", "w.dat").output
    found = report("show", "all.safetensors")
    assert found["tensors"] == {
        "w": {"dtype": "float32", "shape": [2, 3], "bytes": 24},
        "b": {"dtype": "bool", "shape": [1], "bytes": 1},
    }
    assert call("check", "w.dat", "all.safetensors").exit_code == 0


def test_statistics_of_data(tmp_path: Path) -> None:
    """NumPy judges; what is no number is counted, and left out of the rest."""
    numbers = np.random.default_rng(0).normal(3, 2, (64, 7)).astype(np.float32)
    numbers[:2, 0] = 0, np.nan
    numbers[5, 1:3] = -np.inf
    write_safetensors(tmp_path / "s.safetensors", {"w": numbers})
    assert ", 0.2% zeros, 1 NaN, 2 infinite" in call("show", "s.safetensors").output
    found = report("show", "s.safetensors", "--stats")["tensors"]["w"]["stats"]  # type: ignore[index]
    finite = numbers[np.isfinite(numbers)].astype(np.float64)
    expected = [finite.min(), finite.max(), finite.mean(), finite.std(), 1 / numbers.size, 1, 2]
    names = ("min", "max", "mean", "std", "zeros", "nan", "infinite")
    np.testing.assert_allclose([found[name] for name in names], expected, rtol=1e-6)
    assert call("run", "w.dat").exit_code == 1


def test_show_of_large_data_reads_its_header_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_safetensors(tmp_path / "all.safetensors", {"w": array, "b": np.array([True])})
    small = report("show", "all.safetensors")
    monkeypatch.setattr(files, "MOST_READ", 24)
    assert report("show", "all.safetensors") == small
    output = call("show", "all.safetensors").output
    assert "2 tensors, 25 bytes; --stats reads their numbers" in output
    assert "  w: float32[2, 3]\n" in f"{output}\n"


def test_rules_are_listed_and_explained() -> None:
    found = json.loads(call("rules", "skriptnd", "--json").stdout)["rules"]
    assert {item["code"][:3] for item in found} == {"SKR"}
    assert "SKR281 (error)" in call("explain", "skr281").output
    assert call("explain", "SKR999").exit_code == 2


def test_kept_and_decomposed_operators_are_shown(tmp_path: Path) -> None:
    def operations(*words: str) -> object:
        graph = report("show", "compound.sknd", *words)["graph"]
        assert isinstance(graph, dict)
        return graph["operations"]

    assert COMPOUND
    assert operations() == {"nn.linear": 2, "math.add": 2, "nn.softmax": 2}
    assert operations("--keep", "main.twice") == {"nn.linear": 2, "main.twice": 2}
    assert operations("--keep", "twice") == {"nn.linear": 2, "main.twice": 2}
    softmax = operations("--decompose", "nn.softmax")
    assert isinstance(softmax, dict)
    assert softmax["nn.linear"] == 2
    assert "nn.softmax" not in softmax
    assert operations("--decompose", "all") == softmax
    wrong = call("show", "compound.sknd", "--keep", "nope")
    assert wrong.exit_code == 1
    assert "there is no operator 'nope'" in wrong.output
