"""Recipes, presets and heads: fields that mean something, with values and types that they can have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.lang.module.annotations.nodes import Parameter
from lamella.lang.module.annotations.reading import accepts, show_value, wanted
from lamella.lang.module.annotations.table import STRATEGIES
from lamella.lang.module.check.views import view_of
from lamella.lang.module.instantiate.evaluate import Surroundings, evaluate
from lamella.lang.module.nodes import ConfigParam, Document, Field, Module, Preset, Recipe
from lamella.lang.module.resolve.near import guess
from lamella.lang.module.resolve.nodes import Scope
from lamella.lang.module.rules import annotated, constants, names
from lamella.lang.module.words import CONFIG_TYPES

RECIPE_FIELDS: Mapping[str, Parameter] = MappingProxyType(
    {
        item.name: item
        for item in (
            *(
                Parameter(f"{name}_dtype", "dtype")
                for name in (
                    "forward_activation",
                    "backward_gradient",
                    "accumulation",
                    "output",
                    "weight_storage",
                )
            ),
            Parameter("scaling_strategy", "word", choices=STRATEGIES),
            Parameter("amax_history_len", "int", least=1),
            Parameter("block_size", "pair"),
            Parameter("margin", "float", least=0.0),
        )
    }
)
"""The decisions that a recipe bundles."""
MODEL = "model"


def check_recipe(recipe: Recipe) -> Iterator[Diagnostic]:
    """What is wrong with the fields of a recipe."""
    for field in recipe.fields:
        parameter = RECIPE_FIELDS.get(field.name)
        if parameter is None:
            repair = guess(field.name, RECIPE_FIELDS) or f"it has {', '.join(RECIPE_FIELDS)}"
            yield annotated.RECIPE_FIELD.at(field.span, field=field.name, repair=repair)
            continue
        if isinstance(field.value, str | tuple):
            found = "no value"
        else:
            try:
                value = evaluate(field.value, {}, Surroundings(words=True))
            except Found as problem:
                yield problem.finding
                continue
            if accepts(parameter, value):
                continue
            found = show_value(value, parameter)
        yield annotated.RECIPE_VALUE.at(
            field.span, field=field.name, name=recipe.name, found=found, wanted=wanted(parameter), repair=""
        )


def check_presets(document: Document, scope: Scope | None) -> Iterator[Diagnostic]:
    """Names that presets set and no model of the file has."""
    modules = [item for item in document.items if isinstance(item, Module)]
    models = [item for item in modules if item.kind == MODEL] or modules
    views = [view_of(item, scope) for item in models]
    if not views or not all(view.whole for view in views):
        return
    known = {name for view in views for name in view.config}
    for preset in (item for item in document.items if isinstance(item, Preset)):
        yield from (_unknown(field, models[0], known) for field in preset.fields if field.name not in known)


def _unknown(field: Field, model: Module, known: set[str]) -> Diagnostic:
    repair = guess(field.name, sorted(known))
    return names.UNKNOWN_ARGUMENT.at(field.span, module=model.name, name=field.name, repair=repair)


def check_types(params: Iterable[ConfigParam]) -> Iterator[Diagnostic]:
    """Types of config parameters that there are not."""
    for param in params:
        if param.type is not None and param.type.name not in CONFIG_TYPES:
            name, types = param.type.name, ", ".join(CONFIG_TYPES)
            repair = guess(name, CONFIG_TYPES) or f"types are: {types}"
            yield constants.UNKNOWN_TYPE.at(param.type.span, name=name, param=param.name, repair=repair)
