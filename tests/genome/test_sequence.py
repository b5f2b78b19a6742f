"""One computation written in several ways has one genome; another one has another."""

from __future__ import annotations

import numpy as np
import pytest

from lamella import from_torch
from lamella.genome import Genome, align, read_genome
from lamella.genome.align import align_words, lines_of

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional
WIDTH = 8


def genome_of(compute: object, *shape: int) -> Genome:
    """The genome of a function of one array, whose weights are those of the modules that it is made with."""

    class Whole(nn.Module):  # type: ignore[name-defined]  # torch is loaded where it is there
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(4)])
            self.scale = nn.Parameter(torch.ones(WIDTH))
            self.wide = nn.Linear(WIDTH, 3 * WIDTH)

        def forward(self, x: object) -> object:
            return compute(self, x)  # type: ignore[operator]

    model = from_torch(Whole().eval(), (torch.zeros(*shape or (2, WIDTH)),))
    return read_genome(model)


def silu(m: object, x: object) -> object:
    """A gated layer by the function that torch has."""
    return m.inner[2](functional.silu(m.inner[0](x)) * m.inner[1](x))  # type: ignore[attr-defined]


def written_silu(m: object, x: object) -> object:
    """The same by exponentials, and of one product that is cut."""
    gate, value, _ = m.wide(x).chunk(3, -1)  # type: ignore[attr-defined]
    return m.inner[2](gate / (1 + torch.exp(-gate)) * value)  # type: ignore[attr-defined]


def plain_silu(m: object, x: object) -> object:
    """A layer that gates itself."""
    return m.inner[2](functional.silu(m.inner[0](x)))  # type: ignore[attr-defined]


def layer_norm(m: object, x: object) -> object:
    """A norm by the function that torch has."""
    return x + m.inner[0](functional.layer_norm(x, (WIDTH,), m.scale))  # type: ignore[attr-defined]


def written_norm(m: object, x: object) -> object:
    """The same by sums."""
    centred = x - x.mean(-1, keepdim=True)  # type: ignore[attr-defined]
    root = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)
    return x + m.inner[0](centred * root * m.scale)  # type: ignore[attr-defined]


def root_mean_square(m: object, x: object) -> object:
    """A norm that does not centre."""
    return x + m.inner[0](functional.rms_norm(x, (WIDTH,), m.scale))  # type: ignore[attr-defined]


def test_spelling_does_not_matter_and_what_is_computed_does() -> None:
    gated, written, plain = map(genome_of, (silu, written_silu, plain_silu))
    assert gated == written
    assert gated != plain
    assert [str(item) for item in gated.instructions] == ["input", "linear", "exp·gate", "linear"]
    assert [str(item) for item in plain.instructions] == ["input", "linear", "exp·linear"]
    norm, sums, other = map(genome_of, (layer_norm, written_norm, root_mean_square))
    assert norm == sums
    assert norm != other
    assert [str(item) for item in other.instructions] == ["input", "sum", "sqrt·linear", "add"]


def test_windows_have_their_size() -> None:
    image = (1, WIDTH, 6, 6)
    filters = torch.zeros(WIDTH, WIDTH, 3, 5), torch.zeros(WIDTH, 1, 3, 3), torch.zeros(WIDTH, WIDTH, 1, 1)
    words = [
        str(genome_of(lambda _, x, f=f, g=g: functional.conv2d(x, f, groups=g), *image).instructions[-1])
        for f, g in zip(filters, (1, WIDTH, 1), strict=True)
    ]
    assert words == ["conv3x5", "depthwise3x3", "linear"]
    pooled = genome_of(lambda _, x: functional.adaptive_avg_pool2d(functional.max_pool2d(x, 2), 1), *image)
    assert [str(item) for item in pooled.instructions] == ["input", "max2x2", "sum"]


def worth(pairs: list[tuple[int | None, int | None]], one: str, other: str) -> int:
    """What a pairing is worth."""
    score = {True: 3, False: -2}
    return sum(-1 if a is None or b is None else score[one[a] == other[b]] for a, b in pairs)


def best(one: str, other: str) -> int:
    """The worth of the best pairing, by trying all."""
    if not one or not other:
        return -len(one) - len(other)
    step = 3 if one[0] == other[0] else -2
    return max(step + best(one[1:], other[1:]), best(one[1:], other) - 1, best(one, other[1:]) - 1)


def test_alignments_are_worth_most() -> None:
    generator = np.random.default_rng(0)
    for _ in range(60):
        one, other = ("".join(generator.choice(list("abc"), size)) for size in generator.integers(0, 6, 2))
        pairs = align_words(one, other)
        assert [a for a, _ in pairs if a is not None] == list(range(len(one)))
        assert [b for _, b in pairs if b is not None] == list(range(len(other)))
        assert worth(pairs, one, other) == best(one, other)


def test_a_listing_says_what_repeats() -> None:
    one, other = genome_of(silu), genome_of(plain_silu)
    lines = lines_of(one, other, align(one, other))
    assert lines[0].split() == ["=", "input", "input"]
    assert {line[0] for line in lines} <= set("=~+- ")
    deep = genome_of(lambda m, x: [x := m.inner[k % 4](torch.tanh(x)) for k in range(9)][-1])
    assert any("again, 9 times" in line for line in lines_of(deep, deep, align(deep, deep)))
