"""The help of a command without what the command loads: from its own text, and from the table of options.

Half a second of imports stands before some commands, and nobody who asks what their options are wants to wait for it. A
test compares each page with the one of the command itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import click

from lamella.base.errors import InputError
from lamella.base.paths import read_shipped
from lamella.cli.options import Command, click_option
from lamella.pipeline.given import offered

_LITERAL = ("nargs", "required", "metavar")
"""What of an argument its help shows."""


def help_command(name: str) -> click.Command | None:
    """A command that can only say what it is; None where its text says more than the table and its arguments."""
    try:
        tree = ast.parse(read_shipped(f"cli/{name}.py"))
    except InputError:  # an installation without texts
        return None
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    function = next(functions, None)
    if function is None:
        return None
    made = list(_arguments(function, name))
    if None in made:
        return None
    options = [click_option(key, row, name) for key, row in offered(name).items()]
    arguments = [item for item in made if item is not None]
    return Command(name, params=[*arguments, *options], help=ast.get_docstring(function))


def _arguments(function: ast.FunctionDef, name: str) -> Iterator[click.Argument | None]:
    """The arguments that decorators declare; None for a decorator that is something else."""
    first, *others = function.decorator_list
    if not isinstance(first, ast.Call) or ast.unparse(first) != f"command('{name}')":
        yield None
    for item in others:
        words = ast.unparse(item)
        if words == "file_argument":
            yield click.Argument(["file"])
        elif isinstance(item, ast.Call) and words.startswith("click.argument("):
            kind = next(
                (ast.unparse(word.value) for word in item.keywords if word.arg == "type"), "click.Path()"
            )
            if not kind.startswith("click.Path("):  # one whose help lists what it may be
                yield None
            given = {word.arg: word.value for word in item.keywords if word.arg in _LITERAL}
            values = {key: ast.literal_eval(value) for key, value in given.items()}
            if any(word.arg == "default" for word in item.keywords):
                values.setdefault("required", False)
            yield click.Argument([ast.literal_eval(item.args[0])], **values)
        else:
            yield None
