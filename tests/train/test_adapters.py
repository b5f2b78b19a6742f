"""Adapters without another package: gradients by differences, what is merged, bases of few bits, `@adapter`."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.base.dtype import F32, I64
from lamella.base.errors import InputError
from lamella.cli import lamella as command
from lamella.graph.build import Builder
from lamella.graph.nodes import Tensor
from lamella.ops.library import Library
from lamella.pipeline.options import Options
from lamella.train.adapters.base import BLOCK, NF4, decode_nf4, encode_int8, encode_nf4
from lamella.train.adapters.merge import merge_adapter, merged, unmerge_adapter
from lamella.train.adapters.model import find_adapters
from lamella.train.adapters.places import find_products
from lamella.train.adapters.specs import AdapterSpec, parse_spec
from lamella.train.data.batches import Batches
from lamella.train.data.files import DataRequest, from_arrays
from lamella.train.settings import StepSettings
from lamella.train.trainer import Trainer

KINDS = [
    "lora:rank=2,alpha=3,targets=q,o",
    "lora:rank=2,alpha=3,dropout=0.4,targets=k,down",
    "dora:rank=2,targets=v,up",
    "ia3",
    "prompt:length=2",
    "prefix:length=2",
    "prefix:length=2,hidden_dim=3",
    "bottleneck:dim=3,activation=gelu",
]


def batch(virtual: int) -> dict[str, np.ndarray]:
    rows = np.random.default_rng(1).integers(0, 60, (2, 6 + virtual))
    targets = np.roll(rows, -1, axis=1)
    targets[:, :virtual] = -100
    return {"token_ids": rows, "targets": targets}


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_step_changes_the_loss_by_the_square_of_the_gradient(kind: str, llama: Path) -> None:
    """Along the gradient a step of SGD with rate r lowers the loss by r · ‖g‖² to first order, in doubles.

    DoRA's norm is no way for the gradient, so its steps promise less: they only descend.
    """
    model = find_adapters(llama, Options(adapters=(kind,), dtype="f64"))
    assert model is not None
    data = dict(model.trainable.model.data or {})
    for item in model.adapted.weights:  # away from the zeros that they begin with
        noise = np.random.default_rng(len(item.variable)).normal(size=item.shape) * 0.05
        data[item.variable] = data[item.variable] + noise
    graph = replace(model.trainable, model=replace(model.trainable.model, data=data))
    settings = StepSettings("sgd", weight_decay=0.0, dtype="f64", clip=1e9)
    trainer = Trainer(graph, settings, "reference")
    given, rate = batch(model.adapted.virtual), 1e-6
    if model.adapted.draws:
        given[model.adapted.draws] = np.array([3, 4])
    before = trainer.evaluate(given)
    found = trainer.step(given, rate)
    drop = before - trainer.evaluate(given)
    assert found.loss == pytest.approx(before, rel=1e-12)
    assert found.gradient_norm is not None
    if kind.startswith("dora"):
        assert drop > 0
    else:
        assert drop == pytest.approx(rate * found.gradient_norm**2, rel=1e-3)


def test_adapters_begin_as_nothing_and_leave_the_rest(llama: Path, tokens: Path, tmp_path: Path) -> None:
    """The first loss is that of the model; what is merged and taken out again is what it was."""
    words: dict[str, Any] = {"steps": 3, "batch": 2, "sequence": 8, "lr": 0.05, "backend": "reference"}
    rows = np.load(tokens)
    plain = lamella.train(llama, rows, **{**words, "steps": 1})
    done = lamella.train(llama, rows, adapters="lora:rank=2,targets=q,down", save=tmp_path / "a", **words)
    assert done.losses[0] == pytest.approx(plain.losses[0], rel=1e-6)
    merging = ["convert", str(llama), str(tmp_path / "merged"), "--adapter", str(tmp_path / "a")]
    found = CliRunner().invoke(command, merging)
    assert found.exit_code == 0, found.output
    again = lamella.train(llama, rows, adapters=str(tmp_path / "a"), eval_data=tokens, **{**words, "lr": 0.0})
    merged = lamella.train(tmp_path / "merged", rows, eval_data=tokens, **{**words, "lr": 0.0})
    assert again.evaluations[-1][1] == pytest.approx(merged.evaluations[-1][1], rel=1e-6)
    unmerge_adapter(tmp_path / "merged", tmp_path / "a", tmp_path / "back")
    merge_adapter(tmp_path / "back", tmp_path / "a", tmp_path / "again.safetensors")
    first, other, back = (
        load_file(folder / "model.safetensors") for folder in (llama, tmp_path / "merged", tmp_path / "back")
    )
    changed = {name for name, array in first.items() if not np.array_equal(array, other[name])}
    assert changed == {f"model.layers.0.{name}.weight" for name in ("self_attn.q_proj", "mlp.down_proj")}
    for name, array in first.items():
        np.testing.assert_allclose(back[name], array, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--unmerge",), "--unmerge cannot have an effect"),
        (("--adapter", "lora:rank=2"), "is no folder of an adapter"),
        (("--adapter", "."), "adapter_config.json"),
    ],
)
def test_merging_without_an_adapter_is_said(
    words: tuple[str, ...], message: str, llama: Path, tmp_path: Path
) -> None:
    done = CliRunner().invoke(command, ["convert", str(llama), str(tmp_path / "out"), *words])
    assert done.exit_code
    assert message in done.output
    assert not (tmp_path / "out").exists()


def mask(module: str, draws: np.ndarray, width: int, rate: float) -> np.ndarray:
    """The factors of dropout for what a module is given, from the text of its operators, in unbounded integers."""
    prime, salt = (1 << 31) - 1, zlib.crc32(module.encode()) % ((1 << 31) - 1)
    keys = [pow(int(item) + salt, 5, prime) for item in draws]
    found = np.array([[pow(key + 16807 * place, 5, prime) for place in range(width)] for key in keys])
    return np.where(found < int(rate * prime), 0.0, 1 / (1 - rate))


def test_dropout_is_that_of_a_torch_model_with_the_same_masks(
    llama: Path, tokens: Path, tmp_path: Path
) -> None:
    """Steps with dropout, judged by transformers' model with LoRA beside a projection; parts of a batch are one."""
    module, rate, rows = "model.layers.0.self_attn.q_proj", 0.4, np.load(tokens).astype(np.int64)
    words: dict[str, Any] = {"steps": 3, "batch": 2, "sequence": 8, "lr": 0.05, "eval_data": tokens}
    kind = f"lora:rank=2,alpha=4,dropout={rate},targets=q"
    lamella.train(llama, rows, adapters=kind, steps=1, batch=2, sequence=8, lr=0.0, save=tmp_path / "a")
    assert json.loads((tmp_path / "a" / "adapter_config.json").read_text())["lora_dropout"] == rate
    ours = lamella.train(llama, rows, adapters=str(tmp_path / "a"), **words)
    parts = lamella.train(
        llama, rows, adapters=str(tmp_path / "a"), accumulate=2, backend="reference", **words
    )
    np.testing.assert_allclose(parts.losses, ours.losses, rtol=1e-6)

    model = transformers.AutoModelForCausalLM.from_pretrained(llama).requires_grad_(False)
    start = load_file(tmp_path / "a" / "adapter_model.safetensors")
    down, up = (
        torch.nn.Parameter(torch.from_numpy(start[f"base_model.model.{module}.lora_{side}.weight"]))
        for side in "AB"
    )
    kept: list[torch.Tensor] = []

    def beside(layer: object, given: tuple[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
        return out + 2.0 * ((given[0] * kept[0] if kept else given[0]) @ down.T) @ up.T

    model.get_submodule(module).register_forward_hook(beside)
    optimizer = torch.optim.AdamW([down, up], lr=0.05, weight_decay=0.01)
    request = DataRequest((Tensor("token_ids", I64, (2, 8)),), 8, 260)
    batches = Batches(from_arrays({"tokens": rows}, request, "tokens"), 2, draws="draws")

    def loss_of(part: Mapping[str, np.ndarray]) -> torch.Tensor:
        logits = model(torch.from_numpy(part["token_ids"].astype(np.int64))).logits
        targets = torch.from_numpy(part["targets"].astype(np.int64))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    for step in range(3):
        part = batches.batch(step)
        width = model.config.hidden_size
        kept[:] = [
            torch.from_numpy(mask(module, part["draws"], 8 * width, rate).reshape(2, 8, width)).float()
        ]
        loss = loss_of(part)
        assert ours.losses[step] == pytest.approx(loss.item(), rel=1e-5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    kept.clear()  # evaluations drop nothing
    with torch.no_grad():
        wanted = np.mean([loss_of(batches.batch(number)).item() for number in range(batches.epoch)])
    assert ours.evaluations[-1][1] == pytest.approx(wanted, rel=1e-5)


def test_a_network_makes_the_prefix_that_is_saved(llama: Path, tokens: Path, tmp_path: Path) -> None:
    words: dict[str, Any] = {
        "steps": 2,
        "batch": 2,
        "sequence": 8,
        "eval_data": tokens,
        "backend": "reference",
    }
    kind = "prefix:length=3,hidden_dim=5"
    done = lamella.train(llama, np.load(tokens), adapters=kind, lr=0.05, save=tmp_path / "a", **words)
    shapes = {name: array.shape for name, array in done.parameters.items()}
    width, size = shapes["table.0"][1], shapes["last.0"][0]
    assert shapes["first.0"] == (5, width)
    assert shapes["last.0"] == (size, 5)
    again = lamella.train(llama, np.load(tokens), adapters=str(tmp_path / "a"), lr=0.0, **words)
    assert again.evaluations[-1][1] == pytest.approx(done.evaluations[-1][1], rel=1e-6)


def test_codes_of_four_bits_are_the_nearest_numbers() -> None:
    values = np.random.default_rng(0).normal(size=(6, 50))
    codes, scales = encode_nf4(values)
    assert codes.size == 150
    assert scales.size == -(-300 // BLOCK)
    every = np.asarray(NF4)
    scale = np.repeat(scales, BLOCK)[:300]
    best = np.abs(values.ravel()[:, None] - every * scale[:, None]).min(axis=1)
    found = np.abs(values - decode_nf4(codes, scales, values.shape)).ravel()
    np.testing.assert_allclose(found, best, atol=1e-12)
    wide, rows = encode_int8(values, 0)
    assert np.abs(wide * rows - values).max() <= rows.max() / 2 + 1e-12


FEW: dict[str, Any] = {"steps": 4, "batch": 2, "sequence": 8, "lr": 0.05, "adapters": "lora:rank=2"}


@pytest.fixture(scope="module")
def plain_losses(llama: Path, tokens: Path) -> list[float]:
    """The losses of a few steps with whole weights."""
    return list(lamella.train(llama, np.load(tokens), backend="reference", **FEW).losses)


@pytest.mark.parametrize("base", ["nf4", "int8"])
def test_frozen_weights_of_few_bits_are_what_their_codes_say(
    base: Any, llama: Path, tokens: Path, plain_losses: list[float]
) -> None:
    """The loss is that of the model whose weights went through the codes; the graph holds codes, and no weights."""
    model = find_adapters(llama, Options(adapters=("lora:rank=2",), base=base))
    assert model is not None
    names = {item.name: item for item in model.trainable.model.graph.variables}
    assert "blocks.0.attention.qkv_weight" not in names
    codes = names["blocks.0.attention.qkv_weight.codes"]
    assert (codes.element.bits, codes.shape) == ((8, (16 * 32 // 2,)) if base == "nf4" else (8, (32, 16)))
    found = lamella.train(llama, np.load(tokens), base=base, **FEW)
    assert found.losses[0] != plain_losses[0]
    np.testing.assert_allclose(found.losses, plain_losses, rtol=0.02)


TEXT = """
model Net(d: int = 8, rank: int = 2):
  params:
    table: [16, d]
    first: [d, d]
    last: [16, d]

  forward:
    in: token_ids: [B, T, int64]
    out: logits: [B, T, 16]
    graph:
      (token_ids, table) -> embedding() -> x
      (x, first) -> matmul(transpose=NT) -> h @adapter(KIND)
      (h, last) -> matmul(transpose=NT) -> logits
"""
ANNOTATED = {
    "lora, rank=rank, alpha=4": {"lora_A": (2, 8), "lora_B": (8, 2)},
    "ia3": {"scale": (8,)},
    "adapter, bottleneck_dim=3, activation=silu": {
        "adapter_down": (3, 8),
        "adapter_down_bias": (3,),
        "adapter_up": (8, 3),
        "adapter_up_bias": (8,),
    },
}


@pytest.mark.parametrize("kind", ANNOTATED)
def test_adapters_of_a_text_are_trained_and_nothing_else(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "net.module"
    path.write_text(TEXT.replace("KIND", kind))
    rows = np.random.default_rng(0).integers(0, 16, 200)
    done = lamella.train(path, rows, steps=2, batch=2, sequence=4, save=tmp_path / "out", backend="reference")
    found = {name.rpartition(".")[2]: array.shape for name, array in done.parameters.items()}
    assert found == ANNOTATED[kind]
    assert (tmp_path / "out" / "adapter_config.json").is_file()


def test_dropout_of_a_text_leaves_something(tmp_path: Path) -> None:
    path, rows = tmp_path / "net.module", np.random.default_rng(0).integers(0, 16, 99)
    words: dict[str, Any] = {"steps": 3, "batch": 2, "sequence": 4, "lr": 0.1, "backend": "reference"}
    losses = []
    for share in ("0.5", "0.0"):
        path.write_text(TEXT.replace("KIND", f"lora, rank=2, dropout={share}"))
        losses.append(lamella.train(path, rows, **words).losses)
    assert losses[0][0] == losses[1][0]
    assert losses[0][-1] != losses[1][-1]
    path.write_text(TEXT.replace("KIND", "lora, dropout=1.0"))
    with pytest.raises(LamellaError, match="below 1"):
        lamella.train(path, rows, **words)


def test_words_of_adapters_are_read() -> None:
    assert parse_spec("lora:rank=4,alpha=8,targets=q,v") == AdapterSpec("lora", 4, 8.0, ("q", "v"))
    assert parse_spec("lora:targets=q+v,rank=2") == AdapterSpec("lora", 2, targets=("q", "v"))
    assert parse_spec("prefix") == AdapterSpec("prefix")
    assert parse_spec("prefix:hidden_dim=4").hidden_dim == 4
    assert parse_spec("lora:dropout=0.25").dropout == 0.25


@pytest.mark.parametrize(
    "words",
    [
        "what",
        "lora:rank=0",
        "lora:rank=x",
        "lora:dropout=1",
        "lora:dropout=-0.1",
        "lora:dropout=nan",
        "dora:dropout=0.1",
        "lora:length=3",
        "ia3:rank=2",
        "lora:q",
        "bottleneck:activation=tanh",
    ],
)
def test_words_that_say_nothing_are_refused(words: str) -> None:
    with pytest.raises(InputError):
        parse_spec(words)


REFUSED: dict[str, dict[str, Any]] = {
    "no weight 'nothing'": {"adapters": "lora:targets=nothing"},
    "at once": {"adapters": ("lora", "ia3")},
    "norms of whole weights": {"adapters": "dora", "base": "nf4"},
    "is larger than": {"adapters": "lora:rank=9999"},
    "is the name of a file": {"adapters": "lora", "save": "a.safetensors"},
    "has no adapters": {"merge": True, "save": "somewhere"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_adapters_that_make_no_sense_are_said(message: str, llama: Path, tokens: Path) -> None:
    with pytest.raises(LamellaError) as caught:
        lamella.train(llama, np.load(tokens), sequence=8, **REFUSED[message])
    assert message in str(caught.value)


HOSTILE: dict[str, tuple[dict[str, object], dict[str, np.ndarray], str]] = {
    "kind": ({"peft_type": "WHAT"}, {}, "no kind of adapter"),
    "rank": ({"peft_type": "LORA", "r": -1, "lora_alpha": 1}, {"x": np.zeros(1)}, "name of no array"),
    "name": ({"peft_type": "LORA", "r": 1, "lora_alpha": 1}, {"../x": np.zeros(1)}, "name of no array"),
    "empty": ({"peft_type": "LORA", "r": 1, "lora_alpha": 1}, {}, "holds no adapters"),
    "prefix": (
        {"peft_type": "PREFIX_TUNING", "num_layers": 3, "num_attention_heads": 5},
        {"prompt_embeddings": np.zeros((2, 7))},
        "rows of 7",
    ),
    "shape": (
        {"peft_type": "LORA", "r": 2, "lora_alpha": 1},
        {
            f"base_model.model.model.layers.0.self_attn.q_proj.lora_{side}.weight": np.zeros((3, 3))
            for side in "AB"
        },
        "an array of [3, 3]",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_folders_end_in_diagnostics(case: str, llama: Path, tmp_path: Path) -> None:
    config, arrays, message = HOSTILE[case]
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    save_file(arrays, tmp_path / "adapter_model.safetensors")
    with pytest.raises(LamellaError) as caught:
        find_adapters(llama, Options(adapters=(str(tmp_path),)))
    assert message in str(caught.value)


MIXTURE = """
from std.models.mixtral import Mixtral

model Net(
  vocab_size: int = 16,
  d_model: int = 8,
  n_layers: int = 1,
  num_heads: int = 2,
  num_kv_heads: int = 1,
  d_ff: int = 4,
  num_experts: int = 3,
  top_k: int = 2,
  max_seq: int = 16
) extends Mixtral:
  \"\"\"A small mixture.\"\"\"
"""


def test_experts_are_adapted_where_they_are_named(tmp_path: Path) -> None:
    """Their weights are counted as what stays; a name that is none of theirs is refused, and so are other kinds."""
    path, data = tmp_path / "mix.module", tmp_path / "tokens.npy"
    path.write_text(MIXTURE.replace("\\", ""), encoding="utf-8")
    np.save(data, np.arange(60) % 16)
    words = ["train", str(path), "--data", str(data), "--steps", "1", "--batch", "1", "--sequence", "6"]
    done = CliRunner().invoke(command, [*words, "--backend", "reference", "--adapter", "lora:rank=1"])
    assert done.exit_code == 0, done.output
    assert f"{3 * 3 * 4 * 8} numbers of experts stay as they are" in done.output
    for kind, message in (
        ("lora:rank=1,targets=w1", "products with weights are: down_proj, gate_up_proj"),
        ("lora:rank=1,dropout=0.5,targets=experts", "has a matrix for each expert, and dropout"),
        ("ia3:targets=experts", "experts, which are computed in groups, take lora alone"),
    ):
        done = CliRunner().invoke(command, [*words, "--adapter", kind])
        assert done.exit_code == 1
        assert message in done.output


def test_a_step_of_adapted_experts_follows_their_gradient(tmp_path: Path) -> None:
    """A step of SGD with rate r lowers the loss by r · ‖g‖² to first order; merged weights give that loss too."""
    path = tmp_path / "mix.module"
    path.write_text(MIXTURE.replace("\\", ""), encoding="utf-8")
    model = find_adapters(path, Options(adapters=("lora:rank=2,targets=experts",), dtype="f64"))
    assert model is not None
    assert {item.shape for item in model.adapted.weights} == {(3, 2, 8), (3, 8, 2), (3, 2, 4)}
    random = np.random.default_rng(0)
    data = dict(model.trainable.model.data or {})
    arrays = {item.variable: random.normal(size=item.shape) * 0.2 for item in model.adapted.weights}
    graph = replace(model.trainable, model=replace(model.trainable.model, data={**data, **arrays}))
    settings = StepSettings("sgd", weight_decay=0.0, dtype="f64", clip=1e9)
    rows = random.integers(0, 16, (2, 7))
    given, rate = {"token_ids": rows[:, :-1], "targets": rows[:, 1:]}, 1e-6
    trainer = Trainer(graph, settings, "reference")
    before = trainer.evaluate(given)
    found = trainer.step(given, rate)
    assert found.gradient_norm is not None
    drop = before - trainer.evaluate(given)
    assert drop == pytest.approx(rate * found.gradient_norm**2, rel=1e-3)
    whole = {**data, **merged(model, arrays)}
    zeros = {item.variable: np.zeros(item.shape) for item in model.adapted.weights}
    plain = replace(model.trainable, model=replace(model.trainable.model, data={**whole, **zeros}))
    assert Trainer(plain, settings, "reference").evaluate(given) == pytest.approx(before, rel=1e-12)


def test_a_weight_that_is_turned_before_its_product_is_one_to_adapt() -> None:
    """As graphs of ONNX have them; one that something else reads too is not."""
    builder = Builder(Library(), "net")
    x = builder.input("x", F32, (2, 4))
    first, second = builder.variable("first", F32, (3, 4)), builder.variable("second", F32, (5, 3))
    turned = builder.call("layout.transpose", second, perm=(1, 0))
    inner = builder.call("linalg.matmul", x, builder.call("layout.transpose", first, perm=(1, 0)))
    last = builder.call("linalg.matmul", inner, turned)
    graph = builder.finish(last, builder.call("math.exp", turned))
    (product,) = find_products(graph).values()
    assert (product.weight.name, product.rows, product.width, product.is_turned) == ("first", 3, 4, False)
