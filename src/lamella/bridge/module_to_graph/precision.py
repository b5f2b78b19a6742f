"""Element types inside operations: promotion, `@precision`, `@scaling`, recipes; narrow numbers over a scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

from lamella.base.dtype import F8E4M3, F8E5M2, F32, ElementType
from lamella.base.errors import Found, InputError
from lamella.bridge.module_to_graph.calls import PrimitiveCall, adapt, make
from lamella.bridge.module_to_graph.lowering import NARROW, CallSite, GraphLowering, element_named
from lamella.bridge.module_to_graph.nodes import Bound, InstanceFrame, Precision, Scaling, graph_name
from lamella.graph.build import Given
from lamella.graph.nodes import Tensor
from lamella.graph.nodes import Value as Attribute
from lamella.lang.module.annotations import POLICIES, read_annotation
from lamella.lang.module.instantiate.evaluate import EvaluationContext, evaluate
from lamella.lang.module.instantiate.nodes import Value
from lamella.lang.module.nodes import Annotation, Primitive, Recipe
from lamella.lang.module.resolve.nodes import Scope
from lamella.lang.module.rules.annotated import SILENT, VALUE

# --- fake quantization: numbers over a scale in a narrow type and back --------------------------------------


PER_TOKEN, PER_CHANNEL, PER_BLOCK, DELAYED = "per_token", "per_channel", "per_block", "delayed"
MOST_HISTORY = 1 << 16
"""Calls that a scale looks back at most."""
SMALLEST = 1e-12
"""The largest number of a tensor is taken to be at least this, so that zeros have a scale too."""


def _quantized(
    tensor: Tensor,
    element: ElementType,
    scaling: Scaling,
    request: PrimitiveCall,
    is_weight: bool,
    lowering: GraphLowering,
) -> Tensor:
    """The numbers of a tensor as the narrow type holds them, in the type that the tensor has."""
    shape, wide = tensor.shape, tensor
    axes = tuple(_axes(scaling, len(shape), is_weight))
    if scaling.strategy == PER_BLOCK and len(shape) > 1:
        blocked = _blocked(tensor, scaling.block, request)
        wide = _call("view", (tensor,), {"shape": blocked}, request, lowering)
        axes = (len(blocked) - 3, len(blocked) - 1)
    scale = _scale(wide, axes, element, scaling, request, lowering) if shape else None
    narrow = wide if scale is None else _call("div", (wide, scale), {}, request, lowering)
    there = _call("quantize", (narrow,), {}, request, lowering, element)
    back = _call("dequantize", (there,), {}, request, lowering, tensor.element)
    found = back if scale is None else _call("mul", (back, scale), {}, request, lowering)
    return found if wide is tensor else _call("view", (found,), {"shape": shape}, request, lowering)


def _axes(scaling: Scaling, rank: int, is_weight: bool) -> range:
    """The dimensions that share one scale."""
    if scaling.strategy == PER_TOKEN:
        return range(rank - 1, rank)
    if scaling.strategy == PER_CHANNEL and is_weight:
        return range(1, rank)
    return range(rank)


def _scale(
    tensor: Tensor,
    axes: Sequence[int],
    element: ElementType,
    scaling: Scaling,
    request: PrimitiveCall,
    lowering: GraphLowering,
) -> Tensor:
    """The largest number of each group over the largest of the narrow type; no gradient goes through it."""
    is_delayed = scaling.strategy == DELAYED and lowering.settings.has_history
    shape: dict[str, Attribute] = {"axes": tuple(axes), "squeeze": is_delayed}
    largest = _unseen(
        "math.max_reduce", (_unseen("math.abs", (tensor,), request, lowering),), request, lowering, shape
    )
    if is_delayed:
        largest = _remembered(largest, scaling, request, lowering)
    # An all-zero group would divide by zero.
    held = _unseen("math.max", (largest, SMALLEST), request, lowering)
    limit = element.largest if element.is_float else float(element.maximum)
    return _unseen("math.mul", (held, (1.0 + scaling.margin) / limit), request, lowering)


def _unseen(
    operator: str,
    inputs: Sequence[Given],
    request: PrimitiveCall,
    lowering: GraphLowering,
    attributes: Mapping[str, Attribute] | None = None,
) -> Tensor:
    """What an operator gives that no primitive stands for: gradients end there."""
    place = CallSite(operator, request.place.span, request.place.origin)
    found = lowering.call(operator, inputs, attributes or {}, (), place)[0]
    if not isinstance(found, Tensor):
        raise LookupError(operator)
    return found


def _remembered(amax: Tensor, scaling: Scaling, request: PrimitiveCall, lowering: GraphLowering) -> Tensor:
    """The largest number that earlier calls saw, for which that of this call is remembered in its turn."""
    if scaling.history > MOST_HISTORY:
        finding = VALUE.at(
            request.place.span,
            name="scaling",
            argument="history_len",
            found=str(scaling.history),
            wanted=f"a number up to {MOST_HISTORY}",
            repair="",
        )
        raise Found(finding)
    origin = request.place.origin
    stem = graph_name(origin.what) if origin is not None else request.place.name
    held = lowering.state(f"{stem}.amax", amax.element, ())
    history = lowering.state(f"{stem}.amax_history", amax.element, (scaling.history,))
    count = lowering.state(f"{stem}.amax_count", amax.element, ())
    builder = lowering.builder
    pushed = builder.call("optim.push_amax", history, amax)
    found = builder.call_all("optim.delayed_amax", held, pushed, count, interval=scaling.interval)
    for variable, value in zip((history, held, count), (pushed, *found), strict=True):
        if isinstance(value, Tensor):
            builder.update(variable, value)
    return _unseen("optim.known_amax", (held, amax), request, lowering)


def _blocked(tensor: Tensor, block: tuple[int, int], request: PrimitiveCall) -> tuple[Value, ...]:
    """The shape of a tensor with its last two dimensions cut into blocks; open ones are cut into single rows."""
    *others, rows, columns = tensor.shape
    sizes: list[Value] = []
    for extent, size in ((rows, block[0]), (columns, block[1])):
        if isinstance(extent, int) and extent % size:
            found = f"({block[0]}, {block[1]}) for a tensor with the dimensions {rows} and {columns}"
            finding = VALUE.at(
                request.place.span,
                name="scaling",
                argument="block_size",
                found=found,
                wanted="one that divides them",
                repair="",
            )
            raise Found(finding)
        sizes += [extent // size, size] if isinstance(extent, int) else [extent, 1]
    return (*others, *sizes)


def _call(
    name: str,
    inputs: tuple[Tensor, ...],
    attributes: dict[str, Value],
    request: PrimitiveCall,
    lowering: GraphLowering,
    element: ElementType | None = None,
) -> Tensor:
    """A primitive called on the way to another, where that one stands."""
    declared = request.frame.instance.scope.library.primitive(name)
    if declared is None or not isinstance(declared.declaration, Primitive):
        raise LookupError(name)
    place = CallSite(name, request.place.span, request.place.origin, request.frame)
    made = replace(
        request,
        primitive=declared.declaration,
        inputs=list(inputs),
        attributes=dict(attributes),
        targets=(),
        place=place,
        types={} if element is None else {"dtype": element},
        runtime={},
        kept=None,
    )
    found = make(made, lowering)[0]
    if found is None:
        raise LookupError(name)
    return found


PRECISION, SCALING, RECIPE = "precision", "scaling", "recipe"
CONVERSIONS = frozenset(("convert_dtype", "quantize", "dequantize"))
PRODUCTS = frozenset(
    (
        "matmul",
        "batched_matmul",
        "grouped_gemm",
        "moe_grouped_gemm",
        "moe_grouped_gemm_gate_up",
        "moe_grouped_gemm_down",
    )
)
SUMS = PRODUCTS | {
    "reduce_sum",
    "reduce_mean",
    "reduce_max",
    "rmsnorm",
    "layernorm",
    "fused_residual_rmsnorm",
    "group_rmsnorm",
    "qk_norm",
    "softmax",
    "flash_attention",
    "flash_attention_packed",
    "cross_entropy",
}
"""Operations inside a called module that its `@precision` reaches: those that accumulate."""


BACKWARDS = PRODUCTS | {"weight_grad", "linear_backward"} | {f"{name}_backward" for name in PRODUCTS}
"""Operations of backward graphs that multiply with gradients."""


# --- what annotations and recipes say ---------------------------------------------------------------------------


@contextmanager
def precisely(
    annotations: Sequence[Annotation], frame: InstanceFrame, lowering: GraphLowering
) -> Iterator[None]:
    """Build an operation with the precision that its annotations ask for."""
    before = lowering.precision
    if any(item.name in (PRECISION, SCALING) for item in annotations):
        lowering.precision = _read(annotations, frame, before)
    try:
        yield
    finally:
        lowering.precision = before


@contextmanager
def by_recipe(frame: InstanceFrame, lowering: GraphLowering) -> Iterator[None]:
    """Build an instance with the recipe that its declaration names."""
    before = lowering.precision
    for annotation in frame.instance.module.annotations:
        if annotation.name == RECIPE:
            name = read_annotation(annotation, frame.known).arguments.get("name")
            declared = frame.instance.scope.find(name) if isinstance(name, str) else None
            if declared is not None and isinstance(declared.declaration, Recipe):
                lowering.precision = _from_recipe(declared.declaration)
    try:
        yield
    finally:
        lowering.precision = before


@contextmanager
def going_back(precision: Precision | None, frame: InstanceFrame, lowering: GraphLowering) -> Iterator[None]:
    """Build the backward graph that an instance has itself, with the recipe that its forward graph was built with."""
    before = lowering.precision
    lowering.precision = precision
    try:
        with by_recipe(frame, lowering):
            found = lowering.precision
            # Without types of its own for gradients a precision speaks of the way forward.
            if found is not None:
                lowering.precision = replace(found, reach=BACKWARDS) if found.backward is not None else None
            yield
    finally:
        lowering.precision = before


def _read(annotations: Sequence[Annotation], frame: InstanceFrame, before: Precision | None) -> Precision:
    found = replace(before or Precision(), frame=frame, reach=SUMS)
    for item in annotations:
        if item.name == PRECISION:
            arguments = read_annotation(item, frame.known).arguments
            policy = POLICIES.get(str(arguments.get("policy")))
            names = policy or tuple(arguments.get(name) for name in ("compute", "accumulate", "output"))
            compute, accumulate, output = (element_named(name) for name in names)
            found = replace(found, compute=compute, accumulate=accumulate, output=output)
        elif item.name == SCALING:
            arguments = read_annotation(item, frame.known).arguments
            found = replace(found, scaling=_scaling(arguments, "strategy"))
    if found.scaling is not None and found.compute is None:
        # A scale is for numbers of 8 bits or less; where none is named they are the usual ones.
        found = replace(found, compute=F8E4M3)
    return found


GRADIENTS: Mapping[str, ElementType] = MappingProxyType(
    {"fp8_hybrid": F8E5M2, "fp8_pure": F8E5M2, "fp4": F8E5M2}
)
"""The types of gradients of policies that compute in other ones on the way back: with a larger range."""


def recipe_named(name: str, scope: Scope) -> Precision:
    """The types of a recipe that a file declares, or of a policy; InputError where there is neither."""
    declared = scope.find(name)
    if declared is not None and isinstance(declared.declaration, Recipe):
        return _from_recipe(declared.declaration)
    if name not in POLICIES:
        known = [item for item, other in scope.local.items() if isinstance(other.declaration, Recipe)]
        hint = f"there are: {', '.join((*known, *POLICIES))}"
        raise InputError(f"there is no recipe '{name[:80]}'", hint=hint)
    compute, accumulate, output = (element_named(word) for word in POLICIES[name])
    back = GRADIENTS.get(name, compute)
    return Precision(None, compute, accumulate, output, None, None, PRODUCTS, back)


def _from_recipe(recipe: Recipe) -> Precision:
    values: dict[str, Value] = {}
    for item in recipe.fields:
        if not isinstance(item.value, str | tuple):
            try:
                values[item.name] = evaluate(item.value, {}, EvaluationContext(words=True))
            except Found:
                continue  # the check of the recipe reports it
    return Precision(
        None,
        element_named(values.get("forward_activation_dtype")),
        element_named(values.get("accumulation_dtype")) or F32,
        element_named(values.get("output_dtype")),
        element_named(values.get("weight_storage_dtype")),
        _scaling({**values, "history_len": values.get("amax_history_len")}, "scaling_strategy"),
        PRODUCTS,
        element_named(values.get("backward_gradient_dtype")),
    )


def _scaling(values: Mapping[str, object], strategy: str) -> Scaling:
    found, size = values.get(strategy), values.get("block_size")
    margin, history, interval = (values.get(name) for name in ("margin", "history_len", "update_interval"))
    usual = Scaling()
    block = (int(size[0]), int(size[1])) if isinstance(size, tuple) and len(size) == 2 else usual.block
    return Scaling(
        found if isinstance(found, str) else usual.strategy,
        float(margin) if isinstance(margin, int | float) else usual.margin,
        block,
        history if isinstance(history, int) else usual.history,
        interval if isinstance(interval, int) else usual.interval,
    )


# --- operations -------------------------------------------------------------------------------------------------


def perform(request: PrimitiveCall, lowering: GraphLowering) -> Sequence[Tensor | None]:
    """Call a primitive with its operands in the types that it computes in, and give its results in theirs."""
    request = adapt(request, lowering)
    precision = _active(request, lowering) if request.kept is None else None
    if request.name in CONVERSIONS:
        return _convert(request, precision, lowering)
    request.inputs = [_stored(item, request, lowering) for item in request.inputs]
    widest = _widest(request)
    if precision is None or widest is None:
        if widest is not None:
            request.inputs = [_cast(item, widest, request, lowering) for item in request.inputs]
        return make(request, lowering)
    request.inputs = [_lowered(item, precision, request, lowering) for item in request.inputs]
    output = precision.output or widest
    made = list(make(request, lowering))
    if not lowering.goes_back or precision.backward is None:
        made = [_rounding_back(item, precision, request, lowering) for item in made]
    elif any(map(lowering.is_gradient, _tensors_of(request.inputs))):
        return made  # what it is added to has a type already
    # What the way back computes again is as it was.
    return [
        _cast_tensor(item, output, request, lowering) if item is not None and item.element.is_float else item
        for item in made
    ]


def _convert(
    request: PrimitiveCall, precision: Precision | None, lowering: GraphLowering
) -> Sequence[Tensor | None]:
    """A conversion as it is written; `quantize` with `@scaling` gives numbers as codes and their scales hold them."""
    value = request.inputs[0] if request.inputs else None
    scaling = None if precision is None or precision.frame is not request.frame else precision.scaling
    if request.name != "quantize" or scaling is None or precision is None or not isinstance(value, Tensor):
        return make(request, lowering)
    element = request.types.get("dtype") or precision.compute or F8E4M3
    return [_quantized(value, element, scaling, request, lowering.is_parameter(value), lowering)]


def _stored(value: Bound, request: PrimitiveCall, lowering: GraphLowering) -> Bound:
    """A parameter that is stored over scales, as its codes and scales hold it."""
    if isinstance(value, tuple):
        return tuple(_restored(item, request, lowering) for item in value)
    return _restored(value, request, lowering) if isinstance(value, Tensor) else value


def _restored(tensor: Tensor, request: PrimitiveCall, lowering: GraphLowering) -> Tensor:
    if tensor.name not in lowering.scaled:
        return tensor
    element, annotation, frame = lowering.scaled[tensor.name]
    scaling = _scaling(read_annotation(annotation, frame.known).arguments, "strategy")
    return _quantized(tensor, element, scaling, request, True, lowering)


def _rounding_back(
    tensor: Tensor | None, precision: Precision, request: PrimitiveCall, lowering: GraphLowering
) -> Tensor | None:
    """The result of a product whose gradient is rounded before factors are multiplied with it."""
    element = precision.backward
    if tensor is None or element is None or request.name not in PRODUCTS or not tensor.element.is_float:
        return tensor

    def change(gradient: Tensor) -> Tensor:
        if element.bits <= NARROW:
            scaling = precision.scaling or Scaling()
            return _quantized(gradient, element, scaling, request, False, lowering)
        return _cast_tensor(
            _cast_tensor(gradient, element, request, lowering), gradient.element, request, lowering
        )

    return lowering.change_adjoint(tensor, change, request.place)


def _active(request: PrimitiveCall, lowering: GraphLowering) -> Precision | None:
    precision = lowering.precision
    if precision is None:
        return None
    reached = precision.frame is request.frame or request.name in precision.reach
    return precision if reached else None


def _tensors_of(values: Sequence[Bound]) -> Iterator[Tensor]:
    """The tensors among operands, those of sequences too."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from value


def _widest(request: PrimitiveCall) -> ElementType | None:
    """The type that all floating operands become; None where there is none."""
    found: ElementType | None = None
    for tensor in _tensors_of(request.inputs):
        if tensor.element.is_float:
            found = tensor.element if found is None else _wider(found, tensor.element)
    return found


def _wider(first: ElementType, second: ElementType) -> ElementType:
    """The type that holds the numbers of both."""
    if first is second:
        return first
    if first.bits == second.bits:
        return F32  # two kinds of 16 bits, or of 8: neither holds the other
    return first if first.bits > second.bits else second


def _cast(value: Bound, element: ElementType, request: PrimitiveCall, lowering: GraphLowering) -> Bound:
    if isinstance(value, Tensor):
        return _cast_tensor(value, element, request, lowering) if value.element.is_float else value
    if isinstance(value, tuple):
        return tuple(
            _cast_tensor(item, element, request, lowering) if item.element.is_float else item
            for item in value
        )
    return value


def _cast_tensor(
    tensor: Tensor, element: ElementType, request: PrimitiveCall, lowering: GraphLowering
) -> Tensor:
    return lowering.cast(tensor, element, request.place.origin)


def _lowered(value: Bound, precision: Precision, request: PrimitiveCall, lowering: GraphLowering) -> Bound:
    """An operand in the type of computing, held in the type of accumulating."""
    if isinstance(value, tuple):
        return tuple(_lowered_tensor(item, precision, request, lowering) for item in value)
    return _lowered_tensor(value, precision, request, lowering) if isinstance(value, Tensor) else value


def _lowered_tensor(
    tensor: Tensor, precision: Precision, request: PrimitiveCall, lowering: GraphLowering
) -> Tensor:
    if not tensor.element.is_float:
        return tensor
    accumulate = precision.accumulate or F32
    is_back = lowering.goes_back and precision.backward is not None and lowering.is_gradient(tensor)
    compute = precision.backward if is_back else precision.compute
    if accumulate.bits < (compute or tensor.element).bits:
        said = f"operands of {(compute or tensor.element).name}, which are added up as wide as they are"
        lowering.report(SILENT.at(request.place.span, what=f"'accumulate={accumulate.name}'", said=said))
    if compute is None:
        return _cast_tensor(tensor, _wider(tensor.element, accumulate), request, lowering)
    if compute.bits > NARROW:
        # Rounded to the type of computing, then held in the wide one: operands are those that such a unit
        # sees, and sums are not rounded at every step.
        rounded = _cast_tensor(tensor, compute, request, lowering)
        return _cast_tensor(rounded, _wider(compute, accumulate), request, lowering)
    held = _cast_tensor(tensor, accumulate, request, lowering)
    scaling = precision.scaling or Scaling()
    return _quantized(held, compute, scaling, request, lowering.is_parameter(tensor), lowering)
