"""A simulation as one HTML page that needs nothing else: no network, no other file.

The content security policy lets run only the script of this package (by its hash) and lets load nothing. What comes
from a file reaches the page as JSON in a data block and from there only as text.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256

from lamella.base.paths import read_shipped
from lamella.lang.nem.resolved import Plan
from lamella.plan.picture.build import scene_of, with_slices
from lamella.plan.picture.scene import Scene, Slice, Track, Waiting
from lamella.plan.timing.report import Report

SCRIPTS = ("view.js", "timeline.js", "memory.js", "panels.js", "selftest.js", "page.js")
_PLACEHOLDER = re.compile(r"\{(policy|title|style|scene|script)\}")


def html_page(report: Report, plan: Plan) -> str:
    """The page of a simulation: timeline, memory, bounds, tasks and source, linked with each other."""
    return fill_page(with_slices(scene_of(report, plan), report, plan))


def fill_page(scene: Scene) -> str:
    """The page of a scene."""
    style = _asset("page.css")
    script = "(() => {\n'use strict';\n" + "".join(map(_asset, SCRIPTS)) + "})();\n"
    parts = {
        "policy": _policy(style, script),
        "title": html.escape(f"{scene.program} on {scene.device}"),
        "style": style,
        "scene": embed(scene_data(scene)),
        "script": script,
    }
    # One pass, so that a name that looks like a placeholder stays a name.
    return _PLACEHOLDER.sub(lambda found: parts[found[1]], _asset("page.html"))


def embed(value: object) -> str:
    """JSON that cannot end the element it stands in nor open a comment there."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _asset(name: str) -> str:
    return read_shipped(f"plan/picture/assets/{name}")


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


# --- the data of the page -------------------------------------------------------------------------------------


def scene_data(scene: Scene) -> dict[str, object]:
    """A scene as the page reads it; slices in columns, which keeps twenty thousand of them small."""
    stretches = {waits: number for number, waits in enumerate(dict.fromkeys(s.waits for s in scene.slices))}
    return {
        "program": scene.program,
        "file": scene.file,
        "device": f"{scene.device} · {scene.topology}",
        "cycles": scene.cycles,
        "covered": scene.covered,
        "cut": scene.cut,
        "ratio": _ratio(scene),
        "facts": scene.facts,
        "notes": scene.notes,
        "tracks": [_track(track) for track in scene.tracks],
        "tasks": [asdict(row) for row in scene.tasks],
        "slices": _columns(scene.slices, stretches),
        "waits": [[asdict(wait) for wait in waits] for waits in stretches],
        "levels": [asdict(level) for level in scene.levels],
        "bounds": [asdict(bound) for bound in scene.bounds],
        "source": scene.source,
    }


def _ratio(scene: Scene) -> str:
    binding = scene.binding
    return "" if binding is None else f"schedule ÷ {binding.name} = {scene.ratio:.3f}"


def _track(track: Track) -> dict[str, object]:
    return {"name": track.name, "group": track.group, "busy": track.busy, "utilisation": track.utilisation}


def _columns(
    slices: tuple[Slice, ...], stretches: Mapping[tuple[Waiting, ...], int]
) -> dict[str, list[object]]:
    return {
        "track": [item.track for item in slices],
        "task": [item.task for item in slices],
        "start": [item.start for item in slices],
        "end": [item.end for item in slices],
        "iteration": [item.iteration for item in slices],
        "waits": [stretches[item.waits] for item in slices],
        "after": [item.after for item in slices],
    }
