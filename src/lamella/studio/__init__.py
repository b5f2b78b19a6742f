"""The studio: a model at all its levels in one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Unpack

from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.base.records import dataclass
from lamella.base.writer import write_text
from lamella.pipeline.api_options import ViewOptions
from lamella.pipeline.given import options_of
from lamella.pipeline.languages import Model
from lamella.pipeline.options import Options
from lamella.pipeline.signatures import documented
from lamella.studio.compare import add_comparison, add_errors
from lamella.studio.gather import gather
from lamella.studio.page import plan_page, studio_page

HEIGHT = 720
"""Pixels of a page in a notebook."""


@dataclass(frozen=True, slots=True)
class Studio:
    """A page of the studio: shown in a notebook, or saved as one file."""

    html: str
    notes: tuple[str, ...] = ()
    """What the page leaves out, and why."""

    def save(self, path: str | Path) -> None:
        """Write the page."""
        write_text(Path(path), self.html)

    def __repr__(self) -> str:
        return f"<Studio page of {len(self.html):,} characters; .save(path) writes it>"

    def _repr_html_(self) -> str:
        """The page in a frame of its own, which may run its script and do nothing else."""
        frame = 'sandbox="allow-scripts allow-downloads" width="100%"'
        return f'<iframe {frame} height="{HEIGHT}" style="border:0" srcdoc="{escape(self.html)}"></iframe>'


@documented(ViewOptions)
def view(
    *models: Model | str | Path, output: str | Path | None = None, **options: Unpack[ViewOptions]
) -> Studio:
    """Show a model, or two side by side: paths of any language, folders of Hugging Face, or loaded models.

    With `output` the page is written there.
    """
    chosen = options_of(options, by_command=True)
    made = make_page([Path(item) if isinstance(item, str) else item for item in models], chosen)
    if output is not None:
        made.save(output)
    return made


def make_page(models: Sequence[Model | Path], options: Options, served: str = "") -> Studio:
    """The page of one or two models."""
    if len(models) not in (1, 2):
        raise InputError(
            f"{len(models)} models are given", hint="a page shows one model, or two side by side"
        )
    found = [gather(item, options) for item in models]
    if len(found) == 2 and found[0].title == found[1].title:
        for item, made in zip(models, found, strict=True):
            if isinstance(item, Path):
                made.title = printable(f"{item.resolve().parent.name}/{made.title}", 200)
    comparison = add_comparison(found[0], found[1]) if len(found) == 2 else None
    if options.errors:
        add_errors(found, options)
    notes = tuple(f"{item.title}: {note}" for item in found for note in item.notes)
    return Studio(studio_page(found, comparison, served), notes)


__all__ = ["Studio", "make_page", "plan_page", "view"]
