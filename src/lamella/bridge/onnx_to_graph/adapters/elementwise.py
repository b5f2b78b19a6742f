"""Adapters of operators that work element by element, and of those that make or convert tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from types import MappingProxyType

import numpy as np

from lamella.base import dim
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dim import Extent
from lamella.base.dtype import BOOL, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F32, F64, I64, ElementType, Kind
from lamella.bridge.onnx.arrays import read_sparse
from lamella.bridge.onnx.nodes import DATA_TYPES, SparseTensor, TensorProto
from lamella.bridge.onnx_to_graph.fold import fold
from lamella.bridge.onnx_to_graph.site import NodeSite, Result, Results
from lamella.bridge.onnx_to_graph.values import MOST_KNOWN, known_value, object_array, plain_if_possible
from lamella.graph.nodes import Tensor


def _div(site: NodeSite) -> Results:
    """Division; of integers it rounds toward zero."""
    operator = "math.div" if site.element().is_float else "onnx.divide_integers"
    return site.call(operator, site.tensor(0), site.tensor(1))


def _mod(site: NodeSite) -> Results:
    """The remainder: with the sign of the divisor, or with `fmod` of the dividend."""
    operator = "aten.fmod" if site.flag("fmod") else "math.mod"
    if site.element().is_float:
        operator = "math.mod" if site.flag("fmod") else "aten.remainder"
    return site.call(operator, site.tensor(0), site.tensor(1))


def _pow(site: NodeSite) -> Results:
    """A power, in the type of the base; where the types differ it is computed in the wider of both."""
    base, exponent = site.tensor(0), site.tensor(1)
    if base.element == exponent.element and base.element.is_float:
        return site.call("math.pow", base, exponent)
    if exponent.element.is_integer and base.element.is_float:
        return site.call("math.pow", base, site.cast(exponent, base.element))
    if not exponent.element.is_float:
        wide = site.call("math.pow", site.cast(base, I64), site.cast(exponent, I64))
        return site.cast(wide, base.element)
    wide = site.call("math.pow", site.cast(base, F64), site.cast(exponent, F64))
    return site.cast(wide, base.element)


def _relu(site: NodeSite) -> Results:
    x = site.tensor()
    if x.element.is_float:
        return site.call("nn.relu", x)
    return site.call("math.max", x, site.scalar(0, x.element))


def _abs(site: NodeSite) -> Results:
    x = site.tensor()
    return x if x.element.kind is Kind.UNSIGNED else site.call("math.abs", x)


def _sign(site: NodeSite) -> Results:
    """The sign; that of NaN is NaN, where `math.sign` has 0."""
    x = site.tensor()
    if x.element.kind is Kind.UNSIGNED:
        return site.call("math.min", x, site.scalar(1, x.element))
    found = site.call("math.sign", x)
    return site.call("math.select", site.call("math.eq", x, x), found, x) if x.element.is_float else found


def _gelu(site: NodeSite) -> Results:
    tanh = site.text("approximate", "none") == "tanh"
    return site.call("nn.gelu", site.tensor(), approximate="TANH" if tanh else None)


def _clip(site: NodeSite) -> Results:
    """Bounds are attributes before version 11."""
    x = site.tensor()
    if site.version < 11:
        low = site.scalar(site.real("min", float(np.finfo(np.float32).min)), x.element)
        high = site.scalar(site.real("max", float(np.finfo(np.float32).max)), x.element)
        return site.call("math.clamp", x, low, high)
    found, low_given, high_given = x, site.optional(1), site.optional(2)
    if low_given is not None:
        found = site.call("math.max", found, site.reshape(low_given, ()))
    if high_given is not None:
        found = site.call("math.min", found, site.reshape(high_given, ()))
    return found


def _bit_shift(site: NodeSite) -> Results:
    left = site.text("direction", "LEFT") == "LEFT"
    operator = "onnx.shift_left" if left else "onnx.shift_right"
    return site.call(operator, site.tensor(0), site.tensor(1), bits=site.element().bits)


def _is_inf(site: NodeSite) -> Results:
    up, down = site.flag("detect_positive", True), site.flag("detect_negative", True)
    return site.call("onnx.is_infinite", site.tensor(), positive=up, negative=down)


def _chain(operator: str) -> Callable[[NodeSite], Results]:
    """An operator of two inputs over all inputs."""

    def run(site: NodeSite) -> Results:
        return reduce(lambda left, right: site.call(operator, left, right), site.tensors())

    return run


def _mean(site: NodeSite) -> Results:
    total = reduce(site.add, site.tensors())
    return site.scaled(total, 1.0 / len(site.values))


def _identity(site: NodeSite) -> Results:
    value = site.values[0]
    return value if value is not None and value.known is not None else site.tensor()


def _dropout(site: NodeSite) -> Results:
    """What passes through outside of training, and the mask of that."""
    x = site.tensor()
    if site.version >= 12 and site.has(2) and bool(site.known(2, "training_mode").reshape(-1)[0]):
        ratio = site.numbers(1, "ratio")[0] if site.has(1) else 0.5
        if ratio:
            site.refuse("drops numbers at random in training")
    if len(site.node.outputs) < 2:
        return x
    mask_type = BOOL if site.version >= 10 else x.element
    return [x, site.make("layout.uniform", mask_type, site.scalar(1, mask_type), shape=x.shape)]


# --- types ----------------------------------------------------------------------------------------------------


def _convert(site: NodeSite, x: Tensor, element: ElementType, saturate: bool) -> Result:
    if x.element == element:
        return x
    if element.is_float and element.bits <= 8 and x.element.is_float and not saturate:
        return overflowing(site, x, element)
    if element.is_integer and element.bits < 32 and x.element.bits > element.bits:
        return _wrapped(site, x, element)
    return site.make("layout.cast", element, x)


def _wrapped(site: NodeSite, x: Tensor, element: ElementType) -> Tensor:
    """Numbers as integers of a narrow type: what it cannot hold begins again at its other end."""
    whole = site.cast(x, I64)
    low = site.scalar(element.minimum, I64)
    places = site.call("math.mod", site.call("math.sub", whole, low), site.scalar(1 << element.bits, I64))
    return site.make("layout.cast", element, site.add(places, low))


def overflowing(site: NodeSite, x: Tensor, element: ElementType) -> Tensor:
    """Numbers in a type of eight bits; what it cannot hold is infinite, or no number where it has no infinity."""
    # Halfway to the number that would follow the largest, ties go to the even one: down in E4M3, up in E5M2.
    has_infinity = element == F8E5M2
    limit = {F8E5M2: 61440.0, F8E5M2FNUZ: 61440.0, F8E4M3FNUZ: 248.0}.get(element, 464.0)
    size = site.call("math.abs", x)
    beyond = site.call("math.ge" if has_infinity else "math.gt", size, site.scalar(limit, x.element))
    far = site.scalar(math.inf if has_infinity else math.nan, element)
    below = site.call("math.lt", x, site.scalar(0, x.element))
    signed = site.call("math.select", below, site.scalar(-math.inf, element), far) if has_infinity else far
    return site.call("math.select", beyond, signed, site.make("layout.cast", element, x))


def _cast(site: NodeSite) -> Results:
    return _convert(site, site.tensor(), site.type_of("to"), site.flag("saturate", True))


def _cast_like(site: NodeSite) -> Results:
    known, element = site.content(0), site.element(1)
    number = DATA_TYPES.get(element)
    if known is not None and number is not None:
        found = fold("Cast", [known], {"to": int(number)}, site.version)
        if found is not None:
            return known_value(found[0], element=element)
    return _convert(site, site.tensor(), site.element(1), site.flag("saturate", True))


# --- constants ------------------------------------------------------------------------------------------------


def _constant(site: NodeSite) -> Results:
    """A tensor that the node holds, in one of eight ways."""
    found = site.attributes.get("value")
    if isinstance(found, TensorProto):
        return known_value(site.read(found))
    sparse = site.attributes.get("sparse_value")
    if isinstance(sparse, SparseTensor):
        return known_value(read_sparse(sparse, None))
    for name, dtype in (("value_float", np.float32), ("value_int", np.int64)):
        number = site.attributes.get(name)
        if isinstance(number, int | float):
            return known_value(np.asarray(number, dtype))
    reals, integers = site.reals("value_floats"), site.ints("value_ints")
    if integers is not None:
        return known_value(np.asarray(integers, np.int64))
    if reals is None:
        site.refuse("holds no tensor of numbers")
    return known_value(np.asarray(reals, np.float32))


def _constant_of_shape(site: NodeSite) -> Results:
    found = site.attributes.get("value")
    value: Array = site.read(found) if isinstance(found, TensorProto) else np.zeros(1, np.float32)
    shape = site.extents(0, "the shape")
    known = [size for size in shape if isinstance(size, int)]
    if len(known) == len(shape) and 0 <= math.prod(known) <= MOST_KNOWN and min(known, default=0) >= 0:
        return known_value(np.full(known, value.reshape(-1)[0]))
    scalar = site.constant(value.reshape(()))
    return site.make("layout.uniform", scalar.element, scalar, shape=shape)


def _shape(site: NodeSite) -> Results:
    """The extents of a tensor, which are known."""
    value = site.values[0]
    content = site.content(0)
    whole = content.shape if content is not None else site.tensor().shape
    assert value is not None  # the checker counts inputs
    start, end = site.integer("start", 0), site.attributes.get("end")
    part = whole[slice(start, end if isinstance(end, int) else None)]
    return known_value(plain_if_possible(object_array(list(part), (len(part),)), np.dtype(np.int64)))


def _size(site: NodeSite) -> Results:
    content = site.content(0)
    if content is not None:
        return known_value(np.asarray(content.size, np.int64))
    one: Extent = 1
    total = reduce(dim.mul, site.tensor().shape, one)
    return known_value(plain_if_possible(object_array([total], ()), np.dtype(np.int64)))


def _range(site: NodeSite) -> Results:
    """A range whose ends are known, or are extents."""
    parts = [site.known(index, what).reshape(-1)[0] for index, what in enumerate(("start", "limit", "delta"))]
    element = site.element()
    given = [item if not isinstance(item, np.generic) else item.item() for item in parts]
    if element.is_float:
        given = [float(item) for item in given]
    kept = element if not any(hasattr(item, "terms") for item in given) else I64
    made = site.make("layout.range", kept, first=given[0], last=given[1], stride=given[2])
    return site.cast(made, element)


def _eye_like(site: NodeSite) -> Results:
    x = site.tensor()
    element = site.type_of("dtype", x.element)
    return site.make("onnx.eye", element, shape=x.shape, diagonal=site.integer("k", 0))


def _random(site: NodeSite) -> Results:
    """Numbers that nothing can predict, by the operators of module `rand`."""
    like = site.node.op_type.endswith("Like")
    shape = site.tensor().shape if like else site.ints("shape") or ()
    element = site.type_of("dtype", site.element() if like else F32)
    if "Uniform" in site.node.op_type:
        drawn = site.make(
            "rand.uniform", F32, min=site.real("low", 0.0), max=site.real("high", 1.0), shape=shape
        )
    else:
        drawn = site.call(
            "rand.normal", mean=site.real("mean", 0.0), std=site.real("scale", 1.0), shape=shape
        )
    return site.cast(drawn, element)


def _bernoulli(site: NodeSite) -> Results:
    x = site.tensor()
    drawn = site.make("rand.uniform", F32, min=0.0, max=1.0, shape=x.shape)
    found = site.call("math.lt", drawn, site.cast(x, F32))
    return site.cast(found, site.type_of("dtype", x.element))


def _bit_cast(site: NodeSite) -> Results:
    content = site.content(0)
    element = site.type_of("to")
    if content is None or content.dtype == object:
        site.refuse("reads the bits of numbers as those of another type")
    return known_value(content.view(numpy_dtype(element)))


ELEMENTWISE: Mapping[str, Callable[[NodeSite], Results]] = MappingProxyType(
    {
        "Abs": _abs,
        "Sign": _sign,
        "Div": _div,
        "Mod": _mod,
        "Pow": _pow,
        "Relu": _relu,
        "Gelu": _gelu,
        "Clip": _clip,
        "BitShift": _bit_shift,
        "IsInf": _is_inf,
        "Min": _chain("math.min"),
        "Max": _chain("math.max"),
        "Sum": _chain("math.add"),
        "Mean": _mean,
        "Identity": _identity,
        "Dropout": _dropout,
        "Cast": _cast,
        "CastLike": _cast_like,
        "BitCast": _bit_cast,
        "Constant": _constant,
        "ConstantOfShape": _constant_of_shape,
        "Shape": _shape,
        "Size": _size,
        "Range": _range,
        "EyeLike": _eye_like,
        "RandomUniform": _random,
        "RandomUniformLike": _random,
        "RandomNormal": _random,
        "RandomNormalLike": _random,
        "Bernoulli": _bernoulli,
    }
)
"""Adapters by the names of ONNX's operators."""
