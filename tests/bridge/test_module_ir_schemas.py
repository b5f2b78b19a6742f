"""The weight schema, the config schema and the metadata of a unit, against transformers and arithmetic by hand."""

from __future__ import annotations

import os
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch
import transformers

import lamella
from lamella.backend.reference import compile_model
from lamella.bridge.ir_to_graph import read_ir
from lamella.bridge.module_to_graph import CompilationSettings
from lamella.bridge.module_to_ir import module_to_ir, write_ir
from lamella.bridge.module_to_ir.nodes import MappingSpec, WeightEntry
from lamella.pipeline.given import options_of
from lamella.pipeline.module.execution import build
from lamella.pipeline.module.folders import read_source
from tests.support.bridge.module_ir import MODELS, TINY, Built, built, built_text, instance_of, tiny
from tests.support.models.checkpoints import GPT2, MOE, SIZES, logits, save, tokens

FREE: dict[str, Any] = {**SIZES, "tie_word_embeddings": False}
EXPERTS: dict[str, Any] = {**FREE, **MOE}
OLDER: dict[str, Any] = dict(GPT2)
CONFIGS: dict[str, Any] = {
    "llama": transformers.LlamaConfig(**FREE),
    "qwen3_moe": transformers.Qwen3MoeConfig(**EXPERTS),
    "gpt2": transformers.GPT2Config(**OLDER),
}

CLASSES: dict[str, Any] = {
    "llama": transformers.LlamaForCausalLM,
    "qwen3_moe": transformers.Qwen3MoeForCausalLM,
    "gpt2": transformers.GPT2LMHeadModel,
}


def values(name: str) -> dict[str, Any]:
    """The parameters of a model for a config: found by the schema itself."""
    config = CONFIGS[name].to_dict()
    schema = built(instance_of(MODELS / f"{name}.module")).unit.config
    found: dict[str, Any] = {}
    for pair in schema.params:
        given = [config[key] for key in pair.keys if config.get(key) is not None]
        if given and not isinstance(given[0], dict):
            found[pair.name] = given[0]
    return found


def names_of(spec: MappingSpec, places: dict[str, int], experts: int) -> list[str]:
    """The tensors that a specification speaks of at one place, all indices filled in."""
    found = []
    for part in spec.parts:
        name = part.name
        for key, index in places.items():
            name = name.replace(f"{{{key}}}", str(index))
        free = re.findall(r"\{(\w+)\}", name)
        found += (
            [name.replace(f"{{{free[0]}}}", str(number)) for number in range(experts)] if free else [name]
        )
    return found


def at(entry: WeightEntry) -> list[dict[str, int]]:
    """Every place that an entry stands for."""
    ranges = [range(*item) for item in entry.ranges.values()]
    return [dict(zip(entry.ranges, indices, strict=True)) for indices in product(*ranges)]


@pytest.mark.parametrize("name", CONFIGS)
def test_imports_and_exports_name_the_tensors_of_transformers(name: str) -> None:
    with torch.device("meta"):
        model = CLASSES[name](CONFIGS[name])
    wanted = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    if name == "qwen3_moe":
        wanted = _as_files(wanted)
    found = built(instance_of(MODELS / f"{name}.module", **values(name)))
    schema = found.unit.weights
    for way in ("imports", "exports"):
        names = [
            item
            for entry in schema.weights
            if entry.tied_to is None
            for spec in getattr(entry, way)
            for places in at(entry)
            for item in names_of(spec, places, 4)
        ]
        assert len(names) == len(set(names))
        prefixed = {item if item in wanted else f"transformer.{item}" for item in names}
        assert prefixed == wanted.keys() - {"lm_head.weight" if name == "gpt2" else ""}


def _as_files(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """The experts of newer versions, which hold them together, as their files have them."""
    found: dict[str, tuple[int, ...]] = {}
    for key, shape in shapes.items():
        if ".experts." not in key:
            found[key] = shape
            continue
        parts = ("gate_proj", "up_proj") if "gate_up" in key else ("down_proj",)
        stem = key.rpartition(".")[0]
        found |= {f"{stem}.{number}.{part}.weight": shape[1:] for number in range(4) for part in parts}
    return found


@pytest.mark.parametrize("name", ["mixtral", "gpt2"])
def test_a_unit_with_its_numbers_computes_what_transformers_does(name: str, tmp_path: Path) -> None:
    expected = save(name, tmp_path / "hf")
    options = options_of({})
    source = read_source(tmp_path / "hf", options)
    unit = built(source.instance).unit
    write_ir(unit, tmp_path / "unit", build(source, options, CompilationSettings()).data)
    executable = compile_model(read_ir(tmp_path / "unit"))
    ids = tokens()
    found = executable(**{executable.inputs[0]: ids})[executable.outputs[0]]
    assert not executable.findings
    np.testing.assert_allclose(found, logits(expected, ids), atol=1e-4)


def test_every_parameter_stands_in_one_entry() -> None:
    found = tiny("llama", n_layers=3, tie=True)
    places = [entry.path.format(**here) for entry in found.unit.weights.weights for here in at(entry)]
    params = found.unit.graph.params
    assert sorted(places) == sorted(item.path for item in params)
    tied = next(item for item in found.unit.weights.weights if item.path == "lm_head")
    assert tied.tied_to == "embedding"
    block = next(item for item in found.unit.weights.weights if item.path.endswith("up_weight"))
    assert (block.path, block.ranges, block.shape) == ("blocks[{i}].mlp.up_weight", {"i": (0, 3)}, (48, 16))
    (back,) = block.exports
    assert (back.kind, back.dim, len(back.parts)) == ("split", 0, 2)


SCHEMA = """
    module Cell(d: int, k: int):
      params:
        w: [d, k] @trainable(lr_scale=0.5, wd_scale=0.0) @shard(column, tp_size=2)
        b: [d]? @frozen

      forward:
        in: x: [B, k]
        out: y: [B, d]
        graph:
          (x, w) -> matmul(transpose=NT) -> y

    model M(d: int = 4, wide: bool = false, act: enum(relu, silu) = silu):
      let:
        half = d // 2
      constraint:
        d % 2 == 0, "d must be even"
      params:
        cells: [2] x Cell(d, d + layer)
        last: Cell(d, d)
      forward:
        in: x: [B, d]
        out: y: [B, d]
        graph:
          x -> last() -> y @probe(name="end", capture=stats)
      hf_config:
        architecture: "MForX"
        config_class: "MConfig"
        model_type: "m"
        param_mapping:
          d: first_of(rope.size, size)
      hf_mapping:
        cells[{n}].w: transform("cell.{n}.w", fn: transpose)
        last.w: fuse("a", "b", dim=1)
      hf_export:
        last.w: split("a": [0, half], "b": [half, d], dim=1)
"""


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The unit of a model with a mapping."""
    return built_text(tmp_path_factory.mktemp("schema"), SCHEMA)


def test_entries_differ_where_shapes_differ(schema: Built) -> None:
    entries = {(item.path, *item.ranges.values()): item for item in schema.unit.weights.weights}
    first, second = (entries["cells[{n}].w", (number, number + 1)] for number in range(2))
    assert (first.shape, second.shape) == ((4, 4), (4, 5))
    assert (first.lr_scale, first.wd_scale, first.trainable) == (0.5, 0.0, True)
    assert first.shard is not None
    assert (first.shard["strategy"], first.shard["tp_size"]) == ("column", 2)
    bias = entries["cells[{i}].b", (0, 2)]
    assert bias.optional
    assert not bias.trainable
    assert not bias.imports


def test_specifications_say_how_each_tensor_is_made_and_undone(schema: Built) -> None:
    entries = {item.path: item for item in schema.unit.weights.weights}
    (made,) = entries["cells[{n}].w"].imports
    assert (made.kind, made.parts[0].name, made.parts[0].function) == ("transform", "cell.{n}.w", "transpose")
    (undone,) = entries["cells[{n}].w"].exports
    assert (undone.kind, undone.parts[0].function, undone.derived) == ("transform", "transpose", True)
    (fused,) = entries["last.w"].imports
    assert (fused.kind, [item.name for item in fused.parts], fused.dim) == ("fuse", ["a", "b"], 1)
    (parted,) = entries["last.w"].exports
    assert [(item.name, item.low, item.high) for item in parted.parts] == [("a", 0, 2), ("b", 2, 4)]
    assert not parted.derived


def test_the_config_schema_tells_keys_types_and_sources(schema: Built) -> None:
    config = schema.unit.config
    assert (config.architecture, config.config_class, config.model_type) == ("MForX", "MConfig", "m")
    pairs = {item.name: item for item in config.params}
    assert pairs["d"].keys == ("rope.size", "size")
    assert (pairs["d"].type, pairs["d"].default, pairs["d"].value, pairs["d"].source) == (
        "int",
        "4",
        4,
        "default",
    )
    assert (pairs["act"].type, pairs["act"].value, pairs["act"].direction) == (
        "enum(relu, silu)",
        "silu",
        "none",
    )
    assert config.derived == {"half": 2}
    assert [(item.condition, item.message) for item in config.constraints] == [
        ("d % 2 == 0", "d must be even")
    ]


def test_probes_are_told_with_their_arguments(schema: Built) -> None:
    (probe,) = schema.unit.metadata.marks["probe"]
    arguments = probe["arguments"]
    assert isinstance(arguments, dict)
    assert (probe["path"], arguments["name"]) == ("y", "end")


def test_flops_and_parameters_are_those_of_the_architecture() -> None:
    meta = tiny().unit.metadata
    width, layers, ff, words = (TINY[key] for key in ("d_model", "n_layers", "d_ff", "vocab_size"))
    heads, kv = TINY["num_heads"], TINY["num_kv_heads"]
    head = width // heads
    weights = width * (heads + 2 * kv) * head + heads * head * width + 3 * width * ff
    fixed = 2 * (layers * weights + width * words)
    assert meta.flops_per_token == f"{4 * layers * heads * head} * T + {fixed}"
    assert meta.parameters == layers * (weights + 2 * width) + 2 * width * words + width
    assert meta.trainable == meta.parameters
    assert [(item.name, item.dtype, item.shape) for item in meta.inputs] == [
        ("token_ids", "int64", ("B", "T"))
    ]
    assert [item.shape for item in meta.outputs] == [("B", "T", "32")]
    assert meta.operators["llm.flash_attention"] == layers


def test_the_lock_is_kept() -> None:
    found = tiny()
    lock = "version: 1\nresolved_modules:\n"
    unit = module_to_ir(found.compiled, found.instance, lock)
    assert (unit.metadata.compiler, unit.metadata.lock) == (lamella.__version__, lock)
    assert unit.metadata.digest == found.unit.metadata.digest
