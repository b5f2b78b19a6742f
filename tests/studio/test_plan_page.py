"""The page works without a network, links its parts, and takes names for nothing but names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lamella.base.diagnostic import printable
from lamella.base.page import embed
from lamella.base.source import Source
from lamella.lang.nem import check
from lamella.lang.nem.resolved import Plan
from lamella.plan.timing import TimingReport, simulate
from lamella.studio.page import PLAN_SCRIPTS, SCRIPTS, plan_page, scene_page
from tests.support.plan.report.scenes import HOSTILE, make_scene
from tests.support.plan.timing_plans import Builder, conv_pipeline
from tests.support.studio.browser import open_page

ASSETS = Path(plan_page.__code__.co_filename).parent / "assets"
TRIALS = re.findall(r"^  (\w+)\(\) \{$", (ASSETS / "plan" / "selftest.js").read_text("utf-8"), re.MULTILINE)


def test_asks_for_nothing_from_outside(conv_relu: tuple[TimingReport, Plan]) -> None:
    page = plan_page(*conv_relu)
    assert not re.findall(r"(?:https?:)?//(?!www\.w3\.org/)[\w.]+\.\w+/", page)
    assert not re.findall(r"https?:", page.replace("http://www.w3.org/", ""))
    assert not re.findall(r"<(?:link|img|iframe|object|embed|base)\b|@import|url\(|XMLHttp", page)
    assert "connect-src" not in page
    assert "default-src 'none'" in page
    assert "unsafe" not in page


def test_the_scripts_never_write_markup() -> None:
    for script in (*SCRIPTS, *(f"plan/{name}" for name in PLAN_SCRIPTS)):
        text = (ASSETS / script).read_text("utf-8")
        assert not re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function", text)
        assert len(text.splitlines()) < 500


@pytest.mark.parametrize("text", HOSTILE)
def test_embedded_data_cannot_leave_its_element(text: str) -> None:
    embedded = embed({"name": text})
    assert "<" not in embedded
    assert json.loads(embedded) == {"name": text}


def test_placeholders_in_names_are_names() -> None:
    page = scene_page(make_scene("{script}", "{policy}", "{style}"))
    assert page.count("'use strict'") == 1
    assert page.count("default-src") == 1


def test_says_when_the_timeline_is_cut() -> None:
    plan = conv_pipeline(tiles=1_000_000, window=2)
    assert "first 100 of 5 000 000 task instances" in plan_page(simulate(plan, detail=100), plan)
    small = conv_pipeline(tiles=4)
    assert "The timeline shows" not in plan_page(simulate(small), small)


@pytest.mark.chromium
def test_zoom_hover_selection_and_source_work(conv_relu: tuple[TimingReport, Plan], tmp_path: Path) -> None:
    report, plan = conv_relu
    opened = open_page(plan_page(report, plan), tmp_path, "#selftest")
    assert opened.console == ()
    assert "error" not in opened.data
    assert opened.data["ready"] == "true"
    assert len(TRIALS) >= 12
    trials = {name: opened.data[f"trial-{name}"] for name in TRIALS}
    assert trials == dict.fromkeys(TRIALS, "true")
    assert opened.data["line"] == str(next(plan.tasks()).span.line)
    assert "load_x" in opened.data["tip"]
    assert int(opened.data["tasks"]) == 5
    assert int(opened.data["slices"]) == 20


@pytest.mark.chromium
def test_layers_are_listed_and_can_be_chosen(tmp_path: Path) -> None:
    """Sections that comments name; a choice shows the tasks and the time of one of them."""
    text = (
        "buffer A : L2 (size=64)\nbuffer B : L1 (size=64)\n"
        "# == first: a load\ntransfer.sync(dst=B, src=A)\n# == <b>second</b>\nstore.sync(dst=A, src=B)\n"
    )
    plan = check(Source("layers.nem", text)).plan
    assert plan is not None
    opened = open_page(plan_page(simulate(plan), plan), tmp_path, "#selftest")
    assert opened.console == ()
    assert (opened.data["layers"], opened.data["trial-layers"]) == ("2", "true")
    assert "<b>second</b>" in opened.texts["layers"]


@pytest.mark.chromium
def test_twenty_thousand_slices_are_drawn(tmp_path: Path) -> None:
    opened = open_page(scene_page(make_scene(tiles=7000)), tmp_path, "#selftest")
    assert opened.console == ()
    assert opened.data["slices"] == "21000"
    assert {opened.data[f"trial-{name}"] for name in TRIALS} == {"true"}


@pytest.mark.chromium
@pytest.mark.parametrize("first", range(0, len(HOSTILE), 3))
def test_hostile_names_are_inert(first: int, tmp_path: Path) -> None:
    names = HOSTILE[first : first + 3]
    opened = open_page(scene_page(make_scene(*names)), tmp_path, "#selftest")
    assert opened.console == ()
    assert "pwned" not in opened.data
    assert opened.scripts == 2
    assert opened.data["ready"] == "true"
    assert opened.texts["program"] == names[0]
    assert {opened.data[f"trial-{name}"] for name in TRIALS} == {"true"}


def test_overrides_of_direction_reach_no_picture(hostile: tuple[TimingReport, Plan]) -> None:
    page = plan_page(*hostile)
    assert page.isascii() or not re.search("[\u202a-\u202e\u2066-\u2069\x1b]", page)
    data = page.split('id="data">')[1].split("</script>")[0]
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b]", json.dumps(json.loads(data), ensure_ascii=False))
    assert printable("\u202e") in json.loads(data)["models"][0]["plan"]["tasks"][0]["title"]


def test_every_debug_name_and_profile_tag_appears(named: tuple[TimingReport, Plan]) -> None:
    data = plan_page(*named).split('id="data">')[1].split("</script>")[0]
    shown = json.dumps(
        {key: value for key, value in json.loads(data)["models"][0]["plan"].items() if key != "source"}
    )
    for thing in ("task", "loop", "region", "buffer"):
        assert f"{thing}_name" in shown
        assert f"{thing}_tag" in shown


@pytest.mark.chromium
def test_a_program_without_tasks_has_a_page(tmp_path: Path) -> None:
    plan = Builder().plan([])
    opened = open_page(plan_page(simulate(plan), plan), tmp_path, "#selftest")
    assert opened.console == ()
    assert opened.data["ready"] == "true"
    assert opened.data["slices"] == "0"


@pytest.mark.chromium
def test_a_cut_timeline_opens_at_what_is_known(tmp_path: Path) -> None:
    plan = conv_pipeline(tiles=1_000_000, window=2)
    opened = open_page(plan_page(simulate(plan, detail=500), plan), tmp_path, "#selftest")
    assert opened.console == ()
    assert opened.texts["cut"].startswith("The timeline shows the first 500 of 5 000 000 task instances")
    trials = {name: opened.data[f"trial-{name}"] for name in TRIALS}
    assert trials == dict.fromkeys(TRIALS, "true")
