"""How numbers, things and iterations are called in every picture; what comes from a file is made safe to print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lamella.base.diagnostic import printable
from lamella.base.source import Span
from lamella.lang.nem.resolved import Buffer, Loop, Plan, Region, Task

LONGEST = 200
"""Letters of a name that are shown."""
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_PREFIXES = ("", " k", " M", " G", " T", " P", " E")


def name(text: str) -> str:
    """A name from a file, safe to print and of bounded length."""
    return printable(text, LONGEST)


def count(number: int) -> str:
    """A whole number in groups of three digits."""
    return f"{number:,}".replace(",", " ")


def in_bytes(number: int) -> str:
    """A size in the largest binary unit that keeps it above one."""
    unit = min((number.bit_length() - 1) // 10, len(_UNITS) - 1) if number > 0 else 0
    size = number / 1024**unit
    return f"{size:.0f} {_UNITS[unit]}" if size == int(size) else f"{size:.1f} {_UNITS[unit]}"


def in_thousands(number: float, unit: str) -> str:
    """A quantity with the prefix that keeps it between one and a thousand."""
    power = 0
    while number >= 1000 and power < len(_PREFIXES) - 1:
        number /= 1000
        power += 1
    return f"{number:.4g}{_PREFIXES[power] or ' '}{unit}"


def percent(part: float) -> str:
    """A share, with two digits behind the point where it is small."""
    return f"{100 * part:.{0 if part == 0 else 2 if part < 0.0995 else 1}f} %"


def buffer_name(buffer: Buffer) -> str:
    """The @debug name of a buffer beside its own, and its @profile tag."""
    return name(_tagged(_called(buffer.debug, buffer.name), buffer.profile))


def region_name(region: Region) -> str:
    """The @debug name of a region, its own, or that of its buffer, and its @profile tag."""
    own = region.name or f"{region.buffer.name}[…]"
    return name(_tagged(_called(region.debug, own), region.profile))


def _called(debug: str, own: str) -> str:
    return f"{debug} ({own})" if debug and debug != own else own


def _tagged(text: str, tag: str) -> str:
    return f"{text} @profile({tag})" if tag else text


def iteration_name(loops: Sequence[Loop], values: Iterable[int]) -> str:
    """Where an instance stands in its loops: `i=2, rows j=0`, a @debug name before the variable."""
    parts = (f"{_prefix(loop)}{loop.variable}={value}" for loop, value in zip(loops, values, strict=False))
    return printable(", ".join(parts), 2 * LONGEST)


def loop_name(loop: Loop) -> str:
    """The @debug name of a loop beside its variable, and its @profile tag."""
    return name(_tagged(_called(loop.debug, loop.variable), loop.profile))


def line_of(span: Span, plan: Plan) -> int:
    """The line of a place in the text of the program; 0 when it lies elsewhere."""
    return span.line if plan.source.text and span.source is plan.source else 0


def _prefix(loop: Loop) -> str:
    return f"{loop.debug} " if loop.debug else ""


def loops_of(plan: Plan) -> Mapping[int, tuple[Loop, ...]]:
    """The loops around each task, outermost first, by task number."""
    return {item.number: around for item, around in plan.walk() if isinstance(item, Task)}
