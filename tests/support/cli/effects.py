"""Small programs of every language, for options that have an effect on them."""

from __future__ import annotations

NET = """import math, nn, quant;

operator twice {
    @input { x: real[s..]; }
    @output { y: real[s..]; }
    @compose { y = math.add(x, x); }
}
graph Net {
    @attrib { scale: real = 1.0; }
    @input { x: real[b|2, 3]; }
    @variable { w: real[3, 3]; }
    @output { y: real[~, 3]; }
    @compose { a = nn.linear(x, w); c = twice(a); d = nn.softmax(c); y = math.mul(d, scale); }
    @quantize { y: quant.zero_point_linear_quantize{zero_point=0, scale=0.5, bits=8, signed=true}; }
}
graph Other {
    @input { x: real[2]; }
    @output { y: real[2]; }
    @compose { y = math.neg(x); }
}
"""
PLAIN = """import nn;

graph Plain {
    @input { x: real[n|4, 3]; }
    @variable { w: real[8, 3]; }
    @output { y: real[~, 8]; }
    @compose { y = nn.linear(x, w); }
}
"""
INNER = "import shared;\n\ngraph G {\n    @input { x: real[2]; }\n    @output { y: real[2]; }\n"
INNER += "    @compose { y = shared.twice(x); }\n}\n"
SHARED = (
    "import math;\n\npublic operator twice {\n    @input { x: real[s..]; }\n    @output { y: real[s..]; }\n"
)
SHARED += "    @compose { y = math.add(x, x); }\n}\n"
NEXT_MODULE = """model Next(d: int = 4):
  params:
    table: [8, d]
  forward:
    in: token_ids: [B, T, int64]
    out: logits: [B, T, 8]
    graph:
      (token_ids, table) -> embedding() -> x
      (x, table) -> matmul(transpose=NT) -> logits
"""
NEXT = """import aten, llm;

graph Next {
    @input { tokens: int[b|64, t|64]; }
    @variable { table: real[8, 4]; head: real[8, 4]; }
    @output { scores: real[~, ~, 8]; }
    @compose { vectors = llm.embedding(tokens, table); scores = aten.linear(vectors, head); }
}
"""
GATE = """module Gate(d: int = 4):
  params:
    up: [d, d]
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      (x, up) -> matmul(transpose=NT) -> silu() -> y @hook(AfterMLPActivation)

module Half(d: int = 4):
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      x -> relu() -> y

preset wide:
  d: 6
"""
AXPY = """func @axpy(%a: f32, %x: memref<f32x8>, %y: memref<f32x8>) {
  %0 = constant 0 : index
  %8 = constant 8 : index
  foreach (%i):index=(%0),(%8) {
    %v = load %x[%i] : f32
    %w = arith.mul %a, %v : f32
    store %w, %y[%i]
  }
}
func @copy(%x: memref<f32x8>, %y: memref<f32x8>) {
  %0 = constant 0 : index
  %8 = constant 8 : index
  foreach (%i):index=(%0),(%8) {
    %v = load %x[%i] : f32
    store %v, %y[%i]
  }
}
"""
INNER_MODULE = """from shared import Half

module Whole(d: int = 4):
  params:
    half: Half(d)
  forward:
    in: x: [B, d]
    out: y: [B, d]
    graph:
      x -> half() -> y
"""
NEM = """device "npm_lite.nem"
buffer IN : L2 (size=64, align=64)
buffer TMP : L1 (size=64, align=64)
buffer OUT : L2 (size=64, align=64)
let X = region(IN, 0, 64) elem=f16, shape=[32], layout=C
let A = region(TMP, 0, 64) elem=f16, shape=[32], layout=C
let Y = region(OUT, 0, 64) elem=f16, shape=[32], layout=C
load = transfer.async(dst=A, src=X)
act = relu.async in A out A deps=[load]
store.async(dst=Y, src=A, deps=[act])
"""
NPU = "examples/npu/conv_relu.nem"
