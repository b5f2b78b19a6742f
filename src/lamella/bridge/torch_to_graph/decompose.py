"""Simpler operations for a program: what has an operator here stays whole, the rest becomes core ATen.

An operation stays whole where the table of ATen has a row for its overload: `linear`, `conv2d`, `layer_norm`, `gelu`,
`silu`, `softmax.int`, `scaled_dot_product_attention`, `matmul`, … Graphs stay readable that way, and the numbers are
those of the operator itself. Programs that were decomposed before are taken as well, since both spellings have rows.
A program that has operators for everything, and changes nothing in place, is left as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from types import BuiltinFunctionType
from typing import cast

from lamella.base.diagnostic import LamellaError
from lamella.base.optional import need
from lamella.base.source import NOWHERE
from lamella.bridge.aten.table import REFUSE, rows
from lamella.bridge.torch_to_graph.faults import faults, first_line
from lamella.bridge.torch_to_graph.program import Body, Node, Program
from lamella.bridge.torch_to_graph.report import operation_of
from lamella.lang.skriptnd.rules.exports import EXPORT_FAILED

READY = frozenset(
    (
        "higher_order.cond",
        "higher_order.while_loop",
        "higher_order.wrap_with_set_grad_enabled",
        "sym_max",
        "sym_min",
    )
)
"""What is taken as it is beside operations; `wrap_with_autocast` changes types, which PyTorch writes out."""


def decompose(program: Program, broken: Collection[str] = ()) -> Program:
    """The program without changes in place, in operations that we know; `broken` ones are not kept whole."""
    if _is_ready(program.graph_module, broken):
        return program
    table = need("torch").export.default_decompositions()
    for operation in list(cast("Mapping[object, object]", table)):
        if stays_whole(str(operation)) and str(operation) not in broken:
            del table[operation]
    with warnings.catch_warnings():
        # PyTorch warns of its own ways with trees.
        warnings.simplefilter("ignore")
        try:
            return program.run_decompositions(table)
        except faults() as problem:
            reason = first_line(problem)
            finding = EXPORT_FAILED.at(NOWHERE, what="simpler operations for the program", reason=reason)
            raise LamellaError([finding]) from problem


def _is_ready(body: Body, broken: Collection[str]) -> bool:
    """Whether every line of a graph, and of those that it calls, can be translated as it is."""
    return all(_is_known(body, node, broken) for node in body.graph.nodes)


def _is_known(body: Body, node: Node, broken: Collection[str]) -> bool:
    if node.op == "get_attr":
        called = getattr(body, str(node.target), None)
        return hasattr(called, "graph") and _is_ready(cast("Body", called), broken)
    if node.op != "call_function" or isinstance(node.target, BuiltinFunctionType):
        return True
    schema = getattr(node.target, "_schema", None)
    name = operation_of(node)
    if schema is None:
        return name in READY
    return not schema.is_mutable and stays_whole(name) and name not in broken


def stays_whole(operation: str) -> bool:
    """Whether an overload has an operator here."""
    row = rows().get(operation)
    return row is not None and row.how != REFUSE


def can_decompose(operation: str) -> bool:
    """Whether PyTorch can say an overload in simpler ones."""
    return any(str(item) == operation for item in need("torch").export.default_decompositions())
