"""Values from `config.json`: both spellings of transformers, the declared types, and back again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from lamella.bridge.hf_to_module import ReadConfig, find_architecture, read_config
from lamella.bridge.module_to_hf import write_config
from lamella.lang.module.instantiate.nodes import Known
from lamella.lang.module.nodes import Module
from tests.support.bridge.hf.folders import SIZES
from tests.support.bridge.hf.mappings import LLAMA_CONFIG, read_model

PARAMS = """d_model: int = 64, n_layers: int = 2, num_heads: int = 4, num_kv_heads: int = 4, d_ff: int = 128,
  vocab_size: int = 100, max_seq: int = 128, eps: float = 1e-5, rope_theta: float = 10000.0, tie: bool = false"""
LLAMA = read_model(config=LLAMA_CONFIG, params=PARAMS)


def read(model: Module, config: dict[str, object]) -> ReadConfig:
    """What a config says of a model."""
    return read_config(model.hf_config or (), model.params or (), config)


def one(declared: str, found: object, key: str = "key") -> tuple[object, str]:
    """The value of one parameter from a config with one key, and the messages."""
    model = read_model(config=f"    param_mapping:\n      p: {key}", params=f"p: {declared}")
    values, findings = read(model, {"key": found})
    known = values.get("p")
    return ("absent" if known is None else known.value), "\n".join(
        f"{item.code} {item.message} {item.hint}" for item in findings
    )


def test_a_config_of_transformers_gives_every_value(tmp_path: Path) -> None:
    theta = {"rope_type": "default", "rope_theta": 5e5}
    made = transformers.LlamaConfig(**SIZES, rms_norm_eps=1e-6, rope_parameters=theta)
    made.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    values, findings = read(LLAMA, config)
    assert not findings
    assert {name: known.value for name, known in values.items()} == {
        **{"d_model": 32, "n_layers": 3, "num_heads": 4, "num_kv_heads": 2, "d_ff": 48, "vocab_size": 64},
        **{"max_seq": 64, "eps": 1e-6, "rope_theta": 5e5, "tie": False},
    }
    assert values["d_model"].source == "config.json 'hidden_size'"
    assert values["rope_theta"].source == "config.json 'rope_parameters.rope_theta'"


def test_older_files_say_the_same_at_the_top() -> None:
    old: dict[str, object] = {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 8.0}}
    new: dict[str, object] = {"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 8.0}}
    texts = {"theta": "rope_parameters.rope_theta", "kind": "rope_parameters.rope_type"}
    texts |= {"factor": "rope_scaling.factor"}
    entries = "\n".join(f"      {name}: {key}" for name, key in texts.items())
    model = read_model(
        config=f"    param_mapping:\n{entries}",
        params='theta: float = 1.0, kind: string = "default", factor: float = 1.0',
    )
    wanted = {"theta": 5e5, "kind": "linear", "factor": 8.0}
    for config in (old, new):
        assert {name: known.value for name, known in read(model, config).values.items()} == wanted
    assert not read(model, {"rope_scaling": None}).values


def test_nested_values_come_before_those_at_the_top() -> None:
    config: dict[str, object] = {"rope_theta": 1.0, "rope_parameters": {"rope_theta": 2.0}}
    assert read(LLAMA, config).values["rope_theta"].value == 2.0


def test_a_missing_key_leaves_the_default() -> None:
    assert read(LLAMA, {}) == ReadConfig({}, ())
    assert one("int = 3", None) == ("absent", "")
    assert one("int? = 3", None) == (None, "")


def test_alternatives_are_tried_in_order() -> None:
    text = "    param_mapping:\n      p: first_of(num_local_experts, moe.count, num_experts)"
    model = read_model(config=text, params="p: int = 0")
    cases: list[tuple[dict[str, object], int]] = [
        ({"num_local_experts": 4, "num_experts": 5}, 4),
        ({"num_local_experts": None, "num_experts": 5}, 5),
        ({"moe": {"count": 6}, "num_experts": 5}, 6),
    ]
    for config, wanted in cases:
        assert read(model, config).values["p"].value == wanted


RIGHT = [
    *(("int = 1", 7, 7), ("int = -1", -7, -7), ("float = 1.0", 2, 2.0), ("float", 1e-5, 1e-5)),
    *(("bool = true", False, False), ('string = ""', "x", "x"), ("[int]", [1, 2], (1, 2))),
    *(("enum(silu, gelu) = silu", "gelu", "gelu"), ("dtype", "bfloat16", "bf16")),
    *(("dtype", "torch.float32", "fp32"), ("[string]", ["a"], ("a",)), ("int?", 3, 3)),
]


@pytest.mark.parametrize(("declared", "found", "value"), RIGHT)
def test_values_have_the_declared_type(declared: str, found: object, value: object) -> None:
    assert one(declared, found) == (value, "")


WRONG = [
    ("int = 1", "4096", "'key' in config.json is \"4096\", an integer is needed write it without quotes"),
    ("int = 1", -3, "is -3, a number that is not negative is needed"),
    ("int = 1", 2.0, "is 2.0, an integer"),
    ("int = 1", True, "is true, an integer"),
    ("int = 1", 10**30, "is a 100-bit number, a 64-bit integer"),
    ("int = 1", [1], "is a list, an integer"),
    ("int?", {"a": 1}, "is an object, an integer"),
    ("float = 1.0", math.nan, "is NaN, a finite number"),
    ("float = 1.0", -math.inf, "is -Infinity, a finite number"),
    ("float = 1.0", 10**400, "a finite number"),
    ("float = 1.0", "1e-5", "a number is needed write it without quotes"),
    ("float = 1.0", True, "is true, a number"),
    ("bool = true", 1, "is 1, true or false"),
    ("bool = true", "false", "true or false"),
    ('string = ""', 3, "is 3, a text"),
    ("[int]", 3, "is 3, a list of integers"),
    ("[int]", [1, "2"], "an integer"),
    ("enum(silu, gelu) = silu", "tanh", 'is "tanh", one of silu, gelu'),
    ("dtype", "float7", "the name of an element type"),
]


@pytest.mark.parametrize(("declared", "found", "why"), WRONG)
def test_wrong_values_are_named(declared: str, found: object, why: str) -> None:
    value, message = one(declared, found)
    assert value == "absent"
    assert message.startswith("E115")
    assert why in message


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
TYPES = {"int": int, "float": float, "bool": bool, "string": str}


@given(st.sampled_from(sorted(TYPES)), JSON)
def test_any_value_is_of_the_type_or_refused(declared: str, found: object) -> None:
    value, message = one(declared, found)
    assert type(value) is TYPES[declared] or value == "absent"
    assert (value == "absent" and found is not None) == bool(message) or value == found == "absent"


def test_entries_name_parameters_and_keys() -> None:
    entries = ("d_modle: a", "d_ff: a + b", "eps: a", "eps: b")
    text = "\n".join(f"      {item}" for item in entries)
    model = read_model(config=f"    param_mapping:\n{text}", params=PARAMS)
    found = [f"{item.code} {item.message} {item.hint}" for item in read(model, {}).findings]
    assert found[0].startswith(
        "E010 param_mapping: there is no config parameter 'd_modle' did you mean 'd_model'?"
    )
    assert found[1].startswith("E010 param_mapping: 'd_ff' is mapped to no key of config.json")
    assert found[2].startswith("E010 'eps' is mapped twice")


def test_the_architecture_is_a_name_and_nothing_else() -> None:
    assert find_architecture({"architectures": ["A", 3, "B"], "model_type": "c"}) == ("A", "B")
    assert find_architecture({"architectures": [], "model_type": "c"}) == ("c",)
    assert find_architecture({"architectures": "os.system", "model_type": ["x"]}) == ()


# --- and back -------------------------------------------------------------------------------------------------


def test_a_config_that_is_read_is_written_unchanged(tmp_path: Path) -> None:
    transformers.LlamaConfig(**SIZES).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    old = {key: value for key, value in config.items() if key != "rope_parameters"} | {"rope_theta": 10000}
    for given_config in (config, old):
        values = read(LLAMA, given_config).values
        assert write_config(LLAMA.hf_config or (), values, given_config) == given_config
        assert given_config is not write_config(LLAMA.hf_config or (), values, given_config)


def test_changed_values_go_where_the_old_ones_stood() -> None:
    source: dict[str, object] = {
        "hidden_size": 32,
        "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"},
        "mine": [1],
    }
    values = {"d_model": Known(48, "--set"), "rope_theta": Known(5e5, "--set"), "eps": Known(1e-5, "default")}
    values |= {"d_ff": Known(96, "argument")}
    assert write_config(LLAMA.hf_config or (), values, source) == {
        "hidden_size": 48,
        "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"},
        "mine": [1],
        "intermediate_size": 96,
    }
    assert source["hidden_size"] == 32


def test_a_new_config_is_one_that_transformers_reads(tmp_path: Path) -> None:
    numbers = {"d_model": 32, "n_layers": 3, "num_heads": 4, "num_kv_heads": 2, "d_ff": 48, "eps": 1e-6}
    values = {name: Known(value, "default") for name, value in numbers.items()}
    values |= {"rope_theta": Known(5e5, "default"), "tie": Known(True, "--set")}
    config = write_config(LLAMA.hf_config or (), values)
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = transformers.AutoConfig.from_pretrained(tmp_path)
    assert isinstance(found, transformers.LlamaConfig)
    assert (found.hidden_size, found.num_key_value_heads, found.intermediate_size) == (32, 2, 48)
    assert (found.rms_norm_eps, found.tie_word_embeddings) == (1e-6, True)
    assert found.to_dict()["rope_parameters"]["rope_theta"] == 5e5
    assert {name: known.value for name, known in read(LLAMA, config).values.items()} == {
        name: known.value for name, known in values.items()
    }
