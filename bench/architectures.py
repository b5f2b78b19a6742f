"""Every architecture of Hugging Face that was asked for: which road reads it, and how near its numbers are.

usage: python -m bench.architectures [--only PATTERN] [--known]
Each row is a tiny checkpoint that transformers makes: by which road it is read, the largest difference of its first
output over the largest number, on the reference and on the cpu; how many of 32 greedy tokens are those of
transformers; whether the folder that is written again has the same bytes.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.pipeline.decoding import Sampling
from lamella.pipeline.module.export import export
from lamella.pipeline.module.generate import SequenceGenerator, open_generator
from lamella.pipeline.options import Options
from tests.support.models.checkpoints import MODELS, build, inputs_of, randomise, results_of, tokens

COUNT = 32
BACKENDS = ("reference", "cpu")
TEXT = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
TEXT |= {"num_attention_heads": 4, "max_position_embeddings": 96, "pad_token_id": 0}
SHARED = {**TEXT, "num_key_value_heads": 2}
OTHERS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        **{f"{name}ForSequenceClassification": SHARED for name in ("Llama", "Mistral", "Qwen2")},
        "OlmoeForCausalLM": {**SHARED, "num_experts": 4},
        "xLSTMForCausalLM": {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_heads": 4},
    }
)
"""Architectures beside those of the tests, by the class of transformers, with the values of a small config."""


def make(name: str) -> Any:
    """A model of transformers: a row of the tests, or one of the others."""
    if name in MODELS:
        return build(name, seed=3)
    model_class = getattr(transformers, name)
    torch.manual_seed(3)
    model = model_class(model_class.config_class(**OTHERS[name])).eval()
    randomise(model)
    return model


def first(found: Any) -> np.ndarray[Any, Any]:
    """The first result of either side."""
    value = next(iter(found.values()))
    return value.numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def measure(name: str, folder: Path) -> Iterator[str]:
    """The cells of a row."""
    model = make(name)
    model.save_pretrained(folder / "in")
    loaded: Any = lamella.load(folder / "in")
    road = "torch" if any(item.code == "W118" for item in loaded.findings) else "module"
    yield road
    inputs = inputs_of(loaded, seed=7)
    for item in inputs.values():
        # Small and never 0: vocabularies are small, and 0 may be padding.
        item[...] = item % 27 + 2 if item.dtype.kind == "i" else item
    wanted = results_of(model, inputs)
    for backend in BACKENDS:
        found = first(lamella.compile(loaded, backend=backend)(**inputs))
        yield f"{np.abs(found - wanted).max() / np.abs(wanted).max():.1e}"
    generates = model.can_generate() and not {"token_ids", "input_ids"}.isdisjoint(inputs)
    yield _generated(model, folder / "in") if generates else "–"
    yield _written(folder) if road == "module" else "–"


def _generated(model: Any, folder: Path) -> str:
    """How many greedy tokens are those that transformers rates highest behind the same tokens."""
    start = [int(token) for token in tokens(1, 11)[0] % 27 + 2]
    generator = open_generator(folder, len(start) + COUNT, Options(max_tokens=COUNT))
    chosen = list(generator.run(start, Sampling(COUNT)))
    with torch.no_grad():
        if isinstance(generator, SequenceGenerator):
            written = torch.tensor([[*generator.start, *chosen[:-1]]])
            rated = model(torch.tensor([start]), decoder_input_ids=written).logits[
                0, len(generator.start) - 1 :
            ]
            return f"{int((rated.numpy().argmax(-1) == np.asarray(chosen)).sum())}/{len(chosen)}"
        found = model(torch.tensor([[*start, *chosen[:-1]]]))
    if "logits" not in found:
        return "–"
    rated = found.logits[0, len(start) - 1 :].numpy()
    return f"{int((rated.argmax(-1) == np.asarray(chosen)).sum())}/{len(chosen)}"


def _written(folder: Path) -> str:
    export(folder / "in", folder / "out", Options())
    before, after = (load_file(folder / part / "model.safetensors") for part in ("in", "out"))
    same = before.keys() == after.keys() and all(
        before[key].tobytes() == after[key].tobytes() for key in before
    )
    return "same" if same else "DIFFER"


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="bench.architectures", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", default="", help="architectures whose name has this in it, a regular expression"
    )
    parser.add_argument("--known", action="store_true", help="those of the tests alone")
    wanted = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    print(
        "| architecture | road | reference | cpu | greedy tokens | written again |\n|---|---|--:|--:|--:|---|"
    )
    for name in (*MODELS, *(() if wanted.known else OTHERS)):
        if re.search(wanted.only, name):
            with tempfile.TemporaryDirectory() as folder:
                cells: list[str] = []
                try:
                    cells.extend(measure(name, Path(folder)))
                except (
                    LamellaError,
                    RuntimeError,
                    ValueError,
                    TypeError,
                    AttributeError,
                    IndexError,
                ) as problem:
                    cells.append(f"{type(problem).__name__}: {str(problem).splitlines()[0][:160]}")
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
