"""`lamella doctor`: what is installed, what runs here, and how to get the rest."""

from __future__ import annotations

import json
import tomllib

import pytest
from click.testing import CliRunner

from lamella.base.optional import EXTRAS
from lamella.cli import lamella
from lamella.cli.doctor import doctor
from lamella.pipeline.backends import BACKENDS, REGISTRY
from lamella.pipeline.doctor import DISTRIBUTIONS
from tests.support.repository import ROOT


def call(*words: str) -> tuple[int, str]:
    """What the command prints, and its exit status."""
    done = CliRunner().invoke(doctor, words)
    return done.exit_code, done.output


def test_the_data_are_those_of_the_registries() -> None:
    status, text = call("--json")
    found = json.loads(text)
    assert (status, found["ok"]) == (0, True)
    assert tuple(found["backends"]) == BACKENDS
    for name, state in found["backends"].items():
        assert state == {"runs": REGISTRY[name].missing() is None, "missing": REGISTRY[name].missing()}
    assert found["core"]["numpy"]
    assert found["processor"]["target"].startswith("cpu-")
    assert found["caches"][0]["size"] <= found["caches"][0]["largest"]


def test_the_lines_say_the_same() -> None:
    status, text = call()
    assert status == 0
    assert text.startswith("lamella ")
    for name in BACKENDS:
        assert f"\n  {name}" in text
    assert text.rstrip().endswith("nothing is wrong")


def test_a_package_that_is_missing_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamella.pipeline.doctor.version_of", lambda name: "")
    status, text = call()
    assert status == 1
    assert "hf           tokenizers is missing, jinja2 is missing   pip install 'lamella[hf]'" in text
    assert "wrong: package numpy is missing; pip install numpy" in text


def test_a_wrong_variable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMELLA_THREADS", "many")
    status, text = call()
    assert status == 1
    assert "LAMELLA_THREADS=many" in text
    assert "wrong: the variable LAMELLA_THREADS is 'many'; it is a positive number of threads" in text


def test_the_extras_that_are_offered_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    offered = project["optional-dependencies"]
    for extra in set(EXTRAS.values()) & offered.keys():
        # one package may bring another: pygls brings lsprotocol
        names = {DISTRIBUTIONS.get(name, name) for name, owner in EXTRAS.items() if owner == extra}
        assert any(item.startswith(tuple(names)) for item in offered[extra]), extra
    assert "doctor" in lamella.list_commands(
        lamella.make_context("lamella", ["--help"], resilient_parsing=True)
    )
