"""Chains of what a node was made from."""

from __future__ import annotations

from lamella.base.diagnostic import Diagnostic
from lamella.base.origin import LONGEST_CHAIN, Origin, with_origin
from lamella.base.source import Source, Span


def test_a_chain_reads_from_near_to_far() -> None:
    model = Source("resnet.module", "\n" * 30 + "stem.conv1")
    operator = Source("ops/nn.sknd", "\n" * 87 + "nn.conv")
    weight = Origin("HF 'conv1.weight'")
    layer = Origin("stem.conv1", Span(model, 30, 40), weight)
    node = Origin("nn.conv", Span(operator, 87, 94), layer)
    words = ("ops/nn.sknd:88 nn.conv", "resnet.module:31 stem.conv1", "HF 'conv1.weight'")
    assert node.words() == words
    assert list(node.chain()) == [node, layer, weight]
    told = with_origin(Diagnostic("NEM002", "error", "it is wrong"), node)
    assert str(told).endswith("from: " + "  <-  ".join(words))
    assert with_origin(told, None) is told


def test_long_chains_are_cut_and_never_recurse() -> None:
    node = Origin("0")
    for index in range(1, 200_000):
        node = Origin(str(index), None, node)
    assert len(node.words()) == LONGEST_CHAIN
    assert node.words()[0] == "199999"
    assert repr(node) == "<Origin 199999>"
    assert node != Origin("199999")


def test_names_from_files_are_made_safe() -> None:
    assert "\x1b" not in str(Origin("a\x1b[31mb", Span(Source("c\x1bd", ""), 0, 0)))
