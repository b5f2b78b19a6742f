"""Token by token: the likeliest of an output is the next of an input, and what a model keeps stays between calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.pipeline.languages import Executable

LARGEST = 2**31


@runtime_checkable
class Generating(Executable, Protocol):
    """An executable that keeps states and knows what its inputs are."""

    @property
    def state(self) -> Mapping[str, Array]:
        """What is kept between calls, by name."""

    def type_of(self, name: str) -> str:
        """What an input is, as far as it is known."""

    def steers(self, name: str) -> bool:
        """Whether an input may be positions, lengths or a mask."""

    def shape_of(self, name: str) -> tuple[int | None, ...] | None:
        """The extents of an input, None for those that a call tells; None where nothing is known."""


def read_tokens(text: str) -> list[int]:
    """Numbers of tokens as a user writes them: `1,5,7`."""
    words = [word.strip() for word in text.split(",")]
    if not all(
        word.isascii() and word.isdigit() and len(word) <= 10 and int(word) < LARGEST for word in words
    ):
        raise InputError(f"'{text[:80]}' is no list of tokens", hint="write numbers with commas: 1,5,7")
    return [int(word) for word in words]


def generate(
    executable: Executable,
    loop: tuple[str, str],
    start: Sequence[int],
    count: int,
    others: Mapping[str, Array],
) -> list[int]:
    """The tokens that follow: each is the likeliest in the last row of an output, and is given to an input.

    `loop` names the input and the output. A model that keeps states is given one token in each call; one that keeps
    none is given all so far. `others` are the arrays of the other inputs.
    """
    target, source = loop
    if not isinstance(executable, Generating):
        hint = "convert the model to .nac, and run it without --backend"
        raise InputError("only NAC files on their virtual machine generate tokens", hint=hint)
    _require(source, executable.outputs, "output")
    _require(target, executable.inputs, "input")
    _require_steering(executable, target, others)
    shape = executable.shape_of(target)
    keeps = bool(executable.state)
    tokens = list(start)
    for token in tokens[:-1] if keeps else ():
        executable(**others, **{target: _array(target, [token], shape)})
    for _ in range(count):
        given = _array(target, tokens[-1:] if keeps else tokens, shape)
        tokens.append(_likeliest(source, executable(**others, **{target: given})[source]))
    return tokens[len(start) :]


def _require_steering(executable: Generating, target: str, given: Mapping[str, Array]) -> None:
    """Integers and masks beside the tokens decide what is computed: drawn at random they would change the tokens."""
    rest = [name for name in executable.inputs if name != target and name not in given]
    missing = [name for name in rest if executable.steers(name)]
    if missing:
        told = ", ".join(f"'{name[:80]}' ({executable.type_of(name)})" for name in missing)
        hint = " ".join(f"--input {name[:80]}=FILE.npy" for name in missing)
        what = f"input{'s' * (len(missing) > 1)} {told}"
        raise InputError(f"{what} may steer the model, and so is never random", hint=f"give it: {hint}")


def _require(name: str, names: Sequence[str], what: str) -> None:
    if name not in names:
        raise InputError(
            f"there is no {what} '{name[:80]}'", hint=f"{what}s are: {', '.join(names) or 'none'}"
        )


def _array(name: str, tokens: Sequence[int], shape: tuple[int | None, ...] | None) -> Array:
    """Tokens as an input of one row."""
    rank = 2 if shape is None else len(shape)
    wanted = (*(1,) * (rank - 1), len(tokens)) if rank else ()
    if shape is not None and any(size not in (None, want) for size, want in zip(shape, wanted, strict=True)):
        hint = "one token is given in each call, all so far to a model that keeps no states"
        raise InputError(f"input '{name[:80]}' has shape {list(shape)}, not {list(wanted)}", hint=hint)
    return np.array(tokens[-1] if not rank else tokens, np.int64).reshape(wanted)


def _likeliest(name: str, found: Array) -> int:
    if found.ndim == 0 or found.size == 0:
        raise InputError(f"output '{name[:80]}' has shape {list(found.shape)}, and so no row to choose from")
    return int(found.reshape(-1, found.shape[-1])[-1].argmax())
