"""Values of config parameters as a user gives them: Python objects, or text in the language itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.source import Source
from lamella.lang.module.instantiate import find_presets, read_preset
from lamella.lang.module.instantiate.evaluate import Problem, Surroundings, evaluate
from lamella.lang.module.instantiate.nodes import Known, Value
from lamella.lang.module.nodes import ConfigParam, Module, Recipe
from lamella.lang.module.parse import parse
from lamella.lang.module.resolve import Declared, Scope
from lamella.lang.module.suggest import suggest

GIVEN = "--set"
SHOWN = 100


def given_values(config: Mapping[str, object], params: Sequence[ConfigParam], model: str) -> dict[str, Known]:
    """What the user sets, each by the name of a parameter."""
    known = [item.name for item in params]
    unknown = next((name for name in config if name not in known), None)
    if unknown is not None:
        hint = suggest(unknown, known) or f"'{model}' has: {', '.join(known) or 'no parameters'}"
        raise InputError(f"'{model}' has no parameter '{unknown[:SHOWN]}'", hint=hint)
    return {name: Known(value_of(name, value), GIVEN) for name, value in config.items()}


def config_for(module: Module, config: Mapping[str, object]) -> dict[str, object]:
    """The part of a configuration that concerns one declaration."""
    known = {item.name for item in module.params or ()}
    return {name: value for name, value in config.items() if name in known}


def require_known(config: Mapping[str, object], declared: Sequence[Declared]) -> None:
    """Where several declarations are checked with one configuration, each name in it belongs to one of them."""
    modules = [item.declaration for item in declared if isinstance(item.declaration, Module)]
    known = {item.name for module in modules for item in module.params or ()}
    unknown = next((name for name in config if name not in known), None)
    if unknown is not None:
        hint = suggest(unknown, known) or f"there is: {', '.join(sorted(known)) or 'none'}"
        raise InputError(f"there is no parameter '{unknown[:SHOWN]}'", hint=hint)


def value_of(name: str, value: object) -> Value:
    """A value that a user gives: an object as it is, a text as the language reads it."""
    if isinstance(value, str):
        return _read(name, value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return tuple(value_of(name, item) for item in value)
    raise InputError(
        f"'{name}' is set to a {type(value).__name__}", hint="values are numbers, words and lists"
    )


def _read(name: str, text: str) -> Value:
    """The value of a text; what is no expression of the language is a string."""
    document, findings = parse(Source(GIVEN, f"recipe values:\n  value: {text}\n"))
    recipe = document.items[0] if document.items else None
    if errors(findings) or not isinstance(recipe, Recipe) or not recipe.fields:
        return text
    found = recipe.fields[0].value
    if isinstance(found, str | tuple):
        return text
    try:
        return evaluate(found, {}, Surroundings(words=True))
    except Problem as problem:
        raise LamellaError([problem.finding]) from None


def preset_values(scope: Scope, name: str | None) -> dict[str, Known]:
    """The values of a preset of a file; none where none is asked for."""
    if name is None:
        return {}
    presets = find_presets(scope)
    if name not in presets:
        hint = f"the file has: {', '.join(presets) or 'none'}"
        raise InputError(f"there is no preset '{name[:SHOWN]}'", hint=hint)
    values, findings = read_preset(presets[name])
    if errors(findings):
        raise LamellaError(errors(findings))
    return values
