"""A lowered program as one LLVM module: a function for each kernel that runs a range of its work-groups."""

from __future__ import annotations

from lamella.backend.cpu.compiled import Compiled, Entry
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.memory import load_parameter
from lamella.backend.cpu.emit.regions import walk
from lamella.backend.cpu.emit.text import Writer
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
        _emit_function(function, out, target)
        definitions.append(_define(symbol, out))
        entries.append(Entry(function.name, symbol, local_bytes(function)))
    text = "\n\n".join([*definitions, "\n".join(declarations)])
    return Compiled(text + "\n", tuple(entries), program, lowered)


def _define(symbol: str, out: Writer) -> str:
    head = f"define void @{symbol}(ptr %args, i64 %first, i64 %last, i64 %groups, ptr %scratch) nounwind {{"
    return f"{head}\nentry:\n{out.body()}\n}}"


def _emit_function(function: Function, out: Writer, target: Target) -> None:
    """Parameters are read once; then a loop over the work-groups of the range."""
    sizes = default_sizes(function)
    size, (rows, columns) = sizes.subgroup_size, sizes.work_group_size
    here = Here(
        out,
        target,
        walk,
        find_varying(function) if size > 1 else frozenset(),
        subgroup_size=size,
        subgroups=rows // size * columns,
        items=rows * columns,
        group_count="%groups",
        scratch="%scratch",
    )
    slot = 0
    for parameter in function.parameters:
        here.values[parameter.value.name], slot = load_parameter(here, parameter, slot)
    _emit_groups(here, function)
    out.line("ret void")


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
