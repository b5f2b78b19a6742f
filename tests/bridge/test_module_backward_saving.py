"""What a backward graph may read: `save:`, `recompute:`, `@memory`, and who of them wins."""

from __future__ import annotations

import numpy as np
import pytest
from torch.nn import functional as F

from lamella.base.dtype import F64
from lamella.bridge.module_to_graph import CompilationSettings
from lamella.bridge.module_to_graph.backward import declares_gradients, differentiate
from tests.support.bridge.module_gradients import compare, differentiated, instance_of, run

X = np.random.default_rng(3).normal(size=(3, 4))
TEXT = """
    module M(d: int = 4, more: bool = true):
      params:
        w: [d, d]
      forward:
        in: x: [B, d]
        out: y: [B, d]
        graph:
          (x, w) -> matmul(transpose=NT) -> h{mark}
          h -> view([B * d]) -> flat
          flat -> tanh() -> a
          a -> view([B, d]) -> y
        {lists}
"""
BACKWARD = """
      backward:
        graph:
          d_y -> view([B * d]) -> d_a
          (d_a, {a}) -> tanh_backward() -> view([B, d]) -> d_h
          (d_h, w) -> matmul(transpose=NN) -> d_x
          (d_h, {x}) -> matmul(transpose=TN) -> d_w
"""


def lists(*lines: str) -> str:
    """Sections behind the graph."""
    return "\n        ".join(lines)


DERIVED: dict[str, tuple[str, str, list[str]]] = {
    "no list": ("", "", []),
    "all that is needed": ("", "save: [x, a]", []),
    "a view of what is needed": ("", "save: [x, y]", []),
    "a glob": ("", "save: [*]", []),
    "too little": ("", "save: [x]", ["W003"]),
    "too little, but it is said": ("", lists("save: [x]", "recompute: [a]"), []),
    "nothing to begin with": ("", "save: [a]", ["E006"]),
    "only under a condition": ("", "save: [x, a] if not more", []),
    "a condition that holds": ("", "save: [x, a] if more", []),
    "too little under a condition that holds": ("", "save: [x] if more", ["W003"]),
    "recomputed under a condition": ("", lists("save: [x]", "recompute: [a] if more"), []),
    "recomputed under one that does not hold": (
        "",
        lists("save: [x]", "recompute: [a] if not more"),
        ["W003"],
    ),
    "a condition with an unknown name": ("", "save: [x, a] if mor", ["E002"]),
    "a condition that is a number": ("", lists("save: [x, a]", "recompute: [a] if 3"), ["E003"]),
    "marked": (" @memory(save)", "save: [x, a]", []),
    "what cannot be recomputed": ("", lists("save: [a]", "recompute: [h]"), ["E021"]),
    "marked to be recomputed": (" @memory(recompute)", "save: [x, a]", []),
    "the mark wins": (" @memory(recompute)", "save: [a, h]", ["E021"]),
    "saving wins over recomputing": ("", lists("save: [x, a]", "recompute: [a, x]"), []),
    "blocks save for themselves": ("", "save: [x, a, others...]", []),
}


@pytest.mark.parametrize("case", DERIVED)
def test_a_derived_backward_says_what_its_list_lacks(case: str) -> None:
    mark, section, codes = DERIVED[case]
    found = differentiate(
        instance_of(TEXT.format(mark=mark, lists=section)), CompilationSettings(element=F64)
    )
    assert sorted(item.code for item in found.findings) == codes, "\n".join(map(str, found.findings))
    if found.model is not None:
        compare(run(found, {"x": X}), lambda i, w: F.linear(i["x"], w["w"]).tanh())


WRITTEN: dict[str, tuple[str, str, str, str, list[str]]] = {
    "no list": ("", "", "saved.a", "saved.x", []),
    "listed": ("", "save: [x, a]", "saved.a", "saved.x", []),
    "an input without saved": ("", "save: [x, a]", "saved.a", "x", []),
    "recomputed": ("", lists("save: [x]", "recompute: [a]"), "saved.a", "x", []),
    "marked": (" @memory(save)", "save: [x, a]", "saved.a", "saved.x", []),
    "not listed": ("", "save: [x]", "saved.a", "saved.x", ["E006"]),
    "an input that is not listed": ("", "save: [a]", "saved.a", "x", ["E006"]),
    "another tensor without saved": ("", "save: [a, x]", "a", "x", ["E006"]),
    "unknown": ("", "save: [a, x]", "saved.b", "x", ["E006"]),
    "misspelt": ("", "save: [a, x]", "b", "x", ["E002"]),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_a_written_backward_reads_what_is_saved(case: str) -> None:
    mark, section, a, x, codes = WRITTEN[case]
    text = TEXT.format(mark=mark, lists=section).rstrip() + BACKWARD.format(a=a, x=x)
    found = differentiate(instance_of(text), CompilationSettings(element=F64))
    own = [item.code for item in found.findings if item.code != "W004" or "W004" in codes]
    assert sorted(dict.fromkeys(own)) == codes, "\n".join(map(str, found.findings))
    if found.model is not None:
        compare(run(found, {"x": X}), lambda i, w: F.linear(i["x"], w["w"]).tanh())


def test_a_gradient_is_bound_once_unless_it_accumulates() -> None:
    text = TEXT.format(mark="", lists="").rstrip() + BACKWARD.format(a="saved.a", x="x")
    twice = "          (d_h, x) -> matmul(transpose=TN{more}) -> d_w\n"
    for more, codes in (("", ["E017"]), (", accumulate=false", ["E017"]), (", accumulate=true", [])):
        found = differentiate(instance_of(text + twice.format(more=more)), CompilationSettings(element=F64))
        assert [item.code for item in found.findings] == codes


@pytest.mark.parametrize("mark", ["@dtype(bf16)", "@precision(compute=bf16)", "@dtype(fp16)"])
def test_gradients_go_back_through_narrow_types(mark: str) -> None:
    ours = run(differentiated(TEXT.format(mark=f" {mark}", lists="")), {"x": X})
    plain = run(differentiated(TEXT.format(mark="", lists="")), {"x": X})
    for name, gradient in ours.gradients.items():
        wanted = plain.gradients[name]
        assert gradient.dtype == np.float64
        np.testing.assert_allclose(gradient, wanted, atol=0.03 * np.abs(wanted).max())


def test_declarations_tell_whether_gradients_are_to_be_checked() -> None:
    plain = TEXT.format(mark="", lists="")
    assert not declares_gradients(instance_of(plain))
    assert declares_gradients(instance_of(TEXT.format(mark="", lists="save: [x]")))
    assert declares_gradients(instance_of(plain.rstrip() + BACKWARD.format(a="saved.a", x="x")))
