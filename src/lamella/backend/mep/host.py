"""What a plan may ask of the outside: the machine touches nothing itself, and asks a host only for what is granted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from lamella.base.arrays import Array

PROMPT, PRINT, READ, WRITE, MODELS = "prompt", "print", "read", "write", "models"
CAPABILITIES: tuple[str, ...] = (PROMPT, PRINT, READ, WRITE, MODELS)
"""What can be granted: asking a person, printing, reading files, writing files, loading models of other files."""
FOLDERS: tuple[str, ...] = (READ, WRITE, MODELS)
"""Capabilities that are granted for one folder and what lies below it."""


class HostError(Exception):
    """A host could not do what it was asked; the reason stands behind a colon."""

    def __init__(self, reason: str, repair: str = "look at what the plan asks for") -> None:
        super().__init__(reason)
        self.reason = reason
        self.repair = repair


class Tokenizer(Protocol):
    """Texts to numbers and back."""

    def encode(self, text: str, /) -> Sequence[int]:
        """The ids of a text."""

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of ids."""

    def id_of(self, token: str, /) -> int | None:
        """The id of a token, or None where there is no such token."""


class Model(Protocol):
    """A model that a plan has loaded."""

    def __call__(self, *inputs: Array) -> Sequence[Array]:
        """Run once: the inputs in the order of their instructions, the outputs in theirs."""

    def run_block(self, first: int, last: int, values: Sequence[Array], /) -> Sequence[Array]:
        """Run instructions `first` to `last`: what `lang.nac.blocks.find_block` says that they take and give.

        Called from two threads at once where a plan runs two blocks side by side.
        """


class Host(Protocol):
    """The outside of a plan; every method may raise HostError, InputError or LamellaError.

    Paths are relative, lead down, and are meant from the folder that was granted.
    """

    @property
    def own_names(self) -> Collection[str]:
        """Paths that name the file of the plan itself, beside `self`."""

    def load_model(self, path: str, /) -> Model:
        """A model by its path; `self` is that of the plan's own file."""

    def tokenizer(self, path: str, /) -> Tokenizer:
        """The tokenizer that comes with the model of a path."""

    def prompt(self, question: str, /) -> str:
        """The answer of a person."""

    def read_array(self, path: str, /) -> Array:
        """The array of a `.npy` file."""

    def read_image(self, path: str, height: int, width: int, /) -> Array:
        """A picture as uint8 of shape (height, width, 3), resized; a width of 0 keeps the proportions.

        The shorter side has `height` pixels then.
        """

    def print_text(self, stream: str, text: str, /) -> None:
        """Print on `stdout` or `stderr`; the text brings its own line ends."""

    def write_file(self, path: str, data: bytes, append: bool, /) -> None:
        """Write a file whole, or add to its end."""
