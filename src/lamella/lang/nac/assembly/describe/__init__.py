"""A file to the nodes of its canonical text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lamella.lang.nac.assembly import words
from lamella.lang.nac.assembly.describe.code import CodeDescriber, stands_behind
from lamella.lang.nac.assembly.describe.data import Companion, DataDescriber
from lamella.lang.nac.assembly.nodes import Assembly, Blob, Field, Item, Row, Section
from lamella.lang.nac.assembly.programs import decode_manifest, decode_plan
from lamella.lang.nac.nodes import File


def describe(file: File, companion: Companion | None = None) -> Assembly:
    """The canonical assembly of a file; empty sections are left out."""
    data = DataDescriber(companion)
    named = {name: items for part in (_tables(file), _code(file), _data(file, data)) for name, items in part}
    sections = tuple(
        Section(name, tuple(Row(item) for item in named[name])) for name in words.SECTIONS if named[name]
    )
    return Assembly(tuple(_fields(file)), sections)


def _fields(file: File) -> Iterator[Field]:
    header = file.header
    yield Field("nac", header.version)
    yield Field("weights", words.STORAGE[0] if header.internal else words.STORAGE[1])
    yield Field("quantization", header.method.name.lower())
    yield Field("inputs", header.inputs)
    yield Field("outputs", header.outputs)
    yield Field("d_model", header.d_model)


def _tables(file: File) -> Iterator[tuple[str, Sequence[Item]]]:
    yield words.OPERATIONS, file.operations
    yield words.SIGNATURES, file.signatures
    yield words.CONSTANTS, file.constants
    yield words.PARAMETERS, file.parameters
    yield words.INPUTS, file.inputs


def _code(file: File) -> Iterator[tuple[str, Sequence[Item]]]:
    code = CodeDescriber(file)
    behind = stands_behind(file.schedule, len(file.instructions))
    yield words.CODE, code.lines(file.instructions, file.schedule if behind else ())
    yield words.SCHEDULE, () if behind else [code.moment(tick) for tick in file.schedule]
    yield words.TRAINING, code.lines(file.training)


def _data(file: File, data: DataDescriber) -> Iterator[tuple[str, Sequence[Item]]]:
    plan = file.orchestrator
    yield words.TENSORS, [data.tensor(item) for item in file.tensors]
    yield words.ARRAYS, [data.array(item) for item in file.arrays]
    manifest = decode_manifest(file.manifest) or [Blob(None, data.data(file.manifest))]
    yield words.MANIFEST, manifest if len(file.manifest) else []
    steps = decode_plan(plan.bytecode)
    yield (
        words.ORCHESTRATOR,
        [*([Blob(None, data.data(plan.bytecode))] if steps is None else steps), *plan.constants],
    )
    yield words.RESOURCES, [Blob(item.name, data.data(item.data, True)) for item in file.resources]


__all__ = ["Companion", "describe"]
