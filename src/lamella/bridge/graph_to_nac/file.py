"""A whole file from the calls of a graph: tables, weights, schedule, notes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.dim import Logic, Test, symbols
from lamella.base.source import NOWHERE
from lamella.bridge.graph_to_nac.calls.plan import find_refused, plan_graph
from lamella.bridge.graph_to_nac.calls.replay import Replayed, flat_calls, forks, replay
from lamella.bridge.graph_to_nac.code.items import write_items
from lamella.bridge.graph_to_nac.code.layout import Placed, place
from lamella.bridge.graph_to_nac.code.sizes import own_symbols
from lamella.bridge.graph_to_nac.code.tables import Tables
from lamella.bridge.graph_to_nac.notes import write_notes
from lamella.bridge.graph_to_nac.values import begins_as_zeros, constant_array, store_variable
from lamella.bridge.graph_to_nac.width import model_width
from lamella.bridge.graph_to_skriptnd.operators import module_document, needed
from lamella.bridge.nac_to_graph.operators import is_shipped, shadows
from lamella.bridge.nac_to_graph.weights import store_weight
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import Fresh
from lamella.lang.nac import nodes as n
from lamella.lang.nac.check.tables import LAST_CONSTANT
from lamella.lang.nac.notes import find_notes, operators_name, with_notes
from lamella.lang.nac.operations import PARAMETER
from lamella.lang.nac.rules import roads as rules
from lamella.lang.nac.rules.reading import OPERATOR_SHADOWS
from lamella.lang.nac.schedule import plan_memory
from lamella.lang.nac.write import find_unwritable
from lamella.lang.skriptnd import write as write_skriptnd
from lamella.lang.skriptnd.nodes import Operator
from lamella.ops.library import SPECIFICATION
from lamella.ops.problem import Problem

LAST_INDEX = 65535
"""The last instruction that a memory command can name, and the largest number of two bytes."""


@dataclass(frozen=True, slots=True)
class Writing:
    """How a graph is written.

    Plain signatures have no roles, as those of the public compiler. External weights are left out, and whoever calls
    stores them. Without a schedule nothing is said about memory.
    """

    plain_signatures: bool = False
    external: bool = False
    schedule: bool = True


@dataclass(frozen=True, slots=True)
class Written:
    """A file, and notes on what it does not say."""

    file: n.File
    findings: tuple[Diagnostic, ...] = ()


def graph_to_nac(model: Model, options: Writing | None = None) -> Written:
    """The graph of a model as a file of version 1.6; LamellaError holds everything that it cannot say."""
    how = options or Writing()
    try:
        replayed = replay_model(model)
        writer = _FileWriter(model, replayed, how)
        file = writer.write()
    except Problem as problem:
        raise LamellaError(problem.findings) from None
    findings = writer.findings
    if not errors(findings):
        findings += find_unwritable(file)
    if errors(findings):
        raise LamellaError(findings)
    return Written(file, tuple(findings))


def canonical(model: Model) -> Model:
    """The model as NAC says it, which is what a reader gets back; LamellaError as `graph_to_nac`.

    Tensors inside have the names that their operators give, packs at the border are tensors, copies that only name an
    output are gone, and operations that share a name in NAC are one of them.
    """
    try:
        return replace(model, graph=replay_model(model).graph)
    except Problem as problem:
        raise LamellaError(problem.findings) from None


def replay_model(model: Model) -> Replayed:
    """The graph made again from its calls; a Problem holds what cannot be said."""
    refused = list(find_refused(model))
    if refused:
        raise Problem(*refused)
    return replay(model, plan_graph(model))


class _FileWriter:
    """Puts a file together."""

    def __init__(self, model: Model, replayed: Replayed, how: Writing) -> None:
        self.model, self.replayed, self.how = model, replayed, how
        self.tables = Tables()
        self.findings: list[Diagnostic] = []
        self.states = [item.variable for item in replayed.updates]
        fresh = Fresh(item.name for item in (*replayed.variables, *self.states))
        self.stored = {
            item.tensor.name: fresh.take(f"constant.{number}")
            for number, item in enumerate(replayed.constants, 1)
        }
        names = [*(item.name for item in replayed.variables), *self.stored]
        self.parameters = {name: number for number, name in enumerate(names, 1)}
        stored = [item.name for item in self.states if not begins_as_zeros(model, item)]
        self.initial = {name: number for number, name in enumerate(stored, len(names) + 1)}
        """By the names of states the parameters that they begin with; the others begin as zeros."""

    def write(self) -> n.File:
        """The file, with what is wrong with it in `findings`."""
        items = write_items(self.replayed, self.parameters, self.how.plain_signatures)
        names = [item.name for item in self.replayed.inputs]
        states = {item.name: number for number, item in enumerate(self.states)}
        placed = place(names, items, self.parameters, self.tables, states)
        records = {**self.parameters, **self.initial}
        self.findings += self.tables.find_full()
        for what, count in (("parameters", len(records)), ("states", len(states))):
            if count > LAST_CONSTANT:
                self.findings.append(rules.TOO_MANY.at(NOWHERE, count=count, what=what, limit=LAST_CONSTANT))
        file = n.File(
            header=self._header(),
            operations=self.tables.operations,
            signatures=self.tables.signatures,
            constants=self.tables.records,
            instructions=placed.instructions,
            parameters=tuple(n.Parameter(id_, self.stored.get(name, name)) for name, id_ in records.items()),
            inputs=tuple(n.Input(index, name) for index, name in enumerate(names)),
            tensors=() if self.how.external else tuple(self._tensors()),
            resources=(self._notes(placed), *self._operators()),
        )
        noted: dict[str, object] = {}
        if self.model.library.dialect != SPECIFICATION:
            noted["dialect"] = self.model.library.dialect
        checks = self._checks()
        if checks:
            noted["checks"] = checks
        if noted:
            file = with_notes(file, {**(find_notes(file) or {}), **noted})
        return replace(file, schedule=self._schedule(file, placed))

    def _header(self) -> n.Header:
        width = model_width(self.replayed.calls, self.replayed.variables)
        if width > LAST_INDEX:
            self._leave_out("d_model", f"it is {width}, and its field holds 0 to {LAST_INDEX}")
        return n.Header(
            internal=not self.how.external,
            inputs=len(self.replayed.inputs),
            outputs=len(self.replayed.outputs) + len(self.states),
            d_model=width if width <= LAST_INDEX else 0,
        )

    def _leave_out(self, what: str, reason: str) -> None:
        self.findings.append(rules.LEFT_OUT.at(NOWHERE, what=what, reason=reason))

    def _tensors(self) -> Iterator[n.Tensor]:
        yield from self._variables(self.replayed.variables, self.parameters)
        for constant in self.replayed.constants:
            stored = store_weight(constant_array(constant), self.parameters[constant.tensor.name])
            if stored is not None:
                yield stored
        yield from self._variables([item for item in self.states if item.name in self.initial], self.initial)

    def _variables(self, variables: Sequence[Tensor], ids: Mapping[str, int]) -> Iterator[n.Tensor]:
        for variable in variables:
            found = store_variable(self.model, variable, ids[variable.name])
            if isinstance(found, Diagnostic):
                self.findings.append(found)
            else:
                yield found

    def _notes(self, placed: Placed) -> n.Resource:
        loads: dict[str, list[int]] = {name: [] for name in self.stored.values()}
        for index, (item, key) in enumerate(zip(placed.instructions, placed.results, strict=True)):
            if (item.operation, item.variant) == (n.INPUT, PARAMETER) and key in self.stored:
                loads[self.stored[key]].append(index)
        outputs = list(zip(self.replayed.names, self.replayed.outputs, strict=True))
        name = self.replayed.graph.name
        states = [(item, self.initial.get(item.name)) for item in self.states]
        return write_notes(
            name, self.replayed.inputs, outputs, loads, placed.origins, states, placed.branches
        )

    def _checks(self) -> list[dict[str, object]]:
        """What a run must test of the extents of its inputs; a file compares two of them at a time."""
        known = {name for item in self.replayed.inputs for name in own_symbols(item)}
        # An output that leaves its extents open names them after itself: whatever it has is right.
        free = tuple(f"{name}." for name in self.replayed.names)
        found: dict[Test, str] = {}
        for item in self.model.graph.checks:
            test = item.condition
            if not isinstance(test, Test | Logic):
                continue
            names = {symbol.name for symbol in symbols(test)}
            if isinstance(test, Test) and names <= known:
                found.setdefault(test, item.message)
            elif not any(name.startswith(free) for name in names - known):
                reason = f"only sizes of inputs are compared there ({item.message})"
                self._leave_out("a test of the run", reason)
        return [
            {"test": [str(test.left), test.sign, str(test.right)], "message": told}
            for test, told in found.items()
        ]

    def _operators(self) -> Iterator[n.Resource]:
        """The operators of the model's own that instructions call, and those that they call, module by module."""
        library, modules = self.model.library, dict[str, list[Operator]]()
        called = dict.fromkeys(call.operator for call in flat_calls(self.replayed.calls))
        for definition in needed(library, called):
            if shadows(definition, library):
                self.findings.append(OPERATOR_SHADOWS.at(NOWHERE, operator=definition.name))
            elif not is_shipped(definition, library):
                modules.setdefault(definition.module, []).append(definition.operator)
        for module, operators in modules.items():
            text = write_skriptnd(module_document(module, operators))
            yield n.Resource(operators_name(module), text.encode())

    def _schedule(self, file: n.File, placed: Placed) -> tuple[n.Tick, ...]:
        if not self.how.schedule:
            return ()
        if len(file.instructions) > LAST_INDEX + 1:
            reason = f"there are {len(file.instructions)} instructions, and its commands reach {LAST_INDEX}"
            self._leave_out("the memory schedule", reason)
            return ()
        return plan_memory(file, self._sizes(placed))

    def _sizes(self, placed: Placed) -> Mapping[int, int]:
        """The bytes of the results whose shapes are known."""
        tensors = {item.name: item for item in self._all_tensors()}
        found = {index: _byte_count(tensors.get(key)) for index, key in enumerate(placed.results)}
        return {index: size for index, size in found.items() if size}

    def _all_tensors(self) -> Iterator[Tensor]:
        yield from (*self.replayed.inputs, *self.replayed.variables, *self.states)
        yield from (item.tensor for item in self.replayed.constants)
        calls = self.replayed.calls
        found = [*(call.result for call in flat_calls(calls)), *(fork.result for fork in forks(calls))]
        for result in found:
            results = (result,) if isinstance(result, Tensor) else result
            yield from (item for item in results if item is not None)


def _byte_count(tensor: Tensor | None) -> int:
    if tensor is None:
        return 0
    known = [extent for extent in tensor.shape if isinstance(extent, int)]
    return -(-math.prod(known) * tensor.element.bits // 8) if len(known) == len(tensor.shape) else 0
