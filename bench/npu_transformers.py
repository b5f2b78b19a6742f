"""Transformers on the shipped NPUs: cycles over the network's bound, traffic over the compulsory one.

`python -m bench.npu_transformers` draws a BERT-tiny encoder and a small Llama as Hugging Face folders, quantises them
with islands of f16 and lowers them: a prefill, and one step of decoding with a cache.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

import lamella
from lamella.graph.model import Model
from lamella.pipeline.given import options_of
from lamella.pipeline.nem.lowering import from_graph, simulated
from lamella.pipeline.options import Options
from lamella.pipeline.quantize.api import quantize_graph

DEVICES = ("npm_pro", "npm_mid", "npm_lite")
CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "BERT-tiny encoder, 128 tokens": ("bert", {"shape": {"B": 1, "T": 128}}),
    "tiny Llama, prefill of 64": ("llama", {"shape": {"B": 1, "T": 64}}),
    "tiny Llama, one step, cache of 64": ("llama", {"shape": {"T": 1}, "cache": 64}),
}


def write_folders(folder: Path) -> None:
    """Write both models with drawn weights; biases are none of them zero."""
    torch.manual_seed(0)
    small = BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512)
    encoder = BertModel(small).eval()  # type: ignore[no-untyped-call]
    for name, values in encoder.named_parameters():
        if name.endswith("bias"):
            values.data.normal_(0, 0.05)
    encoder.save_pretrained(folder / "bert")
    decoder = LlamaConfig(
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=688,
        vocab_size=1024,
        max_position_embeddings=256,
    )
    LlamaForCausalLM(decoder).eval().save_pretrained(folder / "llama")  # type: ignore[no-untyped-call]


def main() -> None:
    """Print one line for each model and device."""
    words = {"islands": "f16", "rank": False, "seed": 0}
    options = replace(options_of(words, by_command=True), random=True)
    print("model, device: cycles, ÷ bound, DDR ÷ compulsory, lines, compile seconds")
    with tempfile.TemporaryDirectory() as place:
        write_folders(Path(place))
        for title, (name, given) in CASES.items():
            loaded = lamella.load(Path(place) / name, **given)
            assert isinstance(loaded, Model)
            model = quantize_graph(loaded, options).model
            for device in DEVICES:
                print(f"{title}, {device}: {measure(model, device)}")


def measure(model: Model, device: str) -> str:
    """Lower a model for a device and simulate its plan."""
    start = time.process_time()
    lowered = from_graph(model, Path(), Options(device=device))
    report = simulated(lowered)
    spent = time.process_time() - start
    assert report is not None
    assert report.network is not None
    traffic = report.moved("DDR") / report.network.compulsory
    lines = lowered.final.program.source.text.count("\n")
    ratio = report.cycles / report.network.largest.cycles
    return f"{report.cycles:,}, {ratio:.2f}, {traffic:.3f}, {lines:,}, {spent:.1f}"


if __name__ == "__main__":
    main()
