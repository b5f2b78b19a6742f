"""Mutated ONNX files: any bytes give a model and clean findings, in time and memory that grow with the bytes alone."""

from __future__ import annotations

import os
import time
import traceback
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from lamella.backend.reference import compile_model
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.bridge.onnx.arrays import ExternalData
from lamella.bridge.onnx.check import check_model, schemas_of
from lamella.bridge.onnx.nodes import (
    Attribute,
    AttributeKind,
    AttributeValue,
    Graph,
    Model,
    Node,
    TensorProto,
    ValueInfo,
)
from lamella.bridge.onnx.read import decode_model
from lamella.bridge.onnx.write import encode_model
from lamella.bridge.onnx_to_graph import onnx_to_graph
from lamella.bridge.onnx_to_graph.adapters import ADAPTERS
from tests.support.bridge.onnx_models import branching_model, function_model, small_model
from tests.support.watch import watched

NEW = str(time.time_ns()) if "LAMELLA_FUZZ" in os.environ else "7"
SEED = os.environ.get("LAMELLA_SEED", NEW)
CASE = os.environ.get("LAMELLA_CASE", "")
SHARES = 4
SECONDS, MEBIBYTES = 2, 300
MOST_TOLD = 5
SMALLER = 2
"""One of so many mutations is made in `make test`: each model that stays right is also translated."""
ATTENTION = Path(__file__).parents[2] / "examples" / "onnx" / "attention.onnx"
OPERATORS = sorted(ADAPTERS)
NAMES = ("x", "wqkv", "bqkv", "wo", "shape", "q", "root", "heads", "")
LIMITS = Limits(max_total_bytes=1 << 26, max_steps=2000)
NUMBERS = (0, 1, 127, 128, 255)


def _seeds() -> list[bytes]:
    made = (small_model, branching_model, function_model)
    return [ATTENTION.read_bytes(), *(bytes(make().SerializeToString()) for make in made)]


def _mutate(seeds: list[bytes], random: Random) -> bytes:
    data = bytearray(random.choice(seeds))
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(data))
        match random.randrange(5):
            case 0:
                data[place] = random.choice((random.randrange(256), *NUMBERS))
            case 1:
                del data[place : place + random.randint(1, 8)]
            case 2:
                data[place:place] = random.randbytes(random.randint(1, 8))
            case 3:
                other = random.choice(seeds)
                start = random.randrange(len(other))
                data[place:place] = other[start : start + random.randint(1, 60)]
            case _:
                data[place] ^= 1 << random.randrange(8)
        if not data:
            data = bytearray(b"\0")
    return bytes(data)


def _walk(data: bytes) -> str:
    """How far a file gets, and that its graph runs; only our own errors may say that it goes no further."""
    try:
        model = decode_model(data)
    except LamellaError:
        return "unread"
    if errors(check_model(model, ExternalData(None))):
        return "wrong"
    try:
        graph = onnx_to_graph(model, limits=LIMITS)
    except LamellaError:
        return "untranslated"
    try:
        executable = compile_model(graph, limits=LIMITS)
        executable.draws = True
        executable()
    except (LamellaError, InputError):
        pass
    return "translated"


def _other(model: Model, random: Random) -> Model:
    """A model with other operators, attributes or inputs: bytes that are right, and say what cannot be."""
    nodes = list(model.graph.nodes)
    for _ in range(random.randint(1, 2)):
        place = random.randrange(len(nodes))
        node = nodes[place]
        match random.randrange(3):
            case 0:
                domain, name = random.choice(OPERATORS)
                schema = schemas_of(domain, name)
                kinds = schema[-1].attributes.items() if schema else ()
                given = tuple(_attribute(key, kind, random) for key, kind in kinds if random.random() < 0.6)
                most = min(schema[-1].inputs[1], 5) if schema else 3
                inputs = tuple(random.choice(NAMES) for _ in range(random.randint(1, max(most, 1))))
                nodes[place] = replace(node, op_type=name, domain=domain, attributes=given, inputs=inputs)
            case 1:
                changed = tuple(_attribute(item.name, item.kind, random) for item in node.attributes)
                nodes[place] = replace(node, attributes=changed)
            case _:
                nodes[place] = replace(node, inputs=tuple(random.choice(NAMES) for _ in node.inputs))
    return replace(model, graph=replace(model.graph, nodes=tuple(nodes)))


def _attribute(name: str, kind: int, random: Random) -> Attribute:
    def number() -> int:
        return random.choice((-(1 << 63), -7, -2, -1, 0, 1, 2, 3, 8, 1 << 31, (1 << 63) - 1))

    values: dict[int, AttributeValue] = {
        AttributeKind.INT: number(),
        AttributeKind.FLOAT: random.choice((0.0, -1.0, float("nan"), float("inf"), 0.5)),
        AttributeKind.STRING: random.choice((b"", b"linear", b"SAME_UPPER", b"none", b"\xff")),
        AttributeKind.INTS: tuple(number() for _ in range(random.randrange(6))),
        AttributeKind.FLOATS: tuple(float(number()) for _ in range(random.randrange(4))),
        AttributeKind.STRINGS: tuple(b"Tanh" for _ in range(random.randrange(4))),
        AttributeKind.TENSOR: TensorProto("t", random.randrange(12), (number(),), b"12345678"),
        AttributeKind.GRAPH: Graph("inner", (Node("Relu", ("x",), ("in",)),), (), (ValueInfo("in"),)),
    }
    if kind not in values:
        return Attribute(name, AttributeKind.INT, number())
    return Attribute(name, kind, values[kind])


@pytest.mark.parametrize("share", range(SHARES))
def test_models_that_say_what_cannot_be(share: int, mutations: int) -> None:
    """Right bytes with operators, attributes and inputs that do not fit each other."""
    model, failures, seen = decode_model(ATTENTION.read_bytes()), dict[str, str](), set[str]()
    count = mutations if "LAMELLA_FUZZ" in os.environ else mutations // SMALLER
    numbers = range(share, count, SHARES) if not CASE else [int(CASE)] * (share == 0)
    for number in numbers:
        data = encode_model(_other(model, Random(f"{SEED}:{number}")))
        try:
            with watched(SECONDS, MEBIBYTES):
                seen.add(_walk(data))
        except Exception as problem:  # noqa: BLE001  any kind of exception is what is looked for
            told = "".join(traceback.format_exception(problem)[-6:])
            failures.setdefault(told[-200:], f"LAMELLA_SEED={SEED} LAMELLA_CASE={number}\n{told}")
            if len(failures) >= MOST_TOLD:
                break
    assert not failures, "\n\n".join(failures.values())
    assert CASE or {"wrong", "untranslated"} <= seen


@pytest.mark.parametrize("share", range(SHARES))
def test_mutated_files(share: int, mutations: int) -> None:
    seeds, seen, failures = _seeds(), set[str](), dict[str, str]()
    count = mutations if "LAMELLA_FUZZ" in os.environ else mutations // SMALLER
    numbers = range(share, count, SHARES) if not CASE else [int(CASE)] * (share == 0)
    for number in numbers:
        data = _mutate(seeds, Random(f"{SEED}:{number}"))
        try:
            with watched(SECONDS, MEBIBYTES):
                seen.add(_walk(data))
        except Exception as problem:  # noqa: BLE001  any kind of exception is what is looked for
            told = "".join(traceback.format_exception(problem)[-6:])
            failures.setdefault(
                told[-300:], f"LAMELLA_SEED={SEED} LAMELLA_CASE={number}: {data.hex()}\n{told}"
            )
            if len(failures) >= MOST_TOLD:
                break
    assert not failures, "\n\n".join(failures.values())
    # Few of a small number are read and then wrong; impossible models, above, always are.
    assert CASE or {"unread", "translated"} <= seen
