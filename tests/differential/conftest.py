"""Objects that tests compile are kept in a folder of the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the object cache live in a new folder, so that tests neither use nor fill the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAMELLA_CACHE", str(tmp_path_factory.mktemp("objects") / "cache"))
        yield
