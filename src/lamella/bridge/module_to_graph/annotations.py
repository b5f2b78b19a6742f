"""Annotations on tensors, and element types inside operations: promotion, `@precision`, recipes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from lamella.base.dtype import F32, ElementType
from lamella.base.errors import Found
from lamella.bridge.module_to_graph.calls import PrimitiveCall, adapt, make
from lamella.bridge.module_to_graph.lowering import CallSite, GraphLowering, dtype_word, element_named
from lamella.bridge.module_to_graph.nodes import Bound, BuiltStep, InstanceFrame, Mark, Precision, Scaling
from lamella.graph.nodes import Tensor
from lamella.lang.module.annotations import POLICIES, read_annotation
from lamella.lang.module.instantiate.evaluate import Surroundings, evaluate
from lamella.lang.module.instantiate.nodes import Value
from lamella.lang.module.nodes import Annotation, Port, Primitive, Recipe, TensorType
from lamella.lang.module.rules import graphs
from lamella.lang.module.rules.annotated import VALUE

# --- what annotations do to a tensor of the graph, and what they leave for later ----------------------------


SMALL = 8
"""Bits of the types that numbers do not become by themselves."""


def annotate(
    value: Bound,
    annotations: Sequence[Annotation],
    name: str,
    frame: InstanceFrame,
    lowering: GraphLowering,
    steps: tuple[BuiltStep, ...] = (),
) -> Bound:
    """The value with its annotations, each kept beside the graph; the last `@dtype` says its type.

    `@noalias` gives it a storage of its own, `@gradient` controls what comes back.
    """
    if not isinstance(value, Tensor):
        return value
    read = [(item, read_annotation(item, frame.known)) for item in annotations]
    for item, reading in read:
        for finding in reading.findings:
            lowering.report(finding, frame.origin)
        if item.name == "dtype":
            value = _convert(value, element_named(reading.arguments.get("type")), item, name, frame, lowering)
        elif item.name == "noalias" and _is_shared(value, frame, lowering):
            value = _copy(value, item, name, frame, lowering)
        elif item.name == "gradient":
            value = lowering.control_gradient(value, item, frame)
    path = frame.place(name)
    lowering.marks += [Mark(path, value, item, reading.arguments, steps) for item, reading in read]
    return value


def _convert(
    value: Tensor,
    element: ElementType | None,
    item: Annotation,
    name: str,
    frame: InstanceFrame,
    lowering: GraphLowering,
) -> Tensor:
    return value if element is None else lowering.cast(value, element, frame.at(name, item.span))


def _is_shared(value: Tensor, frame: InstanceFrame, lowering: GraphLowering) -> bool:
    """Whether a tensor has another name already."""
    return lowering.is_parameter(value) or any(item is value for item in frame.bound.values())


def _copy(
    value: Tensor, item: Annotation, name: str, frame: InstanceFrame, lowering: GraphLowering
) -> Tensor:
    place = CallSite("copy", item.span, frame.at(name, item.span), frame)
    found = lowering.call("math.iden", (value,), {}, (frame.place(name),), place)[0]
    return found if isinstance(found, Tensor) else value


# --- inputs and outputs -----------------------------------------------------------------------------------------


def annotate_port(
    value: Bound, port: Port, name: str, frame: InstanceFrame, lowering: GraphLowering
) -> Bound:
    """The value of an input or output in the type that is declared for it, with the annotations of the port."""
    if not isinstance(value, Tensor):
        return value
    others = [item for item in port.annotations if item.name != "gradient"]
    # An explicit @dtype is wanted as it is, and warns of nothing.
    explicit = any(item.name == "dtype" for item in others)
    wanted = element_named(port.type.dtype) if isinstance(port.type, TensorType) else None
    if wanted is not None and not explicit:
        value = _become(value, wanted, port, name, frame, lowering)
    return annotate(value, others, name, frame, lowering)


def _become(
    value: Tensor, wanted: ElementType, port: Port, name: str, frame: InstanceFrame, lowering: GraphLowering
) -> Tensor:
    """A value in a declared type: wider types by themselves, narrower ones with a warning, small ones never."""
    found = value.element
    if found is wanted or (found.is_integer and wanted.is_integer):
        return value
    if not (found.is_float and wanted.is_float) or (wanted.bits <= SMALL and found.bits > wanted.bits):
        repair = f"say so with @dtype({dtype_word(wanted)})"
        raise Found(
            graphs.CAST.at(port.span, found=dtype_word(found), wanted=dtype_word(wanted), repair=repair)
        )
    if wanted.bits < found.bits or (wanted.bits == found.bits and wanted is not found):
        finding = graphs.NARROWING.at(
            port.span, name=name, found=dtype_word(found), wanted=dtype_word(wanted)
        )
        lowering.report(finding, frame.origin)
    return lowering.cast(value, wanted, frame.at(name, port.span))


# --- fake quantization: numbers over a scale in a narrow type and back --------------------------------------


PER_TOKEN, PER_CHANNEL, PER_BLOCK = "per_token", "per_channel", "per_block"
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
    scale = _scale(wide, axes, element, scaling.margin, lowering) if shape else None
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
    tensor: Tensor, axes: Sequence[int], element: ElementType, margin: float, lowering: GraphLowering
) -> Tensor:
    """The largest number of each group over the largest of the narrow type; no gradient goes through it."""
    builder = lowering.builder
    largest = builder.call("math.max_reduce", builder.call("math.abs", tensor), axes=tuple(axes))
    # An all-zero group would divide by zero.
    held = builder.call("math.max", largest, builder.constant(SMALLEST, tensor.element))
    limit = element.largest if element.is_float else float(element.maximum)
    return builder.call("math.mul", held, builder.constant((1.0 + margin) / limit, tensor.element))


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
NARROW = 8
"""Types of at most this many bits hold numbers over a scale."""
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
    return found


def _from_recipe(recipe: Recipe) -> Precision:
    values: dict[str, Value] = {}
    for item in recipe.fields:
        if not isinstance(item.value, str | tuple):
            try:
                values[item.name] = evaluate(item.value, {}, Surroundings(words=True))
            except Found:
                continue  # the check of the recipe reports it
    return Precision(
        None,
        element_named(values.get("forward_activation_dtype")),
        element_named(values.get("accumulation_dtype")) or F32,
        element_named(values.get("output_dtype")),
        element_named(values.get("weight_storage_dtype")),
        _scaling(values, "scaling_strategy"),
        PRODUCTS,
    )


def _scaling(values: Mapping[str, object], strategy: str) -> Scaling:
    found, size = values.get(strategy), values.get("block_size")
    margin = values.get("margin", 0.0)
    block = (int(size[0]), int(size[1])) if isinstance(size, tuple) and len(size) == 2 else (32, 32)
    return Scaling(
        found if isinstance(found, str) else "per_tensor",
        float(margin) if isinstance(margin, int | float) else 0.0,
        block,
    )


# --- operations -------------------------------------------------------------------------------------------------


def perform(request: PrimitiveCall, lowering: GraphLowering) -> Sequence[Tensor | None]:
    """Call a primitive with its operands in the types that it computes in, and give its results in theirs."""
    request = adapt(request, lowering)
    if request.name in CONVERSIONS:
        return make(request, lowering)
    precision = _active(request, lowering) if request.kept is None else None
    widest = _widest(request)
    if precision is None or widest is None:
        if widest is not None:
            request.inputs = [_cast(item, widest, request, lowering) for item in request.inputs]
        return make(request, lowering)
    request.inputs = [_lowered(item, precision, request, lowering) for item in request.inputs]
    output = precision.output or widest
    made = make(request, lowering)
    return [
        _cast_tensor(item, output, request, lowering) if item is not None and item.element.is_float else item
        for item in made
    ]


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
    compute = precision.compute
    if compute is None:
        return _cast_tensor(tensor, _wider(tensor.element, accumulate), request, lowering)
    if compute.bits > NARROW:
        # Rounded to the type of computing, then held in the wide one: operands are those that such a unit
        # sees, and sums are not rounded at every step.
        rounded = _cast_tensor(tensor, compute, request, lowering)
        return _cast_tensor(rounded, _wider(compute, accumulate), request, lowering)
    held = _cast_tensor(tensor, accumulate, request, lowering)
    return _quantized(held, compute, precision.scaling, request, lowering.is_parameter(tensor), lowering)
