"""What all tests share: generated counts, a folder for compiled objects, and skips that say why."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from lamella.base.gc import relax_gc
from tests.support.forked import Lamella, commands_by_fork, run_lamella
from tests.support.repository import environment

pytest_plugins = ["tests.support.judges.summary"]
FUZZ = "tests/fuzz/"
IS_EMULATED = os.environ.get("LAMELLA_GPU") == "emulated"
MUTATIONS = int(os.environ.get("LAMELLA_FUZZ", "500"))

IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
if not IS_WORKER:
    # Set before the workers start, which then share it: no test touches the user's own folder.
    os.environ["LAMELLA_CACHE"] = tempfile.mkdtemp(prefix="lamella-objects-")
    # The judges' arrays are tiny: a second thread of torch or NumPy only looks for work, which halved nothing but
    # the other worker's time. Set before either is imported; a count that the caller names stays.
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# transformers loads torchvision where it finds it, and fails with one that does not fit this torch, as that of the
# benches may: no test needs it.
sys.modules["torchvision"] = None  # type: ignore[assignment]  # which is how a package is hidden

# A slow machine is no failure; `make test` sees the same cases every time, `make fuzz` sees new ones, and more of them.
settings.register_profile(
    "test", max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "fuzz", settings.get_profile("test"), max_examples=max(12, MUTATIONS // 500), derandomize=False
)
settings.load_profile("fuzz" if "LAMELLA_FUZZ" in os.environ else "test")


# Collecting all tests makes millions of objects, and what a test makes is gone before the next one looks for garbage.
relax_gc()


def pytest_collection_finish() -> None:
    """Let no collection of garbage walk again over what importing and collecting made."""
    _freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The same for what the tests of a module loaded and keep."""
    if nextitem is not None and nextitem.path != item.path:
        _freeze()


def _freeze() -> None:
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Remove the objects that the tests compiled."""
    if not IS_WORKER:
        shutil.rmtree(os.environ["LAMELLA_CACHE"], ignore_errors=True)


@pytest.fixture(scope="session")
def mutations() -> int:
    """How many mutated inputs a fuzzing test makes."""
    return MUTATIONS


@pytest.fixture(scope="session")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a shell whose `lamella` and `python` start at once, as forks of one process."""
    with commands_by_fork(tmp_path_factory.mktemp("commands"), environment()) as variables:
        yield variables


@pytest.fixture
def lamella(shell: dict[str, str]) -> Lamella:
    """The command in its own process, as a shell runs it."""
    return partial(run_lamella, shell)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in tests/fuzz and every property of generated cases, and skip what this machine cannot run."""
    reasons = (("gpu", _no_gpu()), ("real_gpu", _no_real_gpu()), ("chromium", _no_chromium()))
    missing = {name: why for name, why in reasons if why}
    for item in items:
        if item.nodeid.startswith(FUZZ) or getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.fuzz)
        for name, why in missing.items():
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(autouse=True)
def gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """A GPU that is emulated, for tests that need one, where that is asked for."""
    if IS_EMULATED and request.node.get_closest_marker("gpu"):
        from tests.support.gpu.driver import emulated_device

        with emulated_device():
            yield
    else:
        yield


def _no_gpu() -> str:
    if IS_EMULATED or Path("/dev/nvidiactl").exists():
        return ""
    return "there is no NVIDIA GPU on this machine"


def _no_real_gpu() -> str:
    return "a GPU that is emulated has no clock, and no library but ours" if IS_EMULATED else ""


def _no_chromium() -> str:
    return "" if shutil.which("chromium") else "chromium is not installed; on Debian: apt install chromium"
