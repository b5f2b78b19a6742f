"""Compiled graphs that are kept: the same bits without a compiler, and nothing that a damaged entry could do."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamella
from lamella.backend.cpu.run.stored import StoredGraph, decode_graph
from lamella.backend.executor.kernels import KernelExecutable
from lamella.backend.executor.stored import StoredExecutable
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT
from lamella.base.mapping import map_of
from lamella.base.object_cache import KEY_BYTES, ObjectCache
from lamella.graph.data.safetensors import write_safetensors
from lamella.lang.skriptnd import check
from lamella.lang.skriptnd.nodes import Document
from lamella.pipeline.backends import cpu
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd import compose

TEXT = """\
import math, nn, linalg, layout;
graph Counted {
    @input { x: real[4, 6]; keep: int[3]; }
    @variable { w: real[5, 6]; seen: real[4, 5]; }
    @output { y: real[4, 5]; z: real[3, 5]; }
    @compose {
        h = linalg.matmul{transB=true}(x, w);
        y = nn.softmax{axes=[1]}(h);
        z = layout.gather{axis=0}(y, keep);
        next = math.add(seen, y);
    }
    @update { seen = next; }
}
"""
GIVEN = {"x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6), "keep": np.array([3, 0, 3])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with its weights."""
    found = tmp_path_factory.mktemp("model")
    (found / "counted.sknd").write_text(TEXT)
    random = np.random.default_rng(7)
    arrays = {
        "w": random.standard_normal((5, 6)).astype("f4"),
        "seen": random.standard_normal((4, 5)).astype("f4"),
    }
    write_safetensors(found / "counted.safetensors", arrays)
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of its own for this module."""
    found = tmp_path_factory.mktemp("cache") / "objects"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAMELLA_CACHE", str(found))
        yield found


@pytest.fixture(scope="module")
def compiled(folder: Path, store: Path) -> Any:
    """The model as it is compiled first, which leaves an entry behind."""
    return lamella.compile(folder / "counted.sknd", backend="cpu")


def again(folder: Path, **options: Any) -> Any:
    return lamella.compile(folder / "counted.sknd", backend="cpu", **options)


@pytest.fixture
def no_compiler(compiled: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> object:
        raise AssertionError("something is compiled")

    monkeypatch.setattr(cpu, "late_compiler", refuse)


def entry_of(folder: Path, store: Path, **options: Any) -> Path:
    """The file of the compiled graph."""
    chosen = Options(**options)
    return store / f"{cpu.graph_key(lamella.load(folder / 'counted.sknd'), chosen).hex()}.object"  # type: ignore[arg-type]


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_kept_graph_gives_the_same_bits_and_compiles_nothing(folder: Path, threads: int) -> None:
    found, reference = again(folder, threads=threads), lamella.compile(folder / "counted.sknd")
    assert isinstance(found, StoredExecutable)
    for _ in range(3):  # the state changes from call to call
        ours, theirs = found(**GIVEN), reference(**GIVEN)
        for name in ("y", "z"):
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.state["seen"], reference.state["seen"], rtol=1e-5)  # type: ignore[attr-defined]


STARTED = """
import sys, numpy as np, lamella
found = lamella.compile(sys.argv[1], backend="cpu", threads=1)(x=np.ones((4, 6), "f4"), keep=np.arange(3))
print(sorted(found), "llvmlite.binding" in sys.modules)
"""


def test_a_kept_graph_starts_without_llvm(folder: Path, store: Path, compiled: Any) -> None:
    command = [sys.executable, "-c", STARTED, str(folder / "counted.sknd")]
    # The first start may find that the loops of one thread are not kept yet.
    for _ in range(2):
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.split() == ["['y',", "'z']", str(platform.machine() != "x86_64")]


def test_bits_are_those_of_the_compiled_graph(folder: Path, compiled: Any) -> None:
    found = again(folder)
    compiled.reset()
    assert isinstance(compiled, KernelExecutable)
    for _ in range(2):
        ours, theirs = found(**GIVEN), compiled(**GIVEN)
        assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ("y", "z"))
    assert found.state["seen"].tobytes() == compiled.state["seen"].tobytes()
    assert found.placement == compiled.placement


def test_what_goes_wrong_is_said_as_ever(folder: Path, compiled: Any) -> None:
    found = again(folder)
    wrong = {**GIVEN, "keep": np.array([0, 4, 1])}
    with pytest.raises(LamellaError) as ours:
        found(**wrong)
    with pytest.raises(LamellaError) as theirs:
        compiled(**wrong)
    assert str(ours.value) == str(theirs.value)
    assert found(**GIVEN)["y"].shape == (4, 5)


def test_a_profile_names_launches_and_their_operations(folder: Path, compiled: Any) -> None:
    found = again(folder)
    times = found.profile(GIVEN)
    assert [item.kernel for item in times] == [item.kernel for item in compiled.profile(GIVEN)]
    origins = {id(item.origin) for item in found.model.graph.operations()}
    assert {id(item.origin) for item in times if item.operator} <= origins


@pytest.mark.usefixtures("no_compiler")
def test_other_weights_are_no_other_graph(folder: Path, tmp_path: Path, store: Path) -> None:
    arrays = {"w": np.ones((5, 6), "f4"), "seen": np.zeros((4, 5), "f4")}
    write_safetensors(tmp_path / "other.safetensors", arrays)
    found = again(folder, weights=tmp_path / "other.safetensors")
    assert isinstance(found, StoredExecutable)
    np.testing.assert_allclose(found(**GIVEN)["y"], np.full((4, 5), 0.2), rtol=1e-6)


def test_options_that_change_code_have_entries_of_their_own(folder: Path, store: Path, compiled: Any) -> None:
    plain = entry_of(folder, store)
    assert plain.exists()
    assert entry_of(folder, store, threads=2, seed=3) == plain
    others: list[dict[str, Any]] = [{"dtype": "f64"}, {"strict_backend": True}, {"target": "cpu-avx2"}]
    assert len({entry_of(folder, store, **item) for item in others} | {plain}) == 4


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:200] + b"\0" + data[201:]])
def test_a_damaged_entry_is_compiled_and_written_again(
    folder: Path, store: Path, compiled: Any, damage: Callable[[bytes], bytes]
) -> None:
    entry = entry_of(folder, store)
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    assert isinstance(again(folder), KernelExecutable)
    assert isinstance(again(folder), StoredExecutable)


def test_without_its_code_a_graph_is_compiled_again(folder: Path, store: Path, compiled: Any) -> None:
    for item in store.iterdir():
        if item != entry_of(folder, store):
            item.unlink()
    assert isinstance(again(folder), KernelExecutable)
    assert isinstance(again(folder), StoredExecutable)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a value of JSON."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from _places(item, (*path, key))


@settings(max_examples=150)
@given(st.data())
def test_no_content_of_an_entry_does_harm(
    folder: Path, store: Path, compiled: Any, data: st.DataObject
) -> None:
    key = bytes.fromhex(entry_of(folder, store).name.removesuffix(".object"))
    content = ObjectCache(store).get(key)
    assert content is not None
    found = json.loads(content)
    *path, last = data.draw(st.sampled_from([item for item in _places(found) if item]))
    place = found
    for step in path:
        place = place[step]
    values: tuple[Any, ...] = (None, -1, 0, 1 << 62, 1 << 70, "", "x", [], {}, [[]], 0.5, True)
    place[last] = data.draw(st.sampled_from(values))
    read = decode_graph(json.dumps(found).encode(), DEFAULT, 1)
    assert read is None or isinstance(read, StoredGraph)


def test_writers_side_by_side_leave_one_whole_entry(tmp_path: Path) -> None:
    cache, key = ObjectCache(tmp_path), bytes(KEY_BYTES)
    contents = [bytes([number]) * 100_000 for number in range(8)]

    def work(content: bytes) -> list[bytes | None]:
        cache.put(key, content)
        return [cache.get(key) for _ in range(5)]

    with ThreadPoolExecutor(8) as pool:
        read = [item for row in pool.map(work, contents) for item in row]
    assert set(read) <= set(contents)
    assert len(list(tmp_path.iterdir())) == 1


# --- weights that lie in their file ------------------------------------------------------------------------------


LARGE = """\
import linalg;
graph Large {
    @input { x: real[2, 600]; }
    @variable { w: real[600, 600]; }
    @output { y: real[2, 600]; }
    @compose { y = linalg.matmul(x, w); }
}
"""


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_large_weights_are_read_where_their_file_is_mapped(tmp_path: Path, backend: str) -> None:
    weights = np.random.default_rng(0).standard_normal((600, 600)).astype("f4")
    (tmp_path / "large.sknd").write_text(LARGE)
    write_safetensors(tmp_path / "large.safetensors", {"w": weights})
    run: Any = lamella.compile(tmp_path / "large.sknd", backend=backend)
    assert map_of(run.state["w"]) is not None
    x = np.ones((2, 600), "f4")
    np.testing.assert_allclose(run(x=x)["y"], x @ weights, rtol=1e-4, atol=1e-3)
    with (tmp_path / "large.safetensors").open("r+b") as file:
        file.truncate(1 << 20)
    with pytest.raises(InputError, match="bytes long when it was opened"):
        run(x=x)


def test_texts_without_findings_are_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sound is not checked again to be loaded; `check` does, and so does a load of another text."""
    monkeypatch.setenv("LAMELLA_CACHE", str(tmp_path / "objects"))
    path, checked = tmp_path / "counted.sknd", list[str]()
    path.write_text(TEXT)

    def counted(document: Document, name: str, *rest: Any) -> Any:
        checked.append(name)
        return check(document, name, *rest)

    monkeypatch.setattr(compose, "check", counted)
    for calls in (1, 1):
        lamella.load(path)
        assert len(checked) == calls
    assert lamella.check(path) == []
    assert len(checked) == 2
    path.write_text(
        TEXT.replace("h = linalg", "unused = math.add(x, 1.0); h = linalg").replace("seen = n", "seen = m")
    )
    for _ in range(2):
        with pytest.raises(LamellaError):
            lamella.load(path)
    assert len(checked) == 4
