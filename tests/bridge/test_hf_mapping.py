"""Weights from checkpoints: the numbers are those of torch, and nothing is missing, left over or taken twice."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file
from safetensors.torch import load_file

from lamella.base.arrays import Array
from lamella.bridge.hf_to_module import (
    Checkpoint,
    ImportPlan,
    MappingContext,
    Weight,
    open_folder,
    plan_import,
)
from tests.support.bridge.hf.folders import CASES, bits, save, weights_of
from tests.support.bridge.hf.mappings import context, read_model, with_head

FAMILIES = pytest.mark.parametrize("name", CASES)


def checkpoint(folder: Path, tensors: Mapping[str, Array]) -> Checkpoint:
    """A checkpoint with these tensors."""
    (folder / "config.json").write_text("{}")
    save_file(dict(tensors), folder / "model.safetensors")
    return open_folder(folder).checkpoint


def numbers(*shape: int, start: int = 0) -> Array:
    """Numbers that are all different."""
    return np.arange(start, start + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def plan(
    folder: Path,
    tensors: Mapping[str, Array],
    weights: list[Weight],
    mapping: str,
    given_context: MappingContext | None = None,
    unused: tuple[str, ...] = (),
) -> ImportPlan:
    """The plan for weights under a mapping that is given as text."""
    entries = read_model(mapping).hf_mapping or ()
    return plan_import(weights, entries, checkpoint(folder, tensors), given_context or context(), unused)


def told(found: ImportPlan) -> list[str]:
    """The findings, each as one line."""
    return [f"{item.code} {item.message} | {item.hint}" for item in found.findings]


# --- the numbers ----------------------------------------------------------------------------------------------


@FAMILIES
def test_every_family_of_transformers_is_read(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    save(case, tmp_path, max_shard_size="10KB")
    state: dict[str, torch.Tensor] = {}
    for file in sorted(tmp_path.glob("*.safetensors")):
        state |= load_file(file)
    judged = case.weights(state)
    entries = read_model(case.mapping).hf_mapping or ()
    found = plan_import(
        weights_of(judged, case.tied), entries, open_folder(tmp_path).checkpoint, context(prefix=case.prefix)
    )
    assert not found.findings
    data = found.data()
    assert data.keys() == judged.keys()
    for path, values in judged.items():
        assert bits(data[path]) == bits(values), path


def test_floats_are_converted_and_listed(tmp_path: Path) -> None:
    case = CASES["bfloat16"]
    model = save(case, tmp_path)
    judged = case.weights(model.state_dict())
    entries = read_model(case.mapping).hf_mapping or ()
    opened = open_folder(tmp_path).checkpoint
    found = plan_import(weights_of(judged, element="fp32"), entries, opened, context())
    assert told(found) == ["W110 30 checkpoint tensors are converted from bf16 to f32 | "]
    wide, narrow = found.data(), found.data("fp16")
    for path, values in judged.items():
        assert bits(wide[path]) == bits(values.float())
        assert bits(narrow[path]) == bits(values.half())


def test_what_is_stored_as_it_is_needed_is_not_copied(tmp_path: Path) -> None:
    tensors = {"a": numbers(1 << 18), "b": numbers(1 << 18)}
    weights = [Weight("p", (1 << 18,)), Weight("q", (1 << 18,), "bf16")]
    data = plan(tmp_path, tensors, weights, '    p: "a"\n    q: "b"').data()
    assert not data["p"].flags.owndata
    assert not data["p"].flags.writeable
    assert data["q"].dtype == ml_dtypes.bfloat16


def test_large_tensors_are_converted_in_parts(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(3001, 1500)).astype(np.float32)
    found = plan(tmp_path, {"a": values}, [Weight("p", values.shape, "bf16")], '    p: "a"')
    assert bits(found.data()["p"]) == bits(torch.from_numpy(values).bfloat16())


def test_no_more_than_the_largest_weight_is_made_at_once(tmp_path: Path) -> None:
    """Weights of 4 MB, fused from tensors of 1 MB of half their width."""
    rows = 1 << 19
    tensors = {f"t.{i}.{part}": np.full(rows, i, np.float16) for i in range(8) for part in "ab"}
    weights = [Weight(f"blocks[{i}].w", (2 * rows,), "fp32") for i in range(8)]
    data = plan(tmp_path, tensors, weights, '    blocks[{i}].w: fuse("t.{i}.a", "t.{i}.b")').data()
    tracemalloc.start()
    try:
        sums = [float(data[item.path].sum(dtype=np.float64)) for item in weights]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sums == [2.0 * rows * i for i in range(8)]
    assert peak < 3 * 4 * 2 * rows


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(-2, 1), st.booleans())
def test_fused_tensors_stand_one_behind_the_other(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], dim: int, turned: bool
) -> None:
    parts = [
        numbers(*((size, 3) if dim % 2 == 0 else (3, size)), start=100 * i) for i, size in enumerate(sizes)
    ]
    whole = np.concatenate(parts, axis=dim)
    stored = {f"t{i}": part.T if turned else part for i, part in enumerate(parts)}
    names = [f'transform("{name}", fn: transpose)' if turned else f'"{name}"' for name in stored]
    text = f"    p: fuse({', '.join(names)}, dim={dim})"
    dense = {name: np.ascontiguousarray(values) for name, values in stored.items()}
    found = plan(tmp_path_factory.mktemp("fuse"), dense, [Weight("p", whole.shape)], text)
    assert not found.findings
    assert np.array_equal(found.data()["p"], whole)


def test_a_split_says_where_each_tensor_goes(tmp_path: Path) -> None:
    text = '    p: split("b": [n, n + 2], "a": [0, n])'
    tensors = {"a": numbers(3, 2), "b": numbers(2, 2, start=50)}
    found = plan(tmp_path, tensors, [Weight("p", (5, 2))], text, context({"n": 3}))
    assert not found.findings
    assert np.array_equal(found.data()["p"], np.concatenate([tensors["a"], tensors["b"]]))


def test_rows_of_heads_change_their_order(tmp_path: Path) -> None:
    """The order of rows in files of the first authors of Llama, as the conversion of transformers undoes it."""
    half = numbers(16, 3)
    text = '    p: transform("a", fn: half_to_interleaved)'
    found = plan(tmp_path, {"a": half}, [Weight("p", (16, 3))], text, with_head(context(), 8))
    rows = found.data()["p"]
    back = torch.from_numpy(rows.copy()).view(2, 4, 2, 3).transpose(1, 2).reshape(16, 3)
    assert np.array_equal(back.numpy(), half)


def test_weights_of_layers_that_differ_take_their_own_tensors(tmp_path: Path) -> None:
    """In a hybrid model an entry holds for those layers that have the parameter."""
    text = '    blocks[{i}].mixer: "l.{i}.m"\n    blocks[{i}].attention: "l.{i}.a"\n    blocks[2].extra: "x"'
    tensors = {"l.0.m": numbers(2), "l.1.a": numbers(3), "l.2.m": numbers(2, start=9), "x": numbers(1)}
    paths = {"blocks[0].mixer": 2, "blocks[1].attention": 3, "blocks[2].mixer": 2, "blocks[2].extra": 1}
    found = plan(tmp_path, tensors, [Weight(path, (size,)) for path, size in paths.items()], text)
    assert not found.findings
    assert found.data()["blocks[2].mixer"].tolist() == [9, 10]


# --- what may be missing or left over ---------------------------------------------------------------------------


def test_optional_weights_may_be_absent(tmp_path: Path) -> None:
    text = '    w: "w"\n    b?: "b"\n    c: fuse("c0", "c1")'
    weights = [Weight("w", (2,)), Weight("b", (2,), optional=True), Weight("c", (4,), optional=True)]
    found = plan(tmp_path, {"w": numbers(2)}, weights, text)
    assert not found.findings
    assert found.absent == ("b", "c")
    assert list(found.data()) == ["w"]
    half = plan(tmp_path, {"w": numbers(2), "c0": numbers(2)}, weights, text)
    assert "E110 the checkpoint has no tensor 'c1' for 'c'" in told(half)[0]


def test_entries_of_parameters_that_are_switched_off_are_skipped(tmp_path: Path) -> None:
    text = '    w: "w"\n    b: "b" if use_bias\n    blocks[{i}].b: "l.{i}.b"\n    experts[{e}]: "e.{e}"'
    weights, tensors = [Weight("w", (2,))], {"w": numbers(2)}
    known = context({"use_bias": False})
    declared = MappingContext("Small", known.evaluate, {"blocks[].b": "'use_bias'", "experts": "'n > 0'"})
    assert not plan(tmp_path, tensors, weights, text, declared).findings
    found = told(plan(tmp_path, tensors, weights, text, known))
    assert [item.split("|")[0] for item in found] == [
        "E010 'Small' has no parameter 'blocks[{i}].b' ",
        "E010 'Small' has no parameter 'experts[{e}]' ",
    ]


BUFFERS = [
    *("model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq", "position_ids"),
    *("transformer.h.1.attn.bias", "h.1.attn.masked_bias", "bert.embeddings.position_ids"),
    *("gpt_neox.layers.0.attention.bias", "gpt_neox.layers.0.attention.masked_bias"),
]


@pytest.mark.parametrize("name", BUFFERS)
def test_known_tables_may_stay_unused(tmp_path: Path, name: str) -> None:
    tensors = {"w": numbers(2), name: numbers(4)}
    assert not plan(tmp_path, tensors, [Weight("w", (2,))], '    w: "w"').findings
    # where a mapping speaks of it, it is a tensor like any other
    found = plan(tmp_path, tensors, [Weight("w", (2,)), Weight("b", (4,))], f'    w: "w"\n    b: "{name}"')
    assert not found.findings
    assert found.data()["b"].tolist() == [0, 1, 2, 3]


def test_a_part_of_a_weight_is_missing_and_the_others_are_not_blamed(tmp_path: Path) -> None:
    tensors = {"q": numbers(2, 3), "v": numbers(2, 3)}
    found = plan(tmp_path, tensors, [Weight("qkv", (6, 3))], '    qkv: fuse("q", "k", "v", dim=0)')
    assert [item.code for item in found.findings] == ["E110"]
    assert "the other parts of the weight are there, such as 'q'" in str(found.findings[0].hint)


def test_weights_of_biases_are_no_tables(tmp_path: Path) -> None:
    tensors = {"w": numbers(2), "transformer.h.1.attn.c_attn.bias": numbers(4)}
    assert "E111" in told(plan(tmp_path, tensors, [Weight("w", (2,))], '    w: "w"'))[0]


def test_a_tied_head_may_be_stored_or_not(tmp_path: Path) -> None:
    text = '    embedding: "e"\n    head: "h"'
    weights = [Weight("embedding", (2, 2)), Weight("head", (2, 2), tied="embedding")]
    for tensors in ({"e": numbers(2, 2)}, {"e": numbers(2, 2), "h": numbers(2, 2)}):
        found = plan(tmp_path, tensors, weights, text)
        assert not found.findings
        assert list(found.data()) == ["embedding"]


def test_a_mapping_may_tie_weights(tmp_path: Path) -> None:
    weights = [Weight("embedding", (2, 2)), Weight("head", (2, 2))]
    text = '    embedding: "e"\n    head: tied_to(embedding)'
    data = plan(tmp_path, {"e": numbers(2, 2)}, weights, text).data()
    assert np.array_equal(data["head"], data["embedding"])
    lost = told(plan(tmp_path, {"e": numbers(2, 2)}, weights, '    embedding: "e"\n    head: tied_to(ghost)'))
    assert "E010 'Small' has no parameter 'ghost'" in lost[0]


def test_allowed_patterns_may_stay_unused(tmp_path: Path) -> None:
    tensors = {"w": numbers(2), "vision.a": numbers(2), "vision.b": numbers(2), "extra": numbers(1)}
    weights = [Weight("w", (2,))]
    assert len(plan(tmp_path, tensors, weights, '    w: "w"').findings) == 3
    assert not plan(tmp_path, tensors, weights, '    w: "w"', unused=("vision.*", "extra")).findings


READ_OTHERWISE: dict[str, tuple[str, str]] = {
    "a condition of an entry": ("b", "'b' reads it where its condition 'use_bias' is true"),
    "a parameter that is switched off": (
        "l.1.b",
        "'blocks[{i}].b' reads it where its condition 'wide' is true",
    ),
    "a module that is switched off": ("e.0", "'experts[{e}]' reads it where its condition 'n > 0' is true"),
    "a layer beyond the last": ("l.7.w", "it is read where its index is in range"),
    "a part of a layer that is read": ("out.bias", "the layer of 'out.weight', which 'out' reads"),
    "a tied weight with other numbers": ("head", "it holds other numbers than 'w', to which 'head' is tied"),
}


@pytest.mark.parametrize("case", READ_OTHERWISE)
def test_what_the_model_would_read_is_never_silently_unused(tmp_path: Path, case: str) -> None:
    name, why = READ_OTHERWISE[case]
    text = """
    w: "w"
    head: "head"
    out: "out.weight"
    b: "b" if use_bias
    blocks[{i}].w: "l.{i}.w"
    blocks[{i}].b: "l.{i}.b"
    experts[{e}]: "e.{e}"
    """
    weights = [*(Weight(path, (2,)) for path in ("w", "out", "blocks[0].w")), Weight("head", (2,), tied="w")]
    known = context({"use_bias": False})
    asked = MappingContext("Small", known.evaluate, {"blocks[].b": "'wide'", "experts": "'n > 0'"})
    own = {item: numbers(2) for item in ("w", "out.weight", "l.0.w")}
    assert not plan(tmp_path, own, weights, text, asked).findings
    assert not plan(tmp_path, {**own, "head": numbers(2)}, weights, text, asked).findings

    whole = {**own, name: numbers(2, start=3), "vision": numbers(1)}
    refused = plan(tmp_path, whole, weights, text, asked, unused=("vision",))
    assert [item.code for item in refused.findings] == ["E117" if name == "head" else "E111"]
    assert "--unused" in refused.findings[0].hint
    found = plan(tmp_path, whole, weights, text, asked, unused=("*",))
    assert [(item.code, item.severity) for item in found.findings] == [("W112", "warning")]
    assert f"'{name}'" in found.findings[0].message
    assert why in found.findings[0].message


# --- what is wrong --------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[str, str]] = {
    "a tensor that is missing": (
        'p: "w.0.weigth"',
        "E110 the checkpoint has no tensor 'w.0.weigth' for 'p' | the nearest that it has is 'w.0.weight'",
    ),
    "a tensor that is left over": (
        'p: "v"',
        "E111 the checkpoint tensor 'w.0.weight' belongs to no parameter of 'Small'",
    ),
    "another shape": (
        'p: "w.0.weight"',
        "E112 the checkpoint tensor 'w.0.weight' has shape [4, 2], 'p' needs [2, 4]",
    ),
    "a shape after a function": (
        'p: transform("v", fn: transpose)',
        "E112 the checkpoint tensor 'v' has shape [2, 4] ([4, 2] after transpose), 'p' needs [2, 4]",
    ),
    "a shape for a function": (
        'p: transform("v", fn: squeeze_1)',
        "E010 'v' of shape [2, 4] cannot be given to squeeze_1: its second dimension is not 1",
    ),
    "heads of no size": (
        'p: transform("v", fn: half_to_interleaved)',
        "E010 'v' of shape [2, 4] cannot be given to half_to_interleaved: "
        "the number of rows of a head (head_dim) is not known",
    ),
    "integers": ('p: "i"', "E113 the checkpoint tensor 'i' is i32, which does not become f32"),
    "exponents of integers": ('p: transform("i", fn: exp)', "E113 the checkpoint tensor 'i' is i32"),
    "an unknown function": (
        'p: transform("v", fn: transpoze)',
        "E010 there is no transform function 'transpoze' | did you mean transpose?",
    ),
    "a function that would run something": (
        'p: transform("v", fn: exec)',
        "E010 there is no transform function 'exec' | there are transpose, neg, ",
    ),
    "a placeholder on the right": ('p: "v.{i}"', "E010 the placeholder 'i' stands on one side only"),
    "two free placeholders": (
        'p: transform("v.{i}.{j}", fn: stack)',
        "E010 the placeholder 'i' stands on one side only",
    ),
    "nothing to stack": ('p: transform("v", fn: stack)', "E010 stack has nothing to count in 'v'"),
    "an entry twice": ('p: "v"\n    p: "w.0.weight"', "E010 'p' is mapped twice"),
    "an unknown parameter": ('p: "v"\n    pq: "w"', "E010 'Small' has no parameter 'pq'"),
    "no entry": ('p: "v" if false', "E010 'p' is mapped to no checkpoint tensor"),
    "fused types": ('p: fuse("half", "one")', "E010 'p' is fused from f16 and f32"),
    "fused shapes": (
        'p: fuse("v", "w.0.weight")',
        "its sources make no tensor: [2, 4] and [4, 2] do not join",
    ),
    "too much": ('p: fuse("v", "u")', "E010 'p' has shape [2, 4], its sources make [4, 4]"),
    "no such dimension": (
        'p: fuse("v", "u", dim=2)',
        "its sources make no tensor: [2, 4] has no dimension 2",
    ),
    "a range too few": ('p: split("one": [0, 1])', "the ranges of 'p' end at 1, its dimension 0 has 2"),
    "ranges that overlap": ('p: split("v": [0, 2], "one": [1, 2])', "the ranges of 'p' overlap"),
    "a gap": ('p: split("one": [0, 1], "u": [2, 4])', "the ranges of 'p' leave a gap"),
    "a range that runs backwards": ('p: split("one": [0, 1], "u": [1, 0])', "run backwards"),
    "a range of another size": ('p: split("v": [0, 1], "one": [1, 2])', "give 1 to a tensor of 2"),
    "a bound that is unknown": ('p: split("v": [0, n])', "E002"),
    "a condition that is a number": ('p: "v" if 3', "E003"),
}


@pytest.mark.parametrize(("text", "why"), WRONG.values(), ids=WRONG)
def test_wrong_mappings_are_named(tmp_path: Path, text: str, why: str) -> None:
    tensors: dict[str, Array] = {
        **{"v": numbers(2, 4), "u": numbers(2, 4), "w.0.weight": numbers(4, 2), "one": numbers(1, 4)},
        **{"i": np.ones((2, 4), np.int32), "half": np.ones((1, 4), np.float16)},
    }
    found = plan(tmp_path, tensors, [Weight("p", (2, 4), "fp32")], f"    {text}")
    assert [line for line in told(found) if why in line], told(found)


def test_a_tensor_is_used_once(tmp_path: Path) -> None:
    weights = [Weight("p", (2,)), Weight("q", (2,))]
    found = told(plan(tmp_path, {"v": numbers(2)}, weights, '    p: "v"\n    q: "v"'))
    assert found == [
        "E010 the checkpoint tensor 'v' is used for 'p' and for 'q' | tie one to the other with tied_to"
    ]
    doubled = told(plan(tmp_path, {"v": numbers(2)}, [Weight("p", (4,))], '    p: fuse("v", "v")'))
    assert "used for 'p' and for 'p'" in doubled[0]


def test_layers_beyond_the_model_are_said_to_be(tmp_path: Path) -> None:
    tensors = {f"l.{i}.w": numbers(2) for i in range(4)}
    weights = [Weight(f"blocks[{i}].w", (2,)) for i in range(3)]
    found = told(plan(tmp_path, tensors, weights, '    blocks[{i}].w: "l.{i}.w"'))
    assert len(found) == 1
    assert found[0].startswith("E111 the checkpoint tensor 'l.3.w'")
    assert "it is read where its index is in range" in found[0]


def test_slices_cover_the_first_dimension(tmp_path: Path) -> None:
    tensors = {f"e.{i}": numbers(2, start=10 * i) for i in range(3)}
    text = '    experts[0]: "e.0"\n    experts[1]: "e.1"'
    assert "E010 2 of the 3 slices of 'experts' are mapped | " in told(
        plan(tmp_path, tensors, [Weight("experts", (3, 2))], text)
    )
    whole = plan(tmp_path, tensors, [Weight("experts", (3, 2))], f'{text}\n    experts[2]: "e.2"')
    assert whole.data()["experts"].tolist() == [[0, 1], [10, 11], [20, 21]]
    twice = plan(tmp_path, tensors, [Weight("experts", (3, 2))], f'{text}\n    experts[{{e}}]: "e.{{e}}"')
    assert "E010 'experts[0]' is mapped twice" in told(twice)[0]


def test_a_stack_of_nothing_is_reported_in_slices_too(tmp_path: Path) -> None:
    text = '    experts[{i}]: transform("e.{i}.{j}", fn: stack)'
    found = plan(tmp_path, {"other": numbers(2)}, [Weight("experts", (2, 0, 3))], text, unused=("other",))
    assert told(found) == ["E010 'experts' has shape [2, 0, 3], its sources make nothing | "]


def test_names_that_look_like_paths_are_only_names(tmp_path: Path) -> None:
    tensors = {"../../etc/passwd": numbers(2), "a\nb": numbers(2)}
    found = plan(tmp_path, tensors, [Weight("p", (2,))], '    p: "../../etc/passwd"')
    assert found.data()["p"].tolist() == [0, 1]
    assert "a\\nb" in told(found)[0]


def test_another_model_gives_bounded_findings(tmp_path: Path) -> None:
    tensors = {f"x.{i}.{i % 700}.name{i}": np.zeros(1, np.float32) for i in range(5000)}
    weights = [Weight(f"blocks[{i}].w", (1,)) for i in range(5000)]
    found = plan(tmp_path, tensors, weights, '    blocks[{i}].w: "l.{i}.w"')
    assert [sum(item.code == code for item in found.findings) for code in ("E110", "E111")] == [1000, 1000]
