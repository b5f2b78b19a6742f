"""Constants of a plan that are changed before it runs: how long to generate, which text to ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lamella.base.diagnostic import Diagnostic, LamellaError, printable
from lamella.base.limits import LARGEST, SMALLEST
from lamella.lang.nac.nodes import Constant, ConstantType, ConstantValue, File
from lamella.lang.nac.notes import find_notes
from lamella.lang.nac.rules import planning

_INTEGERS = (-(1 << 31), (1 << 31) - 1)


class _UnfitError(Exception):
    """A value that a constant cannot become; the reason continues a sentence, and the repair is its hint."""

    def __init__(self, reason: str, repair: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.repair = repair


def constant_names(file: File) -> dict[str, int]:
    """The names of constants that `lamella.json` gives; what is malformed there names nothing."""
    content = find_notes(file) or {}
    plan = content.get("plan")
    named = plan.get("constants") if isinstance(plan, dict) else None
    pairs = named.items() if isinstance(named, dict) else ()
    return {name: id_ for name, id_ in pairs if isinstance(id_, int) and not isinstance(id_, bool)}


def patch_constants(file: File, values: Mapping[str, object]) -> File:
    """The file with constants of its plan replaced, by id or by name; each keeps its type.

    A value may be a text as a command line gives it: `3`, `0.5`, `true`, `1,2,3`. LamellaError holds what does not fit.
    """
    names = constant_names(file)
    pool = {item.id: item for item in file.orchestrator.constants}
    wrong: list[Diagnostic] = []
    for key, value in values.items():
        try:
            constant = _find(key, names, pool)
            pool[constant.id] = replace(constant, value=_convert(constant, value))
        except _UnfitError as problem:
            shown, repair = printable(repr(value), 80), problem.repair
            span = file.orchestrator.span
            wrong.append(planning.PATCH.at(span, key=key, value=shown, problem=problem.reason, repair=repair))
    if wrong:
        raise LamellaError(wrong)
    constants = tuple(pool[item.id] for item in file.orchestrator.constants)
    return replace(file, orchestrator=replace(file.orchestrator, constants=constants))


def _find(key: str, names: Mapping[str, int], pool: Mapping[int, Constant]) -> Constant:
    id_ = names.get(key)
    if id_ is None and key.isascii() and key.isdigit() and len(key) < 6:
        id_ = int(key)
    if id_ is None or id_ not in pool:
        known = ", ".join([*sorted(names), *map(str, sorted(pool))][:12])
        raise _UnfitError(
            "there is no such constant", f"constants are {known}" if known else "the plan has none"
        )
    return pool[id_]


def _convert(constant: Constant, value: object) -> ConstantValue:
    kind = constant.type
    if kind in (ConstantType.INT32_LIST, ConstantType.FLOAT32_LIST):
        return _list(kind, value)
    if kind is ConstantType.NULL:
        raise _UnfitError("it is null, which has one value", "patch another constant")
    if kind is ConstantType.STRING:
        if not isinstance(value, str):
            raise _UnfitError("it is a text", "give a text")
        return value
    return _truth(value) if kind is ConstantType.BOOL else _number(kind, value)


def _truth(value: object) -> bool:
    word = value.strip().lower() if isinstance(value, str) else value
    if word in (True, "true", "1"):
        return True
    if word in (False, "false", "0"):
        return False
    raise _UnfitError("it is true or false", "give true or false")


def _number(kind: ConstantType, value: object) -> int | float:
    integer = kind is ConstantType.INT64
    found: int | float | None = None
    try:
        if integer and isinstance(value, str | int):
            found = int(value)
        elif not integer and isinstance(value, str | int | float):
            found = float(value)
    except (ValueError, OverflowError):
        found = None
    if found is None or (integer and not SMALLEST <= found <= LARGEST):
        what = "an integer" if integer else "a number"
        raise _UnfitError(f"it is {what}", f"give {what} of 64 bits")
    return found


def _list(kind: ConstantType, value: object) -> tuple[int, ...] | tuple[float, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise _UnfitError("it is a list", "give numbers with commas between them")
    if kind is ConstantType.FLOAT32_LIST:
        return tuple(float(np.float32(_number(ConstantType.FLOAT64, item))) for item in items)
    found = tuple(int(_number(ConstantType.INT64, item)) for item in items)
    if any(not _INTEGERS[0] <= item <= _INTEGERS[1] for item in found):
        raise _UnfitError("its items have 32 bits", "give smaller numbers")
    return found
