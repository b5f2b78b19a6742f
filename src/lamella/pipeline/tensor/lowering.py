"""Kernels on their way down: after each pass in the tensor language, then as text for LLVM and for a processor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lamella.backend.cpu.convention import calling_convention
from lamella.backend.cpu.emission import emit
from lamella.backend.cpu.host import host_target
from lamella.backend.cpu.jit import Machine, readable_assembly
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.placement import OperationPlacement
from lamella.base.writer import make_folder, write_text
from lamella.kernels.passes import PASSES, lower
from lamella.kernels.sizes import check_sizes
from lamella.kernels.target import Target, find_target
from lamella.lang.tensor import write
from lamella.lang.tensor.nodes import Program
from lamella.pipeline.options import Options

FORMS = ("tensor", "llvm", "asm", "ptx")
ENDINGS = {"tensor": ".tensor", "llvm": ".ll", "asm": ".s", "ptx": ".ptx"}


@dataclass(frozen=True, slots=True)
class Stage:
    """What stands after one step: its name, its form, its text."""

    name: str
    form: str
    text: str


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program with everything that was made of it, the last stage being what was asked for."""

    program: Program
    stages: tuple[Stage, ...]
    placement: tuple[OperationPlacement, ...] = ()
    """Of the graph that the program was made from: where its operations run."""

    @property
    def language(self) -> str:
        """The language that it began in."""
        return "tensor"

    @property
    def text(self) -> str:
        """What was asked for."""
        return self.stages[-1].text


def lower_program(program: Program, to: str, options: Options) -> Lowered:
    """The stages of a program: one for each pass, then LLVM, then the code of a processor."""
    if to not in FORMS:
        raise InputError(
            f"there is no road to '{to}' from here", hint=f"kernels lower to: {', '.join(FORMS)}"
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
    if (to == "ptx") != found.triple.startswith("nvptx") and to in ("asm", "ptx"):
        raise InputError(f"target '{found.name}' has no {to}", hint="'ptx' is for cuda, 'asm' for processors")
    return found


def _stages(program: Program, to: str, after: str | None, target: Target) -> Iterator[Stage]:
    if after is not None and to != "tensor":
        raise InputError("'after' names a pass, and passes end before machine code", hint="lower to tensor")
    names = [item.name for item in PASSES]
    last = names.index(after) if after in names else len(names) - 1
    for name in [*names[: last + 1], *([after] if after is not None and after not in names else [])]:
        yield Stage(name, "tensor", write(lower(program, target, name)))
    if to == "tensor":
        return
    compiled = emit(program, target)
    yield Stage("emit", "llvm", compiled.text)
    if to != "llvm":
        machine = Machine(target.triple, target.cpu, target.features)
        head = f"{calling_convention(compiled)}\n" if to == "ptx" else ""
        yield Stage("assemble", to, head + readable_assembly(compiled.text, machine))


def save_stages(lowered: Lowered, folder: Path, stem: str) -> Path:
    """Write every stage into a folder, numbered; gives the file of the last."""
    make_folder(folder)
    path = folder / f"00-{stem}.tensor"
    write_text(path, write(lowered.program))
    for number, stage in enumerate(lowered.stages, 1):
        path = folder / f"{number:02}-{stage.name}{ENDINGS[stage.form]}"
        write_text(path, stage.text)
    return path
