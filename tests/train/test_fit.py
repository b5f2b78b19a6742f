"""`lamella train` on data: the losses of torch step for step, what is saved, and runs that go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner, Result

import lamella
from lamella.cli import lamella as command

STEPS, BATCH, LENGTH, RATE = 6, 2, 8, 3e-3
PLAIN = ("--backend", "reference")
"""Without kernels, where they are not what is tested: nothing is compiled."""


def run(*words: str | Path, fails: bool = False) -> Result:
    """A command, which ends well unless it is to fail."""
    done = CliRunner().invoke(command, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert (done.exit_code != 0) == fails, done.output
    return done


def words(model: Path, data: Path, *more: str | Path, steps: int = STEPS) -> list[str | Path]:
    sizes = ["--steps", str(steps), "--batch", str(BATCH), "--sequence", str(LENGTH), "--lr", str(RATE)]
    return ["train", model, "--data", data, *sizes, "--json", *more]


def trained(*given: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*given).stdout)
    return found


def judge(folder: Path, data: Path, clip: float | None = None) -> tuple[list[float], torch.nn.Module]:
    """Losses of transformers' model with torch's AdamW, on the same windows."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    rows = torch.from_numpy(np.load(data).astype(np.int64))
    losses = []
    for step in range(STEPS):
        starts = [(step * BATCH + item) * LENGTH for item in range(BATCH)]
        part = torch.stack([rows[start : start + LENGTH + 1] for start in starts])
        logits = model(part[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses, model


def test_losses_and_weights_are_those_of_torch(llama: Path, tokens: Path, tmp_path: Path) -> None:
    wanted, model = judge(llama, tokens)
    found = trained(*words(llama, tokens, "--save", tmp_path / "out"))
    np.testing.assert_allclose(found["losses"], wanted, rtol=1e-5)
    saved = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert (tmp_path / "out" / "tokenizer.json").is_file()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(saved.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)


def test_clipped_and_accumulated_steps_are_those_of_torch(llama: Path, tokens: Path) -> None:
    wanted, _ = judge(llama, tokens, 0.05)
    found = trained(*words(llama, tokens, "--clip", "0.05", "--accumulate", "2"))
    np.testing.assert_allclose(found["losses"], wanted, rtol=1e-5)


def test_a_mixture_of_experts_learns_from_tokens(tokens: Path, tmp_path: Path) -> None:
    """The seed of its auxiliary losses is no input that data would have to fill."""
    sizes: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = transformers.MixtralConfig(
        vocab_size=64, num_attention_heads=2, num_key_value_heads=1, num_local_experts=2, **sizes
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    found = trained(*words(tmp_path, tokens, *PLAIN, steps=2))["losses"]
    np.testing.assert_allclose(found, judge(tmp_path, tokens)[0][:2], rtol=1e-5)


def test_a_run_that_goes_on_is_bit_by_bit_the_same(llama: Path, tokens: Path, tmp_path: Path) -> None:
    more: list[str | Path] = ["--shuffle", "--seed", "3", "--save-every", "2", "--warmup", "2"]
    whole = trained(*words(llama, tokens, "--save", tmp_path / "a.safetensors", *more))
    parts: list[str | Path] = ["--save", tmp_path / "b.safetensors", *more]
    first = trained(*words(llama, tokens, *parts, steps=4))
    rest = trained(*words(llama, tokens, *parts, "--resume"))
    assert rest["resumed"] == 4
    assert rest["losses"] == whole["losses"]
    assert first["losses"] == whole["losses"][:4]
    one, two = ((tmp_path / f"{name}.safetensors").read_bytes() for name in "ab")
    assert one == two
    kept = sorted(item.name for item in (tmp_path / "b.safetensors.training").iterdir())
    assert kept == ["step-00000004.safetensors", "step-00000006.safetensors"]


def test_a_checkpoint_of_another_run_is_refused(llama: Path, tokens: Path, tmp_path: Path) -> None:
    more: list[str | Path] = ["--save", tmp_path / "a.safetensors", "--save-every", "2", *PLAIN]
    data = tmp_path / "tokens.npy"
    np.save(data, np.load(tokens))
    trained(*words(llama, data, *more, steps=2))
    done = run(*words(llama, data, *more, "--resume", "--seed", "5"), fails=True)
    assert "was written with seed 0, not 5" in done.output
    done = run(*words(llama, data, *more, "--resume", steps=1), fails=True)
    assert "2 steps on already" in done.output
    np.save(data, np.load(tokens)[::-1])
    done = run(*words(llama, data, *more, "--resume"), fails=True)
    assert "was written with numbers of the data" in done.output


def test_a_module_trains_from_drawn_weights(tokens: Path, tmp_path: Path) -> None:
    """What is saved gives the loss that an evaluation of the run gave."""
    sizes = [
        "d_model=16",
        "n_layers=1",
        "num_heads=2",
        "num_kv_heads=1",
        "d_ff=24",
        "vocab_size=64",
        "max_seq=32",
    ]
    text = (Path(lamella.__file__).parent / "models/models/llama.module").read_text()
    (tmp_path / "m.module").write_text(text)
    options = [word for item in sizes for word in ("--set", item)]
    target = tmp_path / "m.safetensors"
    found = trained(
        *words(
            tmp_path / "m.module", tokens, *options, "--eval-data", f"{tokens}[:1]", "--save", target, *PLAIN
        )
    )
    (evaluation,) = found["evaluations"]
    model = lamella.compile(
        tmp_path / "m.module", config=dict(item.split("=") for item in sizes), weights=target
    )
    rows = np.load(tokens).astype(np.int64)[: LENGTH + 1]
    logits = model(**{model.inputs[0]: rows[:-1].reshape(1, LENGTH)})[model.outputs[0]]
    shares = torch.nn.functional.cross_entropy(
        torch.from_numpy(logits).flatten(0, 1), torch.from_numpy(rows[1:])
    )
    assert evaluation["loss"] == pytest.approx(float(shares), rel=1e-5)


def test_logs_and_pages_hold_every_step(llama: Path, tokens: Path, tmp_path: Path) -> None:
    page, log = tmp_path / "curve.html", tmp_path / "log"
    found = trained(*words(llama, tokens, "--html", page, "--log", log, "--clip", "1", *PLAIN))
    rows = [line.split(",") for line in (log / "training.csv").read_text().splitlines()]
    assert rows[0][:4] == ["step", "loss", "rate", "gradient_norm"]
    assert [float(row[1]) for row in rows[1:]] == found["losses"]
    text = page.read_text()
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert text.count("<path class=") == 2
    assert len(list(log.glob("events.out.tfevents.*"))) == 1


def test_python_trains_as_the_command_does(llama: Path, tokens: Path, tmp_path: Path) -> None:
    seen: list[float] = []
    done = lamella.train(
        llama, np.load(tokens), steps=3, batch=BATCH, sequence=LENGTH, lr=RATE, backend="reference",
        watch=lambda report: seen.append(report.loss),
    )  # fmt: skip
    assert done.losses == seen == trained(*words(llama, tokens, *PLAIN, steps=3))["losses"]
    assert done.save(tmp_path / "w.safetensors") == (tmp_path / "w.safetensors",)
    again = done.trainer.step(
        {"token_ids": np.zeros((1, 4), np.int64), "targets": np.ones((1, 4), np.int64)}, RATE
    )
    assert np.isfinite(again.loss)


REFUSED = {
    "there are no data": ["train", "MODEL"],
    "no such file": ["train", "MODEL", "--data", "nowhere.npy"],
    "cannot have an effect without --save": ["train", "MODEL", "--data", "DATA", "--save-every", "2"],
    "cannot have an effect without --optimizer sgd": [
        "train",
        "MODEL",
        "--data",
        "DATA",
        "--momentum",
        "0.9",
    ],
    "there is no optimiser 'what'": ["train", "MODEL", "--data", "DATA", "--optimizer", "what"],
    "and a batch takes 4000": ["train", "MODEL", "--data", "DATA", "--sequence", "8", "--batch", "4000"],
    "takes no steps of training": ["train", "MODEL", "--data", "DATA", "--backend", "npu"],
    "has no ending": ["train", "MODEL", "--data", "MODEL/config.json"],
    "cannot write '/proc/no'": ["train", "MODEL", "--data", "DATA", "--sequence", "8", "--save", "/proc/no"],
    "steps would go up the loss": ["train", "MODEL", "--data", "DATA", "--sequence", "8", "--lr", "-1"],
    "a mean that takes nothing in": ["train", "MODEL", "--data", "DATA", "--sequence", "8", "--beta2", "1"],
    "of norm 0 change nothing": ["train", "MODEL", "--data", "DATA", "--sequence", "8", "--clip", "0"],
    "is a folder that transformers loads": [
        "train",
        "MODEL",
        "--data",
        "DATA",
        "--sequence",
        "8",
        "--save",
        "w.bin",
    ],
    "say another --sequence": [
        "train",
        "MODEL",
        "--data",
        "DATA",
        "--batch",
        "1",
        "--sequence",
        "40",
        *PLAIN,
    ],
    "no empty folder": ["train", "MODEL", "--data", "DATA", "--sequence", "8", "--save", "MODEL"],
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_makes_no_sense_is_said(message: str, llama: Path, tokens: Path) -> None:
    given = [item.replace("MODEL", str(llama)).replace("DATA", str(tokens)) for item in REFUSED[message]]
    output = run(*given, fails=True).output
    assert message in output
    assert "step 1 " not in output, "before a step is taken"


def test_an_unknown_token_is_found_before_the_first_step(llama: Path, tmp_path: Path) -> None:
    """However late the run would come to it."""
    rows = np.zeros(3000, np.int64)
    rows[2500] = 260
    np.save(tmp_path / "rows.npy", rows)
    output = run(*words(llama, tmp_path / "rows.npy", *PLAIN, steps=2), fails=True).output
    assert "token 2500" in output
    assert "0 to 259" in output


def test_weights_are_saved_in_a_folder_that_is_made(llama: Path, tokens: Path, tmp_path: Path) -> None:
    """It would be said behind the last step that there is none."""
    target = tmp_path / "runs" / "first" / "w.safetensors"
    run(*words(llama, tokens, *PLAIN, "--save", target, steps=1))
    assert target.is_file()


def test_every_form_of_a_model_learns_the_same(llama: Path, tokens: Path, tmp_path: Path) -> None:
    """Tables of angles and constants of an export are no parameters, whatever the model is written in."""
    wide = ("--dtype", "f64", *PLAIN)
    expected = trained(*words(llama, tokens, *wide, steps=3))
    for ending in ("sknd", "nac", "onnx"):
        form = tmp_path / f"form.{ending}"
        run("convert", llama, form)
        found = trained(*words(form, tokens, *wide, steps=3))
        assert found["parameters"] == expected["parameters"], ending
        np.testing.assert_allclose(found["losses"], expected["losses"], rtol=1e-9, err_msg=ending)


def test_a_training_that_diverges_ends(llama: Path, tokens: Path) -> None:
    done = run(*words(llama, tokens, "--optimizer", "sgd", "--lr", "1e30", *PLAIN), fails=True)
    assert "the training diverged" in done.output
