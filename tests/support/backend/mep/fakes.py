"""Hosts of plans for tests: one that notes every touch, with a tokenizer of words and a model that counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from lamella.backend.mep import CAPABILITIES, PlanBudget, PlanResult, Value, run_plan
from lamella.backend.mep.state import PlanModel, UntrainedModel
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.source import Source
from lamella.lang.nac import assemble
from lamella.lang.nac.nodes import File

WORDS = ("<eos>", "one", "two", "three", "four", "five", "six", "seven")
ALL = frozenset(CAPABILITIES)
MODEL = "%x = input()\n%y = nac.neg(%x)\n%z = output(%y)"
"""Code for files whose plan is what matters."""


class WordTokenizer:
    """Words to their places in a list."""

    def encode(self, text: str, /) -> Sequence[int]:
        """The ids of words."""
        return [WORDS.index(word) for word in text.split() if word in WORDS]

    def decode(self, ids: Sequence[int], /) -> str:
        """Words with spaces between them."""
        return " ".join(WORDS[item] if 0 <= item < len(WORDS) else "?" for item in ids)

    def id_of(self, token: str, /) -> int | None:
        """The id of a word."""
        return WORDS.index(token) if token in WORDS else None


@dataclass
class CountingModel(UntrainedModel):
    """Logits of shape (1, n, words): behind every word the next one is likeliest, and `<eos>` behind `six`."""

    touched: list[str]
    block: Callable[[int, int, Sequence[Array]], Sequence[Array]] | None = None

    def __call__(self, *inputs: Array) -> Sequence[Array]:
        """The logits for every position of the ids."""
        self.touched.append("run")
        ids = np.asarray(inputs[0]).reshape(-1).astype(np.int64) if inputs else np.zeros(0, np.int64)
        following = np.where(ids >= 6, 0, ids + 1) % len(WORDS)
        return [np.eye(len(WORDS), dtype=np.float32)[following][np.newaxis], np.float32(ids.size).reshape(1)]

    def run_block(self, first: int, last: int, values: Sequence[Array], /) -> Sequence[Array]:
        """A block, as the test wants it."""
        self.touched.append(f"block {first} {last}")
        if self.block is None:
            raise InputError("this model has no blocks")
        return self.block(first, last, values)


@dataclass
class RecordingHost:
    """Does what it is asked in memory, and notes all of it."""

    files: dict[str, Array] = field(default_factory=dict)
    replies: list[str] = field(default_factory=list)
    block: Callable[[int, int, Sequence[Array]], Sequence[Array]] | None = None
    models: Callable[[str], PlanModel] | None = None
    own_names: tuple[str, ...] = ("own.nac",)
    touched: list[str] = field(default_factory=list)
    printed: dict[str, str] = field(default_factory=lambda: {"stdout": "", "stderr": ""})
    written: dict[str, bytes] = field(default_factory=dict)

    def load_model(self, path: str, /) -> PlanModel:
        """A model that counts, unless the test has others."""
        if path != "self":
            self.touched.append(f"model {path}")
        return CountingModel(self.touched, self.block) if self.models is None else self.models(path)

    def tokenizer(self, path: str, /) -> WordTokenizer:
        """A tokenizer of words."""
        return WordTokenizer()

    def prompt(self, question: str, /) -> str:
        """The next reply."""
        self.touched.append(f"prompt {question}")
        if not self.replies:
            raise InputError("nobody answers")
        return self.replies.pop(0)

    def read_array(self, path: str, /) -> Array:
        """An array by its name."""
        self.touched.append(f"read {path}")
        if path not in self.files:
            raise InputError("there is no such file", hint="name a file that is there")
        return self.files[path]

    def read_image(self, path: str, height: int, width: int, /) -> Array:
        """A picture by its name, where it has the size that is asked for."""
        self.touched.append(f"image {path} {height} {width}")
        if path not in self.files:
            raise InputError("no package reads pictures here", hint="install Pillow")
        return self.files[path]

    def print_text(self, stream: str, text: str, /) -> None:
        """Keep what is printed."""
        self.touched.append(f"print {stream}")
        self.printed[stream] += text

    def write_file(self, path: str, data: bytes, append: bool, /) -> None:
        """Keep what is written."""
        self.touched.append(f"write {path}")
        self.written[path] = (self.written.get(path, b"") if append else b"") + data


def assembled(plan: str, version: str = "1.8", more: str = "") -> File:
    """A file with a plan that is given as text."""
    text = f"nac {version}\n.code\n{MODEL}\n{more}\n.orchestrator\n{plan}\n"
    file, found = assemble(Source("plan.nacs", text))
    assert not errors(found), "\n".join(map(str, found))
    return file


def run(plan: str, host: RecordingHost | None = None, **options: object) -> PlanResult:
    """Run a plan that is given as text, with everything granted."""
    version, more = str(options.pop("version", "1.8")), str(options.pop("more", ""))
    answers, grants = options.pop("answers", ()), options.pop("grants", ALL)
    budget, seed = options.pop("budget", PlanBudget()), options.pop("seed", 0)
    assert not options
    assert isinstance(answers, tuple)
    assert isinstance(grants, frozenset | tuple)
    assert isinstance(budget, PlanBudget)
    assert isinstance(seed, int)
    file = assembled(plan, version, more)
    return run_plan(file, host or RecordingHost(), answers=answers, grants=grants, budget=budget, seed=seed)


def give(plan: str, host: RecordingHost | None = None, **options: object) -> Value:
    """The one value that a plan returns."""
    (value,) = run(plan, host, **options).values
    return value


def codes(file: File, host: RecordingHost | None = None, grants: frozenset[str] = ALL) -> list[str]:
    """The codes of what stops a plan, before or while it runs."""
    try:
        run_plan(file, host or RecordingHost(), grants=grants, budget=PlanBudget(2000, 1 << 20))
    except LamellaError as problem:
        return [item.code for item in problem.findings]
    return []
