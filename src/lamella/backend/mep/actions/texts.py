"""Texts: tokens, formats, and values as text, JSON or a picture."""

from __future__ import annotations

import json
from types import MappingProxyType

import numpy as np

from lamella.backend.mep.actions.pictures import encode_png
from lamella.backend.mep.faults import fault
from lamella.backend.mep.state import Actions, State
from lamella.backend.mep.values import (
    Value,
    as_array,
    as_integers,
    as_text,
    as_tokenizer,
    bytes_of,
    show,
    shown_bytes,
    words_for,
)
from lamella.base.diagnostic import printable
from lamella.base.limits import LARGEST, SMALLEST
from lamella.lang.nac.check.sections import opcodes
from lamella.lang.nac.check.sections.uses import fill

_JSON, _PNG = 1, 2


def _encode(state: State, numbers: tuple[int, ...]) -> None:
    tokenizer, source, out = numbers
    known, text = as_tokenizer(state.read(tokenizer)), as_text(state.read(source))
    found = tuple(state.ask("encodes a text", lambda: known.encode(text)))
    if not all(SMALLEST <= item <= LARGEST for item in found):
        raise fault("gets ids that are no integers of 64 bits", "look at the tokenizer")
    state.write(out, found)


def _decode(state: State, numbers: tuple[int, ...]) -> None:
    tokenizer, source, out = numbers
    known, ids = as_tokenizer(state.read(tokenizer)), as_integers(state.read(source))
    state.write(out, state.ask("decodes ids", lambda: known.decode(ids)))


def _get_id(state: State, numbers: tuple[int, ...]) -> None:
    tokenizer, id_, out = numbers
    known, token = as_tokenizer(state.read(tokenizer)), state.text(id_)
    found = state.ask("looks a token up", lambda: known.id_of(token))
    if found is None:
        raise fault(
            f"looks for the token '{printable(token, 80)}', which is not there",
            "name a token of the vocabulary",
        )
    state.write(out, found)


def _format(state: State, numbers: tuple[int, ...]) -> None:
    out, id_, *slots = numbers
    values, text = state.read_all(slots), state.text(id_)
    state.keep_room(shown_bytes(values) + bytes_of(text))
    state.write(out, fill(text, map(show, values)))


def _serialize(state: State, numbers: tuple[int, ...]) -> None:
    out, source, kind = numbers
    value = state.read(source)
    if kind == _PNG:
        array = as_array(value)
        state.keep_room(array.size)
        state.write(out, encode_png(array))
        return
    state.keep_room(shown_bytes([value]))
    state.write(out, _to_json(value) if kind == _JSON else show(value))


def _to_json(value: Value) -> str:
    plain = value.tolist() if isinstance(value, np.ndarray) else value
    try:
        return json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError):
        raise fault(f"cannot write {words_for(value)} as JSON", "JSON has texts and finite numbers") from None


TEXTS: Actions = MappingProxyType(
    {
        0x20: _encode,
        0x21: _decode,
        opcodes.GET_ID: _get_id,
        opcodes.FORMAT: _format,
        0xE0: _serialize,
    }
)
"""Instructions that make texts, or tokens of them."""
