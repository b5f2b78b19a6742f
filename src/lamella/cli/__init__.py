"""The command `lamella`: one file per command, each loaded when it is asked for."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
import traceback
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import NoReturn

import click
from click.shell_completion import get_completion_class

from lamella import __version__
from lamella.base.diagnostic import printable
from lamella.base.errors import cause_of
from lamella.base.gc import relax_gc
from lamella.base.suggest import nearest
from lamella.base.system import peak_bytes
from lamella.cli.waiting import waiting as while_waiting

GROUPS = {
    "begin": {
        "demo": "see the whole story: train, export, compile, quantise, an NPU; with a report",
        "doctor": "say what is installed, and what runs here",
    },
    "look": {
        "check": "report what is wrong in files",
        "show": "say what is in a file",
        "genome": "compare many models by what they compute, or give one a block of another",
        "view": "show a model at all its levels in one page for the browser",
        "fmt": "print a file in canonical form",
        "rules": "list the rules of a language",
        "explain": "explain one rule with a wrong program and a right one",
        "lsp": "answer an editor: the language server of the text languages",
    },
    "run": {
        "run": "execute a program or a model",
        "generate": "continue a text or tokens with a model",
        "train": "train a model on data",
        "bench": "measure a model beside peers, and beside what the machine can do",
    },
    "move": {
        "convert": "write a model in another format: .sknd, .nac, .nacs, .onnx, a Hugging Face folder",
        "lower": "write a model in a form below it, every stage on the way",
        "diff": "compare two models, find the first operation that diverges",
        "reduce": "shrink a program while a command keeps failing on it",
        "quantize": "store weights and activations as integers, by what a model computes on data",
    },
    "plan": {
        "sim": "schedule a plan to cycles and explain it",
        "bind": "lower a plan to a task-control stream",
    },
}
"""The commands by what they are for."""
COMMANDS = {name: sentence for group in GROUPS.values() for name, sentence in group.items()}
ELSEWHERE = {
    **dict.fromkeys(("import", "import-hf", "export", "optimum", "save", "upgrade"), "convert"),
    **dict.fromkeys(("compile", "build", "codegen", "opt", "vela"), "lower"),
    **dict.fromkeys(("compare", "verify", "equivalent", "polygraphy"), "diff"),
    **dict.fromkeys(("benchmark", "profile", "time"), "bench"),
    **dict.fromkeys(("infer", "predict", "exec"), "run"),
    **dict.fromkeys(("chat", "complete", "serve"), "generate"),
    **dict.fromkeys(("info", "inspect", "list", "ls", "cat", "dump"), "show"),
    **dict.fromkeys(("netron", "visualize", "visualise", "viz", "studio", "open", "graph"), "view"),
    **dict.fromkeys(("format", "lint"), "fmt"),
    **dict.fromkeys(("validate",), "check"),
    **dict.fromkeys(("finetune", "fine-tune", "fit"), "train"),
    **dict.fromkeys(("simulate", "timeline"), "sim"),
    **dict.fromkeys(("minimize", "bisect"), "reduce"),
    **dict.fromkeys(("quantise", "ptq"), "quantize"),
    **dict.fromkeys(("env", "version"), "doctor"),
}
"""What other tools call what a command does."""
OVERVIEW = """Neural networks through five published languages.

  a model enters as  .module  .sknd  .nac  .onnx  .tensor  .nem  .pt2  or a Hugging Face folder
  and goes down      architecture -> graph -> kernels -> numbers;  plan -> numbers, cycles

{commands}

  lamella check FILE                      anything wrong in it?
  lamella view FILE                       all of it in a browser: graph, kernels, plan, weights
  lamella run FILE --seed 1               numbers, with random inputs
  lamella generate FOLDER --prompt TEXT   a checkpoint of Hugging Face writes on
  lamella lower FILE --to tensor -o OUT   its kernels, compared with the model
  lamella sim FILE.nem --html OUT.html    a plan on an NPU, as a timeline

`lamella COMMAND --help` lists the options of a command; `lamella --completion bash` completes words in a shell.
"""
SHELLS = ("bash", "zsh", "fish")

INTERRUPTED = 128 + signal.SIGINT
"""The status of shells for what Ctrl-C ended."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Lazy(click.Group):
    """A command group that imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        with while_waiting(f"loading {cmd_name}"):
            module = import_module(f"lamella.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            close = [*ELSEWHERE.get(args[0].lower(), "").split(), *nearest(args[0], COMMANDS)]
            meant = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(COMMANDS)}"
            raise click.UsageError(f"there is no command '{printable(args[0])}'; {meant}", ctx)
        if args[0] in COMMANDS and not {"-h", "--help"}.isdisjoint(args[1:2]):
            asked: click.Command | None = import_module("lamella.cli.asked").help_command(args[0])
            if asked is not None:
                return args[0], asked, args[1:]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("\ninterrupted", err=True)
            ctx.exit(INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for name, commands in GROUPS.items():
            with formatter.section(f"Commands, {name}"):
                formatter.write_dl(list(commands.items()))


def _print_completion(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Print the script that makes a shell complete commands, options and their values."""
    if value is not None:
        shell = get_completion_class(value)
        assert shell is not None  # one of SHELLS
        click.echo(shell(lamella, {}, "lamella", "_LAMELLA_COMPLETE").source())
        ctx.exit()


@click.group(
    cls=_Lazy,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--completion",
    type=click.Choice(SHELLS),
    expose_value=False,
    is_eager=True,
    callback=_print_completion,
    help='Print a script for this shell: eval "$(lamella --completion bash)".',
)
@click.option("-q", "--quiet", is_flag=True, help="Say errors alone: no warnings, no notes, no summaries.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Say notes too, what a command cost, and where a bug of ours happened.",
)
@click.version_option(
    __version__,
    message="lamella %(version)s  "
    "(Module DSL 0.1, SkriptND of NNEF 2.0, NAC 1.6, tensor language, NEM 1.0, STCB 1.1)",
)
@click.pass_context
def lamella(ctx: click.Context, quiet: bool, verbose: bool) -> None:
    """Neural networks through five published languages: Module DSL, SkriptND, NAC, the tensor language, NEM."""
    if quiet and verbose:
        raise click.UsageError("--quiet and --verbose contradict each other", ctx)
    if verbose:
        _BugReport.verbose = True
        ctx.call_on_close(partial(_say_cost, time.monotonic()))
    if ctx.invoked_subcommand is None:
        lines = (f"  {name:6} {'  '.join(commands)}" for name, commands in GROUPS.items())
        click.echo(OVERVIEW.format(commands="\n".join(lines)), nl=False)


class _BugReport:
    """Turns our own bugs into a short report and status 3; what click and the system raise to end goes through."""

    verbose = False
    """Whether to show the whole way to a bug."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, bug: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(bug, Exception):
            return
        if isinstance(bug, OSError) and bug.errno in FULL:
            _end_full(bug)
        if self.verbose:
            traceback.print_exception(bug)
        sys.stderr.write(_bug_report(bug))
        sys.exit(3)


def main() -> None:
    """Run the command line; our own bugs end as a short report, never as a traceback."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `lamella … | head` ends silently
    relax_gc()
    with _BugReport():
        lamella.main(prog_name="lamella", color=_wants_colour())


def _say_cost(begun: float) -> None:
    """What the command took, on standard error."""
    used = time.process_time()
    peak = peak_bytes()
    memory = f", at most {peak / 1e6:,.0f} MB" if peak else ""
    sys.stderr.write(f"{time.monotonic() - begun:.2f} s, {used:.2f} s of processors{memory}\n")


def _wants_colour() -> bool | None:
    """What the environment says about colours; None leaves it to whether a terminal shows them."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def _end_full(problem: OSError) -> NoReturn:
    """Say that standard output is full: all other files are written in one place, which reports its faults itself."""
    sys.stderr.write(f"error: cannot write standard output: {cause_of(problem)}\n")
    sys.stderr.flush()
    os._exit(1)  # the usual end would try to write the rest once more, and complain again


def _bug_report(bug: Exception) -> str:
    last = traceback.extract_tb(bug.__traceback__)[-1]
    place = f"{os.path.basename(last.filename)}:{last.lineno} in {last.name}"
    return (
        f"internal error: {type(bug).__name__}: {str(bug)[:500]}\n"
        f"  at {place}\n"
        "  this is a bug in lamella, not in your file; please report it with the command you ran\n"
    )
