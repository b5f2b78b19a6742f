"""Comments and blank lines beside the words they belong to."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from lamella.base.cursor import Comment
from lamella.base.source import Source, Trivia
from lamella.base.trivia import TriviaReader

WORD = re.compile(r"[a-z]+")
COMMENT = re.compile(r"#[^\n]*")


def notes_of(text: str) -> list[Trivia]:
    """The notes of each word of a text, and of its end."""
    comments = [Comment(match.start(), match[0]) for match in COMMENT.finditer(text)]
    words = [match.span() for match in WORD.finditer(COMMENT.sub(lambda match: " " * len(match[0]), text))]
    margin = TriviaReader(Source("", text), comments)
    after = [*words[1:], (len(text), len(text))]
    found = [margin.take(*word, start) for word, (start, _) in zip(words, after, strict=False)]
    return [*found, margin.close(len(text), len(text), len(text) + 1)]


def test_notes_stand_beside_words() -> None:
    assert notes_of("#1\n\n#2\na #3\n\n\nb\nc d #4\n\n#5\n\n") == [
        Trivia(("#1", "", "#2"), "#3"),
        Trivia(blank=True),
        Trivia(),
        Trivia((), "#4"),
        Trivia(("#5",), "", True),
    ]


def test_a_node_keeps_the_comments_between_its_words() -> None:
    text = "a # 1\nb # 2\nc"
    comments = [Comment(match.start(), match[0]) for match in COMMENT.finditer(text)]
    whole = TriviaReader(Source("", text), comments)
    assert whole.take(0, 7, 12) == Trivia(("# 1",), "# 2")
    verbatim = TriviaReader(Source("", text), comments)
    assert verbatim.skip(0, 7, 12) == Trivia((), "# 2")


@given(st.text("a# \n", max_size=60))
def test_every_comment_is_handed_out_once(text: str) -> None:
    found = [line for notes in notes_of(text) for line in (*notes.above, notes.behind) if line]
    assert found == [match[0].rstrip() for match in COMMENT.finditer(text)]
