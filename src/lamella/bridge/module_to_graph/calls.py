"""Calls of primitives: operands and attributes bound, then brought to the form that the operator takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from lamella.base import dim
from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim, Extent
from lamella.base.dtype import LANGUAGES, ElementType, find_in
from lamella.base.errors import Found
from lamella.bridge.module_to_graph.lowering import CallSite, DecodeCaches, GraphLowering, shape_text
from lamella.bridge.module_to_graph.nodes import Bound, InstanceFrame, Members, Unknown
from lamella.bridge.module_to_graph.values import evaluate_real, is_data, projection, value_of
from lamella.graph.nodes import Argument, Tensor
from lamella.graph.nodes import Value as Attribute
from lamella.lang.module.check.views import root_of
from lamella.lang.module.instantiate.bind import fit
from lamella.lang.module.instantiate.evaluate import EvaluationContext, evaluate
from lamella.lang.module.instantiate.messages import describe
from lamella.lang.module.instantiate.nodes import BuiltConstant, DictValue, Known, Value
from lamella.lang.module.nodes import Argument as Given
from lamella.lang.module.nodes import (
    ConfigParam,
    Expr,
    Index,
    Member,
    Name,
    Operation,
    Port,
    Primitive,
    SequenceType,
    TensorType,
)
from lamella.lang.module.rules import constants, graphs, names, syntax
from lamella.lang.module.suggest import suggest

Operand: TypeAlias = Tensor | tuple[Tensor, ...] | int | float | None
DTYPES = frozenset(LANGUAGES["module"])


class Missing:
    """An input that nothing was given for."""


MISSING = Missing()


@dataclass(slots=True)
class PrimitiveCall:
    """One call of a primitive before it is made."""

    primitive: Primitive
    inputs: list[Bound]
    attributes: dict[str, Value]
    targets: tuple[str, ...]
    place: CallSite
    frame: InstanceFrame
    types: dict[str, ElementType] = field(default_factory=dict)
    runtime: dict[str, Tensor] = field(default_factory=dict)
    """Attributes that are known only at run time; a form makes operands of them."""
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
    frame: InstanceFrame,
    lowering: GraphLowering,
) -> PrimitiveCall:
    """The operands and arguments of a call in the order of the declaration."""
    binding = _OperandBinding(primitive, frame, lowering)
    binding.sources(values, operation)
    for argument in operation.arguments:
        binding.argument(argument)
    origin = frame.at(targets[0] if targets else primitive.name, operation.span)
    place = CallSite(primitive.name, operation.span, origin, frame)
    request = PrimitiveCall(primitive, binding.operands(), binding.attributes, targets, place, frame)
    request.runtime.update(binding.runtime)
    return request


class _OperandBinding:
    """Operands and arguments on their way to their inputs and attributes."""

    def __init__(self, primitive: Primitive, frame: InstanceFrame, lowering: GraphLowering) -> None:
        self.primitive, self.frame, self.lowering = primitive, frame, lowering
        self.ports = ports(primitive)
        self.inputs: list[Bound | Missing] = [MISSING] * len(self.ports)
        self.attributes: dict[str, Value] = {}
        self.runtime: dict[str, Tensor] = {}
        self.params = {item.name: item for item in primitive.params}

    def sources(self, values: Sequence[Bound], operation: Operation) -> None:
        """What flows in fills the inputs from the left."""
        if self.ports and isinstance(self.ports[-1].type, SequenceType):
            self._sequence(values, operation)
            return
        # Fewer are allowed here: arguments of the call may fill the rest.
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
            raise Found(finding)
        self.inputs[: len(values)] = values

    def _sequence(self, values: Sequence[Bound], operation: Operation) -> None:
        """A primitive of any number of inputs takes them all in its last one."""
        single = len(self.ports) - 1
        self.inputs[:single] = values[:single]
        items: list[Tensor] = []
        for value in values[single:]:
            if isinstance(value, Unknown):
                self.inputs[single] = value
                return
            if not isinstance(value, tuple | Tensor):
                raise self._not_a_tensor(value, operation)
            items += value if isinstance(value, tuple) else [value]
        self.inputs[single] = tuple(items)

    def _not_a_tensor(self, value: Bound, operation: Operation) -> Found:
        name = self.primitive.name
        if value is None:
            return Found(constants.NONE_GIVEN.at(operation.span, name="None", operation=name, repair=""))
        what, found = f"an operand of '{name}'", "a module" if isinstance(value, Members) else str(value)
        return Found(constants.KIND.at(operation.span, what=what, found=found, wanted="a tensor", repair=""))

    def argument(self, argument: Given) -> None:
        """One argument: an attribute or an input by its name, or the next free one of its kind."""
        if argument.name is not None:
            self._named(argument.name, argument)
            return
        free = next((number for number, item in enumerate(self.inputs) if item is MISSING), None)
        if free is not None and is_data(argument.value, self.frame):
            self.inputs[free] = value_of(argument.value, self.frame, self.lowering)
            return
        open_params = [item for item in self.primitive.params if item.name not in self.attributes]
        if open_params:
            self.attributes[open_params[0].name] = self._attribute(argument.value, open_params[0])
        elif free is not None:
            self.inputs[free] = self._scalar(argument.value)
        else:
            what, wanted = f"'{self.primitive.name}'", f"at most {len(self.params)}"
            found = "given more arguments than it has parameters"
            raise Found(constants.KIND.at(argument.span, what=what, found=found, wanted=wanted, repair=""))

    def _named(self, name: str, argument: Given) -> None:
        is_given = name in self.attributes or any(
            port.name == name and item is not MISSING
            for port, item in zip(self.ports, self.inputs, strict=True)
        )
        if is_given:
            where = f"a call of '{self.primitive.name}'"
            raise Found(names.DUPLICATE.at(argument.span, kind="argument", name=name, where=where))
        if name in self.params:
            self.attributes[name] = self._attribute(argument.value, self.params[name])
            return
        for number, port in enumerate(self.ports):
            if port.name == name:
                self.inputs[number] = value_of(argument.value, self.frame, self.lowering)
                return
        known = [*self.params, *(port.name or "" for port in self.ports)]
        repair = suggest(name, known)
        finding = names.UNKNOWN_ARGUMENT.at(
            argument.span, module=self.primitive.name, name=name, repair=repair
        )
        raise Found(finding)

    def _attribute(self, expr: Expr, param: ConfigParam) -> Value:
        """The value of an attribute; beside unknown operands, dimensions that these would bind are unknown too."""
        try:
            return self._constant(expr, param)
        except Found as problem:
            is_open = self.lowering.settings.partial and any(
                isinstance(item, Unknown) for item in self.inputs
            )
            if is_open and problem.finding.code == names.UNKNOWN.code:
                return None
            raise

    def _constant(self, expr: Expr, param: ConfigParam) -> Value:
        words = frozenset(param.type.choices) if param.type is not None else frozenset()
        if param.type is not None and param.type.name == "dtype":
            words = DTYPES
        self._require_constant(expr, param)
        around = EvaluationContext(words=bool(words), rank=self._rank())
        if param.type is not None and param.type.name == "float":
            real = evaluate_real(expr, self.frame, self.lowering, self._element(), around)
            if isinstance(real, Tensor):
                self.runtime[param.name] = real
                return None
            return self._fitting(real, expr, param)
        value = evaluate(expr, self.frame.known, around)
        inner = value if isinstance(value, tuple) else ()
        if isinstance(value, DictValue) or any(isinstance(item, tuple | DictValue) for item in inner):
            what = f"'{param.name}' of '{self.primitive.name}'"
            wanted = "a number, a word or a list"
            raise Found(
                constants.KIND.at(expr.span, what=what, found=describe(value), wanted=wanted, repair="")
            )
        if words and value is not None and value not in words:
            wanted = f"one of {', '.join(sorted(words))}"
            what = f"'{param.name}' of '{self.primitive.name}'"
            raise Found(constants.KIND.at(expr.span, what=what, found=f"'{value}'", wanted=wanted, repair=""))
        return self._fitting(value, expr, param)

    def _require_constant(self, expr: Expr, param: ConfigParam) -> None:
        """A tensor is no attribute; of a name that is a constant too, the constant is meant."""
        root = root_of(expr)
        is_tensor = isinstance(expr, Name | Member | Index) and is_data(expr, self.frame)
        if is_tensor and isinstance(root, Name) and root.id not in self.frame.known:
            what, found = f"'{param.name}' of '{self.primitive.name}'", f"the tensor '{expr.span.text}'"
            raise Found(constants.KIND.at(expr.span, what=what, found=found, wanted="a constant", repair=""))

    def _fitting(self, value: Value, expr: Expr, param: ConfigParam) -> Value:
        """The value as the type of its parameter holds it; None means the default, one number is a list of one."""
        kind = param.type
        if kind is None or value is None or (kind.listed and not isinstance(value, tuple)):
            return value
        return fit(
            Known(value, "argument", expr.span), kind, f"'{param.name}' of '{self.primitive.name}'"
        ).value

    def _rank(self) -> int | None:
        """How many dimensions the first operand has, for attributes that count them."""
        found = (len(item.shape) for item in self.inputs if isinstance(item, Tensor))
        return next(found, None)

    def _element(self) -> ElementType:
        """The type of numbers beside the operands so far."""
        found = (item.element for item in self.inputs if isinstance(item, Tensor) and item.element.is_float)
        return next(found, self.lowering.settings.element)

    def _scalar(self, expr: Expr) -> Bound:
        value = evaluate_real(expr, self.frame, self.lowering, self._element())
        if isinstance(value, Tensor):
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            found = str(value)
            finding = constants.KIND.at(
                expr.span, what="an operand", found=found, wanted="a tensor or a number", repair=""
            )
            raise Found(finding)
        return value

    def operands(self) -> list[Bound]:
        """The inputs; what is missing is None."""
        return [None if isinstance(item, Missing) else item for item in self.inputs]


def _require_inputs(request: PrimitiveCall) -> None:
    """Whether every input that must be there is there; a Problem says which is not."""
    for port, value in zip(ports(request.primitive), request.inputs, strict=True):
        optional = isinstance(port.type, TensorType) and port.type.optional
        if value is None and not optional:
            repair = f"'{request.name}' needs '{port.name}'"
            raise Found(
                constants.NONE_GIVEN.at(
                    request.place.span, name=port.name or "in", operation=request.name, repair=repair
                )
            )
        if isinstance(value, Members):
            found = "a module"
            raise Found(
                constants.KIND.at(
                    request.place.span, what=f"'{port.name}'", found=found, wanted="a tensor", repair=""
                )
            )


def _require_attributes(request: PrimitiveCall) -> None:
    """Whether every attribute without a default is given, by the call or by its form."""
    for param in request.primitive.params:
        elsewhere = param.name in request.runtime or param.name in request.types
        is_given = request.attributes.get(param.name) is not None or elsewhere
        if param.default is None and not is_given and (param.type is None or not param.type.optional):
            module, name = request.name, param.name
            repair = f"write {module}({name}=…)"
            raise Found(constants.MISSING.at(request.place.span, module=module, name=name, repair=repair))


def is_unknown(request: PrimitiveCall) -> bool:
    """Whether an operand comes from a statement that was wrong."""
    return any(isinstance(item, Unknown) for item in request.inputs)


def make(request: PrimitiveCall, lowering: GraphLowering) -> tuple[Tensor | None, ...]:
    """Call the operator of a primitive and give its results, those of a pack one by one."""
    _require_inputs(request)
    _require_attributes(request)
    if request.runtime:
        what = f"'{next(iter(request.runtime))}' of '{request.name}'"
        why = "it depends on a dimension that is known only at run time"
        raise Found(constants.NOT_CONSTANT.at(request.place.span, what=what, why=why))
    operator = request.primitive.operator()
    if operator is None or lowering.settings.library.find(operator) is None:
        repair = "" if operator is None else f"there is no operator '{operator}'"
        raise Found(graphs.NO_IMPLEMENTATION.at(request.place.span, name=request.name, repair=repair))
    place = request.place
    place.types = request.types or None
    place.primitive = request.primitive
    inputs = _scaled([item for item in request.inputs if not isinstance(item, Members | Unknown)])
    results = tuple(
        _flat(
            lowering.call(
                operator,
                inputs,
                _attributes(request, lowering, operator),
                _results(request, lowering, operator),
                place,
            )
        )
    )
    # The last result is the state that flows out; the next call of the graph starts with it.
    if request.kept is not None and results[-1] is not None:
        lowering.builder.update(request.kept, results[-1])
    return results


def _scaled(inputs: list[Operand]) -> list[Operand]:
    """Numbers beside floating tensors are floating themselves."""
    # A literal 2 would be an i64 operand, and operators do not mix types.
    real = any(isinstance(item, Tensor) and item.element.is_float for item in inputs)
    return [float(item) if real and isinstance(item, int) else item for item in inputs]


def _attributes(request: PrimitiveCall, lowering: GraphLowering, operator: str) -> dict[str, Attribute]:
    """The attributes of a call: what is given, else what the primitive declares; None leaves the operator's own."""
    definition = lowering.settings.library.find(operator)
    own = set() if definition is None else {item.name for item in definition.operator.parameters("attrib")}
    values: dict[str, Value] = {}
    for param in request.primitive.params:
        if param.default is not None and param.name in own and param.name not in request.attributes:
            around = EvaluationContext(words=param.type is not None and bool(param.type.choices))
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


def _results(request: PrimitiveCall, lowering: GraphLowering, operator: str) -> list[str]:
    """The names of the results: those of the targets, and where there is none the operator's own."""
    definition = lowering.settings.library.find(operator)
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


# --- forms: what a call says more, or less, than its operator needs -----------------------------------------


Form = Callable[[PrimitiveCall, GraphLowering], PrimitiveCall]


def adapt(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """The call as the operator of its primitive takes it."""
    form = FORMS.get(request.name)
    return request if form is None else form(request, lowering)


def _renamed(request: PrimitiveCall, name: str, inputs: list[Bound]) -> PrimitiveCall:
    """The same call of another primitive."""
    declared = request.frame.instance.scope.library.primitive(name)
    if declared is None or not isinstance(declared.declaration, Primitive):
        raise LookupError(name)
    primitive = declared.declaration
    missing = len(ports(primitive)) - len(inputs)
    return replace(request, primitive=primitive, inputs=[*inputs, *([None] * missing)])


def _config(request: PrimitiveCall, *names: str) -> Value:
    """A value of the enclosing declaration, under the first of these names that it has."""
    values = request.frame.instance.values
    return next((values[name].value for name in names if name in values), None)


def _heads(request: PrimitiveCall) -> None:
    """The number of heads where the call does not say it."""
    heads = _config(request, "num_heads", "num_attention_heads", "H")
    for name, value in (
        ("num_heads", heads),
        ("num_kv_heads", _config(request, "num_kv_heads", "Hkv") or heads),
    ):
        request.attributes.setdefault(name, value)
        if request.attributes[name] is None:
            repair = f"give {name} to '{request.name}', or declare a config parameter of that name"
            raise Found(
                constants.MISSING.at(request.place.span, module=request.name, name=name, repair=repair)
            )


# --- matrices ---------------------------------------------------------------------------------------------------


def _matmul(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """The transpose that is meant, by the form of the statement: a projection, a gradient of a weight, or neither."""
    left, right = request.inputs[:2]
    given = request.attributes.get("transpose")
    meant = str(given or "NN")
    if _is_weight_gradient(request, lowering):
        return _weight_gradient(request, lowering)
    if lowering.is_parameter(right) and isinstance(left, Tensor) and isinstance(right, Tensor):
        back = given is None and lowering.is_gradient(left)
        meant = "NN" if back else projection(left, right, given, request.frame)
    if given is not None and meant != given:
        lowering.report(_old(request, given, meant, "x · Wᵀ"))
    request.attributes["transpose"] = meant
    return request


def _is_weight_gradient(request: PrimitiveCall, lowering: GraphLowering) -> bool:
    """Whether a statement gives the gradient of a matrix parameter."""
    target = request.targets[0] if request.targets else ""
    slot = request.frame.instance.tensors.get(target.removeprefix("d_")) if target.startswith("d_") else None
    plain = request.attributes.get("transpose") in ("NN", "TT")
    return slot is not None and len(slot.dims) == 2 and not plain


def _weight_gradient(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """DW = gᵀ · x, whichever of the two operands is written first."""
    left, right = request.inputs[:2]
    swapped = (
        isinstance(right, Tensor)
        and isinstance(left, Tensor)
        and lowering.is_gradient(right)
        and not lowering.is_gradient(left)
    )
    given = request.attributes.get("transpose")
    if given is not None and (swapped or given != "TN"):
        lowering.report(_old(request, given, "TN, with the gradient as the first operand", "gᵀ · x"))
    request.inputs[:2] = [right, left] if swapped else [left, right]
    request.attributes["transpose"] = "TN"
    return request


def _grouped(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """Weights of groups are `[group, out, in]`: both spellings of the transpose mean x · Wᵀ."""
    if request.attributes.get("transpose", "TN") == "TN":
        request.attributes["transpose"] = "NT"
    return request


def _old(request: PrimitiveCall, given: object, meant: str, meaning: str) -> Diagnostic:
    return syntax.OLD_TRANSPOSE.at(request.place.span, given=given, meaning=meaning, repair=meant)


# --- attention --------------------------------------------------------------------------------------------------


def _gated(packed: str) -> Form:
    """A gated activation of one input takes the two halves of its last dimension."""

    def form(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
        if request.inputs[1] is None:
            return _renamed(request, packed, request.inputs[:1])
        return request

    return form


def _rope(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """The table of angles, where none flows in, is that of the enclosing declaration."""
    given = request.attributes
    width, longest, turned = (given.pop(name, None) for name in ("d_head", "max_seq", "rotary_dim"))
    width = width if turned is None else turned
    first, second, table, _ = request.inputs
    if isinstance(first, Tensor) and isinstance(second, Tensor) and len(second.shape) < len(first.shape):
        # One packed operand, its table and its positions, as other dialects write it.
        request.inputs = [first, None, second, table]
    if isinstance(first, Tensor) and request.inputs[1] is None:
        request.attributes |= {} if width is None else {"rotary_dim": width}
        return _packed_rope(request, lowering)
    if turned is not None and isinstance(table, Tensor):
        _require_table(table, turned, request)
    if request.inputs[2] is None:
        head = request.inputs[0]
        width = head.shape[-1] if width is None and isinstance(head, Tensor) else width
        request.inputs[2] = _table(request, lowering, width, longest)
    _place(request, lowering, 0, 2, 3)
    return request


def _require_table(table: Tensor, turned: Value, request: PrimitiveCall) -> None:
    """A table of angles is as wide as what is turned."""
    if isinstance(turned, int) and table.shape[-2] != turned // 2:
        what, wanted = "'rotary_dim' of 'rope'", f"twice the {table.shape[-2]} angles of the table"
        raise Found(constants.KIND.at(request.place.span, what=what, found=turned, wanted=wanted, repair=""))


def _place(request: PrimitiveCall, lowering: GraphLowering, operand: int, axis: int, target: int) -> None:
    """In a graph with caches, positions that are not given count on from the tokens that were seen."""
    tensor = request.inputs[operand]
    if lowering.caches is not None and request.inputs[target] is None and isinstance(tensor, Tensor):
        request.inputs[target] = lowering.caches.positions(tensor.shape[axis])


def _packed_rope(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    made = _renamed(request, "rope_packed", [request.inputs[0], request.inputs[2], request.inputs[3]])
    _heads(made)
    return made


def _table(request: PrimitiveCall, lowering: GraphLowering, width: object, longest: Value) -> Tensor:
    longest = longest or _config(request, "max_seq", "max_position_embeddings")
    if not isinstance(longest, int) or not isinstance(width, int):
        repair = "let a table of angles flow in as the third operand, or declare a config parameter max_seq"
        raise Found(constants.MISSING.at(request.place.span, module="rope", name="freqs", repair=repair))
    theta = _config(request, "rope_theta", "theta") or 10000.0
    built = BuiltConstant("precompute_rope_freqs", (longest, width, theta), {}, request.place.span)
    return lowering.constant(request.frame, "freqs", built)


def _attention(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """Attention of one packed operand has its heads from the enclosing declaration."""
    if request.inputs[1] is None:
        request = _renamed(request, "flash_attention_packed", request.inputs[:1])
        _heads(request)
    else:
        _full_attention(request, lowering)
    return request


def _full_attention(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """Causal attention of a graph with caches sees the keys of earlier calls."""
    if lowering.caches is not None and request.attributes.get("causal", True):
        _remember(request, lowering.caches)
    return request


def _biased_attention(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """Attention that adds nothing to its scores and has no mask is the plain one, which kernels know best."""
    *operands, bias, mask, sinks, position = request.inputs
    said = request.attributes
    narrow = said.get("window_size") is not None and not said.get("causal", True)
    if (bias, mask, sinks, said.get("softcap")) == (None,) * 4 and not narrow:
        request.attributes = {name: value for name, value in said.items() if name != "softcap"}
        request = _renamed(request, "flash_attention", [*operands, None, position])
    return _full_attention(request, lowering)


def _relative_bias(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """In a graph with caches, the bias of causal attention is for all keys that there is room for."""
    if lowering.caches is not None and request.attributes.get("bidirectional") is False:
        request.attributes["keys"] = lowering.caches.length
        request.inputs[1] = lowering.caches.seen
    return request


def _hold(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """What is computed once while tokens are generated, by the path of the statement that names it."""
    tensor, target = request.inputs[0], request.targets[0] if request.targets else request.name
    if isinstance(tensor, Tensor):
        request.inputs[0] = lowering.hold(request.frame.place(target), tensor)
    return request


def _remember(request: PrimitiveCall, caches: DecodeCaches) -> None:
    """Keys and values of all positions so far in the place of those of this call; what is both is kept once."""
    keys, values = request.inputs[1:3]
    if isinstance(keys, Tensor) and isinstance(values, Tensor):
        found = caches.remember(request.frame.place("keys"), keys, request.place.origin)
        if keys is values:
            request.inputs[1:3] = found, found
        else:
            kept = caches.remember(request.frame.place("values"), values, request.place.origin)
            request.inputs[1:3] = found, kept
    request.inputs[-1] = caches.seen


def _embedding(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    _place(request, lowering, 0, -1, 3)
    return request


def _split_heads(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    _heads(request)
    return request


# --- states -----------------------------------------------------------------------------------------------------


def _stateful(name: str, shape: Callable[..., tuple[Extent, ...]], updates: bool = True) -> Form:
    """In a graph with caches, a variable is the state that flows in, where none does; it takes the one that flows out.

    `shape` tells it by the shapes of the operands before it. A call that does not update it reads the state of the
    call that does.
    """

    def form(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
        operands = request.inputs[:-1]
        first = operands[0]
        if lowering.caches is None or request.inputs[-1] is not None or not isinstance(first, Tensor):
            return request
        shapes = [item.shape if isinstance(item, Tensor) else () for item in operands]
        kept = lowering.caches.keep(request.frame.place(name), first.element, shape(*shapes))
        request.inputs[-1] = kept
        request.kept = kept if updates else None
        return request

    return form


Shape = Sequence[Extent]


def _window(x: Shape, weight: Shape, *_: Shape) -> tuple[Extent, ...]:
    return (*x[:2], dim.sub(weight[-1], 1))


def _channels(u: Shape, _: Shape, rates: Shape, *__: Shape) -> tuple[Extent, ...]:
    return (*u[:2], rates[-1])


def _matrices(values: Shape, keys: Shape) -> tuple[Extent, ...]:
    return (values[0], values[1], keys[-1], values[-1])


def _router(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """A router of one operand takes scores."""
    if request.inputs[1] is None:
        return _renamed(request, "moe_router_logits", [request.inputs[0], request.inputs[2]])
    return request


# --- shapes and creation ----------------------------------------------------------------------------------------


def _scale(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """A factor that is known only at run time is an operand."""
    factor = request.runtime.pop("factor", None)
    if factor is None:
        return request
    made = _renamed(request, "mul", [request.inputs[0], factor])
    made.attributes = {}
    return made


def _view(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """A new shape has as many elements as the old, whatever the open dimensions are."""
    tensor, shape = request.inputs[0], request.attributes.get("shape")
    if not isinstance(tensor, Tensor) or not isinstance(shape, tuple):
        return request
    extents = [item for item in shape if isinstance(item, int | Dim)]
    if -1 in extents or len(extents) != len(shape):
        return request
    count, other = _product(tensor.shape), _product(extents)
    if not dim.is_same(count, other) and set(dim.symbols(count)) == set(dim.symbols(other)):
        found, wanted = shape_text(tensor.shape), shape_text(extents)
        finding = graphs.VIEW.at(
            request.place.span,
            name=tensor.name,
            found=found,
            count=count,
            wanted=wanted,
            other=other,
            values="",
        )
        raise Found(finding)
    return request


def _product(extents: Sequence[Extent]) -> Extent:
    found: Extent = 1
    for item in extents:
        found = dim.mul(found, item)
    return found


def _created(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """A new tensor has the element type of the model unless it says its own."""
    name = request.attributes.pop("dtype", None)
    element = find_in("module", name) if isinstance(name, str) else None
    request.types["dtype"] = element or lowering.settings.element
    return request


def _converted(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    name = request.attributes.pop("dtype", None)
    element = find_in("module", name) if isinstance(name, str) else None
    if element is not None:
        request.types["dtype"] = element
    return request


def _experts(request: PrimitiveCall, lowering: GraphLowering) -> PrimitiveCall:
    """Experts that are instances become stacked weights, one for each of their parameters."""
    found: list[Bound] = []
    for value in request.inputs:
        found += _stacked(value, request, lowering) if isinstance(value, Members) else [value]
    request.inputs = found[: len(request.inputs)]
    return request


def _stacked(members: Members, request: PrimitiveCall, lowering: GraphLowering) -> list[Bound]:
    place = CallSite("stack", request.place.span, request.place.origin)
    slots = list(members.items[0][1].tensors) if members.items else []
    frame = request.frame
    made: list[Bound] = []
    for slot in slots:
        tensors = []
        for path, instance in members.items:
            inner = type(frame)(instance, path, frame.origin)
            value = lowering.parameter(inner, instance.tensors[slot])
            tensors += [value] if isinstance(value, Tensor) else []
        results = lowering.call(
            "layout.stack", (tuple(tensors),), {"axis": 0, "squeeze": False}, (frame.place(slot),), place
        )
        made += [item for item in results if isinstance(item, Tensor)]
    return made


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "matmul": _matmul,
        "grouped_gemm": _grouped,
        "swiglu": _gated("split_swiglu"),
        "silu_mul": _gated("split_swiglu"),
        "rope": _rope,
        "flash_attention": _attention,
        "attention": _biased_attention,
        "relative_position_bias": _relative_bias,
        "hold": _hold,
        "embedding_with_position": _embedding,
        "split_and_reshape": _split_heads,
        "split_reshape": _split_heads,
        "rope_packed": _split_heads,
        "flash_attention_packed": _split_heads,
        "qkv_qk_norm_rope": _split_heads,
        "scale": _scale,
        "view": _view,
        "reshape": _view,
        "zeros": _created,
        "ones": _created,
        "fill": _created,
        "fill_constant": _created,
        "fill_normal": _created,
        "convert_dtype": _converted,
        "quantize": _converted,
        "dequantize": _converted,
        "moe_experts": _experts,
        "moe_router": _router,
        "mamba_conv1d": _stateful("conv_state", _window),
        "mamba_causal_conv1d": _stateful("conv_state", _window),
        "mamba_selective_scan": _stateful("ssm_state", _channels),
        "token_shift": _stateful("last_token", lambda x: (x[0], x[-1])),
        "wkv": _stateful("wkv_state", lambda key, *_: (key[0], 3, key[-1])),
        "delta_write": _stateful("delta_state", lambda v, k, *_: _matrices(v, k), updates=False),
        "delta_read": _stateful("delta_state", lambda _, k, written, __: _matrices(written, k)),
    }
)
"""What is done before a primitive is called, by its name."""
