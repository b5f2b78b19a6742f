"""Helper symbols and assertions, in the order in which each can be had."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from lamella.base.diagnostic import Diagnostic, Label
from lamella.base.dim import TooComplex
from lamella.lang.skriptnd import nodes
from lamella.lang.skriptnd.rules.invocation import FAILED_ASSERTION, UNDECIDED
from lamella.lang.skriptnd.rules.shapes import HINT_LENGTH, PATTERN_LENGTH
from lamella.lang.skriptnd.rules.types import NOT_A_PACK, NOT_BOOL
from lamella.ops.bind.plan import Assert, Step, UsingPlan
from lamella.ops.bind.state import Binding
from lamella.ops.evaluate import Code
from lamella.ops.instance import Check, Repeated
from lamella.ops.problem import Fault, Problem
from lamella.ops.scalars.terms import is_term, is_truth
from lamella.ops.scalars.values import CONDITIONS, Unknown, expect_known, show, word_of


def take_steps(binding: Binding, steps: Iterable[Step]) -> None:
    """Evaluate helper symbols and test assertions.

    The order in which assertions are written does not matter: one that cannot be evaluated waits, for another one may
    say why.
    """
    held: Problem | None = None
    for step in steps:
        if isinstance(step, UsingPlan):
            if held is not None:
                break
            define(binding, step)
            continue
        try:
            test(binding, step)
        except Problem as problem:
            if problem.findings[0].code == FAILED_ASSERTION.code:
                raise
            held = held or problem
    if held is not None:
        raise held


# --- assertions ---------------------------------------------------------------------------------------------


def test(binding: Binding, step: Assert) -> None:
    """One assertion: it holds, it does not, or the run must tell; a null one is skipped."""
    value = step.condition(binding.scope)
    if value is True or value is None:
        return
    items = value if isinstance(value, tuple) else (value.item if isinstance(value, Repeated) else value,)
    for item in items:
        if item is False:
            _know_more(binding, step)
            raise Problem(_failure(binding, step))
    for item in items:
        if isinstance(item, CONDITIONS) or (is_term(item) and word_of(item) == "bool"):
            found = _failure(binding, step)
            binding.checks.append(Check(item, found.message, step.node.span))
        elif not is_truth(item):
            raise Fault(NOT_BOOL, what="the condition", type=word_of(item)).at(step.node.condition.span)


def test_known(binding: Binding) -> None:
    """The assertions that can be tested already, for a call whose shapes do not fit: their own words tell more."""
    for step in binding.plan.asserts:
        if step.names <= binding.scope.keys():
            try:
                test(binding, step)
            except Problem as problem:
                if problem.findings[0].code == FAILED_ASSERTION.code:
                    raise


def _know_more(binding: Binding, step: Assert) -> None:
    """What a message tells may come after its assertion: shapes and helper symbols, as far as they can be had."""
    more, binding.more = binding.more, None
    if step.told <= binding.scope.keys():
        return
    if more is not None:
        with suppress(Problem, Fault, TooComplex):
            more()
    for using in binding.plan.usings:
        if not using.targets <= binding.scope.keys():
            with suppress(Problem, Fault, TooComplex):
                define(binding, using)


def _failure(binding: Binding, step: Assert) -> Diagnostic:
    condition = " ".join(step.node.condition.span.text.split())
    message = "".join(_told(binding, part) for part in step.message) or f"'{condition}' does not hold"
    values = [f"{label} = {_told(binding, code)}" for label, code in step.values]
    if not step.message and not values:
        names = sorted(step.names - binding.plan.dtypes.keys())
        values = [f"{name} = {show(binding.scope.get(name))}" for name in names]
    told = f" ({', '.join(values)})" if values else ""
    label = Label(step.node.span, "required here")
    return binding.problem(FAILED_ASSERTION, [label], message=message, values=told).findings[0]


def _told(binding: Binding, code: Code) -> str:
    """A value for a message; one that cannot be had does not hide the assertion itself."""
    try:
        return show(code(binding.scope))
    except (Problem, Fault):
        return "?"


# --- helper symbols -----------------------------------------------------------------------------------------


def define(binding: Binding, step: UsingPlan) -> None:
    """One helper symbol, or the several that a pattern names."""
    try:
        value = step.value(binding.scope)
    except Problem as problem:
        if problem.findings[0].code != UNDECIDED.code:
            raise
        binding.scope.update(dict.fromkeys(step.targets, Unknown(problem)))
        binding.has_unknown = True
        return
    target = step.node.target
    try:
        _assign(binding, target, value)
    except Fault as fault:
        raise fault.at(target.span) from None


def _assign(binding: Binding, target: nodes.Pattern, value: object) -> None:
    if isinstance(target, nodes.Result):
        _check_hint(binding, target, value)
        binding.scope[target.name] = value
    elif isinstance(target, nodes.ListPattern):
        if value is None:
            _assign_null(binding, target)
            return
        if not isinstance(value, tuple):
            raise Fault(NOT_A_PACK, what="a list on the left", text=show(value))
        _take_apart(binding, target.items, value)


def _check_hint(binding: Binding, target: nodes.Result, value: object) -> None:
    """A length that is said again must be the length."""
    if target.pack is None or not isinstance(value, tuple):
        return
    expected = _length(binding, target.pack)
    if expected is not None and expected != len(value):
        raise Fault(HINT_LENGTH, name=target.name, left=expected, right=len(value))


def _assign_null(binding: Binding, target: nodes.ListPattern) -> None:
    for item in target.items:
        found = item.items if isinstance(item, nodes.Unzip) else (item,)
        binding.scope.update({part.name: None for part in found if isinstance(part, nodes.Result)})


def _length(binding: Binding, pack: nodes.Pack) -> int | None:
    if pack.length is None or isinstance(pack.length, nodes.Omitted):
        return None
    value = binding.plan.compiler.compile(pack.length)(binding.scope)
    return expect_known(value, "a length")


def _take_apart(
    binding: Binding, items: Sequence[nodes.Result | nodes.Unzip | nodes.Omitted], value: tuple[object, ...]
) -> None:
    """A pack into the items of a list pattern; one of them may have a length that follows from the others."""
    widths = [_width(binding, item) for item in items]
    known = sum(width for width in widths if width is not None)
    flexible = widths.count(None)
    rest = len(value) - known
    if flexible > 1 or rest < 0 or (not flexible and rest):
        raise Fault(PATTERN_LENGTH, left=known, right=len(value))
    place = 0
    for item, width in zip(items, widths, strict=True):
        size = rest if width is None else width
        _give(binding, item, value[place : place + size])
        place += size


def _width(binding: Binding, item: nodes.Result | nodes.Unzip | nodes.Omitted) -> int | None:
    """How many items a part of a pattern takes; None where the others tell."""
    if isinstance(item, nodes.Omitted) or item.pack is None:
        return 1
    length = _length(binding, item.pack)
    if length is None:
        return None
    return length * len(item.items) if isinstance(item, nodes.Unzip) else length


def _give(
    binding: Binding, item: nodes.Result | nodes.Unzip | nodes.Omitted, part: tuple[object, ...]
) -> None:
    if isinstance(item, nodes.Result):
        binding.scope[item.name] = part[0] if item.pack is None else part
    elif isinstance(item, nodes.Unzip):
        count = len(item.items)
        if len(part) % count:
            raise Fault(PATTERN_LENGTH, left=f"{count} by {count}", right=len(part))
        for index, result in enumerate(item.items):
            binding.scope[result.name] = part[index::count]
