"""`lamella reduce`: the smallest program on which a command still fails in the same way."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click

from lamella.base.diagnostic import LamellaError, errors, printable
from lamella.base.errors import InputError
from lamella.base.paths import read_text, unsaved_texts
from lamella.base.writer import write_text
from lamella.cli.options import Command, print_json, refuse_dash
from lamella.cli.waiting import waiting
from lamella.pipeline.check import check_file
from lamella.pipeline.languages import language_of
from lamella.pipeline.options import Options
from lamella.pipeline.reduce import Failure, reduce_text

PLACE = "{}"
"""What stands for the file in a command."""
CANDIDATE = ".lamella-candidate"
OURS = "lamella"


@click.command("reduce", cls=Command)
@click.argument("file", type=click.Path(path_type=Path, readable=False, dir_okay=False))
@click.option(
    "--keep", "words", required=True, metavar="'COMMAND {}'",
    help="The command that fails; {} stands for the file.",
)  # fmt: skip
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, readable=False),
    callback=refuse_dash,
    help="Write here, not beside FILE as NAME.reduced.ENDING.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=60.0, show_default=True, metavar="SECONDS",
    help="A run that takes longer counts as one that does not fail.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def reduce(file: Path, words: str, output: Path | None, timeout: float, as_json: bool) -> None:
    """Shrink FILE, a program in a text language, while COMMAND keeps failing on it in the same way.

    The same way is the same exit status, the first error code that COMMAND prints, and no code that it did not print
    before; where it prints none, the same last words. Lines are taken away with all that stands in them, and
    definitions are bypassed. Candidates lie beside FILE for a moment, so that what it includes is found.
    """
    trial = _Trial(file, _split(words), timeout)
    text = _canonical(file)
    whole = trial.run(text)
    if whole is None or not whole.status:
        why = "does not end in time" if whole is None else "succeeds on it"
        hint = "reduce keeps a failure; give the command that fails"
        raise InputError(f"'{printable(words, 80)}' {why}", path=file, hint=hint)
    before = text.count("\n")
    with waiting(f"reducing {before} lines"):
        small = reduce_text(text, lambda candidate: trial.fails_like(candidate, whole))
    target = output or file.with_name(f"{file.stem}.reduced{file.suffix}")
    write_text(target, small)
    facts = {"lines": small.count("\n"), "before": before, "runs": trial.runs, "failure": str(whole)}
    if as_json:
        print_json({"ok": True, "diagnostics": [], "written": str(target), **facts})
        return
    click.echo(
        f"{printable(str(target))}: {facts['lines']} of {before} lines after {trial.runs} runs, which fail with {whole}"
    )


def _split(words: str) -> list[str]:
    try:
        found = shlex.split(words)
    except ValueError as problem:
        raise click.UsageError(f"--keep cannot be read as a command: {problem}") from None
    if not any(PLACE in word for word in found):
        raise click.UsageError(f"--keep says nowhere where the file stands: write {PLACE}")
    is_ours = found[0] == OURS and shutil.which(OURS) is None
    return [sys.executable, "-m", OURS, *found[1:]] if is_ours else found


def _canonical(file: Path) -> str:
    """The text in canonical form, one statement a line; as it is where that cannot be had."""
    text = read_text(file)
    with suppress(LamellaError):
        return language_of(file, None).format(file, Options().limits)[1]
    return text


class _Trial:
    """Runs a command on texts that stand beside a file for a moment."""

    def __init__(self, file: Path, words: list[str], timeout: float) -> None:
        self._file = file
        self._candidate = file.with_name(f"{file.stem}{CANDIDATE}{file.suffix}")
        self._words = [word.replace(PLACE, str(self._candidate)) for word in words]
        self._timeout = timeout
        self.runs = 0

    def run(self, text: str) -> Failure | None:
        """How the command ends on a text; None where it does not in time."""
        self.runs += 1
        write_text(self._candidate, text)
        try:
            done = subprocess.run(
                self._words, capture_output=True, text=True, errors="replace",
                timeout=self._timeout, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
        except OSError as problem:
            raise InputError(f"'{printable(self._words[0], 80)}' cannot be run: {problem.strerror}") from None
        finally:
            self._candidate.unlink(missing_ok=True)
        return Failure.of(done.returncode, f"{done.stdout}\n{done.stderr}")

    def fails_like(self, text: str, whole: Failure) -> bool:
        """Whether the command fails on a text as on the whole; one with errors that it had not is not even run."""
        if not set(self._codes(text)) <= set(whole.codes) and whole.codes:
            return False
        found = self.run(text)
        return found is not None and found.is_like(whole)

    def _codes(self, text: str) -> list[str]:
        """The codes of what is wrong with a text by the rules of its language alone."""
        try:
            with unsaved_texts({self._candidate: text}):
                return [item.code for item in errors(check_file(self._candidate, Options()))]
        except LamellaError:
            return []
