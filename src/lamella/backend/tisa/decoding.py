"""Instructions that lead back: from tokens to the text that they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from lamella.backend.tisa.changes import byte_alphabet
from lamella.backend.tisa.patterns import Matcher, parse_pattern
from lamella.lang.nac.assembly.nodes import ProgramStep

Tokens = list[str]
Decoder = Callable[[Tokens], Tokens]
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_CLEANED = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip


def build_decoder(step: ProgramStep) -> Decoder:
    """What an instruction does with the tokens."""
    return _DECODERS[step.name](*step.operands)


def is_decoder(name: str) -> bool:
    """Whether an instruction leads back."""
    return name in _DECODERS


def decode_bytes() -> Decoder:
    """DECODE_BYTES: tokens of the byte alphabet, others as they are."""
    bytes_of = {character: byte for byte, character in enumerate(byte_alphabet())}

    def token_bytes(token: str) -> bytes:
        try:
            return bytes([bytes_of[character] for character in token])
        except KeyError:
            return token.encode("utf-8", "replace")

    return lambda tokens: [b"".join(map(token_bytes, tokens)).decode("utf-8", "replace")]


def decode_wordpieces(marker: object, cleaned: object) -> Decoder:
    """DECODE_WORDPIECES: a space before each word but the first, none before what continues one."""
    mark = str(marker)

    def one(place: int, token: str) -> str:
        if place:
            token = token.replace(mark, "", 1) if token.startswith(mark) else f" {token}"
        for old, new in _CLEANED if cleaned else ():
            token = token.replace(old, new)
        return token

    return lambda tokens: [one(place, token) for place, token in enumerate(tokens)]


def decode_spaces(mark: object, drop: object) -> Decoder:
    """DECODE_SPACES: marks are spaces; in the first token they may stand for nothing."""

    def one(place: int, token: str) -> str:
        return token.replace(str(mark), "" if drop and not place else " ")

    return lambda tokens: [one(place, token) for place, token in enumerate(tokens)]


def _fuse() -> Decoder:
    return lambda tokens: ["".join(tokens)]


def _strip(content: object, start: object, stop: object) -> Decoder:
    character, first, last = str(content), _number(start), _number(stop)

    def one(token: str) -> str:
        begin = min(first, len(token) - len(token.lstrip(character)))
        end = len(token) - min(last, len(token) - len(token.rstrip(character)))
        return token[begin : max(begin, end)]

    return lambda tokens: [one(token) for token in tokens]


def _number(operand: object) -> int:
    return operand if isinstance(operand, int) else 0


def _fallback() -> Decoder:
    return _join_bytes


def _join_bytes(tokens: Tokens) -> Tokens:
    """Tokens `<0x41>` in a row are the bytes of a text; where they are none, each is a replacement character."""
    found: Tokens = []
    waiting = bytearray()
    for token in [*tokens, ""]:
        byte = _BYTE.fullmatch(token)
        if byte:
            waiting.append(int(byte[1], 16))
            continue
        if waiting:
            found += _texts_of(bytes(waiting))
            waiting.clear()
        found.append(token)
    return found[:-1]


def _texts_of(data: bytes) -> Tokens:
    try:
        return [data.decode("utf-8")]
    except UnicodeDecodeError:
        return ["\ufffd"] * len(data)


def _replace(is_pattern: object, old: object, new: object) -> Decoder:
    if is_pattern:
        matcher = Matcher([parse_pattern(str(old))])
        return lambda tokens: [matcher.replace(token, lambda _: str(new)) for token in tokens]
    if not old:
        return lambda tokens: tokens
    return lambda tokens: [token.replace(str(old), str(new)) for token in tokens]


def _suffix(suffix: object) -> Decoder:
    def one(place: int, token: str, count: int) -> str:
        return token.replace(str(suffix), "" if place == count - 1 else " ") if suffix else token

    return lambda tokens: [one(place, token, len(tokens)) for place, token in enumerate(tokens)]


def _join(separator: object) -> Decoder:
    return lambda tokens: [str(separator).join(tokens)]


_DECODERS: Mapping[str, Callable[..., Decoder]] = MappingProxyType(
    {
        "DECODE_BYTES": decode_bytes,
        "DECODE_WORDPIECES": decode_wordpieces,
        "DECODE_SPACES": decode_spaces,
        "DECODE_FUSE": _fuse,
        "DECODE_STRIP": _strip,
        "DECODE_FALLBACK": _fallback,
        "DECODE_REPLACE": _replace,
        "DECODE_SUFFIX": _suffix,
        "DECODE_JOIN": _join,
    }
)


def published_decoders(steps: Sequence[ProgramStep]) -> list[Decoder]:
    """The ways back of a manifest that names none: those of the way there."""
    operands = {step.name: step.operands for step in steps}
    if "BYTE_ENCODE" in operands:
        return [decode_bytes()]
    if "WORDPIECE_ENCODE" in operands:
        return [decode_wordpieces(operands["WORDPIECE_ENCODE"][0], 0)]
    return [decode_spaces("▁", 0), _fuse(), _strip(" ", 1, 0)]
