"""Measure the language server: what an editor waits for after a change of a text of 2 000 lines."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from bench.measuring import best, row
from bench.nem import flat_program
from lamella.lsp.features import colours, complete, hover
from lamella.lsp.workspace import EditorWorkspace, TextDocument, check_text

ROOT = Path(__file__).resolve().parents[1]
LINES = 2000
COMMENTS = {".sknd": "#", ".tensor": ";", ".module": "#", ".nem": "#"}
DECLARED = re.compile(r"\b(?:operator |graph |func @|model |block |module |preset )(\w+)")
IMPORTS = re.compile(r"^(?:import|from) .*$", re.MULTILINE)


def _repeated(path: Path) -> str:
    """A text again and again, up to the lines that are measured, each time with other names for what it declares."""
    found = text = path.read_text(encoding="utf-8")
    names = "|".join(sorted(set(DECLARED.findall(text))))
    number = 0
    while found.count("\n") < LINES:
        number += 1
        found += re.sub(rf"\b({names})\b", rf"\g<1>_{number}", IMPORTS.sub("", text))
    return found


def _texts() -> Iterator[tuple[str, str]]:
    yield "bench.sknd", _repeated(ROOT / "examples/operator/window_attention.sknd")
    yield "bench.tensor", _repeated(ROOT / "examples/kernels/rows.tensor")
    yield "bench.module", _repeated(ROOT / "src/lamella/models/models/qwen3_moe.module")
    yield "bench.nem", flat_program(LINES)


def _measure_text(name: str, text: str) -> None:
    path, workspace = ROOT / "build" / name, EditorWorkspace()

    lines, numbers = text.splitlines(keepends=True), count()
    half = len(lines) // 2

    def change() -> TextDocument:
        edited = f"{''.join(lines[:half])}{COMMENTS[path.suffix]} {next(numbers)}\n{''.join(lines[half:])}"
        document = workspace.show(path, edited)
        assert document is not None
        assert document.index.uses
        return document

    read, document = best(change), change()
    middle = document.index.uses[len(document.index.uses) // 2].span.end
    asked = {
        "colours": best(lambda: colours(document)),
        "hover": best(lambda: hover(workspace, document, middle)),
        "words": best(lambda: complete(workspace, document, middle)),
    }
    whole = best(lambda: check_text(path, {path: text}))
    parts = ", ".join(f"{what} {seconds * 1000:.0f}" for what, seconds in {"read": read, **asked}.items())
    row(
        f"{path.suffix}, {text.count(chr(10))} lines: a change, then a question",
        f"{(read + max(asked.values())) * 1000:.0f} ms",
        f"target 100 ms ({parts}; whole check, in its thread, {whole * 1000:.0f})",
    )


def measure() -> None:
    """Reading a text anew and the slowest of three questions about it, in CPU time."""
    gc.disable()  # as the server does, which looks for cycles when nobody waits
    for name, text in _texts():
        _measure_text(name, text)
        gc.collect()
