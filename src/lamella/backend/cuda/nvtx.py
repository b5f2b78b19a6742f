"""NVTX ranges: Nsight shows the regions that `@profile` names around their launches.

They are pushed by the package `nvtx`, or by NVIDIA's older library; where neither is installed a note says so.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cache
from typing import NamedTuple

from lamella.backend.cuda.driver import find_library
from lamella.base.diagnostic import NOTE, Diagnostic, LamellaError
from lamella.base.errors import MISSING_PACKAGE
from lamella.base.optional import Foreign, need
from lamella.base.origin import Origin
from lamella.base.records import dataclass, replace
from lamella.base.source import NOWHERE
from lamella.graph.model import ProfiledRegion

PACKAGE = "nvtx"
LIBRARIES, WHEELS = ("libnvToolsExt.so.1",), ("nvidia/nvtx/lib",)


class Ranges(NamedTuple):
    """The two functions of a library that push and pop a range."""

    push: Callable[[str], object]
    pop: Callable[[], object]


@cache
def find_ranges() -> Ranges | None:
    """The library that pushes ranges here; None where there is none."""
    try:
        package: Foreign = need(PACKAGE)
    except LamellaError:
        return _of_library(find_library(LIBRARIES, WHEELS))
    return Ranges(package.push_range, package.pop_range)


def _of_library(library: ctypes.CDLL | None) -> Ranges | None:
    if library is None:
        return None
    library.nvtxRangePushA.argtypes = (ctypes.c_char_p,)
    push, pop = library.nvtxRangePushA, library.nvtxRangePop
    return Ranges(lambda name: push(name.encode("utf-8", "replace")), pop)


@dataclass(slots=True)
class RangeMarks:
    """The regions of a model around its launches, where these are launched one by one: in a run that is profiled."""

    regions: Sequence[ProfiledRegion] = ()
    """What the model wants to be marked."""
    _open: list[ProfiledRegion] = field(default_factory=list)
    _is_lacking: bool = False
    _is_told: bool = False

    def enter(self, origin: Origin | None) -> None:
        """Begin the ranges of what comes now, the largest first, and end those in which it is not."""
        inside = [item for item in self.regions if item.has_markers and item.share_of(origin)]
        inside.sort(key=lambda item: -len(item.operations))
        ranges = find_ranges() if inside or self._open else None
        if ranges is None:
            self._is_lacking = self._is_lacking or bool(inside)
            return
        pairs = zip(self._open, inside, strict=False)
        same = next((number for number, (old, new) in enumerate(pairs) if old is not new), None)
        self._close(min(len(self._open), len(inside)) if same is None else same)
        for item in inside[len(self._open) :]:
            ranges.push(item.name)
            self._open.append(item)

    def leave(self) -> None:
        """End all ranges."""
        self._close(0)

    def findings(self) -> list[Diagnostic]:
        """That nothing pushes ranges here, once, where a run wanted them."""
        if not self._is_lacking or self._is_told:
            return []
        self._is_told = True
        message = f"package '{PACKAGE}' is not installed: NVTX has no ranges of @profile"
        hint = "pip install 'lamella[nvtx]', or nvtx=false"
        return [replace(MISSING_PACKAGE.at(NOWHERE, message=message, hint=hint), severity=NOTE)]

    def _close(self, kept: int) -> None:
        ranges = find_ranges() if self._open else None
        while ranges is not None and len(self._open) > kept:
            ranges.pop()
            self._open.pop()
