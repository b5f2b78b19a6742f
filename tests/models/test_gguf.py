"""GGUF files, against the package `gguf` and transformers."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Malformed
from lamella.base.gguf import TYPES, Item, read_gguf
from lamella.bridge.hf_to_module.gguf.blocks import KINDS, decode_blocks
from lamella.bridge.hf_to_module.gguf.tokenizer import tokenizer_of
from lamella.pipeline.decoding import Sampling
from lamella.pipeline.module.execution import load
from lamella.pipeline.module.export import export
from lamella.pipeline.module.generate import Generator, open_tokenizer
from lamella.pipeline.options import Options
from tests.support.models.checkpoints import logits
from tests.support.models.gguf_files import MODELS, TEXTS, save_gguf, train_tokenizer

TOKENS = np.arange(2, 14).reshape(1, 12)
NUMBERS = {item.name: number for number, item in TYPES.items()}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer()


@pytest.mark.parametrize("name", KINDS)
def test_blocks_are_the_numbers_of_the_package(name: str) -> None:
    type_ = TYPES[NUMBERS[name]]
    random = np.random.default_rng(11)
    image = random.integers(0, 256, (5, 3 * type_.bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        wanted = gguf.quants.dequantize(image, Kind(NUMBERS[name]))
        found = decode_blocks(KINDS[name], image.reshape(-1, type_.bytes), (5, 3 * type_.elements)).decode()
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    whole = np.isfinite(wanted)
    largest = np.abs(np.where(whole, wanted, 0)).max(axis=-1, keepdims=True)
    assert (np.abs(found - wanted)[whole] <= (1e-6 * np.broadcast_to(largest, wanted.shape))[whole]).all()


@pytest.mark.parametrize("name", MODELS)
def test_a_file_computes_what_transformers_computes(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = save_gguf(name, tmp_path / "model.gguf", tokenizer)
    loaded = load(tmp_path / "model.gguf", Options())
    assert any(item.name.endswith(".codes") for item in loaded.graph.variables)
    wanted = logits(model, TOKENS)
    for backend in ("reference", "cpu") if "llama" in name else ("reference",):
        found = lamella.compile(loaded, backend=backend)(TOKENS)["logits"]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_a_file_continues_text(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    model = save_gguf("llama", path, tokenizer)
    own = open_tokenizer(path)
    for text in (*TEXTS, "a <s> b", "naïve — 東京 \n\t 7"):
        assert own.encode(text).ids == tokenizer.encode(text).ids
        assert own.decode(own.encode(text).ids) == tokenizer.decode(tokenizer.encode(text).ids)
    start = own.encode("hello world").ids
    chosen = list(Generator(path, len(start) + 12, Options(threads=1), "cpu").run(start, Sampling(12)))
    rated = logits(model, np.asarray([[*start, *chosen[:-1]]]))[0, len(start) - 1 :]
    np.testing.assert_array_equal(rated.argmax(-1), chosen)


def test_a_file_becomes_a_folder_of_its_numbers(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    model = save_gguf("qwen2", path, tokenizer)
    export(path, tmp_path / "out", Options())
    assert (
        Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")).encode("the dog").ids
        == tokenizer.encode("the dog").ids
    )
    found = lamella.compile(tmp_path / "out", backend="reference")(TOKENS)["logits"]
    np.testing.assert_allclose(found, logits(model, TOKENS), rtol=0, atol=2e-5)


def test_pieces_are_merged_in_the_order_of_their_scores() -> None:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁helowrd"]
    merged = ["he", "ll", "▁w", "hell", "▁wo", "o", "rl", "hello", "▁hello", "rld", "▁world"]
    words = [*pieces, *(item for item in merged if item not in pieces)]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(words) - 259)]
    items: dict[str, Item] = {
        **{
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": words,
            "tokenizer.ggml.token_type": kinds,
        },
        **{"tokenizer.ggml.scores": [-float(number) for number in range(len(words))]},
        **{"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2},
    }
    found = Tokenizer.from_str(json.dumps(tokenizer_of(items)))
    encoded = found.encode("hello world!")
    assert encoded.tokens == ["<s>", "▁hello", "▁world", "<0x21>"]
    assert found.decode(encoded.ids) == "hello world!"


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ({"tokenizer.ggml.model": "t5"}, "those that are read are gpt2 and llama"),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.pre": "viking"},
            "viking",
        ),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a"]}, "no tokenizer.ggml.scores"),
    ],
)
def test_a_tokenizer_that_is_not_known_is_named(items: dict[str, str | list[str]], words: str) -> None:
    with pytest.raises(Malformed, match=words):
        tokenizer_of({"tokenizer.ggml.tokens": [], **items})


def test_an_architecture_that_is_not_known_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "rwkv6")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(LamellaError, match="its architecture is rwkv6; those that are read are llama"):
        lamella.load(tmp_path / "other.gguf")


@pytest.fixture(scope="module")
def image(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("image") / "model.gguf"
    save_gguf("qwen2", path, tokenizer)
    return path.read_bytes()


@given(data=st.data())
def test_any_bytes_are_a_file_or_malformed(data: st.DataObject, image: bytes) -> None:
    changed = bytearray(image[: data.draw(st.integers(0, len(image)))])
    for _ in range(data.draw(st.integers(0, 4))):
        if changed:
            changed[data.draw(st.integers(0, min(len(changed), 12000) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_gguf(memoryview(bytes(changed)))
    except Malformed:
        return
    assert all(item.offset + item.length <= len(changed) for item in found.tensors.values())
