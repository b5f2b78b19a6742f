"""The assembler: nodes of a text to a file, with its tables, header and data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from lamella.base.cursor import SHOWN
from lamella.base.diagnostic import Diagnostic, sort_findings
from lamella.base.errors import InputError, Malformed
from lamella.base.limits import DEFAULT, Limits, hint_for
from lamella.base.source import Span
from lamella.lang.nac.assembly import words
from lamella.lang.nac.assembly.nodes import (
    Argument,
    Assembly,
    Blob,
    Bytes,
    FileSlice,
    Id,
    InlineBytes,
    InlineConstant,
    Label,
    Line,
    MemoryOrder,
    Moment,
    OperationCall,
    ProgramStep,
    Raw,
    RowItem,
    Scaled,
    System,
    WeightRow,
    Zeros,
)
from lamella.lang.nac.assembly.programs import (
    encode_manifest_step,
    encode_plan_step,
    resolve_jumps,
)
from lamella.lang.nac.assembly.tables import AssemblyTable, AssemblyTables
from lamella.lang.nac.assembly.words import SYSTEM, pack_singles, write_string, write_value
from lamella.lang.nac.check.manifest import MAGIC
from lamella.lang.nac.nodes import (
    CONVERGENCE,
    INPUT,
    OUTPUT,
    V1_6,
    Array,
    BlockFp8,
    Command,
    Constant,
    ConstantType,
    Data,
    File,
    Header,
    Input,
    Instruction,
    Int8Channel,
    Int8Tensor,
    Method,
    Operation,
    Orchestrator,
    Parameter,
    Quantization,
    Resource,
    Signature,
    Tensor,
    Tick,
    Unscaled,
)
from lamella.lang.nac.operations import FINAL, USER
from lamella.lang.nac.rules import assembly as rules

# --- lines of the text to ABCD instructions and memory commands ---------------------------------------------


_CODES: Mapping[ConstantType, str] = MappingProxyType(
    {
        ConstantType.NULL: "c",
        ConstantType.BOOL: "b",
        ConstantType.INT64: "i",
        ConstantType.FLOAT64: "f",
        ConstantType.STRING: "s",
        ConstantType.INT32_LIST: "S",
        ConstantType.FLOAT32_LIST: "S",
    }
)
"""The code of a constant in a signature that was left out."""


@dataclass(slots=True)
class Encoder:
    """Turns the lines of one section into instructions; what is missing in the tables is added to them."""

    tables: AssemblyTables
    indices: Mapping[str, int]
    findings: list[Diagnostic] = field(default_factory=list)

    def instruction(self, index: int, line: Line) -> Instruction:
        """The instruction of a line; what cannot be said in it is left out of it."""
        match line.body:
            case Raw(operation, variant, constants, offsets):
                return Instruction(operation, variant, constants, offsets, line.span)
            case System() as system:
                return self._system(index, line, system)
            case OperationCall() as call:
                return self._call(index, line, call)

    # --- system operations ----------------------------------------------------------------------------------

    def _system(self, index: int, line: Line, body: System) -> Instruction:
        operation, variant = SYSTEM[body.word]
        constants = tuple(self._operand(item, line.span) for item in body.operands)
        offsets = tuple(self._offset(index, label, line) for label in body.labels)
        if operation == CONVERGENCE:
            variant, *lengths = constants
            constants = tuple(lengths)
        return Instruction(operation, variant, constants, offsets, line.span)

    def _operand(self, operand: int | str | InlineConstant | Id, span: Span) -> int:
        match operand:
            case int():
                return operand
            case str():
                return self._known(self.tables.parameters, operand, span, "parameter")
            case _:
                return self._constant(operand)

    # --- regular operations ---------------------------------------------------------------------------------

    def _call(self, index: int, line: Line, body: OperationCall) -> Instruction:
        operation = self._operation(body.operation, line.span)
        variant = self._variant(body, line.span)
        constants = tuple(self._constant(item) for item in body.arguments if not isinstance(item, Label))
        offsets = tuple(
            self._offset(index, item, line) if isinstance(item, Label) else 0 for item in body.arguments
        )
        return Instruction(operation, variant, constants, offsets, line.span)

    def _operation(self, operation: str | Id, span: Span) -> int:
        if isinstance(operation, Id):
            return operation.number
        found = self.tables.operation_id(operation, span)
        if found is not None:
            return found
        return self._full(self.tables.operations.last, "operation", write_string(operation), span)

    def _variant(self, body: OperationCall, span: Span) -> int:
        """The id of the signature; an operation without signature and arguments has none."""
        codes = body.signature
        if codes is None:
            if not body.arguments:
                return 0
            codes = "".join(map(self._code, body.arguments))
        elif len(codes) != len(body.arguments):
            given = _counted(len(body.arguments))
            shown, wanted = write_string(codes[:SHOWN]), len(codes)
            self.findings.append(rules.ARGUMENT_COUNT.at(span, codes=shown, wanted=wanted, given=given))
            return 0
        return self._known(self.tables.signatures, codes, span, "signature")

    def _code(self, argument: Argument) -> str:
        if isinstance(argument, Label):
            return "T"
        return _CODES[argument.type] if isinstance(argument, InlineConstant) else "c"

    def _constant(self, constant: InlineConstant | Id) -> int:
        if isinstance(constant, Id):
            return constant.number
        type_, value, span = constant.type, constant.value, constant.span
        found = self.tables.constant_id(type_, value, span)
        if found is not None:
            return found
        return self._full(self.tables.constants.last, "constant", write_value(type_, value), span)

    def _known(
        self, table: AssemblyTable[Parameter] | AssemblyTable[Signature], meaning: str, span: Span, what: str
    ) -> int:
        found = table.id_of(meaning, span)
        return self._full(table.last, what, write_string(meaning), span) if found is None else found

    def _full(self, last: int, what: str, text: str, span: Span) -> int:
        self.findings.append(rules.FULL_TABLE.at(span, what=what, text=text[:SHOWN], last=last))
        return 0

    # --- labels ---------------------------------------------------------------------------------------------

    def _offset(self, index: int, label: Label, line: Line) -> int:
        found = self._index(label)
        if found == index:
            self.findings.append(rules.OWN_RESULT.at(label.span, label=line.label.name[:SHOWN]))
        return 0 if found is None else found - index

    def _index(self, label: Label) -> int | None:
        found = self.indices.get(label.name)
        if found is None:
            repair = f"there are {len(self.indices)} instructions" if label.name.isdigit() else "define it"
            self.findings.append(rules.UNKNOWN_LABEL.at(label.span, label=label.name[:SHOWN], repair=repair))
        return found

    # --- memory commands ------------------------------------------------------------------------------------

    def tick(self, index: int, item: Line | Moment) -> Tick:
        """The commands of an instruction or of a row of `.schedule`."""
        span = item.orders[0].span.to(item.orders[-1].span) if item.orders else item.span
        return Tick(index, tuple(self._commands(item.orders)), span)

    def _commands(self, orders: Sequence[MemoryOrder]) -> Iterable[Command]:
        for order in orders:
            for target in order.targets:
                index = target if isinstance(target, int) else self._index(target)
                if index is not None:
                    span = order.span if isinstance(target, int) else target.span
                    yield Command(order.action, index, span)


def _counted(count: int) -> str:
    return f"{count} is" if count == 1 else f"{count} are"


def index_labels(lines: Sequence[Line]) -> tuple[dict[str, int], list[Diagnostic]]:
    """The index of each label, and what is wrong with labels: numbers must be indices, none may stand twice."""
    indices: dict[str, int] = {}
    findings: list[Diagnostic] = []
    for index, line in enumerate(lines):
        name, span = line.label.name, line.label.span
        if name in indices:
            findings.append(rules.REPEATED.at(span, what=f"the label %{name[:SHOWN]}"))
        elif name.isdigit() and name != str(index):
            findings.append(rules.LABEL_INDEX.at(span, label=name[:SHOWN], index=index))
        indices.setdefault(name, index)
    return indices, findings


R = TypeVar("R")
MOST_ZEROS = 64 << 20
"""Bytes of zero that one row may ask for; all of them share one buffer."""
ReadFile = Callable[[str], Data]
"""Gives the bytes of a file in the folder of the text; an InputError says why not."""


class Assembled(NamedTuple):
    """A file and what was found wrong with its text."""

    file: File
    findings: tuple[Diagnostic, ...]


def build_file(assembly: Assembly, read: ReadFile | None = None, limits: Limits = DEFAULT) -> Assembled:
    """The file that an assembly describes; names and constants without an id get one."""
    builder = _Builder(assembly, read, limits)
    file = builder.file()
    return Assembled(file, tuple(sort_findings(builder.findings)))


class _Builder:
    """Collects the parts of a file and what is wrong with them."""

    def __init__(self, assembly: Assembly, read: ReadFile | None, limits: Limits) -> None:
        self.findings: list[Diagnostic] = []
        self._assembly = assembly
        self._read = read
        self._limits = limits
        self._files: dict[str, memoryview | None] = {}
        self._zeros = memoryview(b"")
        self._total = 0
        self._fields = {field.name: field.value for field in assembly.fields}

    def file(self) -> File:
        """The whole file."""
        file = File(
            operations=self._rows(words.OPERATIONS, Operation),
            signatures=self._rows(words.SIGNATURES, Signature),
            constants=self._rows(words.CONSTANTS, Constant),
            parameters=self._rows(words.PARAMETERS, Parameter),
            inputs=self._rows(words.INPUTS, Input),
            span=self._assembly.span,
        )
        return self._with_data(self._with_code(file))

    def _items(self, section: str) -> Iterator[RowItem]:
        for item in self._assembly.sections:
            if item.name == section:
                yield from (row.item for row in item.rows)

    def _rows(self, section: str, kind: type[R]) -> tuple[R, ...]:
        return tuple(item for item in self._items(section) if isinstance(item, kind))

    # --- instructions ---------------------------------------------------------------------------------------

    def _with_code(self, file: File) -> File:
        tables = AssemblyTables(str(self._fields.get("nac", V1_6)))
        tables.fill(file)
        lines = self._rows(words.CODE, Line)
        encoder = self._encoder(tables, lines)
        instructions = tuple(encoder.instruction(index, line) for index, line in enumerate(lines))
        schedule = self._schedule(encoder, lines)
        training = self._rows(words.TRAINING, Line)
        behind = self._encoder(tables, training)
        backward = tuple(behind.instruction(index, line) for index, line in enumerate(training))
        self.findings += [*encoder.findings, *behind.findings]
        return replace(
            file,
            header=self._header(instructions),
            operations=file.operations + tables.operations.sorted(),
            signatures=file.signatures + tables.signatures.sorted(),
            constants=file.constants + tables.constants.sorted(),
            parameters=file.parameters + tables.parameters.sorted(),
            instructions=instructions,
            schedule=schedule,
            training=backward,
        )

    def _encoder(self, tables: AssemblyTables, lines: tuple[Line, ...]) -> Encoder:
        indices, findings = index_labels(lines)
        self.findings += findings
        return Encoder(tables, indices)

    def _schedule(self, encoder: Encoder, lines: tuple[Line, ...]) -> tuple[Tick, ...]:
        moments = self._rows(words.SCHEDULE, Moment)
        behind = [(index, line) for index, line in enumerate(lines) if line.orders]
        if moments and behind:
            self.findings.append(rules.TWO_SCHEDULES.at(moments[0].span))
        rows: list[tuple[int, Line | Moment]] = [*behind, *((item.index, item) for item in moments)]
        return tuple(encoder.tick(index, item) for index, item in rows)

    def _header(self, instructions: tuple[Instruction, ...]) -> Header:
        """The header; counts that the text leaves out are those of the code."""
        fields = self._fields
        inputs = sum(item.operation == INPUT and item.variant == USER for item in instructions)
        outputs = [len(i.offsets) for i in instructions if (i.operation, i.variant) == (OUTPUT, FINAL)]
        internal = any(section.name == words.TENSORS for section in self._assembly.sections)
        spans = [field.span for field in self._assembly.fields]
        return Header(
            version=str(fields.get("nac", V1_6)),
            method=words.METHODS[str(fields.get("quantization", "none"))],
            internal=fields.get("weights", "internal" if internal else "external") == "internal",
            inputs=int(fields.get("inputs", inputs)),
            outputs=int(fields.get("outputs", outputs[0] if outputs else 0)),
            d_model=int(fields.get("d_model", 0)),
            span=spans[0].to(spans[-1]) if spans else self._assembly.span,
        )

    # --- data -----------------------------------------------------------------------------------------------

    def _with_data(self, file: File) -> File:
        manifest = self._rows(words.MANIFEST, Blob) + self._rows(words.MANIFEST, ProgramStep)
        return replace(
            file,
            tensors=tuple(self._tensor(item) for item in self._rows(words.TENSORS, WeightRow)),
            arrays=tuple(self._array(item) for item in self._rows(words.ARRAYS, WeightRow)),
            manifest=self._program(manifest, MAGIC, encode_manifest_step),
            manifest_span=manifest[0].span.to(manifest[-1].span) if manifest else self._assembly.span,
            orchestrator=self._orchestrator(),
            resources=tuple(
                Resource(item.name or "", self._bytes(item.data), item.span)
                for item in self._rows(words.RESOURCES, Blob)
            ),
        )

    def _tensor(self, item: WeightRow) -> Tensor:
        quantization = self._quantization(item.scaled)
        data = self._bytes(item.data)
        return Tensor(int(item.key), item.dtype, item.shape, quantization, data, item.span)

    def _array(self, item: WeightRow) -> Array:
        return Array(str(item.key), item.dtype, item.shape, self._bytes(item.data), item.span)

    def _quantization(self, scaled: Scaled | None) -> Quantization:
        if scaled is None:
            return Unscaled()
        if scaled.method == "fp16":
            return Unscaled(Method.FP16)
        scales = scaled.scales
        if scaled.method == "int8_tensor":
            return Int8Tensor(scales[0] if isinstance(scales, tuple) else 0.0)
        packed = pack_singles(scales) if isinstance(scales, tuple) else self._bytes(scales)
        if scaled.method == "int8_channel":
            return Int8Channel(scaled.size, packed)
        return BlockFp8(scaled.size, scaled.shape, packed)

    def _orchestrator(self) -> Orchestrator:
        constants = self._rows(words.ORCHESTRATOR, Constant)
        steps = resolve_jumps(self._rows(words.ORCHESTRATOR, ProgramStep))
        rows: tuple[Blob | ProgramStep, ...] = (*self._rows(words.ORCHESTRATOR, Blob), *steps)
        places = [item.span for item in rows or constants] or [self._assembly.span]
        span, lines = places[0].to(places[-1]), tuple(item.span for item in steps)
        return Orchestrator(self._program(rows, b"", encode_plan_step), constants, span, lines)

    def _program(
        self, rows: Sequence[Blob | ProgramStep], head: bytes, encode: Callable[[ProgramStep], bytes]
    ) -> Data:
        """The bytes of a manifest or a plan, given as bytes or as instructions."""
        found = [head] if rows else []
        for item in rows:
            if isinstance(item, Blob):
                return self._bytes(item.data)
            try:
                found.append(encode(item))
            except Malformed as problem:
                self.findings.append(rules.STEP.at(item.span, name=item.name, reason=str(problem)))
        return b"".join(found)

    def _bytes(self, data: Bytes) -> Data:
        match data:
            case InlineBytes():
                return data.data
            case Zeros():
                return self._zero_bytes(data)
            case FileSlice():
                return self._slice(data)

    def _zero_bytes(self, data: Zeros) -> Data:
        self._total += data.size
        most = self._limits.max_data_bytes
        if data.size > MOST_ZEROS:
            repair = "keep large data in a file of its own: file(NAME, OFFSET, SIZE)"
            return self._exceed(data, f"a row of {data.size} zeros", MOST_ZEROS, repair)
        if self._total > most:
            return self._exceed(data, f"data of {self._total} bytes", most, hint_for("max_data_bytes"))
        if data.size > len(self._zeros):
            self._zeros = memoryview(bytes(max(data.size, min(2 * len(self._zeros), MOST_ZEROS))))
        return self._zeros[: data.size]

    def _exceed(self, data: Zeros, what: str, limit: int, repair: str) -> Data:
        self.findings.append(rules.LIMIT.at(data.span, what=what, limit=limit, repair=repair))
        return b""

    def _slice(self, data: FileSlice) -> Data:
        whole = self._file(data)
        if whole is None:
            return b""
        end = data.offset + data.size
        if end > len(whole):
            reason = f"it has {len(whole)} bytes, and {end} are needed"
            self._refuse(data, reason, "")
            return b""
        return whole[data.offset : end]

    def _file(self, data: FileSlice) -> memoryview | None:
        if data.name not in self._files:
            self._files[data.name] = self._open(data)
        return self._files[data.name]

    def _open(self, data: FileSlice) -> memoryview | None:
        """The bytes of a file beside the text, each read once; a finding says why there are none."""
        if not _is_plain(data.name):
            self._refuse(data, "it is not the name of a file in the folder of the text", "")
        elif self._read is None:
            self._refuse(data, "the text was read without its folder", "")
        else:
            try:
                return memoryview(self._read(data.name)).cast("B")
            except InputError as problem:
                self._refuse(data, problem.message, problem.hint)
        return None

    def _refuse(self, data: FileSlice, reason: str, repair: str) -> None:
        self.findings.append(rules.COMPANION.at(data.span, name=data.name, reason=reason, repair=repair))


def _is_plain(name: str) -> bool:
    """Whether a name stays in its folder and is no hidden file."""
    return bool(name) and name.isprintable() and name[0] != "." and not any(sign in name for sign in "/\\:")
