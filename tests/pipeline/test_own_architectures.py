"""Hugging Face folders that are no model of the library: shown, read by a file of one's own, and written with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.bridge.hf_to_module import open_folder
from lamella.cli import lamella as command
from lamella.pipeline.module.folders import TRAVELLING, unknown_architecture
from tests.support.repository import ROOT

MINE = """\
from parts.gate import Gate

model Mine(width: int = 2, cap: float = 1.0):
  params:
    gate: Gate(width, cap)

  forward:
    in: x: [B, width]
    out: y: [B, width]
    graph:
      x -> gate() -> y

  hf_config:
    architecture: "CappedModel"
    model_type: "capped"
    param_mapping:
      width: hidden_size
      cap: logit_cap

  hf_mapping:
    gate.weight: "gate.weight"
"""
GATE = """\
primitive softcap:
  params:
    cap: float = 1.0

  forward:
    in: x: [*]
    out: y: [*]

  backward:
    in: (d_y: [*], x: [*])
    out: d_x: [*]

  save: [x]

  impl:
    forward: mine.softcap
    backward: mine.softcap_backward

module Gate(width: int, cap: float):
  params:
    weight: [width, width]

  forward:
    in: x: [B, width]
    out: y: [B, width]
    graph:
      (x, weight) -> matmul(transpose=NT) -> h
      h -> softcap(cap=cap) -> y
"""
OPERATORS = """\
operator softcap {
    @attrib {
        cap: real = 1.0;
    }
    @input {
        x: real[d..];
    }
    @output {
        y: real[d..];
    }
    @lower {
        y[i..] = `tanh`(x[i..] / cap) * cap, i < d;
    }
}

operator softcap_backward {
    @attrib {
        cap: real = 1.0;
    }
    @input {
        d_y: real[d..];
        x: real[d..];
    }
    @output {
        d_x: real[d..];
    }
    @lower {
        d_x[i..] = d_y[i..] * (1.0 - `tanh`(x[i..] / cap) ** 2.0), i < d;
    }
}
"""
CONFIG = {"architectures": ["CappedModel"], "model_type": "capped", "hidden_size": 3, "logit_cap": 0.5}
WEIGHT = np.random.default_rng(2).standard_normal((3, 3)).astype(np.float32)
X = np.random.default_rng(3).standard_normal((4, 3)).astype(np.float32)


def call(*words: object, status: int = 0) -> str:
    """What a command prints; its exit status is compared."""
    done = CliRunner().invoke(command, [str(word) for word in words])
    assert done.exit_code == status, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.output


def write_folder(folder: Path, config: Mapping[str, object] = CONFIG) -> Path:
    """A checkpoint of an architecture that nobody here knows."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({"gate.weight": WEIGHT}, folder / "model.safetensors")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder."""
    return write_folder(tmp_path / "hf")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A model for it: a file that imports another, which calls an operator of a SkriptND file beside it."""
    (tmp_path / "own" / "parts").mkdir(parents=True)
    (tmp_path / "own" / "mine.module").write_text(MINE, encoding="utf-8")
    (tmp_path / "own" / "parts" / "gate.module").write_text(GATE, encoding="utf-8")
    (tmp_path / "own" / "parts" / "mine.sknd").write_text(OPERATORS, encoding="utf-8")
    return tmp_path / "own" / "mine.module"


def judge(path: Path, **options: Any) -> None:
    """The numbers of a model are those that NumPy gives."""
    found = lamella.compile(lamella.load(path, **options))(x=X)["y"]
    np.testing.assert_allclose(found, 0.5 * np.tanh(X @ WEIGHT.T / 0.5), rtol=1e-5, atol=1e-6)


def test_a_folder_is_read_as_a_model_of_ones_own_and_written_with_it(
    folder: Path, mine: Path, tmp_path: Path
) -> None:
    judge(folder, architecture=mine)
    option = ("--architecture", mine)
    assert "nothing found" in call("check", folder, *option)
    assert "Hugging Face, Mine of" in call("show", folder, *option)
    assert "y: float32[2, 3]" in call("run", folder, "--shape", "B=2", *option)
    out = tmp_path / "out"
    call("convert", folder, out, *option)
    assert (out / TRAVELLING).read_text(encoding="utf-8") == MINE
    shutil.rmtree(mine.parent)

    judge(out)
    told = call("check", out)
    assert "W113" in told
    assert f"the folder is read as 'Mine' of its own {TRAVELLING}" in call("show", out)
    call("convert", out, tmp_path / "again")
    judge(tmp_path / "again")
    assert np.array_equal(load_file(tmp_path / "again" / "model.safetensors")["gate.weight"], WEIGHT)


def test_a_file_of_ones_own_becomes_a_folder_that_is_read_again(mine: Path, tmp_path: Path) -> None:
    call("convert", mine, tmp_path / "out", "--set", "width=3", "--seed", 4)
    state = load_file(tmp_path / "out" / "model.safetensors")["gate.weight"]
    found = lamella.compile(tmp_path / "out")(x=X)["y"]
    np.testing.assert_allclose(found, np.tanh(X @ state.T), rtol=1e-5, atol=1e-6)


def test_the_model_that_travels_comes_before_the_library_and_the_option_before_both(tmp_path: Path) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 3, "logit_cap": 0.5}
    folder = write_folder(tmp_path / "hf", config)
    (folder / TRAVELLING).write_text(MINE.replace("from parts.gate import Gate", GATE), encoding="utf-8")
    (folder / "mine.sknd").write_text(OPERATORS, encoding="utf-8")
    judge(folder)
    assert "before 'Llama' of std.models.llama" in call("check", folder)
    with pytest.raises(LamellaError):  # its tensors are not those of a Llama
        lamella.load(folder, architecture="std.models.llama")


def test_links_in_a_folder_are_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.module").write_text(MINE, encoding="utf-8")
    (folder / TRAVELLING).symlink_to(tmp_path / "secret.module")
    assert "symbolic link" in call("check", folder, status=1)
    (folder / TRAVELLING).unlink()
    (folder / TRAVELLING).write_text(GATE, encoding="utf-8")
    (tmp_path / "mine.sknd").write_text(OPERATORS, encoding="utf-8")
    (folder / "mine.sknd").symlink_to(tmp_path / "mine.sknd")
    assert "symbolic link" in call("check", folder, "--set", "width=3", "--set", "cap=1.0", status=1)


def test_keys_that_the_named_architecture_reads_and_ones_own_does_not_are_named(tmp_path: Path) -> None:
    page = ROOT / "examples" / "llama" / "page.module"
    call("convert", page, tmp_path / "tiny", "--seed", "1")
    config = json.loads((tmp_path / "tiny" / "config.json").read_text(encoding="utf-8"))
    for more, told in (({}, ""), ({"rope_theta": 500.0}, "so rope_theta of config.json is not read")):
        (tmp_path / "tiny" / "config.json").write_text(json.dumps({**config, **more}), encoding="utf-8")
        for words in (("check",), ("run", "--shape", "B=1,T=2")):
            found = call(words[0], tmp_path / "tiny", "--architecture", page, *words[1:])
            assert ("W114" in found) == bool(told), found
            assert told in found


@pytest.mark.parametrize("named", ["os.system", "mine.nothing", "math.add"])
def test_a_folder_whose_model_names_no_operator_is_found_by_check(
    folder: Path, mine: Path, named: str
) -> None:
    gate = mine.parent / "parts" / "gate.module"
    text = gate.read_text(encoding="utf-8")
    gate.write_text(text.replace("forward: mine.softcap", f"forward: {named}"), encoding="utf-8")
    assert "error[E" in call("check", folder, "--architecture", mine, status=1)


def test_what_the_option_cannot_mean_is_told(folder: Path, mine: Path) -> None:
    assert "--architecture cannot have an effect" in call("run", mine, "--architecture", mine, status=2)
    assert "is a directory" in call("check", folder, "--architecture", folder, status=2)
    assert "is a folder" in lamella.check(folder, architecture=folder)[0].message
    assert "no such file" in call("check", folder, "--architecture", "ghost.module", status=1)
    assert "did you mean 'std.models.llama'?" in call(
        "check", folder, "--architecture", "std.models.lama", status=1
    )
    bare = mine.read_text(encoding="utf-8").partition("    param_mapping")[0] + (
        '\n  hf_mapping:\n    gate.weight: "gate.weight"\n'
    )
    mine.write_text(bare.replace("width: int = 2", "width: int = 3"), encoding="utf-8")
    assert "'Mine' has no param_mapping:" in call("check", folder, "--architecture", mine)


# --- architectures without a model ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("FooForCausalLM", "foo", ""),
        ("Llama4ForCausalLM", "llama4", ""),
        ("XglmForCausalLM", "xglm", ""),  # 'Glm' and 'Bart' are near, and others
        ("MBartForCausalLM", "mbart", ""),
        ("LamaForCausalLM", "lama", "did you mean 'LlamaForCausalLM'?"),
        ("LlamaForMultipleChoice", "llama", "--architecture std.models.llama"),
    ],
)
def test_an_unknown_architecture_is_named_and_not_guessed(
    tmp_path: Path, name: str, kind: str, expected: str
) -> None:
    folder = write_folder(tmp_path / "hf", {"architectures": [name], "model_type": kind})
    found = unknown_architecture(open_folder(folder))
    assert f"'{name}', model_type '{kind}'; the folder holds 1 tensors, 36 bytes of f32" in found.message
    assert expected in found.hint
    assert expected or "did you mean" not in found.hint
    assert "lamella[transformers]" in found.hint
    assert "--architecture F.module" in found.hint
    told = call("show", folder)
    assert "gate.weight: f32[3, 3]" in told
    assert f'model_type: "{kind}"' in told
    assert f"lamella run {folder}" in told


def test_every_folder_is_shown(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "hf")
    (folder / "config.json").unlink()
    told = call("show", folder)
    assert "config.json is not there" in told
    assert "gate.weight: f32[3, 3]" in told

    (folder / "model.safetensors").unlink()
    assert "is empty" in call("show", folder, status=1)
    (folder / "notes.txt").write_text("", encoding="utf-8")
    assert "holds no model, only 'notes.txt'" in call("show", folder, status=1)

    (folder / "config.json").write_text(json.dumps({**CONFIG, "a": float("nan")}), encoding="utf-8")
    assert "no tensors" in call("show", folder)
    assert json.loads(call("show", folder, "--json"))["config"]["a"] == "NaN"
    (folder / "config.json").write_text('{\n  "hidden_size": ,\n}', encoding="utf-8")
    told = call("show", folder, status=1)
    assert "config.json:2:18: error[E116]: config.json: this is no JSON" in told


# --- operators of one's own -------------------------------------------------------------------------------------


def test_an_operator_beside_a_module_goes_every_way(mine: Path, tmp_path: Path) -> None:
    gate = mine.parent / "parts" / "gate.module"
    sizes = ("--model", "Gate", "--set", "width=3", "--set", "cap=0.5")
    assert "2 gradients compared" in call("check", gate, "--verify-backward", *sizes)
    one = call("run", gate, "--shape", "B=2", *sizes)
    for form, shape in (("sknd", ()), ("ir", ()), ("tensor", ("--shape", "B=2"))):
        told = call("lower", gate, "--to", form, "-o", tmp_path / form, *sizes, *shape)
        assert float(told.partition("largest difference ")[2].split(",")[0]) < 1e-6
    assert (tmp_path / "sknd" / "mine.sknd").is_file()
    assert (tmp_path / "ir" / "mine.sknd").read_text(encoding="utf-8") == OPERATORS
    assert one.splitlines()[-1] == call("run", tmp_path / "sknd", "--shape", "B=2").splitlines()[-1]

    # Beside the file of the operators theirs is used, and never replaced by the few that a graph calls.
    call("convert", gate, gate.parent / "flat.sknd", *sizes)
    assert (gate.parent / "mine.sknd").read_text(encoding="utf-8") == OPERATORS
    (gate.parent / "other").mkdir()
    other = gate.parent / "other" / "mine.sknd"
    other.write_text(OPERATORS.replace("* cap", "* cap * cap"), encoding="utf-8")
    assert "is there already" in call("convert", gate, other.parent / "flat.sknd", *sizes, status=1)


def test_the_gradient_of_an_operator_of_ones_own_follows_from_its_formula(mine: Path) -> None:
    gate, operators = mine.parent / "parts" / "gate.module", mine.parent / "parts" / "mine.sknd"
    first, _, rest = GATE.partition("  backward:\n    in:")
    gate.write_text(
        first + rest[rest.index("  impl:") :].replace("    backward: mine.softcap_backward\n", "")
    )
    operators.write_text(OPERATORS[: OPERATORS.index("operator softcap_backward")])
    assert "backward" not in gate.read_text() + operators.read_text()
    sizes = ("--model", "Gate", "--set", "width=3", "--set", "cap=0.5")
    assert "2 gradients compared" in call("check", gate, "--verify-backward", *sizes)


def test_what_is_wrong_with_operators_beside_a_module_is_told(mine: Path) -> None:
    gate, operators = mine.parent / "parts" / "gate.module", mine.parent / "parts" / "mine.sknd"
    sizes = ("--model", "Gate", "--set", "width=3", "--set", "cap=0.5")
    operators.write_text(OPERATORS.replace("i < d;", "j < d;"), encoding="utf-8")
    told = call("check", gate, *sizes, status=1)
    assert "mine.sknd:12" in told
    operators.unlink()
    assert "there is no operator 'mine.softcap'" in call("check", gate, *sizes, status=1)
    operators.write_text(OPERATORS, encoding="utf-8")
    gate.write_text(GATE.replace("forward: mine.softcap", "forward: llm.silu"), encoding="utf-8")
    (gate.parent / "llm.sknd").write_text(OPERATORS, encoding="utf-8")
    assert "W115" in call("check", gate, "--model", "Gate", "--set", "width=3", "--set", "cap=0.5", status=1)


def test_the_default_of_a_primitive_is_that_of_its_calls(tmp_path: Path) -> None:
    """What a primitive declares counts, not what its operator would take where nothing is said."""
    (tmp_path / "mine.sknd").write_text(
        "operator scale {\n    @attrib { by: real = 1.0; }\n    @input { x: real[s..]; }\n"
        "    @output { y: real[s..]; }\n    @lower { y[i..] = by * x[i..], i < s; }\n}\n"
    )
    (tmp_path / "net.module").write_text(
        "primitive scale:\n  params:\n    by: float = 5.0\n  forward:\n    in: x: [*, n]\n    out: y: [*, n]\n"
        "  impl:\n    forward: mine.scale\n\n"
        "model Net(n: int = 2):\n  forward:\n    in: x: [B, n]\n    out: z: [B, n]\n    graph:\n"
        "      x -> scale() -> y\n      y -> scale(by=2.0) -> z\n"
    )
    found = lamella.compile(tmp_path / "net.module")(x=np.ones((1, 2), np.float32))
    np.testing.assert_array_equal(found["z"], [[10, 10]])
