"""Folders with quantised weights: every scheme against the numbers that its own description gives them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import lamella
from lamella.base.diagnostic import LamellaError
from lamella.bridge.hf_to_module import open_folder
from lamella.graph.passes.specialise_shapes import specialise_shapes
from lamella.kernels.target import find_target
from lamella.pipeline.kernels.execution import prepare, to_kernels
from lamella.pipeline.module.execution import load
from lamella.pipeline.module.export import export
from lamella.pipeline.options import Options
from tests.support.models.checkpoints import save
from tests.support.models.quantised import SCHEMES

TOKENS = np.arange(1, 9).reshape(1, 8)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("plain")
    save("llama", home, seed=5, hidden_size=64, intermediate_size=128)
    return home


def _write(home: Path, plain: Path, tensors: dict[str, Any], settings: dict[str, object] | None) -> Path:
    home.mkdir()
    config = json.loads((plain / "config.json").read_text())
    more = {} if settings is None else {"quantization_config": settings}
    (home / "config.json").write_text(json.dumps({**config, **more}))
    # The package writes memory as it lies, whatever the strides are.
    save_file({key: np.ascontiguousarray(item) for key, item in tensors.items()}, home / "model.safetensors")
    return home


def _quantised(name: str, plain: Path, home: Path) -> tuple[Path, Path]:
    """A folder whose projections are quantised, and one with their numbers."""
    make, settings, _ = SCHEMES[name]
    random = np.random.default_rng(7)
    stored, numbers = {}, {}
    for key, values in load_file(plain / "model.safetensors").items():
        if not key.endswith("proj.weight"):
            stored[key] = numbers[key] = values
            continue
        made = make(random, *values.shape)
        stored |= {f"{key.removesuffix('.weight')}{part}": item for part, item in made.parts.items()}
        numbers[key] = made.numbers.astype(np.float32)
    return _write(home / "codes", plain, stored, settings), _write(home / "numbers", plain, numbers, None)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_scheme_gives_the_numbers_of_its_description(name: str, plain: Path, tmp_path: Path) -> None:
    coded, numbers = _quantised(name, plain, tmp_path)
    one, other = open_folder(coded), open_folder(numbers)
    assert not one.findings
    assert set(one.checkpoint.tensors) == set(other.checkpoint.tensors)
    for key in other.checkpoint.tensors:
        np.testing.assert_allclose(one.checkpoint.read(key), other.checkpoint.read(key), rtol=1e-5, atol=1e-6)
    forms = {item.form is not None for item in one.checkpoint.coded.values()}
    assert forms == {SCHEMES[name][2]}


@pytest.mark.parametrize(
    "name",
    ["gptq 4 zeros", "int8", "nf4 nested", "compressed 4", "fp8 blocks", "fp8 even blocks", "fp8 rows"],
)
def test_graphs_compute_with_codes_what_they_compute_with_numbers(
    name: str, plain: Path, tmp_path: Path
) -> None:
    coded, numbers = _quantised(name, plain, tmp_path)
    wanted = lamella.compile(numbers, backend="reference")(TOKENS)["logits"]
    model = load(coded, Options())
    assert any(item.name.endswith(".codes") for item in model.graph.variables) == SCHEMES[name][2]
    for backend in ("reference", "cpu"):
        found = lamella.compile(model, backend=backend)(TOKENS)["logits"]
        # Random codes make large numbers, which cancel.
        np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ["fp8 even blocks", "fp8 rows", "gptq 4 zeros"])
def test_a_token_on_a_gpu_reads_the_codes(name: str, plain: Path, tmp_path: Path) -> None:
    """Also in bf16, which would be more bytes: no kernel makes other numbers of them that stay in memory."""
    coded, _ = _quantised(name, plain, tmp_path)
    model = specialise_shapes(load(coded, Options()), {"B": 1, "T": 1})
    options = Options(precision="bf16")
    made = to_kernels(prepare(model, options, True), options, {}, True, find_target("sm_90a"))
    kinds = [
        (item.once, {operand.element for operand in item.operands})
        for calls in made.calls.values()
        for item in calls
    ]
    (code,) = {"i8", "f8e4m3"} & set().union(*(elements for _, elements in kinds))
    # What runs once lays codes as codes; products of a token read those.
    assert {frozenset(elements) for once, elements in kinds if once and code in elements} == {
        frozenset({code})
    }
    products = [elements for once, elements in kinds if not once and code in elements]
    assert len(products) >= 4
    assert all(elements <= {code, "f32"} for elements in products)


def test_a_quantised_folder_is_written_with_its_numbers(plain: Path, tmp_path: Path) -> None:
    coded, numbers = _quantised("gptq 4", plain, tmp_path)
    export(coded, tmp_path / "out", Options())
    written, wanted = (load_file(item / "model.safetensors") for item in (tmp_path / "out", numbers))
    assert set(written) == set(wanted)
    for key, values in wanted.items():
        np.testing.assert_allclose(written[key], values, rtol=1e-6, atol=1e-7)
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())


def _wrong(parts: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    first = next(key for key in parts if key.endswith("qweight"))
    stem = first.removesuffix("qweight")
    yield "no 'scales'", {key: item for key, item in parts.items() if key != f"{stem}scales"}
    yield "i32[2, 4], not [", {**parts, f"{stem}qzeros": np.zeros((2, 4), np.int32)}
    yield "128 numbers of 4 scales", {**parts, f"{stem}g_idx": np.full(128, 9, np.int32)}
    yield "not 2 axes", {**parts, first: np.zeros(8, np.int32)}


def test_parts_that_do_not_fit_are_findings(plain: Path, tmp_path: Path) -> None:
    coded, _ = _quantised("gptq 4", plain, tmp_path)
    config = json.loads((coded / "config.json").read_text())["quantization_config"]
    for number, (words, parts) in enumerate(_wrong(load_file(coded / "model.safetensors"))):
        home = _write(tmp_path / f"wrong{number}", plain, parts, config)
        with pytest.raises(LamellaError, match="E116") as caught:
            lamella.load(home)
        assert words in str(caught.value)


def test_a_method_that_is_not_known_is_named(plain: Path, tmp_path: Path) -> None:
    home = _write(tmp_path / "other", plain, load_file(plain / "model.safetensors"), {"quant_method": "aqlm"})
    with pytest.raises(LamellaError, match="quant_method aqlm"):
        lamella.load(home, via="module")
