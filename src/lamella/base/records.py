"""Data classes whose methods are written when they are first called: most are never called in most processes.

`dataclass` means what that of the standard library means, and classes are data classes to it and to type checkers.
There each class compiles six methods when its module is loaded, which for the nodes of all languages takes longer
than reading a model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError
from inspect import get_annotations
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar

Made = TypeVar("Made")
Method = Callable[..., Any]
METHODS = ("__init__", "__repr__", "__eq__", "__hash__")


def _make(cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, **others: bool) -> Any:
    """Make a class a data class, or a decorator that does."""
    if cls is None:
        return lambda found: _make(found, frozen=frozen, slots=slots, **others)
    words = get_annotations(cls).values()
    inherits = any(dataclasses.is_dataclass(base) for base in cls.__bases__)
    if others or inherits or any("InitVar" in str(word) for word in words):
        return dataclasses.dataclass(cls, frozen=frozen, slots=slots, **others)
    own = cls.__dict__
    made: type = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=slots)
    params = vars(made)["__dataclass_params__"]
    params.init = params.repr = params.eq = True
    params.frozen = frozen
    for name in METHODS:
        if name == "__hash__" and not frozen:
            setattr(made, name, None)
        elif own.get(name) is None:
            setattr(made, name, _late(made, name, frozen))
    if frozen:
        _freeze(made, slots)
    return made


def _late(cls: type, name: str, frozen: bool) -> Method:
    """A method that writes itself when it is called first, and is then replaced by what it has written."""

    def method(self: object, /, *args: object, **named: object) -> object:
        found = WRITERS[name](cls, frozen)
        found.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, found)
        return found(self, *args, **named)

    method.__name__ = name
    return method


def _freeze(cls: type, slots: bool) -> None:
    """Refuse to change fields; what has slots is pickled by hand, because no dictionary holds its fields."""
    names = frozenset(item.name for item in dataclasses.fields(cls))

    def change(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def remove(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    def state(self: object) -> list[object]:
        return [getattr(self, item.name) for item in dataclasses.fields(cls)]

    def restore(self: object, values: Sequence[object]) -> None:
        for item, value in zip(dataclasses.fields(cls), values, strict=True):
            object.__setattr__(self, item.name, value)

    found: dict[str, Method] = {"__setattr__": change, "__delattr__": remove}
    if slots:
        found |= {"__getstate__": state, "__setstate__": restore}
    for name, method in found.items():
        method.__name__ = name
        if name not in cls.__dict__:
            setattr(cls, name, method)


# --- the text of methods ----------------------------------------------------------------------------------------


def _write_init(cls: type, frozen: bool) -> Method:
    known: dict[str, object] = {"_set": object.__setattr__, "_missing": MISSING}
    parameters, named, lines = ["self"], list[str](), list[str]()
    for item in dataclasses.fields(cls):
        value = _initial(item, known)
        if item.init:
            default = f"=_default_{item.name}" if f"_default_{item.name}" in known else ""
            (named if item.kw_only else parameters).append(item.name + default)
        if value:
            lines.append(_setting(cls, item.name, value, known) if frozen else f"self.{item.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    listed = ", ".join((*parameters, *(["*", *named] if named else [])))
    return _compile(f"def __init__({listed}):", lines or ["pass"], known)


def _setting(cls: type, name: str, value: str, known: dict[str, object]) -> str:
    """A line that sets a field of a frozen object: by its slot where it has one, which takes half as long."""
    slot = cls.__dict__.get(name)
    if not isinstance(slot, MemberDescriptorType):
        return f"_set(self, {name!r}, {value})"
    known[f"_set_{name}"] = slot.__set__
    return f"_set_{name}(self, {value})"


def _initial(item: Field[Any], known: dict[str, object]) -> str:
    """What a field is set to, names being known for its default; nothing where nobody sets it."""
    default, make = f"_default_{item.name}", f"_make_{item.name}"
    if item.default_factory is not MISSING:
        known[make] = item.default_factory
        if not item.init:
            return f"{make}()"
        known[default] = MISSING
        return f"{make}() if {item.name} is _missing else {item.name}"
    if item.default is not MISSING:
        known[default] = item.default
        return item.name if item.init else default
    return item.name if item.init else ""


def _write_repr(cls: type, frozen: bool) -> Method:
    shown = ", ".join(f"{item.name}={{self.{item.name}!r}}" for item in dataclasses.fields(cls) if item.repr)
    text = f'return f"{{self.__class__.__qualname__}}({shown})"'
    written = _compile("def __repr__(self):", [text], {})
    # What is frozen holds itself only where somebody puts it into a list of its own; to look costs as much as to write.
    return written if frozen else recursive_repr()(written)


def _write_eq(cls: type, frozen: bool) -> Method:
    names = [item.name for item in dataclasses.fields(cls) if item.compare]
    left, right = ("".join(f"{side}.{name}, " for name in names) for side in ("self", "other"))
    lines = [
        "if other.__class__ is self.__class__:",
        f"    return ({left}) == ({right})",
        "return NotImplemented",
    ]
    return _compile("def __eq__(self, other):", lines, {})


def _write_hash(cls: type, frozen: bool) -> Method:
    names = [
        item.name for item in dataclasses.fields(cls) if (item.compare if item.hash is None else item.hash)
    ]
    return _compile(
        "def __hash__(self):", [f"return hash(({''.join(f'self.{name}, ' for name in names)}))"], {}
    )


def _compile(head: str, lines: Sequence[str], known: dict[str, object]) -> Method:
    found: dict[str, Method] = {}
    exec("\n    ".join((head, *lines)), known, found)
    method: Method = next(iter(found.values()))
    return method


WRITERS: dict[str, Callable[[type, bool], Method]] = {
    "__init__": _write_init,
    "__repr__": _write_repr,
    "__eq__": _write_eq,
    "__hash__": _write_hash,
}


# --- copies with some fields changed ---------------------------------------------------------------------------


_COPIES: dict[type, Method] = {}


def replace(old: Made, /, **changes: object) -> Made:
    """What `dataclasses.replace` gives, by a function that is written once for each class."""
    kind = type(old)
    found: Made = (_COPIES.get(kind) or _write_copy(kind))(old, **changes)
    return found


def _write_copy(cls: type) -> Method:
    """A function that makes an object like another one; `None` may be a value, so what is kept has a mark."""
    taken = [item for item in dataclasses.fields(cls) if item.init]
    given = [f"_old.{item.name} if {item.name} is _kept else {item.name}" for item in taken]
    passed = [
        f"{item.name}={text}" if item.kw_only else text for item, text in zip(taken, given, strict=True)
    ]
    parameters = ", ".join(("_old", *["*"][: len(taken)], *(f"{item.name}=_kept" for item in taken)))
    known: dict[str, object] = {"_make": cls, "_kept": MISSING}
    _COPIES[cls] = _compile(f"def copy({parameters}):", [f"return _make({', '.join(passed)})"], known)
    return _COPIES[cls]


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _make
