"""Instances of declarations in a text, for tests."""

from __future__ import annotations

from lamella.base.source import Source
from lamella.lang.module.instantiate import Instance, Instantiated, Known, Value, instantiate, walk
from lamella.lang.module.resolve import Resolved, Workspace, resolve


def read(text: str) -> Resolved:
    """A text whose names are all right."""
    workspace = Workspace()
    resolved = resolve(workspace.take(Source("test.module", text)), workspace)
    assert resolved.findings == (), "\n".join(map(str, resolved.findings))
    return resolved


def build(text: str, name: str = "M", **config: Value) -> Instantiated:
    """A declaration of a text with some values."""
    resolved = read(text)
    known = {key: Known(value, "--set") for key, value in config.items()}
    return instantiate(resolved.scope.local[name], known, resolved.scope)


def built(text: str, name: str = "M", **config: Value) -> Instance:
    """An instance that has nothing wrong."""
    found = build(text, name, **config)
    assert found.instance is not None, "\n".join(map(str, found.findings))
    assert found.findings == ()
    return found.instance


def codes(found: Instantiated) -> list[str]:
    """The codes of all findings."""
    return [item.code for item in found.findings]


def shapes(instance: Instance) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors by path."""
    return {path: slot.dims for path, slot in walk(instance)}
