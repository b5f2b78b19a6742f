"""How a file is read and what is made of it: the options of the API and of the commands, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import cast

from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits

DIALECTS = ("specification", "newer")
KINDS = MappingProxyType(
    {
        "limits": Limits,
        "allow_future": bool,
        "config": Mapping,
        "quantized": bool,
        "lock": bool,
        "listing": bool,
        "training": bool,
        "lr": float,
        "types": Mapping,
        "embed": Mapping,
        "plain_signatures": bool,
        "external": bool,
        "axis": int,
        "cache": int,
        "seed": int,
        "groups": int,
        "threads": int,
        "check_bounds": bool,
        "root": Path,
        "weights": Path,
        "tokenizer": Path,
        "plan": Path,
    }
)
"""The kinds of the options that are no words."""
OPTIONAL = frozenset(
    [
        *("language", "root", "device", "kernel", "after", "target"),
        *("model", "preset", "dialect", "weights", "dtype"),
        *("quantize", "optimize", "external", "tokenizer", "plan", "lr"),
    ]
)
"""The options that may be None, as if they were not given."""


@dataclass(frozen=True, slots=True)
class Options:
    """Each language and each backend takes what concerns it."""

    language: str | None = None
    """Read the file as this language, whatever its ending."""
    limits: Limits = DEFAULT
    root: Path | None = None
    """Files named by a file lie below this folder; by default the folder of the main file."""
    device: str | None = None
    """NEM: the target device."""
    allow_future: bool = False
    """NEM: bind opcodes of future hardware too."""
    order: str = "program"
    """NEM: another legal order of the tasks."""
    kernel: str | None = None
    """Tensor language: the one kernel to run; empty for the only one of a file."""
    groups: int | tuple[int, ...] = 1
    """Tensor language: how many work-groups are launched, along x or along x, y and z."""
    check_bounds: bool = False
    """Tensor language: test views where they are made, not only where they are accessed."""
    trace: Callable[[str], None] | None = None
    """Tensor language: called with a line for each executed statement, up to a bound."""
    after: str | None = None
    """Tensor language: the pass to stop behind."""
    target: str | None = None
    """Tensor language: what kernels are compiled for; by default this machine."""
    threads: int = 0
    """Tensor language: how many threads run the work-groups; 0 for as many as there are processors."""
    listing: bool = False
    """NAC: show the instructions as pseudo-code."""
    training: bool = False
    """NAC: run a step of the training graph, not the program alone."""
    lr: float | None = None
    """NAC: the learning rate of a step, in the place of those that the training graph has."""
    types: Mapping[str, str] = field(default_factory=dict)
    """NAC: what an input is, such as `f32[2, 8]`, where the file does not say."""
    embed: Mapping[str, str] = field(default_factory=dict)
    """NAC: files to put into the file, by the names they get."""
    tokenizer: Path | None = None
    """NAC: a `tokenizer.json` to put into the file."""
    plan: Path | None = None
    """NAC: a file whose plan is put into the file."""
    plain_signatures: bool = False
    """NAC: write signatures without roles, as the public compiler does."""
    external: bool | None = None
    """NAC: write weights into a .safetensors file beside the file; by default they stay where they are."""
    quantize: str | None = None
    """NAC: store weights by this method."""
    axis: int = 0
    """NAC: the axis along which INT8_CHANNEL has its scales."""
    optimize: str | None = None
    """How graphs are simplified before they are written: none, exact or relaxed."""
    model: str | None = None
    """Which graph of several; by default the first."""
    config: Mapping[str, object] = field(default_factory=dict)
    """Values of the graph's attributes and generic types."""
    cache: int = 0
    """Module DSL: build a model that is called again for the next tokens, with room for so many positions."""
    lock: bool = False
    """Module DSL: write beside a file what its imports lead to."""
    preset: str | None = None
    """Module DSL: a named set of config values of the file."""
    allow: tuple[str, ...] = ()
    """Module DSL: tensors of a checkpoint that may stay unused, as patterns."""
    dialect: str | None = None
    """SkriptND: which library gives operators of one name their meaning; by default the specification's."""
    keep: tuple[str, ...] = ()
    """Operators that are taken whole; by default those of the library."""
    decompose: tuple[str, ...] = ()
    """Operators that are replaced by their composition, where they have one."""
    passes: tuple[str, ...] = ()
    """Passes over the graph, in order."""
    weights: Path | None = None
    """A folder of .dat files or a .safetensors file; by default the folder of the model, then random numbers."""
    shape: Mapping[str, int] = field(default_factory=dict)
    """Values of extents that the model leaves open."""
    dtype: str | None = None
    """Compute real numbers in this type: f32 or f64."""
    quantized: bool = False
    """Apply the quantisation that the model describes."""
    seed: int = 0
    """Seed of the inputs and weights that nobody gives."""


def options_of(words: Mapping[str, object]) -> Options:
    """Options by their names; one that does not exist, or has a value of another kind, is told."""
    names = [item.name for item in fields(Options)]
    unknown = next((word for word in words if word not in names), None)
    if unknown is not None:
        raise InputError(f"there is no option '{unknown}'", hint=f"options are: {', '.join(names)}")
    given = {name: _taken(name, value) for name, value in words.items()}
    found = cast("Callable[..., Options]", Options)(**given)
    if found.dialect is not None and found.dialect not in DIALECTS:
        raise InputError(
            f"there is no dialect '{found.dialect}'", hint=f"dialects are: {', '.join(DIALECTS)}"
        )
    return found


def _taken(name: str, value: object) -> object:
    """The value of an option in the type that it has; a single word is taken for a list of one."""
    if name in ("root", "weights", "tokenizer", "plan") and isinstance(value, str | Path):
        return Path(value)
    if name in ("keep", "decompose", "passes", "allow"):
        return (value,) if isinstance(value, str) else _words(name, value)
    if name == "shape":
        return _extents(value)
    if name == "groups" and isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(value)
    if name == "trace":
        return _function(value)
    if name == "lr" and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    wanted = KINDS.get(name, str)
    optional = name in OPTIONAL
    if isinstance(value, wanted) and not (wanted is int and isinstance(value, bool)):
        return value
    if value is None and optional:
        return None
    raise InputError(f"option '{name}' is a {wanted.__name__}, not a {type(value).__name__}")


def _words(name: str, value: object) -> tuple[str, ...]:
    items = tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(item, str) for item in items):
        raise InputError(f"option '{name}' is a list of words")
    return items


def _function(value: object) -> object:
    if value is None or callable(value):
        return value
    raise InputError("option 'trace' is a function that takes a line")


def _extents(value: object) -> Mapping[str, int]:
    if isinstance(value, Mapping) and all(_is_extent(item) for item in value.values()):
        return value
    raise InputError("option 'shape' holds extents by name, such as {'n': 3}")


def _is_extent(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
