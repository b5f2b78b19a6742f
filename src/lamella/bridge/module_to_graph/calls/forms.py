"""Primitives whose call says more, or less, than their operator needs: each is brought to the operator's form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from lamella.base import dim
from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim, Extent
from lamella.base.dtype import find_in
from lamella.bridge.module_to_graph.calls.caching import Caches
from lamella.bridge.module_to_graph.calls.primitives import Request, ports
from lamella.bridge.module_to_graph.nodes import Bound, Members
from lamella.bridge.module_to_graph.road import Place, Road
from lamella.bridge.module_to_graph.shapes import shape_text
from lamella.graph.nodes import Tensor
from lamella.lang.module.instantiate.evaluate import Problem
from lamella.lang.module.instantiate.nodes import BuiltConstant, Value
from lamella.lang.module.nodes import Primitive
from lamella.lang.module.rules import constants, graphs, syntax

Form = Callable[[Request, Road], Request]


def adapt(request: Request, road: Road) -> Request:
    """The call as the operator of its primitive takes it."""
    form = FORMS.get(request.name)
    return request if form is None else form(request, road)


def _renamed(request: Request, name: str, inputs: list[Bound]) -> Request:
    """The same call of another primitive."""
    declared = request.frame.instance.scope.library.primitive(name)
    if declared is None or not isinstance(declared.declaration, Primitive):
        raise LookupError(name)
    primitive = declared.declaration
    missing = len(ports(primitive)) - len(inputs)
    return replace(request, primitive=primitive, inputs=[*inputs, *([None] * missing)])


def _config(request: Request, *names: str) -> Value:
    """A value of the enclosing declaration, under the first of these names that it has."""
    values = request.frame.instance.values
    return next((values[name].value for name in names if name in values), None)


def _heads(request: Request) -> None:
    """The number of heads where the call does not say it."""
    heads = _config(request, "num_heads", "num_attention_heads", "H")
    for name, value in (
        ("num_heads", heads),
        ("num_kv_heads", _config(request, "num_kv_heads", "Hkv") or heads),
    ):
        request.attributes.setdefault(name, value)
        if request.attributes[name] is None:
            repair = f"give {name} to '{request.name}', or declare a config parameter of that name"
            raise Problem(
                constants.MISSING.at(request.place.span, module=request.name, name=name, repair=repair)
            )


# --- matrices ---------------------------------------------------------------------------------------------------


def _matmul(request: Request, road: Road) -> Request:
    """The transpose that is meant, by the form of the statement: a projection, a gradient of a weight, or neither."""
    left, right = request.inputs[:2]
    given = request.attributes.get("transpose")
    meant = str(given or "NN")
    if _is_weight_gradient(request, road):
        return _weight_gradient(request, road)
    if road.is_parameter(right) and isinstance(left, Tensor) and isinstance(right, Tensor):
        back = given is None and road.is_gradient(left)
        meant = "NN" if back else _projection(left, right, given)
    if given is not None and meant != given:
        road.report(_old(request, given, meant, "x · Wᵀ"))
    request.attributes["transpose"] = meant
    return request


def _projection(left: Tensor, right: Tensor, given: Value) -> str:
    if given in ("NN", "TT"):
        return str(given)
    if given is not None or len(right.shape) != 2 or not left.shape:
        return "NT"
    last = left.shape[-1]
    return "NN" if right.shape[0] == last and right.shape[1] != last else "NT"


def _is_weight_gradient(request: Request, road: Road) -> bool:
    """Whether a statement gives the gradient of a matrix parameter."""
    target = request.targets[0] if request.targets else ""
    slot = request.frame.instance.tensors.get(target.removeprefix("d_")) if target.startswith("d_") else None
    plain = request.attributes.get("transpose") in ("NN", "TT")
    return slot is not None and len(slot.dims) == 2 and not plain


def _weight_gradient(request: Request, road: Road) -> Request:
    """DW = gᵀ · x, whichever of the two operands is written first."""
    left, right = request.inputs[:2]
    swapped = (
        isinstance(right, Tensor)
        and isinstance(left, Tensor)
        and road.is_gradient(right)
        and not road.is_gradient(left)
    )
    given = request.attributes.get("transpose")
    if given is not None and (swapped or given != "TN"):
        road.report(_old(request, given, "TN, with the gradient as the first operand", "gᵀ · x"))
    request.inputs[:2] = [right, left] if swapped else [left, right]
    request.attributes["transpose"] = "TN"
    return request


def _grouped(request: Request, road: Road) -> Request:
    """Weights of groups are `[group, out, in]`: both spellings of the transpose mean x · Wᵀ."""
    if request.attributes.get("transpose", "TN") == "TN":
        request.attributes["transpose"] = "NT"
    return request


def _old(request: Request, given: object, meant: str, meaning: str) -> Diagnostic:
    return syntax.OLD_TRANSPOSE.at(request.place.span, given=given, meaning=meaning, repair=meant)


# --- attention --------------------------------------------------------------------------------------------------


def _gated(packed: str) -> Form:
    """A gated activation of one input takes the two halves of its last dimension."""

    def form(request: Request, road: Road) -> Request:
        if request.inputs[1] is None:
            return _renamed(request, packed, request.inputs[:1])
        return request

    return form


def _rope(request: Request, road: Road) -> Request:
    """The table of angles, where none flows in, is that of the enclosing declaration."""
    width, longest = (request.attributes.pop(name, None) for name in ("d_head", "max_seq"))
    if isinstance(request.inputs[0], Tensor) and request.inputs[1] is None:
        request.attributes |= {} if width is None else {"rotary_dim": width}
        return _packed_rope(request, road)
    if request.inputs[2] is None:
        head = request.inputs[0]
        width = head.shape[-1] if width is None and isinstance(head, Tensor) else width
        request.inputs[2] = _table(request, road, width, longest)
    _place(request, road, 0, 2, 3)
    return request


def _place(request: Request, road: Road, operand: int, axis: int, target: int) -> None:
    """In a graph with caches, positions that are not given count on from the tokens that were seen."""
    tensor = request.inputs[operand]
    if road.caches is not None and request.inputs[target] is None and isinstance(tensor, Tensor):
        request.inputs[target] = road.caches.positions(tensor.shape[axis])


def _packed_rope(request: Request, road: Road) -> Request:
    made = _renamed(request, "rope_packed", [request.inputs[0], request.inputs[2], request.inputs[3]])
    _heads(made)
    return made


def _table(request: Request, road: Road, width: object, longest: Value) -> Tensor:
    longest = longest or _config(request, "max_seq", "max_position_embeddings")
    if not isinstance(longest, int) or not isinstance(width, int):
        repair = "let a table of angles flow in as the third operand, or declare a config parameter max_seq"
        raise Problem(constants.MISSING.at(request.place.span, module="rope", name="freqs", repair=repair))
    theta = _config(request, "rope_theta", "theta") or 10000.0
    built = BuiltConstant("precompute_rope_freqs", (longest, width, theta), {}, request.place.span)
    return road.constant(request.frame, "freqs", built)


def _attention(request: Request, road: Road) -> Request:
    """Attention of one packed operand has its heads from the enclosing declaration."""
    if request.inputs[1] is None:
        request = _renamed(request, "flash_attention_packed", request.inputs[:1])
        _heads(request)
    elif road.caches is not None and request.attributes.get("causal", True):
        _remember(request, road.caches)
    return request


def _remember(request: Request, caches: Caches) -> None:
    """Keys and values of all positions so far in the place of those of this call."""
    for number, name in ((1, "keys"), (2, "values")):
        tensor = request.inputs[number]
        if isinstance(tensor, Tensor):
            request.inputs[number] = caches.remember(request.frame.place(name), tensor, request.place.origin)
    request.inputs[4] = caches.seen


def _embedding(request: Request, road: Road) -> Request:
    _place(request, road, 0, -1, 3)
    return request


def _split_heads(request: Request, road: Road) -> Request:
    _heads(request)
    return request


# --- states -----------------------------------------------------------------------------------------------------


def _convolution(request: Request, road: Road) -> Request:
    """In a graph with caches, the last inputs of a convolution are there in the next call."""
    x, weight = request.inputs[:2]
    if road.caches is not None and isinstance(x, Tensor) and isinstance(weight, Tensor):
        kept = dim.sub(weight.shape[-1], 1)
        _carry(request, road, "conv_state", (*x.shape[:2], kept))
    return request


def _scan(request: Request, road: Road) -> Request:
    """In a graph with caches, the state of a recurrence is there in the next call."""
    u, decay = request.inputs[0], request.inputs[2]
    if road.caches is not None and isinstance(u, Tensor) and isinstance(decay, Tensor):
        _carry(request, road, "ssm_state", (*u.shape[:2], decay.shape[-1]))
    return request


def _carry(request: Request, road: Road, name: str, shape: tuple[Extent, ...]) -> None:
    """A variable as the state that flows in, where none does; it takes the one that flows out."""
    first = request.inputs[0]
    if request.inputs[-1] is None and road.caches is not None and isinstance(first, Tensor):
        request.kept = road.caches.keep(request.frame.place(name), first.element, shape)
        request.inputs[-1] = request.kept


def _router(request: Request, road: Road) -> Request:
    """A router of one operand takes scores."""
    if request.inputs[1] is None:
        return _renamed(request, "moe_router_logits", [request.inputs[0], request.inputs[2]])
    return request


# --- shapes and creation ----------------------------------------------------------------------------------------


def _scale(request: Request, road: Road) -> Request:
    """A factor that only the run tells is an operand."""
    factor = request.runtime.pop("factor", None)
    if factor is None:
        return request
    made = _renamed(request, "mul", [request.inputs[0], factor])
    made.attributes = {}
    return made


def _view(request: Request, road: Road) -> Request:
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
        raise Problem(finding)
    return request


def _product(extents: Sequence[Extent]) -> Extent:
    found: Extent = 1
    for item in extents:
        found = dim.mul(found, item)
    return found


def _created(request: Request, road: Road) -> Request:
    """A new tensor has the element type of the model unless it says its own."""
    name = request.attributes.pop("dtype", None)
    element = find_in("module", name) if isinstance(name, str) else None
    request.types["dtype"] = element or road.settings.element
    return request


def _converted(request: Request, road: Road) -> Request:
    name = request.attributes.pop("dtype", None)
    element = find_in("module", name) if isinstance(name, str) else None
    if element is not None:
        request.types["dtype"] = element
    return request


def _experts(request: Request, road: Road) -> Request:
    """Experts that are instances become stacked weights, one for each of their parameters."""
    found: list[Bound] = []
    for value in request.inputs:
        found += _stacked(value, request, road) if isinstance(value, Members) else [value]
    request.inputs = found[: len(request.inputs)]
    return request


def _stacked(members: Members, request: Request, road: Road) -> list[Bound]:
    place = Place("stack", request.place.span, request.place.origin)
    slots = list(members.items[0][1].tensors) if members.items else []
    frame = request.frame
    made: list[Bound] = []
    for slot in slots:
        tensors = []
        for path, instance in members.items:
            inner = type(frame)(instance, path, frame.origin)
            value = road.parameter(inner, instance.tensors[slot])
            tensors += [value] if isinstance(value, Tensor) else []
        results = road.call(
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
        "mamba_conv1d": _convolution,
        "mamba_causal_conv1d": _convolution,
        "mamba_selective_scan": _scan,
    }
)
"""What is done before a primitive is called, by its name."""
