"""`@quantize`: entries that wait for the tensors they name."""

from __future__ import annotations

from lamella.graph.compose.calls import find_operator, given_attributes, given_types
from lamella.graph.compose.operations import rename
from lamella.graph.compose.scope.frame import Frame
from lamella.graph.compose.scope.session import Named, Session
from lamella.graph.compose.scope.wanted import Simple
from lamella.graph.nodes import Quantization, Tensor
from lamella.lang.skriptnd import nodes
from lamella.lang.skriptnd.rules import graphs as rules
from lamella.ops.instance import Definition
from lamella.ops.instantiate import instantiate
from lamella.ops.problem import Problem

HIDDEN = "only variables, constants and the tensors of graphs and 'public' operators can be named"


class Entry:
    """One line of `@quantize`, until its tensor is made."""

    def __init__(self, frame: Frame, text: nodes.Quantization) -> None:
        self.frame = frame
        self.text = text
        self.used = False
        self.hidden = False

    def bind(self, tensor: Tensor) -> Quantization | None:
        """The quantisation of the tensor; None where the operator does not take it, which is reported."""
        self.used = True
        frame, text = self.frame, self.text
        try:
            definition = find_operator(frame, text.operator, text.span)
            attributes = given_attributes(frame, text.attributes)
            types = given_types(frame, definition, text.types)
            bound = instantiate(
                frame.session.library, definition, [tensor], attributes, types, span=text.span
            )
        except Problem as problem:
            frame.session.report(frame.origin, *problem.findings)
            return None
        return Quantization(definition.name, bound.attributes)

    def miss(self) -> None:
        """Remember that only a hidden tensor has the name."""
        self.hidden = True

    def report(self) -> None:
        """Say so where no tensor came."""
        if not self.used:
            hint = HIDDEN if self.hidden else ""
            finding = rules.NO_TENSOR_TO_QUANTIZE.at(self.text.span, hint=hint, name=self.text.tensor)
            self.frame.session.report(self.frame.origin, finding)


def expect_quantized(frame: Frame, definition: Definition) -> None:
    """Wait for the tensors that an operator's `@quantize` names, and find those that others wait for here.

    A name may be full, as in `main.G.a`, or relative to the graph, as in `a`.
    """
    session, operator = frame.session, definition.operator
    for item in operator.items("quantize"):
        if isinstance(item, nodes.Quantization):
            tensor = item.tensor.removeprefix(f"{definition.name}.")
            session.quantizers[f"{frame.scope.prefix}{tensor}"] = Entry(frame, item)
    if frame.exposed and session.quantizers:
        _share_names(frame, operator)


def _share_names(frame: Frame, operator: nodes.Operator) -> None:
    """The outputs of a public operator have two names, the caller's and their own; its inputs become copies."""
    session = frame.session
    renamed = dict(frame.outputs)
    for name, wanted in frame.outputs.items():
        entry, given = session.quantizers.get(frame.scope.name(name)), wanted.single()
        if entry is not None and given is not None:
            session.quantizers[given.name] = entry
            renamed[name] = Simple(Named(given.name, True, given.promised))
    frame.outputs = renamed
    for parameter in operator.parameters("input"):
        name, tensor = frame.scope.name(parameter.name), frame.env.find(parameter.name)
        entry = session.quantizers.get(name)
        if isinstance(entry, Entry) and isinstance(tensor, Tensor) and frame.origin is not None:
            frame.env[parameter.name] = rename(frame, tensor, Named(name, True), entry.text.span)


def report_missing(session: Session) -> None:
    """Report the entries for which no tensor came."""
    for entry in dict.fromkeys(session.quantizers.values()):
        if isinstance(entry, Entry):
            entry.report()
