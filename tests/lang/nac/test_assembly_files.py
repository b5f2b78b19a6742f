"""Assembly texts on disk: companions belong to their text, lie beside it, and are never mixed up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from lamella.base.errors import InputError, OutputError
from lamella.lang.nac import nodes as n
from lamella.lang.nac.files import open_assembly, save_assembly
from tests.support.strategies.nac import files


def model(data: bytes) -> n.File:
    """A file with one tensor."""
    tensor = n.Tensor(1, 8, (len(data),), n.Unscaled(), data)
    return n.File(header=n.Header(internal=True), parameters=(n.Parameter(1, "w"),), tensors=(tensor,))


SMALL, LARGE, OTHER = model(b"abc"), model(bytes(range(256)) * 16), model(bytes(range(255, -1, -1)) * 16)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files())
def test_a_saved_file_is_opened_again(tmp_path: Path, file: n.File) -> None:
    path = tmp_path / "model.nacs"
    save_assembly(path, file)
    assert open_assembly(path) == (file, ())


def test_only_large_data_has_a_companion(tmp_path: Path) -> None:
    assert save_assembly(tmp_path / "a.nacs", SMALL) is None
    assert [path.name for path in tmp_path.iterdir()] == ["a.nacs"]
    companion = save_assembly(tmp_path / "b.nacs", LARGE)
    assert companion is not None
    assert companion.parent == tmp_path
    assert companion.read_bytes() == LARGE.tensors[0].data
    assert f'file("{companion.name}", 0, 4096)' in (tmp_path / "b.nacs").read_text()


def test_the_same_file_is_written_the_same(tmp_path: Path) -> None:
    first = save_assembly(tmp_path / "a.nacs", LARGE)
    text = (tmp_path / "a.nacs").read_text()
    assert save_assembly(tmp_path / "a.nacs", LARGE) == first
    assert (tmp_path / "a.nacs").read_text() == text


def test_an_old_text_keeps_its_data_where_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.nacs"
    save_assembly(path, LARGE)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OutputError):
        save_assembly(path, OTHER)
    monkeypatch.undo()
    assert open_assembly(path) == (LARGE, ())
    save_assembly(path, OTHER)
    assert open_assembly(path) == (OTHER, ())


@pytest.mark.parametrize("name", ["a b:c.nacs", ".hidden.nacs", "é\u202e.nacs", "....nacs", "x.y.nacs"])
def test_any_name_of_a_text_has_a_companion(tmp_path: Path, name: str) -> None:
    save_assembly(tmp_path / name, LARGE)
    assert open_assembly(tmp_path / name) == (LARGE, ())


def test_a_companion_is_not_reached_through_a_link(tmp_path: Path) -> None:
    path = tmp_path / "a.nacs"
    companion = save_assembly(path, LARGE)
    assert companion is not None
    companion.rename(tmp_path / "elsewhere")
    assert [item.code for item in open_assembly(path).findings] == ["NAC193"]
    companion.symlink_to(tmp_path / "elsewhere")
    found = open_assembly(path).findings
    assert [item.code for item in found] == ["NAC193"]
    assert "link" in found[0].message


def test_a_text_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        open_assembly(tmp_path / "a.nacs")


def test_findings_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.nacs"
    path.write_text("nac 1.7x\n")
    (finding,) = open_assembly(path).findings
    assert finding.span.source.name.endswith("a.nacs")
    assert finding.code == "NAC183"
