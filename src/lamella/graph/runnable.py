"""Whether a composed graph can run: what the reference would refuse before it sees a number.

`check` goes the way of `run` with it, without arrays: every call is bound, its formula written out, what is kept whole
decomposed. What depends on extents that only the run tells is left to the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic, Label, LamellaError
from lamella.base.dim import Dim, TooComplex
from lamella.base.dtype import ElementType, Kind
from lamella.base.errors import Found
from lamella.base.limits import LARGEST, Limits, in_range
from lamella.base.origin import Origin, with_origin
from lamella.base.source import NOWHERE, Span
from lamella.graph.binding import bind_operation, signature
from lamella.graph.build import result
from lamella.graph.compose.decompose import compose_call
from lamella.graph.compose.operations import fits
from lamella.graph.nodes import Argument, Constant, Graph, Operation, Pack, Shape, Tensor, tensors, walk
from lamella.lang.skriptnd.rules.data import OPEN_SHAPE
from lamella.lang.skriptnd.rules.graphs import (
    INDEX_OUTSIDE,
    INTEGER_TOO_WIDE,
    INTRINSIC,
    NO_MEANING,
    RANK_DIFFERS,
    TOO_MUCH_MEMORY,
)
from lamella.ops.fault import Fault
from lamella.ops.formula import MOST_LOOPS, Apply, Contraction, Element, Guard, Index, Scalar
from lamella.ops.instance import Instance, singles
from lamella.ops.library import Library
from lamella.ops.lower import contractions, operands
from lamella.ops.scalars.terms import ends_of

LAZY = frozenset(("?:", "&&", "||", "=>"))
"""Functions of which not every operand counts in every step."""


def refusals(graph: Graph, library: Library, limits: Limits) -> list[Diagnostic]:
    """Why a graph cannot run whatever it is given; of calls that differ in names alone the first is reported."""
    found = _Refusals(library, limits)
    for item in graph.inputs:
        found.declare(item)
    for tensor in graph.variables:
        found.variable(tensor)
    for constant in graph.constants:
        found.constant(constant)
    for operation in graph.operations():
        found.operation(operation)
    return found.findings


class _Refusals:
    """Collects what is wrong, each call once."""

    def __init__(self, library: Library, limits: Limits) -> None:
        self.library = library
        self.limits = limits
        self.findings: list[Diagnostic] = []
        self._seen: set[object] = set()

    def declare(self, item: Argument) -> None:
        """An input or a variable: its elements can be held, and there is room for it."""
        for part in (item,) if isinstance(item, Pack) else tensors(item):
            try:
                self._keep_type(part.element)
                self._keep_size(part)
            except Fault as fault:
                self._report_fault(fault, part.name, part.origin)

    def variable(self, tensor: Tensor) -> None:
        """A variable: what is stored has a shape of its own."""
        self.declare(tensor)
        if any(isinstance(extent, Dim) for extent in tensor.shape):
            shape = f"{tensor.element}[{', '.join(map(str, tensor.shape))}]"
            self._report_fault(Fault(OPEN_SHAPE, name=tensor.name, shape=shape), tensor.name, tensor.origin)

    def constant(self, constant: Constant) -> None:
        """A constant: all its values are numbers that the run can hold."""
        tensor = constant.tensor
        self.declare(tensor)
        values = singles(constant.value)
        if any(isinstance(item, str) for item in values):
            fault = Fault(NO_MEANING, reason="a constant holds strings")
            self._report_fault(fault, tensor.name, tensor.origin)
        wide = next((item for item in values if isinstance(item, int) and not in_range(item)), None)
        if wide is not None:
            fault = Fault(INTEGER_TOO_WIDE, bits=wide.bit_length())
            self._report_fault(fault, tensor.name, tensor.origin)

    def operation(self, operation: Operation) -> None:
        """A call with all that it is made of."""
        key = signature(operation)
        if key in self._seen:
            return
        self._seen.add(key)
        try:
            self._try(operation)
        except Fault as fault:
            self._report_fault(fault, operation.operator, operation.origin)
        except (Found, LamellaError) as problem:
            self._tell(problem.findings, operation.operator, operation.origin)
        except TooComplex as problem:
            self._report_fault(Fault(NO_MEANING, reason=problem), operation.operator, operation.origin)

    def _try(self, operation: Operation) -> None:
        instance = bind_operation(self.library, operation)
        for declared in instance.outputs:
            self._keep_type(declared.element)
        for item, declared in zip(operation.outputs, instance.outputs, strict=True):
            for part, made in zip(tensors(item), tensors(result(declared, "")), strict=False):
                if not fits(made.shape, part.shape):
                    raise Fault(RANK_DIFFERS, name=part.name, found=list(made.shape), shape=list(part.shape))
                self._keep_size(part)
        kind = instance.definition.operator.kind
        if kind == "compose":
            body = compose_call(self.library, operation, limits=self.limits)
            for constant in body.constants:
                self.constant(constant)
            for node in walk(body.nodes):
                if isinstance(node, Operation):
                    self.operation(replace(node, origin=operation.origin))
        elif kind == "lower" and not any(isinstance(item, Pack) for item in operation.outputs):
            for formula in contractions(instance):
                self._keep_loops(formula)
                _keep_numbers(formula)
                _keep_inside(formula, instance)
        elif kind == "intrinsic" and not instance.definition.standard:
            raise Fault(INTRINSIC)

    def _keep_type(self, element: ElementType) -> None:
        if element.kind is Kind.COMPLEX:
            raise Fault(NO_MEANING, reason=f"elements of type {element} are not executed")

    def _keep_size(self, item: Tensor | Pack) -> None:
        """A tensor of known extents fits into memory by itself."""
        needed = largest = -(-item.element.bits // 8)
        for extent in item.shape:
            if isinstance(extent, Dim):
                return
            needed, largest = needed * extent, largest * max(extent, 1)
        # An empty tensor needs nothing, but NumPy still counts its other extents.
        if needed > self.limits.max_total_bytes or largest > LARGEST:
            raise Fault(TOO_MUCH_MEMORY, needed=largest, limit=self.limits.max_total_bytes)

    def _keep_loops(self, formula: Contraction) -> None:
        count = sum(loop.extent != 1 for loop in formula.loops)
        if count > MOST_LOOPS and not any(isinstance(loop.extent, Dim) for loop in formula.loops):
            raise Fault(NO_MEANING, reason=f"its formula has {count} loops; at most {MOST_LOOPS} can be run")

    def _report_fault(self, fault: Fault, name: str, origin: Origin | None) -> None:
        given = Fault(fault.rule, **{"operator": name, **fault.values})
        self._tell(given.at(_place(origin)).findings, name, origin)

    def _tell(self, findings: Iterable[Diagnostic], name: str, origin: Origin | None) -> None:
        self.findings += [_at_call(item, name, origin) for item in findings]


def _place(origin: Origin | None) -> Span:
    return NOWHERE if origin is None or origin.span is None else origin.span


def _at_call(finding: Diagnostic, name: str, origin: Origin | None) -> Diagnostic:
    """A finding inside of a call, moved to where the call stands, with the place inside as a label."""
    place = _place(origin)
    if place is NOWHERE or finding.span == place:
        return with_origin(finding, origin)
    inside = (Label(finding.span, "here"),) if finding.span.source.text else ()
    message = finding.message if finding.message.startswith(f"{name}:") else f"{name}: {finding.message}"
    labels = (*inside, *finding.labels)
    return with_origin(replace(finding, message=message, span=place, labels=labels), origin)


def _keep_numbers(formula: Contraction) -> None:
    """Refuse an integer that the run cannot compute with."""
    for term in _terms((*formula.targets, *formula.values, formula.condition)):
        if isinstance(term, int) and not in_range(term):
            raise Fault(INTEGER_TOO_WIDE, bits=term.bit_length())


# --- indices --------------------------------------------------------------------------------------------------


def _keep_inside(formula: Contraction, instance: Instance) -> None:
    """Refuse an index that leaves its tensor in some step that is certainly taken."""
    ranges = {loop.index: loop.extent for loop in formula.loops}
    if formula.condition is not None or any(isinstance(item, Dim) or item < 1 for item in ranges.values()):
        return
    elements = list(_elements((*formula.targets, *formula.values)))
    if any(isinstance(part, Guard) for item in elements for part in item.indices):
        return
    for element in elements:
        shape = _shape_of(instance, element)
        for axis, (index, extent) in enumerate(zip(element.indices, shape, strict=False)):
            ends = None if isinstance(index, Guard) or not _is_simple(index) else ends_of(index, ranges, {})
            if ends is None or isinstance(extent, Dim):
                continue
            outside = next((end for end in ends if not 0 <= end < extent), None)
            if outside is not None:
                details = {"index": outside, "tensor": element.tensor, "dimension": axis, "extent": extent}
                raise Fault(INDEX_OUTSIDE, operator=instance.definition.name, **details)


def _elements(terms: Iterable[Scalar]) -> Iterator[Element]:
    """The accesses that every step makes."""
    return (term for term in _terms(terms, LAZY) if isinstance(term, Element))


def _terms(terms: Iterable[Scalar | None], closed: Collection[str] = ()) -> Iterator[object]:
    """Every term, each once, however often it is shared; what some functions are applied to is left out."""
    seen: set[int] = set()
    stack: list[object] = list(terms)
    while stack:
        term = stack.pop()
        if id(term) in seen:
            continue
        seen.add(id(term))
        yield term
        if not isinstance(term, Apply) or term.function not in closed:
            stack += operands(term)


def _is_simple(index: Scalar) -> bool:
    """Whether each loop index occurs once at most, so that the ends of the index are really reached."""
    names: list[str] = []
    stack: list[object] = [index]
    while stack and len(names) < MOST_LOOPS:
        term = stack.pop()
        if isinstance(term, Index):
            names.append(term.name)
        stack += operands(term)
    return not stack and len(names) == len(set(names))


def _shape_of(instance: Instance, element: Element) -> Shape:
    declared = (*instance.outputs, *instance.variables, *(item for item, _ in instance.constants))
    found: object = next((item.tensors() for item in declared if item.name == element.tensor), None)
    if found is None:
        found = instance.symbols.get(element.tensor)
    if isinstance(found, tuple):
        place = element.item if isinstance(element.item, int) else -1
        found = found[place] if 0 <= place < len(found) else None
    shape = getattr(found, "shape", None)
    return shape if isinstance(shape, tuple) else ()
