"""A file as a picture: every byte a cell in the colour of its section, every section a line beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from types import MappingProxyType

from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.base.paths import shown
from lamella.lang.nac.layout import CONTAINERS, TABLE
from lamella.pipeline.nac.model import Model
from lamella.pipeline.nac.sections import Section, find_sections

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
    parts = [_header(model), *find_sections(model)]
    cells = -(-size // step)
    rows = -(-cells // ROW)
    height = max(rows * CELL, len(parts) * LINE) + 3 * GAP + LINE
    body = [*_title(model, size, step), *_cells(parts, size, step), *_legend(parts)]
    width = 760 + ROW * CELL
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="monospace"'
    return "\n".join([f'{head} font-size="12">', *body, "</svg>", ""])


def _header(model: Model) -> Section:
    container = CONTAINERS[model.file.header.version]
    slots = f"{TABLE} bytes, then {len(container.slots)} offsets"
    return Section("header", slots, 0, container.size)


def _title(model: Model, size: int, step: int) -> Iterator[str]:
    each = "one byte" if step == 1 else f"{step:,} bytes"
    words = f"{printable(shown(model.path), 80)}: {size:,} bytes; a cell is {each}, a row is {ROW * step:,}"
    yield f'<text x="{GAP}" y="{GAP + 4}">{escape(words)}</text>'


def _cells(parts: list[Section], size: int, step: int) -> Iterator[str]:
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


def _owner(parts: list[Section], place: int) -> str:
    """The section that a byte belongs to."""
    for item in parts:
        if item.offset is not None and item.offset <= place < item.offset + (item.size or 0):
            return item.name
    return ""


def _legend(parts: list[Section]) -> Iterator[str]:
    x = 2 * GAP + ROW * CELL
    for number, item in enumerate(parts):
        y = GAP + LINE + number * LINE
        colour = COLOURS.get(item.name, OTHER)
        words = f"{item.name:6} at {item.offset or 0:<8,} {item.size or 0:>10,} bytes  {item.content}"
        yield f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{colour}"/>'
        yield f'<text x="{x + GAP + 4}" y="{y + 10}" xml:space="preserve">{escape(printable(words, 110))}</text>'
