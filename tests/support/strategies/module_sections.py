"""Graphs and sections of the Module DSL as nodes: right in syntax, and in nothing else."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from lamella.lang.module import nodes as n
from tests.support.strategies.module_expressions import (
    annotated,
    arguments,
    block_notes,
    config_types,
    expressions,
    few,
    names,
    notes,
    param_types,
    paths,
    port_types,
    primaries,
    strings,
    tensor_types,
)

FREE_TEXTS = (
    "x must be contiguous",
    "kernels.copy if not dense, else no-op",
    "[a, b] -> c",
    "O(T²) or less …",
)
GRADIENTS = ("d_x", "d_out", "d_weight")

# --- graphs -------------------------------------------------------------------------------------------------


@cache
def steps() -> SearchStrategy[n.Step]:
    """Operations and asserted shapes."""
    callee = st.builds(n.Name, names()) | st.builds(n.Member, st.builds(n.Name, names()), names())
    part = st.builds(
        n.Index, st.builds(n.Name, names()), few(st.builds(n.Slice, expressions(), st.none()), 1)
    )
    operation = st.builds(n.Operation, callee | part, arguments(expressions(), 3), annotated())
    return operation | st.builds(n.ShapeAssertion, tensor_types(1, False))


@cache
def flows() -> SearchStrategy[n.Flow]:
    """Data-flow statements; a lone target has no annotations of its own."""
    sources = primaries().map(lambda item: (item,)) | few(expressions(), 1, 3)
    alone = st.builds(n.Target, names()).map(lambda item: (item,))
    several = few(st.builds(n.Target, names(), annotated()), 2, 3)
    parts = (sources, few(steps()), alone | several, annotated())
    return st.builds(n.Flow, *parts, notes=notes())


@st.composite
def statements(draw: st.DrawFn) -> n.Statement:
    """Statements of every form."""
    return draw(_statements())


@cache
def _statements() -> SearchStrategy[n.Statement]:

    def nested(inner: SearchStrategy[n.Statement]) -> SearchStrategy[n.Statement]:
        body = few(inner)
        arms = few(st.builds(n.Arm, expressions(), body, notes=block_notes()), 1)
        return st.one_of(
            st.builds(n.Conditional, arms),
            st.builds(n.Conditional, arms, body, notes=block_notes()),
            st.builds(n.Recompute, body, notes=block_notes()),
        )

    return st.recursive(flows() | st.builds(n.Stub, notes=notes()), nested, max_leaves=3)


@cache
def graphs() -> SearchStrategy[tuple[n.Statement, ...] | None]:
    """Graphs, also empty and missing ones."""
    return st.none() | few(statements(), most=3)


@cache
def selections() -> SearchStrategy[n.Selection | None]:
    """Lists as of `save:`."""
    glob = st.builds(n.Pattern, names() | st.sampled_from(("*", "ln*_out", "*_rstd", "z*")))
    item = glob | st.builds(n.Pattern, names(), st.just(True))
    return st.none() | st.builds(n.Selection, few(item, most=3), st.none() | expressions(), notes=notes())


# --- inputs and outputs -------------------------------------------------------------------------------------


@cache
def named_ports() -> SearchStrategy[n.Port]:
    """Ports with a name; one of an open type has no default."""
    typed = st.builds(n.Port, names(), port_types(), st.none() | expressions(), annotated(), notes=notes())
    return typed.filter(lambda port: port.type != n.SequenceType() or port.default is None)


def _ports(named: SearchStrategy[n.Port]) -> SearchStrategy[tuple[n.Port, ...] | None]:
    tuples = st.builds(
        lambda first, others: n.TupleType((first, *others)), tensor_types(1), few(tensor_types(), 1)
    )
    types = tensor_types() | tuples
    unnamed = st.builds(n.Port, st.none(), types, st.none(), annotated(), notes=notes())
    return st.none() | unnamed.map(lambda port: (port,)) | few(named | unnamed, 2, 3) | few(named, most=3)


@cache
def ports() -> SearchStrategy[tuple[n.Port, ...] | None]:
    """All inputs or all outputs of a module."""
    return _ports(named_ports())


@cache
def open_ports() -> SearchStrategy[tuple[n.Port, ...] | None]:
    """All inputs or all outputs of a primitive, which may leave types open."""
    plain = st.builds(n.Port, names(), st.none(), st.none(), annotated(), notes=notes())
    return _ports(named_ports() | plain)


@cache
def forwards() -> SearchStrategy[n.Forward]:
    """`forward:`."""
    parts = (ports(), ports(), graphs(), selections(), selections(), annotated())
    return st.builds(n.Forward, *parts, notes=block_notes())


@cache
def backwards() -> SearchStrategy[n.Backward]:
    """`backward:`."""
    parts = (st.sampled_from(GRADIENTS), tensor_types(1), st.none(), annotated())
    gradients = few(st.builds(n.Port, *parts, notes=notes()))
    return st.builds(n.Backward, gradients, ports(), ports(), graphs(), annotated(), notes=block_notes())


# --- other sections -----------------------------------------------------------------------------------------


@cache
def config_params() -> SearchStrategy[n.ConfigParam]:
    """Config parameters."""
    return st.builds(
        n.ConfigParam, names(), st.none() | config_types(), st.none() | expressions(), notes=notes()
    )


@cache
def bindings() -> SearchStrategy[n.Binding]:
    """What stands in `let:`."""
    return st.one_of(
        st.builds(n.Let, names(), expressions(), notes=notes()),
        st.builds(
            n.RuntimeDim,
            names().filter(lambda name: name != "constraint"),
            st.sampled_from(("batch_dim", "seq_dim")),
            notes=notes(),
        ),
        st.builds(n.Constraint, expressions(), strings(), notes=notes()),
        st.builds(n.Stub, notes=notes()),
    )


@cache
def constants() -> SearchStrategy[n.Constant]:
    """What stands in `constants:`."""
    call = st.builds(n.Call, st.builds(n.Name, names()), arguments(expressions(), 3))
    return st.builds(n.Constant, names(), call, notes=notes())


@cache
def params() -> SearchStrategy[n.Param]:
    """What stands in `params:`; only with a condition there may be another type."""
    plain = st.builds(
        n.Param, paths(), param_types(), st.none(), st.none(), st.booleans(), annotated(), notes=notes()
    )
    guarded = st.builds(
        n.Param,
        paths(),
        param_types(),
        expressions(),
        st.none() | param_types(),
        st.booleans(),
        annotated(),
        notes=notes(),
    )
    return plain | guarded


@cache
def sublayers() -> SearchStrategy[n.Sublayers]:
    """`pattern:`."""
    return st.builds(
        n.Sublayers, st.sampled_from(("sequential_residual", "x")), few(few(names(), 1, 3)), notes=notes()
    )


def fields(name: SearchStrategy[str]) -> SearchStrategy[n.Field]:
    """Fields by name: expressions, free text, and fields below them."""
    text = st.builds(n.Field, name, st.sampled_from(FREE_TEXTS), notes=notes())
    item = expressions() | st.sampled_from(FREE_TEXTS)
    listed = st.builds(n.Field, st.just("-"), item, notes=notes())
    leaf = st.builds(n.Field, name, expressions(), notes=notes()) | text
    return leaf | st.builds(n.Field, name, few(leaf | listed), notes=block_notes())


@cache
def any_fields() -> SearchStrategy[tuple[n.Field, ...]]:
    """Fields of any names."""
    return few(fields(names()))


@cache
def mappings() -> SearchStrategy[n.Mapping]:
    """What stands in `hf_mapping:`."""
    direct = st.builds(n.Direct, strings())
    transform = st.builds(n.Transform, strings(), names())
    part = st.builds(n.SplitPart, strings(), expressions(), expressions())
    dim = st.integers(-1, 2)
    spec = st.one_of(
        direct,
        transform,
        st.builds(n.Fuse, few(direct | transform, 1), dim),
        st.builds(n.Split, few(part, 1), dim),
        st.builds(n.TiedType, paths()),
    )
    return st.builds(n.Mapping, paths(), spec, st.booleans(), st.none() | expressions(), notes=notes())
