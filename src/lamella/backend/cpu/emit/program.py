"""A lowered program as one LLVM module: a function for each kernel that runs a range of its work-groups."""

from __future__ import annotations

from lamella.backend.cpu.compiled import Compiled, Entry
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.memory import load_parameter
from lamella.backend.cpu.emit.regions import walk
from lamella.backend.cpu.emit.text import Writer
from lamella.backend.cpu.emit.threads import enter_thread
from lamella.backend.cpu.emit.varying import find_varying
from lamella.kernels.locals import local_bytes
from lamella.kernels.sizes import default_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Function, Program


def emit_program(program: Program, lowered: Program, target: Target) -> Compiled:
    """The LLVM text of a program that the passes have lowered for a target."""
    declarations: dict[str, None] = {}
    definitions, entries = [], []
    for number, function in enumerate(lowered.functions):
        out = Writer(declarations=declarations)
        symbol = f"kernel_{number}"
        here = _enter(function, out, target)
        if here.threads:
            _emit_thread(here, function)
        else:
            _emit_range(here, function)
        definitions.append(_define(symbol, here))
        entries.append(Entry(function.name, symbol, local_bytes(function)))
    text = "\n\n".join(["\n".join(declarations), *definitions])
    return Compiled(text + "\n", tuple(entries), program, lowered)


def _define(symbol: str, here: Here) -> str:
    """The definition of a kernel; one for threads gets no range, because each work-group finds out who it is."""
    head = f"define void @{symbol}(ptr %args, i64 %first, i64 %last, i64 %groups, ptr %scratch) nounwind {{"
    if here.threads:
        head = f"define ptx_kernel void @{symbol}(ptr %args, i64 %groups) nounwind {{"
    return f"{head}\nentry:\n{here.out.body()}\n}}"


def _enter(function: Function, out: Writer, target: Target) -> Here:
    sizes = default_sizes(function)
    size, (rows, columns) = sizes.subgroup_size, sizes.work_group_size
    return Here(
        out,
        target,
        walk,
        find_varying(function) if size > 1 else frozenset(),
        subgroup_size=size,
        subgroups=rows // size * columns,
        items=rows * columns,
        group_count="%groups",
        scratch="%scratch",
        threads=target.has_threads,
    )


def _load_parameters(here: Here, function: Function) -> None:
    slot = 0
    for parameter in function.parameters:
        here.values[parameter.value.name], slot = load_parameter(here, parameter, slot)


def _emit_thread(here: Here, function: Function) -> None:
    """One work-item of one work-group."""
    here.items = 1  # each of them runs the collective regions itself
    enter_thread(here, default_sizes(function).work_group_size[0], local_bytes(function))
    _load_parameters(here, function)
    walk(here, function.body.statements)
    here.out.line("ret void")


def _emit_range(here: Here, function: Function) -> None:
    """Parameters are read once; then a loop over the work-groups of the range."""
    _load_parameters(here, function)
    _emit_groups(here, function)
    here.out.line("ret void")


def _emit_groups(here: Here, function: Function) -> None:
    out = here.out
    before, body, after = out.label("start"), out.label("group"), out.label("done")
    out.jump(before)
    out.begin(before)
    out.branch(out.value("icmp slt i64 %first, %last"), body, after)
    out.begin(body)
    hole, here.group_id = out.hole(), out.name()
    walk(here, function.body.statements)
    following = out.value(f"add i64 {here.group_id}, 1")
    out.fill(hole, f"{here.group_id} = phi i64 [%first, %{before}], [{following}, %{out.block}]")
    out.branch(out.value(f"icmp slt i64 {following}, %last"), body, after)
    out.begin(after)
