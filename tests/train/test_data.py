"""Data for training: windows, examples, texts, records, and files that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from transformers import AutoTokenizer

from lamella.base.diagnostic import LamellaError
from lamella.base.dtype import F32, I64
from lamella.base.errors import InputError
from lamella.graph.nodes import Tensor
from lamella.train.data import windows
from lamella.train.data.batches import Batches, Dataset
from lamella.train.data.examples import Examples
from lamella.train.data.files import DataRequest, open_data
from lamella.train.data.windows import TokenStream, TokenWindows
from tests.train.conftest import write_tokenizer

PORT = Tensor("token_ids", I64, (2, 8))


def request(folder: Path | None = None, length: int = 8) -> DataRequest:
    return DataRequest([PORT], length, 300, folder)


@given(st.integers(2, 200), st.integers(1, 20))
def test_every_token_but_the_first_is_a_target_once(count: int, length: int) -> None:
    """Windows overlap by the token that is a target in one and an input in the next."""
    data = TokenWindows(TokenStream(np.arange(count)), length, "x")
    batch = data.take(np.arange(data.size))
    assert data.size == (count - 1) // length
    np.testing.assert_array_equal(batch["x"].ravel(), np.arange(data.size * length))
    np.testing.assert_array_equal(batch["targets"].ravel(), np.arange(1, data.size * length + 1))


def test_batches_depend_on_their_number_alone() -> None:
    data = TokenWindows(TokenStream(np.arange(100)), 4, "x")
    plain, mixed = Batches(data, 5), Batches(data, 5, True, 3)
    np.testing.assert_array_equal(plain.batch(0)["x"][:, 0], [0, 4, 8, 12, 16])
    np.testing.assert_array_equal(plain.batch(plain.epoch)["x"], plain.batch(0)["x"])
    again = Batches(data, 5, True, 3)
    for number in (7, 2, 11):
        np.testing.assert_array_equal(mixed.batch(number)["x"], again.batch(number)["x"])
    firsts = np.concatenate([mixed.batch(number)["x"][:, 0] for number in range(mixed.epoch)])
    assert len(set(firsts.tolist())) == len(firsts)
    assert (mixed.batch(0)["x"] != mixed.batch(mixed.epoch)["x"]).any()


def taken(data: Dataset) -> np.ndarray:
    """All targets of a data set."""
    found: np.ndarray = data.take(np.arange(data.size))["targets"]
    return found


def test_tokens_lie_in_several_kinds_of_files(tmp_path: Path) -> None:
    rows = np.arange(33) % 7
    np.save(tmp_path / "a.npy", rows.astype(np.uint16))
    np.savez(tmp_path / "a.npz", tokens=rows)
    save_file({"input_ids": rows}, tmp_path / "a.safetensors")
    (tmp_path / "a.bin").write_bytes(bytes(rows.tolist()))
    (tmp_path / "a.jsonl").write_text(
        "\n".join(json.dumps({"tokens": part.tolist()}) for part in np.split(rows, [10, 11]))
    )
    words = [str(tmp_path / f"a{ending}") for ending in (".npy", ".npz", ".safetensors", ".jsonl")]
    found = [taken(open_data(item, request())) for item in (*words, f"bytes:{tmp_path / 'a.bin'}")]
    for item in found:
        np.testing.assert_array_equal(item.ravel(), rows[1:])
    np.testing.assert_array_equal(taken(open_data(f"{words[0]}[1:3]", request())), found[0][1:3])


def test_examples_have_the_types_of_inputs(tmp_path: Path) -> None:
    ports = [Tensor("image", F32, (4, 1, 2)), Tensor("kind", I64, (4,))]
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "image": rng.integers(0, 9, (6, 1, 2)).astype(np.uint8),
        "kind": np.arange(6, dtype=np.int32),
        "label": np.arange(6, dtype=np.uint8),
        "more": np.zeros(3),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    data = open_data(str(tmp_path / "a.npz"), DataRequest(ports))
    assert isinstance(data, Examples)
    batch = data.take(np.asarray([5, 0]))
    assert [batch[name].dtype for name in ("image", "kind", "targets")] == [np.float32, np.int64, np.int64]
    np.testing.assert_array_equal(batch["image"], arrays["image"][[5, 0]])
    np.testing.assert_array_equal(batch["targets"], [5, 0])


def test_texts_are_tokens_of_the_tokenizer(llama: Path, tmp_path: Path) -> None:
    judge = AutoTokenizer.from_pretrained(llama)
    (tmp_path / "b.txt").write_text("second")
    (tmp_path / "a.md").write_text("first Ünd more")
    data = open_data(str(tmp_path), request(llama, 4))
    assert isinstance(data, TokenWindows)
    wanted = judge("first Ünd more</s>second</s>")["input_ids"]
    assert data.stream.tokens.tolist() == wanted


def records(tmp_path: Path, *items: object) -> str:
    path = tmp_path / "records.jsonl"
    path.write_text("".join(f"{json.dumps(item)}\n" for item in items))
    return str(path)


def learnt(data: Dataset, judge: object) -> str:
    assert isinstance(data, TokenWindows)
    assert data.stream.learnt is not None
    text: str = judge.decode(data.stream.tokens[data.stream.learnt])  # type: ignore[attr-defined]
    return text


def test_completions_are_learnt_and_prompts_are_not(llama: Path, tmp_path: Path) -> None:
    judge = AutoTokenizer.from_pretrained(llama)
    words = records(
        tmp_path, {"prompt": "2+2=", "completion": "4"}, {"prompt": "ü", "completion": "é"}, {"text": "x"}
    )
    data = open_data(words, request(llama, 2))
    assert learnt(data, judge) == "4</s>é</s>x</s>"
    batch = data.take(np.arange(data.size))
    assert (batch["targets"] == -100).any()
    kept = batch["targets"][batch["targets"] != -100]
    assert str(judge.decode(kept)).startswith("4</s>é</s>")


def test_what_an_assistant_says_is_learnt(llama: Path, tmp_path: Path) -> None:
    judge = AutoTokenizer.from_pretrained(llama)
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "See you"},
    ]
    data = open_data(records(tmp_path, {"messages": messages}), request(llama, 4))
    assert isinstance(data, TokenWindows)
    wanted = judge.apply_chat_template(messages, tokenize=True, return_dict=False)
    assert data.stream.tokens.tolist() == wanted
    assert learnt(data, judge) == "Hello</s>See you</s>"


def test_tables_hold_records_too(llama: Path, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"text": ["first text", "second"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    data = open_data(str(tmp_path / "a.parquet"), request(llama, 4))
    plain = open_data(records(tmp_path, {"text": "first text"}, {"text": "second"}), request(llama, 4))
    np.testing.assert_array_equal(taken(data), taken(plain))


WRONG = {
    "a.npy": (b"nothing", "not a readable .npy"),
    "b.npz": (b"PK\x03\x04nothing", "not a readable .npz"),
    "c.safetensors": (b"\xff" * 16, "header"),
    "d.jsonl": (b'{"text": "x"}\n{"text": }\n', "line 2"),
    "e.jsonl": (b'{"nothing": 1}\n', "record 1"),
    "f.jsonl": (b"[1, 2]\n", "no JSON object"),
    "g.jsonl": (b"", "no records"),
    "h.jsonl": (b'{"tokens": [1, -2]}\n', "no list of tokens"),
    "i.jsonl": (b'{"messages": [1]}\n', "no conversation"),
    "j.txt": (b"\xff\xfe", "UTF-8"),
    "k.what": (b"x", "no ending of data"),
    "l.jsonl": (b'{"prompt": 1, "completion": "x"}\n', "no text"),
    "m.jsonl": (b"[" * 10000, "nests"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_end_in_diagnostics(name: str, llama: Path, tmp_path: Path) -> None:
    data, words = WRONG[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(LamellaError) as caught:
        open_data(str(tmp_path / name), request(llama))
    assert words in str(caught.value)


def test_tokens_that_the_model_does_not_know_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When data are opened; those behind what is looked at then when they are taken."""
    message = r"token 3 of .* is 300; the model knows tokens 0 to 299"
    np.save(tmp_path / "a.npy", np.asarray([1, 2, 3, 300, 5, 6, 7, 8, 9]))
    with pytest.raises(InputError, match=message):
        open_data(str(tmp_path / "a.npy"), request())
    monkeypatch.setattr(windows, "MOST_SEEN", 3)
    data = open_data(str(tmp_path / "a.npy"), request())
    with pytest.raises(InputError, match=message):
        data.take(np.arange(1))


def test_arrays_that_are_no_rows_of_tokens_are_refused(tmp_path: Path) -> None:
    for array in (np.zeros((2, 2), np.int64), np.zeros(9)):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(InputError, match="no row of tokens"):
            open_data(str(tmp_path / "a.npy"), request())
    np.save(tmp_path / "a.npy", np.zeros(4, np.int64))
    with pytest.raises(InputError, match="no window of 8"):
        open_data(str(tmp_path / "a.npy"), request())


TEMPLATES = {
    "{% for a in range(10 ** 9) %}{% endfor %}": "not for numbers",
    "{% for a in range(99999999) %}{% endfor %}": "repeats more",
    "{{ 'x' * 99999999 }}": "is not for numbers",
    "{{ ('x' * 9999) * 9999 }}": "writes more",
    "{% for a in messages %}" * 6 + "{% endfor %}" * 6: "lie in each other",
    "{{ messages.__class__.__mro__ }}": "unsafe",
    "{{ raise_exception('no') }}": "no",
    "{% if %}": "fails",
    "{{ messages[7].content.x }}": "fails",
}


@pytest.mark.parametrize("text", TEMPLATES)
def test_hostile_templates_end_in_diagnostics(text: str, tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(text)
    words = records(tmp_path, {"messages": [{"role": "user", "content": "x"}]})
    with pytest.raises(InputError) as caught:
        open_data(words, request(tmp_path))
    assert TEMPLATES[text] in str(caught.value)
