"""Patterns that the parts of tokenizers stand for."""

from __future__ import annotations

from lamella.bridge.tokenizer_to_nac.document import Part

BYTE_LEVEL = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"
WORDS = r"[\w\x{200C}\x{200D}]+|[^\w\x{200C}\x{200D}\s]+"
CONTROL = r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x9F\x{FFFD}\p{Cf}\p{Co}]"
IDEOGRAPHS = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]"
)
NMT_DROPPED = r"[\x01-\x08\x0B\x0E-\x1F\x7F\x8F\x9F]"
NMT_SPACES = r"[\x09\x0A\x0C\x0D\x{1680}\x{200B}-\x{200F}\x{2028}\x{2029}\x{2581}\x{FEFF}\x{FFFD}]"


def escape(text: str) -> str:
    """The pattern of a literal text."""
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character == "\0":
        return r"\x00"
    return (
        f"\\{character}"
        if character.isascii() and not character.isalnum() and character != " "
        else character
    )


def read_pattern(part: Part) -> str:
    """A literal text or a pattern: `{"String": …}` or `{"Regex": …}`."""
    if part["Regex"]:
        return part["Regex"].text()
    return escape(part["String"].text())
