"""Hugging Face folders: what is read agrees with safetensors, and what is broken or hostile is refused."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from safetensors.torch import load_file
from safetensors.torch import save_file as save_torch

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.bridge.hf_to_module import Folder, is_model_folder, open_folder
from tests.support.bridge.hf.folders import CASES, bits, save

INDEX = "model.safetensors.index.json"


def write(folder: Path, config: object = None, **arrays: Array) -> Path:
    """A folder with a config and a checkpoint."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({} if config is None else config))
    save_file(arrays or {"w": np.ones(2, np.float32)}, folder / "model.safetensors")
    return folder


def shard(folder: Path, places: dict[str, object], **files: dict[str, Array]) -> Path:
    """A folder with an index and the files `a.safetensors`, … that it speaks of."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    for name, arrays in files.items():
        save_file(arrays, folder / f"{name}.safetensors")
    return folder


def told(folder: Folder) -> str:
    """All findings in one text."""
    return "\n".join(f"{item.code} {item.message} {item.hint}" for item in folder.findings)


@pytest.mark.parametrize("options", [{}, {"max_shard_size": "8KB"}], ids=["one file", "shards"])
def test_tensors_are_those_that_transformers_wrote(tmp_path: Path, options: dict[str, str]) -> None:
    model = save(CASES["bfloat16"], tmp_path, **options)
    folder = open_folder(tmp_path)
    assert not folder.findings
    assert folder.config["model_type"] == "llama"
    assert len(folder.checkpoint.files) == len(list(tmp_path.glob("*.safetensors"))) > (5 if options else 0)
    state = model.state_dict()
    assert state.keys() == folder.checkpoint.tensors.keys()
    for name, values in state.items():
        entry, array = folder.checkpoint.tensors[name], folder.checkpoint.read(name)
        assert entry.shape == array.shape == tuple(values.shape)
        assert array.dtype == ml_dtypes.bfloat16
        assert not array.flags.writeable
        assert bits(array) == bits(values) == bytes(folder.checkpoint.bytes_of(name))
        written = (tmp_path / entry.file).read_bytes()[entry.offset : entry.offset + entry.length]
        assert written == bits(values)


DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]


def test_every_type_is_read(tmp_path: Path) -> None:
    write(tmp_path)
    tensors = {str(kind): torch.tensor([[0, 1, 1], [1, 0, 1]]).to(kind) for kind in DTYPES}
    save_torch(tensors, tmp_path / "model.safetensors")
    checkpoint = open_folder(tmp_path).checkpoint
    for name, values in tensors.items():
        assert np.array_equal(checkpoint.read(name).astype(np.float64), values.double().numpy())


def test_a_large_checkpoint_is_opened_without_reading_it(tmp_path: Path) -> None:
    """Ten gigabytes that the disk does not hold, more than a file of data may have by default."""
    header = {
        f"t{index}": {
            "dtype": "BF16",
            "shape": [500_000],
            "data_offsets": [index * 10**6, (index + 1) * 10**6],
        }
        for index in range(10_000)
    }
    text = json.dumps(header).encode()
    (tmp_path / "config.json").write_text("{}")
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 10**10)
    folder = open_folder(tmp_path)
    assert not folder.findings
    assert len(folder.checkpoint.tensors) == 10_000
    assert not folder.checkpoint.read("t9999").any()


def test_neither_torch_nor_transformers_is_imported(tmp_path: Path) -> None:
    write(tmp_path, {"auto_map": {"AutoModel": "evil.Model"}, "architectures": ["os.system"]})
    (tmp_path / "evil.py").write_text("raise SystemExit(9)")
    program = (
        "import sys; from pathlib import Path; from lamella.bridge.hf_to_module import open_folder\n"
        "import lamella.bridge.module_to_hf\n"
        "folder = open_folder(Path(sys.argv[1])); print(*[f.code for f in folder.findings])\n"
        "print([n for n in ('torch', 'transformers', 'safetensors', 'evil') if n in sys.modules])"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "W111\n[]\n"


# --- what is refused ------------------------------------------------------------------------------------------


def test_a_folder_without_weights_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert "neither this file nor" in told(open_folder(tmp_path))
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    found = told(open_folder(tmp_path))
    assert "E116 pytorch_model.bin: weights are not read from pickles" in found
    assert "save_pretrained" in found


def test_what_is_no_folder_is_said(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert "it is no folder" in told(open_folder(file))
    assert "it is no folder" in told(open_folder(tmp_path / "nowhere"))
    assert not is_model_folder(tmp_path)
    assert is_model_folder(write(tmp_path))


CONFIGS = {
    "twice": ('{"a": {"b": 1, "b": 2}}', "has the key 'b' twice"),
    "no JSON": ("{", "this is no JSON"),
    "a list": ("[]", "it is no JSON object"),
    "deep": ('{"a": ' + "[" * 300 + "]" * 300 + "}", "nests more than 200 levels"),
    "very deep": ('{"a": ' + "[" * 100_000, "E116"),
    "digits": ('{"a": ' + "9" * 10_000 + "}", "this is no JSON"),
    "not UTF-8": ("\xff{}", "is not UTF-8"),
}


@pytest.mark.parametrize(("text", "why"), CONFIGS.values(), ids=CONFIGS)
def test_broken_configs_are_refused(tmp_path: Path, text: str, why: str) -> None:
    write(tmp_path)
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    folder = open_folder(tmp_path)
    assert why in told(folder)
    assert folder.config == {}
    assert "w" in folder.checkpoint.tensors


def test_a_large_config_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"a": "x" * 2000})
    assert "max_file_bytes" in told(open_folder(tmp_path, Limits(max_file_bytes=1000)))


OUTSIDE = ["../a.safetensors", "/etc/passwd", "sub/a.safetensors", "a.bin", ".hidden.safetensors", "", "a\0"]


@pytest.mark.parametrize("file", OUTSIDE)
def test_shards_lie_in_the_folder(tmp_path: Path, file: str) -> None:
    array = {"w": np.ones(2, np.float32)}
    save_file(array, tmp_path / "a.safetensors")
    folder = shard(tmp_path / "model", {"w": file})
    (folder / "sub").mkdir()
    save_file(array, folder / "sub" / "a.safetensors")
    opened = open_folder(folder)
    assert "is no safetensors file of this folder" in told(opened)
    assert not opened.checkpoint.tensors


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_links_are_not_followed(tmp_path: Path, name: str) -> None:
    outside = write(tmp_path / "outside")
    folder = write(tmp_path / "model")
    (folder / name).unlink()
    (folder / name).symlink_to(outside / name)
    found = told(open_folder(folder))
    assert f"E116 {name}: it is a symbolic link, which is not followed" in found
    assert "cp -rL" in found


def test_a_linked_shard_is_not_followed(tmp_path: Path) -> None:
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "a.safetensors")
    folder = shard(tmp_path / "model", {"w": "a.safetensors"})
    (folder / "a.safetensors").symlink_to(tmp_path / "a.safetensors")
    assert "symbolic link" in told(open_folder(folder))


ONE, TWO = np.ones(2, np.float32), np.zeros(3, np.float32)
INDICES: dict[str, tuple[dict[str, object], dict[str, dict[str, Array]], str]] = {
    "a missing file": ({"w": "a.safetensors"}, {}, "cannot read"),
    "very many missing files": (
        {f"w{number}": f"{number}.safetensors" for number in range(5000)},
        {},
        "4900 more of the files that it names were not opened",
    ),
    "a tensor that is not there": (
        {"w": "a.safetensors", "v": "a.safetensors"},
        {"a": {"w": ONE}},
        "it puts the tensor 'v' into 'a.safetensors', which does not hold it",
    ),
    "a tensor that is not named": (
        {"w": "a.safetensors"},
        {"a": {"w": ONE, "v": TWO}},
        "it holds the tensor 'v', and model.safetensors.index.json does not name it",
    ),
    "a tensor in two files": (
        {"w": "a.safetensors", "v": "b.safetensors"},
        {"a": {"w": ONE}, "b": {"w": TWO, "v": ONE}},
        "it holds the tensor 'w', and model.safetensors.index.json puts it into 'a.safetensors'",
    ),
    "a number": ({"w": 3}, {}, "the file of the tensor 'w' is no text"),
    "nothing": ({}, {}, "its weight_map is no object"),
}


@pytest.mark.parametrize(("places", "files", "why"), INDICES.values(), ids=INDICES)
def test_index_and_files_must_agree(
    tmp_path: Path, places: dict[str, object], files: dict[str, dict[str, Array]], why: str
) -> None:
    assert why in told(open_folder(shard(tmp_path, places, **files)))


def test_an_index_beside_a_whole_checkpoint_is_ignored_as_transformers_does(tmp_path: Path) -> None:
    write(shard(tmp_path, {"w": "a.safetensors"}))
    folder = open_folder(tmp_path)
    assert [item.code for item in folder.findings] == ["W111"]
    assert folder.checkpoint.read("w").tolist() == [1, 1]


def test_a_name_twice_in_a_header_is_refused(tmp_path: Path) -> None:
    entry = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    text = f'{{"w":{entry},"w":{entry}}}'.encode()
    write(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    assert load_file(tmp_path / "model.safetensors")["w"].shape == (1,)  # safetensors takes it silently
    assert "'w'" in told(open_folder(tmp_path))


def test_a_file_that_shrinks_is_not_touched(tmp_path: Path) -> None:
    write(tmp_path, w=np.ones(1 << 20, np.float32))
    checkpoint = open_folder(tmp_path).checkpoint
    os.truncate(tmp_path / "model.safetensors", 4096)
    reads: list[Callable[[str], object]] = [checkpoint.read, checkpoint.bytes_of]
    for read in reads:
        with pytest.raises(InputError, match="bytes long when it was opened"):
            read("w")


CHANGES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4)


@given(CHANGES, st.sampled_from(["config.json", INDEX, "a.safetensors"]))
def test_changed_bytes_never_do_harm(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], name: str
) -> None:
    """Whatever is still taken for a tensor lies inside its file."""
    arrays: dict[str, Array] = {"w": np.ones((3, 2), np.float32), "v.0": np.ones(5, np.float16)}
    folder = shard(tmp_path_factory.mktemp("any"), dict.fromkeys(arrays, "a.safetensors"), a=arrays)
    data = bytearray((folder / name).read_bytes())
    for place, value in changes:
        data[place % len(data)] = value
    (folder / name).write_bytes(data)
    opened = open_folder(folder)
    for key, entry in opened.checkpoint.tensors.items():
        values = opened.checkpoint.read(key)
        assert values.shape == entry.shape
        assert values.nbytes == entry.length


@given(st.binary(max_size=80) | st.builds(lambda text: text.encode(), st.text(max_size=40)))
def test_any_bytes_give_findings(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes(data)
    (folder / INDEX).write_bytes(data)
    assert told(open_folder(folder))
    (folder / "model.safetensors").unlink()
    assert told(open_folder(folder))
