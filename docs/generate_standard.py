"""The pages of docs/standard: every primitive, module, block and model of the Module DSL's standard library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from docs.markdown import cell, fenced
from lamella.base.paths import shipped
from lamella.pipeline.module.library import describe
from lamella.pipeline.options import Options

TITLES = {
    "models": "whole architectures, by the names of Hugging Face",
    "blocks": "layers of architectures",
    "modules": "attention, norms, feed-forward networks, mixtures",
    "primitives": "operators of the language, each with its gradient",
}
HEAD = "Written here by `make docs` from the files of the library; `lamella show std.…` shows the same."


def standard_pages() -> dict[str, str]:
    """The pages by their file names, the index among them."""
    groups: dict[str, list[str]] = {title: [] for title in TITLES}
    pages: dict[str, str] = {}
    for path in sorted(shipped("models").rglob("*.module")):
        parts = path.relative_to(shipped("models")).with_suffix("").parts
        name = f"std.{'.'.join(parts)}"
        groups[parts[0]].append(name)
        pages[f"{name}.md"] = "\n".join(_page(name)) + "\n"
    pages["index.md"] = "\n".join(_index(groups)) + "\n"
    return pages


def _index(groups: Mapping[str, list[str]]) -> Iterator[str]:
    yield from ("# The standard library of the Module DSL", "", HEAD)
    for group, title in TITLES.items():
        yield from (
            "",
            f"## std.{group}",
            "",
            f"{title[0].upper()}{title[1:]}.",
            "",
            "| file | declares |",
            "|---|---|",
        )
        for name in groups[group]:
            yield f"| [{name}]({name}.md) | {cell(', '.join(_declared(name)))} |"


def _page(name: str) -> Iterator[str]:
    """A file: what it is, and each declaration as `lamella show` tells it."""
    first = describe(name, Options()).text.splitlines()[0]
    sentence = first.partition("; ")[2]
    yield from (f"# {name}", "", HEAD)
    if sentence:
        yield from ("", sentence)
    for item in _declared(name):
        yield from ("", f"## {item}", "")
        yield from fenced(describe(f"{name}.{item}", Options()).text.splitlines()[2:])


def _declared(name: str) -> list[str]:
    rows = describe(name, Options()).data["declarations"]
    assert isinstance(rows, list)
    return [str(row["name"]) for row in rows]
