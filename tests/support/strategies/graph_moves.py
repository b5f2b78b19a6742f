"""Ways to go on with a graph under construction, each over some operators of the library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st

from lamella.base.dtype import BF16, BOOL, F16, F32, F64, I8, I32, I64, ElementType
from lamella.graph.build import Builder
from lamella.graph.nodes import Tensor

REAL_UNARY = (
    *(f"math.{name}" for name in ("sin", "cos", "atan", "tanh", "asinh", "floor", "ceil", "round", "rsqr")),
    *(f"nn.{name}" for name in ("relu", "sigmoid", "gelu", "softplus", "elu", "silu", "erf", "softmax")),
)
UNARY = tuple(f"math.{name}" for name in ("neg", "abs", "sign", "sqr", "iden"))
BINARY = tuple(f"math.{name}" for name in ("add", "sub", "mul", "min", "max"))
COMPARE = tuple(f"math.{name}" for name in ("lt", "gt", "le", "ge", "eq", "ne"))
LOGIC = tuple(f"math.{name}" for name in ("and", "or", "xor"))
REDUCE = tuple(f"math.{name}_reduce" for name in ("sum", "max", "min", "prod"))
FLOATS = (F32, F64, F16)
TYPES = (F32, F32, F32, F64, F16, I64, I32, I8, BOOL)
NEUTRAL = (0, 1, 2, -1)


@dataclass
class Pool:
    """A graph under construction and the tensors that can be used at this point of it."""

    draw: st.DrawFn
    builder: Builder
    tensors: list[Tensor] = field(default_factory=list)
    flow: int = 1
    """How deep control flow may still nest."""

    def pick(self, fits: Callable[[Tensor], bool] = lambda _: True) -> Tensor | None:
        """A tensor that fits, the newest ones more often."""
        found = [item for item in self.tensors if fits(item)]
        return self.draw(st.sampled_from([*found, *found[-3:]])) if found else None

    def inner(self, *tensors: Tensor) -> Pool:
        """The tensors that a region sees."""
        return Pool(self.draw, self.builder, [*self.tensors, *tensors], self.flow - 1)

    def real(self) -> Tensor | None:
        """A tensor of reals."""
        return self.pick(lambda item: item.element in FLOATS)

    def number(self) -> Tensor | None:
        """A tensor of numbers."""
        return self.pick(lambda item: item.element != BOOL)

    def axis(self, tensor: Tensor) -> int:
        """An axis of a tensor, counted from either end."""
        rank = len(tensor.shape)
        return self.draw(st.integers(-rank, rank - 1))

    def axes(self, tensor: Tensor) -> tuple[int, ...]:
        """Some axes of a tensor, each once."""
        return tuple(self.draw(st.lists(st.integers(0, len(tensor.shape) - 1), unique=True, max_size=2)))

    def scalar(self, element: ElementType) -> Tensor:
        """A constant, often one that changes nothing."""
        value = self.draw(st.sampled_from(NEUTRAL))
        if element == BOOL:
            return self.builder.constant(value > 0, BOOL)
        return self.builder.constant(float(value) if element.is_float else value, element)


Move = Callable[[Pool], Tensor | tuple[Tensor, ...] | None]
"""One way to go on: what it adds to the pool, or None where nothing fits."""


def _static(tensor: Tensor) -> bool:
    return all(isinstance(extent, int) for extent in tensor.shape)


# --- element by element -------------------------------------------------------------------------------------


def unary(pool: Pool) -> Tensor | None:
    """A function of one number."""
    x = pool.real()
    return x and pool.builder.call(pool.draw(st.sampled_from(REAL_UNARY)), x)


def plain(pool: Pool) -> Tensor | None:
    """A function that integers have too."""
    x = pool.number()
    return x and pool.builder.call(pool.draw(st.sampled_from(UNARY)), x)


def twice(pool: Pool) -> Tensor | None:
    """The same function of its own result."""
    x = pool.number()
    operator = pool.draw(st.sampled_from(UNARY))
    return x and pool.builder.call(operator, pool.builder.call(operator, x))


def cast(pool: Pool) -> Tensor | None:
    """Another element type."""
    x = pool.pick()
    return x and pool.builder.call("layout.cast", x, types={"R": pool.draw(st.sampled_from((*TYPES, BF16)))})


def binary(pool: Pool) -> Tensor | None:
    """A function of two numbers: of two tensors that agree, or with a constant on either side."""
    x = pool.number()
    if x is None:
        return None
    y = pool.pick(lambda item: (item.element, item.shape) == (x.element, x.shape)) or x
    other = pool.draw(st.sampled_from([y, pool.scalar(x.element)]))
    pair = (x, other) if pool.draw(st.booleans()) else (other, x)
    operator = pool.draw(st.sampled_from((*BINARY, *COMPARE)))
    return pool.builder.call(operator, *pair)


def powers(pool: Pool) -> Tensor | None:
    """Division by and powers of constants."""
    x = pool.real()
    if x is None:
        return None
    return pool.builder.call(pool.draw(st.sampled_from(("math.div", "math.pow"))), x, pool.scalar(x.element))


def logic(pool: Pool) -> Tensor | None:
    """Truth values."""
    x = pool.pick(lambda item: item.element == BOOL)
    if x is None:
        return None
    y = pool.pick(lambda item: (item.element, item.shape) == (BOOL, x.shape)) or x
    both = pool.builder.call(pool.draw(st.sampled_from(LOGIC)), x, y)
    return pool.builder.call("math.not", both) if pool.draw(st.booleans()) else both


def select(pool: Pool) -> Tensor | None:
    """A choice element by element."""
    condition = pool.pick(lambda item: item.element == BOOL)
    x = condition and pool.pick(lambda item: item.shape == condition.shape)
    return x and pool.builder.call("math.select", condition, x, pool.scalar(x.element))


# --- along axes ---------------------------------------------------------------------------------------------


def reduce_axes(pool: Pool) -> Tensor | None:
    """A reduction."""
    x = pool.pick(lambda item: item.element != BOOL and len(item.shape) > 0)
    if x is None:
        return None
    return pool.builder.call(
        pool.draw(st.sampled_from(REDUCE)), x, axes=pool.axes(x), squeeze=pool.draw(st.booleans())
    )


def mean(pool: Pool) -> Tensor | None:
    """A mean, which is a composition."""
    x = pool.pick(lambda item: item.element in FLOATS and len(item.shape) > 0)
    return x and pool.builder.call("math.mean_reduce", x, axes=pool.axes(x))


def search(pool: Pool) -> Tensor | None:
    """The place of the largest."""
    x = pool.pick(lambda item: item.element in FLOATS and len(item.shape) > 0)
    return x and pool.builder.call("math.argmax", x, axis=pool.axis(x), squeeze=pool.draw(st.booleans()))


def transpose(pool: Pool) -> Tensor | None:
    """A new order of the dimensions, sometimes followed by another one."""
    x = pool.pick(lambda item: len(item.shape) > 1)
    if x is None:
        return None
    order = pool.draw(st.permutations(range(len(x.shape))))
    found = pool.builder.call("layout.transpose", x, perm=list(order))
    return found if pool.draw(st.booleans()) else pool.builder.call("layout.transpose", found)


def reshape(pool: Pool) -> Tensor | None:
    """A new shape of the same elements."""
    x = pool.pick(_static)
    if x is None:
        return None
    flat = pool.builder.call("layout.reshape", x, shape=[-1])
    return flat if pool.draw(st.booleans()) else pool.builder.call("layout.unsqueeze", flat, axes=[0])


def flatten(pool: Pool) -> Tensor | None:
    """All dimensions from one on as one."""
    x = pool.pick(lambda item: len(item.shape) > 0)
    return x and pool.builder.call("layout.flatten", x, axis=pool.axis(x))


def slices(pool: Pool) -> Tensor | None:
    """A part of a tensor, or all of it."""
    x = pool.pick(lambda item: len(item.shape) > 0 and _static(item))
    if x is None:
        return None
    axis = pool.axis(x)
    size = x.shape[axis]
    first = pool.draw(st.integers(0, 1))
    return pool.builder.call(
        "layout.slice", x, axes=[axis], begin=[first], end=[size if isinstance(size, int) else 1]
    )


def tile(pool: Pool) -> Tensor | None:
    """Repetition."""
    x = pool.pick(lambda item: len(item.shape) > 0)
    return x and pool.builder.call(
        "layout.tile", x, axes=[pool.axis(x)], repeats=[pool.draw(st.integers(1, 2))]
    )


def pad(pool: Pool) -> Tensor | None:
    """A border."""
    x = pool.pick(lambda item: len(item.shape) > 0)
    return x and pool.builder.call(
        "layout.pad", x, pool.scalar(x.element), axes=[pool.axis(x)], padding=[1, 0]
    )


# --- packs --------------------------------------------------------------------------------------------------


def concat(pool: Pool) -> Tensor | None:
    """Tensors one behind the other."""
    x = pool.pick(lambda item: len(item.shape) > 0)
    if x is None:
        return None
    others = [item for item in pool.tensors if (item.element, item.shape) == (x.element, x.shape)]
    parts = tuple(pool.draw(st.lists(st.sampled_from(others), min_size=1, max_size=3)))
    return pool.builder.call("layout.concat", parts, axis=pool.axis(x))


def sums(pool: Pool) -> Tensor | None:
    """A sum of several tensors."""
    x = pool.number()
    return x and pool.builder.call("math.sum_n", (x,) * pool.draw(st.integers(1, 3)))


def split(pool: Pool) -> tuple[Tensor, ...] | None:
    """A tensor cut into slices."""
    x = pool.pick(lambda item: len(item.shape) > 0 and _static(item))
    if x is None:
        return None
    (found,) = pool.builder.call_all("layout.unstack", x, axis=pool.axis(x))
    return found if isinstance(found, tuple) else None


# --- with variables -----------------------------------------------------------------------------------------


def matmul(pool: Pool) -> Tensor | None:
    """A product with a variable."""
    x = pool.pick(
        lambda item: item.element == F32 and len(item.shape) > 1 and isinstance(item.shape[-1], int)
    )
    if x is None:
        return None
    w = pool.builder.variable("w", F32, (x.shape[-1], pool.draw(st.integers(1, 3))))
    return pool.builder.call("linalg.matmul", x, w)


def conv(pool: Pool) -> Tensor | None:
    """A convolution, its input and filter sometimes transposed from another format."""
    x = pool.pick(
        lambda item: item.element == F32 and len(item.shape) in (3, 4) and isinstance(item.shape[-1], int)
    )
    if x is None:
        return None
    rank = len(x.shape)
    w = pool.builder.variable(
        "w", F32, (2, *[pool.draw(st.integers(1, 2)) for _ in range(rank - 2)], x.shape[-1])
    )
    order = [0, rank - 1, *range(1, rank - 1)]
    if pool.draw(st.booleans()):
        return pool.builder.call("nn.conv", x, w, data_format="NXC", filter_format="NXC")
    moved = pool.builder.call("layout.transpose", x, perm=list(order))
    turned = pool.builder.call("layout.transpose", w, perm=list(order))
    return pool.builder.call("nn.conv", moved, turned, stride=pool.draw(st.integers(1, 2)))


def pool_window(pool: Pool) -> Tensor | None:
    """A maximum over windows."""
    x = pool.pick(lambda item: item.element == F32 and len(item.shape) > 0)
    return x and pool.builder.call("nn.max_pool", x, axes=[pool.axis(x)], size=[2], padding=[1, 1])


def state(pool: Pool) -> Tensor | None:
    """A variable that keeps the last value."""
    x = pool.pick(lambda item: item.element in FLOATS and _static(item))
    if x is None or pool.flow < 1:
        return None
    w = pool.builder.variable("state", x.element, x.shape)
    found = pool.builder.call("math.add", w, x)
    pool.builder.update(w, found)
    return found


# --- data that decide ---------------------------------------------------------------------------------------


def gather(pool: Pool) -> Tensor | None:
    """Slices picked by constants."""
    x = pool.pick(lambda item: len(item.shape) > 0 and _static(item) and 0 not in item.shape)
    if x is None:
        return None
    index = pool.builder.constant((0, 0), I64, (2,))
    return pool.builder.call("layout.gather", x, index, axis=pool.axis(x))


def nonzero(pool: Pool) -> Tensor | None:
    """Places of what is not zero: as many as the data say."""
    x = pool.pick(lambda item: len(item.shape) > 0)
    return x and pool.builder.call("layout.nonzero", x)


def best(pool: Pool) -> Tensor | None:
    """The largest values."""
    x = pool.pick(lambda item: item.element == F32 and len(item.shape) > 0)
    if x is None:
        return None
    values, _ = pool.builder.call_all("algo.top_k", x, k=1, axis=pool.axis(x))
    return values if isinstance(values, Tensor) else None


def branch(pool: Pool) -> Tensor | tuple[Tensor, ...] | None:
    """A condition on data."""
    x = pool.number()
    if x is None or pool.flow < 1:
        return None
    zero = pool.builder.constant(0.0 if x.element.is_float else 0, x.element)
    positive = pool.builder.call("math.gt", x, zero)
    condition = pool.builder.call("math.any_reduce", positive, squeeze=True)
    then, otherwise = pool.draw(st.tuples(*[st.sampled_from(UNARY)] * 2))
    same = pool.draw(st.booleans())
    return pool.builder.branch(
        condition,
        lambda: [pool.builder.call(then, x)],
        lambda: [x if same else pool.builder.call("math.add", pool.builder.call(otherwise, x), x)],
    )


def fold(pool: Pool) -> Tensor | tuple[Tensor, ...] | None:
    """A loop over a count, or over the slices of a tensor."""
    x = pool.pick(
        lambda item: item.element in FLOATS and len(item.shape) > 0 and isinstance(item.shape[0], int)
    )
    if x is None or pool.flow < 1:
        return None
    if pool.draw(st.booleans()):
        operator = pool.draw(st.sampled_from(BINARY))
        found = pool.builder.fold(
            [x], lambda s: [pool.builder.call(operator, s, x)], pool.draw(st.integers(0, 3))
        )
    else:
        (slices_of,) = pool.builder.call_all("layout.unstack", x, axis=0)
        if not isinstance(slices_of, tuple) or not slices_of:
            return None
        found = pool.builder.fold(
            [slices_of[0]],
            lambda s, item: [pool.builder.call("math.add", s, item), pool.builder.call("math.neg", s)],
            scans=[slices_of],
        )
    return tuple(item for item in found if isinstance(item, Tensor))


def repeat(pool: Pool) -> Tensor | tuple[Tensor, ...] | None:
    """A loop that the data end."""
    x = pool.pick(lambda item: item.element == F32 and _static(item) and 0 not in item.shape)
    if x is None or pool.flow < 1:
        return None
    build, one = pool.builder, pool.builder.constant(1.0)

    def large(value: Tensor) -> Tensor:
        return build.call("math.gt", build.call("math.max_reduce", value, squeeze=True), one)

    found = build.fold([x], lambda value: [build.call("math.mul", value, 0.5)], 5, condition=large)
    return tuple(item for item in found if isinstance(item, Tensor))


def constant(pool: Pool) -> Tensor:
    """A constant of any shape."""
    shape = tuple(pool.draw(st.lists(st.integers(1, 3), max_size=2)))
    element = pool.draw(st.sampled_from((F32, F16, I64)))
    count = math.prod(shape)
    values = pool.draw(st.lists(st.integers(-3, 3), min_size=count, max_size=count))
    numbers = tuple(float(value) if element.is_float else value for value in values)
    return pool.builder.constant(numbers, element, shape)


def quantized(pool: Pool) -> Tensor | None:
    """A result that is quantised: marked in the pool, and everywhere when the graph is done."""
    x = pool.pick(lambda item: item.element == F32 and len(item.shape) > 1)
    return x and pool.builder.call("math.iden", x, results=["quantized"])


MOVES: Mapping[str, Move] = {
    **{move.__name__: move for move in (unary, plain, twice, cast, binary, powers, logic, select)},
    **{
        move.__name__: move
        for move in (reduce_axes, mean, search, transpose, reshape, flatten, slices, tile, pad)
    },
    **{
        move.__name__: move
        for move in (concat, sums, split, matmul, conv, pool_window, state, gather, nonzero)
    },
    **{move.__name__: move for move in (best, branch, fold, repeat, constant, quantized)},
}
