"""One operation as one NEM `compute` task: its kernels one behind the other, as one function without work-groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from lamella.base.diagnostic import errors
from lamella.base.dtype import find_in
from lamella.base.errors import Unsupported
from lamella.bridge.graph_to_kernels import KernelWriter, name_operands
from lamella.graph.binding import bind_operation
from lamella.graph.nodes import Operation, tensors
from lamella.kernels.build import Builder, FreshNames
from lamella.kernels.nodes import KernelCall, KernelOperand, find_temporaries
from lamella.kernels.passes.fold_constants import fold_function
from lamella.kernels.rewrite import (
    copy_region,
    make_names_unique,
    rewrite,
    used_values,
    walk,
    with_statements,
)
from lamella.lang.tensor import check
from lamella.lang.tensor.nodes import (
    Alloca,
    Builtin,
    Cast,
    Constant,
    Expand,
    For,
    Function,
    Fuse,
    Load,
    Number,
    Parameter,
    Program,
    Region,
    Statement,
    Value,
)
from lamella.lang.tensor.nodes.types import FLOATS, Scalar, make_memref
from lamella.ops.library import Library

Key = tuple[str, int | None]
GROUP = "group_id"
FAULT = "fault"
WIDE, NARROW = "i64", "i32"
"""Integers of the graph, and what a plan holds of them."""
FAULT_KEY: Key = (".fault", None)
"""Where a kernel says that a step has no value: the run ends where it is not 0."""


class ReadsNothing(Unsupported):
    """An operation of which only the shapes of its operands matter."""


@dataclass(frozen=True, slots=True)
class TaskKernel:
    """A kernel for one task: the tensors of the graph that are its inputs and outputs, in the order of its memrefs.

    Behind the outputs come `scratch` operands: regions that the task writes and nobody else reads. What no region can
    hold, sums in i64, is local memory of the kernel.
    """

    function: Function
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scratch: tuple[KernelOperand, ...] = ()


def operation_to_task(
    library: Library, operation: Operation, name: str, known: Mapping[str, Number] | None = None
) -> TaskKernel:
    """The kernel of an operation under a name; Unsupported says why it cannot be a task.

    Every region of the task lies row by row, in the element type of its tensor; truth values are i8. Inputs of which
    every element has one `known` value are constants of the kernel.
    """
    calls, functions = _write(library, operation)
    named = name_operands(library, operation)
    names = {_key(new): old for old, new in _pairs(operation, named)}
    used = {(item.name, item.item): item for call in calls for item in call.operands}
    if any(call.has_fault for call in calls):
        used[FAULT_KEY] = KernelOperand(*FAULT_KEY, (1,), "i32")
    for operand in used.values():
        _refuse(operand, names)
    outputs = _written(named, used)
    inputs = [key for key in names if key in used and key not in outputs]
    numbers = {key: known[names[key]] for key in inputs if known and names[key] in known}
    if len(inputs) == len(numbers):
        raise ReadsNothing("it reads nothing: its value is a constant")
    scratch = [key for key, item in used.items() if item.is_temporary and find_in("nem", item.element)]
    function = _join(name, calls, functions, [used[key] for key in (*inputs, *outputs, *scratch)], outputs)
    function = _insert(function, {place: numbers[key] for place, key in enumerate(inputs) if key in numbers})
    function, scratch = _without_idle(fold_function(function), scratch)
    return TaskKernel(
        _checked(function),
        tuple(names[key] for key in inputs if key not in numbers),
        tuple(names[key] for key in outputs),
        tuple(used[key] for key in scratch),
    )


def _without_idle(function: Function, scratch: Sequence[Key]) -> tuple[Function, list[Key]]:
    """The function without scratch operands that it does not touch: known indices have no fault to tell."""
    touched = {value.name for item in walk(function.body) for value in used_values(item.instruction)}
    count = len(function.parameters) - len(scratch)
    kept = [
        (parameter, key)
        for parameter, key in zip(function.parameters[count:], scratch, strict=True)
        if parameter.value.name in touched
    ]
    parameters = (*function.parameters[:count], *(parameter for parameter, _ in kept))
    return replace(function, parameters=parameters), [key for _, key in kept]


def _refuse(operand: KernelOperand, names: Mapping[Key, str]) -> None:
    """Refuse what no region of a task can be."""
    if not operand.is_temporary and (operand.name, operand.item) not in names:
        raise Unsupported(f"'{operand.name}' is neither an input nor an output")
    if operand.strides is not None or operand.offset:
        raise Unsupported(f"'{operand.name}' does not lie row by row")
    if find_in("nem", operand.element) is None and not operand.is_temporary and operand.element != WIDE:
        raise Unsupported(f"no region has elements of type {operand.element}")


def _written(named: Operation, used: Mapping[Key, KernelOperand]) -> list[Key]:
    """The outputs that have elements."""
    made = [item for argument in named.outputs for item in tensors(argument)]
    found = [_key(item.name) for item in made if 0 not in (item.shape or ())]
    if any(key not in used for key in found):
        raise Unsupported("an output is never written")
    return found


def _checked(function: Function) -> Function:
    for finding in errors(check(Program((function,)))):
        raise Unsupported(f"its kernels do not fit together: {finding.message}")
    return function


def _write(library: Library, operation: Operation) -> tuple[tuple[KernelCall, ...], dict[str, Function]]:
    """The kernels of an operation: those of its formulas, each by itself, or where it is compound as a group."""
    writer = KernelWriter(library)
    lowered = bind_operation(library, operation).definition.operator.kind == "lower"
    calls = writer.add_formulas(operation) if lowered else writer.add(operation)
    if not calls:
        raise Unsupported("it has nothing to compute")
    find_temporaries(calls)
    return calls, {item.name: item for item in writer.functions}


def _key(name: str) -> Key:
    word, _, number = name.partition(":")
    return word, int(number) if number else None


def _pairs(operation: Operation, named: Operation) -> Iterator[tuple[str, str]]:
    """The names of an operation's tensors in the graph, and those of its operator's parameters."""
    sides = zip((*operation.inputs, *operation.outputs), (*named.inputs, *named.outputs), strict=True)
    for one, other in sides:
        for old, new in zip(tensors(one), tensors(other), strict=True):
            yield old.name, new.name


def _join(
    name: str,
    calls: Sequence[KernelCall],
    functions: Mapping[str, Function],
    operands: Sequence[KernelOperand],
    written: Collection[Key],
) -> Function:
    """The bodies of launches one behind the other; a launch of several work-groups is a loop over them.

    Integers of 64 bits, which no region has, are local memory: they are copied from and to regions of 32.
    """
    names = FreshNames({FAULT})
    held = {
        key: (Value(FAULT) if key == FAULT_KEY else names.new(), item)
        for item in operands
        for key in [(item.name, item.item)]
    }
    builder = Builder(names)
    outside = {key: item for key, item in held.items() if item[1].element == WIDE}
    for key, (value, item) in outside.items():
        held[key] = builder.value(Alloca(make_memref(WIDE, item.shape, local=True))), item
        if key not in written:
            _copy(builder, (value, replace(item, element=NARROW)), held[key])
    for call in calls:
        function = make_names_unique(functions[call.kernel])
        given = {FAULT: Value(FAULT)} if call.has_fault else {}
        parameters = function.parameters[:-1] if call.has_fault else function.parameters
        for parameter, item in zip(parameters, call.operands, strict=True):
            key = item.name, item.item
            if key not in held:
                held[key] = builder.value(Alloca(make_memref(item.element, item.shape, local=True))), item
            given[parameter.value.name] = _view(builder, *held[key], item)
        _add_groups(builder, copy_region(function.body, names, given), call.groups)
    parameters_of = {key: item[0] for key, item in held.items()}
    for key, (value, item) in outside.items():
        parameters_of[key] = value
        if key in written:
            _copy(builder, held[key], (value, replace(item, element=NARROW)))
    joined = [
        Parameter(
            parameters_of[item.name, item.item],
            make_memref(NARROW if item.element == WIDE else item.element, item.shape),
        )
        for item in operands
    ]
    return Function(name, tuple(joined), builder.region())


def _copy(builder: Builder, source: tuple[Value, KernelOperand], target: tuple[Value, KernelOperand]) -> None:
    """Copy integers of one width to memory of another."""
    (one, read), (other, written) = source, target
    count = prod(read.shape)
    flat = replace(read, shape=(count,)), replace(written, shape=(count,))
    if read.shape:
        one, other = _view(builder, one, read, flat[0]), _view(builder, other, written, flat[1])
    with builder.loop(builder.constant(0), builder.constant(count)) as loop:
        places = [loop.variable] if read.shape else []
        number = loop.body.load(one, places, Scalar(read.element))
        loop.body.store(loop.body.cast(number, Scalar(written.element)), other, places)


def _insert(function: Function, numbers: Mapping[int, Number]) -> Function:
    """The function with numbers in place of the parameters at some positions, all of whose elements they are."""
    known = {function.parameters[place].value.name: number for place, number in numbers.items()}
    if not known:
        return function

    def visit(found: Region, _: bool) -> Region:
        return with_statements(found, [change(item) for item in found.statements])

    def change(statement: Statement) -> Statement:
        item = statement.instruction
        if not isinstance(item, Load) or item.operand.name not in known:
            return statement
        number = known[item.operand.name]
        value = float(number) if str(item.type) in FLOATS and not isinstance(number, tuple) else number
        value = int(value) if isinstance(value, bool) and str(item.type) != "bool" else value
        return replace(statement, instruction=Constant(value, item.type))

    rest = tuple(item for place, item in enumerate(function.parameters) if place not in numbers)
    return replace(function, parameters=rest, body=rewrite(function.body, visit))


def _view(builder: Builder, value: Value, held: KernelOperand, wanted: KernelOperand) -> Value:
    """Memory without gaps whose elements a kernel counts otherwise: as one mode, and that cut anew."""
    if held.shape == wanted.shape:
        return value
    if not held.shape or not wanted.shape:
        raise Unsupported(f"its kernels count '{held.name}' in two ways")
    local = find_in("nem", held.element) is None
    if len(held.shape) > 1:
        flat = make_memref(held.element, (prod(held.shape),), local=local)
        value = builder.value(Fuse(value, 0, len(held.shape) - 1, flat))
    if len(wanted.shape) == 1:
        return value
    return builder.value(Expand(value, 0, wanted.shape, make_memref(held.element, wanted.shape, local=local)))


def _add_groups(builder: Builder, body: Region, groups: int) -> None:
    builtins = {item.instruction.name for item in walk(body) if isinstance(item.instruction, Builtin)}
    if not builtins <= {GROUP}:
        raise Unsupported("its kernels know the lanes they run on")
    if groups == 1 and not builtins:
        for statement in body.statements:
            builder.add_statement(statement)
        return
    variable = builder.names.new()
    inside = _replace_group(body, variable)
    builder.put(For(variable, builder.constant(0), builder.constant(groups), inside))


def _replace_group(body: Region, variable: Value) -> Region:
    """The region with the loop's variable for the number of the work-group."""

    def visit(found: Region, _: bool) -> Region:
        return with_statements(found, [change(item) for item in found.statements])

    def change(statement: Statement) -> Statement:
        item = statement.instruction
        if not isinstance(item, Builtin):
            return statement
        return replace(statement, instruction=Cast(variable, item.type))

    return rewrite(body, visit)
