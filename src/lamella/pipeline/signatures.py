"""Signatures of the API that name every option: what `help`, notebooks and completion read at run time."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import TypeVar

from lamella.pipeline.options import table

Function = TypeVar("Function", bound=Callable[..., object])


def documented(options: type) -> Callable[[Function], Function]:
    """Give a function that takes `**options` a signature and a docstring with each of them, by the table of options.

    None stands for an option that is not given.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        named = [item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
        kinds: dict[str, str] = {name: _text(kind) for name, kind in options.__annotations__.items()}
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in kinds.items()
        ]
        lines = (f"    {item.name}: {_sentence(item.name)}" for item in more)
        text = inspect.cleandoc(function.__doc__ or "") + "\n\nOptions:\n" + "\n".join(lines)
        function.__doc__ = textwrap.dedent(text)
        vars(function)["__signature__"] = signature.replace(parameters=[*named, *more])
        return function

    return decorate


def _text(kind: object) -> str:
    """An annotation as it is written: TypedDict keeps strings as forward references."""
    found: str = getattr(kind, "__forward_arg__", str(kind))
    return found


def _sentence(name: str) -> str:
    return table()[name].help.replace("; repeatable", "")
