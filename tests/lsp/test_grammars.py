"""Colours without a server: what editors and Pygments see agrees with the lexers of the languages."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from pygments.token import Comment, Error, Keyword, Number, String

from editors.generate import colour_case, expected_colours, files
from lamella.lsp.pygments import ModuleLexer, NemLexer, SkriptndLexer, TensorLexer
from lamella.pipeline.grammars import COMMENT_SCOPE, GRAMMARS, NUMBER, STRING

ROOT = Path(__file__).parents[2]
LEXERS = {"module": ModuleLexer, "skriptnd": SkriptndLexer, "tensor": TensorLexer, "nem": NemLexer}
PYGMENTS = {NUMBER: Number, STRING: String, COMMENT_SCOPE: Comment}
VSCODE = ROOT / "editors/vscode"


def texts(name: str) -> Iterator[tuple[Path, str]]:
    folders = (ROOT / "tests/lang" / name / "good", ROOT / "examples", ROOT / "src/lamella/models")
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in GRAMMARS[name].endings and path.name != "primitives.module":
                yield path, path.read_text(encoding="utf-8")


def test_generated_files_are_current() -> None:
    stale = [path.name for path, text in files() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run python -m editors.generate"


@pytest.mark.parametrize("name", LEXERS)
def test_pygments_agrees_with_the_lexer(name: str) -> None:
    lexer, keywords = LEXERS[name](stripnl=False, ensurenl=False), 0
    for path, text in texts(name):
        colours: list[object] = []
        for kind, word in lexer.get_tokens(text):
            assert kind is not Error, (path.name, word)
            colours += [kind] * len(word)
            keywords += kind in Keyword
        assert len(colours) == len(text)
        for start, end, scope in expected_colours(name, text):
            seen = colours[start]
            assert seen in PYGMENTS[scope], (path.name, text[start:end], seen)
    assert keywords


def test_pygments_finds_the_lexers() -> None:
    found = {
        item.name: item.value for item in entry_points(group="pygments.lexers") if "lamella" in item.value
    }
    assert not found or set(found) == {grammar.id for grammar in GRAMMARS.values()}


@pytest.fixture
def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed; on Debian: apt install nodejs npm")
    if not (VSCODE / "node_modules/vscode-textmate").is_dir():
        pytest.skip("packages of the extension are missing; run npm install in editors/vscode")
    return found


# Whatever the bundle asks of VS Code while it is loaded is an object, a class and a function at once.
LOADING = """
const Module = require("node:module"), load = Module._load;
const anything = () => new Proxy(class {}, { get: (of, name) => (name in of ? of[name] : anything()) });
Module._load = (name, ...rest) => (name === "vscode" ? anything() : load(name, ...rest));
const { activate, deactivate } = require(process.argv[1]);
console.log(typeof activate, typeof deactivate);
"""


def test_the_extension_is_built_and_loads(node: str, tmp_path: Path) -> None:
    """The bundle needs nothing beside it but VS Code."""
    bundle = tmp_path / "extension.js"
    script = json.loads((VSCODE / "package.json").read_text(encoding="utf-8"))["scripts"]["build"]
    command, *words = script.replace("dist/extension.js", str(bundle)).split()
    build = [VSCODE / "node_modules/.bin" / command, *words]
    subprocess.run(build, cwd=VSCODE, check=True, capture_output=True)
    done = subprocess.run(
        [node, "-e", LOADING, bundle], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stdout == "function function\n", done.stderr


def test_vscode_agrees_with_the_lexer(node: str, tmp_path: Path) -> None:
    cases = [colour_case(name, text) for name in GRAMMARS for _, text in texts(name)]
    file = tmp_path / "cases.json"
    file.write_text(json.dumps(cases), encoding="utf-8")
    done = subprocess.run(
        [node, VSCODE / "test/grammars.mjs", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_vim_takes_the_syntax_files(tmp_path: Path) -> None:
    vim = shutil.which("vim")
    if vim is None:
        pytest.skip("needs vim")
    path = tmp_path / "a.nem"
    path.write_text("buffer A : L2 (size=8)  # note\n", encoding="utf-8")
    folder = ROOT / "editors/vim"
    told = tmp_path / "told"
    script = [
        f"set runtimepath^={folder}",
        "filetype on",
        "syntax on",
        f"edit {path}",
        f"call writefile([&filetype, synIDattr(synID(1, 1, 1), 'name'), synIDattr(synID(1, 26, 1), 'name')], '{told}')",
        "qall!",
    ]
    words = [part for line in script for part in ("-c", line)]
    done = subprocess.run(
        [vim, "-u", "NONE", "-N", "-es", *words], capture_output=True, text=True, check=False
    )
    assert told.exists(), done.stdout + done.stderr
    assert told.read_text(encoding="utf-8").split() == ["nem", "lamellaKeyword", "lamellaComment"]
