"""A right program, and mistakes that can be made in it one by one: each is told by its own findings and no others."""

from __future__ import annotations

from typing import NamedTuple

RIGHT = """\
module Norm(n: int, eps: float = 1e-6):
  params:
    weight: [n]
  forward:
    in: x: [*, n]
    out: y: [*, n]
    graph:
      (x, weight) -> rmsnorm(eps=eps) -> (y, rstd)

module Base(d: int = 4, h: int = 8, act: enum(silu, gelu) = silu, use_bias: bool = true):
  let:
    twice = 2 * d
    half = h // 2
    constraint:
      h % d == 0, "h is a multiple of d"
  constants:
    freqs: precompute_rope_freqs(16, 4)
  params:
    up: [h, d]
    down: [d, h]
    bias: [h] if use_bias
    norm: Norm(d)
    norms: [2] x Norm(d)
    gate: [d] @trainable(lr_scale=2.0)
  forward:
    in: (x: [B, T, d], z: [B, T, d])
    out: (y: [B, T, d], w: [B, T, d], s: [B, T, twice])
    graph:
      (x, up) -> matmul(transpose=NT) -> a
      a -> silu() -> c @memory(save)
      if use_bias:
        (c, bias) -> add() -> e
      else:
        c -> e
      (e, down) -> matmul(transpose=NT) -> y
      z -> norm() -> n1
      n1 -> norms() -> n2
      (n2, gate) -> mul() -> g1
      g1 -> gelu() -> g2 @hook(AfterMLPActivation)
      g2 -> silu() -> w
      (x, z) -> concat(dim=-1) -> s0
      s0 -> silu() -> s

module Slope(n: int = 4, m: int = 4):
  params:
    weight: [m, n]
    offset: [m]
  forward:
    in: x: [B, n]
    out: y: [B, m]
    graph:
      (x, weight) -> matmul(transpose=NT) -> p
      (p, offset) -> add() -> q
      q -> silu() -> r
      r -> gelu() -> y
    save: [x, q, r]
  backward:
    d_y: [B, m]
    d_x: [B, n]
    graph:
      (d_y, saved.r) -> gelu_backward() -> d_r
      (d_r, saved.q) -> silu_backward() -> d_q
      (d_q, weight) -> matmul(transpose=NN) -> d_x
      (d_q, saved.x) -> matmul(transpose=TN) -> d_weight
      d_q -> reduce_sum(dims=[0]) -> d_offset

model Whole(vocab: int = 8, width: int = 4):
  params:
    table: [vocab, width]
    head: tied_to(table)
    last: [width]
  forward:
    in: tokens: [B, T, int64]
    out: logits: [B, T, vocab]
    graph:
      (tokens, table) -> embedding() -> e0
      (e0, last) -> rmsnorm() -> e1
      (e1, head) -> matmul(transpose=NT) -> logits
  hf_config:
    architecture: "WholeForCausalLM"
    param_mapping:
      vocab: vocab_size
      width: hidden_size
  hf_mapping:
    table: "embed.weight"
    head: tied_to(table)
    last: "norm.weight"
"""


class Mistake(NamedTuple):
    """A place of the right program, what is written there instead, and the codes of what is then found."""

    old: str
    new: str
    codes: str


MISTAKES = (
    Mistake("    twice = 2 * d\n", "    twice = 2 * dd\n", "E002"),
    Mistake("half = h // 2", "half = h // 0", "E003"),
    Mistake("half = h // 2", "half = ceil_dv(h, 2)", "E016"),
    Mistake('h % d == 0, "', 'h % d == 1, "', "E027"),
    Mistake('h % d == 0, "', 'h + d, "', "E026"),
    Mistake("precompute_rope_freqs(16, 4)", "precomptte_rope_freqs(16, 4)", "E002"),
    Mistake("precompute_rope_freqs(16, 4)", "precompute_rope_freqs(16)", "E003"),
    Mistake("    up: [h, d]", "    up: [h, dd]", "E002"),
    Mistake("    up: [h, d]", "    up: [h, d + 1]", "E004"),
    Mistake("    down: [d, h]", "    down: [d, h + 1]", "E004"),
    Mistake("    norm: Norm(d)", "    norm: Norn(d)", "E002"),
    Mistake("    norm: Norm(d)", "    norm: Norm(d, sps=1.0)", "E002"),
    Mistake("    norm: Norm(d)", "    norm: Norm()", "E012"),
    Mistake("    norm: Norm(d)", '    norm: Norm("a")', "E003"),
    Mistake("    norms: [2] x Norm(d)", "    norms: [2] x Norm(d + 1)", "E004"),
    Mistake("@trainable(lr_scale=2.0)", "@trainabel(lr_scale=2.0)", "E008"),
    Mistake("@trainable(lr_scale=2.0)", '@trainable(lr_scale="a")', "E008"),
    Mistake("    gate: [d] ", "    gate: [d], [d] ", "E001"),
    Mistake("a -> silu() -> c", "a -> sillu() -> c", "E014"),
    Mistake("a -> silu() -> c", "aa -> silu() -> c", "E002"),
    Mistake("a -> silu() -> c", "a -> silu( -> c", "E001"),
    Mistake("@memory(save)", "@memory(keep)", "E008"),
    Mistake("      if use_bias:", "      if use_bais:", "E002"),
    Mistake("      if use_bias:", "      if c:", "E016"),
    Mistake("z -> norm() -> n1", "z -> norn() -> n1", "E014"),
    Mistake("z -> norm() -> n1", "z -> norm() -> norm() -> norm(3) -> n1", "E003"),
    Mistake("(n2, gate) -> mul() -> g1", "(n2, gate) -> mul() -> (g1, g9)", "E003"),
    Mistake("(n2, gate) -> mul() -> g1", "(n2, gate, gate) -> mul() -> g1", "E003"),
    Mistake("(n2, gate) -> mul() -> g1", "(n2, gatte) -> mul() -> g1", "E002"),
    Mistake("(n2, gate) -> mul() -> g1", "n2 -> mul(gate, q=3) -> g1", "E002"),
    Mistake("g1 -> gelu() -> g2", "g1 -> gelu() -> g1", "E017"),
    Mistake("g1 -> gelu() -> g2", "g2 -> gelu() -> g2", "E007"),
    Mistake("g2 -> silu() -> w", "g2 -> silu() -> z", "E017"),
    Mistake("g2 -> silu() -> w\n", "g2 -> silu() -> w\n      g2 -> gelu() -> w\n", "E017"),
    Mistake("concat(dim=-1)", "concat(dim=7)", "E004"),
    Mistake("s0 -> silu() -> s\n", "s0 -> view([B, T, 3]) -> s\n", "E004"),
    Mistake("s0 -> silu() -> s\n", "s0[:, 9:12, 17] -> s\n", "E004"),
    Mistake("s0 -> silu() -> s\n", "s0 -> silu() -> [B, T, 5] -> silu() -> s\n", "E004"),
    Mistake("s0 -> silu() -> s\n", "s0 -> silu() -> s @fuse(norm_linear)\n", "E013"),
    Mistake("s: [B, T, twice]", "s: [B, T, half]", "E004"),
    Mistake("    save: [x, q, r]", "    save: [x, q, r, nope]", "W004"),
    Mistake("    save: [x, q, r]", "    save: [x, q]", "E006"),
    Mistake("    save: [x, q, r]", "    save: [x, q, r] if nope", "E002"),
    Mistake("    save: [x, q, r]", "    save: [q, r]", "E006"),
    Mistake("    d_x: [B, n]", "    d_x: [B, n + 1]", "E018"),
    Mistake("    d_x: [B, n]", "    d_x: [B, n, int8]", "E020"),
    Mistake("d_q -> reduce_sum(dims=[0]) -> d_offset", "d_q -> reduce_sum(dims=[0]) -> d_ofset", "E005"),
    Mistake("a -> silu() -> c", "a -> silu() -> cc", "E002"),
    Mistake("(d_q, saved.x) -> matmul", "(d_q, saved.xx) -> matmul", "E006"),
    Mistake(
        "(d_q, weight) -> matmul(transpose=NN) -> d_x", "(d_q, wait) -> matmul(transpose=NN) -> d_x", "E002"
    ),
    Mistake("(d_q, weight) -> matmul(transpose=NN) -> d_x", "(d_q, d_x) -> add() -> d_x", "E019"),
    Mistake("(d_r, saved.q) -> silu_backward() -> d_q", "(d_r, saved.q) -> silu_backwards() -> d_q", "E014"),
    Mistake("head: tied_to(table)\n    last: [width]", "head: tied_to(tabel)\n    last: [width]", "E002"),
    Mistake("(e0, last) -> rmsnorm() -> e1", "(e0, last) -> rmsnorn() -> e1", "E014"),
    Mistake("tokens: [B, T, int64]", "tokens: [B, T, fp32]", "E015"),
    Mistake('table: "embed.weight"', 'tables: "embed.weight"', "E010"),
    Mistake('last: "norm.weight"', 'last: transform("norm.weight", fn: transposed)', "E010"),
    Mistake("vocab: vocab_size", "vocabs: vocab_size", "E010"),
    Mistake('architecture: "Whole', 'architecure: "Whole', "E012"),
)
