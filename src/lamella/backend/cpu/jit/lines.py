"""Assembly with the lines of the source as comments: they travel through LLVM as places of debug information."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lamella.backend.cpu.jit.engine import assembly
from lamella.backend.cpu.jit.machine import Machine

UNIT = """
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!3}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "kernels", directory: "")
!2 = !DISubroutineType(types: !{})
!3 = !{i32 2, !"Debug Info Version", i32 3}
"""
PLACE = re.compile(r"\s*\.loc\s+\d+\s+(\d+)\b.*")
NOISE = re.compile(
    r"\s*\.(file|ident|addrsig)\b.*|\s*\.cfi_.*|\.L(tmp|func_begin|func_end)\d+:.*|\$L__(tmp|func_begin|func_end)\d+:.*"
)
TABLES = re.compile(r'\s*\.section\s+"?\.debug.*')


def readable_assembly(text: str, machine: Machine) -> str:
    """The assembly, or PTX, of a text, each part below the line of the source that it comes from."""
    placed, lines = place_lines(text)
    mark = "#" if machine.triple.startswith("x86") else "//"
    return "\n".join(_with_lines(assembly(placed, machine), lines, mark)) + "\n"


def place_lines(text: str) -> tuple[str, list[str]]:
    """The text with a place for each instruction, and the comments that the places stand for, from 1 on."""
    lines: list[str] = []
    written, nodes, scope, number = [], [], 0, 4
    locations: dict[tuple[int, str], int] = {}
    current = ""
    for line in text.splitlines():
        if line.startswith("define "):
            scope, number, current = number, number + 1, ""
            name = line.partition("@")[2].partition("(")[0]
            head = f'!{scope} = distinct !DISubprogram(name: "{name}", scope: !1, file: !1, line: 1, '
            nodes.append(f"{head}type: !2, unit: !0, spFlags: DISPFlagDefinition)")
            written.append(f"{line.rstrip('{').rstrip()} !dbg !{scope} {{")
        elif line.startswith("  ; "):
            current = line[4:]
        elif line.startswith("  ") and current:
            key = (scope, current)
            if key not in locations:
                lines.append(current)
                locations[key], number = number, number + 1
                nodes.append(f"!{locations[key]} = !DILocation(line: {len(lines)}, scope: !{scope})")
            written.append(f"{line}, !dbg !{locations[key]}")
        else:
            written.append(f"{line}, !dbg !{_start(nodes, scope)}" if _calls(line) else line)
    return "\n".join([*written, UNIT, *nodes]) + "\n", lines


def _calls(line: str) -> bool:
    """Whether an instruction before the first comment is a call: those must have a place."""
    return line.startswith("  ") and " call " in line


def _start(nodes: list[str], scope: int) -> int:
    """The place of instructions that come from no line."""
    found = f"!{1_000_000 + scope} = !DILocation(line: 0, scope: !{scope})"
    if found not in nodes:
        nodes.append(found)
    return 1_000_000 + scope


def _with_lines(code: str, lines: list[str], mark: str) -> Iterator[str]:
    shown = ""
    for line in code.splitlines():
        if TABLES.match(line):
            return
        place = PLACE.match(line)
        if place is None:
            if not NOISE.match(line):
                yield line.removesuffix(", debug")
            continue
        number = int(place.group(1))
        text = lines[number - 1] if 0 < number <= len(lines) else ""
        if text and text != shown:
            yield f"\t{mark} {text}"
        shown = text or shown
