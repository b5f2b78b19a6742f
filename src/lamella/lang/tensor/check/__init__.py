"""The language's own rules on a program: names, regions, placement, types, operands, shapes, attributes, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field

from lamella.base.diagnostic import Diagnostic, Label, errors, sort_findings
from lamella.base.gc import gc_paused
from lamella.base.records import dataclass
from lamella.base.source import Span
from lamella.lang.tensor.check.arithmetic import LANE
from lamella.lang.tensor.check.context import FunctionContext, StatementContext, ValueDefinition
from lamella.lang.tensor.check.instructions import check_instruction
from lamella.lang.tensor.check.memory import check_memory
from lamella.lang.tensor.check.roles import (
    cut_before,
    is_collective,
    is_cooperative,
    result_types,
    type_span,
)
from lamella.lang.tensor.check.types import (
    check_attributes,
    check_type,
    warn_of_layout,
)
from lamella.lang.tensor.nodes import (
    BOOL,
    AtomicUpdate,
    Barrier,
    Builtin,
    Constant,
    CoopApply,
    CoopExtract,
    Coopmatrix,
    For,
    Foreach,
    ForeachTile,
    Function,
    Group,
    If,
    Instruction,
    Memref,
    Parallel,
    Parameter,
    Program,
    Region,
    Scalar,
    Statement,
    Store,
    Type,
    Value,
    Yield,
)
from lamella.lang.tensor.rules import types as type_rules
from lamella.lang.tensor.rules import values as rules
from lamella.lang.tensor.write import write_type, write_types

# --- loops, conditions and what their regions yield ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class YieldTarget:
    """What a region is in words and the types of the values it yields; None where it may not yield."""

    where: str
    types: tuple[Type, ...] | None = None


def check_for(here: StatementContext, loop: For) -> None:
    """Check the head of a for."""
    bounds = [loop.begin, loop.end, *([] if loop.step is None else [loop.step])]
    _check_bounds(here, bounds, loop.variable, loop.type)
    _check_step(here, loop.step)
    _check_returned(here, loop.types)
    starts = [start for _, start in loop.carried]
    types = [here.context.type_of(start) for start in starts]
    if len(starts) != len(loop.types):
        here.say(rules.CARRIED_COUNT, here.span, carried=len(starts), types=write_types(loop.types))
    for start, type_, wanted in zip(starts, types, loop.types, strict=False):
        if type_ is not None and type_ != wanted:
            words = {"name": start.name, "type": write_type(type_), "wanted": write_type(wanted)}
            here.say(rules.CARRIED_TYPE, start.span, [start], **words)
    here.say_all(check_attributes(loop))


def _check_step(here: StatementContext, step: Value | None) -> None:
    entry = None if step is None else here.context.find(step)
    if step is None or entry is None or entry.type is None:
        return
    if isinstance(entry.constant, int) and entry.constant < 1:
        here.say(rules.STEP, step.span, [step], name=step.name, step=entry.constant)


def _check_bounds(here: StatementContext, values: Iterable[Value], variable: Value, wanted: Scalar) -> None:
    for value in values:
        type_ = here.context.type_of(value)
        if type_ is not None and type_ != wanted:
            words = {
                "name": value.name,
                "type": write_type(type_),
                "wanted": wanted,
                "variable": variable.name,
            }
            here.say(rules.BOUND_TYPE, value.span, [value], **words)


def _check_returned(here: StatementContext, types: tuple[Type, ...]) -> None:
    for type_ in types:
        wrong = list(check_type(type_, here.span))
        here.say_all(wrong)
        if not wrong and not isinstance(type_, Scalar | Coopmatrix):
            here.say(rules.RETURNED_TYPE, here.span, type=write_type(type_))


def check_foreach(here: StatementContext, loop: Foreach) -> None:
    """Check the head of a foreach."""
    counts = (len(loop.variables), len(loop.begins), len(loop.ends))
    if len(set(counts)) > 1 or not all(counts):
        words = dict(zip(("variables", "begins", "ends"), counts, strict=True))
        here.say(rules.FOREACH_COUNT, here.span, (), **words)
    else:
        _check_bounds(here, (*loop.begins, *loop.ends), loop.variables[0], loop.type)


def check_foreach_tile(here: StatementContext, loop: ForeachTile) -> None:
    """Check the head of a foreach_tile."""
    here.context.note_extension(here.span, "'foreach_tile'", "foreach, and parallel with loops over tiles")
    lists = {name: len(getattr(loop, name)) for name in ("variables", "begins", "ends", "sizes", "tile")}
    if len(set(lists.values())) > 1:
        here.say(rules.TILE_COUNT, here.span, (), **lists)
    else:
        _check_bounds(here, (*loop.begins, *loop.ends), loop.variables[0], loop.type)
    for size in loop.tile:
        if size < 1:
            here.say(rules.TILE_SIZE, here.span, size=size)


def check_if(here: StatementContext, choice: If) -> None:
    """Check the head of an if."""
    type_ = here.context.type_of(choice.condition)
    if type_ is not None and type_ != BOOL:
        words = {"name": choice.condition.name, "type": write_type(type_)}
        here.say(rules.CONDITION, choice.condition.span, [choice.condition], **words)
    _check_returned(here, choice.types)
    if choice.types and choice.otherwise is None:
        here.say(rules.ELSE_MISSING, here.span, types=write_types(choice.types))


def check_yield(here: StatementContext, node: Yield, target: YieldTarget) -> None:
    """Check that a yield gives what the region around it is to give."""
    types = [here.context.type_of(value) for value in node.values]
    if target.types is None:
        here.say(rules.YIELD_OUTSIDE, here.span, where=target.where)
        return
    if len(types) != len(target.types):
        words = {"found": len(types), "where": target.where, "types": write_types(target.types)}
        here.say(rules.YIELD_COUNT, here.span, node.values, **words)
        return
    for position, (value, type_, wanted) in enumerate(zip(node.values, types, target.types, strict=True)):
        if type_ is not None and type_ != wanted:
            words = {"position": position, "type": write_type(type_), "wanted": write_type(wanted)}
            here.say(rules.YIELD_TYPE, value.span, [value], **words)


def closing_brace(span: Span) -> Span:
    """The place of the brace that ends a region."""
    return Span(span.source, span.end - 1, span.end) if span.end > span.start else span


# --- the walk over a function: names, regions, placement; every statement is visited once, without ----------


@dataclass(slots=True)
class CheckedRegion:
    """A region that is being walked, how far, and what is done when it ends."""

    region: Region
    spmd: bool
    target: YieldTarget
    locals: list[tuple[Value, Type | None]] = field(default_factory=list)
    """What the region is entered with: loop variables and carried values."""
    finish: Callable[[], None] | None = None
    alone: str = ""
    """Who executes the region on its own: a subgroup, or a work-item, which has nobody to meet at all."""
    position: int = -1
    defined: list[tuple[str, ValueDefinition | None]] = field(default_factory=list)


def check_function(function: Function) -> list[Diagnostic]:
    """What is wrong in a function."""
    findings: list[Diagnostic] = []
    context = FunctionContext(function, findings)
    findings += check_attributes(function)
    for parameter in function.parameters:
        _check_parameter(context, parameter)
    _FunctionWalk(context).run(CheckedRegion(function.body, False, YieldTarget("the body of a function")))
    return findings


def _check_parameter(context: FunctionContext, parameter: Parameter) -> None:
    span, type_, name = type_span(parameter), parameter.type, parameter.value.name
    before = context.errors
    for finding in check_type(type_, span):
        context.report(finding)
    usable = context.errors == before
    memref = type_.memref if isinstance(type_, Group) else type_
    if isinstance(type_, Coopmatrix):
        context.report(type_rules.COOPMATRIX_PARAMETER.at(span, name=name, type=write_type(type_)))
    elif isinstance(memref, Memref) and memref.local:
        context.report(type_rules.LOCAL_PARAMETER.at(span, name=name, type=write_type(type_)))
    if usable:
        for finding in warn_of_layout(type_, span):
            context.report(finding)
    for finding in check_attributes(parameter):
        context.report(finding)
    context.define(parameter.value, ValueDefinition(type_ if usable else None, parameter.value.span))


class _FunctionWalk:
    """Visits the statements of a function in order."""

    def __init__(self, context: FunctionContext) -> None:
        self._context = context
        self._frames: list[CheckedRegion] = []

    def run(self, frame: CheckedRegion) -> None:
        """Walk a region and all regions inside it."""
        # A stack of our own: how deep a program nests must not meet the limit of Python's.
        self._frames.append(frame)
        while self._frames:
            self._step(self._frames[-1])

    def _step(self, frame: CheckedRegion) -> None:
        if frame.position < 0:
            for value, type_ in frame.locals:
                self._define(frame, value, ValueDefinition(type_, value.span))
        frame.position += 1
        if frame.position < len(frame.region.statements):
            self._visit(frame, frame.region.statements[frame.position])
        else:
            self._frames.pop()
            self._leave(frame)

    def _leave(self, frame: CheckedRegion) -> None:
        types, statements = frame.target.types, frame.region.statements
        if types and not (statements and isinstance(statements[-1].instruction, Yield)):
            span = closing_brace(frame.region.span)
            finding = rules.YIELD_MISSING.at(span, where=frame.target.where, types=write_types(types))
            self._context.report(finding)
        for name, earlier in reversed(frame.defined):
            self._context.forget(name, earlier)
        if frame.finish is not None:
            frame.finish()

    def _define(self, frame: CheckedRegion, value: Value, entry: ValueDefinition) -> None:
        frame.defined.append(self._context.define(value, entry))

    def _visit(self, frame: CheckedRegion, statement: Statement) -> None:
        here = StatementContext(self._context, statement)
        instruction = statement.instruction
        self._check_placement(here, frame)
        before = self._context.errors
        match instruction:
            case For() | Foreach() | ForeachTile() | Parallel() | If() | CoopApply():
                self._enter(here, frame, instruction)
                return
            case Yield():
                self._check_yield(here, frame, instruction)
            case _:
                self._check_result_types(here)
                if self._context.errors == before:
                    check_instruction(here, instruction)
        self._define_results(frame, here, self._context.errors == before)

    def _check_yield(self, here: StatementContext, frame: CheckedRegion, instruction: Yield) -> None:
        last = frame.position == len(frame.region.statements) - 1
        if frame.target.types is not None and not last:
            here.say(rules.YIELD_NOT_LAST, here.span)
        else:
            check_yield(here, instruction, frame.target)

    def _check_result_types(self, here: StatementContext) -> None:
        for type_ in result_types(here.statement.instruction):
            if not isinstance(type_, Scalar):
                here.say_all(check_type(type_, here.type_span))

    def _check_placement(self, here: StatementContext, frame: CheckedRegion) -> None:
        instruction = here.statement.instruction
        if frame.spmd and is_collective(instruction):
            here.say(rules.COLLECTIVE_IN_SPMD, here.span)
        elif not frame.spmd and _is_spmd(instruction):
            here.say(rules.SPMD_IN_COLLECTIVE, here.span)
        elif not frame.spmd and isinstance(instruction, Store):
            here.say(rules.COLLECTIVE_STORE, here.span)
        together = frame.alone == "work-item" and is_cooperative(instruction)
        if together or (frame.alone and isinstance(instruction, Barrier)):
            where = "a foreach_tile" if frame.alone == "subgroup" else "a cooperative_matrix_apply"
            here.say(rules.NOT_ALONE, here.span, where=where, who=frame.alone)

    def _enter(
        self,
        here: StatementContext,
        frame: CheckedRegion,
        instruction: For | Foreach | ForeachTile | Parallel | If | CoopApply,
    ) -> None:
        """Check the head of an instruction with regions and walk them next; its results are defined behind them."""
        before = self._context.errors
        match instruction:
            case For():
                check_for(here, instruction)
                frames = [_for_frame(instruction, frame.spmd)]
            case Foreach():
                check_foreach(here, instruction)
                frames = [_spmd_frame(instruction.body, "a foreach", instruction.variables, instruction.type)]
            case ForeachTile():
                check_foreach_tile(here, instruction)
                names = (*instruction.variables, *instruction.sizes)
                frames = [_spmd_frame(instruction.body, "a foreach_tile", names, instruction.type)]
                frames[0].alone = "subgroup"
            case CoopApply():
                self._check_result_types(here)
                check_instruction(here, instruction)
                frames = [_apply_frame(instruction)]
            case Parallel():
                frames = [CheckedRegion(instruction.body, True, YieldTarget("a parallel region"))]
            case If():
                check_if(here, instruction)
                frames = _if_frames(instruction, frame.spmd)
        usable = self._context.errors == before
        for inner in frames:
            inner.alone = inner.alone or frame.alone
        frames[-1].finish = lambda: self._define_results(frame, here, usable)
        self._frames += reversed(frames)

    def _define_results(self, frame: CheckedRegion, here: StatementContext, usable: bool) -> None:
        instruction, results = here.statement.instruction, here.statement.results
        # the parser has counted the names; where they are too many, nothing is known of those
        types: list[Type | None] = [*result_types(instruction), *(None for _ in results)]
        constant = instruction.value if isinstance(instruction, Constant) else None
        for position, value in enumerate(results):
            type_ = types[position] if usable else None
            self._define(frame, value, ValueDefinition(type_, value.span, constant))


def _is_spmd(instruction: Instruction) -> bool:
    """Whether each work-item does an instruction on its own."""
    if isinstance(instruction, Builtin):
        return instruction.name.startswith(("subgroup_id", "subgroup_local_id", "subgroup_linear_id"))
    return is_cooperative(instruction) or isinstance(instruction, CoopExtract | AtomicUpdate)


def _spmd_frame(body: Region, where: str, names: Iterable[Value], type_: Type) -> CheckedRegion:
    """A region that work-items execute, with what it is entered with."""
    return CheckedRegion(body, True, YieldTarget(where), [(value, type_) for value in names])


def _apply_frame(apply: CoopApply) -> CheckedRegion:
    element = Scalar(apply.type.element)
    known: list[tuple[Value, Type | None]] = [(apply.row, LANE), (apply.column, LANE), (apply.value, element)]
    return CheckedRegion(apply.body, True, YieldTarget("the apply", (element,)), known, alone="work-item")


def _for_frame(loop: For, spmd: bool) -> CheckedRegion:
    known = len(loop.carried) == len(loop.types)
    locals_: list[tuple[Value, Type | None]] = [(loop.variable, loop.type)]
    for position, (value, _) in enumerate(loop.carried):
        locals_.append((value, loop.types[position] if known else None))
    return CheckedRegion(loop.body, spmd, YieldTarget("the for", loop.types), locals_)


def _if_frames(choice: If, spmd: bool) -> list[CheckedRegion]:
    frames = [CheckedRegion(choice.then, spmd, YieldTarget("the first branch of the if", choice.types))]
    if choice.otherwise is not None:
        frames.append(CheckedRegion(choice.otherwise, spmd, YieldTarget("the else branch", choice.types)))
    return frames


__all__ = ["check", "result_types"]


def check(program: Program, *, memory: bool = True) -> list[Diagnostic]:
    """What is wrong or doubtful in a program, in the order of the text.

    With `memory` the accesses of functions without errors are followed: bounds, races, aliases, what is read first.
    """
    findings = list(_check_names(program))
    with gc_paused():
        for function in program.functions:
            own = check_function(function)
            findings += own
            if memory and not errors(own):
                findings += check_memory(function)
    return sort_findings(findings)


def _check_names(program: Program) -> Iterator[Diagnostic]:
    first: dict[str, Span] = {}
    for function in program.functions:
        head = _head(function)
        if function.name in first:
            labels = [Label(first[function.name], "defined here first")]
            yield rules.FUNCTION_REDEFINED.at(head, name=function.name, labels=labels)
        first.setdefault(function.name, head)


def _head(function: Function) -> Span:
    """The place of a function's first line, where its name stands."""
    head = cut_before(function.span, function.body.span)
    text, newline = head.text, head.text.find("\n")
    return head if newline < 0 else Span(head.source, head.start, head.start + len(text[:newline].rstrip()))
