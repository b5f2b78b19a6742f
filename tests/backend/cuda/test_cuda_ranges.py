"""NVTX nvtx of `@profile`: what is pushed around which launches, by whichever library there is, or a note."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lamella
from lamella.backend.cuda import nvtx
from lamella.base.diagnostic import LamellaError
from tests.pipeline.test_module_observing import regions
from tests.support.backend.fake_driver import FakeDriver, fake_device

X = np.ones((2, 4), np.float32)
MARKS = {
    "declaration": '@profile("inner")',
    "instance": '@profile("head")',
    "statement": '@profile("silent", nvtx=false)',
}


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    monkeypatch.setenv("LAMELLA_CACHE", str(tmp_path / "objects"))
    nvtx.find_ranges.cache_clear()
    with fake_device() as found:
        yield found
    nvtx.find_ranges.cache_clear()


def packaged(
    monkeypatch: pytest.MonkeyPatch, push: Callable[[str], object], pop: Callable[[], object]
) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", SimpleNamespace(push_range=push, pop_range=pop))


def as_library(
    monkeypatch: pytest.MonkeyPatch, push: Callable[[str], object], pop: Callable[[], object]
) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    load = ctypes.CDLL

    def found(name: str, *rest: Any) -> Any:
        return OldLibrary(push, pop) if name == nvtx.LIBRARIES[0] else load(name, *rest)

    monkeypatch.setattr(ctypes, "CDLL", found)


class OldLibrary:
    """`libnvToolsExt` as ctypes has it: functions are objects whose types are set, and take bytes."""

    def __init__(self, push: Callable[[str], object], pop: Callable[[], object]) -> None:
        class Push:
            argtypes: object = None

            def __call__(self, name: bytes) -> object:
                return push(name.decode())

        self.nvtxRangePushA, self.nvtxRangePop = Push(), pop


@pytest.mark.parametrize("install", [packaged, as_library])
def test_ranges_stand_around_the_launches_of_regions(
    device: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, install: Callable[..., None]
) -> None:
    pushed: list[tuple[str, int]] = []
    install(
        monkeypatch,
        lambda name: pushed.append((name, len(device.launches))),
        lambda: pushed.append(("", len(device.launches))),
    )
    run: Any = lamella.compile(regions(tmp_path, **MARKS), backend="cuda", shape={"B": 2}, seed=1)
    for _ in range(2):
        run(x=X)
    assert not pushed  # many launches are one there
    device.launches.clear()
    times = run.profile({"x": X})
    assert not any(item.code == "LAM003" for item in run.findings)
    depth, inside = 0, []
    for name, _ in pushed:
        depth += 1 if name else -1
        assert depth >= 0
        inside.append(depth)
    assert depth == 0
    begun = [name for name, _ in pushed if name]
    assert set(begun) == {"inner", "head"}
    assert begun.count("inner") == 3  # two layers and the head
    assert max(inside) == 2  # the head is an instance of what is declared
    # Each launch of a region is inside of its range, and no other is.
    region = next(item for item in run.model.regions if item.path == "head" and item.name == "head")
    start = next(place for name, place in pushed if name == "head")
    end = next(place for name, place in reversed(pushed) if not name)
    own = [number for number, item in enumerate(times) if region.share_of(item.origin)]
    assert own == list(range(start, end))


def test_a_run_that_fails_ends_its_ranges(
    device: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_: list[str] = []
    packaged(monkeypatch, open_.append, open_.pop)
    run: Any = lamella.compile(regions(tmp_path, **MARKS), backend="cuda", shape={"B": 2}, seed=1)
    run(x=X)
    device.failures["cuLaunchKernelEx"] = 700
    with pytest.raises(LamellaError, match="launching @"):
        run.profile({"x": X})
    assert not open_


@pytest.mark.parametrize("marks", [MARKS, {"statement": '@profile("silent", nvtx=false)'}, {}])
def test_what_lacks_is_told_once(
    device: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marks: dict[str, str]
) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setattr(nvtx, "LIBRARIES", ("libnowhere.so",))
    run: Any = lamella.compile(regions(tmp_path, **marks), backend="cuda", shape={"B": 2}, seed=1)
    run(x=X)
    counts = []
    for _ in range(2):
        run.profile({"x": X})
        told = [item for item in run.findings if item.code == "LAM003"]
        counts.append(len(told))
        assert all(item.severity == "note" for item in told)
        assert all("lamella[nvtx]" in (item.hint or "") for item in told)
    assert counts == [int(marks is MARKS), 0]


@pytest.mark.gpu
def test_ranges_are_pushed_on_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("nvtx", reason="needs the package nvtx")
    run: Any = lamella.compile(regions(tmp_path, **MARKS), backend="cuda", shape={"B": 2}, seed=1)
    assert run.profile({"x": X})
    assert not any(item.code == "LAM003" for item in run.findings)
