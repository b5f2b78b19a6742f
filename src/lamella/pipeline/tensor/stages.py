"""Kernels for `lamella lower`: printed, or written stage by stage, read again and compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from lamella.backend.cpu.convention import calling_convention
from lamella.backend.cpu.emission import emit
from lamella.backend.cpu.host import host_target
from lamella.backend.cpu.jit import Processor, readable_assembly
from lamella.backend.cpu.run.proof import find_open
from lamella.base.arrays import Array
from lamella.base.card import Card, join_names, make_table, show_html, show_line
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.levels import at_level
from lamella.base.placement import OperationPlacement
from lamella.base.suggest import list_known
from lamella.base.watching import timed_pass
from lamella.base.writer import make_folder, write_text
from lamella.kernels.passes import PASSES, each_pass
from lamella.kernels.passes import lower as run_passes
from lamella.kernels.sizes import check_sizes
from lamella.kernels.target import Target, find_target
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import Function, Memref, Program, Scalar
from lamella.lang.tensor.nodes.types import INTEGERS
from lamella.pipeline.backends.kernels import KernelRun, draw_array
from lamella.pipeline.languages import Compared
from lamella.pipeline.options import Options
from lamella.pipeline.tensor.execution import read_checked
from lamella.pipeline.tensor.program import KernelFile

# --- kernels on their way down: after each pass in the tensor language, then as text for LLVM and -----------


FORMS = ("tensor", "llvm", "asm", "ptx")
ENDINGS = {"tensor": ".tensor", "llvm": ".ll", "asm": ".s", "ptx": ".ptx"}


@dataclass(frozen=True, slots=True)
class PrintedStage:
    """What stands after one step: its name, its form, its text."""

    name: str
    form: str
    text: str


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program with everything that was made of it, the last stage being what was asked for."""

    program: Program
    stages: tuple[PrintedStage, ...]
    placement: tuple[OperationPlacement, ...] = ()
    """Of the graph that the program was made from: where its operations run."""

    __repr__ = show_line
    _repr_html_ = show_html
    at = at_level

    def _card(self) -> Card:
        """What it is: the stages, and the size of the last."""
        rows = ((item.name, f"{item.text.count(chr(10)):,}") for item in self.stages)
        names = [item.name for item in self.program.functions]
        lines = f"{self.text.count(chr(10)):,}"
        facts = (("kernels", f"{len(names):,}"), ("names", join_names(names)), ("lines", lines))
        table = make_table("stages", ("stage", "lines"), rows, len(self.stages))
        return Card("lowered kernels", self.stages[-1].form, facts, (table,))

    @property
    def language(self) -> str:
        """The language that it began in."""
        return "tensor"

    @property
    def text(self) -> str:
        """What was asked for."""
        return self.stages[-1].text


def lower(model: KernelFile, to: str, options: Options) -> Lowered:
    """The stages of a program: one for each pass, then text for LLVM, then the code of a processor."""
    program = model.program
    if to not in FORMS:
        raise InputError(
            f"there is no lowering to '{to}' from here", hint=list_known(to, FORMS, "kernels lower to:")
        )
    target = _target(to, options)
    wrong = [item for function in program.functions for item in check_sizes(function, target)]
    if wrong:
        raise LamellaError(wrong)
    return Lowered(program, tuple(_stages(program, to, options.after, target)))


def _target(to: str, options: Options) -> Target:
    """The target that the options name; else this machine, or a GPU for its assembly."""
    if options.target is None:
        return find_target("cuda") if to == "ptx" else host_target()
    found = find_target(options.target)
    if to != "tensor" and not found.triple:
        raise InputError(f"no machine code is written for '{found.name}'", hint="it lowers to: tensor")
    own = "ptx" if found.has_threads else "asm"
    if to in ("asm", "ptx") and to != own:
        kinds = f"'{own}' is what it has: GPUs have ptx, processors asm"
        raise InputError(f"target '{found.name}' has no {to}", hint=kinds)
    return found


def _stages(program: Program, to: str, after: str | None, target: Target) -> Iterator[PrintedStage]:
    if after is not None and to != "tensor":
        raise InputError("'after' names a pass, and passes end before machine code", hint="lower to tensor")
    if after is not None and after not in [item.name for item in PASSES]:
        run_passes(program, target, after)  # says which there are
    for name, found in each_pass(program, target):
        yield PrintedStage(name, "tensor", write(found))
        if name == after:
            break
    if to == "tensor":
        return
    with timed_pass("emit"):
        compiled = emit(program, target)
    yield PrintedStage("emit", "llvm", compiled.text)
    if to != "llvm":
        machine = Processor(target.triple, target.cpu, target.features)
        head = f"{calling_convention(compiled)}\n" if to == "ptx" else ""
        yield PrintedStage("assemble", to, head + readable_assembly(compiled.text, machine))


def save_stages(lowered: Lowered, folder: Path, stem: str) -> Path:
    """Write every stage into a folder, numbered; gives the file of the last."""
    make_folder(folder)
    path = folder / f"00-{stem}.tensor"
    write_text(path, write(lowered.program))
    for number, stage in enumerate(lowered.stages, 1):
        path = folder / f"{number:02}-{stage.name}{ENDINGS[stage.form]}"
        write_text(path, stage.text)
    return path


Pairs: TypeAlias = "dict[str, tuple[Array, Array]]"
"""What two runs gave, by name."""
NUMBER = 0.5
"""What a scalar parameter is in a comparison."""


def printed(model: Lowered) -> str:
    """The text of lowered kernels."""
    return model.text


def write_into(model: Lowered, folder: Path, stem: str) -> Path:
    """Write every stage into a folder, numbered; gives the file of the last."""
    return save_stages(model, folder, stem)


def compare(before: object, lowered: Lowered, path: Path, options: Options) -> Compared:
    """The numbers of kernels after each pass and after the one above it, as far as their arguments can be drawn."""
    passes = [place for place in sorted(path.parent.glob("[0-9][0-9]-*.tensor")) if place.name[:2] != "00"]
    if not passes or not isinstance(before, KernelFile):
        return Compared({})
    stages = [(place.stem, read_checked(place, options.limits).program) for place in passes]
    return Compared(_compare_stages(before.program, stages, options))


def _compare_stages(before: Program, stages: Sequence[tuple[str, Program]], options: Options) -> Pairs:
    """What kernels gave before and after each pass, by stage; a pass that leaves a kernel as it is is not run."""
    found: dict[str, tuple[Array, Array]] = {}
    for function in (item for item in before.functions if _is_drawable(item) and not find_open(item)):
        text, above = "", _run(before, function, options)
        for stage, program in stages:
            now = next((item for item in program.functions if item.name == function.name), None)
            if now is None:
                continue
            changed = write(replace(program, functions=(now,)))
            below = above if changed == text else _run(program, function, options)
            for name in above:
                found[f"{stage}: {function.name}.{name}"] = (above[name], below[name])
            text, above = changed, below
    return found


def run_drawable(program: Program, options: Options) -> dict[str, Mapping[str, Array]]:
    """What the kernels of a program give on arguments that are drawn; those whose arguments cannot be are left out."""
    chosen = [item for item in program.functions if _is_drawable(item) and not find_open(item)]
    return {item.name: _run(program, item, options) for item in chosen}


def _is_drawable(function: Function) -> bool:
    """Whether all arguments can be made up: real numbers and arrays of them; integers may be positions."""
    kinds = [item.type for item in function.parameters]
    return all(
        (isinstance(kind, Scalar) and kind.name not in INTEGERS)
        or (isinstance(kind, Memref) and kind.element not in INTEGERS and None not in kind.shape)
        for kind in kinds
    )


def _run(program: Program, function: Function, options: Options) -> Mapping[str, Array]:
    source = KernelFile(function.span.source, program, ())
    run = KernelRun(source, "cpu", replace(options, kernel=function.name))
    given: dict[str, Array] = {}
    for item in function.parameters:
        name, kind = item.value.name, item.type
        if isinstance(kind, Scalar):
            given[name] = np.asarray(True if kind.name == "bool" else NUMBER)
        elif isinstance(kind, Memref):
            given[name] = draw_array(kind, name, options.start_seed)
    return run(**given)
