"""Name resolution and constant folding: regions, tasks and loops of the text made into a plan."""

from __future__ import annotations

from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic
from lamella.base.dtype import find_in
from lamella.base.errors import Found
from lamella.base.source import Source
from lamella.base.suggest import nearest
from lamella.lang.nem import nodes
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.registry import AttributeSpec, Opcode, load_registry
from lamella.lang.nem.resolve.expressions import ExpressionResolver, Loops, is_float, literal_kind
from lamella.lang.nem.resolve.regions import (
    LOOP,
    MOVE,
    TASK,
    Decorators,
    resolve_buffer,
    resolve_operand,
    resolve_region,
)
from lamella.lang.nem.resolve.scope import (
    POISON,
    IntegerMeaning,
    LiteralMeaning,
    Meaning,
    NemScope,
    Poison,
    TokenMeaning,
)
from lamella.lang.nem.resolved import (
    AttributeValue,
    Buffer,
    Index,
    Item,
    Loop,
    Plan,
    Region,
    Resource,
    Task,
    Variable,
    Wait,
)
from lamella.lang.nem.rules import (
    ATTRIBUTE_TYPE,
    BUFFER_IN_LOOP,
    CONST_IN_LOOP,
    CROSS_ENGINE,
    DUPLICATE_ATTRIBUTE,
    ENGINE_CONFLICT,
    ENGINE_RANGE,
    LOOP_RANGE,
    MISSING_ATTRIBUTE,
    NO_UNIT,
    READ_WRITEONLY,
    RESOURCE_UNIT,
    UNKNOWN_ATTRIBUTE,
    UNKNOWN_OPCODE,
    UNUSED_BUFFER,
    UNUSED_TOKEN,
    WRITE_READONLY,
)
from lamella.lang.nem.words import MOVES

# --- compute attributes of the text as values, by the types the registry gives them -------------------------


WANTED = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "elem_type": "an element type",
    "int_list": "a list of integers",
    "string": "a string",
    "id": "a name",
}
WORDS = ("elem_type", "bool", "id")
"""Types of attributes whose values are written as names."""
BOOLEANS: dict[str | int, bool] = {"true": True, "false": False, 1: True, 0: False}
GENERIC = "compute"


def _resolve_attributes(
    values: ExpressionResolver, task: nodes.Task, opcode: Opcode
) -> dict[str, AttributeValue]:
    """The attributes of a task, defaults filled in; what is in error is reported and left out."""
    found: dict[str, AttributeValue] = {}
    seen: set[str] = set()
    for item in task.attributes:
        name = item.name.id
        if name in seen:
            values.findings.append(DUPLICATE_ATTRIBUTE.at(item.span, name=name))
            continue
        seen.add(name)
        try:
            found[name] = _resolve_one(values, item, opcode)
        except Found:
            continue
    for spec in opcode.attributes.values():
        if spec.name not in seen:
            _fill_default(values, task, spec, found)
    return found


def _fill_default(
    values: ExpressionResolver, task: nodes.Task, spec: AttributeSpec, found: dict[str, AttributeValue]
) -> None:
    if spec.required:
        opcode = task.opcode
        values.findings.append(MISSING_ATTRIBUTE.at(opcode.span, opcode=opcode.id, name=spec.name))
    elif isinstance(spec.default, int | float | str):
        found[spec.name] = spec.default


def _resolve_one(values: ExpressionResolver, item: nodes.Attribute, opcode: Opcode) -> AttributeValue:
    spec = opcode.attributes.get(item.name.id)
    if spec is not None:
        return _typed(values, item, spec, opcode)
    if opcode.name == GENERIC:
        return _untyped(values, item.value)
    close = nearest(item.name.id, opcode.attributes)
    names = ", ".join(opcode.attributes) or "none"
    hint = f"did you mean '{close[0]}'?" if close else f"its attributes are: {names}"
    finding = UNKNOWN_ATTRIBUTE.at(item.name.span, opcode=opcode.name, name=item.name.id, hint=hint)
    raise values.fail(finding)


def _typed(
    values: ExpressionResolver, item: nodes.Attribute, spec: AttributeSpec, opcode: Opcode
) -> AttributeValue:
    """The value of an attribute in the type of its specification."""
    value = _plain(values, item.value, spec.type)
    result: AttributeValue | None = None
    if spec.type == "int" and isinstance(value, int):
        result = value
    elif spec.type == "float" and isinstance(value, int | float):
        result = float(value)
    elif spec.type == "bool" and isinstance(value, int | str):
        result = BOOLEANS.get(value)
    elif spec.type == "elem_type" and isinstance(value, str) and find_in("nem", value) is not None:
        result = value
    elif (spec.type == "string" and isinstance(value, str)) or spec.type == "id":
        result = value if isinstance(value, str) else None
    elif spec.type == "int_list" and isinstance(value, tuple):
        result = value
    if result is None or (spec.type in WORDS and isinstance(item.value, nodes.Text)):
        named = isinstance(item.value, nodes.Name) and not isinstance(value, tuple)
        shown = str(value) if named else literal_kind(item.value)
        finding = ATTRIBUTE_TYPE.at(
            item.value.span, name=spec.name, opcode=opcode.name, wanted=WANTED[spec.type], found=shown
        )
        raise values.fail(finding)
    return result


def _plain(values: ExpressionResolver, value: nodes.Value, wanted: str) -> AttributeValue:
    """A value as a number, a word or a tuple of integers; other names than words are looked up."""
    if isinstance(value, nodes.Name) and wanted in WORDS and (wanted != "bool" or value.id in BOOLEANS):
        return value.id
    if isinstance(value, nodes.Text) or (wanted == "string" and isinstance(value, nodes.Name)):
        return values.text(value, "a string")
    if isinstance(value, nodes.Items) or (wanted == "int_list" and isinstance(value, nodes.Name)):
        return tuple(_member(values, item) for item in values.items(value, "a list"))
    return values.number(value, "an attribute")


def _member(values: ExpressionResolver, value: nodes.Value) -> int:
    if isinstance(value, nodes.Text | nodes.Items):
        values.number(value, "an integer")
        raise Found
    return values.integer(value, "a list of integers")


def _untyped(values: ExpressionResolver, value: nodes.Value) -> AttributeValue:
    """An attribute of a generic operation: kept as it is written."""
    if isinstance(value, nodes.Name):
        meaning = values.scope.find(value.id)
        if isinstance(meaning, IntegerMeaning):
            return values.integer(value, "an attribute")
        if isinstance(meaning, LiteralMeaning):
            return _untyped(values, meaning.value)
        return value.id
    return _plain(values, value, "any")


def _resolve_task(
    values: ExpressionResolver, node: nodes.Task, number: int, device: ResolvedDevice | None
) -> Task:
    """A task with everything looked up; Found when a part of it is in error."""
    opcode = load_registry().get(node.opcode.id)
    if opcode is None:
        _resolve_deps(values, node.deps)
        close = nearest(node.opcode.id, load_registry())
        hint = f"did you mean '{close[0]}'?" if close else None
        raise values.fail(UNKNOWN_OPCODE.at(node.opcode.span, name=node.opcode.id, hint=hint))
    marks = Decorators(values, MOVE if opcode.name in MOVES else TASK, node.decorators)
    attributes = _resolve_attributes(values, node, opcode)
    deps = _resolve_deps(values, node.deps)
    inputs, outputs = _operands(values, node.inputs), _operands(values, node.outputs)
    resource = marks.resource()
    if len(inputs) != len(node.inputs) or len(outputs) != len(node.outputs):
        raise Found
    _check_access(values, node, inputs, outputs)
    task = Task(
        number,
        node.token.id if node.token else "",
        opcode.name,
        node.form == "sync",
        inputs,
        outputs,
        attributes,
        deps,
        _engine(values, node, (*inputs, *outputs), marks, device),
        resource,
        node,
        memmove=marks.has("memmove"),
        deterministic=marks.has("deterministic"),
        debug=marks.word("debug"),
        profile=marks.word("profile"),
    )
    _check_unit(values, task, opcode, device)
    return task


def _resolve_deps(values: ExpressionResolver, names: tuple[nodes.Name, ...]) -> tuple[int, ...]:
    """The tasks whose tokens are named; unknown ones are reported and left out."""
    found: list[int] = []
    for name in names:
        meaning = values.meaning(name)
        if isinstance(meaning, TokenMeaning):
            found.append(meaning.task)
        elif not isinstance(meaning, Poison):
            values.wrong(name, meaning, "a token")
    return tuple(dict.fromkeys(found))


def _operands(values: ExpressionResolver, operands: tuple[nodes.Operand, ...]) -> tuple[Region, ...]:
    found: list[Region] = []
    for operand in operands:
        try:
            found.append(resolve_operand(values, operand))
        except Found:
            continue
    return tuple(found)


def _check_access(
    values: ExpressionResolver, node: nodes.Task, inputs: tuple[Region, ...], outputs: tuple[Region, ...]
) -> None:
    for operand, region in zip(node.inputs, inputs, strict=True):
        if region.writeonly:
            values.findings.append(READ_WRITEONLY.at(operand.span, opcode=node.opcode.id))
    for operand, region in zip(node.outputs, outputs, strict=True):
        if region.readonly:
            values.findings.append(WRITE_READONLY.at(operand.span, opcode=node.opcode.id))


def _engine(
    values: ExpressionResolver,
    node: nodes.Task,
    regions: tuple[Region, ...],
    marks: Decorators,
    device: ResolvedDevice | None,
) -> int | None:
    """The engine a task is bound to by its L1 operands or @seq_engine; None where it is free."""
    engines = sorted({region.buffer.engine for region in regions if region.buffer.memory == "L1"})
    if len(engines) > 1:
        finding = CROSS_ENGINE.at(node.span, opcode=node.opcode.id, first=engines[0], second=engines[1])
        raise values.fail(finding)
    wanted = marks.integer("seq_engine")
    if wanted is None:
        return engines[0] if engines else None
    problem = ""
    if engines and engines[0] != wanted:
        problem = f"contradicts an operand in L1[{engines[0]}]"
    elif wanted < 0:
        problem = "is negative"
    elif device is not None and device.topology is not None and wanted >= device.topology.num_engines:
        problem = f"is beyond device '{device.name}', which has {device.topology.num_engines} engine(s)"
    if problem:
        finding = ENGINE_CONFLICT.at(marks.span("seq_engine"), engine=wanted, problem=problem)
        values.findings.append(finding)
    return wanted


def eligible_units(task: Task, opcode: Opcode) -> tuple[str, ...]:
    """Where a task may run, the default first; a VPU runs everything, a move that touches DDR takes the system DMA."""
    if opcode.name == GENERIC:
        return ("VPU", "CSTL", "NMU", "DMA")
    units = opcode.units
    if opcode.name == "transfer":
        in_ddr = any(region.buffer.memory == "DDR" for region in (*task.inputs, *task.outputs))
        units = ("sDMA",) if in_ddr else ("DMA",)
    return (*units, *(() if "VPU" in units else ("VPU",)))


def _check_unit(
    values: ExpressionResolver, task: Task, opcode: Opcode, device: ResolvedDevice | None
) -> None:
    eligible = eligible_units(task, opcode)
    wanted: Resource | None = task.resource
    if wanted is not None and wanted.unit not in eligible:
        finding = RESOURCE_UNIT.at(
            wanted.span, opcode=opcode.name, unit=wanted.unit, eligible=" or ".join(eligible)
        )
        values.findings.append(finding)
    if device is None or device.topology is None or any(device.units(unit) for unit in eligible):
        return
    finding = NO_UNIT.at(task.node.opcode.span, device=device.name, unit=eligible[0], opcode=opcode.name)
    values.findings.append(finding)


# --- statement lists: declarations give names their meaning; tasks, waits and loops become items ------------


class StatementResolver:
    """Resolves a program in one walk; collects buffers, regions and findings on the way."""

    def __init__(self, device: ResolvedDevice | None) -> None:
        self.findings: list[Diagnostic] = []
        self.scope = NemScope()
        self.values = ExpressionResolver(self.scope, self.findings)
        self.device = device
        self.buffers: list[Buffer] = []
        self.regions: dict[str, Region] = {}
        self.declared: list[Region] = []
        self.complete = True
        self._tasks: list[nodes.Task] = []
        self._loops = 0
        self._broken = False

    def program(self, statements: tuple[nodes.Statement, ...]) -> tuple[Item, ...]:
        """The items of the whole program."""
        self.scope.enter(statements)
        body = self.body(statements)
        self._report_unused()
        return body

    def body(self, statements: tuple[nodes.Statement, ...]) -> tuple[Item, ...]:
        """The items of one statement list, whose level is open."""
        items: list[Item] = []
        for statement in statements:
            try:
                item = self._statement(statement)
            except Found:
                self.complete = False
                continue
            if item is not None:
                items.append(item)
        return tuple(items)

    def _statement(self, statement: nodes.Statement) -> Item | None:
        if isinstance(statement, nodes.Task):
            return self._task(statement)
        if isinstance(statement, nodes.Wait):
            return Wait(_resolve_deps(self.values, statement.tokens), statement.span)
        if isinstance(statement, nodes.Loop):
            return self._loop(statement)
        if isinstance(statement, nodes.Broken):
            self._broken = True
            for name in statement.names:
                self._declare(name, POISON)
            raise Found
        self._declaration(statement)
        return None

    def _declare(self, name: nodes.Name, meaning: Meaning) -> None:
        self.findings += self.scope.declare(name, meaning)

    # --- declarations ---------------------------------------------------------------------------------------

    def _declaration(self, statement: nodes.Const | nodes.Let | nodes.RegionDef | nodes.Buffer) -> None:
        """Declare a name; when its value is in error the name is poison."""
        try:
            meaning = self._meaning(statement)
        except Found:
            self._declare(statement.name, POISON)
            raise
        self._declare(statement.name, meaning)

    def _meaning(self, statement: nodes.Const | nodes.Let | nodes.RegionDef | nodes.Buffer) -> Meaning:
        if isinstance(statement, nodes.Const):
            if self._inside_loop():
                self.findings.append(CONST_IN_LOOP.at(statement.span, name=statement.name.id))
            return IntegerMeaning(self.values.constant(statement), "a constant", True)
        if isinstance(statement, nodes.Let):
            return self._let(statement)
        if isinstance(statement, nodes.RegionDef):
            return self._region(statement)
        return self._buffer(statement)

    def _inside_loop(self) -> bool:
        return len(self.scope.levels) > 1

    def _let(self, statement: nodes.Let) -> Meaning:
        if isinstance(statement.value, nodes.Text):
            return LiteralMeaning(statement.value, "a string")
        if isinstance(statement.value, nodes.Items):
            return LiteralMeaning(statement.value, "a list")
        if is_float(statement.value):
            return self._float(statement.value)
        return IntegerMeaning(self.values.index(statement.value, "a let"), "an integer", False)

    def _float(self, expr: nodes.Expr) -> LiteralMeaning:
        value = float(self.values.number(expr, "a let"))
        return LiteralMeaning(nodes.Real(value, expr.span), "a float")

    def _region(self, statement: nodes.RegionDef) -> Region:
        name = statement.name.id
        region = resolve_region(self.values, statement.region, name, statement.decorators)
        self.declared.append(region)
        if not self._inside_loop():
            self.regions[name] = region
        return region

    def _buffer(self, statement: nodes.Buffer) -> Buffer:
        if self._inside_loop():
            self.findings.append(BUFFER_IN_LOOP.at(statement.span, name=statement.name.id))
        buffer = resolve_buffer(self.values, statement)
        topology = self.device.topology if self.device else None
        if topology is not None and buffer.memory == "L1" and buffer.engine >= topology.num_engines:
            finding = ENGINE_RANGE.at(
                statement.span,
                name=buffer.name,
                engine=buffer.engine,
                device=self.device.name if self.device else "",
                count=topology.num_engines,
            )
            self.findings.append(finding)
        self.buffers.append(buffer)
        return buffer

    # --- items ----------------------------------------------------------------------------------------------

    def _task(self, statement: nodes.Task) -> Task:
        number = len(self._tasks)
        self._tasks.append(statement)
        try:
            task = _resolve_task(self.values, statement, number, self.device)
        except Found:
            if statement.token is not None:
                self._declare(statement.token, POISON)
            raise
        if statement.token is not None:
            self._declare(statement.token, TokenMeaning(number))
        return task

    def _loop(self, statement: nodes.Loop) -> Loop:
        first, last = self._range(statement)
        marks = Decorators(self.values, LOOP, statement.decorators)
        window = marks.window()
        number = self._loops
        self._loops += 1
        outer = self.values.loops
        # An empty loop has a range of one value, so that its body is judged as if it ran.
        self.values.loops = Loops({**outer.ranges, number: (first, max(first, last))})
        self.scope.enter(statement.body, statement.span.line)
        variable = Variable(number, statement.variable.id)
        self._declare(
            statement.variable, IntegerMeaning(Index(0, ((variable, 1),)), "a loop variable", False)
        )
        body = self.body(statement.body)
        self.scope.leave()
        self.values.loops = outer
        debug, profile = marks.word("debug"), marks.word("profile")
        return Loop(number, variable.name, first, last, window, body, statement.span, debug, profile)

    def _range(self, statement: nodes.Loop) -> tuple[int, int]:
        """First and last value; a loop whose range is in error is read as one iteration."""
        try:
            first = self.values.integer(statement.first, "a loop bound")
            last = self.values.integer(statement.last, "a loop bound")
        except Found:
            self.complete = False
            return 0, 0
        if last < first - 1:
            span = statement.first.span.to(statement.last.span)
            self.findings.append(LOOP_RANGE.at(span, first=first, last=last))
            self.complete = False
            return first, first
        return first, last

    def _report_unused(self) -> None:
        """Buffers and tokens that nothing uses; an unreadable statement or name may have meant them."""
        for symbol in self.scope.all:
            # What could not be read or found may have used any of them.
            if symbol.used or self._broken or self.scope.missing:
                continue
            if isinstance(symbol.meaning, Buffer):
                self.findings.append(UNUSED_BUFFER.at(symbol.span, name=symbol.name))
            elif isinstance(symbol.meaning, TokenMeaning) and self._tasks[symbol.meaning.task].form != "sync":
                self.findings.append(UNUSED_TOKEN.at(symbol.span, name=symbol.name))


@dataclass(frozen=True, slots=True)
class Resolution:
    """A plan and what was found on the way; `complete` is False when statements had to be left out."""

    plan: Plan
    findings: tuple[Diagnostic, ...]
    complete: bool


def resolve(document: nodes.Document, source: Source, device: ResolvedDevice | None) -> Resolution:
    """The plan that a program's text says; `device` is the target, where one is known."""
    statements = StatementResolver(device)
    body = statements.program(document.statements)
    plan = Plan(
        document.name.id if document.name else "",
        source,
        device,
        tuple(statements.buffers),
        body,
        statements.regions,
        tuple(statements.declared),
    )
    complete = statements.complete and not statements.values.met_poison
    return Resolution(plan, tuple(statements.findings), complete)
