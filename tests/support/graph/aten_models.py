"""Random graphs of ATen's operators, with much in them that changes nothing; and special numbers to run them on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from hypothesis import strategies as st

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dim import substitute, symbol
from lamella.base.dtype import BOOL, F16, F32, F64, I8, I32, I64, ElementType
from lamella.base.errors import Found
from lamella.base.origin import Origin
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.graph.rewrite import members
from tests.support.strategies.graph import library
from tests.support.strategies.graph_moves import Pool

TYPES = (F32, F32, F64, F16, I64, I32, I8, BOOL)
REAL = (F32, F64, F16)
SCALARS = (0.0, -0.0, 1.0, -1.0, 2.0)
Result = Tensor | tuple[Tensor, ...] | None


def pick(pool: Pool, *types: ElementType, rank: int = 0) -> Tensor | None:
    """A tensor of one of these types with at least so many dimensions."""
    return pool.pick(lambda item: (not types or item.element in types) and len(item.shape) >= rank)


def number(pool: Pool, rank: int = 0) -> Tensor | None:
    """A tensor of numbers."""
    return pick(pool, *REAL, I64, I32, I8, rank=rank)


def scalar(pool: Pool, element: ElementType) -> Tensor:
    """A constant that often changes nothing, as itself or spread over a shape."""
    value = pool.draw(st.sampled_from(SCALARS))
    if element == BOOL:
        return pool.builder.constant(value > 0, BOOL)
    found = pool.builder.constant(value if element.is_float else int(value), element)
    return pool.builder.call("aten.full", found, size=[1]) if pool.draw(st.booleans()) else found


def one_of(pool: Pool, *operators: str) -> str:
    """One of some operators of ATen."""
    return f"aten.{pool.draw(st.sampled_from(operators))}"


# --- element by element -------------------------------------------------------------------------------------


def unary(pool: Pool) -> Result:
    """A function of one number, often of its own result."""
    x = number(pool)
    if x is None:
        return None
    whole = ("neg", "abs", "sign", "square")
    more = ("relu", "floor", "ceil", "round", "trunc", "exp") if x.element in REAL else ()
    operator = one_of(pool, *whole, *more)
    found = pool.builder.call(operator, x)
    return pool.builder.call(operator, found) if pool.draw(st.booleans()) else found


def copies(pool: Pool) -> Result:
    """The same tensor again, or in another type and back."""
    x = pool.pick()
    if x is None:
        return None
    if pool.draw(st.booleans()):
        return pool.builder.call(one_of(pool, "clone", "alias", "detach", "dropout"), x)
    return pool.builder.call("aten.to_copy", x, types={"R": pool.draw(st.sampled_from((x.element, *TYPES)))})


def sums(pool: Pool) -> Result:
    """A sum or a difference with a factor, often with what was added before."""
    x = number(pool)
    if x is None:
        return None
    fitting = pool.pick(lambda item: (item.element, item.shape) == (x.element, x.shape)) or x
    other = pool.draw(st.sampled_from([fitting, scalar(pool, x.element)]))
    alpha: int | float = pool.draw(st.sampled_from((1, 1, 2, 0, -1)))
    alpha = float(alpha) if x.element.is_float else alpha
    first = pool.builder.call(one_of(pool, "add", "sub", "rsub"), x, other, alpha=alpha)
    return pool.builder.call(one_of(pool, "add", "sub", "rsub"), first, other, alpha=alpha)


def products(pool: Pool) -> Result:
    """A product, a quotient or a power."""
    x = number(pool)
    if x is None:
        return None
    other = scalar(pool, x.element)
    if x.element not in REAL:
        return pool.builder.call("aten.mul", *((x, other) if pool.draw(st.booleans()) else (other, x)))
    if pool.draw(st.booleans()):
        return pool.builder.call(one_of(pool, "mul", "pow"), x, other)
    return pool.builder.call(
        "aten.div", x, other, rounding_mode=pool.draw(st.sampled_from((None, "trunc", "floor")))
    )


def both(pool: Pool) -> Result:
    """The smaller or the larger of two, which may be one."""
    x = number(pool)
    y = x and (pool.pick(lambda item: (item.element, item.shape) == (x.element, x.shape)) or x)
    return x and pool.builder.call(one_of(pool, "minimum", "maximum"), x, pool.draw(st.sampled_from([x, y])))


def truths(pool: Pool) -> Result:
    """Comparisons and logic."""
    x = pool.pick()
    if x is None:
        return None
    if x.element == BOOL:
        found = pool.builder.call(one_of(pool, "logical_and", "bitwise_or"), x, x)
        return pool.builder.call("aten.logical_not", pool.builder.call("aten.bitwise_not", found))
    return pool.builder.call(one_of(pool, "lt", "ge", "eq"), x, scalar(pool, x.element))


def choices(pool: Pool) -> Result:
    """A choice by a condition, which is often known; bounds, which are often not there."""
    x = number(pool)
    if x is None:
        return None
    known = pool.builder.constant(pool.draw(st.booleans()), BOOL)
    condition = pool.pick(lambda item: (item.element, item.shape) == (BOOL, x.shape)) or known
    condition = pool.draw(st.sampled_from([condition, known]))
    value = pool.builder.constant(2.0 if x.element.is_float else 2, x.element)
    if pool.draw(st.booleans()):
        return pool.builder.call("aten.clamp", x, None, pool.draw(st.sampled_from([None, value])))
    if pool.draw(st.booleans()):
        return pool.builder.call("aten.masked_fill", x, condition, value)
    return pool.builder.call("aten.where", condition, x, scalar(pool, x.element))


# --- shapes -------------------------------------------------------------------------------------------------


def views(pool: Pool) -> Result:
    """The same elements in other shapes, one after another."""
    x = pool.pick()
    if x is None:
        return None
    flat = pool.builder.call("aten.flatten", x)
    if pool.draw(st.booleans()):
        return pool.builder.call("aten.view", flat, size=list(x.shape))
    longer = pool.builder.call("aten.unsqueeze", flat, dim=pool.draw(st.integers(-2, 1)))
    return pool.builder.call("aten.squeeze", longer) if pool.draw(st.booleans()) else longer


def turns(pool: Pool) -> Result:
    """Another order of the dimensions, sometimes twice."""
    x = pick(pool, rank=2)
    if x is None:
        return None
    for _ in range(pool.draw(st.integers(1, 2))):
        if pool.draw(st.booleans()):
            x = pool.builder.call(
                "aten.permute", x, dims=tuple(pool.draw(st.permutations(range(len(x.shape)))))
            )
        else:
            x = pool.builder.call("aten.transpose", x, dim0=pool.axis(x), dim1=pool.axis(x))
    return x


def parts(pool: Pool) -> Result:
    """A part of a tensor, or all of it: cut, padded, repeated, joined, taken apart."""
    x = pick(pool, rank=1)
    if x is None:
        return None
    build, dim, some = pool.builder, pool.axis(x), pool.draw(st.integers(0, 1))
    ways: Sequence[Callable[[], Tensor]] = (
        lambda: build.call("aten.slice", x, dim=dim, start=some, step=pool.draw(st.integers(1, 2))),
        lambda: build.call("aten.constant_pad_nd", x, None, pad=[0, some]),
        lambda: build.call("aten.repeat", x, repeats=[*[1] * (len(x.shape) - 1), some + 1]),
        lambda: build.call("aten.cat", (x,) * (some + 1), dim=dim),
        lambda: build.call("aten.expand", x, size=[-1] * len(x.shape)),
    )
    return pool.draw(st.sampled_from(ways))()


def pieces(pool: Pool) -> Result:
    """A tensor cut into parts, which may be one."""
    x = pool.pick(lambda item: len(item.shape) > 0 and all(isinstance(size, int) for size in item.shape))
    if x is None:
        return None
    (found,) = pool.builder.call_all(
        "aten.split", x, split_size=pool.draw(st.sampled_from((1, 4))), dim=pool.axis(x)
    )
    return found if isinstance(found, tuple) else None


# --- constants and variables --------------------------------------------------------------------------------


def alike(pool: Pool) -> Result:
    """A tensor that is like another but for its numbers, and the sum of both."""
    x = number(pool)
    if x is None:
        return None
    y = pool.builder.call(one_of(pool, "zeros_like", "ones_like", "empty_like"), x)
    return pool.builder.call(one_of(pool, "add", "mul"), x, y)


def known(pool: Pool) -> Result:
    """Something that does not depend on the run."""
    build, element = pool.builder, pool.draw(st.sampled_from((F32, I64)))
    whole = build.call("aten.arange", types={"T": element}, end=6.0 if element.is_float else 6)
    grid = build.call("aten.view", whole, size=[2, -1])
    return build.call(one_of(pool, "add", "mul", "sub"), grid, scalar(pool, element))


def weights(pool: Pool) -> Result:
    """A product with a variable; a second variable is never read."""
    x = pool.pick(
        lambda item: item.element == F32 and len(item.shape) > 1 and isinstance(item.shape[-1], int)
    )
    if x is None:
        return None
    pool.builder.variable("unused", F32, (2,))
    return pool.builder.call("aten.linear", x, pool.builder.variable("w", F32, (2, x.shape[-1])))


def state(pool: Pool) -> Result:
    """A variable that takes a new value at each run."""
    x = pool.pick(lambda item: item.element == F32 and all(isinstance(size, int) for size in item.shape))
    if x is None:
        return None
    variable = pool.builder.variable("state", F32, x.shape)
    found = pool.builder.call("aten.add", variable, x)
    pool.builder.update(variable, found)
    return found


MOVES = (
    *(unary, copies, sums, products, both, truths, choices),
    *(views, turns, parts, pieces, alike, known, weights, state),
)


@st.composite
def aten_models(draw: st.DrawFn) -> Model:
    """A model of ATen's operators; each operation has an origin, and some shapes are open."""
    builder = Builder(library(), "G")
    pool = Pool(draw, builder)
    extents = st.integers(1, 4) | st.just(symbol("n", 4))
    for place in range(draw(st.integers(1, 2))):
        shape = draw(st.lists(extents, max_size=3))
        pool.tensors.append(builder.input(f"x{place}", draw(st.sampled_from(TYPES)), shape))
    for place, move in enumerate(draw(st.lists(st.sampled_from(MOVES), min_size=3, max_size=8))):
        builder.origin = Origin(f"call {place}", above=Origin("the program"))
        try:
            found = move(pool)
        except Found:  # the operator refuses these shapes or types
            continue
        pool.tensors += found if isinstance(found, tuple) else () if found is None else (found,)
    outputs = draw(st.lists(st.sampled_from(pool.tensors), min_size=1, max_size=3, unique=True))
    builder.origin = None
    return Model(builder.finish(*outputs), library())


# --- runs ---------------------------------------------------------------------------------------------------

SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.1, -2.5, 3e38, 1e-40, 60000.0)


def special_arrays(tensors: Sequence[Tensor], extents: Mapping[str, int], seed: int) -> dict[str, Array]:
    """Arrays with what is special about each type: NaN, infinities, both zeros, the largest and the smallest."""
    source = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for tensor in tensors:
        shape = [int(str(substitute(extent, extents))) for extent in tensor.shape]
        dtype = numpy_dtype(tensor.element)
        if tensor.element.is_float:
            with np.errstate(over="ignore"):
                values = source.choice(SPECIAL, shape).astype(dtype)
        elif tensor.element == BOOL:
            values = source.integers(0, 2, shape).astype(dtype)
        else:
            edges = (tensor.element.minimum, tensor.element.maximum, 0, 1, -1, 7)
            values = source.choice(np.asarray(edges), shape).astype(dtype)
        found[tensor.name] = np.asarray(values)
    return found


def run_special(model: Model, data: Mapping[str, Array], extents: Mapping[str, int]) -> dict[str, Array]:
    """Outputs and state after two runs on special numbers."""
    executable = compile_model(Model(model.graph, model.library, data))
    inputs = [item for item in members(model.graph.inputs) if isinstance(item, Tensor)]
    for seed in range(2):
        outputs = executable(**special_arrays(inputs, extents, seed))
    updated = [item.variable.name for item in model.graph.updates]
    return {**outputs, **{f"state of {name}": np.asarray(executable.state[name]) for name in updated}}


def same_bits(left: Mapping[str, Array], right: Mapping[str, Array]) -> None:
    """Two runs give the same bits but for those of NaN."""
    assert left.keys() == right.keys()
    for name, values in left.items():
        other = right[name]
        assert (values.dtype, values.shape) == (other.dtype, other.shape), name
        np.testing.assert_array_equal(values, other, name)
        if values.dtype.kind == "f":
            numbers = ~np.isnan(values)
            np.testing.assert_array_equal(np.signbit(values[numbers]), np.signbit(other[numbers]), name)
