"""Compiled units: written, read again, executed with equal results, and the same bytes each time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamella.backend.reference import compile_model
from lamella.base import dim
from lamella.base.dim import Extent
from lamella.base.errors import InputError
from lamella.bridge.ir_to_graph import read_ir
from lamella.bridge.module_to_graph import CompilationSettings
from lamella.bridge.module_to_graph.backward import differentiate
from lamella.bridge.module_to_graph.nodes import Compiled
from lamella.bridge.module_to_ir import is_unit, module_to_ir, read_unit, write_ir
from lamella.bridge.module_to_ir.graph import SymbolTable, SymbolValues
from lamella.graph.model import Model
from tests.support.bridge.module_ir import TINY, Array, Built, built_text, evaluator, tiny, written

TOKENS = np.random.default_rng(3).integers(0, 32, (2, 7))


def run(model: Model, numbers: dict[str, Array], inputs: dict[str, Array]) -> dict[str, Array]:
    """What a model computes with these weights."""
    executable = compile_model(model)
    executable.state |= {name: numbers[name] for name in numbers if name in executable.state}
    return executable(**inputs)


def equal(found: Built, folder: Path, inputs: dict[str, Array]) -> Model:
    """The model that was read again; it and the first compute the same bits with the same weights."""
    write_ir(found.unit, folder)
    assert read_unit(folder) == found.unit
    again = read_ir(folder)
    assert again == found.model
    first = compile_model(again)
    numbers = dict(first.state)
    expected = run(found.model, numbers, inputs)
    for name, array in first(**inputs).items():
        assert array.dtype == expected[name].dtype
        np.testing.assert_array_equal(array, expected[name])
    return again


@pytest.mark.parametrize("name", ["llama", "qwen3", "mixtral"])
def test_models_are_read_back_and_compute_the_same_bits(name: str, tmp_path: Path) -> None:
    equal(tiny(name), tmp_path, {"token_ids": TOKENS})


def test_caches_are_states_that_begin_with_zeros(tmp_path: Path) -> None:
    found = tiny(settings=CompilationSettings(extents={"B": 1, "T": 1}, cached=8))
    again = equal(found, tmp_path, {"token_ids": TOKENS[:1, :1]})
    states = [item.name for item in found.unit.graph.states]
    assert states == [item.variable.name for item in found.model.graph.updates]
    assert again.data is not None
    assert states
    assert not any(np.any(again.data[name]) for name in states)


def test_tables_are_built_again_and_weights_lie_beside_the_unit(tmp_path: Path) -> None:
    found = tiny(tie=True)
    numbers = compile_model(found.model, seed=5).state
    files = write_ir(found.unit, tmp_path, numbers)
    assert files[-1].name == "numbers.safetensors"
    again = read_ir(tmp_path)
    assert again.data is not None
    assert set(again.data) == set(numbers)
    (table,) = found.unit.graph.built
    angles = np.outer(np.arange(16), 10000.0 ** (-np.arange(0, 8, 2) / 8))
    np.testing.assert_allclose(
        again.data[table.name], np.stack([np.cos(angles), np.sin(angles)], -1), atol=1e-15
    )
    for item in found.compiled.weights:
        np.testing.assert_array_equal(again.data[item.tensor.name], numbers[item.tensor.name])


def test_the_graph_with_gradients_is_read_back(tmp_path: Path) -> None:
    found = tiny()
    trained = differentiate(found.instance)
    unit = module_to_ir(found.compiled, found.instance, trained=trained)
    write_ir(unit, tmp_path)
    assert read_unit(tmp_path) == unit
    assert read_ir(tmp_path, training=True) == trained.model
    assert unit.training is not None
    assert unit.training.graph.seeds == {"logits": "d_logits"}
    assert unit.training.graph.gradients == {**trained.gradients, **trained.input_gradients}


def test_the_same_text_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_ir(tiny().unit, tmp_path / name)
    for file in sorted((tmp_path / "a").iterdir()):
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    assert is_unit(tmp_path / "a")
    assert not is_unit(tmp_path)


def test_the_digest_follows_what_is_computed_and_not_where_it_is_written(tmp_path: Path) -> None:
    text = (
        "module M():\n  forward:\n    in: x: [B, 4]\n    out: y: [B, 4]\n    graph:\n      x -> relu() -> y\n"
    )
    units = [
        built_text(tmp_path, item).unit for item in (text, f"# more\n\n{text}", text.replace("relu", "silu"))
    ]
    first, moved, other = (item.metadata.digest for item in units)
    assert first == moved != other
    assert units[0].graph.nodes[0].source != units[1].graph.nodes[0].source


def test_what_gives_no_graph_is_refused(tmp_path: Path) -> None:
    found = tiny()
    with pytest.raises(InputError, match="'Llama' has no graph"):
        module_to_ir(Compiled(None, (), (), {}, ()), found.instance)


# --- symbols ----------------------------------------------------------------------------------------------------

NAMES = ("B", "T", "n")


@st.composite
def extents(draw: st.DrawFn) -> Extent:
    """An expression of three symbols."""
    found: list[Extent] = [dim.symbol(name, 100, 1) for name in NAMES] + [draw(st.integers(0, 9))]
    for _ in range(draw(st.integers(0, 5))):
        left, right = draw(st.sampled_from(found)), draw(st.sampled_from(found))
        operation = draw(
            st.sampled_from(
                [
                    dim.add,
                    dim.sub,
                    dim.mul,
                    dim.smaller,
                    dim.larger,
                    dim.floor_divide,
                    dim.ceil_divide,
                    dim.remainder,
                ]
            )
        )
        if operation in (dim.floor_divide, dim.ceil_divide, dim.remainder):
            right = dim.larger(right, 1)
        found.append(operation(left, right))
        if draw(st.booleans()):
            found.append(dim.choose(dim.less(left, right), found[-1], right))
    return found[-1]


@given(items=st.lists(extents(), max_size=4), known=st.tuples(*[st.integers(1, 100)] * 3))
@settings(deadline=None)
def test_extents_are_read_back_and_mean_the_same_numbers(items: list[Extent], known: tuple[int, ...]) -> None:
    table = SymbolTable()
    ids = table.shape(items)
    assert SymbolValues(table.symbols).shape(ids) == tuple(items)
    values = dict(zip(NAMES, known, strict=True))
    plain = evaluator([_plain(item) for item in table.symbols], values)
    found = [item if item >= 0 else plain[-item - 1] for item in ids]
    assert found == [dim.substitute(item, dict(values)) for item in items]


def _plain(entry: Any) -> dict[str, Any]:
    return {
        name: getattr(entry, name) for name in ("kind", "text", "low", "high", "value", "terms", "operands")
    }


# --- contents ---------------------------------------------------------------------------------------------------

MARKED = """
    module Inner(d: int):
      params:
        w: [d, d] @frozen
      forward:
        in: x: [B, d]
        out: y: [B, d]
        graph:
          (x, w) -> matmul(transpose=NT) -> h1_out @hook(AfterProjection, mode=modify)
          h1_out -> silu() -> h2_out
          h2_out -> relu() -> free
          free -> y
        save: [x, h*_out]
        recompute: [free, h2_out]

    model M(d: int = 4, n: int = 2):
      params:
        blocks: [n] x Inner(d)
        head: [d, d]
        out_head: tied_to(head)
        extra: [d]?
      forward:
        in: x: [B, d]
        out: z: [B, d]
        graph:
          x -> StackedBlocks(blocks, n) -> y
          y -> relu() -> kept @memory(offload)
          (kept, out_head) -> matmul(transpose=NT) -> z
"""


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The files of a model with annotations."""
    folder = tmp_path_factory.mktemp("marked")
    return written(built_text(folder, MARKED).unit, folder / "ir")


def test_memory_modes_follow_the_ladder(marked: dict[str, Any]) -> None:
    graph = marked["graph"]
    modes = {item["path"]: item["memory"] for item in (*graph["inputs"], *graph["intermediates"])}
    assert modes["x"] == "save"
    assert modes["blocks[1].h1_out"] == modes["blocks[1].h2_out"] == "save"
    assert modes["blocks[1].free"] == "recompute"
    assert modes["kept"] == "offload"
    assert modes["z"] == "temporary"
    assert set(graph["recompute"]) == {"blocks.0.free", "blocks.1.free"} - set(graph["save"])
    fields = {item["name"] for item in marked["schedule"]["activation_layout"]["fields"]}
    assert {"blocks.0.h1_out", "blocks.1.h2_out", "kept"} <= fields


def test_nodes_know_their_layer_their_line_and_their_annotations(marked: dict[str, Any]) -> None:
    nodes = {item["path"]: item for item in marked["graph"]["nodes"]}
    product = nodes["blocks[1].h1_out"]
    assert (product["op"], product["primitive"], product["layer"]) == ("llm.matmul", "matmul", 1)
    lines = MARKED.split("\n")
    assert "matmul(transpose=NT) -> h1_out" in lines[product["source"]["line"] - 1]
    (note,) = product["annotations"]
    assert (note["name"], note["arguments"]["mode"]) == ("hook", "modify")
    assert "layer" not in nodes["z"]
    hooks = [(item["point"], item["layer"], item["node"]) for item in marked["metadata"]["hooks"]]
    assert hooks == [
        ("AfterProjection", 0, nodes["blocks[0].h1_out"]["id"]),
        ("AfterProjection", 1, product["id"]),
    ]
    assert [item["hook"] for item in marked["schedule"]["ops"] if "hook" in item] == ["AfterProjection"] * 2


def test_parameters_without_storage_are_told(marked: dict[str, Any]) -> None:
    params = {item["path"]: item for item in marked["graph"]["params"]}
    assert params["extra"]["is_none"]
    assert params["extra"]["optional"]
    assert params["out_head"]["tied_to"] == "head"
    assert params["out_head"]["name"] == "head"
    assert "trainable" not in params["blocks[0].w"]
    assert params["head"]["trainable"]
    assert marked["metadata"]["parameters"] == 3 * 16
    assert marked["metadata"]["trainable"] == 16


def test_second_names_are_aliases(marked: dict[str, Any]) -> None:
    aliases = {item["path"]: item["tensor"] for item in marked["graph"]["aliases"]}
    assert aliases["blocks[0].y"] == "blocks.0.free"
    assert aliases["blocks[1].x"] == "blocks.0.free"
    assert aliases["y"] == "blocks.1.free"


def test_edges_lead_from_makers_to_readers(marked: dict[str, Any]) -> None:
    graph = marked["graph"]
    made = {"x": (None, 0)}
    for node in graph["nodes"]:
        made |= {name: (node["id"], slot) for slot, name in enumerate(node["outputs"])}
    read = [(node["id"], slot, name) for node in graph["nodes"] for slot, name in enumerate(node["inputs"])]
    read += [(None, slot, name) for slot, name in enumerate(graph["outputs"])]
    expected = {(*made[name], node, slot) for node, slot, name in read if name in made}
    found = {
        (item["source"]["node"], item["source"]["slot"], item["dest"]["node"], item["dest"]["slot"])
        for item in graph["edges"]
    }
    assert found == expected


def test_casts_are_listed(tmp_path: Path) -> None:
    text = """
        module M():
          forward:
            in: x: [B, 4, fp32]
            out: y: [B, 4, fp32]
            graph:
              x -> relu() -> h @dtype(fp16)
              h -> convert_dtype(dtype=fp32) -> y
    """
    found = built_text(tmp_path, text)
    casts = [(item.found, item.given) for item in found.unit.graph.casts]
    assert casts == [("fp32", "fp16"), ("fp16", "fp32")]
    equal(found, tmp_path / "ir", {"x": np.ones((2, 4), np.float32)})


@pytest.mark.parametrize(
    ("written_as", "made_as"),
    [
        ("module Inner(d: int):\n      @checkpoint(full, preserve=[h2_out])", "Inner(d)"),
        ("module Inner(d: int):", "Inner(d) @checkpoint(preserve=[h2_out])"),
        (
            "module Inner(d: int):\n      @checkpoint(none)",
            "Inner(d) @checkpoint(full, preserve=[h2_out])",
        ),
    ],
)
def test_checkpoints_save_what_flows_in_and_compute_the_rest_again(
    written_as: str, made_as: str, tmp_path: Path
) -> None:
    text = MARKED.replace("module Inner(d: int):", written_as).replace("x Inner(d)", f"x {made_as}")
    graph = built_text(tmp_path, text).unit.graph
    modes = {item.path: item.memory for item in (*graph.inputs, *graph.intermediates)}
    assert modes["x"] == modes["blocks[1].h2_out"] == modes["blocks[0].free"] == "save"
    assert modes["blocks[1].h1_out"] == modes["blocks[1].free"] == "recompute"
    assert modes["kept"] == "offload"


def test_sizes_of_the_files_follow_the_layers(tmp_path: Path) -> None:
    sizes = []
    for layers in (2, 4, 6):
        files = write_ir(tiny(n_layers=layers).unit, tmp_path / str(layers))
        sizes.append(sum(len(json.loads(item.read_text()).get("nodes", [])) for item in files))
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] == 2 * (sizes[0] - 4) // TINY["n_layers"]


def test_a_unit_written_over_another_keeps_nothing_of_it(tmp_path: Path) -> None:
    """Weights and gradients of the first would be read as parts of the second."""
    first, second = tiny(), tiny(settings=CompilationSettings(extents={"B": 1}, cached=8))
    numbers = dict(compile_model(first.model).state)
    trained = differentiate(first.instance, CompilationSettings())
    write_ir(module_to_ir(first.compiled, first.instance, trained=trained), tmp_path, numbers)
    assert len(list(tmp_path.iterdir())) == 8
    files = write_ir(second.unit, tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(files)
