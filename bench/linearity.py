"""Measure how the time of a run grows with tokens, layers and pixels, over two decades each, and draw it.

usage: python -m bench.linearity [--svg docs/images/linearity.svg] [--seconds S]
A slope of 1 in the doubly logarithmic plot is time in proportion to size.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import lamella

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "examples" / "llama" / "page.module"
WIDE = {"d_model": 512, "num_heads": 8, "num_kv_heads": 8, "d_ff": 1408, "max_seq": 1024}
NARROW = {"d_model": 128, "num_heads": 4, "num_kv_heads": 4, "d_ff": 384, "max_seq": 64}
TOKENS = (8, 16, 32, 64, 128, 256, 512, 800)
LAYERS = (1, 2, 4, 8, 16, 32, 64, 100)
SIDES = (32, 48, 64, 96, 128, 192, 256, 320)
SIGHT = """import nn;

graph Sight {{
    @input {{ x: real[1, 3, {side}, {side}]; }}
    @variable {{ stem: real[32, 3, 3, 3]; wide: real[64, 32, 3, 3]; deep: real[64, 64, 3, 3]; }}
    @output {{ y: real[1, 64, ~, ~]; }}
    @compose {{
        a = nn.conv{{padding=1, stride=2}}(x, stem);
        b = nn.relu(a);
        c = nn.conv{{padding=1}}(b, wide);
        d = nn.relu(c);
        e = nn.conv{{padding=1}}(d, deep);
        y = nn.relu(e);
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of a call by size."""

    what: str
    sizes: Sequence[int]
    seconds: Sequence[float]

    @property
    def slope(self) -> float:
        """The exponent that fits best."""
        found = np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)
        return float(found[0])


def fastest(call: Callable[[], object], patience: float) -> float:
    """CPU seconds of the fastest call of many."""
    call()
    best, until = math.inf, time.perf_counter() + patience
    while time.perf_counter() < until:
        start = time.thread_time()
        call()
        best = min(best, time.thread_time() - start)
    return best


def decode(layers: int, tokens: int, config: Mapping[str, int]) -> Callable[[], object]:
    """A call of a decoder with so many layers on so many tokens."""
    model = lamella.load(PAGE, config={**config, "n_layers": layers}, shape={"B": 1, "T": tokens})
    run = lamella.compile(model, backend="cpu", threads=1, seed=1)
    given = {run.inputs[0]: np.arange(tokens, dtype=np.int64)[None] % 256}
    return lambda: run(**given)


def see(side: int, folder: Path) -> Callable[[], object]:
    """A call of three convolutions on an image of so many pixels a side."""
    path = folder / f"sight{side}.sknd"
    path.write_text(SIGHT.format(side=side), encoding="utf-8")
    run = lamella.compile(path, backend="cpu", threads=1, seed=1)
    image = np.random.default_rng(0).standard_normal((1, 3, side, side), np.float32)
    return lambda: run(x=image)


def measure(patience: float) -> list[Line]:
    """The three lines."""
    tokens = [fastest(decode(2, count, WIDE), patience) for count in TOKENS]
    layers = [fastest(decode(count, 16, NARROW), patience) for count in LAYERS]
    with TemporaryDirectory() as folder:
        pixels = [fastest(see(side, Path(folder)), patience) for side in SIDES]
    return [
        Line("tokens (2 layers of width 512)", TOKENS, tokens),
        Line("layers (width 128, 16 tokens)", LAYERS, layers),
        Line("pixels (3 convolutions, 32 to 64 channels)", [side * side for side in SIDES], pixels),
    ]


# --- the picture --------------------------------------------------------------------------------------------

WIDTH, HEIGHT, EDGE = 640, 400, 56
COLOURS = ("#1f6feb", "#b35900", "#1a7f37")


def draw(lines: Sequence[Line]) -> str:
    """The lines by size relative to their smallest; the dashed one is time in proportion to size."""
    decades = max(math.log10(max(line.sizes) / min(line.sizes)) for line in lines)

    def place(size: float, seconds: float) -> str:
        x = EDGE + math.log10(size) / decades * (WIDTH - 2 * EDGE)
        y = HEIGHT - EDGE - math.log10(max(seconds, 0.5)) / decades * (HEIGHT - 2 * EDGE)
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="13">',
        "<style>text { font-family: sans-serif }</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<path d="M{place(1, 1)} L{place(10**decades, 10**decades)}" stroke="#888" stroke-dasharray="5"/>',
    ]
    for number, (line, colour) in enumerate(zip(lines, COLOURS, strict=True)):
        points = [
            place(size / line.sizes[0], seconds / line.seconds[0])
            for size, seconds in zip(line.sizes, line.seconds, strict=True)
        ]
        parts.append(
            f'<polyline points="{" ".join(points)}" stroke="{colour}" stroke-width="2" fill="none"/>'
        )
        parts += [
            f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'
            for x, y in (item.split(",") for item in points)
        ]
        told = f"{line.what}: slope {line.slope:.2f}"
        parts.append(f'<text x="{EDGE + 12}" y="{EDGE + 18 * number}" fill="{colour}">{told}</text>')
    for power in range(math.floor(decades) + 1):
        across, up = place(10**power, 1).split(",")[0], place(1, 10**power).split(",")[1]
        parts.append(f'<text x="{across}" y="{HEIGHT - EDGE + 20}" text-anchor="middle">{10**power}</text>')
        parts.append(f'<text x="{EDGE - 10}" y="{up}" text-anchor="end">{10**power}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">size, by the smallest</text>')
    parts.append(f'<text x="16" y="{EDGE - 20}">time of a run, by that of the smallest</text>')
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--svg", type=Path, help="where the picture goes")
    parser.add_argument("--seconds", type=float, default=0.5, help="how long each point is measured")
    wanted = parser.parse_args()
    lines = measure(wanted.seconds)
    for line in lines:
        print(f"{line.what}: time grows with size to the power {line.slope:.2f}")
        for size, seconds in zip(line.sizes, line.seconds, strict=True):
            print(f"{size:>9} {seconds * 1e3:>9.3f} ms {seconds / size * 1e6:>9.3f} us each")
    if wanted.svg:
        wanted.svg.write_text(draw(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
