"""Wrong programs of NAC: assembly text, and directives for the bytes that no assembly text says.

A directive stands on a line of its own and changes the bytes that the rest of the text is assembled to:

    .patch PLACE HEX     put these bytes in the place of others
    .insert PLACE HEX    put them before the byte that stands there
    .cut PLACE           end the file there
    .append HEX          put bytes behind the end

A place is a number, or a section with a distance from its tag: `OPS+8`; `end` is the end of the file: `end-2`.
"""

from __future__ import annotations

import re
import struct
from collections import Counter

from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.source import Source
from lamella.bridge.nac_to_graph import check_translation
from lamella.bridge.nac_to_graph.training import check_training
from lamella.lang.nac.assembly import assemble
from lamella.lang.nac.check import check
from lamella.lang.nac.check.training import is_target
from lamella.lang.nac.layout import CONTAINERS, SLOT, TABLE
from lamella.lang.nac.nodes import V1_6, File
from lamella.lang.nac.parse import parse
from lamella.lang.nac.write import find_unwritable, write
from tests.support.backend.mep.wrong import plan_findings

DIRECTIVE = re.compile(r"^\.(patch|insert|cut|append)\b([^;\n]*)", re.MULTILINE)
PLACE = re.compile(r"([A-Za-z]*)([+-]?(?:0x[0-9a-f]+|\d+))?")
EXPECT = re.compile(r";\s*expect\s+((?:NAC\d{3}[ ,]*)+)")
WRITING = 200
"""Programs from this code on are wrong only because they cannot be written."""
READING = {*range(220, 235), *range(260, 265), 272, 287, 288}
"""Programs of these codes are wrong only because they cannot become graphs."""
FLOW = range(265, 275)
"""Programs of these codes are wrong in how their blocks stand."""
TRAINING = range(275, 287)
"""Programs of these codes are wrong in how they are trained, perhaps only in the types of gradients."""
PLANNING = range(240, 250)
"""Programs of these codes have a plan that is wrong, perhaps only when it runs."""


def expectations(text: str) -> Counter[tuple[int, str]]:
    """Lines and codes that the markers of a program announce."""
    found: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(text.split("\n"), 1):
        for match in EXPECT.finditer(line):
            found.update((number, code) for code in re.findall(r"NAC\d{3}", match[1]))
    return found


def is_patched(text: str) -> bool:
    """Whether a program changes its bytes, so that its findings have no lines."""
    return DIRECTIVE.search(text) is not None


def patched_bytes(text: str) -> bytes:
    """The bytes of a program whose text is right, after its directives."""
    file, found = assemble(Source("text.nacs", DIRECTIVE.sub("", text)))
    assert not errors(found), "\n".join(map(str, found))
    data = bytearray(write(file))
    for word, operands in DIRECTIVE.findall(text):
        _change(data, word, operands.split())
    return bytes(data)


def _change(data: bytearray, word: str, operands: list[str]) -> None:
    if word == "append":
        data += bytes.fromhex("".join(operands))
        return
    start = _place(data, operands[0])
    new = bytes.fromhex("".join(operands[1:]))
    end = {"patch": start + len(new), "insert": start, "cut": len(data)}[word]
    data[start:end] = new


def _place(data: bytearray, text: str) -> int:
    match = PLACE.fullmatch(text)
    assert match is not None, text
    distance = int(match[2] or "0", 0)
    if not match[1]:
        return distance
    if match[1] == "end":
        return len(data) + distance
    slot = CONTAINERS[V1_6].slots.index(match[1].ljust(4))
    start: int = struct.unpack_from("<Q", data, TABLE + SLOT * slot)[0]
    return start + distance


def findings_of(name: str, text: str) -> list[Diagnostic]:
    """What is wrong with a program, step by step: text that cannot be read is not checked further."""
    if is_patched(text):
        file, found = parse(patched_bytes(text), name)
    else:
        file, found = assemble(Source(name, text))
    if errors(found):
        return list(found)
    if int(name[3:6]) in READING:
        return check_translation(file)
    if int(name[3:6]) in PLANNING:
        return plan_findings(file)
    if int(name[3:6]) in TRAINING:
        return _training_findings(file)
    if int(name[3:6]) >= WRITING and int(name[3:6]) not in FLOW:
        return find_unwritable(file)
    return [*found, *check(file)]


def _training_findings(file: File) -> list[Diagnostic]:
    """What is wrong with a training graph: what can be seen at once, else what it computes."""
    found = check(file)
    described = not any(is_target(item) for item in file.training) and not file.header.inputs
    return found or (check_training(file) if described else [])
