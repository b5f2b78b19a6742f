"""Invocations against the signature of their operator, and the state of the composition around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import Span
from lamella.base.suggest import did_you_mean
from lamella.lang.skriptnd.check.context import OperatorContext, excerpt
from lamella.lang.skriptnd.check.declare import infer_value
from lamella.lang.skriptnd.check.definitions import Definitions, OperatorSignature
from lamella.lang.skriptnd.check.kinds import (
    UNKNOWN,
    MaybeExtent,
    ValueKind,
    agrees,
    belongs,
    is_type,
    join_types,
    shown,
)
from lamella.lang.skriptnd.nodes import (
    Attribute,
    Expr,
    Invocation,
    Omitted,
    Operator,
    Parameter,
    Quantization,
)
from lamella.lang.skriptnd.rules import composition as rules
from lamella.lang.skriptnd.rules import names, types

# --- what a composition has come to: names assigned, labels used, how deep in control flow ------------------


class InvocationEdge(NamedTuple):
    """An invocation that is always composed."""

    operator: str
    span: Span


class CompositionState:
    """The state of checking one composition."""

    def __init__(self, context: OperatorContext, definitions: Definitions, operator: Operator) -> None:
        self.context = context
        self.definitions = definitions
        self.operator = operator
        self.edges: list[InvocationEdge] = []
        self.controlled = 0
        self.conditional = 0
        self.nullable = any(item.type.optional for item in operator.parameters("output"))
        self.labelled = False
        """Whether the component being checked gives an invocation its label."""
        self.labels: set[str] = set()
        self.all_labels: set[str] = set()

    @contextmanager
    def control(self, static: bool) -> Iterator[None]:
        """Inside a branch or a loop; `static` where it may be left out before the run."""
        self.controlled += 1
        self.conditional += static
        try:
            yield
        finally:
            self.controlled -= 1
            self.conditional -= static

    @contextmanager
    def block(self) -> Iterator[None]:
        """Inside a block, which has names and labels of its own."""
        outer, self.labels = self.labels, set()
        try:
            with self.context.inner():
                yield
        finally:
            self.labels = outer

    def add_label(self, label: str | None, span: Span) -> None:
        """Remember a label; a second use is a finding."""
        if label is None:
            return
        if label in self.labels:
            self.context.report(rules.LABEL_TWICE.at(span, label=label))
        self.labels.add(label)
        self.all_labels.add(label)

    def tensor(self, expr: Expr, what: str) -> ValueKind:
        """The kind of an expression as a tensor that must be there."""
        return self.required(expr, as_tensor(self.context.infer(expr)), what)

    def required(self, expr: Expr, kind: ValueKind, what: str) -> ValueKind:
        """The same kind, never null; where it may be null, it is a finding."""
        if kind.known and kind.optional and not self.nullable:
            self.context.report(types.OPTIONAL_HERE.at(expr.span, text=excerpt(expr), what=what))
            return kind.present()
        return kind


def as_tensor(kind: ValueKind) -> ValueKind:
    """A value before the run as the tensor of rank 0 that stands for it."""
    if kind.tensor or not kind.known:
        return kind
    return ValueKind(kind.type, kind.optional, kind.packed, True, kind.length, 0)


def check_invocation(state: CompositionState, node: Invocation) -> list[ValueKind] | None:
    """The kinds of the results; None where the operator is not known."""
    state.add_label(node.label, node.span)
    operator = state.definitions.resolve(node.operator, node.span)
    if operator is None or isinstance(operator, Diagnostic):
        if operator is not None:
            state.context.report(operator)
        for attribute in node.attributes:
            state.context.infer(attribute.value)
        for argument in node.arguments:
            if not isinstance(argument, Omitted):
                state.context.infer(argument)
        return None
    # Recursion under a static condition ends; a call of the same module that is always made may not.
    if not state.conditional and node.operator.rpartition(".")[0] in ("", state.definitions.module):
        state.edges.append(InvocationEdge(node.operator.rpartition(".")[2], node.span))
    if operator.graph and not state.controlled:
        state.context.report(names.GRAPH_CALLED.at(node.span, name=operator.name))
    if (
        node.label is None
        and not state.labelled
        and state.definitions.holds_variables(node.operator, operator)
    ):
        state.context.report(rules.LABEL_NEEDED.at(node.span, name=node.operator))
    call = InvocationCheck(state, node, state.definitions.signature(node.operator, operator))
    call.check_types(node.types)
    call.check_attributes(node.attributes)
    call.check_arguments(node)
    call.check_open_types()
    return call.results()


class InvocationCheck:
    """One invocation being compared with a signature."""

    def __init__(
        self, state: CompositionState, node: Invocation | Quantization, signature: OperatorSignature
    ) -> None:
        self._state = state
        self._node = node
        self._signature = signature
        self._types: dict[str, str] = {}
        self._width: str = "real"
        self._unsure = False
        self._failed = False
        self._arguments: list[ValueKind] = []

    def _report(self, finding: Diagnostic) -> None:
        self._unsure = self._failed = True
        self._state.context.report(finding)

    def check_types(self, names_given: Sequence[str]) -> None:
        """The types written between `<` and `>`."""
        generics, name, span = self._signature.generics, self._node.operator, self._node.span
        if len(names_given) > len(generics):
            self._report(rules.TYPE_COUNT.at(span, name=name, left=len(generics), right=len(names_given)))
        for generic, type_name in zip(generics.values(), names_given, strict=False):
            if not is_type(type_name) and type_name not in self._state.context.generics:
                self._report(names.UNKNOWN_TYPE.at(span, name=type_name))
            else:
                self._bind(generic.name, type_name)

    def _bind(self, generic: str, name: str) -> None:
        """A generic type becomes a type; twice the same, or it is a finding."""
        base, span = self._signature.generics[generic].base, self._node.span
        restriction = self._state.context.generics.get(name, name)
        if base in ("arith", "num") and not belongs(restriction, base):
            self._report(
                rules.TYPE_BASE.at(span, generic=generic, name=self._node.operator, base=base, type=name)
            )
            return
        joined = join_types(self._types.get(generic, name), name)
        if joined is None:
            left, operator = self._types[generic], self._node.operator
            self._report(rules.TYPE_CONFLICT.at(span, generic=generic, name=operator, left=left, right=name))
        else:
            self._types[generic] = joined

    def _fits(self, declared: ValueKind, kind: ValueKind) -> bool:
        """Whether a value has the type of a parameter; a generic type is bound by it."""
        if not (declared.known and kind.known):
            self._unsure = True
            return True
        if declared.type is not None and declared.type in self._signature.generics:
            if kind.type:
                self._bind(declared.type, kind.type)
            return True
        if declared.type != "real" or not agrees(declared, kind):
            return agrees(declared, kind)
        # All that a call takes as real has one width.
        joined = join_types(self._width, kind.type)
        self._width = joined or self._width
        return joined is not None

    def check_attributes(self, given: Sequence[Attribute]) -> None:
        """The attributes between the braces."""
        name, declared = self._node.operator, self._signature.attributes
        seen: set[str] = set()
        for item in given:
            if item.name in seen:
                self._report(rules.ATTRIBUTE_TWICE.at(item.span, attribute=item.name))
            seen.add(item.name)
            kind = infer_value(self._state.context, item.value, f"attribute '{item.name}'")
            if item.name in declared:
                self._check_attribute(item, kind, *declared[item.name])
            else:
                near = did_you_mean(item.name, declared)
                hint = near or _listed("its attributes are", declared)
                self._report(rules.UNKNOWN_ATTRIBUTE.at(item.span, name=name, attribute=item.name, hint=hint))
        for parameter, _ in declared.values() if seen <= declared.keys() else ():
            if parameter.name not in seen and parameter.value is None and not parameter.type.optional:
                missing = parameter.name
                self._report(rules.ATTRIBUTE_MISSING.at(self._node.span, name=name, attribute=missing))

    def _check_attribute(
        self, item: Attribute, kind: ValueKind, parameter: Parameter, declared: ValueKind
    ) -> None:
        if not self._fits(declared, kind) or (kind.packed and declared.known and not declared.packed):
            shown_kind = ValueKind(declared.type, packed=declared.packed)
            self._report(
                rules.ATTRIBUTE_TYPE.at(
                    item.value.span,
                    hint=_conversion(declared, kind, excerpt(item.value)),
                    attribute=item.name,
                    name=self._node.operator,
                    left=shown_kind,
                    right=kind,
                )
            )
        elif kind.known and kind.optional and not parameter.type.optional:
            what = f"attribute '{item.name}' of '{self._node.operator}'"
            text = excerpt(item.value)
            self._report(types.OPTIONAL_HERE.at(item.value.span, text=text, what=what))

    def check_arguments(self, node: Invocation) -> None:
        """The tensors between the parentheses."""
        inputs = self._signature.inputs
        if len(node.arguments) > len(inputs):
            left, right = len(inputs), len(node.arguments)
            self._report(rules.TOO_MANY_ARGUMENTS.at(node.span, name=node.operator, left=left, right=right))
        for argument, (parameter, declared) in zip(node.arguments, inputs, strict=False):
            self._arguments.append(self._check_argument(argument, parameter, declared))
        for argument in node.arguments[len(inputs) :]:
            if not isinstance(argument, Omitted):
                self._state.context.infer(argument)
        for parameter, _ in inputs[len(node.arguments) :]:
            if parameter.value is None and not parameter.type.optional:
                finding = rules.ARGUMENT_MISSING.at(node.span, name=node.operator, input=parameter.name)
                self._report(finding)

    def _check_argument(
        self, argument: Expr | Omitted, parameter: Parameter, declared: ValueKind
    ) -> ValueKind:
        name = self._node.operator
        if isinstance(argument, Omitted):
            if not parameter.type.optional:
                finding = rules.OMITTED_ARGUMENT.at(argument.span, input=parameter.name, name=name)
                self._report(finding)
            return UNKNOWN
        written = self._state.context.infer(argument)
        kind = as_tensor(written)
        if not self._fits(declared, kind):
            left = self._width if declared.type == "real" else declared.type
            right = kind.type
            self._report(
                rules.ARGUMENT_TYPE.at(argument.span, input=parameter.name, name=name, left=left, right=right)
            )
        elif kind.known and declared.known and kind.packed != declared.packed:
            left, right = _number(declared), _number(kind)
            self._report(
                rules.ARGUMENT_PACK.at(argument.span, input=parameter.name, name=name, left=left, right=right)
            )
        elif kind.known and kind.optional and not parameter.type.optional:
            what = f"input '{parameter.name}' of '{name}'"
            self._report(types.OPTIONAL_HERE.at(argument.span, text=excerpt(argument), what=what))
        elif written.tensor:
            self._check_rank(argument, parameter, declared, kind)
        return kind if written.tensor else UNKNOWN

    def _check_rank(self, argument: Expr, parameter: Parameter, declared: ValueKind, kind: ValueKind) -> None:
        """Ranks are compared where one of them is a number; their symbols are of different operators."""
        if not (isinstance(declared.rank, int) or isinstance(kind.rank, int)):
            return
        if self._state.context.algebra.differ(declared.rank, kind.rank):
            left, right, name = shown(declared.rank), shown(kind.rank), self._node.operator
            self._report(
                rules.ARGUMENT_RANK.at(argument.span, input=parameter.name, name=name, left=left, right=right)
            )

    def check_open_types(self) -> None:
        """Every generic type is given, deduced or has a default."""
        for generic in self._signature.generics.values():
            if generic.name in self._types or self._unsure:
                continue
            if generic.default is not None:
                self._types[generic.name] = generic.default
            else:
                name, span = self._node.operator, self._node.span
                self._report(rules.TYPE_OPEN.at(span, generic=generic.name, name=name))

    def results(self) -> list[ValueKind]:
        """The kinds of the results, as far as the signature determines them."""
        return [self._result(kind) for _, kind in self._signature.outputs]

    def _result(self, kind: ValueKind) -> ValueKind:
        name = kind.type
        if name is not None and name in self._signature.generics:
            name = self._types.get(name)
        if name is None or self._failed:
            return ValueKind(None, packed=kind.packed)
        name = self._width if name == "real" else name
        length = kind.length if isinstance(kind.length, int) else None
        return ValueKind(name, kind.optional, kind.packed, True, length, rank=self._rank(kind))

    def _rank(self, kind: ValueKind) -> MaybeExtent:
        """The rank of a result: a number, or that of an argument whose declared rank is the same."""
        if isinstance(kind.rank, int) or kind.rank is None:
            return kind.rank
        for (_, declared), argument in zip(self._signature.inputs, self._arguments, strict=False):
            if declared.rank == kind.rank and argument.rank is not None:
                return argument.rank
        return None


def _listed(words: str, items: Iterable[str]) -> str:
    """A few names as a hint, nothing where there are none."""
    shown_names = ", ".join(list(items)[:12])
    return f"{words} {shown_names}" if shown_names else ""


def _number(kind: ValueKind) -> str:
    return "a pack of tensors" if kind.packed else "a single tensor"


def _conversion(declared: ValueKind, kind: ValueKind, text: str) -> str:
    """How an int becomes a real; the usual slip is a number without a point."""
    if (declared.type, kind.type) != ("real", "int") or kind.packed or kind.tensor:
        return ""
    return f"write {text}.0" if text.removeprefix("-").isdecimal() else f"write real({text})"
