"""Tensors that a checkpoint has and nobody takes, tensors that it lacks, and the names nearest to them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Container, Iterable, Mapping, Sequence

from lamella.base.suggest import nearest

_DIGITS = re.compile(r"\d+")
_BUFFER = re.compile(
    r"(.*\.)?("
    r"rotary_emb\.(inv_freq|original_inv_freq|cos_cached|sin_cached)|position_ids|"
    r"(attn|attention|self_attn|attention\.self)\.(bias|masked_bias|rotary_emb\.inv_freq)|"
    r"(attn|attention)\.attention\.(bias|masked_bias)"
    r")"
)
"""Tables that old versions of transformers stored with the weights, and that are computed."""
_MOST_CANDIDATES = 300
_MOST_SEARCHES = 50


def is_buffer(name: str) -> bool:
    """Whether a tensor is a known table and no weight: rotary frequencies, positions, causal masks."""
    return _BUFFER.fullmatch(name) is not None


class Patterns:
    """Patterns of names such as `vision_*` that may stay unused."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._pattern = re.compile("|".join(map(fnmatch.translate, patterns))) if patterns else None

    def __contains__(self, name: str) -> bool:
        return self._pattern is not None and self._pattern.match(name) is not None


def template_of(name: str) -> str:
    """A name with its numbers left open: those of all layers are alike."""
    return _DIGITS.sub("{}", name)


class Readers:
    """Which parameter would read a tensor that nothing reads: under other values, with more layers, beside another.

    `dormant` is that of an expanded mapping, `wanted` are the names of tensors that are read, and `used` the parameter
    of each.
    """

    def __init__(
        self,
        dormant: Mapping[str, tuple[str, str]],
        wanted: Iterable[str],
        used: Mapping[str, str],
        prefix: str,
    ) -> None:
        self._dormant, self._used, self._prefix = dormant, used, prefix
        self._wanted = {template_of(name) for name in wanted}
        self._owners = {name.rpartition(".")[0]: name for name in used if "." in name}

    def find(self, name: str) -> str | None:
        """Who would read a tensor, as a message says it; None where nobody would."""
        template = template_of(name)
        asleep = self._dormant.get(spelled(template, self._prefix, self._dormant))
        if asleep is not None:
            path, condition = asleep
            return f"'{path}' reads it where its condition {condition} is true"
        if spelled(template, self._prefix, self._wanted) in self._wanted:
            return "it is read where its index is in range, and it is beyond what the config says"
        beside = self._owners.get(name.rpartition(".")[0])
        if beside is not None:
            return f"it belongs to the layer of '{beside}', which '{self._used[beside]}' reads"
        return None


class Neighbours:
    """Finds the nearest of many names; names that differ only in their numbers are compared once."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = dict.fromkeys(names)
        self._examples: dict[str, str] = {}
        for name in self._names:
            self._examples.setdefault(template_of(name), name)
        self._candidates = list(self._examples)[:_MOST_CANDIDATES]
        self._found: dict[str, str | None] = {}

    def nearest(self, name: str) -> str | None:
        """The nearest name, with the same numbers where it exists with them."""
        template = template_of(name)[:300]
        if template not in self._found:
            if len(self._found) >= _MOST_SEARCHES:
                return None
            close = nearest(template, self._candidates)
            self._found[template] = close[0] if close else None
        found = self._found[template]
        return None if found is None else self._with_numbers(found, _DIGITS.findall(name))

    def _with_numbers(self, template: str, numbers: list[str]) -> str:
        parts = template.split("{}")
        if len(parts) == len(numbers) + 1:
            same = "".join(part + number for part, number in zip(parts, [*numbers, ""], strict=True))
            if same in self._names:
                return same
        return self._examples[template]


def spelled(name: str, prefix: str, tensors: Container[str]) -> str:
    """The name under which a tensor stands in a checkpoint, with the prefix of the model or without it."""
    if not prefix or name in tensors:
        return name
    short, long = name.removeprefix(f"{prefix}."), f"{prefix}.{name}"
    return short if short in tensors else long if long in tensors else name
