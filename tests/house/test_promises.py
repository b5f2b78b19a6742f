"""The first page promises only what exists: every ending of its picture is read or written."""

from __future__ import annotations

import re

from lamella.pipeline.languages import ENDINGS, STREAM_ENDINGS
from lamella.pipeline.skriptnd.execution import KERNEL_FORMS
from tests.support.repository import ROOT

STAGES = {f".{name}" for name in KERNEL_FORMS} - {".tensor"}


def test_the_picture_shows_what_works() -> None:
    """An ending that stands in the picture is that of a language, or of a stage that `lower` writes."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    picture = text.split("```text\n", 1)[1].split("```", 1)[0]
    shown = set(re.findall(r"\.[a-z]+\b", picture))
    assert shown
    assert shown <= {*ENDINGS, *STREAM_ENDINGS, *STAGES}
    assert ("ONNX" in picture) == (".onnx" in ENDINGS)
    assert (".nem" in picture.split("graph", 1)[1].split("\n", 1)[0]) == ("nem" in KERNEL_FORMS)
