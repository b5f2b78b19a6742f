"""Compositions: components, control flow, updates and quantisation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.lang.skriptnd.check.context import CheckedBlock, DeclaredName, OperatorContext
from lamella.lang.skriptnd.check.definitions import Definitions, OperatorSignature
from lamella.lang.skriptnd.check.expressions import tested
from lamella.lang.skriptnd.check.invocations import (
    CompositionState,
    InvocationCheck,
    InvocationEdge,
    as_tensor,
    check_invocation,
)
from lamella.lang.skriptnd.check.kinds import (
    UNKNOWN,
    MaybeExtent,
    ValueKind,
    agrees,
    family,
    join_types,
    length_of,
    number_of,
    shown,
)
from lamella.lang.skriptnd.check.shapes import Declaring, names_of, pack_of, read_tensor, take, type_of
from lamella.lang.skriptnd.nodes import (
    Block,
    Branch,
    Callee,
    Carried,
    Component,
    Invocation,
    ListPattern,
    Loop,
    Operator,
    Parameter,
    Pattern,
    Quantization,
    Result,
)
from lamella.lang.skriptnd.rules import composition as rules

# --- control flow: branches that agree, loops that end ------------------------------------------------------


Kinds: TypeAlias = list[ValueKind] | None
Evaluate: TypeAlias = Callable[[Callee], Kinds]


def check_branch(state: CompositionState, node: Branch, evaluate: Evaluate) -> Kinds:
    """The results of a branch: what its parts agree on."""
    statics = [_check_condition(state, condition, evaluate) for condition, _ in node.cases]
    merged: Kinds = None
    with state.control(any(statics)):
        for number, (condition, consequent) in enumerate((*node.cases, (None, node.otherwise))):
            with state.context.inner():
                if condition is not None and not isinstance(condition, Invocation | Block):
                    state.context.present(tested(condition))
                kinds = evaluate(consequent)
            merged = kinds if number == 0 else _merge(state, consequent, (merged, kinds), all(statics))
    return merged


def _check_condition(state: CompositionState, condition: Callee, evaluate: Evaluate) -> bool:
    """Whether a condition is known before the run; one that is not a single bool is a finding."""
    if isinstance(condition, Invocation | Block):
        with state.control(False):
            kinds = evaluate(condition)
        if kinds is not None and (len(kinds) != 1 or not _is_truth(kinds[0])):
            text = kinds[0] if len(kinds) == 1 else f"{len(kinds)} results"
            state.context.report(rules.CONDITION.at(condition.span, what="the condition", found=text))
        return False
    kind = state.context.infer(condition)
    if not _is_truth(kind):
        state.context.report(rules.CONDITION.at(condition.span, what="the condition", found=kind))
    elif kind.optional:
        state.required(condition, kind, "a condition")
    return not kind.tensor


def _is_truth(kind: ValueKind) -> bool:
    return not kind.known or (kind.type == "bool" and not kind.packed)


def _merge(state: CompositionState, node: Callee, both: tuple[Kinds, Kinds], static: bool) -> Kinds:
    left, right = both
    if left is None or right is None:
        return None
    if len(left) != len(right):
        state.context.report(rules.BRANCH_COUNT.at(node.span, left=len(left), right=len(right)))
        return None
    pairs = enumerate(zip(left, right, strict=True), 1)
    return [_merge_one(state, node, number, (one, two), static) for number, (one, two) in pairs]


def _merge_one(
    state: CompositionState, node: Callee, number: int, both: tuple[ValueKind, ValueKind], static: bool
) -> ValueKind:
    """One result of two branches; before the run only one of them remains, and only the types have to agree."""
    left, right = both
    if not (left.known and right.known):
        return UNKNOWN
    if not agrees(left, right) or (left.packed != right.packed and not static):
        state.context.report(rules.BRANCH_TYPE.at(node.span, number=number, left=left, right=right))
        return UNKNOWN
    if left.packed != right.packed:
        return UNKNOWN
    if state.context.algebra.differ(left.rank, right.rank) and not static:
        one, two = shown(left.rank), shown(right.rank)
        state.context.report(rules.BRANCH_RANK.at(node.span, number=number, left=one, right=two))
    rank = left.rank if left.rank == right.rank else None
    length = left.length if left.length == right.length else None
    name = join_types(left.type, right.type)
    return ValueKind(name, left.optional or right.optional, left.packed, True, length, rank)


def check_loop(state: CompositionState, loop: Loop, evaluate: Evaluate) -> Kinds:
    """The results of a loop: carried values first, then what is collected."""
    _check_form(state, loop)
    carried = [_infer_carried(state, item) for item in loop.carried]
    length = _infer_scans(state, loop)
    count = _infer_count(state, loop)
    with state.control(static=loop.unroll), state.context.inner() as scope:
        for item, kind in zip(loop.carried, carried, strict=True):
            scope.names[item.name] = DeclaredName(kind, "a carried value", item.span)
        for scan, kind in _scanned(state, loop):
            scope.names[scan] = DeclaredName(kind, "an item of a loop", loop.span)
        if loop.iteration is not None and loop.iteration.index is not None:
            index = loop.iteration.index
            kind = (
                ValueKind("int", value=number_of(index))
                if loop.unroll
                else ValueKind("int", tensor=True, rank=0)
            )
            scope.names[index] = DeclaredName(kind, "a loop index", loop.iteration.span)
        for condition in (loop.before, loop.after):
            if condition is not None:
                _check_condition(state, condition, evaluate)
        body_kinds = evaluate(loop.body)
    if body_kinds is None:
        return None
    total = count.value if count is not None and not count.tensor and not count.optional else None
    if count is None and loop.before is None and loop.after is None:
        total = length
    return _loop_results(state, loop, (carried, body_kinds), total)


def _check_form(state: CompositionState, loop: Loop) -> None:
    """A loop has an end, and one that is unrolled has it before the run."""
    report, counted = state.context.report, loop.iteration is not None and loop.iteration.count is not None
    conditions = [item for item in (loop.before, loop.after) if item is not None]
    if loop.unroll and conditions:
        report(rules.UNROLL_WHILE.at(conditions[0].span))
    elif loop.unroll and not loop.scans and not counted:
        report(rules.UNROLL_OPEN.at(loop.span))
    elif not loop.scans and not counted and not conditions:
        report(rules.ENDLESS.at(loop.span))
    elif len(conditions) == 2:
        report(rules.TWO_CONDITIONS.at(conditions[1].span))


def _infer_carried(state: CompositionState, item: Carried) -> ValueKind:
    value = state.tensor(item.value, f"the carried '{item.name}'")
    if item.type is None:
        return value
    parameter = Parameter(item.name, item.type, span=item.span)
    declared = read_tensor(state.context, parameter, Declaring("carried value"))
    if not agrees(declared, value):
        left, right = declared.type, value.type
        return state.context.report(rules.CARRIED_TYPE.at(item.span, name=item.name, left=left, right=right))
    return declared


def _infer_scans(state: CompositionState, loop: Loop) -> MaybeExtent:
    """The common length of the packs that are scanned."""
    common: MaybeExtent = None
    for item in loop.scans:
        kind = state.tensor(item.value, f"the scan of '{item.name}'")
        if kind.known and not kind.packed:
            state.context.report(rules.SCAN_PACK.at(item.span, name=item.name))
        elif state.context.algebra.differ(common, kind.length):
            left, right = shown(common), shown(kind.length)
            state.context.report(rules.SCAN_LENGTHS.at(item.span, left=left, right=right))
        common = kind.length if common is None else common
    return common


def _scanned(state: CompositionState, loop: Loop) -> list[tuple[str, ValueKind]]:
    """The items of the scanned packs; the packs were checked before, and nothing is said twice."""
    findings = len(state.context.findings)
    kinds = [(item.name, as_tensor(state.context.infer(item.value))) for item in loop.scans]
    del state.context.findings[findings:]
    return [(name, kind.present().single() if kind.packed else UNKNOWN) for name, kind in kinds]


def _infer_count(state: CompositionState, loop: Loop) -> ValueKind | None:
    if loop.iteration is None or loop.iteration.count is None:
        return None
    count = loop.iteration.count
    kind = state.context.infer(count)
    if kind.known and (kind.packed or family(kind.type or "") != "int"):
        state.context.report(rules.COUNT_TYPE.at(count.span, found=kind))
        return UNKNOWN
    if kind.tensor and loop.unroll:
        state.context.report(rules.UNROLL_TENSOR.at(count.span))
    return kind


def _loop_results(
    state: CompositionState, loop: Loop, kinds: tuple[list[ValueKind], list[ValueKind]], total: MaybeExtent
) -> list[ValueKind] | None:
    carried, body_kinds = kinds
    if len(body_kinds) < len(carried):
        left, right = len(carried), len(body_kinds)
        state.context.report(rules.CARRIED_COUNT.at(loop.body.span, left=left, right=right))
        return None
    kept = [
        _compare_carried(state, loop, item, (kind, result))
        for item, kind, result in zip(loop.carried, carried, body_kinds, strict=False)
    ]
    _check_collected(state, loop, body_kinds)
    steps = [item.pack(total) if item.known else UNKNOWN for item in body_kinds[len(carried) :]]
    return [*kept, *steps]


def _check_collected(state: CompositionState, loop: Loop, body_kinds: Sequence[ValueKind]) -> None:
    for number, kind in enumerate(body_kinds, 1):
        if kind.packed:
            state.context.report(rules.BODY_PACK.at(loop.body.span, number=number))
    counted = loop.iteration is not None and loop.iteration.count is not None
    if len(body_kinds) > len(loop.carried) and not loop.scans and not counted:
        conditions = loop.before is not None or loop.after is not None
        if conditions:
            state.context.report(rules.SCAN_LIMIT.at(loop.span))


def _compare_carried(
    state: CompositionState, loop: Loop, item: Carried, both: tuple[ValueKind, ValueKind]
) -> ValueKind:
    """A carried value keeps its type, and where the loop stays one, its rank."""
    kind, result = both
    if not (kind.known and result.known):
        return kind
    if not agrees(kind, result):
        left, right = str(kind.type), str(result.type)
    elif state.context.algebra.differ(kind.rank, result.rank) and not loop.unroll:
        left, right = f"of rank {shown(kind.rank)}", f"rank {shown(result.rank)}"
    else:
        return kind
    return state.context.report(rules.CARRIED_TYPE.at(loop.body.span, name=item.name, left=left, right=right))


# --- results: what is assigned to the names of a component --------------------------------------------------


class Results:
    """Assigns results on one level of a composition; `open` are the declared names it has to assign."""

    def __init__(
        self, state: CompositionState, open_names: set[str], top: bool, section: str = "compose"
    ) -> None:
        self._state = state
        self._open = open_names
        self._top = top
        self._section = section
        self._assigned: set[str] = set()

    def assign(self, pattern: Pattern, kind: ValueKind, invoked: bool) -> None:
        """Give the names of a pattern their tensors; `invoked` where an operator gives the result."""
        if isinstance(pattern, ListPattern) and kind.known and not kind.packed:
            self._state.context.report(rules.RESULT_PATTERN.at(pattern.span))
            kind = UNKNOWN
        for result, taken in take(self._state.context, pattern, kind):
            self._assign(result, taken, invoked and isinstance(pattern, Result))

    def _assign(self, result: Result, kind: ValueKind, invoked: bool) -> None:
        context = self._state.context
        kind = self._typed(result, kind)
        entry = context.scope.names.get(result.name)
        if result.name in self._assigned:
            context.report(rules.RESULT_TWICE.at(result.span, name=result.name))
            return
        self._assigned.add(result.name)
        if result.name in self._open and entry is not None:
            self._open.discard(result.name)
            self._compare(result, entry.kind, kind)
            return
        if entry is not None and self._top:
            self._refuse(result, entry)
            return
        if kind.packed and invoked and pack_of(result) is None:
            context.report(rules.RESULT_LENGTH.at(result.span, name=result.name))
        if kind.packed and kind.length is None:
            kind = kind.pack(length_of(f"|{result.name}|"))
        context.scope.names[result.name] = DeclaredName(kind.present(), "a result", result.span)

    def _refuse(self, result: Result, entry: DeclaredName) -> None:
        """A declared name that this block may not assign."""
        name, report = result.name, self._state.context.report
        if self._section == "update":
            report(rules.UPDATE_TARGET.at(result.span, name=name, what=entry.what))
        elif entry.what == "a variable":
            report(rules.VARIABLE_ASSIGNED.at(result.span, name=name))
        else:
            report(rules.PARAMETER_ASSIGNED.at(result.span, name=name, what=entry.what))

    def _typed(self, result: Result, kind: ValueKind) -> ValueKind:
        """A result with what is written of its type."""
        if result.type is None:
            return kind
        context = self._state.context
        if result.type.shape is None:
            declared = ValueKind(type_of(context, result.type, result.name), packed=kind.packed, tensor=True)
        else:
            parameter = Parameter(result.name, result.type, span=result.span)
            declared = read_tensor(context, parameter, Declaring("result", graph=True))
        if not self._compare(result, declared, kind):
            return UNKNOWN
        if not declared.known:
            return kind
        packed, length = declared.packed or kind.packed, declared.length or kind.length
        rank = kind.rank if declared.rank is None else declared.rank
        return ValueKind(declared.type, False, packed, True, length, rank)

    def _compare(self, result: Result, declared: ValueKind, kind: ValueKind) -> bool:
        """Whether what is declared and what is given agree in type, rank and number."""
        context, name = self._state.context, result.name
        if not (declared.known and kind.known):
            return True
        if not agrees(declared, kind):
            left, right = declared.type, kind.type
            context.report(rules.OUTPUT_TYPE.at(result.span, name=name, left=left, right=right))
        elif declared.packed != kind.packed and not (kind.packed and result.type is not None):
            left, right = (_number(item) for item in (declared, kind))
            context.report(rules.OUTPUT_PACK.at(result.span, name=name, left=left, right=right))
        elif context.algebra.differ(declared.rank, kind.rank):
            left, right = shown(declared.rank), shown(kind.rank)
            context.report(rules.OUTPUT_RANK.at(result.span, name=name, left=left, right=right))
        else:
            return True
        return False


def _number(kind: ValueKind) -> str:
    return "a pack" if kind.packed else "a single tensor"


# --- quantisation: which tensors, by which operators --------------------------------------------------------


def check_quantization(state: CompositionState) -> None:
    """Quantised tensors exist, each is quantised once, by an operator from one tensor to one tensor."""
    operator, seen = state.operator, set[str]()
    items = [item for item in operator.items("quantize") if isinstance(item, Quantization)]
    if items and not operator.graph:
        state.context.report(rules.QUANTISED_OPERATOR.at(items[0].span, name=operator.name))
        return
    for item in items:
        name = item.tensor.removeprefix(f"{state.definitions.module}.").removeprefix(f"{operator.name}.")
        if name in seen:
            state.context.report(rules.QUANTISED_TWICE.at(item.span, name=item.tensor))
        elif not _exists(state, name):
            state.context.report(rules.UNKNOWN_TENSOR.at(item.span, name=item.tensor))
        seen.add(name)
        _check_quantizer(state, item)


def _exists(state: CompositionState, name: str) -> bool:
    """Whether a tensor may have a name; below a label only the composition can tell."""
    first, _, rest = name.partition(".")
    if rest:
        return first in state.all_labels
    entry = state.context.scope.names.get(first.partition(":")[0])
    return entry is not None and (entry.kind.tensor or not entry.kind.known)


def _check_quantizer(state: CompositionState, item: Quantization) -> None:
    operator = state.definitions.resolve(item.operator, item.span)
    if operator is None or isinstance(operator, Diagnostic):
        if operator is not None:
            state.context.report(operator)
        return
    signature = state.definitions.signature(item.operator, operator)
    problem = _problem(signature)
    if problem:
        state.context.report(rules.QUANTISER.at(item.span, name=item.operator, what=problem))
        return
    call = InvocationCheck(state, item, signature)
    call.check_types(item.types)
    call.check_attributes(item.attributes)


def _problem(signature: OperatorSignature) -> str:
    if len(signature.inputs) != 1 or len(signature.outputs) != 1:
        return f"it has {len(signature.inputs)} inputs and {len(signature.outputs)} outputs"
    (_, before), (_, after) = signature.inputs[0], signature.outputs[0]
    if before.packed or after.packed:
        return "it takes or gives a pack"
    return "" if agrees(before, after) else f"it makes {after.type} of {before.type}"


# --- the components of a composition, in their order --------------------------------------------------------


def check_composition(
    context: OperatorContext, definitions: Definitions, operator: Operator
) -> list[InvocationEdge]:
    """Check what an operator composes, updates and quantises; the invocations it always makes are returned."""
    state = CompositionState(context, definitions, operator)
    composed = _components(operator, "compose")
    if composed or any(section.name == "compose" for section in operator.sections):
        open_names = {item.name for item in operator.parameters("output")}
        missing = _check_section(state, composed, open_names, "compose")
        for item in operator.parameters("output"):
            if item.name in missing:
                context.report(rules.OUTPUT_MISSING.at(item.span, name=item.name))
    variables = {item.name for item in operator.parameters("variable")}
    _check_section(state, _components(operator, "update"), variables, "update")
    with context.at(CheckedBlock("quantize")):
        check_quantization(state)
    return state.edges


def _components(operator: Operator, section: str) -> list[Component]:
    return [item for item in operator.items(section) if isinstance(item, Component)]


def _check_section(
    state: CompositionState, items: Sequence[Component], open_names: set[str], section: str
) -> set[str]:
    """Check a block of components; the declared names that it does not assign are returned."""
    results = Results(state, open_names, True, section)
    # Outputs are known from their assignment on; variables have a value before their update.
    later: Collection[str] = open_names if section == "compose" else ()
    with state.context.at(CheckedBlock(section, later=later)):
        _check_components(state, items, results)
    return open_names


def _check_components(state: CompositionState, items: Sequence[Component], results: Results) -> None:
    for item in items:
        named = [result for pattern in item.results for result in names_of(pattern)]
        state.labelled = len(named) == 1 or len(items) == 1
        if len(named) == 1:
            state.all_labels.add(named[0].name)
        _assign(state, item, _check_value(state, item), results)


def _assign(state: CompositionState, item: Component, kinds: Kinds, results: Results) -> None:
    patterns: Sequence[Pattern] = item.results
    if kinds is not None and len(kinds) != len(patterns):
        what = f"'{item.value.operator}'" if isinstance(item.value, Invocation) else "the right side"
        hint = "the result is a pack: take it apart with [a, b]" if _is_pack(kinds) else None
        state.context.report(
            rules.RESULT_COUNT.at(item.span, hint=hint, what=what, left=len(patterns), right=len(kinds))
        )
        kinds = None
    for pattern, kind in zip(patterns, kinds or [UNKNOWN] * len(patterns), strict=True):
        results.assign(pattern, kind, isinstance(item.value, Invocation))


def _is_pack(kinds: Sequence[ValueKind]) -> bool:
    return len(kinds) == 1 and kinds[0].packed


def _check_value(state: CompositionState, item: Component) -> Kinds:
    def evaluate(callee: Callee) -> Kinds:
        return _evaluate(state, callee)

    if isinstance(item.value, Branch):
        return check_branch(state, item.value, evaluate)
    if isinstance(item.value, Loop):
        return check_loop(state, item.value, evaluate)
    return evaluate(item.value)


def _evaluate(state: CompositionState, callee: Callee) -> Kinds:
    """The results of an invocation, a block or an expression."""
    if isinstance(callee, Invocation):
        return check_invocation(state, callee)
    if isinstance(callee, Block):
        return _check_block(state, callee)
    return [state.tensor(callee, "a result")]


def _check_block(state: CompositionState, block: Block) -> Kinds:
    state.add_label(block.label, block.span)
    labelled = state.labelled
    with state.block():
        _check_components(state, block.components, Results(state, set(), False))
        kinds = [state.tensor(item, "a result of a block") for item in block.results]
    state.labelled = labelled
    return kinds
