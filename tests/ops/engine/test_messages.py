"""What a refused call says: the operator, names and numbers, and where each came from."""

from __future__ import annotations

import pytest

from lamella.base.diagnostic import Diagnostic, render
from lamella.base.errors import Found
from lamella.base.source import Source, Span
from lamella.ops.instance import Argument, Value
from lamella.ops.library import Library
from tests.support.ops.engine.calls import call, module, refusal, tensor

LIBRARY = Library()
MODEL = Source("model.sknd", "y = nn.linear(flat1, kernel7);\n")
CALL = Span(MODEL, 4, 29)


def finding(
    library: Library, name: str, arguments: list[Argument], attributes: dict[str, Value]
) -> Diagnostic:
    with pytest.raises(Found) as caught:
        call(library, name, arguments, attributes, span=CALL)
    return caught.value.findings[0]


def test_a_disagreement_names_the_symbol_both_values_and_both_places() -> None:
    flat, kernel = tensor(1, 9216, name="flat1"), tensor(4096, 4096, name="kernel7")
    found = finding(LIBRARY, "nn.linear", [flat, kernel], {})
    assert found.message == (
        "nn.linear: 'c' is 9216 by dimension 1 of 'input' (tensor flat1: [1, 9216]), "
        "but 4096 by dimension 1 of 'filter' (tensor kernel7: [4096, 4096])"
    )
    assert found.span == CALL
    assert [(label.span.source.name, label.span.text, label.text) for label in found.labels] == [
        ("ops/nn.sknd", "c", "'c' is 9216 here"),
        ("ops/nn.sknd", "c", "4096 here"),
    ]
    assert "model.sknd:1:5" in render(found)


def test_a_failed_assertion_says_its_text_its_values_and_its_place() -> None:
    found = finding(LIBRARY, "nn.conv", [tensor(1, 3, 8, 8), tensor(4, 2, 3, 3)], {})
    assert found.code == "SKR283"
    assert found.message.startswith("nn.conv: ")
    assert "3" in found.message
    assert "2" in found.message
    assert found.span == CALL
    assert found.labels[0].span.source.name == "ops/nn.sknd"
    assert found.labels[0].text == "required here"


def test_a_problem_inside_the_definition_is_told_at_the_call() -> None:
    library = module(
        "operator o { @attrib { a: int; } @using { b = 1 / a; } @output { y: real[b]; } }"
    ).library
    found = finding(library, "main.o", [], {"a": 0})
    assert found.message == "main.o: '/' divides by zero"
    assert found.span == CALL
    assert [(label.span.text, label.text) for label in found.labels] == [("1 / a", "here")]


def test_messages_do_not_grow_with_packs_or_numbers() -> None:
    text = "operator o { @attrib { p: int..; n: int; } @assert { p > 0: 'p {p}', p, n; } @output { y: real[]; } }"
    found = refusal(text, p=(0,) * 100_000, n=10**900)
    assert len(found) < 2500
    assert "100000 items" in found
    assert "a 2990-bit number" in found


def test_a_message_that_cannot_be_computed_does_not_hide_the_assertion() -> None:
    text = (
        "operator o { @attrib { a: int; } @assert { a > 0: 'a', 1 / a, 'label': a; } @output { y: real[]; } }"
    )
    assert refusal(text, a=0) == "SKR283: main.o: a (1 / a = ?, label = 0)"


@pytest.mark.parametrize(
    ("declared", "arguments", "sentence"),
    [
        (
            "x: real[n, 2 * n];",
            [tensor(3, 5)],
            "main.o: '2 * n' is 6 by 'n' = 3 of dimension 0 of 'x' (tensor t: [3, 5]), "
            "but 5 by dimension 1 of 'x' (tensor t: [3, 5])",
        ),
        (
            "x: real[n, 4];",
            [tensor(3, 5)],
            "main.o: '4' is 4 by its declaration, but 5 by dimension 1 of 'x' (tensor t: [3, 5])",
        ),
        (
            "x: real[s..]; y: real[s..];",
            [tensor(2, 3), tensor(2, 4, name="u")],
            "main.o: item 1 of 's' is 3 by dimension 1 of 'x' (tensor t: [2, 3]), "
            "but 4 by dimension 1 of 'y' (tensor u: [2, 4])",
        ),
        (
            "x: real[s..]; y: real[s..];",
            [tensor(2, 3), tensor(2, name="u")],
            "input 'y' of main.o is declared real[s..], which needs 2 dimensions; tensor u: [2] has 1",
        ),
        (
            "x: real[n, m];",
            [tensor(2)],
            "input 'x' of main.o is declared real[n, m], which needs 2 dimensions; tensor t: [2] has 1",
        ),
        (
            "x: real[s..(d + 3)];",
            [tensor(2)],
            "input 'x' of main.o is declared real[s..(d + 3)], which needs at least 3 dimensions; tensor t: [2] has 1",
        ),
        (
            "x: real[4 * n];",
            [tensor(7)],
            "main.o: '4 * n' is 7 by dimension 0 of 'x' (tensor t: [7]), and no whole 'n' makes it so",
        ),
        (
            "xs: real[n]..(k);",
            [(tensor(2, name="a"), tensor(3, name="b"))],
            "main.o: 'n' is 2 by dimension 0 of 'xs' (tensor a: [2]), but 3 by dimension 0 of 'xs' (tensor b: [3])",
        ),
        (
            "xs: real[n]..(3);",
            [(tensor(2), tensor(2))],
            "main.o: '3' is 3 by its declaration, but 2 by the length of 'xs'",
        ),
        (
            "xs: real[s..]..(k);",
            [(tensor(2), tensor())],
            "the tensors of a pack have one rank; 'xs' of main.o got [2] and []",
        ),
        ("xs: real[s..]..(k);", [tensor(2)], "input 'xs' of 'main.o' is a pack of tensors and gets a tensor"),
        ("x: real[s..];", [(tensor(2),)], "input 'x' of 'main.o' is a tensor and gets a pack"),
        ("x: real[s..];", [None], "'main.o' is invoked without its input 'x'"),
        ("x: real[s..];", [], "'main.o' is invoked without its input 'x'"),
        ("x: real[s..];", [tensor(), tensor()], "'main.o' takes 1 inputs and gets 2"),
        ("x: real[s..];", [1], "input 'x' of 'main.o' is of type real and gets int (1)"),
        ("x: int[s..];", [tensor()], "input 'x' of 'main.o' is of type int and gets f32 (tensor t)"),
    ],
)
def test_inputs_that_do_not_fit(declared: str, arguments: list[Argument], sentence: str) -> None:
    text = f"operator o {{ @input {{ {declared} }} @output {{ z: real[]; }} }}"
    assert refusal(text, *arguments).partition(": ")[2] == sentence


@pytest.mark.parametrize(
    ("declared", "given", "sentence"),
    [
        ("a: int;", {}, "'main.o' is invoked without its attribute 'a'"),
        ("a: int;", {"a": None}, "'main.o' is invoked without its attribute 'a'"),
        ("a: int;", {"a": 1, "b": 2}, "'main.o' has no attribute 'b'"),
        ("a: int;", {"a": 1.5}, "attribute 'a' of 'main.o' is int and gets real 1.5"),
        ("a: int;", {"a": True}, "attribute 'a' of 'main.o' is int and gets bool true"),
        ("a: int;", {"a": (1, 2)}, "attribute 'a' of 'main.o' is int and gets int.. [1, 2]"),
        ("a: real..;", {"a": (1.0, 2)}, "attribute 'a' of 'main.o' is real.. and gets real.. [1.0, 2]"),
        ("a: str;", {"a": 3}, "attribute 'a' of 'main.o' is str and gets int 3"),
        ("a: int..(2);", {"a": (1,)}, "'a' of main.o has 1 items, but its length '2' is 2"),
    ],
)
def test_attributes_that_do_not_fit(declared: str, given: dict[str, Value], sentence: str) -> None:
    text = f"operator o {{ @attrib {{ {declared} }} @output {{ z: real[]; }} }}"
    assert refusal(text, **given).partition(": ")[2] == sentence
