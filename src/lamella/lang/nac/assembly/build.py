"""Assembly nodes to a file: tables, header and data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from lamella.base.diagnostic import Diagnostic, sort_findings
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits, hint_for
from lamella.lang.nac.assembly import words
from lamella.lang.nac.assembly.encode import Encoder, index_labels
from lamella.lang.nac.assembly.nodes import (
    Assembly,
    Blob,
    Bytes,
    Item,
    Line,
    Moment,
    Scaled,
    Slice,
    Step,
    Weights,
    Written,
    Zeros,
)
from lamella.lang.nac.assembly.numbers import pack_singles
from lamella.lang.nac.assembly.programs import (
    StepProblem,
    encode_manifest_step,
    encode_plan_step,
    resolve_jumps,
)
from lamella.lang.nac.assembly.tables import Tables
from lamella.lang.nac.check.sections.manifest import MAGIC
from lamella.lang.nac.nodes import (
    INPUT,
    OUTPUT,
    V1_6,
    Array,
    BlockFp8,
    Constant,
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

    def _items(self, section: str) -> Iterator[Item]:
        for item in self._assembly.sections:
            if item.name == section:
                yield from (row.item for row in item.rows)

    def _rows(self, section: str, kind: type[R]) -> tuple[R, ...]:
        return tuple(item for item in self._items(section) if isinstance(item, kind))

    # --- instructions ---------------------------------------------------------------------------------------

    def _with_code(self, file: File) -> File:
        tables = Tables(str(self._fields.get("nac", V1_6)))
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

    def _encoder(self, tables: Tables, lines: tuple[Line, ...]) -> Encoder:
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
        manifest = self._rows(words.MANIFEST, Blob) + self._rows(words.MANIFEST, Step)
        return replace(
            file,
            tensors=tuple(self._tensor(item) for item in self._rows(words.TENSORS, Weights)),
            arrays=tuple(self._array(item) for item in self._rows(words.ARRAYS, Weights)),
            manifest=self._program(manifest, MAGIC, encode_manifest_step),
            manifest_span=manifest[0].span.to(manifest[-1].span) if manifest else self._assembly.span,
            orchestrator=self._orchestrator(),
            resources=tuple(
                Resource(item.name or "", self._bytes(item.data), item.span)
                for item in self._rows(words.RESOURCES, Blob)
            ),
        )

    def _tensor(self, item: Weights) -> Tensor:
        quantization = self._quantization(item.scaled)
        data = self._bytes(item.data)
        return Tensor(int(item.key), item.dtype, item.shape, quantization, data, item.span)

    def _array(self, item: Weights) -> Array:
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
        steps = resolve_jumps(self._rows(words.ORCHESTRATOR, Step))
        rows: tuple[Blob | Step, ...] = (*self._rows(words.ORCHESTRATOR, Blob), *steps)
        places = [item.span for item in rows or constants] or [self._assembly.span]
        span, lines = places[0].to(places[-1]), tuple(item.span for item in steps)
        return Orchestrator(self._program(rows, b"", encode_plan_step), constants, span, lines)

    def _program(self, rows: Sequence[Blob | Step], head: bytes, encode: Callable[[Step], bytes]) -> Data:
        """The bytes of a manifest or a plan, given as bytes or as instructions."""
        found = [head] if rows else []
        for item in rows:
            if isinstance(item, Blob):
                return self._bytes(item.data)
            try:
                found.append(encode(item))
            except StepProblem as problem:
                self.findings.append(rules.STEP.at(item.span, name=item.name, reason=problem.reason))
        return b"".join(found)

    def _bytes(self, data: Bytes) -> Data:
        match data:
            case Written():
                return data.data
            case Zeros():
                return self._zero_bytes(data)
            case Slice():
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

    def _slice(self, data: Slice) -> Data:
        whole = self._file(data)
        if whole is None:
            return b""
        end = data.offset + data.size
        if end > len(whole):
            reason = f"it has {len(whole)} bytes, and {end} are needed"
            self._refuse(data, reason, "")
            return b""
        return whole[data.offset : end]

    def _file(self, data: Slice) -> memoryview | None:
        if data.name not in self._files:
            self._files[data.name] = self._open(data)
        return self._files[data.name]

    def _open(self, data: Slice) -> memoryview | None:
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

    def _refuse(self, data: Slice, reason: str, repair: str) -> None:
        self.findings.append(rules.COMPANION.at(data.span, name=data.name, reason=reason, repair=repair))


def _is_plain(name: str) -> bool:
    """Whether a name stays in its folder and is no hidden file."""
    return bool(name) and name.isprintable() and name[0] != "." and not any(sign in name for sign in "/\\:")
