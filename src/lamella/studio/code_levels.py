"""The levels below a graph as texts: NAC with its memory schedule, kernels with their LLVM and assembly."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lamella.backend.cpu.emission import emit
from lamella.backend.cpu.host import host_target
from lamella.backend.cpu.jit import Processor, readable_assembly
from lamella.base.diagnostic import LamellaError, printable
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.bridge.nac_to_graph.notes import read_notes
from lamella.graph.nodes import Operation
from lamella.kernels.nodes import KernelGraph
from lamella.lang.nac.listing import listing
from lamella.lang.nac.nodes import Action, File
from lamella.lang.tensor import parse, write
from lamella.lang.tensor.nodes import Function, Program
from lamella.pipeline.nac.model import Model as NacModel
from lamella.pipeline.nac.results import Results, find_results
from lamella.pipeline.options import Options
from lamella.studio.graph_level import Things, results_of

SHOWN = 100
"""Letters of a line of the source that code is marked with."""
MOST_CODE = 2_400_000
"""Letters of LLVM and assembly in a page; kernels beyond have their text alone."""
MOST_KERNELS = 400
PARAMETER = (2, 1)
"""The operation and the variant of an instruction that loads a parameter."""
DEFINED = re.compile(r"define (?:\w+ )*void @kernel_(\d+)\(")
LABEL = re.compile(r"kernel_(\d+):")


# --- NAC ----------------------------------------------------------------------------------------------------------


def nac_level(model: NacModel, things: Things, options: Options) -> dict[str, object]:
    """The listing of a file, the operations that its instructions come from, and what its schedule keeps."""
    found = find_results(model, options)
    lines = listing(model.file, found.types).splitlines()
    return {
        "lines": [printable(line) for line in lines],
        "things": [*instruction_things(model.file, things), *([] for _ in lines)][: len(lines)],
        "memory": _memory(model.file, found),
    }


def instruction_things(file: File, things: Things) -> list[list[int]]:
    """The operations of each instruction, by the words of its origin that the file carries."""
    by_words: dict[str, list[int]] = {}
    for number, node in enumerate(things.nodes):
        if node.origin is not None:
            by_words.setdefault(node.origin.what, []).append(number)
    found: list[list[int]] = [[] for _ in file.instructions]
    for words, places in _places(file).items():
        same = by_words.get(words) or by_words.get(words.partition(" ")[2], [])
        alike = len(same) == len(places)  # as many as there are operations: one each, in order
        for at, place in enumerate(places):
            found[place] = [same[at]] if alike else same
    names = {item.id: item.name for item in file.parameters}
    for place, instruction in enumerate(file.instructions):
        if (instruction.operation, instruction.variant) == PARAMETER and instruction.constants:
            found[place] = things.readers.get(names.get(instruction.constants[0], ""), [])
    return found


def _places(file: File) -> dict[str, list[int]]:
    """The instructions by the first link of their origins, as far as the file tells them."""
    found: dict[str, list[int]] = {}
    for place, words in sorted(read_notes(file).origins.items()):
        if place < len(file.instructions):
            found.setdefault(words.partition(" <- ")[0], []).append(place)
    return found


def _memory(file: File, results: Results) -> dict[str, object] | None:
    """Bytes that the schedule keeps at each instruction, and at most, where all sizes are known."""
    if results.schedule is None:
        return None
    peak = results.schedule.peak
    counts = {Action(action).name: number for action, number in results.schedule.commands.items()}
    return {
        "peak": peak.bytes,
        "tick": peak.tick,
        "held": peak.held,
        "unscheduled": results.schedule.unscheduled,
        "commands": counts,
    }


# --- kernels ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KernelText:
    """A program as it is printed: the functions of the text, with the first line of each."""

    program: Program
    lines: tuple[str, ...]

    def part(self, function: Function) -> tuple[int, int]:
        """The lines of a function, from the first to the one behind the last."""
        first = function.span.line - 1
        later = [item.span.line - 1 for item in self.program.functions if item.span.line - 1 > first]
        last = min(later, default=len(self.lines))
        while last > first and not self.lines[last - 1].strip():
            last -= 1
        return first, last


def printed_program(program: Program, limits: Limits) -> KernelText:
    """A program read again from its own text, so that every statement knows its line."""
    text = program.span.source.text if program.span.source.text else write(program)
    again, findings = parse(Source("kernels.tensor", text), limits)
    if again is None:
        raise LamellaError(findings)
    return KernelText(again, tuple(text.splitlines()))


def kernel_level(
    program: Program, made_for: dict[str, list[int]], options: Options, has_machine: bool
) -> list[dict[str, object]]:
    """Each kernel with its lines, the operations that it computes, and its code with the lines that it comes from."""
    text = printed_program(program, options.limits)
    code = _machine_code(text) if has_machine else {}
    rows, room = [], MOST_CODE
    for place, function in enumerate(text.program.functions[:MOST_KERNELS]):
        first, last = text.part(function)
        own = text.lines[first:last]
        row: dict[str, object] = {
            "name": printable(function.name, 200),
            "lines": [printable(line) for line in own],
            "things": made_for.get(function.name, []),
        }
        for form, lines in code.get(place, {}).items():
            shown, numbers = _linked(lines, own)
            size = sum(map(len, shown))
            if size <= room:
                room -= size
                row[form] = {"lines": shown, "from": numbers}
        rows.append(row)
    return rows


def kernel_things(kernels: KernelGraph, things: Things) -> dict[str, list[int]]:
    """The operations of a graph that each kernel computes."""
    found: dict[str, list[int]] = {}
    for node, _ in kernels.placed():
        if not isinstance(node, Operation):
            continue
        behind = things.behind(node.origin, (item.name for item in results_of(node)))
        for call in kernels.calls.get(kernels.key(node), ()):
            known = found.setdefault(call.kernel, [])
            known += [number for number in behind if number not in known]
    return {name: sorted(numbers) for name, numbers in found.items()}


def _machine_code(text: KernelText) -> dict[int, dict[str, list[str]]]:
    """LLVM and assembly by the number of a kernel."""
    target = host_target()
    compiled = emit(text.program, target).text
    machine = Processor(target.triple, target.cpu, target.features)
    found: dict[int, dict[str, list[str]]] = {}
    for number, lines in _parts(compiled.splitlines(), DEFINED, "}"):
        found.setdefault(number, {})["llvm"] = lines
    for number, lines in _parts(readable_assembly(compiled, machine).splitlines(), LABEL, "\t.size"):
        found.setdefault(number, {})["asm"] = lines
    return found


def _parts(lines: Iterable[str], begin: re.Pattern[str], end: str) -> Iterator[tuple[int, list[str]]]:
    """The functions of a text, each from where it begins to where it ends."""
    number, part = -1, list[str]()
    for line in lines:
        starts = begin.match(line)
        if starts is not None:
            number, part = int(starts[1]), []
        if number >= 0:
            part.append(line)
            if line.startswith(end):
                yield number, part
                number = -1


def _linked(lines: Sequence[str], own: Sequence[str]) -> tuple[list[str], list[int]]:
    """Code without the comments that name its source, and for each line the line of the kernel, from 1, or 0."""
    places: dict[str, list[int]] = {}
    for number, line in enumerate(own, 1):
        places.setdefault(_marked(line), []).append(number)
    shown, numbers, current = [], [], 0
    for line in lines:
        mark = line.strip()
        if mark.startswith(("; ", "# ")) and mark[2:] in places:
            options = places[mark[2:]]
            current = next((item for item in options if item >= current), options[0])
            continue
        shown.append(printable(line.expandtabs(8)))
        numbers.append(current)
    return shown, numbers


def _marked(line: str) -> str:
    """A line as a comment of the code shows it."""
    return "".join(char if " " <= char <= "~" else "." for char in line.strip()[:SHOWN])
