"""Options as they are given: their kinds are checked, and those that cannot have an effect are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import cast

from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.records import dataclass
from lamella.base.suggest import list_known
from lamella.pipeline.command_options import ALWAYS
from lamella.pipeline.effects import COMMANDS, STEPS, SUBJECTS, Need, Option, Steps
from lamella.pipeline.options import NAMES, Options, kind_of, table

# --- what is given --------------------------------------------------------------------------------------------


def options_of(words: Mapping[str, object], by_command: bool = False) -> Options:
    """Options by their names; one that does not exist, or has a value of another kind, is an error.

    None is the value of an option that is not given.
    """
    known = [name for name, row in table().items() if by_command or row.in_api]
    unknown = next((word for word in words if word not in known), None)
    if unknown is not None:
        row = table().get(unknown)
        other = f"{row.elsewhere}; " if row is not None and row.elsewhere else ""
        hint = f"{other}{list_known(unknown, known, 'options are:')}"
        raise InputError(f"there is no option '{unknown[:80]}'", hint=hint)
    given = {name: _taken(name, value) for name, value in words.items() if value is not None}
    found = cast("Callable[..., Options]", Options)(given=frozenset(given), **given)
    for name, value in (("dialect", found.dialect), ("precision", found.precision)):
        choices = table()[name].choices
        if value is not None and value not in choices:
            hint = list_known(value, choices, f"{name}s are:")
            raise InputError(f"there is no {name} '{value[:80]}'", hint=hint)
    return found


KINDS: Mapping[str, type] = MappingProxyType(
    {"str": str, "int": int, "float": float, "bool": bool, "Path": Path, "Limits": Limits}
)
"""The classes of values that are no collections."""


def _taken(name: str, value: object) -> object:
    """The value of an option in the type that it has; a single word is taken for a list of one."""
    kind = kind_of(name)
    if kind == "tuple[str, ...]":
        return (value,) if isinstance(value, str) else _words(name, value)
    if kind == "Mapping[str, int]":
        return _extents(name, value)
    if kind.endswith("tuple[int, ...]"):
        return _counts(name, value)
    if kind.startswith("Callable"):
        return _function(name, value)
    if kind == "Path" and isinstance(value, str):
        return Path(value)
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    wanted = KINDS.get(kind, Mapping)
    if isinstance(value, wanted) and not (wanted is int and isinstance(value, bool)):
        return value
    raise InputError(f"option '{name}' is of type '{wanted.__name__}', not '{type(value).__name__[:80]}'")


def _words(name: str, value: object) -> tuple[str, ...]:
    items = tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(isinstance(item, str) for item in items):
        raise InputError(f"option '{name}' is a list of words")
    return items


def _function(name: str, value: object) -> object:
    if callable(value):
        return value
    raise InputError(f"option '{name}' is a function that takes a line")


def _counts(name: str, value: object) -> object:
    """A count, or several."""
    items = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if not all(_is_extent(item) for item in items):
        raise InputError(f"option '{name}' is a count, or a tuple of counts")
    return items if isinstance(value, Sequence) else value


def _extents(name: str, value: object) -> Mapping[str, int]:
    if isinstance(value, Mapping) and all(_is_extent(item) for item in value.values()):
        return value
    raise InputError(f"option '{name}' holds extents by name, such as {{'n': 3}}")


def _is_extent(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# --- options that cannot have an effect ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Use:
    """What options are given for: the steps that are taken, the kind of the input, and how it is named."""

    steps: Steps
    subject: str
    name: str = ""
    """What the user calls the input; empty for a model of the API."""
    command: str = ""
    """The command, whose spelling a message uses; empty for the API."""
    also: Mapping[str, object] = field(default_factory=dict)
    """What else is decided beside the options, such as the backend of the API."""


@dataclass(frozen=True, slots=True)
class Inert:
    """An option that cannot have an effect, as a sentence and a way out."""

    option: str
    message: str
    hint: str

    def error(self) -> InputError:
        """The same as an error of the API."""
        return InputError(self.message, hint=self.hint)


DECIDING = ("to", "observe", "run_plan", "patch", "answers", "prompt", "verify_backward", "memory", "ranks")
"""Options that decide between the ways of a command are looked at first: the others depend on them."""


def find_inert(use: Use, options: Options) -> Inert | None:
    """The first of the given options that cannot have an effect, in this use."""
    given = {name: getattr(options, name) for name in NAMES if name in options.given}
    first = [name for name in DECIDING if name in given]
    # What the command demands was not chosen: another one that is wrong says more.
    others = (name for name in given if name not in first)
    rest = sorted(others, key=lambda name: table()[name].required == use.command != "")
    for name in (*first, *rest):
        row = table()[name]
        if not row.has_effect(use.steps, use.subject):
            return Inert(name, _without_effect(name, use), _hint(name, use))
        need = _unmet(row, use, given[name], {**use.also, **given})
        if need is not None:
            message = f"{spelled(name, use.command)} cannot have an effect {_needed(need, use)}"
            return Inert(name, message, _others(use))
    return None


def _unmet(row: Option, use: Use, value: object, given: Mapping[str, object]) -> Need | None:
    """What an option needs beside it and does not have; steps without a need of their own are enough."""
    steps = [step for step in use.steps if use.subject in row.effects.get(step, ())]
    for need in row.needs:
        asked = not need.steps or all(step in need.steps for step in steps)
        if use.subject in need.on and asked and not need.holds(value, given):
            return need
    return None


def _without_effect(name: str, use: Use) -> str:
    row = table()[name]
    where = SUBJECTS[use.subject]
    subject = f"'{printable(use.name)}', {where}" if use.name else where
    ways = COMMANDS.get(use.command, ())
    elsewhere = any(row.has_effect(steps, use.subject) for steps in ways)
    doing = f" {STEPS[use.steps[-1]]}" if elsewhere and use.steps[-1] in STEPS else ""
    return f"{spelled(name, use.command)} cannot have an effect on {subject}{doing}"


def _hint(name: str, use: Use) -> str:
    """What the option is for in this command, and the options that can have an effect here."""
    ways = COMMANDS.get(use.command, (use.steps,))
    row = table()[name]
    kinds = [word for kind, word in SUBJECTS.items() if any(row.has_effect(way, kind) for way in ways)]
    known = [
        word for word in kinds if use.command == "" or word not in ("a loaded graph", "a graph with kernels")
    ]
    purpose = f"it is for {', '.join(known)}; " if known and SUBJECTS[use.subject] not in known else ""
    other = f"{row.elsewhere}; " if row.elsewhere else ""
    return f"{other}{purpose}{_others(use)}"


def _others(use: Use) -> str:
    names = ", ".join(effective(use))
    return f"options that can have one here: {names}"


def effective(use: Use) -> Iterator[str]:
    """The options that can have an effect in a use, as its user spells them; those of every command are left out."""
    for name, row in table().items():
        shown = row.is_offered(use.command) and use.command not in row.hidden if use.command else row.in_api
        if shown and row.effects is not ALWAYS and row.has_effect(use.steps, use.subject):
            yield spelled(name, use.command)


def _needed(need: Need, use: Use) -> str:
    """What one option needs of others, as a user writes it."""
    names = [name for name in need.options if not use.command or table()[name].is_offered(use.command)]
    values = [item for item in need.values if item not in (None, False)]
    if need.values and not values:
        return f"beside {' or '.join(spelled(name, use.command) for name in names)}"
    wanted = []
    for name in names:
        if not values:
            wanted.append(spelled(name, use.command))
        elif use.command:
            wanted.append(f"{spelled(name, use.command)} {'|'.join(map(str, values))}")
        else:
            wanted += [f"{name}={item!r}" for item in values]
    return f"without {' or '.join(wanted)}"


def spelled(name: str, command: str) -> str:
    """An option as a command or the API writes it."""
    row = table()[name]
    if command and row.flags:
        return row.flags[-1].partition("/")[0]
    return f"'{name}'"


def offered(command: str) -> dict[str, Option]:
    """The options of a command, by name."""
    return {name: row for name, row in table().items() if row.is_offered(command)}
