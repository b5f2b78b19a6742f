"""Programs of the tensor language as nodes: right in syntax, and in nothing else."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lamella.base.source import Trivia
from lamella.lang.tensor import nodes as n
from lamella.lang.tensor.words import (
    AXIS_BUILTINS,
    BINARY,
    BINARY_MATH,
    CHECKS,
    COMPARISONS,
    EXTRA_ARITH,
    EXTRA_MATH,
    FORMS,
    MATH,
    MIXED_BUILTINS,
    OPERANDS,
    REDUCTIONS,
    SPMD_BUILTINS,
    STORE_FLAGS,
    TRANSPOSES,
    UNARY,
)
from tests.support.strategies.tensor_types import (
    coopmatrices,
    dictionaries,
    ends,
    integer_types,
    integers,
    memrefs,
    notes,
    numbers,
    tuples,
    types,
    values,
)

DEPTH = 2
CHECKED = st.sampled_from(("", *CHECKS))
FLAGS = st.sampled_from(("", *STORE_FLAGS))


# --- instructions that produce a value ----------------------------------------------------------------------


@cache
def index_or_sizes() -> SearchStrategy[n.IndexOrSize]:
    """Values and numbers."""
    return values() | integers()


@cache
def scalar_instructions() -> SearchStrategy[n.Instruction]:
    """What computes a scalar."""
    two, one = st.tuples(values(), values()), st.tuples(values())
    return st.one_of(
        st.builds(n.Constant, numbers(), types()),
        st.builds(n.Arith, st.sampled_from(BINARY), two, types()),
        st.builds(n.Arith, st.sampled_from(UNARY), one, types()),
        # behind a comparison, a scalar type is the operands' and read as bool
        st.builds(n.Compare, st.sampled_from(COMPARISONS), values(), values(), st.just(n.BOOL) | memrefs()),
        st.builds(n.Arith, st.sampled_from(EXTRA_ARITH), st.tuples(values(), values(), values()), types()),
        st.builds(n.Math, st.sampled_from([*MATH, *sorted({*EXTRA_MATH} - {*BINARY_MATH})]), one, types()),
        st.builds(n.Math, st.sampled_from(BINARY_MATH), two, types()),
        st.builds(n.Cast, values(), types()),
        st.builds(n.Builtin, st.sampled_from((*MIXED_BUILTINS, *SPMD_BUILTINS)), types()),
        st.builds(
            n.Builtin, st.sampled_from([f"{name}.{axis}" for name in AXIS_BUILTINS for axis in "yz"]), types()
        ),
        st.builds(n.SubgroupBroadcast, values(), values(), types()),
        st.builds(
            n.SubgroupOperation, st.sampled_from(REDUCTIONS), st.sampled_from(FORMS), values(), types()
        ),
    )


@cache
def memory_instructions() -> SearchStrategy[n.Instruction]:
    """What looks at memory, and cooperative matrices."""
    slices = st.builds(n.Slice, index_or_sizes(), st.just(0) | index_or_sizes())
    coop = coopmatrices()
    return st.one_of(
        st.builds(n.Load, values(), tuples(values(), 0, 3), types()),
        st.builds(n.SizeOf, values(), integers(), types()),
        st.builds(n.Alloca, memrefs(), st.none() | dictionaries()),
        st.builds(n.Subview, values(), tuples(slices, 0, 3), memrefs()),
        st.builds(n.Expand, values(), integers(), tuples(index_or_sizes(), 2, 4), memrefs()),
        st.builds(n.Fuse, values(), integers(), integers(), memrefs()),
        st.builds(n.CoopLoad, values(), values(), values(), coop, st.booleans(), CHECKED),
        st.builds(n.CoopMulAdd, values(), values(), values(), coop),
        st.builds(n.CoopScale, values(), values(), coop),
        st.builds(n.CoopConstruct, values(), coop),
        st.builds(n.CoopExtract, values(), integers(), types()),
        st.builds(n.CoopInsert, values(), values(), integers(), coop),
        st.builds(
            n.AtomicUpdate, st.sampled_from(REDUCTIONS), values(), values(), tuples(values(), 0, 3), types()
        ),
    )


# --- instructions that produce none -------------------------------------------------------------------------


@cache
def blas() -> SearchStrategy[n.Blas]:
    """Linear algebra."""
    return st.sampled_from(sorted(TRANSPOSES)).flatmap(
        lambda function: st.builds(
            n.Blas,
            st.just(function),
            tuples(values(), OPERANDS[function], OPERANDS[function]),
            tuples(st.booleans(), TRANSPOSES[function], TRANSPOSES[function]),
            st.booleans(),
            integers() if function == "cumsum" else st.none(),
        )
    )


@cache
def effects() -> SearchStrategy[n.Instruction]:
    """What produces no value and holds no region."""
    return st.one_of(
        blas(),
        st.builds(n.Store, values(), values(), tuples(values(), 0, 3), FLAGS),
        st.builds(n.CoopStore, values(), values(), values(), values(), CHECKED, FLAGS),
        st.builds(n.Barrier, st.booleans(), st.booleans()),
        st.builds(n.Yield, tuples(values(), 0, 3)),
        st.builds(n.LifetimeStop, values()),
    )


# --- regions ------------------------------------------------------------------------------------------------


@cache
def loops(depth: int) -> SearchStrategy[n.For]:
    """Loops that carry values or none."""
    carried = tuples(st.tuples(values(), values()), 1, 2)
    plain = st.builds(
        n.For,
        variable=values(),
        begin=values(),
        end=values(),
        body=regions(depth),
        step=st.none() | values(),
        type=integer_types(),
        attributes=st.none() | dictionaries(),
    )
    return plain | st.builds(_carrying, plain, carried, tuples(types(), 1, 2))


def _carrying(loop: n.For, carried: tuple[tuple[n.Value, n.Value], ...], kinds: tuple[n.Type, ...]) -> n.For:
    return replace(loop, carried=carried, types=kinds)


@cache
def branches(depth: int) -> SearchStrategy[n.If]:
    """Branches with one or two regions."""
    otherwise = st.none() | regions(depth)
    return st.builds(n.If, values(), regions(depth), otherwise, tuples(types(), 0, 2))


@cache
def holders(depth: int) -> SearchStrategy[n.Instruction]:
    """Instructions that hold regions and produce no value."""
    lists = tuples(values(), 1, 3)
    return st.one_of(
        st.builds(n.Foreach, lists, lists, lists, regions(depth), integer_types()),
        st.builds(
            n.ForeachTile,
            *(lists, lists, lists, lists, tuples(integers(), 1, 3), regions(depth), integer_types()),
        ),
        st.builds(n.Parallel, regions(depth)),
    )


@cache
def statements(depth: int = DEPTH) -> SearchStrategy[n.Statement]:
    """Statements with as many results as their instructions produce."""
    one = st.tuples(st.tuples(values()), scalar_instructions() | memory_instructions())
    none = st.tuples(st.just(()), effects() if depth <= 0 else effects() | holders(depth - 1))
    found = [one, none] if depth <= 0 else [one, none, _multiple(depth - 1), _applied(depth - 1)]
    return st.builds(_statement, st.one_of(found), notes())


def _statement(parts: tuple[tuple[n.Value, ...], n.Instruction], beside: Trivia) -> n.Statement:
    results, instruction = parts
    return n.Statement(results, instruction, notes=beside)


def _applied(depth: int) -> SearchStrategy[tuple[tuple[n.Value, ...], n.Instruction]]:
    """A function applied to the components of a matrix."""
    four = (values(), values(), values(), values())
    return st.tuples(st.tuples(values()), st.builds(n.CoopApply, *four, coopmatrices(), regions(depth)))


def _multiple(depth: int) -> SearchStrategy[tuple[tuple[n.Value, ...], n.Instruction]]:
    """Loops and branches, with names for their results or without."""
    held: SearchStrategy[n.For | n.If] = loops(depth) | branches(depth)
    return st.tuples(held, st.booleans()).map(
        lambda pair: (tuple(n.Value(f"r{i}") for i in range(len(pair[0].types) * pair[1])), pair[0])
    )


@cache
def regions(depth: int) -> SearchStrategy[n.Region]:
    """Regions of a few statements."""
    return st.builds(n.Region, tuples(statements(depth), 0, 3), end=ends())


# --- programs -----------------------------------------------------------------------------------------------


@cache
def functions() -> SearchStrategy[n.Function]:
    """Functions."""
    beside = notes().map(lambda found: Trivia(found.above, found.behind))
    parameters = st.builds(n.Parameter, values(), types(), st.none() | dictionaries(), notes=beside)
    return st.builds(
        n.Function,
        name=values().map(lambda value: value.name),
        parameters=tuples(parameters, 0, 3),
        body=st.builds(n.Region, tuples(statements(), 0, 5), end=ends()),
        attributes=st.none() | dictionaries(),
        notes=notes(),
    )


@cache
def programs() -> SearchStrategy[n.Program]:
    """Programs of one function or two."""
    return st.builds(n.Program, tuples(functions(), 1, 2), end=ends())
