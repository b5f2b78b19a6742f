"""The page of the studio: data of one or two models, and the scripts that show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamella.base.page import MARK, page
from lamella.base.paths import read_shipped
from lamella.lang.nem.resolved import Plan
from lamella.pipeline.grammars import GRAMMARS
from lamella.plan.report import Scene, full_scene
from lamella.plan.timing import TimingReport
from lamella.studio.gather import Gathered
from lamella.studio.plan_level import scene_data

SCRIPTS = (
    "ground.js",
    "layout.js",
    "graph.js",
    "texts.js",
    "views.js",
    "weights.js",
    "shell.js",
)
PLAN_SCRIPTS = ("view.js", "timeline.js", "memory.js", "panels.js", "selftest.js", "open.js")
RELOAD = "; connect-src 'self'"
"""What a page that is served may do beyond a file: ask whether it changed."""


def studio_page(
    models: Sequence[Gathered], comparison: dict[str, object] | None = None, served: str = ""
) -> str:
    """One page for one model, or for two side by side; `served` is where a served page asks for changes."""
    data = {"models": [item.data() for item in models], "comparison": comparison, "served": served}
    title = " ↔ ".join(item.title for item in models)
    return _page(title, data, RELOAD if served else "")


def plan_page(report: TimingReport, plan: Plan) -> str:
    """The page of a simulated plan alone."""
    return scene_page(full_scene(report, plan))


def scene_page(scene: Scene) -> str:
    """The page of a scene; its title is the name of the file."""
    title = scene.file or scene.program
    model = {"title": title, "kind": "NEM plan", "facts": [], "notes": [], "plan": scene_data(scene)}
    return _page(title, {"models": [model], "comparison": None, "served": ""})


def _page(title: str, data: Mapping[str, object], more: str = "") -> str:
    data = {**data, "grammars": {name: item.javascript() for name, item in GRAMMARS.items()}}
    body = _asset("studio.html").replace("{mark}", MARK).replace("{plan}", _asset("plan/plan.html"))
    style = _asset("studio.css") + _asset("plan/plan.css")
    return page(f"{title} · lamella", body, style=style, script=script(), data=data, more=more)


def script() -> str:
    """All scripts as one, each name of which is its own: the plan's are those of one function."""
    plan = "".join(_asset(f"plan/{name}") for name in PLAN_SCRIPTS)
    opened = f"function openPlan(root, scene, hooks) {{\n{plan}}}\n"
    return (
        "(() => {\n'use strict';\n"
        + "".join(map(_asset, SCRIPTS[:-1]))
        + opened
        + _asset(SCRIPTS[-1])
        + "})();\n"
    )


def _asset(name: str) -> str:
    return read_shipped(f"studio/assets/{name}")


__all__ = ["plan_page", "scene_page", "script", "studio_page"]
