"""What cannot be taken from PyTorch is told: the wrong programs of the rules, and everything at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import lamella
from docs.generate import expected, repaired
from lamella.base.diagnostic import Diagnostic
from lamella.base.limits import Limits
from lamella.bridge.torch_to_graph import torch_to_graph
from lamella.pipeline.options import Options
from lamella.pipeline.torch.execution import load
from tests.support.bridge.torch_models.archives import rewrite, save_small

BAD = Path(__file__).parents[1] / "lang" / "skriptnd" / "bad"
PROGRAMS = sorted(path for path in BAD.glob("skr3[78]*.txt") if int(path.name[3:6]) >= 376)


def findings_of(text: str, folder: Path) -> tuple[Diagnostic, ...]:
    """Write a program down, run it, and export the module or load the file that it speaks of."""
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    names: dict[str, Any] = {"torch": torch}
    exec(compile(text, str(path), "exec"), names)
    try:
        if "changed" in names:
            save_small(folder / "small.pt2")
            rewrite(folder / "small.pt2", folder / "other.pt2", names["changed"])
            load(folder / "other.pt2", Options())
        else:
            lamella.from_torch(names["Model"](), names["inputs"], dynamic=names.get("dynamic"))
    except lamella.LamellaError as error:
        return error.findings
    return ()


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_wrong_program_has_the_finding_it_announces(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    (found,) = findings_of(text, tmp_path)
    assert [found.code] == expected(text)
    if found.span.source.name.endswith("program.py"):
        assert "# expect" in text.splitlines()[found.span.line - 1]
    assert not findings_of(repaired(text), tmp_path)


class Lacking(torch.nn.Module):
    """Two operations that we lack, one of them twice, below a module of its own."""

    def __init__(self, deep: bool = True) -> None:
        super().__init__()
        self.inner = Lacking(deep=False) if deep else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.inner is None:
            return torch.special.bessel_j1(torch.special.bessel_j0(x))
        return torch.special.bessel_j0(self.inner(x))


def test_every_operation_that_is_missing_is_told_once_with_its_count_module_and_line() -> None:
    with pytest.raises(lamella.LamellaError) as caught:
        lamella.from_torch(Lacking(), torch.ones(3))
    first, second = caught.value.findings
    assert "'aten.special_bessel_j0.default'" in first.message
    assert "2 calls" in first.message
    assert "'inner' (Lacking)" in first.message
    assert "'aten.special_bessel_j1.default'" in second.message
    assert "1 call," in second.message
    line = Path(__file__).read_text(encoding="utf-8").splitlines()[first.span.line - 1]
    assert "bessel_j1(torch.special.bessel_j0(x))" in line
    assert first.origins[1:] == ("inner (Lacking)", "Lacking")


def test_operations_know_their_lines_and_modules() -> None:
    model = lamella.from_torch(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), torch.ones(1, 2))
    words = [item.origin.words() for item in model.graph.operations() if item.origin]
    assert words[0] == ("aten.linear.default", "0 (Linear)", "Sequential")
    assert words[1] == ("aten.relu.default", "1 (ReLU)", "Sequential")


class Wrong(torch.nn.Module):
    """Several kinds of faults in one module."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.nn.functional.elu(x, x[0].item()), torch.special.bessel_j0(x)


def test_faults_of_several_kinds_are_told_together() -> None:
    with pytest.raises(lamella.LamellaError) as caught:
        lamella.from_torch(Wrong(), torch.ones(3))
    found = [(item.code, re.findall(r"'(aten\S+)'", item.message)) for item in caught.value.findings]
    assert found == [
        ("SKR378", ["aten.elu.default"]),
        ("SKR376", ["aten.special_bessel_j0.default"]),
    ]


def test_a_program_beyond_the_limits_is_refused() -> None:
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    with pytest.raises(lamella.LamellaError, match="max_operations"):
        torch_to_graph(program, Limits(max_operations=2))


def test_arguments_that_do_not_fit_are_told() -> None:
    linear = torch.nn.Linear(2, 2)
    with pytest.raises(lamella.LamellaError, match="do not fit the module"):
        lamella.from_torch(linear, ())
    with pytest.raises(lamella.LamellaError, match="'y', which is no argument"):
        lamella.from_torch(linear, torch.ones(1, 2), dynamic={"y": {0: "N"}})
    for axis in (2, -1):
        with pytest.raises(lamella.LamellaError, match=f"opens axis {axis} of 'input', which has 2"):
            lamella.from_torch(linear, torch.ones(1, 2), dynamic={"input": {axis: "N"}})
    with pytest.raises(lamella.LamellaError, match="a module of PyTorch is wanted, not int"):
        lamella.from_torch(3)
    with pytest.raises(lamella.LamellaError, match=r"(?s)SKR383.*leave it out of 'dynamic'"):
        lamella.from_torch(linear, torch.ones(1, 2), dynamic={"input": {1: "N"}})
