"""Every kind of expression with its value, or with the rule that refuses it, as `expressions.txt` lists them.

Values are told by the message of an assertion that fails.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import lamella
from lamella.base.diagnostic import errors
from tests.support.lang.skriptnd.conformance.cases import FOLDER, write

EXPRESSIONS = [
    tuple(line.rsplit("  # ", 1))
    for line in (FOLDER / "expressions.txt").read_text(encoding="utf-8").splitlines()
]
PROGRAM = """
operator o {{
    @dtype {{ T: arith = real; }}
    @attrib {{
        a: int = 40; r: real = 2.5; fl: bool = true; s: str = 'NCX';
        p: int.. = [1, 2, 3]; q: int..(3) = 0; e: int.. = []; rs: real.. = [0.5, 1.5];
        bs: bool.. = [true, false, true];
        na: optional int; nr: optional real; nb: optional bool; np: optional int..;
        k: optional int; ow: optional int; opt: optional int..;
    }}
    @input {{ x: real[m,n]; xs: real[z]..(c); }}
    @using {{ v = {}; w = "<{{v}}>"; }}
    @assert {{ w == '': "{{w}}"; }}
    @output {{ y: real[m]; }}
    @lower {{ y[i,] = 0.0, i < m; }}
}}
graph G {{
    @input {{ x: real[2,3]; xs: real[4]..(2); }}
    @output {{ y: real; }}
    @compose {{ y = o{{k=5, ow=7, opt=[8,9]}}(x, xs); }}
}}
"""


@pytest.mark.parametrize(("expression", "value"), EXPRESSIONS, ids=[item[0] for item in EXPRESSIONS])
def test_an_expression_has_its_value(expression: str, value: str, tmp_path: Path) -> None:
    findings = errors(lamella.check(write(tmp_path, PROGRAM.format(expression))))
    found = findings[0].message if findings[0].code == "SKR283" else findings[0].code
    assert found == (value if value.startswith("SKR") else f"main.o: <{value}>")
