"""The sections of a file: where they lie, how large they are and what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.limits import DEFAULT
from lamella.lang.nac.layout import WRITTEN
from lamella.lang.nac.nodes import Action, BlockFp8, Data, File, Int8Channel
from lamella.lang.nac.parse import ContainerReading, read_header
from lamella.pipeline.nac.model import Model

ORDER = (*WRITTEN, "TRNG", "ARRS")
_ACTIONS: Mapping[int, str] = MappingProxyType({int(action): action.name for action in Action})


@dataclass(frozen=True, slots=True)
class Section:
    """A section with its content in words; a text has no offsets."""

    name: str
    content: str
    offset: int | None = None
    size: int | None = None


def find_sections(model: Model) -> list[Section]:
    """The sections of a file in the order of its bytes; those of a text that hold anything."""
    content = {tag: ", ".join(words) for tag, words in _contents(model.file).items()}
    if model.mapped is None:
        return [Section(tag.strip(), content[tag]) for tag in ORDER if content[tag]]
    table = read_header(ContainerReading(model.mapped.data, "", DEFAULT))
    places = sorted(table.places.items(), key=lambda item: item[1]) if table is not None else []
    return [Section(tag.strip(), content[tag] or "empty", start, end - start) for tag, (start, end) in places]


def count(number: int, noun: str) -> str:
    """A number of things; `2 bytes`, `1 byte`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _contents(file: File) -> Mapping[str, list[str]]:
    """What each section holds, in words; nothing where it is empty."""
    plan = file.orchestrator
    commands = [f"{number:,} {name}" for number, name in count_commands(file)]
    return {
        "MMAP": [*_counted(tick=file.schedule), *commands],
        "OPS ": _counted(instruction=file.instructions),
        "CMAP": _counted(operation=file.operations),
        "CNST": _counted(constant=file.constants),
        "PERM": _counted(signature=file.signatures),
        "DATA": _counted(parameter=file.parameters, input=file.inputs, tensor=file.tensors),
        "PROC": [f"{item} of manifest" for item in _counted(byte=file.manifest)],
        "RSRC": _counted(resource=file.resources),
        "ORCH": [f"{item} of bytecode" for item in _counted(byte=plan.bytecode)]
        + _counted(constant=plan.constants),
        "TRNG": _counted(instruction=file.training),
        "ARRS": _counted(array=file.arrays),
    }


def _counted(**things: Sized) -> list[str]:
    return [count(len(items), noun) for noun, items in things.items() if len(items)]


def count_commands(file: File) -> list[tuple[int, str]]:
    """How often the schedule gives which command."""
    counts = Counter(int(command.action) for tick in file.schedule for command in tick.commands)
    return [(number, _ACTIONS.get(action, f"action {action}")) for action, number in sorted(counts.items())]


def data_size(file: File) -> int:
    """Bytes of weights, scales, arrays and resources: what a file carries and nobody reads as code."""
    return sum(map(len, _data(file)))


def _data(file: File) -> Iterator[Data]:
    for tensor in file.tensors:
        yield tensor.data
        if isinstance(tensor.quantization, Int8Channel | BlockFp8):
            yield tensor.quantization.scales
    yield from (item.data for item in file.arrays)
    yield from (item.data for item in file.resources)
    yield from (file.manifest, file.orchestrator.bytecode)
