"""How a file is read and what is made of it: the options of the API and of the commands, in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import cast

from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT, Limits


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
    model: str | None = None
    """Which graph of several; by default the first."""
    config: Mapping[str, object] = field(default_factory=dict)
    """Values of the graph's attributes and generic types."""
    dialect: str = "specification"
    """SkriptND: which library gives operators of one name their meaning."""
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
    """Options by their names; one that does not exist is told."""
    names = [item.name for item in fields(Options)]
    unknown = [word for word in words if word not in names]
    if unknown:
        raise InputError(f"there is no option '{unknown[0]}'", hint=f"options are: {', '.join(names)}")
    paths = {name: Path(str(words[name])) for name in ("root", "weights") if words.get(name) is not None}
    return cast("Callable[..., Options]", Options)(**{**words, **paths})
