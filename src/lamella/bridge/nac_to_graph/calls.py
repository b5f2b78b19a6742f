"""Name resolution of instructions: which operation a name and its arguments call, and the call of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from lamella.base.diagnostic import Rule
from lamella.base.dim import Dim
from lamella.base.dtype import F32, ElementType, find
from lamella.base.errors import Found
from lamella.base.suggest import nearest
from lamella.bridge.aten.build import build_call
from lamella.bridge.aten.nodes import AtenSchema, Operand, Result
from lamella.bridge.aten.sizes import compute_size, is_size_operation
from lamella.bridge.aten.table import DROP, find_schema, overloads, schemas
from lamella.bridge.nac_to_graph.builder import UndoBuilder
from lamella.bridge.nac_to_graph.nodes import (
    UNTYPED,
    CallArgument,
    Failure,
    Untyped,
    Value,
    describe,
    first_tensor,
)
from lamella.bridge.nac_to_graph.overloads import OverloadReading, find_element, find_readings
from lamella.graph.build import Builder, Given
from lamella.graph.nodes import Argument, Pack, Single, Tensor
from lamella.graph.nodes import Value as Attribute
from lamella.lang.nac.nodes import V1_8
from lamella.lang.nac.operations import standard_operations
from lamella.lang.nac.rules import graphs as rules
from lamella.lang.skriptnd.nodes import Dtype, Operator, Parameter
from lamella.ops.fault import Fault
from lamella.ops.instance import Definition
from lamella.ops.library import Library

# --- library calls: inputs, attributes and open element types in the order of the definition ----------------


def call_own(builder: Builder, definition: Definition, operands: Sequence[Operand]) -> Value:
    """Call an operator by its arguments; a Fault says which does not fit, a Problem what the operator says."""
    reader = _OperandReader(definition, operands)
    operator = definition.operator
    inputs = [reader.input(item) for item in operator.parameters("input")]
    attributes = {item.name: reader.attribute(item) for item in operator.parameters("attrib") if reader.left}
    types = reader.types(_open_types(operator, inputs))
    found = builder.call_all(definition.name, *inputs, types=types, results=(), **attributes)
    return _value(found)


_ANYTHING = Tensor("", F32, ())
"""What is passed for an argument whose type only a run tells."""


def check_own(definition: Definition, given: Sequence[CallArgument]) -> None:
    """Whether an operator can take arguments of which some are not known before a run; a Fault says which cannot."""
    reader = _OperandReader(definition, [item.value if item.typed else _ANYTHING for item in given])
    operator = definition.operator
    for item in operator.parameters("input"):
        reader.input(item)
    for item in operator.parameters("attrib"):
        if reader.left:
            reader.attribute(item)
    reader.types([item.name for item in operator.items("dtype") if isinstance(item, Dtype)])


def _value(results: tuple[Argument, ...]) -> Value:
    """The tensor that an operator gives, or the tensors of all its results."""
    if len(results) == 1 and isinstance(results[0], Tensor):
        return results[0]
    if any(isinstance(item, Pack) for item in results):
        return Failure("a pack whose length only the run tells")
    return tuple(_flat(results))


def _flat(results: tuple[Argument, ...]) -> Iterator[Tensor]:
    for item in results:
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, tuple):
            yield from item


def _open_types(operator: Operator, inputs: Sequence[Given]) -> list[str]:
    """The generic types that no tensor among the inputs fixes."""
    declared = [item.type.name for item in operator.parameters("input")]
    fixed = {name for name, value in zip(declared, inputs, strict=True) if _has_tensor(value)}
    return [
        item.name for item in operator.items("dtype") if isinstance(item, Dtype) and item.name not in fixed
    ]


def _has_tensor(value: Given) -> bool:
    items = value if isinstance(value, tuple) else (value,)
    return any(isinstance(item, Tensor) for item in items)


class _OperandReader:
    """Takes arguments one by one."""

    def __init__(self, definition: Definition, operands: Sequence[Operand]) -> None:
        self._definition = definition
        self._operands = operands
        self._place = 0

    def _fault(self) -> Fault:
        operator = self._definition.operator
        names = [item.name for section in ("input", "attrib") for item in operator.parameters(section)]
        arguments = ", ".join(map(describe, self._operands[:16]))
        schema = f"{self._definition.name}({', '.join(names)})"
        return Fault(rules.ARGUMENTS_UNFIT, arguments=f"({arguments})", schema=schema)

    @property
    def left(self) -> int:
        """How many arguments there still are; attributes at the end may be left out."""
        return len(self._operands) - self._place

    def _take(self) -> Operand:
        if not self.left:
            raise self._fault()
        self._place += 1
        return self._operands[self._place - 1]

    def _take_many(self, count: Operand) -> Iterator[Operand]:
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= self.left:
            raise self._fault()
        return (self._take() for _ in range(count))

    def input(self, parameter: Parameter) -> Given:
        """An input: a tensor, a number, nothing, or the length of a pack and its tensors."""
        value = self._take()
        if value is None or parameter.type.pack is None:
            return self._single(value)
        found = [first_tensor(item) for item in self._take_many(value)]
        kept = tuple(item for item in found if item is not None)
        if len(kept) != len(found):
            raise self._fault()
        return kept

    def _single(self, value: Operand) -> Given:
        tensor = first_tensor(value)
        if tensor is not None:
            return tensor
        if value is None or isinstance(value, int | float | Dim):
            return value
        raise self._fault()

    def attribute(self, parameter: Parameter) -> Attribute:
        """An attribute: a value, nothing, a list, or the length of a list and its items."""
        value = self._take()
        if value is None:
            return None
        real = parameter.type.name == "real"
        if parameter.type.pack is None:
            return self._scalar(value, real)
        items = value if isinstance(value, tuple) else tuple(self._take_many(value))
        return tuple(self._scalar(item, real) for item in items)

    def _scalar(self, value: Operand, real: bool) -> Single:
        if value is _ANYTHING:
            return 0
        if not isinstance(value, int | float | str | Dim):
            raise self._fault()
        # Lists of whole numbers come back as integers.
        if real and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53:
            return float(value)
        return value

    def types(self, names: Sequence[str]) -> Mapping[str, ElementType]:
        """The element types at the end."""
        found: dict[str, ElementType] = {}
        for name in names[: self.left]:
            word = self._take()
            element = (find(word) or find_element(word)) if isinstance(word, str) else None
            if element is None:
                raise self._fault()
            found[name] = element
        if self.left:
            raise self._fault()
        return found


# --- standard operations as ATen operations: which one follows from their arguments -------------------------


PREFIX = "nac."
PASS, TRANSPOSE = "nac.pass", "nac.transpose"


class AtenSpelling(NamedTuple):
    """An operation of ATen, with or without its overload, and its arguments in order."""

    name: str
    given: tuple[CallArgument, ...]


def spell_as_aten(name: str, given: tuple[CallArgument, ...]) -> AtenSpelling:
    """What a `nac.` operation is in ATen."""
    special = _SPECIAL.get(name)
    found = None if special is None else special(given)
    return found or AtenSpelling(f"aten.{name.removeprefix(PREFIX)}", given)


def _subtract(given: tuple[CallArgument, ...]) -> AtenSpelling | None:
    """A number minus a tensor is a reversed subtraction; what it was before NAC put it in order."""
    if len(given) > 1 and _is_number(given[0].value) and first_tensor(given[1].value) is not None:
        return AtenSpelling("aten.rsub.Scalar", (given[1], given[0], *given[2:]))
    return None


def _view(given: tuple[CallArgument, ...]) -> AtenSpelling | None:
    """A view without a shape drops dimensions of 1: all of them, or the one that a constant names."""
    if len(given) == 1:
        return AtenSpelling("aten.squeeze.default", given)
    if len(given) == 2 and isinstance(given[1].value, int) and not given[1].computed:
        return AtenSpelling("aten.squeeze.dim", given)
    return None


def _clone(given: tuple[CallArgument, ...]) -> AtenSpelling | None:
    """Newer compilers write `copy(x, y)`, which gives y in the shape of x, as a clone of two tensors."""
    if len(given) > 1 and first_tensor(given[1].value) is not None:
        return AtenSpelling("aten.copy.default", given)
    return AtenSpelling("aten.clone.default", given[:1])


def _transpose(given: tuple[CallArgument, ...]) -> AtenSpelling | None:
    """Without dimensions it swaps the last two."""
    tensor = first_tensor(given[0].value) if given else None
    if len(given) != 1 or tensor is None:
        return None
    if len(tensor.shape) <= 2:
        return AtenSpelling("aten.t.default", given)
    last = (CallArgument(-2, computed=False), CallArgument(-1, computed=False))
    return AtenSpelling("aten.transpose.int", (*given, *last))


def _arange(given: tuple[CallArgument, ...]) -> AtenSpelling | None:
    """As many numbers as lead are the end, start and end, or start, end and step."""
    count = next((place for place, item in enumerate(given) if not _is_number(item.value)), len(given))
    overload = {1: "default", 2: "start", 3: "start_step"}.get(count)
    return None if overload is None else AtenSpelling(f"aten.arange.{overload}", given)


def _is_number(value: Operand) -> bool:
    return isinstance(value, int | float | Dim) and not isinstance(value, bool)


_SPECIAL: Mapping[str, Callable[[tuple[CallArgument, ...]], AtenSpelling | None]] = MappingProxyType(
    {
        **{"nac.sub": _subtract, "nac.view": _view, "nac.clone": _clone},
        **{"nac.transpose": _transpose, "nac.arange": _arange},
    }
)


# --- operation names and what they call: standard ones, ATen's, Python's on sizes, the library's ------------


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


def call(builder: UndoBuilder, name: str, given: tuple[CallArgument, ...]) -> Value:
    """What an instruction gives; a Fault says that it cannot be read, a Problem what is wrong with the call."""
    operands = tuple(item.value for item in given)
    if name == PASS:
        return _pass(operands)
    if name.startswith(PREFIX):
        if _is_arithmetic(name, operands):
            return _size(name.removeprefix(PREFIX), operands)
        restated = spell_as_aten(name, given)
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


def foresee(library: Library, name: str, given: tuple[CallArgument, ...]) -> Untyped:
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
            raise Fault(rules.ARGUMENTS_UNFIT, arguments=_show_arguments(given), schema=f"{name}(x, …)")
    elif name.startswith(PREFIX):
        # A transposition without dimensions swaps the last two, whichever they are.
        if not (name == TRANSPOSE and len(given) == 1):
            restated = spell_as_aten(name, given)
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


def _call_named(builder: UndoBuilder, name: str, given: tuple[CallArgument, ...]) -> Value:
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


def _schemas(name: str) -> tuple[AtenSchema, ...]:
    """The overloads that a name may stand for: the one that it names, or all where it names none."""
    stem, exact = name.split("."), find_schema(name)
    if exact is not None and len(stem) > 2:
        return (exact,)
    found = overloads(".".join(stem[:2]))
    if not found and is_in_place(name):
        return _schemas(".".join((stem[0], stem[1].removesuffix("_"), *stem[2:])))
    first = () if exact is None else (exact,)
    return (*first, *(item for item in found if item is not exact))


def _call_aten(builder: UndoBuilder, name: str, given: tuple[CallArgument, ...]) -> Value:
    found = _first_that_holds(builder, _read_aten(name, given))
    return Failure("no value") if found is None else found


def _read_aten(name: str, given: tuple[CallArgument, ...]) -> Sequence[OverloadReading]:
    """The calls that an instruction may stand for; a Fault where there is none."""
    schemas = _schemas(name)
    if not schemas:
        raise Fault(rules.OPERATION_FOREIGN)
    readings = find_readings(schemas, given)
    if not readings:
        readings = find_readings(overloads(".".join(name.split(".")[:2])), given)
    if not readings:
        raise Fault(rules.ARGUMENTS_UNFIT, arguments=_show_arguments(given), schema=_shown(schemas[0]))
    return readings


def _show_arguments(given: Sequence[CallArgument]) -> str:
    """Arguments as messages speak of them."""
    return f"({', '.join(describe(item.value if item.typed else UNTYPED) for item in given[:16])})"


def _first_that_holds(builder: UndoBuilder, readings: Sequence[OverloadReading]) -> Result:
    """The result of the likeliest reading that can be called; what is wrong with the likeliest where none can."""
    problem: Found | Fault | None = None
    for reading in readings:
        mark = builder.mark()
        try:
            return build_call(builder, reading.call, builder.origin)
        except Found as found:
            builder.undo(mark)
            problem = problem or found
        except (ArithmeticError, ValueError) as found:
            builder.undo(mark)
            problem = problem or Fault(rules.CALL_REFUSED, problem=found)
    raise problem or Fault(rules.OPERATION_FOREIGN)


def _shown(schema: AtenSchema) -> str:
    """A schema as ATen writes it."""
    words = [f"{item.type} {item.name}" for item in schema.parameters]
    return f"{schema.name}({', '.join(words)})"


__all__ = ["call", "foreign", "foresee", "is_dropped", "is_in_place", "is_known"]
