"""The target of the host: its vectors by level, its tiles by trial."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lamella.backend.cpu import host
from lamella.backend.cpu.jit import Processor, host_machine
from lamella.kernels.target import TILES

TILED = ",".join(f"+{name}" for name in ("avx512f", "avx512bw", "avx512dq", "avx512vl", *TILES))


@pytest.fixture(autouse=True)
def asked_again() -> Iterator[None]:
    """Forget what was found out about the host, before and after."""
    host.host_target.cache_clear()
    yield
    host.host_target.cache_clear()


@pytest.mark.parametrize(
    ("machine", "works", "name"),
    [
        (Processor("x86_64-unknown-linux-gnu", "sapphirerapids", TILED), True, "cpu-amx"),
        (Processor("x86_64-unknown-linux-gnu", "sapphirerapids", TILED), False, "cpu-avx512"),
        (Processor("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma,+f16c"), False, "cpu-avx2"),
        (Processor("x86_64-unknown-linux-gnu", "x86-64", "-avx2"), False, "cpu-avx2"),
        (Processor("aarch64-unknown-linux-gnu", "neoverse-v2", "+neon"), False, "cpu-aarch64"),
    ],
)
def test_hosts(machine: Processor, works: bool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "host_machine", lambda: machine)
    monkeypatch.setattr(host, "has_tiles", lambda *_: works)
    target = host.host_target()
    assert (target.name, target.amx) == (name, works)
    assert (target.triple, target.cpu) == (machine.triple, machine.cpu)


def test_this_host() -> None:
    target = host.host_target()
    assert (target.triple, target.cpu) == (host_machine().triple, host_machine().cpu)
