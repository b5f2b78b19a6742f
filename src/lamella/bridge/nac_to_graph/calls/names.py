"""Names of operations and what they call: standard ones, ATen's, Python's on sizes, those of our library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lamella.base.diagnostic import Rule
from lamella.base.dim import Dim
from lamella.base.suggest import nearest
from lamella.bridge.aten.build import build_call
from lamella.bridge.aten.nodes import Operand, Result, Schema
from lamella.bridge.aten.sizes import compute_size, is_size_operation
from lamella.bridge.aten.table import DROP, find_schema, overloads, schemas
from lamella.bridge.nac_to_graph.calls.matching import Reading, find_readings
from lamella.bridge.nac_to_graph.calls.own import call_own, check_own
from lamella.bridge.nac_to_graph.calls.standard import PASS, PREFIX, TRANSPOSE, restate_standard
from lamella.bridge.nac_to_graph.nodes import UNTYPED, Failure, Given, Untyped, Value, describe, first_tensor
from lamella.bridge.nac_to_graph.recorder import Recorder
from lamella.graph.nodes import Tensor
from lamella.lang.nac.nodes import V1_8
from lamella.lang.nac.operations import standard_operations
from lamella.lang.nac.rules import reading as rules
from lamella.ops.library import Library
from lamella.ops.problem import Fault, Problem

ATEN = "aten."
LONGEST = 60
"""Letters of a name for which like ones are looked for."""


def is_dropped(name: str) -> bool:
    """Whether an operation only asserts something, so that nothing of it is computed."""
    schema = find_schema(_spelled(name))
    return schema is not None and schema.operator == DROP


def is_in_place(name: str) -> bool:
    """Whether an operation of ATen changes its first argument, which later instructions then see changed."""
    stem = _spelled(name).split(".")
    return len(stem) > 1 and stem[0] == "aten" and stem[1].endswith("_") and not stem[1].endswith("__")


def call(builder: Recorder, name: str, given: tuple[Given, ...]) -> Value:
    """What an instruction gives; a Fault says that it cannot be read, a Problem what is wrong with the call."""
    operands = tuple(item.value for item in given)
    if name == PASS:
        return _pass(operands)
    if name.startswith(PREFIX):
        if _is_arithmetic(name, operands):
            return _size(name.removeprefix(PREFIX), operands)
        restated = restate_standard(name, given)
        return _call_aten(builder, restated.name, restated.given)
    if is_size_operation(name) and (name == "getitem" or first_of(operands) is None):
        return _size(name, operands)
    return _call_named(builder, name, given)


def is_known(library: Library, name: str) -> bool:
    """Whether some table has an operation of this name: the standard ones, ATen's, Python's on sizes, the library."""
    if name == PASS or is_size_operation(name) or is_dropped(name):
        return True
    spelled = _spelled(name)
    if name.startswith(PREFIX):
        return bool(_schemas(f"{ATEN}{name.removeprefix(PREFIX)}"))
    return bool(spelled.startswith(ATEN) and _schemas(spelled)) or library.find(spelled) is not None


def foreign(library: Library, name: str) -> Rule:
    """The rule that an operation is unknown, with those of a like name in its hint."""
    prefix = name.partition(".")[0]
    known = {
        "nac": sorted(item.name for item in standard_operations(V1_8).values()),
        "aten": sorted(schemas()),
    }.get(prefix) or [f"{prefix}.{word}" for word in library.operators(prefix)]
    near = nearest(name, known)
    if not near:
        return rules.OPERATION_FOREIGN
    return replace(rules.OPERATION_FOREIGN, hint=f"did you mean {near[0]}? {rules.OPERATION_FOREIGN.hint}")


def foresee(library: Library, name: str, given: tuple[Given, ...]) -> Untyped:
    """What an instruction gives of whose arguments only a run tells some; a Fault where it cannot be called at all."""
    if not is_known(library, name):
        raise Fault(rules.OPERATION_FOREIGN)
    if name == PASS:
        _pass(tuple(item.value for item in given))
        return UNTYPED
    spelled = _spelled(name)
    definition = library.find(spelled)
    if is_size_operation(name):
        if not 0 < len(given) < 3 or (name == "getitem" and len(given) != 2):
            raise Fault(rules.ARGUMENTS_UNFIT, arguments=_told(given), schema=f"{name}(x, …)")
    elif name.startswith(PREFIX):
        # A transposition without dimensions swaps the last two, whichever they are.
        if not (name == TRANSPOSE and len(given) == 1):
            restated = restate_standard(name, given)
            _read_aten(restated.name, restated.given)
    elif spelled.startswith(ATEN) and _schemas(spelled):
        _read_aten(spelled, given)
    elif definition is not None:
        check_own(definition, given)
    return UNTYPED


def first_of(operands: Sequence[Operand]) -> Tensor | None:
    """The first tensor among arguments."""
    return next((found for item in operands if (found := first_tensor(item)) is not None), None)


def _pass(operands: tuple[Operand, ...]) -> Value:
    if not operands:
        raise Fault(rules.ARGUMENTS_UNFIT, arguments="()", schema="nac.pass(x, …)")
    return operands[0]


def _is_arithmetic(name: str, operands: tuple[Operand, ...]) -> bool:
    """Whether a standard operation computes with sizes alone."""
    sizes = [item for item in operands if isinstance(item, int | Dim) and not isinstance(item, bool)]
    short = name.removeprefix(PREFIX)
    return short in ("add", "sub", "mul", "neg") and 0 < len(sizes) == len(operands) < 3


def _size(name: str, operands: tuple[Operand, ...]) -> Value:
    found = compute_size(name, operands)
    return Failure("a truth value that only the run tells") if found is None else found


def _call_named(builder: Recorder, name: str, given: tuple[Given, ...]) -> Value:
    """An operation of ATen, of our library, or one of Python's on a tensor."""
    spelled = _spelled(name)
    if spelled.startswith(ATEN) and _schemas(spelled):
        return _call_aten(builder, spelled, given)
    definition = builder.library.find(spelled)
    if definition is not None:
        return call_own(builder, definition, [item.value for item in given])
    if is_size_operation(name):
        return _call_aten(builder, f"{ATEN}{name}", given)
    raise Fault(rules.OPERATION_FOREIGN)


def _spelled(name: str) -> str:
    return name.replace("::", ".")


def _schemas(name: str) -> tuple[Schema, ...]:
    """The overloads that a name may stand for: the one that it names, or all where it names none."""
    stem, exact = name.split("."), find_schema(name)
    if exact is not None and len(stem) > 2:
        return (exact,)
    found = overloads(".".join(stem[:2]))
    if not found and is_in_place(name):
        return _schemas(".".join((stem[0], stem[1].removesuffix("_"), *stem[2:])))
    first = () if exact is None else (exact,)
    return (*first, *(item for item in found if item is not exact))


def _call_aten(builder: Recorder, name: str, given: tuple[Given, ...]) -> Value:
    found = _first_that_holds(builder, _read_aten(name, given))
    return Failure("no value") if found is None else found


def _read_aten(name: str, given: tuple[Given, ...]) -> Sequence[Reading]:
    """The calls that an instruction may stand for; a Fault where there is none."""
    schemas = _schemas(name)
    if not schemas:
        raise Fault(rules.OPERATION_FOREIGN)
    readings = find_readings(schemas, given)
    if not readings:
        readings = find_readings(overloads(".".join(name.split(".")[:2])), given)
    if not readings:
        raise Fault(rules.ARGUMENTS_UNFIT, arguments=_told(given), schema=_shown(schemas[0]))
    return readings


def _told(given: Sequence[Given]) -> str:
    """Arguments as messages speak of them."""
    return f"({', '.join(describe(item.value if item.typed else UNTYPED) for item in given[:16])})"


def _first_that_holds(builder: Recorder, readings: Sequence[Reading]) -> Result:
    """The result of the likeliest reading that can be called; what is wrong with the likeliest where none can."""
    problem: Problem | Fault | None = None
    for reading in readings:
        mark = builder.mark()
        try:
            return build_call(builder, reading.call, builder.origin)
        except Problem as found:
            builder.undo(mark)
            problem = problem or found
        except (ArithmeticError, ValueError) as found:
            builder.undo(mark)
            problem = problem or Fault(rules.CALL_REFUSED, problem=found)
    raise problem or Fault(rules.OPERATION_FOREIGN)


def _shown(schema: Schema) -> str:
    """A schema as ATen writes it."""
    words = [f"{item.type} {item.name}" for item in schema.parameters]
    return f"{schema.name}({', '.join(words)})"
