"""Logs of training: event files read back by the format's description, with every check."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from lamella.train.loop import StepReport, smoothed
from lamella.train.reports.events import crc32c
from lamella.train.reports.log import TrainingLog
from lamella.train.reports.page import training_page


@pytest.mark.parametrize(
    ("data", "value"),
    [(b"123456789", 0xE3069283), (b"\0" * 32, 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (b"", 0)],
)
def test_checks_are_those_of_the_rfc(data: bytes, value: int) -> None:
    """RFC 3720, B.4."""
    assert crc32c(data) == value


def read_records(data: bytes) -> list[bytes]:
    """The data of each record; both checks of each are compared."""
    found, place = [], 0
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        for start, size in ((place, 8), (place + 12, length)):
            value = crc32c(data[start : start + size])
            masked = ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF
            assert struct.unpack_from("<I", data, start + size) == (masked,)
        found.append(data[place + 12 : place + 12 + length])
        place += 16 + length
    return found


def report(step: int, evaluation: float | None = None) -> StepReport:
    return StepReport(step, 1 / step, 0.5, None, 0.1, 10, evaluation, None)


def test_events_hold_steps_and_numbers(tmp_path: Path) -> None:
    log = TrainingLog(tmp_path)
    log.add(report(1))
    log.add(report(300, 0.25))
    log.flush()
    (path,) = tmp_path.glob("events.*")
    first, one, two = read_records(path.read_bytes())
    assert first.endswith(b"brain.Event:2")
    assert one[9:11] == b"\x10\x01"
    assert two[9:12] == b"\x10\xac\x02"
    assert b"\x0a\x04loss\x15" + struct.pack("<f", 1.0) in one
    assert b"\x0a\x0aevaluation\x15" + struct.pack("<f", 0.25) in two
    assert b"evaluation" not in one


def test_a_log_that_goes_on_has_each_step_once(tmp_path: Path) -> None:
    log = TrainingLog(tmp_path)
    for step in range(1, 6):
        log.add(report(step))
    log.flush()
    table = tmp_path / "training.csv"
    table.write_bytes(table.read_bytes()[:-9])  # as a killed process leaves it
    log = TrainingLog(tmp_path, resumed=3)
    log.add(report(4))
    log.flush()
    assert [line.split(",")[0] for line in table.read_text().splitlines()] == ["step", "1", "2", "3", "4"]


def test_the_mean_of_equal_losses_is_each_of_them() -> None:
    assert smoothed([2.0] * 5) == pytest.approx([2.0] * 5)


def test_pages_of_hostile_names_and_few_steps_are_text() -> None:
    text = training_page("<script>x</script>", [1.0], [], {"<b>": "<i>"})
    assert "<script>" not in text
    assert "<b>" not in text
    many = training_page("m", [1 / n for n in range(1, 30_000)], [(5, 0.5), (9, 0.25)], {})
    assert len(many) < 200_000
