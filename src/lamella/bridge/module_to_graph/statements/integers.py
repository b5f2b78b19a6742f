"""Whether an input without a type of its own holds indices: what reads it tells."""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.dtype import find_in
from lamella.lang.module.instantiate.nodes import Instance
from lamella.lang.module.nodes import Expr, Flow, Module, Name, Operation, Port, Primitive, TensorType

DEEPEST = 8
"""Calls that are followed; a deeper chain of modules that only pass an input on is not looked through."""
SUGAR = {"Embedding": "embedding"}


def is_integer(name: str, flows: Sequence[Flow], instance: Instance, depth: int = DEEPEST) -> bool:
    """Whether a statement passes this name to an operand that is declared as an integer tensor."""
    if depth == 0:
        return False
    for flow in flows:
        step = flow.steps[0] if flow.steps else None
        if not isinstance(step, Operation):
            continue
        for number, source in enumerate(flow.sources):
            if (
                isinstance(source, Name)
                and source.id == name
                and _takes_integer(step, number, instance, depth)
            ):
                return True
    return False


def _takes_integer(step: Operation, number: int, instance: Instance, depth: int) -> bool:
    """Whether an operation declares this operand as integers, or passes it on to one that does."""
    child = _child(step.callee, instance)
    if child is not None:
        return _passes_on(child, number, depth)
    name = step.callee.id if isinstance(step.callee, Name) else ""
    declared = instance.scope.find(SUGAR.get(name, name)) if name else None
    if declared is None or not isinstance(declared.declaration, Primitive):
        return False
    forward = declared.declaration.forward
    inputs = (forward.inputs or ()) if forward is not None else ()
    return number < len(inputs) and _is_integer_port(inputs[number])


def _child(callee: Expr, instance: Instance) -> Instance | None:
    found = instance.children.get(callee.id) if isinstance(callee, Name) else None
    if isinstance(found, tuple):
        return found[0] if found else None
    return found


def _passes_on(child: Instance, number: int, depth: int) -> bool:
    module: Module = child.module
    forward = module.forward
    if forward is None or forward.inputs is None or number >= len(forward.inputs):
        return False
    port = forward.inputs[number]
    flows = [item for item in forward.graph or () if isinstance(item, Flow)]
    return _is_integer_port(port) or is_integer(port.name or "in", flows, child, depth - 1)


def _is_integer_port(port: Port) -> bool:
    type = port.type
    element = find_in("module", type.dtype) if isinstance(type, TensorType) and type.dtype else None
    return element is not None and element.is_integer
