"""Post-processors as a template, decoders as instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from lamella.bridge.tokenizer_to_nac.document import Part
from lamella.bridge.tokenizer_to_nac.normalizers import Steps
from lamella.bridge.tokenizer_to_nac.patterns import read_pattern
from lamella.lang.nac.assembly.nodes import Step

Template = tuple[int | None, ...]
PLACE: Template = (None,)
"""The place of the text alone."""


def template_steps(part: Part) -> Steps:
    """The template of a post-processor, where it adds something to a single text."""
    template = _template(part)
    if template == PLACE:
        return []
    return [Step("COMPOSE", tuple(() if item is None else item for item in template))]


def _template(part: Part) -> Template:
    if not part:
        return PLACE
    match part.kind:
        case "Sequence":
            template = PLACE
            for item in part["processors"].items():
                template = _around(_template(item), template)
            return template
        case "ByteLevel":
            return PLACE
        case "BertProcessing" | "RobertaProcessing":
            return _pair_id(part["cls"]), None, _pair_id(part["sep"])
        case "TemplateProcessing":
            return tuple(number for item in part["single"].items() for number in _item(part, item))
        case kind:
            raise part.unsayable(f"the post-processor '{kind}'")


def _around(outer: Template, inner: Template) -> Template:
    return tuple(number for item in outer for number in (inner if item is None else (item,)))


def _pair_id(part: Part) -> int:
    items = list(part.items())
    if len(items) != 2:
        raise part.wrong("is not a token with its id")
    return items[1].number()


def _item(part: Part, item: Part) -> Template:
    if item["SpecialToken"]:
        name = item["SpecialToken"]["id"].text()
        return tuple(number.number() for number in part["special_tokens"][name]["ids"].items())
    if item["Sequence"]["id"].text() != "A":
        raise item.unsayable("the second of two texts")
    return PLACE


# --- decoders -----------------------------------------------------------------------------------------------


def decoder_steps(part: Part) -> Steps:
    """The instructions of a decoder; tokens stand apart where there is none."""
    return _decoders(part) if part else [Step("DECODE_JOIN", (" ",))]


def _decoders(part: Part) -> Steps:
    if part.kind == "Sequence":
        return [step for item in part["decoders"].items() for step in _decoders(item)]
    if part.kind not in _DECODERS:
        raise part.unsayable(f"the decoder '{part.kind}'")
    return [_DECODERS[part.kind](part)]


def _wordpieces(part: Part) -> Step:
    return Step("DECODE_WORDPIECES", (part["prefix"].text("##"), int(part["cleanup"].flag(True))))


def _spaces(part: Part) -> Step:
    old = "always" if part["add_prefix_space"].flag(True) else "never"
    drops = part["prepend_scheme"].text(old) != "never"
    return Step("DECODE_SPACES", (part["replacement"].text("▁"), int(drops)))


def _strip(part: Part) -> Step:
    counts = (part[key].number(0, 65535) for key in ("start", "stop"))
    return Step("DECODE_STRIP", (part["content"].text(), *counts))


def _replace(part: Part) -> Step:
    content = part["content"].text()
    if part["pattern"]["String"]:
        return Step("DECODE_REPLACE", (0, part["pattern"]["String"].text(), content))
    return Step("DECODE_REPLACE", (1, read_pattern(part["pattern"]), content))


_DECODERS: Mapping[str, Callable[[Part], Step]] = MappingProxyType(
    {
        "ByteLevel": lambda _: Step("DECODE_BYTES", ()),
        "WordPiece": _wordpieces,
        "Metaspace": _spaces,
        "Fuse": lambda _: Step("DECODE_FUSE", ()),
        "Strip": _strip,
        "ByteFallback": lambda _: Step("DECODE_FALLBACK", ()),
        "Replace": _replace,
        "BPEDecoder": lambda part: Step("DECODE_SUFFIX", (part["suffix"].text("</w>"),)),
    }
)
