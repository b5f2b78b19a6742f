"""The command line as its users meet it: status, streams, JSON, files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from lamella.base.diagnostic import Rule
from lamella.bridge.graph_to_plan.rules import RULES as PLAN_RULES
from lamella.bridge.onnx.rules import RULES as ONNX_RULES
from lamella.cli import COMMANDS, SHELLS, lamella
from tests.support.repository import ROOT, environment

EXAMPLES = ROOT / "examples" / "npu"
CONV = str(EXAMPLES / "conv_relu.nem")
GEMM = str(EXAMPLES / "gemm_bias_relu.nem")
KEYS = {"file", "line", "column", "end_line", "end_column", "severity", "code", "message", "hint"}
WRONG = "buffer A : L2 (size=0)\nbuffer B : L2 (size=8)\ntransfer.sync(dst=B, src=C)\n"


def call(*arguments: str) -> Result:
    result = CliRunner().invoke(lamella, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    path = tmp_path / "wrong.nem"
    path.write_text(WRONG, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    assert "Usage:" in call(command, "--help").output


def test_check_reports_several_findings_and_fails(wrong: str) -> None:
    result = call("check", wrong)
    assert result.exit_code == 1
    assert "error[NEM004]" in result.output
    assert "error[NEM002]" in result.output
    assert f"{wrong}:3:26" in result.output


def test_check_json_has_the_binding_schema(wrong: str) -> None:
    result = call("check", wrong, "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert report["ok"] is False
    assert all(item.keys() >= KEYS for item in report["diagnostics"])
    found = {
        (item["code"], item["line"], item["column"], item["end_column"]) for item in report["diagnostics"]
    }
    assert ("NEM002", 3, 26, 27) in found


def test_check_sarif_says_the_same(wrong: str) -> None:
    """The same findings at the same places; the form itself was held against the schema of SARIF 2.1.0."""
    found = json.loads(call("check", wrong, "--json").stdout)["diagnostics"]
    result = call("check", wrong, "--sarif")
    (run,) = json.loads(result.stdout)["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert result.exit_code == 1
    assert len(set(rules)) == len(rules)
    assert [rules[item["ruleIndex"]] for item in run["results"]] == [item["code"] for item in found]
    for ours, theirs in zip(found, run["results"], strict=True):
        region = theirs["locations"][0]["physicalLocation"]["region"]
        place = (region["startLine"], region["startColumn"], region["endLine"], region["endColumn"])
        assert place == tuple(ours[key] for key in ("line", "column", "end_line", "end_column"))
        assert (theirs["level"], theirs["message"]["text"].splitlines()[0]) == (
            ours["severity"],
            ours["message"],
        )


def test_warnings_alone_succeed_unless_strict() -> None:
    assert call("check", CONV).exit_code == 0
    assert call("check", CONV, "--strict").exit_code == 1
    assert json.loads(call("check", CONV, "--json").stdout)["ok"] is True


def test_check_against_a_device(tmp_path: Path) -> None:
    path = tmp_path / "large.nem"
    path.write_text("buffer A : L1 (size=600000)\nbuffer B : L2 (size=8)\ntransfer.sync(dst=A, src=B)\n")
    assert call("check", str(path)).exit_code == 0
    result = call("check", str(path), "--device", "npm_lite")
    assert result.exit_code == 1
    assert "600000 bytes but npm_lite has 524288: 75712 too many" in result.output


@pytest.mark.parametrize(
    "arguments",
    [("check",), ("check", CONV, "--no-such-option"), ("nonsense",), ("explain", "NEM999"), ("bind", CONV)],
)
def test_wrong_usage_is_status_2(arguments: tuple[str, ...]) -> None:
    assert call(*arguments).exit_code == 2


@pytest.mark.parametrize("command", ["check", "fmt", "show", "run", "sim"])
def test_a_missing_file_is_a_clean_error(command: str) -> None:
    result = call(command, "no/such/file.nem")
    assert result.exit_code == 1
    assert "no such file" in result.output.lower()


def test_what_cannot_be_read_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading tells; a wrong use, as click has it, would leave a reader of --json without an object."""
    monkeypatch.setattr("os.access", lambda *_: False)
    assert call("check", CONV, "--json").exit_code == 0
    assert call("sim", CONV, "--device", str(ROOT / "src/lamella/devices/npm_lite.nem")).exit_code == 0


def test_fmt_is_a_fixed_point_and_writes_in_place(tmp_path: Path) -> None:
    path = tmp_path / "x.nem"
    path.write_text("const   a=1 # one\nbuffer A:L2(size=a)\n", encoding="utf-8")
    printed = call("fmt", str(path)).stdout
    assert printed == "const a = 1  # one\nbuffer A : L2 (size=a)\n"
    assert call("fmt", str(path), "--check").exit_code == 1
    assert call("fmt", str(path), "--write").exit_code == 0
    assert path.read_text(encoding="utf-8") == printed
    assert call("fmt", str(path), "--check").exit_code == 0


def test_fmt_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "x.nem"
    path.write_text("const = 1\n", encoding="utf-8")
    assert call("fmt", str(path), "--write").exit_code == 1
    assert path.read_text(encoding="utf-8") == "const = 1\n"


def test_show_a_program_and_a_device() -> None:
    assert "loop i × 4, 2 in flight" in call("show", CONV).stdout
    shown = call("show", "npm_pro_x1").stdout
    assert "extends npm_pro -> nem_baseline_1_0" in shown
    assert "device npm_pro " not in shown
    assert json.loads(call("show", "npm_pro", "--json").stdout)["devices"][0]["name"] == "npm_pro"


def test_run_is_exact_and_takes_inputs(tmp_path: Path) -> None:
    """NumPy is the judge: a dense layer in f16 with f32 accumulation."""
    rng = np.random.default_rng(5)
    arrays = {
        "A": rng.standard_normal((192, 128)).astype(np.float16),
        "B": rng.standard_normal((128, 64)).astype(np.float16),
        "C": rng.standard_normal(64).astype(np.float16),
    }
    options: list[str] = []
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        options += ["--input", f"{name}={tmp_path / name}.npy"]
    result = call("run", GEMM, *options, "--output", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    found = np.load(tmp_path / "out" / "Y.npy")
    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
    wanted = np.maximum(wide["A"] @ wide["B"] + wide["C"], 0)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-2)


def test_run_names_a_wrong_input(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3, np.float32))
    result = call("run", GEMM, "--input", f"A={tmp_path / 'x.npy'}")
    assert result.exit_code == 1
    assert "NEM177" in result.output
    (tmp_path / "y.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'shape': (1000000000000,), ")
    assert call("run", GEMM, "--input", f"A={tmp_path / 'y.npy'}").exit_code == 1


def test_bound_streams_give_the_same_bytes(tmp_path: Path) -> None:
    program = call("run", CONV, "--seed", "7").stdout
    for ending in (".stcb", ".json"):
        target = str(tmp_path / f"bound{ending}")
        assert call("bind", CONV, "-o", target).exit_code == 0
        assert call("run", target, "--seed", "7", "--order", "random").stdout == program
        assert "CSTL0B" in call("show", target).stdout


def test_bind_json_has_what_was_found(tmp_path: Path) -> None:
    """The warnings that check has, too."""
    result = call("bind", CONV, "-o", str(tmp_path / "conv.stcb"), "--json")
    found = json.loads(result.stdout)
    assert found["ok"] is True
    assert [item["code"] for item in found["diagnostics"]] == ["NEM145"]
    assert (found["output"], found["numbers"]) == (str(tmp_path / "conv.stcb"), None)


def test_sim_json_has_the_binding_schema() -> None:
    report = json.loads(call("sim", CONV, "--json", "--advise").stdout)
    assert report["cycles"] == 17_312
    assert set(report["bounds"]) == {"unit", "head_work_tail", "critical_path", "link", "roofline"}
    assert report["binding"] == "head_work_tail"
    assert report["ratio"] == 1.0
    assert report["units"]["NMU[0]"] == pytest.approx(14_120 / 17_312)
    assert report["memory"]["L1[0]"]["capacity"] == 524_288
    assert {item["title"] for item in report["tasks"]} >= {"load_x", "load_w"}
    assert report["advice"][0]["bytes"]["after"] < report["advice"][0]["bytes"]["before"]


def test_sim_writes_pictures_and_the_fixed_program(tmp_path: Path) -> None:
    trace, page, fixed = (str(tmp_path / name) for name in ("t.json", "t.html", "f.nem"))
    assert call("sim", CONV, "--trace", trace, "--html", page, "--fix", fixed).exit_code == 0
    assert json.loads(Path(trace).read_text(encoding="utf-8"))["traceEvents"]
    assert "<html" in Path(page).read_text(encoding="utf-8")
    assert call("check", fixed, "--strict").exit_code == 0
    assert call("run", fixed).stdout == call("run", CONV).stdout


def test_every_output_of_sim_has_the_names_and_tags(tmp_path: Path) -> None:
    program, trace, page = tmp_path / "p.nem", tmp_path / "t.json", tmp_path / "t.html"
    program.write_text(
        """device "npm_lite.nem"
buffer Z : L2 (size=64) @debug(of_buffer) @profile(tag_buffer)
buffer A : L1 (size=64)
loop i in [0..1] @debug(of_loop) @profile(tag_loop):
    let R = region(A, i * 32, 32) @debug(of_region) @profile(tag_region)
    transfer.async(dst=R, src=region(Z, i * 32, 32)) @debug(of_task) @profile(tag_task)
endloop
""",
        encoding="utf-8",
    )
    told = call("sim", str(program), "--trace", str(trace), "--html", str(page)).stdout
    outputs = [
        told,
        call("sim", str(program), "--json").stdout,
        trace.read_text("utf-8"),
        page.read_text("utf-8"),
    ]
    for thing in ("buffer", "loop", "region", "task"):
        for word in (f"of_{thing}", f"tag_{thing}"):
            assert [word in output for output in outputs] == [True] * 4, word


def test_rules_and_explain() -> None:
    assert "NEM140" in call("rules", "nem").stdout
    explained = call("explain", "nem140").stdout
    assert "before" in explained
    wrong, _, right = explained.partition("right:")
    assert "store.async(dst=Result, src=Near)  # <- NEM140" in wrong
    assert "store.async(dst=Result, src=Near, deps=[load])" in right


def test_a_bug_of_ours_is_a_short_report_and_status_3() -> None:
    code = (
        "import lamella.cli as c, sys\n"
        "sys.argv = ['lamella', 'rules']\n"
        "c.lamella.main = lambda **k: {}['missing']\n"
        "c.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "bug in lamella" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", GEMM, "--input", "A"),
        ("run", GEMM, "--order", "zigzag"),
        ("run", GEMM, "--backend", "gpu"),
        ("run", GEMM, "--seed", "-1"),
        ("check", GEMM, "--language", "klingon"),
        ("bind", GEMM, "-o", "x.bin"),
        ("bind", GEMM, "-o", "-"),
        ("sim", GEMM, "--html", "-"),
        ("run", GEMM, "--output", "-"),
        ("convert", GEMM, "-"),
        ("reduce", GEMM, "--keep", "false {}", "-o", "-"),
        ("genome", "tree", "--db", "-"),
    ],
)
def test_wrong_values_of_options_are_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert call(*arguments).exit_code == 2
    assert not Path("-").exists()


def test_a_dash_for_the_folder_of_lower_prints() -> None:
    words = ("lower", str(ROOT / "examples/kernels/fused.tensor"), "--to", "llvm")
    printed = call(*words)
    assert "define" in printed.output
    assert call(*words, "-o", "-").output == printed.output
    assert not Path("-").exists()


def test_inputs_that_are_not_given_are_random(tmp_path: Path) -> None:
    np.save(tmp_path / "B.npy", np.ones((128, 64), np.float16))
    given = call("run", GEMM, "--seed", "3", "--input", f"B={tmp_path / 'B.npy'}").stdout
    none = call("run", GEMM, "--seed", "3").stdout
    other = call("run", GEMM, "--seed", "4", "--input", f"B={tmp_path / 'B.npy'}").stdout
    assert given != none
    assert given != other
    assert given.splitlines()[0] == none.splitlines()[0], "the first output is a copy of the random A"


def test_run_json_is_data() -> None:
    report = json.loads(call("run", GEMM, "--json").stdout)
    assert report["ok"] is True
    assert report["outputs"]["Y"]["shape"] == [192, 64]


def test_streams_are_checked_and_never_simulated(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.stcb", tmp_path / "bad.stcb"
    call("bind", GEMM, "-o", str(good))
    bad.write_bytes(good.read_bytes()[:-9])
    assert call("check", str(good)).exit_code == 0
    assert "NEM188" in call("check", str(bad)).output
    result = call("sim", str(good))
    assert result.exit_code == 1
    assert "is a bound stream" in result.output


def test_show_tells_what_it_leaves_out(wrong: str) -> None:
    result = call("show", wrong)
    assert result.exit_code == 1
    assert "NEM004" in result.output


def test_a_root_lets_includes_climb(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "mine.nem").write_text(
        'include "npm_lite.nem"\ndevice mine extends npm_lite {}\n'
    )
    program = tmp_path / "kernels" / "p.nem"
    program.write_text(
        'include "../devices/mine.nem"\ndevice mine\nbuffer A : L2 (size=8)\nbuffer B : L1 (size=8)\n'
        "transfer.sync(dst=B, src=A)\n"
    )
    assert "NEM011" in call("check", str(program)).output
    for command in ("check", "show", "run", "sim"):
        assert call(command, str(program), "--root", str(tmp_path)).exit_code == 0
    assert "device mine" in call("show", str(program), "--root", str(tmp_path)).output
    assert call("diff", GEMM, GEMM, "--root", str(ROOT)).exit_code == 0
    assert call("sim", str(program), "--root", str(tmp_path), "--fix", str(tmp_path / "f.nem")).exit_code == 0


def test_shipped_device_files_are_known_by_name() -> None:
    assert call("check", GEMM, "--device", "npm_mid.nem").exit_code == 0
    assert "device npm_mid" in call("show", "npm_mid.nem").stdout


def test_files_have_codes_too() -> None:
    assert "LAM001" in call("explain", "LAM001").stdout


@pytest.mark.parametrize("rule", [ONNX_RULES[0], *PLAN_RULES])
def test_rules_beyond_the_languages_are_explained(rule: Rule) -> None:
    assert rule.sentence in call("explain", rule.code).stdout


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("chek", "x.nem"), "did you mean 'check'?"),
        (("zzz",), "check, show"),
        (("explain", "NEM14"), "did you mean NEM140 or NEM141 or NEM142?"),
        (("explain", "skr2830"), "did you mean SKR283"),
        (("rules", "nems"), "did you mean 'nem'?"),
        (("rules", "NEM"), "did you mean 'nem'?"),
        (("check", "--language", "tensors", "x"), "did you mean 'tensor'?"),
        (("lower", "x.tensor", "--to", "lvm"), "did you mean 'llvm'?"),
        (("check", "--strct", "x"), "--strict"),
        (("run", "k.tensor", "--groups", "4,x"), "is not one, two or three numbers"),
    ],
)
def test_what_may_be_meant_is_named(arguments: tuple[str, ...], meant: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert meant in result.output


def test_misspelt_devices_are_told(tmp_path: Path) -> None:
    path = tmp_path / "named.nem"
    path.write_text("device npm_lit\nbuffer A : L2 (size=8)\n", encoding="utf-8")
    for arguments in (("check", str(path)), ("sim", CONV, "--device", "npm_lit"), ("show", "npm_lit")):
        result = call(*arguments)
        assert result.exit_code == 1
        assert "did you mean 'npm_lite'?" in result.output


def test_the_overview_names_every_command() -> None:
    done = CliRunner().invoke(lamella, [])
    assert done.exit_code == 0
    words = done.output.split()
    assert not [name for name in COMMANDS if name not in words]
    assert len(done.output.splitlines()) <= 24  # one screen
    assert max(map(len, done.output.splitlines())) <= 120


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_words(shell: str) -> None:
    done = CliRunner().invoke(lamella, ["--completion", shell])
    assert done.exit_code == 0
    assert "_LAMELLA_COMPLETE" in done.output
    words = ShellComplete(lamella, {}, "lamella", "_LAMELLA_COMPLETE")
    assert [item.value for item in words.get_completions([], "gener")] == ["generate"]
    assert "--tokens" in [item.value for item in words.get_completions(["generate"], "--to")]
    assert "cpu" in [item.value for item in words.get_completions(["run", "--backend"], "c")]
