"""Files of torch.export, whole and with records changed."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import torch

Change = Callable[[str, bytes], bytes]


class Small(torch.nn.Module):
    """The smallest module that has weights, a constant and an open extent."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 4)
        self.scales = torch.arange(1.0, 5.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.relu(self.inner(x)) * self.scales
        return found


def save_small(path: Path) -> Small:
    """Export a small module into a file."""
    torch.manual_seed(0)
    module = Small()
    module.eval()
    program = torch.export.export(
        module, (torch.randn(2, 3),), dynamic_shapes={"x": {0: torch.export.Dim.DYNAMIC}}
    )
    torch.export.save(program, path)
    return module


def rewrite(source: Path, target: Path, changed: Change) -> None:
    """Write an archive again with its records changed; the first folder of a record is not part of its name."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for item in old.infolist():
            folder, _, record = item.filename.partition("/")
            new.writestr(f"{folder}/{record}", changed(record, old.read(item)))
