"""A primitive called in a graph: which operand is which input, which argument is which attribute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lamella.base.dtype import LANGUAGES, ElementType
from lamella.bridge.module_to_graph.frames import Frame
from lamella.bridge.module_to_graph.nodes import Bound, Members, Unknown
from lamella.bridge.module_to_graph.numbers.scalars import evaluate_real
from lamella.bridge.module_to_graph.road import Place, Road
from lamella.bridge.module_to_graph.values import is_data, value_of
from lamella.graph.nodes import Argument, Tensor
from lamella.graph.nodes import Value as Attribute
from lamella.lang.module.instantiate.evaluate import Problem, Surroundings, evaluate
from lamella.lang.module.instantiate.messages import describe
from lamella.lang.module.instantiate.nodes import DictValue, Value
from lamella.lang.module.nodes import (
    Argument as Given,
)
from lamella.lang.module.nodes import (
    ConfigParam,
    Expr,
    Operation,
    Port,
    Primitive,
    SequenceType,
    TensorType,
)
from lamella.lang.module.rules import constants, graphs, names
from lamella.lang.module.suggest import suggest

Operand: TypeAlias = Tensor | tuple[Tensor, ...] | int | float | None
DTYPES = frozenset(LANGUAGES["module"])


class Missing:
    """An input that nothing was given for."""


MISSING = Missing()


@dataclass(slots=True)
class Request:
    """One call of a primitive before it is made."""

    primitive: Primitive
    inputs: list[Bound]
    attributes: dict[str, Value]
    targets: tuple[str, ...]
    place: Place
    frame: Frame
    types: dict[str, ElementType] = field(default_factory=dict)
    runtime: dict[str, Tensor] = field(default_factory=dict)
    """Attributes that only the run tells; a form makes operands of them."""
    kept: Tensor | None = None
    """The variable that takes the last result, for the next call of the graph."""

    @property
    def name(self) -> str:
        """What the primitive is called."""
        return self.primitive.name


def ports(primitive: Primitive) -> tuple[Port, ...]:
    """The tensor inputs of a primitive."""
    return (primitive.forward.inputs or ()) if primitive.forward is not None else ()


def bind(
    primitive: Primitive,
    values: Sequence[Bound],
    operation: Operation,
    targets: tuple[str, ...],
    frame: Frame,
    road: Road,
) -> Request:
    """The operands and arguments of a call in the order of the declaration."""
    binding = _Binding(primitive, frame, road)
    binding.sources(values, operation)
    for argument in operation.arguments:
        binding.argument(argument)
    origin = frame.at(targets[0] if targets else primitive.name, operation.span)
    place = Place(primitive.name, operation.span, origin, frame)
    request = Request(primitive, binding.operands(), binding.attributes, targets, place, frame)
    request.runtime.update(binding.runtime)
    return request


class _Binding:
    """Operands and arguments on their way to their inputs and attributes."""

    def __init__(self, primitive: Primitive, frame: Frame, road: Road) -> None:
        self.primitive, self.frame, self.road = primitive, frame, road
        self.ports = ports(primitive)
        self.inputs: list[Bound | Missing] = [MISSING] * len(self.ports)
        self.attributes: dict[str, Value] = {}
        self.runtime: dict[str, Tensor] = {}
        self.params = {item.name: item for item in primitive.params}

    def sources(self, values: Sequence[Bound], operation: Operation) -> None:
        """What flows in fills the inputs from the left."""
        if self.ports and isinstance(self.ports[-1].type, SequenceType):
            self._sequence(values)
            return
        if len(values) > len(self.inputs):
            given, taken = f"{len(values)} operands", f"{len(self.inputs)}"
            repair = f"'{self.primitive.name}' takes {', '.join(str(item.name) for item in self.ports)}"
            finding = constants.KIND.at(
                operation.span,
                what=f"'{self.primitive.name}'",
                found=f"given {given}",
                wanted=f"at most {taken}",
                repair=repair,
            )
            raise Problem(finding)
        self.inputs[: len(values)] = values

    def _sequence(self, values: Sequence[Bound]) -> None:
        """A primitive of any number of inputs takes them all in its last one."""
        single = len(self.ports) - 1
        self.inputs[:single] = values[:single]
        items: list[Tensor] = []
        for value in values[single:]:
            items += value if isinstance(value, tuple) else [value] if isinstance(value, Tensor) else []
        self.inputs[single] = tuple(items)

    def argument(self, argument: Given) -> None:
        """One argument: an attribute or an input by its name, or the next free one of its kind."""
        if argument.name is not None:
            self._named(argument.name, argument)
            return
        free = next((number for number, item in enumerate(self.inputs) if item is MISSING), None)
        if free is not None and is_data(argument.value, self.frame):
            self.inputs[free] = value_of(argument.value, self.frame, self.road)
            return
        open_params = [item for item in self.primitive.params if item.name not in self.attributes]
        if open_params:
            self.attributes[open_params[0].name] = self._constant(argument.value, open_params[0])
        elif free is not None:
            self.inputs[free] = self._scalar(argument.value)
        else:
            span, text = argument.span, argument.value.span.text
            raise Problem(names.UNKNOWN_ARGUMENT.at(span, module=self.primitive.name, name=text, repair=""))

    def _named(self, name: str, argument: Given) -> None:
        if name in self.params:
            self.attributes[name] = self._constant(argument.value, self.params[name])
            return
        for number, port in enumerate(self.ports):
            if port.name == name:
                self.inputs[number] = value_of(argument.value, self.frame, self.road)
                return
        known = [*self.params, *(port.name or "" for port in self.ports)]
        repair = suggest(name, known)
        finding = names.UNKNOWN_ARGUMENT.at(
            argument.span, module=self.primitive.name, name=name, repair=repair
        )
        raise Problem(finding)

    def _constant(self, expr: Expr, param: ConfigParam) -> Value:
        words = frozenset(param.type.choices) if param.type is not None else frozenset()
        if param.type is not None and param.type.name == "dtype":
            words = DTYPES
        around = Surroundings(words=bool(words), rank=self._rank())
        if param.type is not None and param.type.name == "float":
            real = evaluate_real(expr, self.frame, self.road, self._element(), around)
            if isinstance(real, Tensor):
                self.runtime[param.name] = real
                return None
            return real
        value = evaluate(expr, self.frame.known, around)
        inner = value if isinstance(value, tuple) else ()
        if isinstance(value, DictValue) or any(isinstance(item, tuple | DictValue) for item in inner):
            what = f"'{param.name}' of '{self.primitive.name}'"
            wanted = "a number, a word or a list"
            raise Problem(
                constants.KIND.at(expr.span, what=what, found=describe(value), wanted=wanted, repair="")
            )
        if words and value is not None and value not in words:
            wanted = f"one of {', '.join(sorted(words))}"
            what = f"'{param.name}' of '{self.primitive.name}'"
            raise Problem(
                constants.KIND.at(expr.span, what=what, found=f"'{value}'", wanted=wanted, repair="")
            )
        return value

    def _rank(self) -> int | None:
        """How many dimensions the first operand has, for attributes that count them."""
        found = (len(item.shape) for item in self.inputs if isinstance(item, Tensor))
        return next(found, None)

    def _element(self) -> ElementType:
        """The type of numbers beside the operands so far."""
        found = (item.element for item in self.inputs if isinstance(item, Tensor) and item.element.is_float)
        return next(found, self.road.settings.element)

    def _scalar(self, expr: Expr) -> Bound:
        value = evaluate_real(expr, self.frame, self.road, self._element())
        if isinstance(value, Tensor):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            found = str(value)
            finding = constants.KIND.at(
                expr.span, what="an operand", found=found, wanted="a tensor or a number", repair=""
            )
            raise Problem(finding)
        return value

    def operands(self) -> list[Bound]:
        """The inputs; what is missing is None."""
        return [None if isinstance(item, Missing) else item for item in self.inputs]


def require(request: Request) -> None:
    """Whether every input that must be there is there; a Problem says which is not."""
    for port, value in zip(ports(request.primitive), request.inputs, strict=True):
        optional = isinstance(port.type, TensorType) and port.type.optional
        if value is None and not optional:
            repair = f"'{request.name}' needs '{port.name}'"
            raise Problem(
                constants.NONE_GIVEN.at(
                    request.place.span, name=port.name or "in", operation=request.name, repair=repair
                )
            )
        if isinstance(value, Members):
            found = "a module"
            raise Problem(
                constants.KIND.at(
                    request.place.span, what=f"'{port.name}'", found=found, wanted="a tensor", repair=""
                )
            )


def is_unknown(request: Request) -> bool:
    """Whether an operand comes from a statement that was wrong."""
    return any(isinstance(item, Unknown) for item in request.inputs)


def make(request: Request, road: Road) -> tuple[Tensor | None, ...]:
    """Call the operator of a primitive and give its results, those of a pack one by one."""
    require(request)
    if request.runtime:
        what = f"'{next(iter(request.runtime))}' of '{request.name}'"
        why = "it depends on a dimension that is known only at run time"
        raise Problem(constants.NOT_CONSTANT.at(request.place.span, what=what, why=why))
    operator = request.primitive.operator()
    if operator is None or road.settings.library.find(operator) is None:
        repair = "" if operator is None else f"there is no operator '{operator}'"
        raise Problem(graphs.NO_IMPLEMENTATION.at(request.place.span, name=request.name, repair=repair))
    place = request.place
    place.types = request.types or None
    place.primitive = request.primitive
    inputs = _scaled([item for item in request.inputs if not isinstance(item, Members | Unknown)])
    results = tuple(
        _flat(
            road.call(
                operator,
                inputs,
                _attributes(request, road, operator),
                _results(request, road, operator),
                place,
            )
        )
    )
    if request.kept is not None and results[-1] is not None:
        road.builder.update(request.kept, results[-1])
    return results


def _scaled(inputs: list[Operand]) -> list[Operand]:
    """Numbers beside floating tensors are floating themselves."""
    real = any(isinstance(item, Tensor) and item.element.is_float for item in inputs)
    return [float(item) if real and isinstance(item, int) else item for item in inputs]


def _attributes(request: Request, road: Road, operator: str) -> dict[str, Attribute]:
    """The attributes of a call: what is given, else what the primitive declares; None leaves the operator's own."""
    definition = road.settings.library.find(operator)
    own = set() if definition is None else {item.name for item in definition.operator.parameters("attrib")}
    values: dict[str, Value] = {}
    for param in request.primitive.params:
        if param.default is not None and param.name in own and param.name not in request.attributes:
            around = Surroundings(words=param.type is not None and bool(param.type.choices))
            values[param.name] = evaluate(param.default, {}, around)
    return _plain(values | request.attributes)


def _plain(values: Mapping[str, Value]) -> dict[str, Attribute]:
    """The values that an operator takes; those that are None take its default."""
    found: dict[str, Attribute] = {}
    for name, value in values.items():
        if isinstance(value, tuple):
            found[name] = tuple(
                item for item in value if item is not None and not isinstance(item, tuple | DictValue)
            )
        elif value is not None and not isinstance(value, DictValue):
            found[name] = value
    return found


def _results(request: Request, road: Road, operator: str) -> list[str]:
    """The names of the results: those of the targets, and where there is none the operator's own."""
    definition = road.settings.library.find(operator)
    own = [] if definition is None else [item.name for item in definition.operator.parameters("output")]
    frame, packed = request.frame, len(own) == 1 and len(request.targets) > 1
    if packed:
        return [frame.place(request.name)]
    found = [frame.place(f"{request.name}_{name}") for name in own]
    for number, target in enumerate(request.targets[: len(own)]):
        if target != "_":
            found[number] = frame.place(target)
    return found


def _flat(results: Sequence[Argument]) -> Iterator[Tensor | None]:
    for item in results:
        if isinstance(item, tuple):
            yield from item
        elif isinstance(item, Tensor) or item is None:
            yield item
