"""Modules of a running program as models: `lamella.from_torch`."""

from __future__ import annotations

import inspect
import logging
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import Protocol, cast, overload

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.limits import DEFAULT
from lamella.base.optional import Foreign, need
from lamella.base.source import NOWHERE, Span
from lamella.base.suggest import list_known
from lamella.bridge.torch_to_graph import torch_to_graph
from lamella.bridge.torch_to_graph.program import torch_errors
from lamella.bridge.torch_to_graph.report import line_of
from lamella.graph.model import Model
from lamella.lang.skriptnd.rules.exports import EXPORT_FAILED
from lamella.pipeline.nac.model import Model as File
from lamella.pipeline.torch.train import Example, Loss, TrainableModule, with_gradients

# --- which extents of the inputs stay open: what a user says, in the words of torch.export ------------------


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
            f"'dynamic' names '{unknown}', which is no argument",
            hint=list_known(str(unknown), given, "arguments are:"),
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


def _pairs(item: object) -> list[tuple[Foreign, object]]:
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


SHOWN = 3
HINTS = (
    ("specialized it to be a constant", "the module fixes this extent: leave it out of 'dynamic'"),
    ("Constraints violated", "give the extent the range that torch asks for: torch.export.Dim(name, min=…)"),
    (
        "Cache'> in output",
        "switch the cache off: kwargs={'use_cache': False}, or module.config.use_cache = False",
    ),
    ("data-dependent", "write the choice with torch.cond or torch.where, not with a Python condition"),
    ("Could not guard", "write the choice with torch.cond or torch.where, not with a Python condition"),
    ("dynamic_shapes", "'dynamic' has an entry for each argument, such as {'x': {0: 'N'}}"),
)
_NOISE = re.compile(
    r"\s*(?:File \"|\^|For more information|Set TORCH|The error above occurred|If you're using).*"
)
_OTHERS = re.compile(r"-packages[/\\]torch[/\\]|[/\\]lamella[/\\]|^<")
"""Files of PyTorch and of our own."""
FIXES = "Suggested fixes:"
HINT = "the module must run under torch.export; torch.export.export shows the whole message"


class Module(Protocol):
    """What is used of a `torch.nn.Module`."""

    training: bool
    forward: Callable[..., object]

    def modules(self) -> Iterator[Module]:
        """The module and those in it."""


@overload
def from_torch(
    module: object,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    dynamic: object = None,
    strict: bool = False,
) -> Model:
    """The graph of a module."""


@overload
def from_torch(
    module: object,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    dynamic: object = None,
    strict: bool = False,
    *,
    loss: Loss,
    targets: Sequence[object] = (),
) -> File:
    """The file of a module that can be trained."""


def from_torch(
    module: object,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    dynamic: object = None,
    strict: bool = False,
    *,
    loss: Loss | None = None,
    targets: Sequence[object] = (),
) -> Model | File:
    """The graph of a module of PyTorch, exported with these arguments; LamellaError says what cannot be taken.

    The module is exported in evaluation mode and left as it was. `dynamic` names extents that stay open:
    `{"input_ids": {1: "T"}}` for an axis of an argument, `{1: "T"}` for that axis of every tensor that has it, or what
    torch.export itself takes as `dynamic_shapes`. The numbers of the model are the memory of the module's parameters.

    With a `loss`, which is called with what the module gives and the targets, it is a NAC file that can be trained: the
    gradients of all parameters are traced too, in evaluation mode and for the shapes of these arguments.
    """
    torch = need("torch")
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"a module of PyTorch is wanted, not {type(module).__name__}")
    positional = tuple(args) if isinstance(args, list | tuple) else (args,)
    named = dict(kwargs or {})
    taken = cast("Module", module)
    given = named_arguments(taken.forward, positional, named)
    shapes = shapes_of(dynamic, given)
    if loss is None and targets:
        raise InputError(
            "'targets' cannot have an effect without 'loss'", hint="give the loss that compares them"
        )
    if loss is not None and dynamic is not None:
        hint = "leave 'dynamic' out, or make a file for each shape"
        raise InputError("a training graph is traced for fixed shapes", hint=hint)
    with _evaluating(taken), _silence(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(module, positional, named, dynamic_shapes=shapes, strict=strict)
        except torch_errors() as problem:
            raise failure(type(module).__name__, problem) from problem
        model = torch_to_graph(program, DEFAULT, axes_of(dynamic, given))
        if loss is None:
            return model
        example = Example(positional, named, tuple(targets))
        try:
            return with_gradients(cast("TrainableModule", module), example, loss, model)
        except torch_errors() as problem:
            raise failure(type(module).__name__, problem) from problem


def export_program(
    module: object, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[Model, Foreign]:
    """The graph of a module in evaluation mode, and the program of PyTorch that it was made of."""
    torch, taken = need("torch"), cast("Module", module)
    with _evaluating(taken), _silence(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(module, tuple(args), dict(kwargs), strict=False)
        except torch_errors() as problem:
            raise failure(type(module).__name__, problem) from problem
        return torch_to_graph(program, DEFAULT, {}), program


@contextmanager
def _evaluating(module: Module) -> Iterator[None]:
    """The module and all in it in evaluation mode, as they were afterwards."""
    training = [item for item in module.modules() if item.training]
    for item in training:
        item.training = False
    try:
        yield
    finally:
        for item in training:
            item.training = True


@contextmanager
def _silence() -> Iterator[None]:
    """Keep PyTorch from logging and printing whole graphs: what is wrong becomes a finding."""
    level = logging.root.manager.disable
    logging.disable(max(level, logging.ERROR))
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        logging.disable(level)


def _place(problem: BaseException) -> Span:
    """The line of the user's code that PyTorch was in."""
    frames = reversed(traceback.extract_tb(problem.__traceback__))
    chosen = next((item for item in frames if not _OTHERS.search(item.filename)), None)
    if chosen is None or chosen.lineno is None:
        return NOWHERE
    return line_of(chosen.filename, chosen.lineno, chosen.line or "")


def failure(name: str, problem: BaseException) -> LamellaError:
    """What torch.export says, cut to the lines that help."""
    text = str(problem)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    useful = [_NOISE.sub("", line) for line in lines if not _NOISE.match(line)]
    fixes = useful[useful.index(FIXES) + 1 :] if FIXES in useful else []
    advice = next((advice for words, advice in HINTS if words in text), HINT)
    hint = f"torch suggests: {'; '.join(fixes)}" if fixes else advice
    reason = " / ".join(useful[:SHOWN]) or type(problem).__name__
    return LamellaError([EXPORT_FAILED.at(_place(problem), hint=hint, what=f"module {name}", reason=reason)])
