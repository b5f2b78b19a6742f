"""The surface of the API: short representations, cards for notebooks, typed options, inputs in order."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import lamella
from docs.generate_options import FILE, options_module
from lamella.base.card import Card, CardTable
from lamella.pipeline import api_options
from lamella.pipeline.given import options_of
from lamella.pipeline.options import table
from lamella.train.fit import train
from tests.support.repository import ROOT

EXAMPLES = ROOT / "examples"
DIGITS = EXAMPLES / "digits" / "digits.sknd"
PLAN = EXAMPLES / "npu" / "conv_relu.nem"
TAKERS = ("load", "check", "compile", "lower", "quantize", "diff", "train", "generate", "bench", "watch")


def things() -> dict[str, object]:
    """One of everything that the API hands out."""
    return {
        "graph": lamella.load(EXAMPLES / "resnet18"),
        "module": lamella.load(EXAMPLES / "llama" / "page.module"),
        "nac": lamella.load(EXAMPLES / "nac" / "words.nacs"),
        "tensor": lamella.load(EXAMPLES / "kernels" / "rows.tensor"),
        "nem": lamella.load(PLAN),
        "unit": lamella.lower(EXAMPLES / "llama" / "page.module", to="ir"),
        "kernels": lamella.lower(DIGITS, to="tensor"),
        "plan": lamella.lower(DIGITS, to="nem", device="npm_lite"),
        "stream": lamella.lower(PLAN, to="stcb"),
        "run": lamella.compile(DIGITS, backend="reference"),
        "run nac": lamella.compile(EXAMPLES / "nac" / "words.nacs"),
        "run plan": lamella.compile(PLAN),
        "run ported": lamella.compile(DIGITS, backend="npu", device="npm_lite"),
        "run kernels": lamella.compile(EXAMPLES / "kernels" / "rows.tensor"),
        "generated": lamella.generate(EXAMPLES / "llama" / "page.module", [72, 105], seed=1, max_tokens=2),
    }


def test_everything_is_shown_in_a_line_and_as_a_card() -> None:
    for name, item in things().items():
        assert len(repr(item)) <= 200, name
        assert repr(item).startswith("<"), name
        page = item._repr_html_()  # type: ignore[attr-defined]
        assert page.startswith("<div>"), name
        assert len(page) < 40_000, name


def test_the_line_says_what_counts() -> None:
    line = repr(lamella.load(EXAMPLES / "resnet18"))
    assert line.startswith(
        "<graph ResNet18: 68 operations, 102 variables, 11,699,112 values, image: f32[1, 3, 224"
    )
    (finding,) = lamella.check(EXAMPLES / "operator" / "window_attention.sknd", config={"length": 18})
    assert repr(finding).count("\n") == 0
    assert "error[SKR283]" in repr(finding)
    assert "<pre>" in finding._repr_html_()


def test_names_are_no_markup() -> None:
    table_ = CardTable("rows", ("<i>",), (("<script>alert(1)</script>",),), 100)
    page = Card("graph", "<b>\x1b[31m", (("<u>", "'\"<&"),), (table_,)).html()
    for word in ("<script", "<i>", "<u>", "\x1b"):
        assert word not in page
    assert "and 99 more" in page
    assert "\x1b" not in Card("graph", "\x1b[31m", ()).line()


def test_inputs_are_given_in_order_or_by_name() -> None:
    image = np.random.default_rng(0).uniform(0, 16, (1, 1, 8, 8)).astype(np.float32)
    for backend, options in (("reference", {}), ("cpu", {}), ("npu", {"device": "npm_lite"})):
        run = lamella.compile(DIGITS, backend=backend, **options)  # type: ignore[arg-type]
        np.testing.assert_array_equal(run(image)["scores"], run(image=image)["scores"])
        with pytest.raises(lamella.LamellaError, match="2 inputs are given in order, and there are 1"):
            run(image, image)
        with pytest.raises(lamella.LamellaError, match="'image' is given twice"):
            run(image, image=image)


def test_the_typed_options_are_those_of_the_table() -> None:
    assert FILE.read_text(encoding="utf-8") == options_module(), "run: make docs"


@pytest.mark.parametrize("name", TAKERS)
def test_signatures_and_docstrings_name_every_option(name: str) -> None:
    function = train if name == "train" else getattr(lamella, name)
    options = getattr(api_options, f"{name.capitalize()}Options").__annotations__
    named = inspect.signature(function).parameters
    assert options.keys() <= named.keys()
    assert not [item for item in named.values() if item.kind is item.VAR_KEYWORD]
    for option in options:
        assert f"    {option}: {table()[option].help.removesuffix('; repeatable.')}" in (
            function.__doc__ or ""
        )


def test_options_of_other_functions_are_refused_by_name() -> None:
    with pytest.raises(lamella.LamellaError, match="there is no option 'max_token'"):
        options_of({"max_token": 3}, by_command=True)
    with pytest.raises(lamella.LamellaError, match="cannot have an effect"):
        lamella.generate(EXAMPLES / "llama" / "page.module", [1], types={"x": "f32[2]"})


def test_generate_is_the_command(tmp_path: Path) -> None:
    model = EXAMPLES / "llama" / "page.module"
    found = lamella.generate(model, [72, 105], seed=1, max_tokens=6)
    assert found.tokens == [229, 196, 158, 10, 194, 45]
    words = EXAMPLES / "nac" / "words.nacs"
    with pytest.raises(lamella.LamellaError, match="answered by the plan"):
        lamella.generate(words, "a text")


def test_bench_is_measured_from_python(tmp_path: Path) -> None:
    found = lamella.bench(DIGITS, round_seconds=0.001)
    assert "bounds" in repr(found)
    assert found._repr_html_().startswith("<pre>")
    found.save(tmp_path / "page.html")
    assert "lamella bench" in (tmp_path / "page.html").read_text(encoding="utf-8")
