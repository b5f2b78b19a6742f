"""NAC files for the commands: check, format, show; loads no numpy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, printable, sort_findings
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import Mapped, shown
from lamella.lang.nac import check as nac_check
from lamella.lang.nac import disassemble, parse
from lamella.lang.nac.assembly import parse_assembly, write_assembly
from lamella.lang.nac.assembly.words import write_single
from lamella.lang.nac.check.data import DTYPES
from lamella.lang.nac.check.training import GRAPH, has_entry, is_target, is_update, read_entry
from lamella.lang.nac.listing import listing
from lamella.lang.nac.nodes import (
    Array,
    BlockFp8,
    File,
    Int8Channel,
    Int8Tensor,
    Method,
    Quantization,
    Resource,
    Tensor,
)
from lamella.lang.nac.notes import NAME
from lamella.lang.nac.operations import SYSTEM_NAMES, standard_operations
from lamella.pipeline.languages import Description, part_of
from lamella.pipeline.nac.model import Model, check_model, is_described, open_either, read_model
from lamella.pipeline.nac.showing.sections import Section, count, count_commands, data_size, find_sections
from lamella.pipeline.options import Options

if TYPE_CHECKING:
    from lamella.bridge.nac_to_graph.nodes import KeptState
    from lamella.pipeline.nac.showing.results import Results


# --- what is in a file: the text and the data behind `lamella show` -----------------------------------------


# --- the training graph of a file in a few words: where it stands, how long it is, what it changes ----------


SECTION = "TRNG"
SHOWN = 8


@dataclass(frozen=True, slots=True)
class TrainingFacts:
    """What `show` says of a training graph; a problem where it cannot be read."""

    source: str
    instructions: int = 0
    parameters: Sequence[str] = ()
    targets: int = 0
    problem: str = ""

    def rows(self) -> list[tuple[str, str]]:
        """The facts as people read them."""
        if self.problem:
            return [("cannot be read", printable(self.problem, 300))]
        names = ", ".join(printable(name) for name in self.parameters[:SHOWN])
        more = ", …" if len(self.parameters) > SHOWN else ""
        return [
            ("instructions", f"{self.instructions:,} in {self.source}"),
            ("trains", f"{len(self.parameters)}: {names}{more}" if names else "nothing"),
            ("targets", str(self.targets)),
        ]

    def to_json(self) -> dict[str, object]:
        """The facts as data."""
        if self.problem:
            return {"source": self.source, "problem": self.problem}
        counts = {"instructions": self.instructions, "targets": self.targets}
        return {"source": self.source, **counts, "parameters": list(self.parameters)}


def find_training(file: File) -> TrainingFacts | None:
    """What a file says of its training; None where it says nothing."""
    if file.training:
        names = {item.id: item.name for item in reversed(file.parameters)}
        ids = [number for item in file.training if is_update(item) for number in item.constants[:1]]
        trained = [names.get(number, f"#{number}") for number in ids]
        targets = {number for item in file.training if is_target(item) for number in item.constants[:1]}
        return TrainingFacts(SECTION, len(file.training), trained, len(targets))
    if not has_entry(file):
        return None
    entry, findings = read_entry(file, nac_check)
    if entry is None:
        return TrainingFacts(GRAPH, problem=findings[0].message if findings else "nothing is there")
    return TrainingFacts(GRAPH, len(entry.graph.instructions), list(entry.gradients), len(entry.targets))


WIDEST = 60
"""Columns that a name takes before what follows it is no longer aligned."""


def describe_file(model: Model) -> str:
    """A file in blocks: header, sections, operations, inputs, states, training, parameters, arrays and resources."""
    lines = [_title(model), *_header(model.file)]
    for title, sides, rows in _blocks(model):
        lines += ["", title, *_aligned(sides, rows)] if rows else []
    return "\n".join(lines)


def _blocks(model: Model) -> Iterator[tuple[str, str, Sequence[tuple[str, ...]]]]:
    """The blocks with their titles and, for each column, the side at which it is aligned."""
    file = model.file
    operations = count_operations(file).most_common()
    yield "sections", "<<" if model.mapped is None else "<>><", list(map(_section_row, find_sections(model)))
    yield "operations", "><", [(str(number), f"× {name}") for name, number in operations]
    yield "inputs", "><", [(f"%{item.index}", printable(item.name)) for item in file.inputs]
    yield "states", "><<<<", [_state_row(item) for item in _states(file)]
    training = find_training(file)
    yield "training", "<<", [] if training is None else training.rows()
    yield "parameters", "><<><", list(_parameter_rows(file))
    yield "arrays", "<<>", [(printable(item.name), _kind(item), _size(item)) for item in file.arrays]
    yield "resources", "<>", [(printable(item.name), _size(item)) for item in file.resources]


def _states(file: File) -> Sequence[KeptState]:
    """What a file keeps between runs, by its notes."""
    noted = next((bytes(item.data) for item in file.resources if item.name == NAME), b"")
    if b'"states"' not in noted:
        return ()
    found: Sequence[KeptState] = part_of("nac", "showing.results").find_states(file)
    return found


def _state_row(item: KeptState) -> tuple[str, ...]:
    start = "from zeros" if item.initial is None else f"from parameter {item.initial}"
    return (str(item.id), printable(item.name), item.type, start, f"becomes output {item.update}")


def list_file(model: Model, options: Options) -> str:
    """The instructions as pseudo-code, with what they give and what memory that takes, where it can be known."""
    known = _results(model, options)
    text = f"{_title(model)}\n\n{listing(model.file, known.types if known else {})}".rstrip("\n")
    if known and known.reason:
        return f"{text}\n\ntypes are not known: {printable(known.reason, 300)}"
    report = known.schedule if known else None
    return text if report is None else "\n".join([text, "", *report.lines()])


def _results(model: Model, options: Options) -> Results | None:
    """What instructions give; only a file that describes its inputs, or a user, lets that be known."""
    if not is_described(model, options):
        return None
    found: Results | None = part_of("nac", "showing.results").find_results(model, options)
    return found


def _title(model: Model) -> str:
    size = "assembly text" if model.mapped is None else count(len(model.mapped.data), "byte")
    return f"{printable(shown(model.path))}: NAC {model.file.header.version}, {size}"


def _header(file: File) -> list[str]:
    header = file.header
    counts = (count(header.inputs, "input"), count(header.outputs, "output"))
    d_model = f"d_model {header.d_model}" if header.d_model else "no d_model"
    return [f"weights {_storage(file)}, quantization {_word(header.method)}, {', '.join(counts)}, {d_model}"]


def _storage(file: File) -> str:
    return "internal" if file.header.internal else "external"


def _word(method: Method) -> str:
    return method.name.lower()


def _section_row(item: Section) -> tuple[str, ...]:
    if item.offset is None or item.size is None:
        return (item.name, item.content)
    return (item.name, f"at {item.offset:,}", count(item.size, "byte"), item.content)


def _aligned(sides: str, rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Rows whose columns stand below each other."""
    widths = [
        max((len(row[column]) for row in rows if len(row[column]) <= WIDEST), default=0)
        for column in range(len(sides))
    ]
    for row in rows:
        cells = (f"{text:{side}{width}}" for text, side, width in zip(row, sides, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()


def _size(item: Tensor | Array | Resource) -> str:
    return count(len(item.data), "byte")


def count_operations(file: File) -> Counter[str]:
    """How often which operation stands in the code."""
    names = {number: item.name for number, item in standard_operations(file.header.version).items()}
    names |= {item.id: item.name for item in file.operations}
    names |= SYSTEM_NAMES
    numbers = Counter(item.operation for item in file.instructions)
    found: Counter[str] = Counter()
    for number, times in numbers.items():
        found[printable(names.get(number, f"#{number}"))] += times
    return found


def _parameter_rows(file: File) -> Iterator[tuple[str, ...]]:
    """Every parameter that has a name or a tensor."""
    for number, name, tensor in _parameters(file):
        known = "(no name)" if name is None else printable(name)
        if tensor is None:
            yield (str(number), known, "", "", "")
        else:
            yield (str(number), known, _kind(tensor), _size(tensor), _quantization(tensor.quantization))


def _parameters(file: File) -> Iterator[tuple[int, str | None, Tensor | None]]:
    tensors = {item.parameter: item for item in file.tensors}
    for item in file.parameters:
        yield item.id, item.name, tensors.pop(item.id, None)
    yield from ((number, None, tensor) for number, tensor in tensors.items())


def _kind(item: Tensor | Array) -> str:
    return f"{_dtype(item)}{list(item.shape)}"


def _dtype(item: Tensor | Array) -> str:
    return DTYPES[item.dtype][0] if item.dtype < len(DTYPES) else f"#{item.dtype}"


def _quantization(item: Quantization) -> str:
    """How the numbers of a tensor are stored, where that is not as they are."""
    match item:
        case Int8Tensor(scale):
            return f"int8_tensor, scale {write_single(scale)}"
        case Int8Channel(axis, scales):
            return f"int8_channel, {count(len(scales) // 4, 'scale')} on axis {axis}"
        case BlockFp8(size, shape, scales):
            return f"block_fp8, {count(len(scales) // 4, 'scale')} for blocks of {size}, of {list(shape)}"
    return "" if item.method is Method.NONE else _word(item.method)


# --- the same as data ---------------------------------------------------------------------------------------


def file_to_json(model: Model, options: Options) -> dict[str, object]:
    """What a file holds, as `--json` prints it."""
    file, header = model.file, model.file.header
    training = find_training(file)
    found: dict[str, object] = {
        "file": shown(model.path),
        "kind": "nac",
        "version": header.version,
        "bytes": None if model.mapped is None else len(model.mapped.data),
        "weights": _storage(file),
        "quantization": _word(header.method),
        "inputs": [{"instruction": item.index, "name": item.name} for item in file.inputs],
        "outputs": header.outputs,
        "states": [_state_to_json(item) for item in _states(file)],
        "training": None if training is None else training.to_json(),
        "d_model": header.d_model,
        "sections": [_section_to_json(item) for item in find_sections(model)],
        "operations": dict(count_operations(file)),
        "commands": {name: number for number, name in count_commands(file)},
        "parameters": [_parameter_to_json(*row) for row in _parameters(file)],
        "arrays": [{"name": item.name, **_array_to_json(item)} for item in file.arrays],
        "resources": [{"name": item.name, "bytes": len(item.data)} for item in file.resources],
    }
    if not options.listing:
        return found
    known = _results(model, options)
    return {**found, "listing": listing(file, known.types if known else {}).splitlines()}


def _section_to_json(item: Section) -> Mapping[str, object]:
    return {"name": item.name, "offset": item.offset, "bytes": item.size, "content": item.content}


def _state_to_json(item: KeptState) -> Mapping[str, object]:
    facts = {"id": item.id, "name": item.name, "dtype": str(item.element), "shape": list(item.shape)}
    return {**facts, "initial": item.initial, "update": item.update}


def _parameter_to_json(number: int, name: str | None, tensor: Tensor | None) -> Mapping[str, object]:
    facts = {} if tensor is None else _array_to_json(tensor)
    method = {} if tensor is None else {"quantization": _word(tensor.quantization.method)}
    return {"id": number, "name": name, **facts, **method}


def _array_to_json(item: Tensor | Array) -> Mapping[str, object]:
    return {"dtype": _dtype(item), "shape": list(item.shape), "bytes": len(item.data)}


def check(path: Path, options: Options) -> list[Diagnostic]:
    """What is wrong with the bytes or the text, with what they say, and with the graph that they say.

    Where nothing describes the inputs, their types are left open: what operations are called and what they are called
    with is looked at all the same.
    """
    model = read_model(path, options.limits)
    found = check_model(model)
    if errors(found) or not model.file.instructions:
        return found
    road: list[Diagnostic] = part_of("nac", "translating").check_road(model, options)
    return sort_findings([*found, *road])


def canonical(path: Path, limits: Limits) -> tuple[str, str]:
    """A text and its canonical form; bytes have no text of their own, so that both are their assembly."""
    opened = open_either(path, limits)
    if isinstance(opened, Mapped):
        file, wrong = parse(opened.data, shown(path), limits)
        _refuse_errors(wrong)
        text = _disassembled(path, file, limits)
        return text, text
    assembly, found = parse_assembly(opened, limits)
    _refuse_errors(found)
    return opened.text, write_assembly(assembly)


def _refuse_errors(findings: tuple[Diagnostic, ...]) -> None:
    if errors(findings):
        raise LamellaError(errors(findings))


def _disassembled(path: Path, file: File, limits: Limits) -> str:
    """The assembly of a file, unless its data would make a text that nobody can read."""
    problem = limits.excess("max_file_bytes", data_size(file), f"the data of '{shown(path)}' in bytes")
    if problem:
        hint = f"`lamella convert {path.name} {path.stem}.nacs` puts large data into a file beside the text"
        raise InputError(problem, path=shown(path), hint=hint)
    return disassemble(file)


def describe(name: str, options: Options) -> Description:
    """Header, sections, operations, inputs, parameters and resources; or the code as a person reads it."""
    model = read_model(Path(name), options.limits)
    if not find_sections(model):
        _refuse_errors(model.findings)
    text = list_file(model, options) if options.listing else describe_file(model)
    return Description(text, file_to_json(model, options), model.findings)
