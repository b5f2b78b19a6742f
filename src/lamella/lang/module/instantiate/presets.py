"""Presets: named sets of config values."""

from __future__ import annotations

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.lang.module.instantiate.collecting import Findings
from lamella.lang.module.instantiate.evaluate import Surroundings, evaluate
from lamella.lang.module.instantiate.nodes import Known
from lamella.lang.module.nodes import Field, Preset
from lamella.lang.module.resolve.nodes import Scope
from lamella.lang.module.rules import constants as rules


def find_presets(scope: Scope) -> dict[str, Preset]:
    """The presets of a file, by name: its own, and those that it imports."""
    found = {**scope.imported, **scope.local}
    items = (declared.declaration for declared in found.values())
    return {item.name: item for item in items if isinstance(item, Preset)}


def read_preset(preset: Preset) -> tuple[dict[str, Known], tuple[Diagnostic, ...]]:
    """The config values of a preset; a value may use those above it."""
    findings = Findings()
    config: dict[str, Known] = {}
    for field in preset.fields:
        try:
            config[field.name] = _value(field, preset.name, config)
        except Found as problem:
            findings.add(problem.finding)
    return config, tuple(findings.items)


def _value(field: Field, preset: str, config: dict[str, Known]) -> Known:
    if isinstance(field.value, str | tuple):
        what, found = f"'{field.name}' of the preset '{preset}'", "no value"
        raise Found(rules.KIND.at(field.span, what=what, found=found, wanted="a constant", repair=""))
    around = Surroundings(where=f"in the preset '{preset}'", words=True)
    return Known(evaluate(field.value, config, around), f"preset '{preset}'", field.span)
