"""Wrong folders, described in a text each, have exactly the findings that they announce."""

from __future__ import annotations

import json
import re
from collections import Counter
from math import prod
from pathlib import Path

import pytest

import lamella
from docs.generate import MARKER, RIGHT, repaired
from lamella.base.diagnostic import Diagnostic
from lamella.graph.model import Model

BAD = Path(__file__).parent / "bad"
PROGRAMS = sorted(path for path in BAD.glob("*.txt") if re.match(r"[ew]11\d_", path.name))
TENSOR = re.compile(r"(\S+): (\w+) (\[.*\])")
UNUSED = re.compile(r"check FOLDER --unused (\S+)")
OWN = re.compile(r"architecture\.module: (model \w+ extends (\w+)), imported from (\S+)")
SIZES = "vocab_size: int = 8, d_model: int = 4, n_layers: int = 1, num_heads: int = 1, d_ff: int = 4"
LAYER = re.compile(r"(\S+): the tensors of a layer")
IN_LAYER = {
    **{f"self_attn.{name}_proj.weight": "[4, 4]" for name in "qkvo"},
    **{f"mlp.{name}_proj.weight": "[4, 4]" for name in ("gate", "up", "down")},
    **{f"{name}_layernorm.weight": "[4]" for name in ("input", "post_attention")},
}
BYTES = {"F32": 4, "BF16": 2, "I32": 4}


def expanded(lines: list[str]) -> list[str]:
    """The lines, that of a layer as one line for each of its tensors."""
    found: list[str] = []
    for line in lines:
        layer = LAYER.fullmatch(line)
        found += (
            [line]
            if layer is None
            else [f"{layer[1]}.{name}: F32 {shape}" for name, shape in IN_LAYER.items()]
        )
    return found


def write_folder(folder: Path, text: str) -> None:
    """The folder that a text describes: its config, then one tensor on each line."""
    lines = [line for line in MARKER.sub("", RIGHT.sub("", text)).splitlines() if not line.startswith("#")]
    end = next(number for number, line in enumerate(lines, 1) if line.endswith("}"))
    (folder / "config.json").write_text("\n".join(lines[:end]), encoding="utf-8")
    own = OWN.fullmatch(lines[-1].strip())
    if own is not None:
        lines.pop()
        head = own[1].replace(" extends", f"({SIZES}) extends") if own[2] == "Decoder" else own[1]
        text = f'from {own[3]} import {own[2]}\n\n{head}:\n  """A model of one\'s own."""\n'
        (folder / "architecture.module").write_text(text, encoding="utf-8")
    header: dict[str, object] = {}
    offset = 0
    for line in expanded(lines[end:]):
        found = TENSOR.fullmatch(line)
        assert found is not None, line
        shape = json.loads(found[3])
        after = offset + prod(shape) * BYTES[found[2]]
        header[found[1]] = {"dtype": found[2], "shape": shape, "data_offsets": [offset, after]}
        offset = after
    head = json.dumps(header).encode()
    data = len(head).to_bytes(8, "little") + head + bytes(offset)
    (folder / "model.safetensors").write_bytes(data)


def judge(folder: Path, text: str) -> list[Diagnostic]:
    """What is wrong with the folder that a text describes."""
    write_folder(folder, text)
    if "where transformers is installed" in text:
        model = lamella.load(folder)  # a check runs nothing, and transformers builds what it reads
        assert isinstance(model, Model)
        return list(model.findings)
    return lamella.check(folder, unused=tuple(UNUSED.findall(text)))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_wrong_folder_has_the_findings_it_announces(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wanted = Counter(
        code for line in re.findall(r"expect (.*)", text) for code in re.findall(r"[EW]\d{3}", line)
    )
    found = judge(tmp_path, text)
    assert wanted
    assert Counter(item.code for item in found) == wanted, "\n".join(map(str, found))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_repaired_folder_has_none(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert RIGHT.search(text)
    right = repaired(text)
    kept = [line for line in right.splitlines() if not line.startswith("#")]
    # A pattern for a tensor that the repair takes away goes with it.
    gone = [name for name in UNUSED.findall(right) if not any(line.startswith(f"{name}:") for line in kept)]
    for name in gone:
        right = right.replace(f" --unused {name}", "")
    assert judge(tmp_path, right) == []


def test_every_rule_about_folders_has_a_text() -> None:
    codes = {path.name[:4] for path in PROGRAMS}
    assert codes == {
        *(f"e11{number}" for number in range(8)),
        *(f"w11{number}" for number in (0, 1, 2, 3, 4, 8)),
    }
