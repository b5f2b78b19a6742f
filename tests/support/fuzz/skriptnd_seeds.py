"""SkriptND texts to mutate: those of the specification, the examples, and library operators that a graph calls."""

from __future__ import annotations

from pathlib import Path

from lamella.base.source import Source
from lamella.lang.skriptnd import outline

ROOT = Path(__file__).parents[3]
OPS = ROOT / "src" / "lamella" / "ops"
FOLDERS = ("tests/lang/skriptnd/good", "examples/alexnet", "examples/operator")
IMPORTS = "import layout, math, nn, linalg, image, quant, algo;\n"
X2, X4 = "x: real[2,6];", "x: real[1,2,5,6];"
CALLS = {
    "nn.conv": ("{stride=2}(x, k)", f"{X4} k: real[3,2,3,3];", "real[~,~,~,~]"),
    "nn.max_pool": ("{size=[2,2], stride=2}(x)", X4, "real[~,~,~,~]"),
    "nn.relu": ("{alpha=0.5}(x)", X4, "real[1,2,5,6]"),
    "nn.softmax": ("{axes=[1]}(x)", X2, "real[2,6]"),
    "nn.linear": ("(x, k)", f"{X2} k: real[3,6];", "real[2,3]"),
    "linalg.matmul": ("{transA=true}(x, z)", f"{X2} z: real[2,3];", "real[6,3]"),
    "layout.pad": ("{padding=[1,2,0,1]}(x, 0.0)", X2, "real[~,~]"),
    "layout.slice": ("{begin=[0,1], end=[2,5], stride=[1,2]}(x)", X2, "real[~,~]"),
    "layout.transpose": ("{perm=[0,2,3,1]}(x)", X4, "real[1,5,6,2]"),
    "layout.concat": ("{axis=-1}([x, z])", f"{X2} z: real[2,3];", "real[2,9]"),
    "layout.tile": ("{repeats=[1,2]}(x)", X2, "real[2,12]"),
    "layout.gather": ("{axis=1}(x, i)", f"{X2} i: int[3];", "real[2,3]"),
    "layout.nonzero": ("(x)", X2, "int[2,~]"),
    "math.add": ("{rhs_align=1}(x, z)", f"{X4} z: real[2];", "real[1,2,5,6]"),
    "math.sum_reduce": ("{axes=[1], squeeze=true}(x)", X2, "real[2]"),
    "math.argmax": ("{axis=-1}(x)", X2, "int[2,1]"),
    "math.clamp": ("(x, 0.0, 1.0)", X2, "real[2,6]"),
    "image.linear_resize": ("{axes=[2,3], size=[3,4]}(x)", X4, "real[1,2,3,4]"),
    "algo.top_k": ("{k=2, axis=1}(x)", X2, "real[~,~]"),
}
GRAPHS = (
    "graph G { @input { x: real[n|6,3]; z: real[m|4,3]; } @output { y: real[~,3]; }"
    " @compose { y = layout.concat{axis=0}([x, z]); } }",
    "graph G { @attrib { k: int = 3; } @input { x: real[2,4]; c: bool[]; } @output { y: real[2,4]; v: real[2,4]..(k); }"
    " @compose { [a, b] = layout.split{axis=1, count=2}(x); z = layout.concat{axis=1}([b, a]);"
    " y = if c then math.neg(z) elif k > 2 then nn.relu(x) else { t = math.sqr(x); yield t; };"
    " ~, v..(k) = with s = x do..(k) { q = math.add(s, x); r = math.mul(q, x); yield q, r; }; } }",
    "graph G { @input { x: real[2,4]; n: int[]; } @output { y: real[2,4]; j: int[]; }"
    " @variable { w: real[4,4]; } @constant { one: int[] = 1; }"
    " @compose { y, j = with s = x, i: int[] = 0 while math.lt(i, n) do { q = linalg.matmul(s, w);"
    " k = math.add(i, one); yield q, k; }; } @update { w = math.neg(w); }"
    " @quantize { y: quant.min_max_linear_quantize{min=0.0, max=1.0, bits=8}; } }",
    "operator f { @dtype { T: num; } @attrib { a: int..(r) = [0:r]; o: optional int; } @input { x: T[s..(r)]; }"
    " @using { p = [s[1:].., s[0]]; q = (s * ..); } @assert { r > 0: 'rank is {r}', s, 'o': o; q < 1000; }"
    " @output { y: T[p..]; } @lower { y[i..] = T(0), i < p; y[i..] += x[|i + (o ?? 0)|..], i < p; } }\n"
    "graph G { @input { x: real[2,3]; } @output { y: real[~,~]; } @compose { y = f{o=1}(x); } }",
    "operator g { @attrib { n: int; } @input { x: real[b,c]; } @output { y: real[b,c]; } @variable { w: real[c]; }"
    " @compose { z = math.mul{rhs_align=1}(x, w); y = if n > 0 then lab: g{n=n-1}(z) else math.tanh(z); } }\n"
    "graph G { @input { x: real[2,3]; } @output { y: real[2,3]; } @compose { y = with a = x unroll..(2) g{n=1}(a); } }",
)


def read_seeds() -> list[str]:
    """All texts, those that run several times."""
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.sknd"))]
    texts = [path.read_text(encoding="utf-8") for path in files]
    graphs = [IMPORTS + text for text in GRAPHS]
    return texts + graphs * 40 + [_called(name) for name in CALLS] * 12 + list(_operators())


def _operators() -> list[str]:
    """The texts of all library operators, one by one."""
    found = []
    for path in sorted(OPS.rglob("*.sknd")):
        source = Source(path.name, path.read_text(encoding="utf-8"))
        found += [source.text[item.span.start : item.span.end] for item in outline(source).entries]
    return found


def _called(name: str) -> str:
    """An operator of the library as a user's own, and a graph that calls it."""
    module, _, word = name.partition(".")
    call, inputs, output = CALLS[name]
    source = Source(module, (OPS / f"{module}.sknd").read_text(encoding="utf-8"))
    entry = outline(source).find(word)
    assert entry is not None, name
    results, outputs = ("y, i2", f"y: {output}; i2: int[~,~];") if word == "top_k" else ("y", f"y: {output};")
    graph = f"graph G {{ @input {{ {inputs} }} @output {{ {outputs} }} @compose {{ {results} = "
    called = name if word in ("nonzero", "top_k", "softmax") else word
    operator = source.text[entry.span.start : entry.span.end]
    return f"{IMPORTS}{operator}\n{graph}{called}{call}; }} }}\n"
