"""Lowering of a file to a graph, instruction by instruction, with all findings of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, sort_findings
from lamella.base.dim import Dim
from lamella.base.dtype import BOOL
from lamella.base.errors import Found
from lamella.base.limits import DEFAULT, Limits
from lamella.base.origin import Origin
from lamella.bridge.nac_to_graph.builder import Outputs, UndoBuilder, output_names
from lamella.bridge.nac_to_graph.calls import call, foreign, foresee, is_dropped, is_in_place, is_known
from lamella.bridge.nac_to_graph.loads import (
    Loads,
    LoadSource,
    check_update,
    find_misfits,
    is_parameter,
    make_loads,
    state_id,
)
from lamella.bridge.nac_to_graph.nodes import (
    FAILED,
    UNTYPED,
    CallArgument,
    Excess,
    Failure,
    InputType,
    KeptState,
    Translation,
    Untyped,
    Value,
    describe,
    find_excess,
    first_tensor,
)
from lamella.bridge.nac_to_graph.notes import read_notes
from lamella.bridge.nac_to_graph.operators import read_operators
from lamella.bridge.nac_to_graph.weights import StoredWeights
from lamella.graph.model import Model
from lamella.graph.nodes import Region, Tensor
from lamella.lang.nac.check.data import check_inputs, check_parameters, check_tensors
from lamella.lang.nac.check.instructions import check_instructions
from lamella.lang.nac.check.tables import (
    SymbolTables,
    check_constants,
    check_operations,
    check_signatures,
    read_tables,
)
from lamella.lang.nac.nodes import CONTROL_FLOW, FIRST_REGULAR, INPUT, OUTPUT, File, Instruction
from lamella.lang.nac.operations import FINAL, STATE, SYSTEM_NAMES, coerce
from lamella.lang.nac.regions import InstructionBlock, has_blocks, read_blocks
from lamella.lang.nac.rules import graphs
from lamella.lang.nac.rules import instructions as rules
from lamella.lang.nac.rules.container import FIELDS
from lamella.ops.fault import Fault

# --- control flow: blocks of instructions become regions, joined where they end -----------------------------


CONVERGE = "nac.converge"
USUAL_THRESHOLD = 50
"""The threshold in percent that 0 stands for."""


@dataclass(slots=True)
class _OpenBlocks:
    """The blocks of an instruction so far: what each one hands over, and as a region where it may be skipped."""

    results: list[Sequence[Tensor] | None] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    untyped: bool = False
    """Whether only a run tells what some block hands over."""


class BlockFlow:
    """Follows the blocks of a checked program while its instructions are translated."""

    def __init__(
        self,
        builder: UndoBuilder,
        instructions: Sequence[Instruction],
        counts: Mapping[int, int],
        report: Callable[[Diagnostic], None],
    ) -> None:
        self._builder = builder
        self._instructions = instructions
        self._counts = counts
        self._report = report
        self._blocks = read_blocks(instructions)
        self._open: dict[int, _OpenBlocks] = {}

    def enter(self, index: int) -> None:
        """Come to an instruction, which may be the first of a block."""
        block = self._blocks.at(index)
        if block is not None and block.start == index:
            self._open.setdefault(block.owner, _OpenBlocks())
            if self._is_branch(block):
                self._builder.open_region()

    def leave(self, index: int, values: Sequence[Value]) -> int | None:
        """Leave an instruction; the one whose blocks join behind it, where there is one."""
        block = self._blocks.at(index)
        if block is None or block.stop != index + 1:
            return None
        found, opened = self._results(block, values), self._open[block.owner]
        opened.results.append(found)
        if self._is_branch(block):
            opened.regions.append(self._builder.close_region(found or ()))
        owned = self._blocks.owned[block.owner]
        return block.owner if block.number == len(owned) - 1 else None

    def is_outside(self, index: int, target: int) -> bool:
        """Whether a result comes from before the block of an instruction."""
        return target < self._blocks.start(index)

    def _is_branch(self, block: InstructionBlock) -> bool:
        return self._instructions[block.owner].operation == CONTROL_FLOW

    # --- what blocks hand over ------------------------------------------------------------------------------

    def _results(self, block: InstructionBlock, values: Sequence[Value]) -> Sequence[Tensor] | None:
        """The tensors that a block hands over; None where one of them is none."""
        places = [
            (index, index + offset)
            for index in self._blocks.handing(self._instructions, block)
            for offset in self._instructions[index].offsets
        ]
        wanted = self._counts.get(block.owner, len(places)) if self._is_branch(block) else 1
        if wanted > len(places):
            problem = f"lamella.json says {wanted} results; block {block.number} hands over {len(places)}"
            span = self._instructions[block.owner].span
            self._report(rules.RESULT_COUNT.at(span, index=block.owner, problem=problem))
            return None
        found = [self._tensor(*place, number, values) for number, place in enumerate(places[:wanted])]
        tensors = [item for item in found if item is not None]
        return tensors if len(tensors) == len(found) else None

    def _tensor(self, index: int, target: int, number: int, values: Sequence[Value]) -> Tensor | None:
        value = values[target]
        tensor = first_tensor(value)
        if isinstance(value, Untyped):
            block = self._blocks.at(index)
            if block is not None:
                self._open[block.owner].untyped = True
        elif tensor is None and value is not FAILED:
            span, what = self._instructions[index].span, describe(value)
            self._report(graphs.OUTPUT_KIND.at(span, number=number, target=target, what=what))
        return tensor

    # --- joins ----------------------------------------------------------------------------------------------

    def join(self, owner: int, values: Sequence[Value]) -> Value:
        """The result of a branch or of a convergence whose blocks are over."""
        item, opened = self._instructions[owner], self._open.pop(owner)
        found = [results for results in opened.results if results is not None]
        if len(found) != len(opened.results):
            return UNTYPED if opened.untyped else FAILED
        problems = list(self._differences(owner, found))
        for problem in problems:
            self._report(problem)
        if item.operation == CONTROL_FLOW:
            condition = self._condition(owner, values)
            if isinstance(condition, Untyped) and not problems:
                return UNTYPED
            if not isinstance(condition, Tensor) or problems:
                return FAILED
            return self._builder.add_branch(condition, opened.regions)
        if problems:
            return FAILED
        threshold = item.variant or USUAL_THRESHOLD
        return self._builder.call(CONVERGE, tuple(results[0] for results in found), threshold=threshold)

    def _differences(self, owner: int, found: Sequence[Sequence[Tensor]]) -> Iterator[Diagnostic]:
        span = self._instructions[owner].span
        for second, results in enumerate(found[1:], 1):
            if len(results) != len(found[0]):
                problem = f"its blocks hand over {len(found[0])} and {len(results)} results"
                yield rules.RESULT_COUNT.at(span, index=owner, problem=problem)
            for number, (one, other) in enumerate(zip(found[0], results, strict=False)):
                if (one.element, one.shape) != (other.element, other.shape):
                    names = (describe(one), describe(other))
                    finding = rules.RESULT_TYPES.at(
                        span, number=number, index=owner, one=names[0], other=names[1], first=0, second=second
                    )
                    yield finding

    def _condition(self, owner: int, values: Sequence[Value]) -> Tensor | Untyped | None:
        item = self._instructions[owner]
        value = values[owner + item.offsets[0]]
        if isinstance(value, Untyped):
            return value
        tensor = first_tensor(value)
        if tensor is not None and (tensor.element, tensor.shape) == (BOOL, ()):
            return tensor
        if value is not FAILED:
            self._report(graphs.CONDITION.at(item.span, index=owner, what=describe(value)))
        return None


MAIN = "main"
MOST_FINDINGS = 1000
LONGEST_PACK = 4096
"""Tensors that one instruction may give: a few bytes must not ask for thousands of thousands."""
NO_INPUTS: Mapping[str, InputType] = MappingProxyType({})


def nac_to_graph(
    file: File,
    weights: StoredWeights | None = None,
    inputs: Mapping[str, InputType] | None = None,
    limits: Limits = DEFAULT,
) -> Translation:
    """The graph that a file says; LamellaError holds all that is wrong.

    Weights are those of the file where none are given. `inputs` describes inputs that the file does not describe, and
    is stronger where it does. Numbers are read when the model is asked for them.
    """
    translation, findings = _translate(file, weights, inputs or NO_INPUTS, limits)
    if translation is None:
        raise LamellaError(findings)
    return replace(translation, findings=tuple(findings))


def check_translation(
    file: File,
    inputs: Mapping[str, InputType] | None = None,
    weights: StoredWeights | None = None,
    limits: Limits = DEFAULT,
    *,
    partial: bool = False,
) -> list[Diagnostic]:
    """What keeps a file from becoming a graph, element types and shapes included; no numbers are read.

    Where it is `partial`, inputs that nothing describes and weights that are not there are no findings: what follows
    from them is looked at as far as names and arguments of operations tell.
    """
    return _translate(file, weights, inputs or NO_INPUTS, limits, numbers=False, partial=partial)[1]


def find_unknown(file: File, limits: Limits = DEFAULT) -> list[Diagnostic]:
    """The operations of a checked file that nobody here knows, each at the first instruction that names it.

    Where the text of the file's own operators is wrong, that is all that is found.
    """
    tables, (library, wrong) = read_tables(file), read_operators(file, limits)
    if wrong:
        return wrong
    firsts: dict[str, tuple[int, Instruction]] = {}
    for index, item in enumerate(file.instructions):
        if item.operation >= FIRST_REGULAR:
            firsts.setdefault(tables.name_of(item.operation) or "", (index, item))
    return [
        foreign(library, name).at(item.span, index=index, name=name)
        for name, (index, item) in firsts.items()
        if not is_known(library, name)
    ][:MOST_FINDINGS]


def _translate(
    file: File,
    weights: StoredWeights | None,
    inputs: Mapping[str, InputType],
    limits: Limits,
    numbers: bool = True,
    partial: bool = False,
) -> tuple[Translation | None, list[Diagnostic]]:
    tables = read_tables(file)
    wrong = _first_errors(_checks(file, tables))
    if not wrong and not file.instructions:
        wrong = [rules.NO_FINAL_OUTPUT.at(file.span)]
    if wrong:
        return None, wrong
    notes = read_notes(file, limits)
    source = LoadSource(file, tables, notes, weights, inputs, limits, numbers, partial)
    return _Translator(source).run()


def _checks(file: File, tables: SymbolTables) -> Iterator[Diagnostic]:
    """What must hold before instructions mean anything; memory commands and attachments do not matter here."""
    yield from check_operations(file, tables)
    yield from check_signatures(file, tables)
    yield from check_constants(file, tables)
    yield from check_instructions(file, tables)
    yield from check_parameters(file, tables)
    yield from check_inputs(file)
    yield from check_tensors(file, tables)


def _first_errors(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    found = (item for item in findings if errors([item]))
    return sort_findings(islice(found, MOST_FINDINGS))


class _Translator:
    """Goes through the instructions of one file."""

    def __init__(self, source: LoadSource) -> None:
        self._source = source
        self._file = source.file
        self._limits = source.limits
        self._names: dict[int, str] = {}
        limits = replace(source.limits, max_pack=min(source.limits.max_pack, LONGEST_PACK))
        library, self._wrong = read_operators(source.file, limits, source.notes.dialect)
        """What is wrong with the file's own operators, without which instructions mean nothing."""
        self._builder = UndoBuilder(library, source.notes.graph or MAIN)
        self._loads = Loads()
        self._values: list[Value] = []
        self._steps: list[int] = [0]
        """How many nodes there were before each instruction."""
        counts = source.notes.branches
        self._flow = BlockFlow(self._builder, source.file.instructions, counts, self._report)
        self._tensors = 0
        self._foreseen: set[tuple[int, int, tuple[int, ...], tuple[bool, ...]]] = set()
        """Forms of calls with untyped arguments that nothing is wrong with; programs repeat themselves."""
        self._findings: list[Diagnostic] = list(source.notes.findings)

    def _report(self, finding: Diagnostic) -> None:
        if len(self._findings) < MOST_FINDINGS:
            self._findings.append(finding)

    def run(self) -> tuple[Translation | None, list[Diagnostic]]:
        """The translation, unless there are findings."""
        if self._wrong:
            return None, sort_findings([*self._findings, *self._wrong])
        self._loads = make_loads(self._builder, self._source)
        misfits = find_misfits(self._file, self._source.notes, self._limits)
        for finding in (*self._loads.findings, *misfits):
            self._report(finding)
        end = self._end()
        targets = [end + offset for offset in self._file.instructions[end].offsets]
        count = max(len(targets) - len(self._source.notes.states or ()), 0)
        outputs = Outputs(self._builder, output_names(self._source.notes.outputs, count))
        for index, item in enumerate(self._file.instructions[:end]):
            self._flow.enter(index)
            self._values.append(self._instruction(index, item))
            joined = self._flow.leave(index, self._values)
            if joined is not None:
                self._values[joined] = self._join(joined)
            self._steps.append(self._builder.count)
            if self._is_too_much(index, item):
                break
        tensors = [] if self._findings else self._outputs(targets, self._file.instructions[end])
        whole = not self._findings and len(tensors) == len(targets)
        states = self._update(tensors) if whole else []
        if self._findings or not whole:
            return None, sort_findings(self._findings)
        return replace(self._finish(outputs, tensors[:count]), states=tuple(states)), []

    def _end(self) -> int:
        """The final output; the checks have found one."""
        ends = (OUTPUT, FINAL)
        items = enumerate(self._file.instructions)
        return next(index for index, item in items if (item.operation, item.variant) == ends)

    def _is_too_much(self, index: int, item: Instruction) -> bool:
        """Whether the program has become too long to go on."""
        count = max(self._builder.count, self._tensors)
        problem = self._limits.excess("max_operations", count, "the number of operations and results so far")
        if problem:
            name = self._source.tables.name_of(item.operation) or ""
            excess = Excess(describe(self._values[-1]), problem, "max_operations")
            self._report(excess.at(item.span, index, name))
        return problem is not None

    # --- instructions ---------------------------------------------------------------------------------------

    def _instruction(self, index: int, item: Instruction) -> Value:
        if item.operation >= FIRST_REGULAR:
            return self._regular(index, item)
        if item.operation == INPUT:
            return self._input(index, item)
        return FAILED if has_blocks(item) else Failure("no value")

    def _input(self, index: int, item: Instruction) -> Value:
        if item.variant == STATE:
            return self._state(index, item)
        if not is_parameter(item):
            return self._loads.inputs[index]
        found = self._loads.parameters.get(item.constants[0])
        if found is None:
            name = self._source.tables.parameters[item.constants[0]].name
            found = UNTYPED if self._source.partial else FAILED
            if found is FAILED:
                self._report(graphs.WEIGHTS_MISSING.at(item.span, index=index, name=name))
            self._loads.parameters[item.constants[0]] = found
        return found

    def _state(self, index: int, item: Instruction) -> Value:
        """A state; without notes on any nobody knows what it is, and one that they lack has a finding already."""
        if self._source.notes.states is None:
            self._report(graphs.STATE_REFUSED.at(item.span, index=index, id=state_id(item)))
        return self._loads.states.get(item.constants[0], FAILED) if item.constants else FAILED

    def _regular(self, index: int, item: Instruction) -> Value:
        name = self._source.tables.name_of(item.operation) or ""
        if is_dropped(name):
            return Failure("no value")
        given = self._arguments(index, item, name)
        if given is None:
            return FAILED
        if all(argument.typed for argument in given):
            return self._made(index, item, name, lambda: call(self._builder, name, given))
        return self._foresee(index, item, name, given)

    def _foresee(self, index: int, item: Instruction, name: str, given: tuple[CallArgument, ...]) -> Value:
        """The untyped result of a call of which only the name and the arguments that are known can be wrong."""
        typed = tuple(argument.typed for argument in given)
        form = (item.operation, item.variant, item.constants, typed)
        # Typed results differ from call to call, so forms are alike only where constants are all that is known.
        alike = all(argument.computed != argument.typed for argument in given)
        if not (alike and form in self._foreseen):
            found = self._made(index, item, name, lambda: foresee(self._builder.library, name, given))
            if alike and found is UNTYPED:
                self._foreseen.add(form)
            return found
        return self._kept(index, item, UNTYPED)

    def _join(self, index: int) -> Value:
        """What an instruction gives whose blocks are over."""
        item = self._file.instructions[index]
        name = SYSTEM_NAMES[item.operation]
        return self._made(index, item, name, lambda: self._flow.join(index, self._values))

    def _made(self, index: int, item: Instruction, name: str, make: Callable[[], Value]) -> Value:
        """The result that a call gives, or what is wrong with it as findings."""
        self._builder.origin = self._origin(index, name)
        mark = self._builder.mark()
        try:
            found = make()
        except Fault as fault:
            rule = (
                foreign(self._builder.library, name) if fault.rule == graphs.OPERATION_FOREIGN else fault.rule
            )
            self._report(rule.at(item.span, hint=None, labels=(), index=index, name=name, **fault.values))
        except Found as problem:
            for finding in problem.findings:
                self._report(self._at_instruction(finding, index, name))
        except (ArithmeticError, ValueError) as problem:
            self._report(graphs.CALL_REFUSED.at(item.span, index=index, name=name, problem=problem))
        else:
            return self._kept(index, item, found)
        self._builder.undo(mark)
        return FAILED

    def _kept(self, index: int, item: Instruction, value: Value) -> Value:
        """A result that is small enough to go on with."""
        name = self._source.tables.name_of(item.operation) or ""
        excess = find_excess(value, self._limits)
        self._tensors += _count(value)
        if excess is not None:
            self._report(excess.at(item.span, index, name))
            return FAILED
        tensor = value if isinstance(value, Untyped) else first_tensor(value)
        if is_in_place(name) and tensor is not None and item.offsets and item.offsets[0]:
            target = index + item.offsets[0]
            if self._flow.is_outside(index, target):
                problem = f"it changes instruction {target}, which stands before its block"
                self._report(graphs.CALL_REFUSED.at(item.span, index=index, name=name, problem=problem))
                return FAILED
            self._values[target] = tensor
        return value

    def _at_instruction(self, finding: Diagnostic, index: int, name: str) -> Diagnostic:
        """A finding about a call, at the instruction that makes it."""
        origin = self._origin(index, name)
        hint = finding.hint or f"`lamella explain {finding.code}` tells more"
        refused = graphs.CALL_REFUSED.at(
            self._file.instructions[index].span,
            hint=hint,
            labels=finding.labels,
            index=index,
            name=name,
            problem=finding.message,
        )
        return refused.from_origin(*origin.words())

    def _origin(self, index: int, name: str) -> Origin:
        """What the operations of an instruction are made from."""
        text = self._source.notes.origins.get(index)
        above = None if text is None else Origin(text)
        source = self._file.instructions[index].span.source.name
        return Origin(f"{source} instruction {index} {name}", None, above)

    # --- arguments ------------------------------------------------------------------------------------------

    def _arguments(self, index: int, item: Instruction, name: str) -> tuple[CallArgument, ...] | None:
        """What an instruction is called with; None where something of it has no value."""
        signature = self._source.tables.signatures.get(item.variant) if item.variant else None
        codes, constants = "" if signature is None else signature.codes, iter(item.constants)
        if len(codes) != len(item.offsets):
            given_count = f"{len(item.offsets)} values"
            self._report(FIELDS.at(item.span, index=index, given=given_count, field="D", wanted=len(codes)))
            return None
        given: list[CallArgument] = []
        for code, offset in zip(codes, item.offsets, strict=True):
            if offset == 0:
                constant = self._source.tables.constants[next(constants)]
                given.append(CallArgument(coerce(code, constant.value), computed=False))
                continue
            value = self._values[index + offset]
            if isinstance(value, Failure):
                if value.reason:
                    self._report_use(index, index + offset, value.reason)
                return None
            if isinstance(value, Untyped):
                given.append(CallArgument(None, computed=True, typed=False))
            else:
                given.append(CallArgument(value, computed=True))
        return tuple(given)

    def _report_use(self, index: int, target: int, what: str) -> None:
        item = self._file.instructions[index]
        name = self._source.tables.name_of(item.operation)
        self._report(graphs.NO_VALUE.at(item.span, index=index, name=name, target=target, what=what))

    # --- the end --------------------------------------------------------------------------------------------

    def _outputs(self, targets: Sequence[int], item: Instruction) -> list[Tensor]:
        found: list[Tensor] = []
        for number, target in enumerate(targets):
            tensor = first_tensor(self._values[target])
            if isinstance(self._values[target], Untyped):
                continue
            if tensor is None:
                what = describe(self._values[target])
                self._report(graphs.OUTPUT_KIND.at(item.span, number=number, target=target, what=what))
            else:
                found.append(tensor)
        return found

    def _update(self, tensors: Sequence[Tensor]) -> list[tuple[KeptState, Tensor]]:
        """What is kept between runs takes the outputs behind those of the caller."""
        found: list[tuple[KeptState, Tensor]] = []
        for state in self._source.notes.states or ():
            problem = check_update(state, tensors[state.update], self._source.notes.span)
            variable = self._loads.states[state.id]
            if problem is not None:
                self._report(problem)
            else:
                self._builder.update(variable, tensors[state.update])
                found.append((state, variable))
        return found

    def _finish(self, outputs: Outputs, tensors: Sequence[Tensor]) -> Translation:
        end = len(self._values)
        self._builder.origin = self._origin(end, "<OUTPUT>")
        graph = outputs.name(tensors, self._builder.close(()).nodes)
        made = list(graph.operations())
        bounds = [*self._steps, len(made)]
        steps = [tuple(made[start:stop]) for start, stop in pairwise(bounds)]
        rest = len(self._file.instructions) - end
        values = [*self._values, *[Failure()] * rest]
        steps += [()] * (len(self._file.instructions) - len(steps))
        checks = tuple(self._source.notes.checks)
        model = Model(replace(graph, checks=checks), self._builder.library, self._loads.data)
        return Translation(model, tuple(steps), outputs.follow(graph, values))


def _count(value: Value) -> int:
    """How many tensors a result has."""
    return len(value) if isinstance(value, tuple) else int(isinstance(value, Tensor | Dim))
