"""The components of a composition, in their order."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lamella.lang.skriptnd.check.composition.control import Kinds, check_branch, check_loop
from lamella.lang.skriptnd.check.composition.invocations import check_invocation
from lamella.lang.skriptnd.check.composition.quantize import check_quantization
from lamella.lang.skriptnd.check.composition.results import Results
from lamella.lang.skriptnd.check.composition.state import Edge, State
from lamella.lang.skriptnd.check.context import Context, Place
from lamella.lang.skriptnd.check.declare.patterns import names_of
from lamella.lang.skriptnd.check.definitions import Definitions
from lamella.lang.skriptnd.check.kinds import UNKNOWN, Kind
from lamella.lang.skriptnd.nodes import (
    Block,
    Branch,
    Callee,
    Component,
    Invocation,
    Loop,
    Operator,
    Pattern,
)
from lamella.lang.skriptnd.rules import composition as rules


def check_composition(context: Context, definitions: Definitions, operator: Operator) -> list[Edge]:
    """Check what an operator composes, updates and quantises; the invocations it always makes are returned."""
    state = State(context, definitions, operator)
    composed = _components(operator, "compose")
    if composed or any(section.name == "compose" for section in operator.sections):
        open_names = {item.name for item in operator.parameters("output")}
        missing = _check_section(state, composed, open_names, "compose")
        for item in operator.parameters("output"):
            if item.name in missing:
                context.report(rules.OUTPUT_MISSING.at(item.span, name=item.name))
    variables = {item.name for item in operator.parameters("variable")}
    _check_section(state, _components(operator, "update"), variables, "update")
    with context.at(Place("quantize")):
        check_quantization(state)
    return state.edges


def _components(operator: Operator, section: str) -> list[Component]:
    return [item for item in operator.items(section) if isinstance(item, Component)]


def _check_section(state: State, items: Sequence[Component], open_names: set[str], section: str) -> set[str]:
    """Check a block of components; the declared names that it does not assign are returned."""
    results = Results(state, open_names, True, section)
    # Outputs are known from their assignment on; variables have a value before their update.
    later: Collection[str] = open_names if section == "compose" else ()
    with state.context.at(Place(section, later=later)):
        _check_components(state, items, results)
    return open_names


def _check_components(state: State, items: Sequence[Component], results: Results) -> None:
    for item in items:
        named = [result for pattern in item.results for result in names_of(pattern)]
        state.labelled = len(named) == 1 or len(items) == 1
        if len(named) == 1:
            state.all_labels.add(named[0].name)
        found = _check_value(state, item)
        _assign(state, item, found, results)


def _assign(state: State, item: Component, found: Kinds, results: Results) -> None:
    patterns: Sequence[Pattern] = item.results
    if found is not None and len(found) != len(patterns):
        what = f"'{item.value.operator}'" if isinstance(item.value, Invocation) else "the right side"
        hint = "the result is a pack: take it apart with [a, b]" if _is_pack(found) else None
        state.context.report(
            rules.RESULT_COUNT.at(item.span, hint=hint, what=what, left=len(patterns), right=len(found))
        )
        found = None
    kinds = found if found is not None else [UNKNOWN] * len(patterns)
    for pattern, kind in zip(patterns, kinds, strict=True):
        results.assign(pattern, kind, isinstance(item.value, Invocation))


def _is_pack(found: Sequence[Kind]) -> bool:
    return len(found) == 1 and found[0].packed


def _check_value(state: State, item: Component) -> Kinds:
    def evaluate(callee: Callee) -> Kinds:
        return _evaluate(state, callee)

    if isinstance(item.value, Branch):
        return check_branch(state, item.value, evaluate)
    if isinstance(item.value, Loop):
        return check_loop(state, item.value, evaluate)
    return evaluate(item.value)


def _evaluate(state: State, callee: Callee) -> Kinds:
    """The results of an invocation, a block or an expression."""
    if isinstance(callee, Invocation):
        return check_invocation(state, callee)
    if isinstance(callee, Block):
        return _check_block(state, callee)
    return [state.tensor(callee, "a result")]


def _check_block(state: State, block: Block) -> Kinds:
    state.add_label(block.label, block.span)
    labelled = state.labelled
    with state.block():
        _check_components(state, block.components, Results(state, set(), False))
        found = [state.tensor(item, "a result of a block") for item in block.results]
    state.labelled = labelled
    return found
