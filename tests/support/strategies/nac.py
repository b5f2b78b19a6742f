"""NAC files as nodes: `files` can be written and are right in nothing else, `sound_files` are right in all."""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from lamella.lang.nac import nodes as n

T = TypeVar("T")
CODES = "QKVMBWTPASifbsc"
ITEM_SIZES = (4, 8, 2, 2, 4, 8, 2, 1, 1, 1)
"""Bytes of an element, by type code."""
VARIANTS = ((0, 0), (2, 0), (2, 1), (2, 2), (2, 3), (3, 0), (3, 1), (6, 0), (6, 9), (7, 50))
"""System operations that can be written, with a variant."""


@cache
def texts(size: int = 12) -> SearchStrategy[str]:
    """Unicode without NUL, few bytes."""
    alphabet = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
    return st.text(alphabet, max_size=size)


@cache
def u16() -> SearchStrategy[int]:
    """Numbers of 16 bits, small ones more often."""
    return st.one_of(st.integers(0, 9), st.integers(0, 65535))


@cache
def i16() -> SearchStrategy[int]:
    """Signed numbers of 16 bits, small ones more often."""
    return st.one_of(st.integers(-9, 9), st.integers(-32768, 32767))


@cache
def f32() -> SearchStrategy[float]:
    """Numbers that single precision holds; what is not a number is always the same object."""
    return st.floats(width=32).map(lambda value: math.nan if math.isnan(value) else value)


@cache
def f64() -> SearchStrategy[float]:
    """Numbers of double precision; what is not a number is always the same object."""
    return st.floats().map(lambda value: math.nan if math.isnan(value) else value)


@cache
def constants() -> SearchStrategy[n.Constant]:
    """Constants of every type."""
    kinds = n.ConstantType
    values: tuple[tuple[n.ConstantType, SearchStrategy[n.ConstantValue]], ...] = (
        (kinds.NULL, st.none()),
        (kinds.BOOL, st.booleans()),
        (kinds.INT64, st.integers(-(1 << 63), (1 << 63) - 1)),
        (kinds.FLOAT64, f64()),
        (kinds.STRING, texts()),
        (kinds.INT32_LIST, st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=4).map(tuple)),
        (kinds.FLOAT32_LIST, st.lists(f32(), max_size=4).map(tuple)),
    )
    return st.one_of(*(st.builds(n.Constant, u16(), st.just(kind), value) for kind, value in values))


@cache
def quantizations() -> SearchStrategy[n.Quantization]:
    """Every form of quantisation, with scales that need not fit."""
    scales = st.lists(f32(), max_size=4).map(lambda found: struct.pack(f"<{len(found)}f", *found))
    unscaled = st.builds(n.Unscaled, st.sampled_from([n.Method.NONE, n.Method.FP16]))
    return st.one_of(
        unscaled,
        st.builds(n.Int8Tensor, f32()),
        st.builds(n.Int8Channel, st.integers(0, 255), scales),
        st.builds(n.BlockFp8, u16(), shapes(), scales),
    )


@cache
def shapes() -> SearchStrategy[tuple[int, ...]]:
    """Shapes that need not fit anything."""
    return st.lists(st.integers(0, (1 << 32) - 1), max_size=4).map(tuple)


@cache
def tensors() -> SearchStrategy[n.Tensor]:
    """Tensors whose bytes need not fit their shape; now and then they are large."""
    data = st.one_of(st.binary(max_size=20), st.integers(4000, 5000).map(bytes))
    return st.builds(n.Tensor, u16(), st.integers(0, 255), shapes(), quantizations(), data)


@cache
def ticks() -> SearchStrategy[n.Tick]:
    """Ticks with commands that need not exist."""
    known = st.sampled_from([int(item) for item in n.Action])
    commands = st.builds(n.Command, st.one_of(known, st.integers(0, 255)), u16())
    return st.builds(n.Tick, u16(), st.lists(commands, max_size=3).map(tuple))


@st.composite
def instructions(draw: DrawFn, signatures: dict[int, str], outputs: int) -> n.Instruction:
    """An instruction that has as many fields as its operation and signature say."""
    if draw(st.booleans()):
        operation, variant = draw(st.sampled_from(VARIANTS))
        return _system(draw, operation, variant, outputs)
    variant = draw(st.sampled_from([*(item for item in signatures if item < 256), 0]))
    codes = signatures.get(variant, "") if variant else ""
    counted = any(code in "ASifbsc" for code in codes)
    given = tuple(draw(st.lists(i16(), max_size=4))) if counted else ()
    return n.Instruction(draw(st.integers(10, 255)), variant, given, _offsets(draw, len(codes)))


def _offsets(draw: DrawFn, count: int) -> tuple[int, ...]:
    return tuple(draw(i16()) for _ in range(count))


def _system(draw: DrawFn, operation: int, variant: int, outputs: int) -> n.Instruction:
    constants, offsets = {
        n.NONE: (0, 0),
        n.INPUT: (int(variant > 0), 0),
        n.OUTPUT: (0, outputs),
        n.CONTROL_FLOW: (2, 1),
        n.CONVERGENCE: (draw(st.integers(0, 3)), 1),
    }[operation]
    return n.Instruction(operation, variant, _offsets(draw, constants), _offsets(draw, offsets))


def many(items: SearchStrategy[T], size: int = 4) -> SearchStrategy[tuple[T, ...]]:
    """A few items."""
    return st.lists(items, max_size=size).map(tuple)


@cache
def headers() -> SearchStrategy[n.Header]:
    """Headers of version 1.6 with few outputs."""
    methods, outputs = st.sampled_from(n.Method), st.integers(0, 3)
    return st.builds(n.Header, st.just(n.V1_6), methods, st.booleans(), u16(), outputs, u16())


@st.composite
def files(draw: DrawFn) -> n.File:
    """Files that can be written as bytes of version 1.6."""
    header = draw(headers())
    signatures = draw(many(st.builds(n.Signature, u16(), st.text(CODES, max_size=5))))
    codes = {item.id: item.codes for item in signatures}
    return n.File(
        header=header,
        operations=draw(many(st.builds(n.Operation, u16(), texts()))),
        signatures=signatures,
        constants=draw(many(constants())),
        instructions=draw(many(instructions(codes, header.outputs), 8)),
        schedule=draw(many(ticks())),
        parameters=draw(many(st.builds(n.Parameter, u16(), texts()))),
        inputs=draw(many(st.builds(n.Input, u16(), texts()))),
        tensors=draw(many(tensors())) if header.internal else (),
        manifest=draw(st.binary(max_size=12)),
        orchestrator=draw(st.builds(n.Orchestrator, st.binary(max_size=12), many(constants()))),
        resources=draw(many(st.builds(n.Resource, texts(), st.binary(max_size=12)))),
    )


# --- files that are right -----------------------------------------------------------------------------------

SIGNATURES = ((1, "TT"), (2, "T"), (3, "Ti"), (4, "TS"), (5, "Tfb"), (6, "Tsc"))
CONSTANTS = (
    n.Constant(2, n.ConstantType.INT64, 1),
    n.Constant(3, n.ConstantType.INT32_LIST, (2, 3)),
    n.Constant(4, n.ConstantType.FLOAT64, 0.5),
    n.Constant(5, n.ConstantType.BOOL, True),
    n.Constant(6, n.ConstantType.STRING, "tanh"),
    n.Constant(7, n.ConstantType.NULL, None),
)
CALLS = (
    *((11, 1, ()), (12, 1, ()), (14, 2, ()), (16, 2, ()), (17, 4, (3,))),
    *((201, 3, (2,)), (202, 4, (3,)), (203, 5, (4, 5)), (204, 6, (6, 7))),
)
"""Operations that exist in `sound_files`, each with a signature and constants for it."""


@st.composite
def sound_files(draw: DrawFn) -> n.File:
    """Files of version 1.6 that nothing is wrong with: inputs, loads, operations on earlier results, one output."""
    internal = draw(st.booleans())
    inputs, loads = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    program = [*_inputs(inputs), *(n.Instruction(n.INPUT, 1, (1 + item,)) for item in range(loads))]
    for operation, variant, constants in draw(st.lists(st.sampled_from(CALLS), max_size=8)):
        codes = dict(SIGNATURES)[variant]
        program.append(n.Instruction(operation, variant, constants, _earlier(draw, codes, len(program))))
    results = draw(st.lists(st.integers(-len(program), -1), min_size=1, max_size=3))
    program.append(n.Instruction(n.OUTPUT, 0, (), tuple(results)))
    return n.File(
        header=n.Header(internal=internal, inputs=inputs, outputs=len(results), d_model=draw(u16())),
        operations=tuple(n.Operation(number, f"custom.op{number}") for number in range(201, 205)),
        signatures=tuple(n.Signature(number, codes) for number, codes in SIGNATURES),
        constants=CONSTANTS,
        instructions=tuple(program),
        schedule=draw(st.sampled_from([(), _schedule(program)])),
        parameters=tuple(n.Parameter(1 + item, f"layers.{item}.weight") for item in range(loads)),
        inputs=tuple(n.Input(item, f"x{item}") for item in range(inputs)),
        tensors=tuple(_sound_tensor(draw, 1 + item) for item in range(loads)) if internal else (),
        resources=draw(many(st.builds(n.Resource, st.just("vocab.json"), st.binary(max_size=12)), 1)),
    )


def _inputs(count: int) -> list[n.Instruction]:
    return [n.Instruction(n.INPUT)] * count


def _earlier(draw: DrawFn, codes: str, index: int) -> tuple[int, ...]:
    """Offsets to earlier results for tensors; constants come from field C."""
    return tuple(draw(st.integers(-index, -1)) if code in "QKVMBWTP" else 0 for code in codes)


def _sound_tensor(draw: DrawFn, parameter: int) -> n.Tensor:
    dtype = draw(st.integers(0, 9))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    size = ITEM_SIZES[dtype] * math.prod(shape)
    return n.Tensor(parameter, dtype, shape, n.Unscaled(), draw(st.binary(min_size=size, max_size=size)))


def _schedule(program: list[n.Instruction]) -> tuple[n.Tick, ...]:
    """Preload all parameters at once, save every result, and free both when nobody needs them any more."""
    last = {index: index for index, item in enumerate(program) if item.operation == n.INPUT and item.variant}
    loads = tuple(last)
    for index, item in enumerate(program):
        last.update({index + offset: index for offset in item.offsets if offset})
    outputs = {len(program) - 1 + offset for offset in program[-1].offsets}
    found: list[n.Tick] = []
    for index, item in enumerate(program):
        freed = [place for place in sorted(last) if last[place] == index - 1 and place not in outputs]
        kept = [place for place in freed if place in loads or program[place].operation != n.INPUT]
        saved = [index] if index in last and item.operation != n.INPUT else []
        preloaded = loads if index == 0 else ()
        commands = (
            *(n.Command(n.Action.FREE, place) for place in kept),
            *(n.Command(n.Action.SAVE_RESULT, place) for place in saved),
            *(n.Command(n.Action.PRELOAD, place) for place in preloaded),
        )
        if commands:
            found.append(n.Tick(index, commands))
    return tuple(found)
