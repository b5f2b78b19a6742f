"""Element types inside operations: promotion, `@precision`, recipes; every conversion is a call of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from lamella.base.dtype import F32, ElementType
from lamella.bridge.module_to_graph.calls import Request, adapt, make
from lamella.bridge.module_to_graph.lowering import Place, Road, called, element_named
from lamella.bridge.module_to_graph.nodes import Bound, Frame, Mark, Precision, Scaling
from lamella.graph.nodes import Tensor
from lamella.lang.module.annotations import POLICIES, read_annotation
from lamella.lang.module.instantiate.evaluate import Problem, Surroundings, evaluate
from lamella.lang.module.instantiate.nodes import Value
from lamella.lang.module.nodes import Annotation, Port, Primitive, Recipe, TensorType
from lamella.lang.module.rules import graphs
from lamella.lang.module.rules.annotated import VALUE

# --- what annotations do to a tensor of the graph, and what they leave for later ----------------------------


SMALL = 8
"""Bits of the types that numbers do not become by themselves."""


def annotate(value: Bound, annotations: Sequence[Annotation], name: str, frame: Frame, road: Road) -> Bound:
    """The value with its annotations, each kept beside the graph; the last `@dtype` says its type.

    `@noalias` gives it a storage of its own, `@gradient` controls what comes back.
    """
    if not isinstance(value, Tensor):
        return value
    read = [(item, read_annotation(item, frame.known)) for item in annotations]
    for item, reading in read:
        for finding in reading.findings:
            road.report(finding, frame.origin)
        if item.name == "dtype":
            value = _convert(value, element_named(reading.arguments.get("type")), item, name, frame, road)
        elif item.name == "noalias" and is_shared(value, frame, road):
            value = _copy(value, item, name, frame, road)
        elif item.name == "gradient":
            value = road.control_gradient(value, item, frame)
    road.marks += [Mark(frame.place(name), value, item, reading.arguments) for item, reading in read]
    return value


def _convert(
    value: Tensor, element: ElementType | None, item: Annotation, name: str, frame: Frame, road: Road
) -> Tensor:
    return value if element is None else road.cast(value, element, frame.at(name, item.span))


def is_shared(value: Tensor, frame: Frame, road: Road) -> bool:
    """Whether a tensor has another name already."""
    return road.is_parameter(value) or any(item is value for item in frame.bound.values())


def _copy(value: Tensor, item: Annotation, name: str, frame: Frame, road: Road) -> Tensor:
    place = Place("copy", item.span, frame.at(name, item.span), frame)
    found = road.call("math.iden", (value,), {}, (frame.place(name),), place)[0]
    return found if isinstance(found, Tensor) else value


# --- inputs and outputs -----------------------------------------------------------------------------------------


def annotate_port(value: Bound, port: Port, name: str, frame: Frame, road: Road) -> Bound:
    """The value of an input or output in the type that is declared for it, with the annotations of the port."""
    if not isinstance(value, Tensor):
        return value
    others = [item for item in port.annotations if item.name != "gradient"]
    explicit = any(item.name == "dtype" for item in others)
    wanted = element_named(port.type.dtype) if isinstance(port.type, TensorType) else None
    if wanted is not None and not explicit:
        value = become(value, wanted, port, name, frame, road)
    return annotate(value, others, name, frame, road)


def become(value: Tensor, wanted: ElementType, port: Port, name: str, frame: Frame, road: Road) -> Tensor:
    """A value in a declared type: wider types by themselves, narrower ones with a warning, small ones never."""
    found = value.element
    if found is wanted or (found.is_integer and wanted.is_integer):
        return value
    if not (found.is_float and wanted.is_float) or (wanted.bits <= SMALL and found.bits > wanted.bits):
        repair = f"say so with @dtype({called(wanted)})"
        raise Problem(graphs.CAST.at(port.span, found=called(found), wanted=called(wanted), repair=repair))
    if wanted.bits < found.bits or (wanted.bits == found.bits and wanted is not found):
        finding = graphs.NARROWING.at(port.span, name=name, found=called(found), wanted=called(wanted))
        road.report(finding, frame.origin)
    return road.cast(value, wanted, frame.at(name, port.span))


# --- numbers over a scale in a narrow type and back, as the scaling strategies choose the scale -------------


PER_TOKEN, PER_CHANNEL, PER_BLOCK = "per_token", "per_channel", "per_block"
SMALLEST = 1e-12
"""The largest number of a tensor is taken to be at least this, so that zeros have a scale too."""


def quantized(
    tensor: Tensor, element: ElementType, scaling: Scaling, request: Request, is_weight: bool, road: Road
) -> Tensor:
    """The numbers of a tensor as the narrow type holds them, in the type that the tensor has."""
    shape, wide = tensor.shape, tensor
    axes = tuple(_axes(scaling, len(shape), is_weight))
    if scaling.strategy == PER_BLOCK and len(shape) > 1:
        blocked = _blocked(tensor, scaling.block, request)
        wide = _call("view", (tensor,), {"shape": blocked}, request, road)
        axes = (len(blocked) - 3, len(blocked) - 1)
    scale = _scale(wide, axes, element, scaling.margin, road) if shape else None
    narrow = wide if scale is None else _call("div", (wide, scale), {}, request, road)
    there = _call("quantize", (narrow,), {}, request, road, element)
    back = _call("dequantize", (there,), {}, request, road, tensor.element)
    found = back if scale is None else _call("mul", (back, scale), {}, request, road)
    return found if wide is tensor else _call("view", (found,), {"shape": shape}, request, road)


def _axes(scaling: Scaling, rank: int, is_weight: bool) -> range:
    """The dimensions that share one scale."""
    if scaling.strategy == PER_TOKEN:
        return range(rank - 1, rank)
    if scaling.strategy == PER_CHANNEL and is_weight:
        return range(1, rank)
    return range(rank)


def _scale(tensor: Tensor, axes: Sequence[int], element: ElementType, margin: float, road: Road) -> Tensor:
    """The largest number of each group over the largest of the narrow type; no gradient goes through it."""
    builder = road.builder
    largest = builder.call("math.max_reduce", builder.call("math.abs", tensor), axes=tuple(axes))
    held = builder.call("math.max", largest, builder.constant(SMALLEST, tensor.element))
    limit = element.largest if element.is_float else float(element.maximum)
    return builder.call("math.mul", held, builder.constant((1.0 + margin) / limit, tensor.element))


def _blocked(tensor: Tensor, block: tuple[int, int], request: Request) -> tuple[Value, ...]:
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
            raise Problem(finding)
        sizes += [extent // size, size] if isinstance(extent, int) else [extent, 1]
    return (*others, *sizes)


def _call(
    name: str,
    inputs: tuple[Tensor, ...],
    attributes: dict[str, Value],
    request: Request,
    road: Road,
    element: ElementType | None = None,
) -> Tensor:
    """A primitive called on the way to another, where that one stands."""
    declared = request.frame.instance.scope.library.primitive(name)
    if declared is None or not isinstance(declared.declaration, Primitive):
        raise LookupError(name)
    place = Place(name, request.place.span, request.place.origin, request.frame)
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
    found = make(made, road)[0]
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
def precisely(annotations: Sequence[Annotation], frame: Frame, road: Road) -> Iterator[None]:
    """Build an operation with the precision that its annotations ask for."""
    before = road.precision
    if any(item.name in (PRECISION, SCALING) for item in annotations):
        road.precision = _read(annotations, frame, before)
    try:
        yield
    finally:
        road.precision = before


@contextmanager
def by_recipe(frame: Frame, road: Road) -> Iterator[None]:
    """Build an instance with the recipe that its declaration names."""
    before = road.precision
    for annotation in frame.instance.module.annotations:
        if annotation.name == RECIPE:
            name = read_annotation(annotation, frame.known).arguments.get("name")
            declared = frame.instance.scope.find(name) if isinstance(name, str) else None
            if declared is not None and isinstance(declared.declaration, Recipe):
                road.precision = _from_recipe(declared.declaration)
    try:
        yield
    finally:
        road.precision = before


def _read(annotations: Sequence[Annotation], frame: Frame, before: Precision | None) -> Precision:
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
            except Problem:
                continue  # the check of the recipe has said it
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


def perform(request: Request, road: Road) -> Sequence[Tensor | None]:
    """Call a primitive with its operands in the types that it computes in, and give its results in theirs."""
    request = adapt(request, road)
    if request.name in CONVERSIONS:
        return make(request, road)
    precision = _active(request, road) if request.kept is None else None
    widest = _widest(request)
    if precision is None or widest is None:
        if widest is not None:
            request.inputs = [_cast(item, widest, request, road) for item in request.inputs]
        return make(request, road)
    request.inputs = [_lowered(item, precision, request, road) for item in request.inputs]
    output = precision.output or widest
    made = make(request, road)
    return [
        _cast_tensor(item, output, request, road) if item is not None and item.element.is_float else item
        for item in made
    ]


def _active(request: Request, road: Road) -> Precision | None:
    precision = road.precision
    if precision is None:
        return None
    reached = precision.frame is request.frame or request.name in precision.reach
    return precision if reached else None


def tensors_of(values: Sequence[Bound]) -> Iterator[Tensor]:
    """The tensors among operands, those of sequences too."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from value


def _widest(request: Request) -> ElementType | None:
    """The type that all floating operands become; None where there is none."""
    found: ElementType | None = None
    for tensor in tensors_of(request.inputs):
        if tensor.element.is_float:
            found = tensor.element if found is None else wider(found, tensor.element)
    return found


def wider(first: ElementType, second: ElementType) -> ElementType:
    """The type that holds the numbers of both."""
    if first is second:
        return first
    if first.bits == second.bits:
        return F32  # two kinds of 16 bits, or of 8: neither holds the other
    return first if first.bits > second.bits else second


def _cast(value: Bound, element: ElementType, request: Request, road: Road) -> Bound:
    if isinstance(value, Tensor):
        return _cast_tensor(value, element, request, road) if value.element.is_float else value
    if isinstance(value, tuple):
        return tuple(
            _cast_tensor(item, element, request, road) if item.element.is_float else item for item in value
        )
    return value


def _cast_tensor(tensor: Tensor, element: ElementType, request: Request, road: Road) -> Tensor:
    return road.cast(tensor, element, request.place.origin)


def _lowered(value: Bound, precision: Precision, request: Request, road: Road) -> Bound:
    """An operand in the type of computing, held in the type of accumulating."""
    if isinstance(value, tuple):
        return tuple(_lowered_tensor(item, precision, request, road) for item in value)
    return _lowered_tensor(value, precision, request, road) if isinstance(value, Tensor) else value


def _lowered_tensor(tensor: Tensor, precision: Precision, request: Request, road: Road) -> Tensor:
    if not tensor.element.is_float:
        return tensor
    accumulate = precision.accumulate or F32
    compute = precision.compute
    if compute is None:
        return _cast_tensor(tensor, wider(tensor.element, accumulate), request, road)
    if compute.bits > NARROW:
        rounded = _cast_tensor(tensor, compute, request, road)
        return _cast_tensor(rounded, wider(compute, accumulate), request, road)
    held = _cast_tensor(tensor, accumulate, request, road)
    return quantized(held, compute, precision.scaling, request, road.is_parameter(tensor), road)
