"""Models that the tests of the commands share, and how a command is called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from click.testing import CliRunner, Result

from lamella.cli import lamella

TWO = """import math, nn;

graph First {
    @dtype { T: num = real; }
    @attrib {
        n: int;
        scale: real = 2.0;
        flags: bool..(2) = [true, false];
        sizes: int.. = [1, 2];
        mode: str = "a";
        maybe: optional int;
    }
    @input { x: T[n]; }
    @output { y: T[n]; }
    @compose { y = math.add(x, x); }
}

graph Second {
    @input { x: real[b|8, 4]; }
    @variable { w: real[3, 4]; }
    @output { y: real[~, 3]; }
    @compose { y = nn.linear(x, w); }
}
"""
PACKS = """import math;

graph Packs {
    @input { xs: real[n|4, 2]..(3); }
    @output { ys: real[~, 2]..(3); sum: real[~, 2]; }
    @compose {
        ys..(3) = for x : xs do math.neg(x);
        sum = math.sum_n(xs);
    }
}
"""
STATE = """import math;

graph State {
    @input { x: real[2]; }
    @variable { total: real[2]; }
    @output { y: real[2]; }
    @compose { y = math.add(total, x); }
    @update { total = y; }
}
"""
QUANTIZED = """import math, quant;

graph Quantized {
    @input { x: real[4]; }
    @output { y: real[4]; }
    @compose { y = math.add(x, x); }
    @quantize { y: quant.zero_point_linear_quantize{zero_point=0, scale=0.5, bits=8, signed=true}; }
}
"""
COMPOUND = """import math, nn;

operator block {
    @input { x: real[n, c]; }
    @variable { w: real[c, c]; }
    @output { y: real[n, c]; }
    @compose { z = nn.linear(x, w); y = twice(z); }
}
operator twice {
    @input { x: real[s..]; }
    @output { y: real[s..]; }
    @compose { z = math.add(x, x); y = nn.softmax(z); }
}
graph Main {
    @input { x: real[2, 3]; }
    @output { y: real[2, 3]; }
    @compose { z = first: block(x); y = second: block(z); }
}
"""
MODELS = {
    "two": TWO,
    "packs": PACKS,
    "state": STATE,
    "quantized": QUANTIZED,
    "compound": COMPOUND,
}


def write_models(folder: Path) -> None:
    """Every model as a file of its own."""
    for name, text in MODELS.items():
        (folder / f"{name}.sknd").write_text(text, encoding="utf-8")


def call(*arguments: str | Path, text: str | None = None) -> Result:
    """Call a command as its users do; only an exit may leave it."""
    result = CliRunner().invoke(lamella, [str(item) for item in arguments], input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def report(*arguments: str | Path) -> dict[str, object]:
    """What a command prints with --json."""
    return cast("dict[str, object]", json.loads(call(*arguments, "--json").stdout))
