"""Statements in order: each instruction is given to the part that emits its kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lamella.backend.cpu.emit import threads
from lamella.backend.cpu.emit.control.branches import emit_if
from lamella.backend.cpu.emit.control.loops import emit_for
from lamella.backend.cpu.emit.control.phases import Phases, count_uses, emit_phases
from lamella.backend.cpu.emit.here import Here
from lamella.backend.cpu.emit.mathematics import emit_math
from lamella.backend.cpu.emit.matrices import (
    constant_matrix,
    emit_construct,
    emit_coop_load,
    emit_coop_store,
    emit_extract,
    emit_insert,
    emit_mul_add,
    emit_scale,
)
from lamella.backend.cpu.emit.memory import (
    emit_expand,
    emit_fuse,
    emit_load,
    emit_size,
    emit_store,
    emit_subview,
    emit_update,
    make_local,
)
from lamella.backend.cpu.emit.scalars import emit_arith, emit_cast, emit_compare, emit_constant
from lamella.backend.cpu.emit.subgroups import emit_broadcast, emit_builtin, emit_operation
from lamella.backend.cpu.emit.values import RunValue
from lamella.base.source import Span
from lamella.kernels.locals import stack_offset
from lamella.lang.tensor.nodes import (
    Alloca,
    Arith,
    AtomicUpdate,
    Barrier,
    Builtin,
    Cast,
    Compare,
    Constant,
    CoopConstruct,
    CoopExtract,
    CoopInsert,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopScale,
    CoopStore,
    Expand,
    For,
    Fuse,
    If,
    LifetimeStop,
    Load,
    Math,
    Parallel,
    SizeOf,
    Statement,
    Store,
    SubgroupBroadcast,
    SubgroupOperation,
    Subview,
    Yield,
)

EMIT: dict[type, Callable[..., RunValue | None]] = {
    Constant: lambda here, node: (
        constant_matrix(here, node) if isinstance(node.type, Coopmatrix) else emit_constant(here, node)
    ),
    Arith: emit_arith,
    Compare: emit_compare,
    Math: emit_math,
    Cast: emit_cast,
    Builtin: emit_builtin,
    Load: emit_load,
    Store: emit_store,
    AtomicUpdate: emit_update,
    SizeOf: emit_size,
    Subview: emit_subview,
    Expand: emit_expand,
    Fuse: emit_fuse,
    CoopLoad: emit_coop_load,
    CoopMulAdd: emit_mul_add,
    CoopScale: emit_scale,
    CoopStore: emit_coop_store,
    CoopConstruct: emit_construct,
    CoopExtract: emit_extract,
    CoopInsert: emit_insert,
    SubgroupBroadcast: emit_broadcast,
    SubgroupOperation: emit_operation,
}
"""What emits each instruction that has no region."""


def _store_together(here: Here, instruction: CoopStore) -> None:
    """Store a matrix that all threads of a subgroup hold: when all have it, and by one of them."""
    out = here.out
    threads.wait_for_subgroup(here)
    store, after = out.label("store"), out.label("stored")
    out.branch(threads.is_first_lane(here), store, after)
    out.begin(store)
    emit_coop_store(here, instruction)
    out.jump(after)
    out.begin(after)
    threads.wait_for_subgroup(here)


THREADS: dict[type, Callable[..., RunValue | None]] = {
    Builtin: threads.emit_builtin,
    CoopStore: _store_together,
    SubgroupBroadcast: threads.emit_broadcast,
    SubgroupOperation: threads.emit_operation,
}
"""What is emitted in another way where each work-item is a thread."""


def walk(here: Here, statements: Sequence[Statement]) -> tuple[RunValue, ...]:
    """Emit statements; gives what the last of them yields."""
    for statement in statements:
        instruction = statement.instruction
        if isinstance(instruction, Yield):
            return tuple(here.values[item.name] for item in instruction.values)
        comment_source(here, statement.span)
        _emit(here, statement)
    return ()


def _emit(here: Here, statement: Statement) -> None:
    instruction = statement.instruction
    if isinstance(instruction, For):
        _name(here, statement, emit_for(here, instruction, statement.results))
    elif isinstance(instruction, If):
        _name(here, statement, emit_if(here, instruction, statement.results))
    elif isinstance(instruction, Parallel):
        emit_parallel(here, instruction)
    elif isinstance(instruction, Alloca):
        _name(here, statement, [make_local(here, instruction.type, stack_offset(instruction) or 0)])
    elif isinstance(instruction, Barrier):
        if here.threads:
            threads.wait_for_group(here)
    elif not isinstance(instruction, LifetimeStop):
        emit = THREADS.get(type(instruction)) if here.threads else None
        found = (emit or EMIT[type(instruction)])(here, instruction)
        _name(here, statement, [] if found is None else [found])


def _name(here: Here, statement: Statement, values: Sequence[RunValue]) -> None:
    for name, value in zip(statement.results, values, strict=False):
        here.values[name.name] = value


def comment_source(here: Here, span: Span) -> None:
    """Show the line of the source that the code comes from, once for neighbouring statements of one line."""
    if not span.source.text:
        return
    line = span.text.partition("\n")[0].strip()
    if line and line != here.shown:
        here.out.comment(line[:100])
        here.shown = line


def emit_parallel(here: Here, node: Parallel) -> None:
    """All work-items of the group run the body: lanes of a subgroup at once, subgroups one after the other."""
    here.lanes, here.collective = 1 if here.threads else here.subgroup_size, False
    if here.threads or here.subgroups == 1:
        walk(here, node.body.statements)
    else:
        emit_phases(here, node.body.statements, Phases(used=count_uses(node.body)))
    here.lanes, here.collective = 1, True
