"""The commands on Module DSL files and Hugging Face folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import lamella
from lamella.cli import lamella as command
from tests.support.repository import ROOT

PAGE = ROOT / "examples" / "llama" / "page.module"


def call(*words: object, status: int = 0) -> str:
    """What a command prints; its exit status is compared."""
    done = CliRunner().invoke(command, [str(word) for word in words])
    assert done.exit_code == status, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.output


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A copy of the model on a page."""
    return Path(shutil.copy(PAGE, tmp_path / "page.module"))


@pytest.fixture
def folder(page: Path, tmp_path: Path) -> Path:
    """A checkpoint of that model with random weights."""
    call("convert", page, tmp_path / "tiny", "--seed", 1)
    return tmp_path / "tiny"


def test_values_come_from_defaults_presets_and_the_user(tmp_path: Path) -> None:
    file = tmp_path / "m.module"
    file.write_text(
        "module M(d: int = 4, e: int = 5, f: float = 1.0):\n"
        "  forward:\n    in: x: [B, d]\n    out: y: [B, d]\n    graph:\n      x -> scale(f) -> y\n\n"
        "preset big:\n  d: 8\n  e: d + 1\n",
        encoding="utf-8",
    )
    told = json.loads(call("show", file, "--json", "--preset", "big", "--set", "f=2"))
    assert told["values"] == {"d": 8, "e": 9, "f": 2.0}
    text = call("show", file, "--preset", "big", "--set", "f=2")
    assert "preset 'big'" in text
    assert "--set" in text
    assert "there is no preset 'huge'" in call("show", file, "--preset", "huge", status=1)
    assert "has no parameter 'g'" in call("run", file, "--set", "g=1", "--shape", "B=1", status=1)
    assert "E003" in call("run", file, "--set", "d=1.5", "--shape", "B=1", status=1)


def test_the_page_is_canonical_and_checked(page: Path) -> None:
    assert call("fmt", page) == page.read_text(encoding="utf-8")
    assert call("check", page) == "1 file checked: nothing found\n"
    told = json.loads(call("check", page, "--set", "d_model=30", "--json", status=1))
    assert {item["code"] for item in told["diagnostics"]} == {"E027"}


def test_a_lock_file_is_written_and_obeyed(page: Path) -> None:
    call("check", page, "--lock")
    lock = page.parent / "module.lock"
    assert "std.modules.GQA: v1" in lock.read_text(encoding="utf-8")
    call("check", page)
    lock.write_text(lock.read_text(encoding="utf-8").replace("GQA: v1", "GQA: v3"), encoding="utf-8")
    assert "E102" in call("check", page, status=1)
    assert "E102" in call("run", page, "--shape", "B=1,T=2", status=1)


def test_a_folder_is_a_model(folder: Path, page: Path, tmp_path: Path) -> None:
    assert "Hugging Face, PageLlama of" in call("show", folder)
    assert "nothing found" in call("check", folder, "--architecture", "std.models.llama")
    told = json.loads(call("show", folder, "--json"))
    assert told["values"]["d_model"] == 64
    assert told["parameters"] == sum(np.prod(shape) for _, shape in told["checkpoint"].values())
    call("check", folder)
    outputs = [
        call("run", source, "--shape", "B=1,T=4", "--weights", folder, "--output", tmp_path / name)
        for name, source in (("page", page), ("folder", folder))
    ]
    assert all("float32[1, 4, 256]" in item for item in outputs)
    arrays = [np.load(tmp_path / name / "logits.npy") for name in ("page", "folder")]
    np.testing.assert_allclose(arrays[0], arrays[1], rtol=1e-4, atol=1e-5)


def test_a_folder_that_does_not_fit_is_told(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 161}), encoding="utf-8")
    assert "E112" in call("check", folder, status=1)
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}), encoding="utf-8")
    assert "E111" in call("check", folder, status=1)
    told = call("check", folder, "--unused", "model.layers.1.*")
    assert "W112" in told
    assert "it is beyond what the config says" in told
    for words in (("check", folder), ("show", folder), ("run", folder), ("convert", folder, "out.nac")):
        assert "--unused PATTERN" in call(*words, "--allow", "model.layers.1.*", status=2)
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["Lama"]}), encoding="utf-8")
    assert "before" not in call("check", folder, "--unused", "*")
    (folder / "architecture.module").unlink()
    assert "no model for the architecture 'Lama'" in call("show", folder)
    assert "no model for the architecture 'Lama'" in call("check", folder, status=1)


def test_export_keeps_every_tensor(folder: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    call("convert", folder, tmp_path / "again")
    before, after = (
        safetensors.load_file(item / "model.safetensors") for item in (folder, tmp_path / "again")
    )
    assert before.keys() == after.keys()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)
    assert (folder / "config.json").read_bytes() == (tmp_path / "again" / "config.json").read_bytes()
    assert "is not empty" in call("convert", folder, tmp_path / "again", status=1)


def test_tokens_are_continued_with_a_cache(folder: Path) -> None:
    words = ("generate", folder, "--tokens", "72,105")
    tokens = [int(item) for item in call(*words, "--max-tokens", 6).split(",")]
    known = [72, 105]
    for token in tokens:
        # without a cache: the whole sequence each time
        inputs = folder / "ids.npy"
        np.save(inputs, np.array([known]))
        call("run", folder, "--input", f"token_ids={inputs}", "--output", folder / "out")
        assert int(np.load(folder / "out" / "logits.npy")[0, -1].argmax()) == token
        known.append(token)
    warm = [call(*words, "--max-tokens", 8, "--temperature", 2, "--seed", seed) for seed in (1, 1, 2)]
    assert warm[0] == warm[1] != warm[2]
    assert "takes 130 positions, the model has 128" in call(*words, "--max-tokens", 128, status=1).replace(
        "prompt and answer take", "takes"
    )


def test_text_goes_through_the_tokenizer_of_the_folder(folder: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {letter: number for number, letter in enumerate(map(chr, range(32, 127)))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=" "))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = tokenizers.decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    told = json.loads(call("generate", folder, "--prompt", "Hi", "--max-tokens", 5, "--json"))
    start = ",".join(map(str, tokenizer.encode("Hi").ids))
    tokens = call("generate", folder, "--tokens", start, "--max-tokens", 5)
    assert told["tokens"] == [int(item) for item in tokens.split(",")]
    assert told["text"] == tokenizer.decode(told["tokens"])
    assert call("generate", folder, "--prompt", "Hi", "--max-tokens", 5) == told["text"] + "\n"
    (folder / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in call("generate", folder, "--prompt", "Hi", status=1)


def test_one_file_keeps_its_caches_and_carries_its_tokenizer(folder: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "nac-app" / "tokenizer.json", folder / "tokenizer.json")
    words = ("--tokens", "72,105", "--max-tokens", 6)
    call("convert", folder, tmp_path / "chat.nac", "--cache", 16, "--shape", "T=1")
    assert call("generate", tmp_path / "chat.nac", *words) == call("generate", folder, *words)
    told = call("show", tmp_path / "chat.nac")
    assert "layers.1.attention.keys" in told or "blocks.1.attention.keys" in told
    assert "config.json" in told
    assert "bytes of manifest" in told
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    call("convert", folder, tmp_path / "raw.nac", "--shape", "B=1,T=2")
    assert "tokenizer.json" in call("show", tmp_path / "raw.nac")


def test_gradients_are_verified(tmp_path: Path) -> None:
    file = tmp_path / "m.module"
    text = (
        "module M(n: int = 4, m: int = 3):\n  params:\n    w: [m, n]\n"
        "  forward:\n    in: x: [B, n]\n    out: y: [B, m]\n"
        "    graph:\n      (x, w) -> matmul(transpose=NT) -> y\n    save: [x]\n  backward:\n    graph:\n"
        "      (d_y, w) -> matmul(transpose=NN) -> d_x\n      (d_y, saved.x) -> matmul(transpose=TN) -> {last}d_w\n"
    )
    file.write_text(text.format(last=""), encoding="utf-8")
    assert "2 gradients compared" in call("check", file, "--verify-backward")
    file.write_text(text.format(last="scale(2.0) -> "), encoding="utf-8")
    call("check", file)
    told = json.loads(call("check", file, "--verify-backward", "--json", status=1))
    assert [item["code"] for item in told["diagnostics"]] == ["E103"]
    assert "'d_w' of 'M' is not the gradient" in told["diagnostics"][0]["message"]


def test_a_compiled_unit_is_a_model(folder: Path, tmp_path: Path) -> None:
    unit = tmp_path / "unit"
    assert "largest difference 0" in call("lower", folder, "--to", "ir", "-o", unit)
    assert "compiled unit of the Module DSL, PageLlama" in call("show", unit)
    call("check", unit)
    for name, source in (("one", folder), ("two", unit)):
        call("run", source, "--shape", "B=1,T=3", "--seed", 5, "--output", tmp_path / name)
    arrays = [np.load(tmp_path / name / "logits.npy") for name in ("one", "two")]
    np.testing.assert_array_equal(arrays[0], arrays[1])
    (unit / "graph.json").write_text("{}", encoding="utf-8")
    assert "graph.json" in call("check", unit, status=1)


def test_a_run_is_observed(page: Path) -> None:
    told = json.loads(call("run", page, "--observe", "--shape", "B=1,T=3", "--json"))
    assert any(
        line.startswith("hook AfterAttention layers[1].attention.attended") for line in told["observed"]
    )
    assert "logits" in told["outputs"]
    wrong = ROOT / "tests" / "lang" / "module" / "bad" / "e104_range.module"
    assert "E104" in call("run", wrong, "--observe", "--shape", "B=2", status=1)
    assert "--observe cannot have an effect" in call(
        "run", ROOT / "examples" / "resnet18", "--observe", status=2
    )


def test_what_is_asked_wrongly_is_told(folder: Path, tmp_path: Path) -> None:
    words = ("generate", folder, "--tokens", "1", "--max-tokens", 2)
    assert "finite number" in call(*words, "--temperature", "nan", status=2)
    assert "one of them" in call(*words, "--prompt", "a", status=2)
    assert "it is for a .module file" in call(
        "generate", ROOT / "examples/npu/conv_relu.nem", "--tokens", "1", status=2
    )
    assert "it is not clear which takes tokens" in call(
        "generate", ROOT / "examples/resnet18", "--tokens", "1", status=1
    )
    (folder / "tokenizer.json").write_text('{"a": 1}', encoding="utf-8")
    assert "holds no model of a tokenizer" in call("generate", folder, "--prompt", "a", status=1)
    assert "is not empty" in call("lower", folder, "--to", "ir", "-o", folder, status=1)


def test_what_is_lowered_runs_with_its_weights(page: Path, tmp_path: Path) -> None:
    call("lower", page, "--to", "sknd", "-o", tmp_path / "low", "--seed", 3)
    for name, path in (("one", page), ("other", tmp_path / "low")):
        call("run", path, "--shape", "B=1,T=2", "--seed", 3, "--output", tmp_path / name)
    one, other = (np.load(tmp_path / name / "logits.npy") for name in ("one", "other"))
    np.testing.assert_array_equal(one, other)
    told = call("run", tmp_path / "low", "--shape", "B=1,T=2", "--seed", 4)
    assert "weights" not in told
    call("convert", page, tmp_path / "flat.sknd", "--seed", 3)
    call("run", tmp_path / "flat.sknd", "--shape", "B=1,T=2", "--seed", 3, "--output", tmp_path / "flat")
    np.testing.assert_array_equal(one, np.load(tmp_path / "flat" / "logits.npy"))
    with pytest.raises(lamella.LamellaError, match="variables have no numbers"):
        lamella.save(lamella.load(page), tmp_path / "partial")
    assert not (tmp_path / "partial").exists()


def test_the_api_lowers_to_units_as_the_command_does(page: Path, tmp_path: Path) -> None:
    call("lower", page, "--to", "ir", "-o", tmp_path / "one")
    unit = lamella.lower(page, "ir")
    lamella.save(unit, tmp_path / "other")
    names = sorted(item.name for item in (tmp_path / "one").iterdir())
    assert names == sorted(item.name for item in (tmp_path / "other").iterdir())
    assert all((tmp_path / "one" / n).read_bytes() == (tmp_path / "other" / n).read_bytes() for n in names)
    ids = np.array([[1, 2]])
    runs = [lamella.compile(item, seed=2) for item in (unit, tmp_path / "other")]
    first, second = (run(token_ids=ids)["logits"] for run in runs)
    np.testing.assert_array_equal(first, second)
    with pytest.raises(lamella.LamellaError, match="only models of the Module DSL"):
        lamella.lower(lamella.load(page), "ir")
    with pytest.raises(lamella.LamellaError, match="is not empty"):
        lamella.save(unit, page.parent)


def test_a_unit_becomes_a_binary(folder: Path, tmp_path: Path) -> None:
    call("lower", folder, "--to", "ir", "-o", tmp_path / "unit")
    call("convert", tmp_path / "unit", tmp_path / "unit.nac", "--shape", "B=1,T=2")
    for name, words in {"nac": ("unit.nac",), "unit": ("unit", "--shape", "B=1,T=2")}.items():
        call("run", tmp_path / words[0], *words[1:], "--seed", 2, "--output", tmp_path / name)
    arrays = [np.load(tmp_path / name / "logits.npy") for name in ("nac", "unit")]
    np.testing.assert_allclose(arrays[0], arrays[1], rtol=1e-4, atol=1e-5)


def test_modules_in_modules_are_bounded(tmp_path: Path) -> None:
    file = tmp_path / "deep.module"
    ends = "  forward:\n    in: x: [B, d]\n    out: y: [B, d]\n    graph:\n"
    head = f"module M0(d: int = 2):\n{ends}      x -> relu() -> y\n"
    below = "".join(
        f"module M{number}(d: int = 2):\n  params:\n    a: M{number - 1}(d)\n{ends}      x -> a() -> y\n"
        for number in range(1, 200)
    )
    file.write_text(head + below, encoding="utf-8")
    assert "E101" in call("check", file, "--model", "M199", status=1)
    call("check", file, "--model", "M50")
    assert "E101" in call("run", file, "--model", "M199", "--shape", "B=1", status=1)


def test_every_road_down_gives_the_same_numbers(folder: Path, tmp_path: Path) -> None:
    call("convert", folder, tmp_path / "tiny.nac", "--shape", "B=1,T=3")
    call("lower", folder, "--to", "sknd", "-o", tmp_path / "flat")
    runs = {
        "folder": (folder, "--shape", "B=1,T=3"),
        "kernels": (folder, "--shape", "B=1,T=3", "--backend", "cpu"),
        "nac": (tmp_path / "tiny.nac",),
        "text": (tmp_path / "flat", "--shape", "B=1,T=3"),
    }
    for name, words in runs.items():
        call("run", *words, "--seed", 3, "--output", tmp_path / name)
    arrays = {name: np.load(tmp_path / name / "logits.npy") for name in runs}
    for array in arrays.values():
        np.testing.assert_allclose(array, arrays["folder"], rtol=1e-4, atol=1e-5)
