"""Which operators stay whole in a graph."""

from __future__ import annotations

from collections.abc import Callable

from lamella.lang.skriptnd.check.definitions import Definitions
from lamella.lang.skriptnd.nodes import Omitted, TypeSpec
from lamella.ops.instance import Definition
from lamella.ops.library import Library


def keeper(library: Library, keep: Callable[[str], bool] | None) -> Callable[[Definition], bool]:
    """Whether an operator stays whole: a primitive always, one with variables or open extents never.

    Of the others the caller chooses by name; without a choice the shipped ones stay and a user's are composed.
    """
    known: dict[str, bool] = {}
    definitions = Definitions("main", {}, library.find_operator, qualify=library.resolve)

    def is_kept(definition: Definition) -> bool:
        found = known.get(definition.name)
        if found is None:
            operator = definition.operator
            chosen = definition.standard if keep is None else keep(definition.name)
            found = operator.kind != "compose" or (chosen and not must_compose(definition, definitions))
            known[definition.name] = found
        return found

    return is_kept


def must_compose(definition: Definition, definitions: Definitions) -> bool:
    """Whether only the composed body says what a compound operator gives, or no other module may name it."""
    operator = definition.operator
    private = operator.name.startswith("_")
    if operator.graph or private or is_open(definition):
        return True
    return definitions.holds_variables(definition.name, operator)


def is_open(definition: Definition) -> bool:
    """Whether some extent or length of an output is left to the run."""
    return any(_is_open(item.type) for item in definition.operator.parameters("output"))


def _is_open(declared: TypeSpec) -> bool:
    if declared.shape is None or (declared.pack is not None and declared.pack.bound is not None):
        return True
    return any(isinstance(item.value, Omitted) or item.bound is not None for item in declared.shape)
