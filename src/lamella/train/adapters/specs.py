"""What an adapter is: its kind, its sizes, and the weights that it adds to, as a user or `@adapter` says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.base.suggest import list_known

LORA, DORA, IA3, PREFIX, PROMPT, BOTTLENECK = "lora", "dora", "ia3", "prefix", "prompt", "bottleneck"
KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        LORA: ("rank", "alpha", "dropout", "targets"),
        DORA: ("rank", "alpha", "targets"),
        IA3: ("targets",),
        PREFIX: ("length", "hidden_dim"),
        PROMPT: ("length",),
        BOTTLENECK: ("dim", "activation", "targets"),
    }
)
"""Kinds of adapters, and the words that each takes."""
DEFAULT_TARGETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {LORA: ("q", "v"), DORA: ("q", "v"), IA3: ("k", "v", "down"), BOTTLENECK: ("o", "down")}
)
"""The weights that a kind adds to where nobody says which; all where a model has none of these."""
ACTIVATIONS = ("relu", "gelu", "silu")
MOST = 1 << 20
"""The largest rank, length or width of an adapter."""


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """One kind of adapter with its sizes."""

    kind: str
    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ()
    """Names of weights, or of parts of them; empty for those that are usual."""
    length: int = 10
    """Virtual tokens of a prefix or a prompt."""
    dim: int = 64
    """The width of a bottleneck."""
    activation: str = "relu"
    dropout: float = 0.0
    """The share of the numbers that a product of low rank is given 0 for in a step; evaluations have all of them."""
    hidden_dim: int = 0
    """The width of the network that a prefix is made by while it is trained; 0 where it is trained itself."""
    own: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """The rank and alpha of modules that have others than the rest."""

    def of(self, module: str) -> AdapterSpec:
        """The adapter of one module."""
        rank, alpha = self.own.get(module, (self.rank, self.alpha))
        return replace(self, rank=rank, alpha=alpha, own={})

    @property
    def scale(self) -> float:
        """What a product of low rank is multiplied with."""
        return self.alpha / self.rank


def parse_spec(words: str) -> AdapterSpec:
    """An adapter as `kind:name=value,…` says it; a word without `=` is one more target."""
    kind, _, rest = words.partition(":")
    known = KINDS.get(kind)
    if known is None:
        hint = list_known(kind, KINDS)
        raise InputError(f"there is no adapter '{printable(kind, 40)}'", hint=hint)
    spec = AdapterSpec(kind)
    name = ""
    for word in (item.strip() for item in rest.split(",") if item.strip()):
        key, equals, value = word.partition("=")
        name = key if equals else name
        if name not in known or (not equals and name != "targets"):
            raise InputError(
                f"'{printable(word, 60)}' says nothing of {kind}", hint=list_known(name, known, "it takes:")
            )
        spec = _with(spec, name, value if equals else word)
    return spec


def _with(spec: AdapterSpec, name: str, value: str) -> AdapterSpec:
    """The adapter with one more word."""
    if name == "targets":
        return replace(spec, targets=(*spec.targets, *(item for item in value.split("+") if item)))
    if name == "activation":
        if value not in ACTIVATIONS:
            raise InputError(
                f"there is no activation '{printable(value, 40)}'",
                hint=list_known(value, ACTIVATIONS),
            )
        return replace(spec, activation=value)
    if name == "alpha":
        return replace(spec, alpha=_positive(name, value, float))
    if name == "dropout":
        return replace(spec, dropout=_share(value))
    number = int(_positive(name, value, int))
    if name in ("rank", "length"):
        return replace(spec, rank=number) if name == "rank" else replace(spec, length=number)
    return replace(spec, dim=number) if name == "dim" else replace(spec, hidden_dim=number)


def _share(value: str) -> float:
    """A share of dropout as a word says it."""
    try:
        number = float(value) if len(value) < 40 else math.nan
    except ValueError:
        number = math.nan
    return require_share(number, value)


def require_share(number: float, said: object) -> float:
    """A share that leaves something; InputError for another."""
    if not 0 <= number < 1:
        raise InputError(
            f"dropout is a number from 0 on and below 1, not '{printable(str(said), 40)}'",
            hint="0.1 leaves nine of ten numbers",
        )
    return number


def _positive(name: str, value: str, kind: type[int] | type[float]) -> float:
    try:
        number = kind(value) if len(value) < 40 else 0
    except ValueError:
        number = 0
    if not 0 < number <= MOST:
        raise InputError(f"{name} is a number above 0, and {MOST} at most, not '{printable(value, 40)}'")
    return number


def spec_of_annotation(arguments: Mapping[str, object]) -> AdapterSpec:
    """The adapter that `@adapter(…)` declares."""
    kind = str(arguments.get("type"))
    targets = arguments.get("targets")
    return AdapterSpec(
        BOTTLENECK if kind == "adapter" else kind,
        rank=_integer(arguments.get("rank"), 16),
        alpha=_real(arguments.get("alpha"), 32.0),
        targets=tuple(map(str, targets)) if isinstance(targets, tuple | list) else (),
        length=_integer(arguments.get("length"), 10),
        dim=_integer(arguments.get("bottleneck_dim"), 64),
        activation=str(arguments.get("activation", "relu")),
        dropout=require_share(_real(arguments.get("dropout"), 0.0), arguments.get("dropout")),
        hidden_dim=_integer(arguments.get("hidden_dim"), 0),
    )


def _integer(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


def _real(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) else default
