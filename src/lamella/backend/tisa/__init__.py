"""The tokenizers of NAC: runs the manifest of a file over its vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lamella.backend.tisa.build import Decoder, TokenizerBuilder
from lamella.backend.tisa.stages import SPECIAL, Encode
from lamella.backend.tisa.vocabulary import load_vocabulary
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import Found, Malformed
from lamella.base.source import NOWHERE
from lamella.lang.nac.assembly.programs import decode_manifest
from lamella.lang.nac.check.manifest import check_manifest
from lamella.lang.nac.nodes import File
from lamella.lang.nac.rules import sections

# --- tokenizers: texts to ids and back, as the manifest of a file says --------------------------------------


@dataclass(frozen=True, slots=True)
class ManifestTokenizer:
    """A tokenizer that is ready; `load_tokenizer` makes it."""

    _encode: Encode
    _template: tuple[int | None, ...]
    _decoders: Sequence[Decoder]
    _ids: dict[str, int]
    _tokens: dict[int, str]
    _special: frozenset[int]

    def encode(self, text: str) -> list[int]:
        """The ids of a text, within the template of the manifest where it has one."""
        try:
            found = list(self._encode(text)) if text else []
        except Malformed as problem:
            raise LamellaError([sections.PATTERN.at(NOWHERE, pattern="…", reason=str(problem))]) from None
        if self._template == (None,):
            return found
        ids: list[int] = []
        for item in self._template:
            ids += found if item is None else [item]
        return ids

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """The text of ids; those without a token are left out, special ones too unless they are asked for."""
        shown = (number for number in ids if special or number not in self._special)
        tokens = [self._tokens[number] for number in shown if number in self._tokens]
        for decoder in self._decoders:
            tokens = decoder(tokens)
        return "".join(tokens)

    def id_of(self, token: str) -> int | None:
        """The id of a token, or None where there is no such token."""
        return self._ids.get(token)

    def token_of(self, number: int) -> str | None:
        """The token of an id, or None where there is none."""
        return self._tokens.get(number)


def load_tokenizer(file: File) -> ManifestTokenizer:
    """The tokenizer that a file carries in PROC and RSRC; LamellaError with findings where it cannot be run."""
    if not len(file.manifest):
        raise LamellaError([sections.NO_MANIFEST.at(file.span)])
    findings = errors(check_manifest(file))
    if findings:
        raise LamellaError(findings)
    try:
        return _load(file)
    except Found as problem:
        raise LamellaError(problem.findings) from None


def _load(file: File) -> ManifestTokenizer:
    steps = decode_manifest(file.manifest)
    vocabulary = load_vocabulary(file)
    if steps is None:
        problem = "holds what the text of manifests cannot say"
        finding = sections.MANIFEST_CUT.at(
            file.manifest_span, name="an instruction", offset=0, problem=problem
        )
        raise Found(finding)
    if vocabulary is None:
        raise Found(sections.NO_VOCABULARY.at(file.manifest_span, name="the manifest"))
    builder = TokenizerBuilder(vocabulary, file.manifest_span, {item.name: item for item in file.resources})
    builder.run(steps)
    tokens, ids = vocabulary.tokens(), dict(vocabulary.ids)
    for token in builder.added:
        ids[token.text] = token.id
        tokens[token.id] = token.text
    special = frozenset(token.id for token in builder.added if token.flags & SPECIAL)
    encode = builder.encode or (lambda text: [])
    template = (None,) if builder.template is None else builder.template
    return ManifestTokenizer(encode, template, tuple(builder.decoders), ids, tokens, special)


__all__ = ["ManifestTokenizer", "load_tokenizer"]
