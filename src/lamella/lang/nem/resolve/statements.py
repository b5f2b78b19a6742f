"""Statement lists: declarations give names their meaning, tasks, waits and loops become items of the plan."""

from __future__ import annotations

from lamella.base.diagnostic import Diagnostic
from lamella.lang.nem import nodes
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.resolve.arithmetic import Loops
from lamella.lang.nem.resolve.decorators import LOOP, Decorators
from lamella.lang.nem.resolve.expressions import Expressions, Failed, is_float
from lamella.lang.nem.resolve.regions import resolve_buffer, resolve_region
from lamella.lang.nem.resolve.scope import POISON, Meaning, Number, Scope, Token, Written
from lamella.lang.nem.resolve.tasks import resolve_deps, resolve_task
from lamella.lang.nem.resolved import Buffer, Index, Item, Loop, Region, Task, Variable, Wait
from lamella.lang.nem.rules import (
    BUFFER_IN_LOOP,
    CONST_IN_LOOP,
    ENGINE_RANGE,
    LOOP_RANGE,
    UNUSED_BUFFER,
    UNUSED_TOKEN,
)


class Statements:
    """Walks a program once; collects buffers, regions and findings on the way."""

    def __init__(self, device: ResolvedDevice | None) -> None:
        self.findings: list[Diagnostic] = []
        self.scope = Scope()
        self.values = Expressions(self.scope, self.findings)
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
            except Failed:
                self.complete = False
                continue
            if item is not None:
                items.append(item)
        return tuple(items)

    def _statement(self, statement: nodes.Statement) -> Item | None:
        if isinstance(statement, nodes.Task):
            return self._task(statement)
        if isinstance(statement, nodes.Wait):
            return Wait(resolve_deps(self.values, statement.tokens), statement.span)
        if isinstance(statement, nodes.Loop):
            return self._loop(statement)
        if isinstance(statement, nodes.Broken):
            self._broken = True
            for name in statement.names:
                self._declare(name, POISON)
            raise Failed
        self._declaration(statement)
        return None

    def _declare(self, name: nodes.Name, meaning: Meaning) -> None:
        self.findings += self.scope.declare(name, meaning)

    # --- declarations ---------------------------------------------------------------------------------------

    def _declaration(self, statement: nodes.Const | nodes.Let | nodes.RegionDef | nodes.Buffer) -> None:
        """Declare a name; when its value is in error the name is poison."""
        try:
            meaning = self._meaning(statement)
        except Failed:
            self._declare(statement.name, POISON)
            raise
        self._declare(statement.name, meaning)

    def _meaning(self, statement: nodes.Const | nodes.Let | nodes.RegionDef | nodes.Buffer) -> Meaning:
        if isinstance(statement, nodes.Const):
            if self._inside_loop():
                self.findings.append(CONST_IN_LOOP.at(statement.span, name=statement.name.id))
            return Number(self.values.constant(statement), "a constant", True)
        if isinstance(statement, nodes.Let):
            return self._let(statement)
        if isinstance(statement, nodes.RegionDef):
            return self._region(statement)
        return self._buffer(statement)

    def _inside_loop(self) -> bool:
        return len(self.scope.levels) > 1

    def _let(self, statement: nodes.Let) -> Meaning:
        if isinstance(statement.value, nodes.Text):
            return Written(statement.value, "a string")
        if isinstance(statement.value, nodes.Items):
            return Written(statement.value, "a list")
        if is_float(statement.value):
            return self._float(statement.value)
        return Number(self.values.index(statement.value, "a let"), "an integer", False)

    def _float(self, expr: nodes.Expr) -> Written:
        value = float(self.values.number(expr, "a let"))
        return Written(nodes.Real(value, expr.span), "a float")

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
            task = resolve_task(self.values, statement, number, self.device)
        except Failed:
            if statement.token is not None:
                self._declare(statement.token, POISON)
            raise
        if statement.token is not None:
            self._declare(statement.token, Token(number))
        return task

    def _loop(self, statement: nodes.Loop) -> Loop:
        first, last = self._range(statement)
        marks = Decorators(self.values, LOOP, statement.decorators)
        window = marks.window()
        number = self._loops
        self._loops += 1
        outer = self.values.loops
        self.values.loops = Loops({**outer.ranges, number: (first, max(first, last))})
        self.scope.enter(statement.body, statement.span.line)
        variable = Variable(number, statement.variable.id)
        self._declare(statement.variable, Number(Index(0, ((variable, 1),)), "a loop variable", False))
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
        except Failed:
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
            if symbol.used or self._broken or self.scope.missing:
                continue
            if isinstance(symbol.meaning, Buffer):
                self.findings.append(UNUSED_BUFFER.at(symbol.span, name=symbol.name))
            elif isinstance(symbol.meaning, Token) and self._tasks[symbol.meaning.task].form != "sync":
                self.findings.append(UNUSED_TOKEN.at(symbol.span, name=symbol.name))
