"""Transformers on the shipped NPUs: cycles over the network's bound, traffic over the compulsory one.

`python -m bench.npu_transformers` draws a BERT-tiny encoder and a small Llama as Hugging Face folders, quantises them
with islands of f16 and lowers them: a prefill, and one step of decoding with a cache.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

import lamella
from bench.npu_plans import DEVICES, HEAD, measure_model
from lamella.graph.model import Model
from lamella.pipeline.given import options_of
from lamella.pipeline.quantize.api import quantize_graph

CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "BERT-tiny encoder, 128 tokens": ("bert", {"shape": {"B": 1, "T": 128}}),
    "tiny Llama, prefill of 64": ("llama", {"shape": {"B": 1, "T": 64}}),
    "tiny Llama, one step, cache of 64": ("llama", {"shape": {"T": 1}, "cache": 64}),
}


def write_folders(folder: Path) -> None:
    """Write both models with drawn weights; biases are none of them zero."""
    torch.manual_seed(0)
    small = BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512)
    encoder = BertModel(small).eval()
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
    LlamaForCausalLM(decoder).eval().save_pretrained(folder / "llama")


def main() -> None:
    """Print one line for each model and device."""
    words = {"islands": "f16", "rank": False, "seed": 0}
    options = replace(options_of(words, by_command=True), random=True)
    print(HEAD)
    with tempfile.TemporaryDirectory() as place:
        write_folders(Path(place))
        for title, (name, given) in CASES.items():
            loaded = lamella.load(Path(place) / name, **given)
            assert isinstance(loaded, Model)
            model = quantize_graph(loaded, options).model
            for device in DEVICES:
                print(measure_model(model, device, title), flush=True)


if __name__ == "__main__":
    main()
