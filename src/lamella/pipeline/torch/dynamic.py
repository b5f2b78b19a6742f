"""Which extents of the inputs stay open: what a user says, in the words of torch.export."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lamella.base.errors import InputError
from lamella.base.optional import need


def named_arguments(
    forward: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of a call by their names; those that a `**` takes have names of their own."""
    signature = inspect.signature(forward)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as problem:
        raise InputError(f"the arguments do not fit the module: {problem}") from None
    found: dict[str, object] = {}
    for name, value in bound.arguments.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            found.update(value)
        else:
            found[name] = value
    return found


def shapes_of(dynamic: object, given: Mapping[str, object]) -> object:
    """What torch.export calls dynamic_shapes: an entry for every argument; names stand for open extents."""
    if dynamic is None:
        return None
    if not isinstance(dynamic, Mapping):
        return _opened(dynamic)
    if all(isinstance(key, int) for key in dynamic):
        return {name: _everywhere(dynamic, value) for name, value in given.items()}
    unknown = next((name for name in dynamic if name not in given), None)
    if unknown is not None:
        raise InputError(
            f"'dynamic' names '{unknown}', which is no argument", hint=f"arguments are: {', '.join(given)}"
        )
    for name, value in given.items():
        _require_axes(name, dynamic.get(name), value)
    return {name: _opened(dynamic.get(name)) for name in given}


def _require_axes(name: str, axes: object, value: object) -> None:
    """torch.export passes over axes that a tensor does not have, and leaves the extent fixed."""
    if not isinstance(value, need("torch").Tensor) or not isinstance(axes, Mapping):
        return
    wrong = next((axis for axis in axes if isinstance(axis, int) and not 0 <= axis < value.dim()), None)
    if wrong is not None:
        hint = f"its axes are 0 to {value.dim() - 1}" if value.dim() else "it is a single number"
        raise InputError(f"'dynamic' opens axis {wrong} of '{name}', which has {value.dim()}", hint=hint)


def _everywhere(axes: Mapping[int, object], value: object) -> object:
    """The same open axes for every tensor that has them."""
    torch = need("torch")
    if isinstance(value, torch.Tensor):
        own = {axis: _opened(item) for axis, item in axes.items() if -value.dim() <= axis < value.dim()}
        return {axis % value.dim(): item for axis, item in own.items()} or None
    if isinstance(value, Mapping):
        return {key: _everywhere(axes, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_everywhere(axes, item) for item in value)
    return None


def _opened(item: object) -> object:
    """A name becomes PyTorch's own word for an open extent, whose range it finds itself."""
    if isinstance(item, str):
        return need("torch").export.Dim.DYNAMIC
    if isinstance(item, Mapping):
        return {key: _opened(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return type(item)(_opened(value) for value in item)
    return item


def axes_of(dynamic: object, given: Mapping[str, object]) -> dict[str, dict[int, str]]:
    """The names that a user gives to open extents: for each input of the graph, by axis."""
    if isinstance(dynamic, Mapping) and dynamic and all(isinstance(key, int) for key in dynamic):
        dynamic = dict.fromkeys(given, dynamic)
    if isinstance(dynamic, list | tuple):
        dynamic = dict(zip(given, dynamic, strict=False))
    if not isinstance(dynamic, Mapping):
        return {}
    found = (_named(name, dynamic.get(name), value) for name, value in given.items())
    return {name: axes for group in found for name, axes in group}


def _named(path: str, item: object, value: object) -> Iterator[tuple[str, dict[int, str]]]:
    """The named axes of one argument, and of what is nested in it."""
    if isinstance(value, need("torch").Tensor):
        pairs = _pairs(item)
        rank = max(1, len(value.shape))
        yield path, {axis % rank: _name(word) for axis, word in pairs if _name(word)}
        return
    for key, part in _pairs(value):
        yield from _named(f"{path}_{key}", _below(item, key), part)


def _pairs(item: object) -> list[tuple[Any, object]]:
    """The entries of a mapping, or the items of a list with their places."""
    if isinstance(item, Mapping):
        return list(item.items())
    return list(enumerate(item)) if isinstance(item, list | tuple) else []


def _below(item: object, key: object) -> object:
    """What is said of a part of an argument; axes alone are said of all parts."""
    if isinstance(item, Mapping):
        return item if all(isinstance(axis, int) for axis in item) and key not in item else item.get(key)
    if isinstance(item, list | tuple) and isinstance(key, int) and key < len(item):
        return item[key]
    return None


def _name(word: object) -> str:
    """The name of an open extent: a word of the user, or that of a `torch.export.Dim`."""
    if isinstance(word, str):
        return word
    name = getattr(word, "__name__", None)
    return name if isinstance(name, str) and name.isidentifier() else ""
