"""What is in a NAC file: the text, the data and the picture behind `lamella show`; loads no numpy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from lamella.base.diagnostic import LamellaError, errors, printable
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT
from lamella.base.paths import shown
from lamella.base.writer import make_folder, write_pieces, write_text
from lamella.lang.nac import check as nac_check
from lamella.lang.nac.assembly.words import write_single
from lamella.lang.nac.check.data import DTYPES, check_resources
from lamella.lang.nac.check.training import GRAPH, has_entry, is_target, is_update, read_entry
from lamella.lang.nac.layout import CONTAINERS, TABLE, WRITTEN
from lamella.lang.nac.listing import listing
from lamella.lang.nac.nodes import (
    Action,
    Array,
    BlockFp8,
    Data,
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
from lamella.lang.nac.parse import ContainerReading, read_header
from lamella.pipeline.languages import Description, nac_results
from lamella.pipeline.nac.model import Model, is_described, read_model
from lamella.pipeline.options import Options

if TYPE_CHECKING:
    from lamella.bridge.nac_to_graph.nodes import KeptState
    from lamella.pipeline.nac.results import Results


# --- the sections of a file: where they lie, how large they are and what they hold --------------------------


ORDER = (*WRITTEN, "TRNG", "ARRS")
_ACTIONS: Mapping[int, str] = MappingProxyType({int(action): action.name for action in Action})


@dataclass(frozen=True, slots=True)
class SectionDescription:
    """A section with its content in words; a text has no offsets."""

    name: str
    content: str
    offset: int | None = None
    size: int | None = None


def find_sections(model: Model) -> list[SectionDescription]:
    """The sections of a file in the order of its bytes; those of a text that hold anything."""
    content = {tag: ", ".join(words) for tag, words in _contents(model.file).items()}
    if model.mapped is None:
        return [SectionDescription(tag.strip(), content[tag]) for tag in ORDER if content[tag]]
    table = read_header(ContainerReading(model.mapped.data, "", DEFAULT))
    places = sorted(table.places.items(), key=lambda item: item[1]) if table is not None else []
    return [
        SectionDescription(tag.strip(), content[tag] or "empty", start, end - start)
        for tag, (start, end) in places
    ]


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


# --- A file as a picture: every byte a cell in the colour of its section, every section a line --------------


ROW = 32
"""Cells in a row."""
CELL, GAP, LINE = 12, 16, 20
MOST = 2048
"""Cells of a picture; in larger files a cell stands for several bytes."""
COLOURS: Mapping[str, str] = MappingProxyType(
    {
        **{"header": "#5b6472", "MMAP": "#8e6bbf", "OPS": "#2f7fd0", "CMAP": "#1aa3a3", "CNST": "#4b9e4b"},
        **{"PERM": "#9aa52b", "DATA": "#d89b22", "PROC": "#cf6a32", "RSRC": "#b8536e", "ORCH": "#a04f9b"},
        **{"TRNG": "#7a5c3e", "ARRS": "#3e7a68"},
    }
)
OTHER = "#d8dce2"
"""Bytes that no section has."""


def byte_map(model: Model) -> str:
    """The SVG of a file that was read from bytes."""
    if model.mapped is None:
        hint = "assemble it first: lamella convert"
        raise InputError("an assembly text has no bytes to draw", path=shown(model.path), hint=hint)
    size = len(model.mapped.data)
    step = -(-size // MOST) or 1
    parts = [_picture_header(model), *find_sections(model)]
    cells = -(-size // step)
    rows = -(-cells // ROW)
    height = max(rows * CELL, len(parts) * LINE) + 3 * GAP + LINE
    body = [*_picture_title(model, size, step), *_cells(parts, size, step), *_legend(parts)]
    width = 760 + ROW * CELL
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="monospace"'
    return "\n".join([f'{head} font-size="12">', *body, "</svg>", ""])


def _picture_header(model: Model) -> SectionDescription:
    container = CONTAINERS[model.file.header.version]
    slots = f"{TABLE} bytes, then {len(container.slots)} offsets"
    return SectionDescription("header", slots, 0, container.size)


def _picture_title(model: Model, size: int, step: int) -> Iterator[str]:
    each = "one byte" if step == 1 else f"{step:,} bytes"
    words = f"{printable(shown(model.path), 80)}: {size:,} bytes; a cell is {each}, a row is {ROW * step:,}"
    yield f'<text x="{GAP}" y="{GAP + 4}">{escape(words)}</text>'


def _cells(parts: list[SectionDescription], size: int, step: int) -> Iterator[str]:
    """One rectangle for each run of cells of one section in one row."""
    run: tuple[str, int, int] | None = None
    for cell in range(-(-size // step)):
        name = _owner(parts, cell * step)
        if run is not None and run[0] == name and cell % ROW:
            run = (name, run[1], run[2] + 1)
            continue
        yield from _run(run)
        run = (name, cell, 1)
    yield from _run(run)


def _run(run: tuple[str, int, int] | None) -> Iterator[str]:
    if run is None:
        return
    name, first, count = run
    x, y = GAP + first % ROW * CELL, GAP + LINE + first // ROW * CELL
    fill, title = COLOURS.get(name, OTHER), f"<title>{escape(name or 'unused')}</title>"
    size = f'width="{count * CELL - 1}" height="{CELL - 1}"'
    yield f'<rect x="{x}" y="{y}" {size} fill="{fill}">{title}</rect>'


def _owner(parts: list[SectionDescription], place: int) -> str:
    """The section that a byte belongs to."""
    for item in parts:
        if item.offset is not None and item.offset <= place < item.offset + (item.size or 0):
            return item.name
    return ""


def _legend(parts: list[SectionDescription]) -> Iterator[str]:
    x = 2 * GAP + ROW * CELL
    for number, item in enumerate(parts):
        y = GAP + LINE + number * LINE
        colour = COLOURS.get(item.name, OTHER)
        words = f"{item.name:6} at {item.offset or 0:<8,} {item.size or 0:>10,} bytes  {item.content}"
        yield f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{colour}"/>'
        yield f'<text x="{x + GAP + 4}" y="{y + 10}" xml:space="preserve">{escape(printable(words, 110))}</text>'


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
    return nac_results().find_states(file)


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
    return nac_results().find_results(model, options)


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


def _section_row(item: SectionDescription) -> tuple[str, ...]:
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


def _section_to_json(item: SectionDescription) -> Mapping[str, object]:
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


def describe(name: str, options: Options) -> Description:
    """Header, sections, operations, inputs, parameters and resources; or the code as a person reads it."""
    model = read_model(Path(name), options.limits)
    if options.picture is not None:
        write_text(options.picture, byte_map(model))
    if options.extract is not None:
        extract(model, options.extract)
    if not find_sections(model):
        _refuse(model)
    text = list_file(model, options) if options.listing else describe_file(model)
    return Description(text, file_to_json(model, options), model.findings)


def _refuse(model: Model) -> None:
    """LamellaError where a file has no sections because it cannot be read."""
    if errors(model.findings):
        raise LamellaError(errors(model.findings))


def extract(model: Model, folder: Path) -> list[Path]:
    """Write every resource of a file into a folder; names that could lead elsewhere are refused before."""
    findings = list(check_resources(model.file))
    if findings:
        raise LamellaError(findings)
    if not model.file.resources:
        raise InputError(f"'{printable(shown(model.path))}' has no resources", path=shown(model.path))
    if model.mapped is not None:
        model.mapped.check_whole()
    make_folder(folder)
    written = []
    for item in model.file.resources:
        target = folder / item.name
        write_pieces(target, [item.data], through_links=False)
        written.append(target)
    return written
