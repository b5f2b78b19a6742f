"""Every operation that a file may contain, written as the public compiler writes it and judged by torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.bridge.aten.nodes import AtenSchema
from lamella.bridge.aten.table import DROP, REFUSE, SIZE, find_schema, overloads, rows
from lamella.bridge.nac_to_graph import nac_to_graph
from lamella.graph.nodes import Tensor
from lamella.lang.nac import parse, write
from lamella.lang.nac.nodes import V1_6, V1_8
from lamella.lang.nac.operations import READABLE_NAMES
from tests.support.bridge.aten.cases import CASES, DRAWN, PLAIN, SIGNED
from tests.support.bridge.aten.elements import single
from tests.support.bridge.aten.judge import ROUGH, Judged, agree, array_of, element_of, flat, overload
from tests.support.bridge.nac_compiler import Compiler, Result, Word
from tests.support.judges.aten import torch

DRAWS = 3
UNFIT = (RuntimeError, IndexError, TypeError, NotImplementedError, ValueError)
UNJUDGED = re.compile(r"empty|efficient_attention")
"""What an empty tensor holds nobody knows; the other is computed on other devices only."""
LOSSY = frozenset({"masked_fill", "rsub"})
"""Operations that lose something on their way into a file; they are judged by what is left of them."""


def computed() -> list[str]:
    """The overloads that we compute, without those that nobody can judge."""
    return [
        name
        for name, row in rows().items()
        if row.schema.operator not in (DROP, SIZE, REFUSE) and not UNJUDGED.search(name)
    ]


def encode(compiler: Compiler, value: Any) -> Any:
    """A value of torch as an argument."""
    if isinstance(value, torch.Tensor):
        return compiler.input(array_of(value))
    if isinstance(value, torch.dtype | torch.device):
        return Word(str(value).removeprefix("torch."))
    return [encode(compiler, item) for item in value] if isinstance(value, list) else value


def split(name: str, given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional arguments up to the last that is not its default, and keywords: what torch hands to a graph."""
    args: list[Any] = []
    keywords: dict[str, Any] = {}
    last = 0
    for item in overload(name)._schema.arguments:
        if item.kwarg_only:
            keywords |= {item.name: given[item.name]} if item.name in given else {}
            continue
        args.append(given.get(item.name, item.default_value))
        if item.name in given and not _is_default(given[item.name], item):
            last = len(args)
    return args[:last], keywords


def _is_default(value: Any, item: Any) -> bool:
    same = type(value) is type(item.default_value) and not isinstance(value, torch.Tensor)
    return bool(item.has_default_value() and same and value == item.default_value)


def judge(name: str, given: Mapping[str, Any], version: str) -> bool:
    """See that a file with one call gives what torch gives; False where torch refuses it."""
    stem = name.split(".")[1]
    if stem in LOSSY:
        given = {key: item for key, item in given.items() if key != "alpha"}
    try:
        expected = overload(name)(**given)
        if stem == "masked_fill":
            expected = torch.where(given["mask"], given["value"], given["self"])
    except UNFIT:
        return False
    compiler = Compiler(version)
    args, keywords = split(name, given)
    result = compiler.call(
        name,
        [encode(compiler, item) for item in args],
        {key: encode(compiler, item) for key, item in keywords.items()},
    )
    wanted = list(expected) if isinstance(expected, list | tuple) else [expected]
    how = rows()[name].how
    if how in DRAWN:
        compare_drawn(run(compiler, [result]), wanted, Judged(name, given))
        return True
    whole = how in SIGNED and len(wanted) > 1
    if isinstance(expected, list) or whole:
        outputs = [compiler.raw("getitem", [result, place]) for place in range(len(wanted))]
    else:
        # Compilers leave `getitem(x, 0)` out, so that a tuple stands for its first result.
        place = next(place for place, item in enumerate(wanted) if item is not None)
        outputs = [compiler.raw("getitem", [result, place]) if place else result]
        wanted = [wanted[place]]
    if whole:
        compare_factors(stem, run(compiler, outputs), wanted, next(iter(given.values())))
    else:
        run_and_compare(compiler, outputs, wanted, ROUGH.get(name, 0.0))
    return True


def compare_drawn(found: list[Array], wanted: list[Any], direct: Judged) -> None:
    """See that what a file draws has torch's shape and type, and the numbers of a graph that no file was made of."""
    (actual,), (tensor,) = found, wanted
    (result,) = flat(direct.result)
    assert isinstance(result, Tensor)
    assert (result.element, actual.shape) == (element_of(tensor.dtype), tensor.shape)
    same = direct.run()[1][result.name]
    assert actual.dtype == same.dtype
    np.testing.assert_array_equal(actual, same)


def compare_factors(stem: str, found: list[Array], wanted: list[Any], matrix: Any) -> None:
    """See that values are those of torch, and that vectors, whose signs are free, rebuild the matrix orthonormally."""
    for actual, tensor in zip(found, wanted, strict=True):
        assert actual.shape == tensor.shape
        assert actual.dtype == array_of(tensor).dtype
    if "eigh" in stem:
        values, left = found
        agree(values, wanted[0])
        right = left.mT
    else:
        left, values, right = found
        agree(values, wanted[1])
        right = right.mT if stem == "svd" else right
    count = values.shape[-1]
    agree(left[..., :count] * values[..., None, :] @ right[..., :count, :], matrix)
    for vectors in (left.mT @ left, right @ right.mT):
        agree(vectors, torch.eye(vectors.shape[-1], dtype=matrix.dtype).expand(vectors.shape))


def run_and_compare(compiler: Compiler, outputs: list[Result], wanted: list[Any], rough: float = 0.0) -> None:
    """See that a program gives these tensors; it goes through its bytes where they can be written."""
    for actual, tensor in zip(run(compiler, outputs), wanted, strict=True):
        agree(actual, tensor, rough)


def run(compiler: Compiler, outputs: list[Result]) -> list[Array]:
    """What a program gives."""
    file = compiler.finish(*outputs)
    if compiler.version == V1_6:
        file = parse(write(file), "program.nac").file
    return list(compile_model(nac_to_graph(file).model)(**compiler.arrays).values())


def drawn(name: str, random: Random) -> dict[str, Any] | None:
    """Operands for an overload; None where what was drawn leaves no choice for them."""
    row = rows()[name]
    draw = CASES.get(row.how) or PLAIN.get(row.schema.operator) or single
    try:
        return draw(random, row.schema)
    except ValueError:
        return None


@pytest.mark.parametrize("name", computed())
def test_every_overload_is_read(name: str) -> None:
    random = Random(name)
    done = 0
    for number in range(DRAWS * 8):
        given = drawn(name, random)
        done += given is not None and judge(name, given, V1_6 if number % 2 else V1_8)
        if done == DRAWS:
            break
    assert done


def test_known_names_are_read() -> None:
    lost = [name for name in READABLE_NAMES - {"getitem"} if not _schemas(name)]
    assert not lost


def _schemas(name: str) -> tuple[AtenSchema, ...]:
    found = find_schema(name)
    return overloads(name) if found is None else (found,)
