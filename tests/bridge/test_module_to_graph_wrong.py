"""What is wrong in a graph is said with its code, its place, its names and numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bridge.module_texts import findings

HEAD = """
    module Inner(n: int):
      params:
        w: [n]
      forward:
        in: [B, n]
        out: [B, n]
        graph:
          (in, w) -> mul() -> out

    module M(d: int = 4, h: int = 3, flag: bool = false):
      let:
        half = d // 2
      params:
        w: [d, d]
        odd: [5]
        extra: [d] if flag
        inner: Inner(d)
        blocks: [2] x Inner(d)
      forward:
        in: (x: [B, d], ids: [B, int64])
        out: y: [B, d]
        graph:
"""
DECLARED_OUTPUT = 22
WRONG = {
    "unknown tensor": ("q -> relu() -> y", "E002", "'q' is not defined in 'M'"),
    "near miss": ("(x, ood) -> add() -> y", "E002", "'ood' is not defined"),
    "switched off": ("(x, extra) -> mul() -> y", "E002", "its condition 'flag' is false"),
    "unknown operation": ("x -> cosh2() -> y", "E014", "no operation 'cosh2'"),
    "tensor as operation": ("x -> w() -> y", "E014", "'w' is a tensor"),
    "shapes": ("(x, odd) -> add() -> y", "E004", "'add'"),
    "view": ("x -> view([B, d + 1]) -> y", "E004", "has 4 * B elements, [B, 5] has 5 * B"),
    "split": ("x -> split([1, 2], dim=-1) -> (y, z)", "E004", "'split'"),
    "declared output": ("x[:, :half] -> y", "E004", "'y' has shape [B, 2]"),
    "shape assertion": ("x -> relu() -> [B, half] -> silu() -> y", "E004", "has shape [B, 4]"),
    "index": ("x[:, d] -> z", "E004", "dimension 1 of 'x', which has 4 (d = 4 by default)"),
    "index by a tensor": ("x[ids] -> z", "E016", "'ids' is a tensor"),
    "range of blocks": ("x -> blocks[0:3]() -> y", "E004", "which has 2"),
    "stacked": ("x -> StackedBlocks(blocks, h) -> y", "E003", "has 2 elements, 3 are needed"),
    "too many targets": ("x -> relu() -> (y, z)", "E003", "gives 1 tensor, but 2 are taken"),
    "too many operands": ("(x, x, x, x, x) -> relu() -> y", "E003", "given 5 operands"),
    "missing operand": ("x -> add() -> y", "E003", "is None where 'add' needs a tensor"),
    "None": ("(x, None) -> add() -> y", "E003", "is None where 'add' needs a tensor"),
    "unknown keyword": ("x -> softmax(axis=1) -> y", "E002", "'softmax' has no parameter 'axis'"),
    "value of an enum": ("(x, w) -> matmul(transpose=XY) -> y", "E003", "NN, NT, TN, TT"),
    "fresh weights": ("x -> Inner(4) -> y", "E003", "a constant"),
    "cycle": ("(x, y) -> add() -> y", "E007", "y -> y"),
    "bound twice": ("x -> relu() -> y\n          x -> silu() -> y", "E017", "'y' is already bound"),
    "an input bound": ("x -> relu() -> x", "E017", "'x' is already bound"),
    "guard reads a tensor": ("if x:\n            x -> y", "E016", "'x' is not constant"),
    "element type": ("ids -> relu() -> y", "E015", "'relu'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_statements_are_told(case: str, tmp_path: Path) -> None:
    statement, code, words = WRONG[case]
    found = findings(tmp_path, f"{HEAD}          {statement}\n", model="M")
    wanted = [item for item in found if item.code == code]
    assert wanted, [str(item) for item in found]
    assert any(words in item.message for item in wanted), [item.message for item in wanted]
    assert all(item.span.line >= DECLARED_OUTPUT for item in wanted)


def test_several_statements_are_told_and_what_follows_is_not(tmp_path: Path) -> None:
    text = f"{HEAD}          q -> relu() -> a\n          (a, x) -> add() -> y\n          p -> silu() -> b\n"
    found = findings(tmp_path, text, model="M")
    assert [item.code for item in found] == ["E002", "E002"]


def test_a_fault_in_an_array_is_told_once(tmp_path: Path) -> None:
    text = """
        block Step(d: int):
          params:
            w: [d + 1]
          forward:
            in: [B, d]
            out: [B, d]
            graph:
              (in, w) -> add() -> out

        model M(d: int = 4):
          params:
            blocks: [5] x Step(d)
          forward:
            in: x: [B, d]
            out: y: [B, d]
            graph:
              x -> StackedBlocks(blocks, 5) -> y
    """
    found = findings(tmp_path, text, model="M")
    assert [item.code for item in found] == ["E004"]
    assert any("blocks[0]" in origin for origin in found[0].origins)
