"""A whole file from the calls of a graph: tables, weights, schedule, notes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from types import MappingProxyType

from lamella.base.arrays import element_type_of, to_memory
from lamella.base.diagnostic import Diagnostic, LamellaError, errors, printable
from lamella.base.dim import Extent, Logic, Test, symbols
from lamella.base.dtype import name_in
from lamella.base.errors import Found, Unsupported
from lamella.base.origin import Origin, with_origin
from lamella.base.source import NOWHERE
from lamella.bridge.graph_to_nac.calls import extent_finding, tensors_of
from lamella.bridge.graph_to_nac.instructions import (
    CodedArgument,
    FileTables,
    OpenedBlocks,
    PendingInstruction,
    PlacedCode,
    ResultRef,
    SizeWriter,
    encode_arguments,
    layout_instructions,
    own_symbols,
    plain,
)
from lamella.bridge.graph_to_nac.plan import constant_array
from lamella.bridge.graph_to_nac.replay import (
    EncodedCall,
    EncodedFork,
    EncodedStep,
    Replayed,
    flat_calls,
    forks,
    replay_model,
)
from lamella.bridge.graph_to_skriptnd.operators import module_document, needed
from lamella.bridge.nac_to_graph.operators import is_shipped, shadows
from lamella.bridge.nac_to_graph.weights import store_weight
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import FreshNames
from lamella.lang.nac import nodes as n
from lamella.lang.nac.check import check
from lamella.lang.nac.check.tables import LAST_CONSTANT
from lamella.lang.nac.check.training import FORMAT as TRAINING_FORMAT
from lamella.lang.nac.check.training import GRAPH, NOTES, read_entry
from lamella.lang.nac.nodes import CONTROL_FLOW, CONVERGENCE, File, Resource
from lamella.lang.nac.notes import FORMAT, find_notes, notes_resource, operators_name, with_notes
from lamella.lang.nac.operations import PARAMETER
from lamella.lang.nac.rules import graphs as rules
from lamella.lang.nac.rules.graphs import OPERATOR_SHADOWS
from lamella.lang.nac.schedule import plan_memory
from lamella.lang.nac.write import find_unwritable, write
from lamella.lang.skriptnd import write as write_skriptnd
from lamella.lang.skriptnd.nodes import Operator
from lamella.ops.library import SPECIFICATION


def store_variable(model: Model, variable: Tensor, id_: int) -> n.Tensor | Diagnostic:
    """The tensor of a variable, a view of its array where that is possible, or why there is none."""
    if name_in("nac", variable.element) is None:
        return rules.ELEMENT.at(NOWHERE, what="variable", name=variable.name, element=variable.element)
    values = None if model.data is None else model.data.get(variable.name)
    if values is None:
        return rules.NO_VALUES.at(NOWHERE, name=variable.name, problem="has no values")
    found = element_type_of(values.dtype)
    if (found, values.shape) != (variable.element, variable.shape):
        shape = ", ".join(map(str, variable.shape))
        problem = (
            f"is {variable.element}[{shape}]; its values are {values.dtype} of shape {list(values.shape)}"
        )
        return rules.NO_VALUES.at(NOWHERE, name=variable.name, problem=problem)
    stored = store_weight(values, id_)
    if stored is None:
        return rules.ELEMENT.at(NOWHERE, what="variable", name=variable.name, element=found)
    return stored


def begins_as_zeros(model: Model, variable: Tensor) -> bool:
    """Whether all the bits of a variable are known to be zero, so that nothing need be stored."""
    values = None if model.data is None else model.data.get(variable.name)
    if values is None or (element_type_of(values.dtype), values.shape) != (variable.element, variable.shape):
        return False
    return name_in("nac", variable.element) is not None and not to_memory(values).any()


# --- call encodings as instructions that have no place yet --------------------------------------------------


TUPLE_KEY = "\0tuple "
GETITEM = "getitem"


def write_items(
    replayed: Replayed, parameters: Collection[str], plain_signatures: bool
) -> list[PendingInstruction]:
    """All instructions but inputs and loads, the output last."""
    writer = _Writer(replayed, parameters, plain_signatures)
    for item in replayed.inputs:
        writer.sizes.see(item)
    writer.take_all(replayed.calls)
    given = (*replayed.outputs, *(item.value for item in replayed.updates))
    writer.items.append(
        PendingInstruction(None, tuple(CodedArgument("T", ResultRef(item.name)) for item in given))
    )
    return writer.items


class _Writer:
    """Writes calls one after the other, the sizes that they need before them."""

    def __init__(self, replayed: Replayed, parameters: Collection[str], plain_signatures: bool) -> None:
        self.parameters = parameters
        self.plain = plain_signatures
        self.items: list[PendingInstruction] = []
        self.origin: Origin | None = None
        self.sizes = SizeWriter(self._emit)
        read = (item.name for call in flat_calls(replayed.calls) for item in tensors_of(call.encoding))
        kept = (item.value.name for item in replayed.updates)
        self.used = {*read, *kept, *(item.name for item in replayed.outputs)}
        for fork in forks(replayed.calls):
            self.used |= {fork.given.name, *(item.name for block in fork.blocks for item in block.outputs)}

    def _emit(self, name: str, words: tuple[CodedArgument, ...], key: str) -> None:
        coded = tuple(map(self._coded, words))
        self.items.append(PendingInstruction(name, plain(coded) if self.plain else coded, key, self.origin))

    def _coded(self, word: CodedArgument) -> CodedArgument:
        """A parameter that has no other role is one all the same."""
        loaded = isinstance(word.value, ResultRef) and word.value.key in self.parameters
        return replace(word, code="P") if loaded and word.code == "T" else word

    def take_all(self, calls: Iterable[EncodedStep]) -> None:
        """Calls in order."""
        for call in calls:
            if isinstance(call, EncodedFork):
                self._take_fork(call)
            else:
                self.take(call)

    def _take_fork(self, fork: EncodedFork) -> None:
        """The blocks of a branch or of a convergence, then the items of its result that are used."""
        merges = isinstance(fork.result, Tensor)
        whole = fork.result.name if isinstance(fork.result, Tensor) else f"{TUPLE_KEY}{len(self.items)}"
        kind = CONVERGENCE if merges else CONTROL_FLOW
        opened = OpenedBlocks(kind, fork.threshold, len(fork.blocks))
        given = (CodedArgument("T", ResultRef(fork.given.name)),)
        self.items.append(PendingInstruction(None, given, whole, fork.origin, opened))
        for block in fork.blocks:
            with self.sizes.block():
                self.take_all(block.calls)
            words = tuple(CodedArgument("T", ResultRef(item.name)) for item in block.outputs)
            self.items.append(PendingInstruction(None, words, closes=True))
        self.origin = fork.origin
        self._take_parts(whole, fork.result)

    def _take_parts(self, whole: str, result: Tensor | tuple[Tensor | None, ...]) -> None:
        """The items of a tuple that are used; a tensor is there already."""
        if isinstance(result, Tensor):
            self.sizes.see(result)
            return
        for number, item in enumerate(result):
            if item is not None and item.name in self.used:
                self._emit(
                    GETITEM, (CodedArgument("T", ResultRef(whole)), CodedArgument("i", number)), item.name
                )
                self.sizes.see(item)

    def take(self, call: EncodedCall) -> None:
        """One call, and the items of its result that are used."""
        self.origin = call.origin
        try:
            name, words = encode_arguments(call.encoding, self.sizes.write)
        except Unsupported as refused:
            raise Found(with_origin(extent_finding(call.operator, refused), call.origin)) from None
        except Found as problem:
            raise Found(*(with_origin(item, call.origin) for item in problem.findings)) from None
        whole = call.result.name if isinstance(call.result, Tensor) else f"{TUPLE_KEY}{len(self.items)}"
        self._emit(name, words, whole)
        self._take_parts(whole, call.result)


# --- `lamella.json`: what NAC has no field for, in one resource of the file ---------------------------------


_INSTRUCTION = re.compile(r" instruction \d+ \S+$")
"""An operation that was read from a file: in the next file it has another place."""


def write_notes(
    graph: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[tuple[str, Tensor]],
    constants: Mapping[str, Sequence[int]],
    origins: Mapping[int, Origin],
    states: Sequence[tuple[Tensor, int | None]] = (),
    branches: Mapping[int, int] = MappingProxyType({}),
) -> Resource:
    """The resource: names and types of inputs and outputs, ranges of extents, stored constants, origins, states.

    A state has the parameter that it begins with, or none for zeros; its new value is an output behind those of the
    caller, in the order of states.
    """
    extents = {name: list(ends) for item in inputs for name, ends in own_symbols(item).items()}
    texts = {str(index): _origin_text(origin) for index, origin in origins.items()}
    content = {
        "format": FORMAT,
        "graph": graph,
        "inputs": [_described(item.name, item) for item in inputs],
        "outputs": [_described(name, item) for name, item in outputs],
        "extents": extents,
        "constants": {name: list(places) for name, places in constants.items()},
        "origins": texts,
        "branches": {str(index): count for index, count in branches.items()},
        "states": [
            {"id": number, **_described(item.name, item), "initial": initial, "update": len(outputs) + number}
            for number, (item, initial) in enumerate(states)
        ],
    }
    kept = {key: value for key, value in content.items() if value or key in ("format", "graph")}
    return notes_resource(kept)


def _described(name: str, tensor: Tensor) -> dict[str, object]:
    shape = [extent if isinstance(extent, int) else str(extent) for extent in tensor.shape]
    return {"name": name, "dtype": tensor.element.name, "shape": shape}


def _origin_text(origin: Origin) -> str:
    """The chain of an origin; files by their names alone, so that the bytes do not tell where somebody works."""
    return " <- ".join(_link(item) for item in origin.chain() if not _INSTRUCTION.search(item.what))


def _link(origin: Origin) -> str:
    if origin.span is None:
        return printable(origin.what)
    return f"{printable(PurePath(origin.span.source.name).name)}:{origin.span.line} {printable(origin.what)}"


# --- `d_model`, the one number of the header that is not a count --------------------------------------------


_TABLES = frozenset(("aten.embedding",))
_PRODUCTS = frozenset(
    (
        *(f"aten.{name}" for name in ("linear", "addmm", "mm", "bmm", "matmul", "baddbmm", "mv")),
        *("nn.linear", "linalg.matmul"),
    )
)
_TURNS = frozenset(("aten.t", "aten.transpose", "aten.permute", "layout.transpose"))


def model_width(spoken: Sequence[EncodedStep], variables: Sequence[Tensor]) -> int:
    """The number for the header; 0 where nothing is known."""
    sources, calls = {item.name: item for item in variables}, list(flat_calls(spoken))
    for call in calls:
        if call.operator in _TURNS and isinstance(call.result, Tensor):
            found = next((item for item in tensors_of(call.encoding) if item.name in sources), None)
            if found is not None:
                sources[call.result.name] = sources[found.name]
    tables = _parameters(calls, sources, _TABLES)
    products = (item for item in _parameters(calls, sources, _PRODUCTS) if item.element.is_float)
    first = next(tables, None) or next(products, None)
    return 0 if first is None else _known(first.shape[-1:])


def _parameters(
    calls: Sequence[EncodedCall], sources: dict[str, Tensor], operators: frozenset[str]
) -> Iterator[Tensor]:
    """The parameters that calls of some operators read."""
    for call in calls:
        if call.operator in operators:
            found = (sources[item.name] for item in tensors_of(call.encoding) if item.name in sources)
            yield from (item for item in found if len(item.shape) > 1)


def _known(extents: Sequence[Extent]) -> int:
    return next((item for item in extents if isinstance(item, int)), 0)


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
    except Found as problem:
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
    except Found as problem:
        raise LamellaError(problem.findings) from None


class _FileWriter:
    """Puts a file together."""

    def __init__(self, model: Model, replayed: Replayed, how: Writing) -> None:
        self.model, self.replayed, self.how = model, replayed, how
        self.tables = FileTables()
        self.findings: list[Diagnostic] = []
        self.states = [item.variable for item in replayed.updates]
        fresh = FreshNames(item.name for item in (*replayed.variables, *self.states))
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
        placed = layout_instructions(names, items, self.parameters, self.tables, states)
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

    def _notes(self, placed: PlacedCode) -> n.Resource:
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
            {"test": [str(test.left), test.sign, str(test.right)], "message": message}
            for test, message in found.items()
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

    def _schedule(self, file: n.File, placed: PlacedCode) -> tuple[n.Tick, ...]:
        if not self.how.schedule:
            return ()
        if len(file.instructions) > LAST_INDEX + 1:
            reason = f"there are {len(file.instructions)} instructions, and its commands reach {LAST_INDEX}"
            self._leave_out("the memory schedule", reason)
            return ()
        return plan_memory(file, self._sizes(placed))

    def _sizes(self, placed: PlacedCode) -> Mapping[int, int]:
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


# --- a training graph as resources of the file that it trains: version 1.6 has no section for it ------------


@dataclass(frozen=True, slots=True)
class TrainingGraph:
    """A graph from inputs, targets and parameters to a loss and gradients, and what each of them is.

    `inputs` and `parameters` give, by the names of the graph's inputs, the inputs and parameters of the file; `saved`
    the instructions of its program; `gradients`, by the names of parameters, the graph's outputs.
    """

    model: Model
    loss: str
    gradients: Mapping[str, str]
    parameters: Mapping[str, str]
    targets: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    saved: Mapping[str, int] = field(default_factory=dict)
    rate: float | None = None


def with_training(file: File, training: TrainingGraph) -> tuple[File, tuple[Diagnostic, ...]]:
    """The file with its training graph, and what was left out; LamellaError holds what does not fit or go into NAC."""
    written = graph_to_nac(training.model, Writing())
    content: dict[str, object] = {
        "format": TRAINING_FORMAT,
        "targets": list(training.targets),
        "inputs": dict(training.inputs),
        "parameters": dict(training.parameters),
        "saved": dict(training.saved),
        "loss": training.loss,
        "gradients": dict(training.gradients),
        "lr": training.rate,
    }
    kept = {key: value for key, value in content.items() if value not in ({}, [], None)}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    made = without_training(file)
    resources = (Resource(NOTES, text.encode()), Resource(GRAPH, write(written.file)))
    made = replace(made, resources=(*made.resources, *resources))
    _, findings = read_entry(made, check)
    if errors(findings):
        raise LamellaError(findings)
    return made, written.findings


def without_training(file: File) -> File:
    """The file without a training graph in its resources."""
    kept = tuple(item for item in file.resources if item.name not in (NOTES, GRAPH))
    return replace(file, resources=kept)
