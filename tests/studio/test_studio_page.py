"""The page in a real browser: clicks and keys, links between levels, thousands of operations, hostile names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lamella
from lamella.base.dtype import F32
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.lsp.pygments import ModuleLexer, SkriptndLexer
from lamella.ops.library import Library
from tests.support.plan.report.scenes import HOSTILE
from tests.support.repository import ROOT
from tests.support.studio.chromium import Chromium
from tests.support.studio.graphs import make_layers

pytestmark = pytest.mark.chromium
DIGITS = ROOT / "examples" / "digits"
OPS = 8000


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as found:
        yield found


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("studio") / "digits.html"
    weights = DIGITS / "digits.safetensors"
    lamella.view(DIGITS / "digits.sknd", output=path, weights=weights, device="npm_lite", profile=True)
    return path


def marked(browser: Chromium, view: str) -> list[str]:
    """The lines that a view marks."""
    found = browser.run(f"[...document.querySelectorAll('.view-{view} .l.on .t')].map((e) => e.textContent)")
    assert isinstance(found, list)
    return [str(item) for item in found]


def test_a_click_is_shown_at_all_levels(browser: Chromium, digits: Path) -> None:
    browser.open(digits)
    browser.click_on(".tree .row:nth-child(5)")
    assert browser.data("things") == "3"
    assert "nn.conv" in browser.text("#inspector")
    assert any("conv2" in line for line in marked(browser, "source"))
    browser.click_on("#pane-1 .tab-nac-0")
    assert [line.split("(")[0].split("= ")[1] for line in marked(browser, "nac")][-1].startswith("aten.conv")
    browser.click_on("#pane-1 .tab-kernels-0")
    assert "fused_conv_relu_2_4" in browser.text(".view-kernels select option:checked, .view-kernels .bar")
    browser.click_on("#pane-1 .tab-plan-0")
    assert browser.text("#selected h3").startswith("conv2")
    browser.click_on("#pane-1 .tab-weights-0")
    on = browser.run("[...document.querySelectorAll('.w-row.on')].map((e) => e.firstChild.textContent)")
    assert on == ["conv2.filter", "conv2.bias"]
    assert browser.problems() == []


def test_levels_lead_back_to_the_graph(browser: Chromium, digits: Path) -> None:
    browser.open(digits)
    browser.click_on("#pane-1 .tab-nac-0")
    browser.run(
        "[...document.querySelectorAll('.view-nac .l')].find((e) => e.textContent.includes('max_pool')).click()"
    )
    assert browser.data("things") == "2"
    browser.click_on("#pane-1 .tab-plan-0")
    row = "[...document.querySelectorAll('#tasks tbody tr')].find((e) => e.textContent.includes('gemm'))"
    browser.run(f"{row}.click()")
    assert browser.data("things") == "7"
    assert "nn.linear" in browser.text("#inspector")
    browser.click_on("#pane-1 .tab-weights-0")
    browser.run(
        "[...document.querySelectorAll('.w-row')].find((e) => e.textContent.includes('conv1.filter')).click()"
    )
    assert browser.data("things") == "0"
    assert "deviation" in browser.text("#inspector")


def test_kernels_and_their_code_are_linked_line_by_line(browser: Chromium, digits: Path) -> None:
    browser.open(digits)
    browser.click_on("#pane-0 .tab-kernels-0")
    browser.run("[...document.querySelectorAll('.column:first-child .l.has')].at(-1).click()")
    line = browser.data("kernelLine")
    counts = browser.run(
        "[...document.querySelectorAll('.column')].map((e) => e.querySelectorAll('.l.on').length)"
    )
    assert isinstance(counts, list)
    assert counts[0] == 1
    assert all(item > 0 for item in counts)
    browser.run("document.querySelector('.column:nth-child(3) .l.on').click()")
    assert browser.data("kernelLine") == line


def test_the_canvas_answers_clicks_keys_and_the_wheel(browser: Chromium, digits: Path) -> None:
    browser.open(digits)
    browser.click_on("#pane-0 canvas")
    before = browser.data("things")
    browser.press("ArrowDown")
    assert browser.data("things") not in ("", before)
    browser.press("Escape")
    assert browser.data("things") == ""
    scale = float(str(browser.run("document.querySelector('canvas').dataset.scale")))
    browser.wheel(500, 500, -300)
    assert float(str(browser.run("document.querySelector('canvas').dataset.scale"))) > scale
    browser.press("f")
    assert float(str(browser.run("document.querySelector('canvas').dataset.scale"))) == pytest.approx(
        scale, abs=1e-3
    )


def test_search_themes_overlays_and_images(browser: Chromium, digits: Path) -> None:
    browser.open(digits)
    browser.run("document.activeElement.blur()")
    browser.press("/")
    browser.type("pool2")
    assert browser.text("#hits") != ""
    browser.press("Enter")
    assert browser.data("things") == "5"
    browser.run("document.activeElement.blur()")
    browser.press("t")
    assert browser.run("document.documentElement.dataset.theme") in ("dark", "light")
    offered = browser.run("[...document.querySelector('#overlay').options].map((e) => e.value)")
    assert offered == ["kind", "macs", "bytes", "seconds"]
    for value in ("macs", "seconds"):
        browser.run(
            f"(() => {{ const e = document.querySelector('#overlay'); e.value = '{value}';"
            " e.dispatchEvent(new Event('change')); })()"
        )
        browser.settle()
        assert browser.run("document.querySelector('.legend .ramp') !== null")
    browser.click_on(".tools .image")
    assert browser.data("exported") == "digits.sknd-graph.png"
    assert browser.problems() == []


def test_eight_thousand_operations_stay_fluid(browser: Chromium, tmp_path: Path) -> None:
    page = lamella.view(make_layers(OPS // 8), output=tmp_path / "many.html", levels=("source",))
    assert len(page.html) < 6_000_000
    assert browser.open(tmp_path / "many.html") < 10
    assert browser.text("#model-facts").startswith("operations8,000")
    browser.click_on("#pane-0 .open-all")
    browser.run("document.querySelector('canvas').focus()")
    for _ in range(8):
        browser.press("-")
    assert int(str(browser.run("Number(document.querySelector('canvas').dataset.drawn)"))) > 40
    spent = browser.run(
        "(async () => { const frames = []; const c = document.querySelector('canvas');"
        " for (let i = 0; i < 30; i += 1) { const t = performance.now();"
        " const at = { deltaY: i % 2 ? 120 : -120, clientX: 500, clientY: 500, cancelable: true };"
        " c.dispatchEvent(new WheelEvent('wheel', at));"
        " await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));"
        " frames.push(performance.now() - t); } frames.sort((a, b) => a - b); return frames[15]; })()"
    )
    assert float(str(spent)) < 200, "a frame of eight thousand open operations on a busy machine"
    browser.press("/")
    browser.type("blocks.999.mul")
    browser.press("Enter")
    assert browser.data("things") == str(OPS - 2)
    assert browser.problems() == []


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_names(browser: Chromium, tmp_path: Path, name: str) -> None:
    build = Builder(Library(), name)
    x = build.input(f"in.{name}", F32, (2, 3))
    model = Model(build.finish(build.call("math.exp", x, results=(f"a.{name}.y",))), build.library)
    lamella.view(model, model, output=tmp_path / "page.html", levels=("nac", "kernels"))
    browser.open(tmp_path / "page.html")
    browser.click_on(".tree .row")
    browser.run("[...document.querySelectorAll('.tab')].forEach((tab) => tab.click())")
    browser.click_on("#pane-0 canvas, .lines")
    assert browser.problems() == []
    assert browser.data("pwned") == ""
    assert browser.run("document.scripts.length") == 2
    assert name.partition("/")[0].partition(".")[0] in browser.text("#title")


def test_two_models_side_by_side(browser: Chromium, tmp_path: Path) -> None:
    text = (DIGITS / "digits.sknd").read_text(encoding="utf-8")
    other = tmp_path / "other.sknd"
    other.write_text(text.replace("relu2 = nn.relu", "relu2 = nn.sigmoid"), encoding="utf-8")
    lamella.view(DIGITS / "digits.sknd", other, output=tmp_path / "two.html", levels=("source",))
    browser.open(tmp_path / "two.html")
    assert (browser.data("pane0"), browser.data("pane1")) == ("graph-0", "graph-1")
    changed = browser.run("[...document.querySelectorAll('.row.changed .what')].map((e) => e.textContent)")
    assert changed == ["relu", "sigmoid"]
    browser.run("document.querySelectorAll('.tree')[1].querySelectorAll('.row')[3].click()")
    assert (browser.data("model"), browser.data("things")) == ("1", "2")
    assert browser.run("document.querySelectorAll('.tree')[0].querySelectorAll('.row.on').length") == 1
    browser.click_on("#pane-1 .tab-changes-0")
    words = browser.text(".changes")
    assert "7 operations alike, 1 changed, 0 only in digits.sknd, 0 only in other.sknd" in words
    assert "operator: nn.relu  →  nn.sigmoid" in words


def test_two_runs_of_plans_are_compared(browser: Chromium, tmp_path: Path) -> None:
    first = ROOT / "examples" / "npu" / "conv_relu.nem"
    second = tmp_path / "fewer.nem"
    second.write_text(
        first.read_text(encoding="utf-8").replace("const T = 4", "const T = 2"), encoding="utf-8"
    )
    lamella.view(first, second, output=tmp_path / "runs.html")
    browser.open(tmp_path / "runs.html")
    assert browser.run("document.querySelectorAll('.plan').length") == 2
    browser.click_on("#pane-1 .tab-changes-0")
    assert "−" in browser.text(".changes td.less")
    assert browser.problems() == []


CLASSES = {
    "Keyword.Type": "type",
    "Keyword.Constant": "number",
    "Keyword": "word",
    "Literal.Number": "number",
}
CLASSES |= {"Literal.String": "string", "Comment": "comment", "Name.Decorator": "name"}


@pytest.mark.parametrize("name", ["digits.sknd", "digits.module"])
def test_texts_have_the_colours_of_their_lexers(browser: Chromium, tmp_path: Path, name: str) -> None:
    lexer = SkriptndLexer() if name.endswith(".sknd") else ModuleLexer()
    page = tmp_path / "page.html"
    lamella.view(DIGITS / name, output=page, levels=("source",))
    browser.open(page)
    lines = (DIGITS / name).read_text(encoding="utf-8").splitlines()
    shown = browser.run(
        "[...document.querySelectorAll('.view-source .l')].map((e) => [Number(e.dataset.line),"
        " [...e.querySelectorAll('.t span')].map((s) => [s.className.slice(2), s.textContent])])"
    )
    assert isinstance(shown, list)
    assert len(shown) > 15
    wanted: dict[int, list[list[str]]] = {}
    number = 0
    for token, text in lexer.get_tokens("\n".join(lines)):
        kind = next((word for head, word in CLASSES.items() if str(token).startswith(f"Token.{head}")), "")
        for place, part in enumerate(text.split("\n")):
            number += place > 0
            if kind and part:
                wanted.setdefault(number, []).append([kind, part])
    judged = {"type", "number", "word", "string", "comment"}
    for line, parts in shown:
        mine = [part for part in parts if part[0] in judged]
        theirs = [part for part in wanted.get(line, []) if part[0] in judged]
        assert mine == theirs, lines[line]
