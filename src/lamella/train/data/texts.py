"""Texts as token streams: what is learnt of plain texts, of prompts with completions, and of conversations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import is_there
from lamella.base.records import dataclass
from lamella.bridge.hf_to_module.checkpoint import read_object
from lamella.pipeline.module.generate import TOKENIZER, open_tokenizer
from lamella.train.data.chat import ChatTemplate, open_template
from lamella.train.data.windows import TokenStream

TOKENIZER_CONFIG = "tokenizer_config.json"
END_TOKEN = "eos_token"


class Encoding(Protocol):
    """The tokens of a text, and the characters of each."""

    ids: list[int]
    offsets: list[tuple[int, int]]


class OffsetTokenizer(Protocol):
    """What is used of the package `tokenizers`."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Encoding:
        """The tokens of a text."""

    def token_to_id(self, token: str) -> int | None:
        """The number of a token."""


@dataclass(frozen=True, slots=True)
class TextSpan:
    """A text, and the characters of it that are learnt."""

    text: str
    spans: tuple[tuple[int, int], ...] | None = None
    """Where it is learnt, as pairs of a beginning and an end; None for all of it."""
    ends: bool = True
    """Whether the token that ends a text follows, which a conversation has of its own."""


class TextEncoder:
    """Texts as tokens of a model's tokenizer."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._tokenizer = cast("OffsetTokenizer", open_tokenizer(folder, limits))
        config = read_object(folder, TOKENIZER_CONFIG, limits) if is_there(folder / TOKENIZER_CONFIG) else {}
        self._folder, self._config, self._limits = folder, config, limits
        self._template: ChatTemplate | None = None
        end = config.get(END_TOKEN)
        word = end.get("content") if isinstance(end, dict) else end
        self.end = self._tokenizer.token_to_id(word) if isinstance(word, str) else None
        """The token that ends a text; None where the folder names none."""

    def encode(self, piece: TextSpan) -> tuple[list[int], list[bool]]:
        """The tokens of a text, and which of them are learnt."""
        found = self._tokenizer.encode(piece.text, add_special_tokens=False)
        learnt = [
            piece.spans is None or any(begin <= start < end for begin, end in piece.spans)
            for start, _ in found.offsets
        ]
        tokens = list(found.ids)
        if piece.ends and self.end is not None:
            return [*tokens, self.end], [*learnt, True]
        return tokens, learnt

    def conversation(self, messages: Sequence[Mapping[str, object]]) -> TextSpan:
        """A conversation as the chat template of the folder writes it; what an assistant says is learnt."""
        if self._template is None:
            self._template = open_template(self._folder, self._config, self._limits)
        text = self._template.render(messages)
        return TextSpan(text, tuple(self._template.answers(messages, text)), ends=False)


def has_tokenizer(folder: Path | None) -> bool:
    """Whether a folder has a tokenizer."""
    return folder is not None and is_there(folder / TOKENIZER)


def stream_of(pieces: Iterable[TextSpan], encoder: TextEncoder, source: str) -> TokenStream:
    """Texts packed one behind the other."""
    tokens: list[npt.NDArray[np.int32]] = []
    masks: list[npt.NDArray[np.bool_]] = []
    for piece in pieces:
        ids, learnt = encoder.encode(piece)
        tokens.append(np.asarray(ids, np.int32))
        masks.append(np.asarray(learnt, np.bool_))
    if not tokens:
        raise InputError(f"{source} holds no texts")
    mask = np.concatenate(masks)
    return TokenStream(np.concatenate(tokens), None if mask.all() else mask, source)


# --- records: the lines of a JSON file, or the rows of a table ------------------------------------------------


def pieces_of(
    records: Iterable[Mapping[str, object]], encoder: TextEncoder, source: str
) -> Iterator[TextSpan]:
    """The texts of records: `text`, `prompt` with `completion`, or `messages`."""
    for number, record in enumerate(records, 1):
        where = f"record {number} of {source}"
        if isinstance(record.get("messages"), list):
            yield encoder.conversation(_messages(record["messages"], where))
        elif "prompt" in record and "completion" in record:
            prompt, completion = (_text(record[key], key, where) for key in ("prompt", "completion"))
            yield TextSpan(prompt + completion, ((len(prompt), len(prompt) + len(completion)),))
        elif "text" in record:
            yield TextSpan(_text(record["text"], "text", where))
        else:
            hint = "a record holds 'text', 'prompt' and 'completion', or 'messages'"
            held = printable(", ".join(map(str, record)), 200) or "nothing"
            raise InputError(f"{where} holds {held}", hint=hint)


def _text(value: object, key: str, where: str) -> str:
    if isinstance(value, str):
        return value
    raise InputError(f"'{key}' in {where} is no text but {type(value).__name__}")


def _messages(value: object, where: str) -> list[Mapping[str, object]]:
    items = value if isinstance(value, list) else []
    wrong = not items or not all(
        isinstance(item, dict) and isinstance(item.get("role"), str) for item in items
    )
    if wrong:
        hint = 'messages are objects such as {"role": "user", "content": "…"}'
        raise InputError(f"'messages' in {where} is no conversation", hint=hint)
    return items
