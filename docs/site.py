"""Build the site: the pages of the repository as they lie there, with those of rules, operators and the library.

usage: python -m docs.site [FOLDER]     writes build/site; warnings of MkDocs are errors

MkDocs wants one folder: the pages, and the files of the examples that they link to, are laid out in it as they are in
the repository, so that every link of theirs leads where it leads there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from docs import generate

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")
FOLDERS = ("docs", "examples")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.py", "*.csv", "*.pyc")


def _pages(folder: str, first: str) -> tuple[str, ...]:
    """The pages of a folder, some of them first, in the order in which they lead on."""
    return (*(f"docs/{folder}/{name}.md" for name in first.split()), f"docs/{folder}/*.md")


SECTIONS = {
    "First five minutes": ("docs/start.md", "docs/tour.md", "docs/[!s]*.md"),
    "First sessions": _pages("sessions", "index npu porting kernels training genome python"),
    "Coming from": ("docs/from/*.md",),
    "Languages": _pages("languages", "module skriptnd nac plans tokenizers tensor nem onnx torch"),
    "Layers": _pages("layers", "graph kernels gpu plan quantisation training diff bench studio editors"),
    "Reference": ("docs/standard/index.md", "docs/operators/README.md", "docs/rules/*.md"),
    "Examples": ("examples/*/README.md",),
    "Decisions": ("docs/decisions/*.md",),
    "Working on it": ("CONTRIBUTING.md", "CHANGELOG.md"),
}
"""The pages of each section, in order; their own titles name them."""


def lay_out(stage: Path) -> None:
    """Lay out all pages, those that are written from tables first of all."""
    generate.main([])
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    for name in PAGES:
        shutil.copy(ROOT / name, stage / name)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, stage / name, ignore=LEFT_OUT if name == "docs" else None)


def sections(stage: Path) -> list[object]:
    """The navigation: sections with the pages that lie there."""
    found: list[object] = [{"Lamella": "README.md"}]
    for title, patterns in SECTIONS.items():
        pages = [page for pattern in patterns for page in sorted(stage.glob(pattern))]
        found.append({title: [page.relative_to(stage).as_posix() for page in dict.fromkeys(pages)]})
    return found


def main(arguments: list[str]) -> int:
    """Build the site into a folder."""
    target = Path(arguments[0] if arguments else BUILD / "site").resolve()
    stage, config = BUILD / "site-pages", BUILD / "mkdocs.yml"
    lay_out(stage)
    # JSON is YAML too, and nothing here needs a package that writes the latter.
    rest = f"docs_dir: {json.dumps(str(stage))}\nnav: {json.dumps(sections(stage))}\n"
    config.write_text((ROOT / "mkdocs.yml").read_text(encoding="utf-8") + rest, encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run([*command, "--config-file", str(config)], check=False, env=variables)
    if done.returncode == 0:
        print(f"{target}/index.html")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
