"""Lists, indexing and substitution."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.lang.skriptnd import nodes
from lamella.ops.evaluate import packs
from lamella.ops.evaluate.compiler import Compiler, guarded
from lamella.ops.evaluate.walk import Node
from lamella.ops.instance import Repeated
from lamella.ops.scalars.arithmetic import Arithmetic
from lamella.ops.scalars.terms import refuse
from lamella.ops.scalars.values import Code, Scope


def compile_list(compiler: Compiler, node: nodes.List) -> Code:
    """`[item, …]`; null where an item is null."""
    if not any(isinstance(item, nodes.Range | nodes.Expand | nodes.Zip) for item in node.items):
        return _plain_list([compiler.compile(item) for item in node.items], node)
    codes = [compile_items(compiler, item) for item in node.items]
    return guarded(lambda scope: join(compiler.arithmetic, codes, scope), node.span)


def _plain_list(codes: Sequence[Code], node: nodes.List) -> Code:
    def _run(scope: Scope) -> object:
        items = tuple([code(scope) for code in codes])
        for item in items:
            if item is None:
                return None
            if isinstance(item, tuple | Repeated):
                raise refuse("[]", item)
        return items

    return guarded(_run, node.span)


def join(arithmetic: Arithmetic, codes: Sequence[Code], scope: Scope) -> object:
    """The packs of several list items, one after the other."""
    found: list[object] = []
    for code in codes:
        items = code(scope)
        if items is None:
            return None
        if isinstance(items, Repeated):
            if len(codes) == 1:
                return items
            raise refuse("[]", items)
        if not isinstance(items, tuple):
            raise refuse("..", items)
        arithmetic.keep_items(len(found) + len(items))
        found += items
    return tuple(found)


def compile_items(compiler: Compiler, node: Node) -> Code:
    """One item of a list as the pack of items it stands for."""
    match node:
        case nodes.Range():
            return _compile_range(compiler, node)
        case nodes.Expand():
            return _compile_expand(compiler, node)
        case nodes.Zip():
            operands = [compiler.compile(item) for item in node.operands]
            arithmetic = compiler.arithmetic
            return guarded(
                lambda scope: packs.interleave(arithmetic, [code(scope) for code in operands]), node.span
            )
    return _single(compiler.compile(node))


def _single(code: Code) -> Code:
    def _run(scope: Scope) -> object:
        value = code(scope)
        if isinstance(value, tuple | Repeated):
            raise refuse("[]", value)
        return None if value is None else (value,)

    return _run


def _compile_range(compiler: Compiler, node: nodes.Range) -> Code:
    bounds = [compiler.compile(part) for part in (node.begin, node.end) if part is not None]
    step = compiler.compile_some(node.step) or (lambda scope: 1)

    def _run(scope: Scope) -> object:
        values = [code(scope) for code in (*bounds, step)]
        if len(values) != 3:
            raise refuse(":", *values)
        if any(value is None for value in values):
            return None
        return packs.make_range(compiler.arithmetic, *values)

    return guarded(_run, node.span)


def _compile_expand(compiler: Compiler, node: nodes.Expand) -> Code:
    operand, count = compiler.compile(node.operand), compiler.compile_some(node.count)
    if count is None:
        return operand
    times = count

    def _run(scope: Scope) -> object:
        number = times(scope)
        if number is None:
            return None
        if number == 0 and isinstance(number, int):
            return ()
        item = operand(scope)
        return None if item is None else packs.repeat(compiler.arithmetic, item, number)

    return guarded(_run, node.span)


def compile_misplaced(_: Compiler, node: nodes.Expand | nodes.Zip | nodes.Range) -> Code:
    """An item of a list where one value is needed; the checker refuses it before any call."""

    def _run(scope: Scope) -> object:
        raise refuse("..", ())

    return guarded(_run, node.span)


# --- indexing -----------------------------------------------------------------------------------------------

Bounds = tuple[Code | None, Code | None, Code | None]


def compile_index(compiler: Compiler, node: nodes.Index) -> Code:
    """`pack[index]`."""
    operand, spent = compiler.compile(node.operand), compiler.arithmetic.spent
    if isinstance(node.index, nodes.Range):
        bounds = compile_bounds(compiler, node.index)
        return guarded(lambda scope: spent(pick_range(operand(scope), bounds, scope)), node.span)
    index = compiler.compile(node.index)
    return guarded(lambda scope: packs.pick(operand(scope), spent(index(scope))), node.span)


def compile_bounds(compiler: Compiler, node: nodes.Range) -> Bounds:
    """The parts of a range of items; each may be left out."""
    some = compiler.compile_some
    return some(node.begin), some(node.end), some(node.step)


def pick_range(pack: object, bounds: Bounds, scope: Scope) -> object:
    """A range of items; a bound that is there and null makes null."""
    if pack is None:
        return None
    values = [None if code is None else code(scope) for code in bounds]
    if any(value is None and code is not None for value, code in zip(values, bounds, strict=True)):
        return None
    return packs.pick_range(pack, *values)


def compile_substitute(compiler: Compiler, node: nodes.Substitute) -> Code:
    """`pack[index] <- value`."""
    operand, value = compiler.compile(node.target.operand), compiler.compile(node.value)
    index = _compile_places(compiler, operand, node.target.index)
    spent = compiler.arithmetic.spent
    return guarded(
        lambda scope: packs.substitute(spent(operand(scope)), index(scope), value(scope)), node.span
    )


def _compile_places(compiler: Compiler, operand: Code, node: Node) -> Code:
    if not isinstance(node, nodes.Range):
        return compiler.compile(node)
    bounds = compile_bounds(compiler, node)

    def _run(scope: Scope) -> object:
        pack = operand(scope)
        return pick_range(tuple(range(len(pack))) if isinstance(pack, tuple) else None, bounds, scope)

    return _run
