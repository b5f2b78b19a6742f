"""Mutated checkpoints of Hugging Face and GGUF files: a model or clean findings, in bounded time and memory."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random

import gguf
import numpy as np
import pytest

import lamella
from lamella.base.diagnostic import LamellaError, errors
from lamella.pipeline.module.export import export
from lamella.pipeline.module.folders import architectures
from lamella.pipeline.options import Options
from tests.support.watch import watched

NEW = str(time.time_ns()) if "LAMELLA_FUZZ" in os.environ else "7"
SEED = os.environ.get("LAMELLA_SEED", NEW)
CASE = os.environ.get("LAMELLA_CASE", "")
SECONDS, MEBIBYTES = 4, 400
MOST_TOLD = 5
SMALLER = 5
"""One of so many mutations is made in `make test`."""
TYPES = ("llama", "gemma3_text", "bert", "vit", "t5", "mixtral", "deepseek_v3", "mamba")
KEYS = (
    *(
        "attention_bias",
        "mlp_bias",
        "rope_scaling",
        "rope_parameters",
        "sliding_window",
        "tie_word_embeddings",
    ),
    *(
        "partial_rotary_factor",
        "layer_types",
        "quantization_config",
        "dtype",
        "num_labels",
        "id2label",
        "head_dim",
    ),
)
VALUES: tuple[object, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3, 7, 1 << 31, 1 << 62, -0.5, 1e300, float("nan"), float("inf")),
    *(
        "",
        "x",
        "gelu",
        "relu",
        "silu",
        "bfloat16",
        "float8",
        [],
        [1],
        [0, -1],
        ["x", "y"],
        ["full_attention"],
    ),
    *({}, {"a": 1}, {"rope_type": "yarn"}, {"rope_type": "linear", "factor": 0}),
    *({"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}, {"quant_method": "gptq", "bits": 4}),
)
BROKEN = ("{", "}", ",", "\0", "[[", "1e")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Small checkpoints of several architectures, from the presets of their own text."""
    made = []
    for name in TYPES:
        path, model = architectures()[name]
        made.append(tmp_path_factory.mktemp(name))
        export(path, made[-1], Options(model=model, preset="tiny", seed=1))
    return made


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A GGUF file whose header is that of a Llama."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(32)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(32)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list(["<s>", "a", "b"])
    shapes = {
        **{"token_embd": (3, 32), "output_norm": (32,), "blk.0.attn_norm": (32,), "blk.0.ffn_norm": (32,)},
        **{"blk.0.attn_q": (32, 32), "blk.0.attn_k": (16, 32), "blk.0.attn_v": (16, 32)},
        **{"blk.0.attn_output": (32, 32), "blk.0.ffn_gate": (32, 32), "blk.0.ffn_up": (32, 32)},
        "blk.0.ffn_down": (32, 32),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def _walk(path: Path) -> str:
    """How far a checkpoint gets; only our own errors may say that it goes no further."""
    found = errors(lamella.check(path))
    try:
        repr(lamella.load(path, via="module"))
    except LamellaError:
        return "wrong" if found else "unread"
    return "read"


def _try(mutations: int, make: Callable[[Random], Path]) -> set[str]:
    """Walk through so many mutations, and fail with the first few that end in another way."""
    seen, failures = set[str](), dict[str, str]()
    count = mutations if "LAMELLA_FUZZ" in os.environ else mutations // SMALLER
    for number in [int(CASE)] if CASE else range(count):
        path = make(Random(f"{SEED}:{number}"))
        try:
            with watched(SECONDS, MEBIBYTES):
                seen.add(_walk(path))
        except Exception as problem:  # noqa: BLE001  any kind of exception is what is looked for
            told = "".join(traceback.format_exception(problem)[-6:])
            failures.setdefault(told[-300:], f"LAMELLA_SEED={SEED} LAMELLA_CASE={number}\n{told}")
            if len(failures) >= MOST_TOLD:
                break
    assert not failures, "\n\n".join(failures.values())
    return seen


def _other_config(text: str, random: Random) -> str:
    """A config with other values, without some, or that is no JSON."""
    config = json.loads(text)
    for _ in range(random.randint(1, 2)):
        key = random.choice(list(config) if random.random() < 0.8 else KEYS)
        if random.random() < 0.2:
            config.pop(key, None)
        else:
            config[key] = random.choice(VALUES)
    made = json.dumps(config)
    if random.random() < 0.1:
        place = random.randrange(len(made))
        made = made[:place] + random.choice(BROKEN) + made[place + random.randint(0, 3) :]
    return made


def test_mutated_folders(folders: list[Path], mutations: int, tmp_path: Path) -> None:
    """Values of a config that cannot be, and bytes of a header that lie."""

    def make(random: Random) -> Path:
        source = random.choice(folders)
        for name in ("config.json", "model.safetensors"):
            (tmp_path / name).write_bytes((source / name).read_bytes())
        config = tmp_path / "config.json"
        config.write_text(_other_config(config.read_text(encoding="utf-8"), random), encoding="utf-8")
        if random.random() < 0.25:
            weights = tmp_path / "model.safetensors"
            data = bytearray(weights.read_bytes())
            place = random.randrange(1000)
            data[place : place + random.randint(0, 3)] = random.choice((b"9", b"]", b"-", b"\xff", b"0"))
            weights.write_bytes(data)
        return tmp_path

    assert _try(mutations, make) >= ({"wrong", "read"} if not CASE else set())


def test_mutated_gguf_files(packed: bytes, mutations: int, tmp_path: Path) -> None:
    """Counts, lengths, types and offsets of a header that lie."""

    def make(random: Random) -> Path:
        data = bytearray(packed)
        for _ in range(random.randint(1, 3)):
            place = random.randrange(1500)
            match random.randrange(4):
                case 0:
                    data[place] ^= 1 << random.randrange(8)
                case 1:
                    del data[place : place + random.randint(1, 8)]
                case 2:
                    data[place:place] = random.randbytes(random.randint(1, 8))
                case _:
                    huge = (0, 1 << 40, 1 << 62, (1 << 64) - 1)
                    data[place : place + 8] = random.choice(huge).to_bytes(8, "little")
        (tmp_path / "tiny.gguf").write_bytes(data)
        return tmp_path / "tiny.gguf"

    assert _try(mutations, make) >= ({"wrong", "read"} if not CASE else set())
