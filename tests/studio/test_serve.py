"""A served page: for this machine alone, by its address alone, and made anew when a file changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from lamella.pipeline.options import Options
from lamella.studio import make_page
from lamella.studio.serve import Live, make_server
from tests.support.repository import ROOT


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Live, int, Path]]:
    file = tmp_path / "net.sknd"
    file.write_text((ROOT / "examples" / "digits" / "digits.sknd").read_text(encoding="utf-8"), "utf-8")
    live = Live([file], lambda asked: make_page([file], Options(levels=("source",)), asked).html)
    server = make_server(live)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield live, server.server_address[1], file
    server.shutdown()
    server.server_close()
    thread.join()


def ask(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_who_does_not_know_the_address_gets_nothing(served: tuple[Live, int, Path]) -> None:
    live, port, _ = served
    assert ask(port, "/")[0] == 404
    assert ask(port, "/favicon.ico")[0] == 404
    assert ask(port, f"/{live.token}/", host="evil.example")[0] == 404
    status, page = ask(port, f"/{live.token}/")
    assert status == 200
    assert "; connect-src 'self'" in page


def test_a_page_is_made_anew_when_its_file_changes(served: tuple[Live, int, Path]) -> None:
    live, port, file = served
    assert "relu2" in ask(port, f"/{live.token}/")[1]
    assert ask(port, f"/{live.token}/version/1") == (200, "same")
    file.write_text(file.read_text(encoding="utf-8").replace("relu2", "renamed"), "utf-8")
    assert ask(port, f"/{live.token}/version/1") == (200, "changed")
    page = ask(port, f"/{live.token}/")[1]
    assert "renamed" in page
    assert f"/{live.token}/version/2" in page
    file.write_text("graph {", "utf-8")
    assert "What is wrong" in ask(port, f"/{live.token}/")[1]
