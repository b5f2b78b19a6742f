"""Folders that are written: transformers loads them, and what was not changed has the very bytes of the source."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from safetensors.torch import load_file

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import OutputError
from lamella.bridge.hf_to_module import Folder, MappingContext, Weight, open_folder, plan_import
from lamella.bridge.module_to_hf import Export, ExportMapping, export_folder
from tests.support.bridge.hf.folders import CASES, SIZES, bits, save, weights_of
from tests.support.bridge.hf.mappings import LLAMA, LLAMA_SPLIT, context, read_model

FAMILIES = pytest.mark.parametrize("name", CASES)
KNOWN = {"q_dim": 32, "kv_dim": 16, "d_ff": 48}


def small(folder: Path, **tensors: Array) -> Folder:
    """A folder with these tensors."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"mine": 1}')
    save_file(tensors, folder / "model.safetensors")
    return open_folder(folder)


def described(
    mapping: str, weights: list[Weight], export: str = "", known: MappingContext | None = None
) -> ExportMapping:
    """How weights and tensors correspond, from texts."""
    model = read_model(mapping, export)
    return ExportMapping(weights, model.hf_mapping or (), model.hf_export or (), known or context())


def arrays_of(mapped: ExportMapping, source: Folder, element: str | None = None) -> Mapping[str, Array]:
    """The weights that a source gives."""
    plan = plan_import(mapped.weights, mapped.imports, source.checkpoint, mapped.context, ("*",))
    return plan.data(element)


def tensors_in(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a folder, read by safetensors."""
    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return found


def same(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> bool:
    """Whether tensors have the same names, types and bytes."""
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and bits(left[name]) == bits(right[name]) for name in left
    )


# --- with the source ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard_bytes", [10**9, 20_000], ids=["one file", "shards"])
@FAMILIES
def test_transformers_loads_what_is_written(tmp_path: Path, name: str, shard_bytes: int) -> None:
    case, first, second = CASES[name], tmp_path / "first", tmp_path / "second"
    model = save(case, first)
    source = open_folder(first)
    weights = weights_of(case.weights(load_file(first / "model.safetensors")), case.tied)
    mapped = described(case.mapping, weights, known=context(prefix=case.prefix))
    files = export_folder(
        second, arrays_of(mapped, source), Export(mapped, source.config, source, shard_bytes)
    )
    assert sorted(files) == sorted(second.iterdir())
    assert (second / "model.safetensors.index.json").exists() == (shard_bytes < 10**9)
    assert same(tensors_in(first), tensors_in(second))
    assert (first / "config.json").read_bytes() == (second / "config.json").read_bytes()
    loaded, report = type(model).from_pretrained(second, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert same(model.state_dict(), loaded.state_dict())
    assert not open_folder(second).findings


@pytest.mark.parametrize("element", ["fp32", "fp16", "fp8_e4m3"])
def test_numbers_that_were_only_converted_keep_their_bytes(tmp_path: Path, element: str) -> None:
    """Also where the conversion lost something: the source still has it."""
    case = CASES["bfloat16"]
    model = save(case, tmp_path / "first")
    source = open_folder(tmp_path / "first")
    mapped = described(case.mapping, weights_of(case.weights(model.state_dict())))
    arrays = arrays_of(mapped, source, element)
    export_folder(tmp_path / "second", arrays, Export(mapped, source.config, source))
    assert same(tensors_in(tmp_path / "first"), tensors_in(tmp_path / "second"))


def test_only_what_was_changed_changes(tmp_path: Path) -> None:
    case = CASES["bfloat16"]
    model = save(case, tmp_path / "first")
    source = open_folder(tmp_path / "first")
    mapped = described(case.mapping, weights_of(case.weights(model.state_dict())))
    arrays = dict(arrays_of(mapped, source, "fp32"))
    arrays["blocks[1].attention.qkv"] = arrays["blocks[1].attention.qkv"].copy()
    arrays["blocks[1].attention.qkv"][32:48] += 0.123
    export_folder(tmp_path / "second", arrays, Export(mapped, source.config, source))
    before, after = tensors_in(tmp_path / "first"), tensors_in(tmp_path / "second")
    changed = "model.layers.1.self_attn.k_proj.weight"
    assert bits(after[changed]) == bits((before[changed].float() + 0.123).to(torch.bfloat16))
    assert same(before | {changed: after[changed]}, after)


def test_computed_transforms_are_undone_only_where_numbers_changed(tmp_path: Path) -> None:
    values = np.linspace(-3, 2, 7, dtype=np.float32)
    source = small(tmp_path / "first", a=values, b=values)
    weights = [Weight("p", (7,)), Weight("q", (7,))]
    mapped = described(
        '    p: transform("a", fn: negate_exp)\n    q: transform("b", fn: negate_exp)', weights
    )
    arrays = dict(arrays_of(mapped, source))
    np.testing.assert_allclose(arrays["p"], -np.exp(values), rtol=1e-6)
    arrays["q"] = arrays["q"] * np.float32(2)
    export_folder(tmp_path / "second", arrays, Export(mapped, source.config, source))
    after = tensors_in(tmp_path / "second")
    assert bits(after["a"]) == values.tobytes()
    np.testing.assert_allclose(after["b"].numpy(), values + np.log(2), rtol=1e-5)


def test_tensors_beside_the_model_are_kept_and_tied_ones_are_not_written(tmp_path: Path) -> None:
    one = np.ones((2, 2), np.float32)
    source = small(tmp_path / "first", e=one, h=one, vision=one, gone=one)
    weights = [Weight("p", (2, 2)), Weight("head", (2, 2), tied="p"), Weight("b", (2, 2), optional=True)]
    mapped = described('    p: "e"\n    head: "h"\n    b?: "gone"', weights)
    export_folder(tmp_path / "second", {"p": one * 3}, Export(mapped, source.config, source))
    assert {name: float(values.sum()) for name, values in tensors_in(tmp_path / "second").items()} == {
        "e": 12.0,
        "vision": 4.0,
    }


def test_files_of_the_tokenizer_are_copied_and_code_is_not(tmp_path: Path) -> None:
    source = small(tmp_path / "first", a=np.ones(2, np.float32))
    texts = {
        "tokenizer.json": '{"x": "\u00e9"}',
        "merges.txt": "a b",
        "modeling.py": "evil",
        "README.md": "#",
    }
    for name, text in texts.items():
        (tmp_path / "first" / name).write_text(text)
    mapped = described('    p: "a"', [Weight("p", (2,))])
    config = {"mine": 2, "limit": float("inf")}
    export_folder(tmp_path / "second", arrays_of(mapped, source), Export(mapped, config, source))
    names = sorted(path.name for path in (tmp_path / "second").iterdir())
    assert names == ["config.json", "merges.txt", "model.safetensors", "tokenizer.json"]
    assert (tmp_path / "second" / "tokenizer.json").read_text() == texts["tokenizer.json"]
    assert json.loads((tmp_path / "second" / "config.json").read_text()) == config


class Made(Mapping[str, Array]):
    """Arrays that are made when they are asked for."""

    def __init__(self, names: list[str], size: int) -> None:
        self._names, self._size = names, size

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> Array:
        return np.full(self._size, int(name[1:]), np.float32)


def test_one_weight_at_a_time_is_in_memory(tmp_path: Path) -> None:
    size, names = 1 << 18, [f"p{index}" for index in range(40)]
    text = "\n".join(f'    {name}: "{name}"' for name in names)
    mapped = described(text, [Weight(name, (size,), "fp32") for name in names])
    tracemalloc.start()
    try:
        export_folder(tmp_path / "out", Made(names, size), Export(mapped, {}))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5 * 4 * size
    assert (tmp_path / "out" / "model.safetensors").stat().st_size > 40 * 4 * size
    assert float(tensors_in(tmp_path / "out")["p39"][-1]) == 39.0


# --- without a source -----------------------------------------------------------------------------------------


def test_a_model_of_our_own_becomes_a_folder(tmp_path: Path) -> None:
    model: Any = CASES["llama"].build()
    judged = CASES["llama"].weights(model.state_dict())
    arrays = {path: values.detach().numpy() for path, values in judged.items()}
    mapped = described(LLAMA, weights_of(judged, element="fp32"), LLAMA_SPLIT, context(KNOWN))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **SIZES}
    export_folder(tmp_path / "out", arrays, Export(mapped, config))
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert same(model.state_dict(), loaded.state_dict())
    again = plan_import(
        mapped.weights, mapped.imports, open_folder(tmp_path / "out").checkpoint, mapped.context
    )
    assert not again.findings
    assert all(bits(values) == bits(arrays[path]) for path, values in again.data().items())


def refused(tmp_path: Path, mapped: ExportMapping, arrays: Mapping[str, Array]) -> str:
    """What is said of an export that cannot be; nothing then looks like a model."""
    with pytest.raises(LamellaError) as problem:
        export_folder(tmp_path / "out", arrays, Export(mapped, {}))
    assert not list((tmp_path / "out").glob("*"))
    return str(problem.value)


PAIR = np.arange(8, dtype=np.float32).reshape(4, 2)
REFUSED: dict[str, tuple[str, str, dict[str, Array], str]] = {
    "sizes that nobody knows": ('p: fuse("a", "b")', "", {"p": PAIR}, "is not known without the checkpoint"),
    "no numbers": ('p: "a"', "", {}, "E010]: there are no numbers for 'p'"),
    "no entry": ('q?: "a" if false', "", {"p": PAIR}, "'p' is mapped to no checkpoint tensor"),
    "another shape": (
        'p: "a"',
        "",
        {"p": PAIR.T},
        "'p' has shape [4, 2], the numbers given for it have [2, 4]",
    ),
    "integers": ('p: "a"', "", {"p": PAIR.astype(np.int32)}, "are int32, which do not become f32"),
    "ranges with a gap": ('p: "a"', 'p -> split("a": [0, 1], "b": [2, 4])', {"p": PAIR}, "leave a gap"),
    "ranges beyond": ('p: "a"', 'p -> split("a": [0, 1], "b": [1, 9])', {"p": PAIR}, "end at 9"),
    "one name twice": (
        'p: "a"',
        'p -> split("a": [0, 1], "a": [1, 4])',
        {"p": PAIR},
        "is used for 'p' and for 'p'",
    ),
    "an unknown path": ('p: "a"', 'z: "b"', {"p": PAIR}, "'Small' has no parameter 'z'"),
    "a shape for a function": (
        'p: transform("a", fn: unsqueeze_1)',
        "",
        {"p": PAIR},
        "cannot be given to squeeze_1",
    ),
}


@pytest.mark.parametrize(("mapping", "export", "arrays", "why"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_written_is_said(
    tmp_path: Path, mapping: str, export: str, arrays: dict[str, Array], why: str
) -> None:
    mapped = described(f"    {mapping}", [Weight("p", (4, 2), "fp32")], f"    {export}")
    assert why in refused(tmp_path, mapped, arrays)


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    source = small(tmp_path / "first", a=PAIR)
    mapped = described('    p: "a"', [Weight("p", (4, 2))])
    before = {path.name: path.read_bytes() for path in (tmp_path / "first").iterdir()}
    with pytest.raises(OutputError, match="is not empty"):
        export_folder(tmp_path / "first", {"p": PAIR * 2}, Export(mapped, {}, source))
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "first").iterdir()}


def test_a_function_of_an_export_is_applied_on_the_way_out(tmp_path: Path) -> None:
    mapped = described(
        '    p: transform("a", fn: transpose)', [Weight("p", (4, 2))], '    p: transform("a", fn: transpose)'
    )
    export_folder(tmp_path / "out", {"p": PAIR}, Export(mapped, {}))
    assert np.array_equal(tensors_in(tmp_path / "out")["a"].numpy(), PAIR.T)


# --- any mapping ----------------------------------------------------------------------------------------------

SHAPES = {"": (-1, 2), "neg": (-1, 2), "transpose": (2, -1)}


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(sorted(SHAPES))), min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from([np.float32, np.float16, np.float64]),
    st.booleans(),
)
def test_export_undoes_import(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[tuple[int, str]],
    slices: int,
    kind: type,
    change: bool,
) -> None:
    """Slices of fused tensors, each through a function, changed or not: what comes in goes out."""
    folder = tmp_path_factory.mktemp("any")
    rng = np.random.default_rng(slices)
    tensors: dict[str, Array] = {
        f"t{index}.{e}": rng.normal(size=2 * rows).astype(kind).reshape(SHAPES[function])
        for index, (rows, function) in enumerate(parts)
        for e in range(slices)
    }
    names = [
        f'transform("t{index}.{{e}}", fn: {function})' if function else f'"t{index}.{{e}}"'
        for index, (_, function) in enumerate(parts)
    ]
    rows = sum(size for size, _ in parts)
    mapped = described(f"    p[{{e}}]: fuse({', '.join(names)})", [Weight("p", (slices, rows, 2))])
    source = small(folder / "first", **tensors)
    arrays = dict(arrays_of(mapped, source))
    if change:
        arrays["p"] = arrays["p"] + arrays["p"].dtype.type(1)
    export_folder(folder / "second", arrays, Export(mapped, source.config, source, shard_bytes=40))
    again = open_folder(folder / "second")
    assert not again.findings
    assert bits(arrays_of(mapped, again)["p"]) == bits(arrays["p"])
    assert change != same(tensors_in(folder / "first"), tensors_in(folder / "second"))
