"""Colours on a terminal: heads, bars and what diverges in reports; programs by the lexers of their languages.

`NO_COLOR` takes them away, `FORCE_COLOR` gives them to a pipe too.
"""

from __future__ import annotations

import re
import sys

import click

from lamella.base.optional import load_late
from lamella.pipeline.languages import ENDINGS

_BAR = re.compile("█+")
_EMPTY = re.compile("·{2,}")
_HEAD = re.compile(r"^(?! )(?=.*\S)[^\n]*(?=\n {2}\S)", re.MULTILINE)
_MARKED = re.compile(r"^(?:\*\S.*|first diverging.*|not equal.*|.* DIFFERS .*)$|← binding", re.MULTILINE)
_GOOD = re.compile(r"^(?:equal .*|\S+ +agrees .*)$", re.MULTILINE)
LEXERS = {"module": "ModuleLexer", "skriptnd": "SkriptndLexer", "tensor": "TensorLexer", "nem": "NemLexer"}


def is_coloured() -> bool:
    """Whether standard output shows colours: as the command was told, else where it is a terminal."""
    context = click.get_current_context(silent=True)
    wanted = None if context is None else context.color
    return sys.stdout.isatty() if wanted is None else wanted


def print_report(text: str) -> None:
    """A report; on a terminal its heads are bold, its bars blue, and what to look at stands out."""
    if is_coloured():
        text = _HEAD.sub(lambda found: click.style(found[0], bold=True), text)
        text = _MARKED.sub(lambda found: click.style(found[0], fg="yellow", bold=True), text)
        text = _GOOD.sub(lambda found: click.style(found[0], fg="green"), text)
        text = _EMPTY.sub(lambda found: click.style(found[0], dim=True), text)
        text = _BAR.sub(lambda found: click.style(found[0], fg="blue"), text)
    click.echo(text)


def print_program(text: str, form: str) -> None:
    """A program in a language or a form of ours, which ends with a newline itself."""
    lexer = LEXERS.get(ENDINGS.get(f".{form}", form))
    if lexer is not None and is_coloured():
        lexers, terminal = load_late("lamella.lsp.pygments"), load_late("pygments.formatters.terminal")
        made = getattr(lexers, lexer)(stripnl=False, ensurenl=False)
        text = load_late("pygments").highlight(text, made, terminal.TerminalFormatter())
    click.echo(text, nl=False)
