"""Operations that only backward graphs have: `relu_backward`, `mlp.backward`, `StackedBlocksBackward`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lamella.bridge.module_to_graph.annotating.precision import perform
from lamella.bridge.module_to_graph.backward.calls import gradient_ports, saved_ports
from lamella.bridge.module_to_graph.backward.nodes import Visit
from lamella.bridge.module_to_graph.backward.recorder import needs_gradient
from lamella.bridge.module_to_graph.backward.sweep import Sweep
from lamella.bridge.module_to_graph.calls.primitives import Request, bind, is_unknown
from lamella.bridge.module_to_graph.frames import Frame
from lamella.bridge.module_to_graph.nodes import Bound, Members
from lamella.bridge.module_to_graph.road import Place
from lamella.bridge.module_to_graph.values import members, value_of
from lamella.bridge.module_to_graph.walk import UNKNOWN
from lamella.graph.nodes import Tensor
from lamella.lang.module.instantiate.evaluate import Problem
from lamella.lang.module.nodes import (
    Expr,
    Field,
    Member,
    Name,
    Operation,
    Primitive,
    Signature,
)
from lamella.lang.module.rules import constants, gradients
from lamella.lang.module.words import SUGAR

BACKWARD = "backward"
STACKED = "StackedBlocksBackward"
LINEAR = ("Linear_backward", "LinearBackward")
PACKED = {"swiglu": "split_swiglu", "silu_mul": "split_swiglu"}
"""Primitives whose backward of one forward operand is that of another."""


class Operations:
    """What the operations of one backward graph mean."""

    def __init__(self, visit: Visit, sweep: Sweep) -> None:
        self.visit, self.sweep, self.road = visit, sweep, sweep.road
        self.served: set[str] = set()
        """The instances whose backward was called."""

    def apply(
        self, operation: Operation, values: Sequence[Bound], targets: tuple[str, ...], frame: Frame
    ) -> Sequence[Bound] | None:
        """What an operation of backward graphs gives; None where it is another operation."""
        owner = self._owner(operation, frame)
        if owner is not None:
            return self._go_back(owner, values, operation)
        name = operation.callee.id if isinstance(operation.callee, Name) else ""
        if name in LINEAR:
            return self._linear(values, operation, targets, frame)
        stem = name.removesuffix("_backward").removesuffix("Backward")
        if stem == name or frame.instance.scope.find(name) is not None:
            return None
        primitive = self._primitive(stem, values, targets, frame)
        if primitive is None:
            return None
        return self._call(primitive, _fitted(name, values, targets), operation, targets, frame)

    # --- instances ------------------------------------------------------------------------------------------

    def _owner(self, operation: Operation, frame: Frame) -> Members | None:
        """The instances whose backward is called."""
        callee = operation.callee
        inner: Expr | None = None
        if isinstance(callee, Member) and callee.field == BACKWARD:
            inner = callee.operand
        elif isinstance(callee, Name) and callee.id == STACKED and operation.arguments:
            inner = operation.arguments[0].value
        elif isinstance(callee, Name) and callee.id.removesuffix("_backward") in frame.instance.children:
            return members(callee.id.removesuffix("_backward"), frame)
        if inner is None:
            return None
        owner = value_of(inner, frame, self.road)
        if not isinstance(owner, Members):
            what = f"'{inner.span.text}'"
            raise Problem(
                constants.KIND.at(
                    operation.span, what=what, found="no instance", wanted="one that went forward", repair=""
                )
            )
        return owner

    def _go_back(self, owner: Members, values: Sequence[Bound], operation: Operation) -> Sequence[Bound]:
        """The gradients of the inputs of instances, the last one first; what each passes on adds up."""
        state = [item for item in values if isinstance(item, Tensor)]
        passed: list[Tensor | None] = []
        for path, _ in reversed(owner.items):
            visit = self._find(path, operation)
            width = len(visit.outputs)
            found = self._pull(visit, state[:width])
            state, more = found[:width], found[width:]
            passed = [
                self.sweep.total([part for part in pair if part is not None], "passed")
                for pair in zip(more, passed or [None] * len(more), strict=True)
            ]
        return [*state, *passed, UNKNOWN]

    def _find(self, path: str, operation: Operation) -> Visit:
        """The last call of an instance that did not go back yet."""
        for visit in reversed(list(self.visit.visits())):
            if visit.frame.path == path and not visit.done:
                visit.done = True
                self.served.add(path)
                return visit
        module = self.visit.frame.name
        repair = f"call '{path}' in the forward graph as often as its backward"
        raise Problem(gradients.NOT_SAVED.at(operation.span, name=path, module=module, repair=repair))

    def _pull(self, visit: Visit, given: Sequence[Tensor]) -> list[Tensor]:
        """The gradients of the inputs of an instance, for these of its outputs."""
        sweep = self.sweep.again()
        for output, gradient in zip(visit.outputs, given, strict=False):
            sweep.seed(output, gradient)
        sweep.run(visit)
        found: list[Tensor] = []
        for port, value in visit.inputs:
            if isinstance(value, Tensor) and needs_gradient(port, value):
                found.append(sweep.take(value) or self.road.zeros_like(value, _place(visit)))
        return found

    # --- primitives -----------------------------------------------------------------------------------------

    def _primitive(
        self, stem: str, values: Sequence[Bound], targets: tuple[str, ...], frame: Frame
    ) -> Primitive | None:
        """The primitive whose backward is meant, as one of its own."""
        name = SUGAR.get(stem, stem)
        if name in PACKED and len(values) == len(("gradient", "operand")):
            name = PACKED[name]
        if name == "rmsnorm" and len(targets) == len(("residual", "input", "weight")):
            name = "fused_residual_rmsnorm"
        declared = frame.instance.scope.find(name)
        primitive = declared.declaration if declared is not None else None
        return reverse(primitive) if isinstance(primitive, Primitive) else None

    def _call(
        self,
        primitive: Primitive,
        values: Sequence[Bound],
        operation: Operation,
        targets: tuple[str, ...],
        frame: Frame,
    ) -> Sequence[Bound]:
        request = bind(primitive, values, operation, targets, frame, self.road)
        self._complete(request, primitive, frame)
        if request.attributes.get("transpose") == "TN" and primitive.name.startswith("grouped_gemm"):
            request.attributes["transpose"] = "NT"
        return [UNKNOWN] * max(len(targets), 1) if is_unknown(request) else perform(request, self.road)

    def _complete(self, request: Request, primitive: Primitive, frame: Frame) -> None:
        """Parameters that are not given are those that the gradients are of; a missing gradient is zeros."""
        takes = (primitive.forward.inputs or ()) if primitive.forward is not None else ()
        gives = (primitive.forward.outputs or ()) if primitive.forward is not None else ()
        meant = {
            (port.name or "").removeprefix("d_"): target.removeprefix("d_")
            for port, target in zip(gives, request.targets, strict=False)
        }
        for number, port in enumerate(takes):
            slot = frame.instance.tensors.get(meant.get(port.name or "", ""))
            if request.inputs[number] is None and slot is not None:
                request.inputs[number] = self.road.parameter(frame, slot)
        first = next((item for item in request.inputs if isinstance(item, Tensor)), None)
        for number, port in enumerate(takes):
            absent = request.inputs[number] is None and (port.name or "") == "d_residual_out"
            if absent and first is not None:
                request.inputs[number] = self.road.zeros_like(first, request.place)

    def _linear(
        self, values: Sequence[Bound], operation: Operation, targets: tuple[str, ...], frame: Frame
    ) -> Sequence[Bound]:
        """`(g, W)` gives g · W; with what went in, also the gradients of the weights and of the bias."""
        operands = [*values, *(value_of(item.value, frame, self.road) for item in operation.arguments)]
        name = "matmul" if len(operands) == len(("gradient", "weight")) else "linear_backward"
        declared = frame.instance.scope.library.primitive(name)
        if declared is None or not isinstance(declared.declaration, Primitive):
            raise LookupError(name)
        plain = replace(operation, arguments=())
        request = bind(declared.declaration, operands, plain, targets, frame, self.road)
        return [UNKNOWN] * max(len(targets), 1) if is_unknown(request) else perform(request, self.road)


def reverse(primitive: Primitive) -> Primitive | None:
    """The backward of a primitive as a primitive; None where it has none."""
    operator = primitive.operator(BACKWARD)
    if operator is None:
        return None
    first, *others = operator.split(".")
    value: Expr = Name(first)
    for part in others:
        value = Member(value, part)
    impl = Field("impl", (Field("forward", value),))
    signature = Signature(saved_ports(primitive), gradient_ports(primitive))
    name = f"{primitive.name}_{BACKWARD}"
    return Primitive(name, params=primitive.params, forward=signature, sections=(impl,), span=primitive.span)


def _fitted(name: str, values: Sequence[Bound], targets: tuple[str, ...]) -> list[Bound]:
    """The operands; where the norm of a sum is written as a plain norm, without the gradient of the sum."""
    fused = name == "rmsnorm_backward" and len(targets) == len(("residual", "input", "weight"))
    return [values[0], None, *values[1:]] if fused and values else list(values)


def _place(visit: Visit) -> Place:
    return Place("zeros", visit.forward.span, visit.frame.origin)
