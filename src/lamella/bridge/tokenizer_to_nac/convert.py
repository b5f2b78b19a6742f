"""A tokenizer of the package `tokenizers` as a manifest with its resources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.bridge.tokenizer_to_nac.document import Part, TokenizerProblem, read_document
from lamella.bridge.tokenizer_to_nac.endings import decoder_steps, template_steps
from lamella.bridge.tokenizer_to_nac.models import Tables, model_steps
from lamella.bridge.tokenizer_to_nac.normalizers import CHARSMAP, Steps, find_charsmap, normalizer_steps
from lamella.bridge.tokenizer_to_nac.splitting import splitting_steps
from lamella.bridge.tokenizer_to_nac.tables import LONGEST, write_tables
from lamella.lang.nac.assembly.nodes import Step
from lamella.lang.nac.assembly.programs import StepProblem, encode_manifest_step
from lamella.lang.nac.check.sections.manifest import MAGIC
from lamella.lang.nac.nodes import Resource
from lamella.lang.nac.rules import tokenizing as rules

FLAGS = ("special", "lstrip", "rstrip", "normalized", "single_word")
"""What added tokens may be, from the lowest bit on."""
NORMALIZED = 8
LARGEST_ID = 1 << 24


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """The manifest for PROC, the resources for RSRC, and what was left out."""

    manifest: bytes
    resources: tuple[Resource, ...]
    findings: tuple[Diagnostic, ...] = ()


def tokenizer_to_nac(data: bytes, name: str = "tokenizer.json") -> TokenizerParts:
    """The parts of a file that say what a `tokenizer.json` says; LamellaError with findings where nothing can."""
    try:
        document = read_document(data, name)
        steps, tables = _steps(document)
        _check_tables(document["model"], tables)
        table = find_charsmap(document["normalizer"])
        manifest = MAGIC + b"".join(_packed(document, step) for step in steps)
    except TokenizerProblem as problem:
        raise LamellaError([problem.finding]) from None
    more = () if table is None else (Resource(CHARSMAP, table),)
    return TokenizerParts(manifest, (*write_tables(tables), *more), tuple(_left_out(document)))


def _steps(document: Part) -> tuple[Steps, Tables]:
    added = [_added(item) for item in document["added_tokens"].items()]
    raw = tuple(token for token in added if not token[0] & NORMALIZED)
    normalized = tuple(token for token in added if token[0] & NORMALIZED)
    encoder, tables = model_steps(document["model"])
    steps = [
        *_added_step(raw),
        *normalizer_steps(document["normalizer"]),
        *_added_step(normalized),
        *splitting_steps(document["pre_tokenizer"]),
        *encoder,
        *template_steps(document["post_processor"]),
        *decoder_steps(document["decoder"]),
    ]
    return steps, tables


Token = tuple[int, int, str]


def _added(part: Part) -> Token:
    flags = sum(part[name].flag() << bit for bit, name in enumerate(FLAGS))
    return flags, part["id"].number(), part["content"].text()


def _added_step(tokens: tuple[Token, ...]) -> Steps:
    shown = tuple(token for token in tokens if token[2])
    return [Step("ADDED_TOKENS", shown)] if shown else []


def _check_tables(part: Part, tables: Tables) -> None:
    for token, number in tables.ids.items():
        text = Part(token, part.place, part.span).text()
        if len(text.encode("utf-8")) > LONGEST:
            raise part.wrong(f"has a token of more than {LONGEST} bytes")
        if number >= LARGEST_ID:
            raise part.wrong(f"gives a token the id {number}; {LARGEST_ID - 1} is the last")
    if tables.scores and any(score != score for score in tables.scores.values()):
        raise part.wrong("has a score that is no number")


def _packed(document: Part, step: Step) -> bytes:
    try:
        return encode_manifest_step(step)
    except StepProblem as problem:
        raise document.wrong(f"needs an instruction {step.name} that {problem.reason}") from None


def _left_out(document: Part) -> Iterator[Diagnostic]:
    reasons = {"truncation": "texts are encoded whole", "padding": "nothing is put behind short texts"}
    for name, reason in reasons.items():
        if document[name]:
            yield rules.LEFT_OUT.at(document.span, place=name, reason=reason)
    if document["model"]["dropout"]:
        yield rules.LEFT_OUT.at(document.span, place="model.dropout", reason="encoding is not random")
