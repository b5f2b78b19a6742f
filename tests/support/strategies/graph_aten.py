"""Random graphs of ATen operations, with parameters, numbers, tuples and open extents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st

from lamella.base.dim import symbol
from lamella.base.dtype import BF16, BOOL, F16, F32, F64, I32, I64
from lamella.base.errors import Found
from lamella.bridge.aten.build import build_call
from lamella.bridge.aten.nodes import AtenCall, Operand
from lamella.bridge.aten.table import find_schema
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from tests.support.strategies.graph import library

STEPS = 8
FLOATS = (F32, F64, F16, BF16)
TYPES = (F32, F32, F32, *FLOATS, I64, I32, BOOL)
NUMBERS = (1, 2, -1, 0.5, 1.0, -0.0, True, 3)
UNARY = (
    *("relu", "exp", "neg", "abs", "sigmoid", "tanh", "gelu", "silu", "clone", "alias", "detach"),
    *("rsqrt", "floor", "sign"),
)


@dataclass
class Pool:
    """A graph under construction and what can be used in it."""

    draw: st.DrawFn
    builder: Builder
    tensors: list[Tensor] = field(default_factory=list)

    def pick(self, fits: Callable[[Tensor], bool] = lambda _: True) -> Tensor | None:
        """A tensor that fits, the newest ones more often."""
        found = [item for item in self.tensors if fits(item)]
        return self.draw(st.sampled_from([*found, *found[-3:]])) if found else None

    def ranked(self, least: int = 1) -> Tensor | None:
        """A tensor of some dimensions."""
        return self.pick(lambda item: len(item.shape) >= least)

    def axis(self, tensor: Tensor) -> int:
        """A dimension, counted from either end."""
        rank = len(tensor.shape)
        return self.draw(st.integers(-rank, rank - 1))

    def number(self) -> int | float:
        """A number of any kind."""
        return self.draw(st.sampled_from(NUMBERS))

    def call(self, name: str, /, **operands: Operand) -> None:
        """Call an overload and keep its tensors."""
        schema = find_schema(f"aten.{name}")
        assert schema is not None, name
        result = build_call(self.builder, AtenCall(schema, operands))
        for item in result if isinstance(result, tuple) else (result,):
            if isinstance(item, Tensor):
                self.tensors.append(item)


Move = Callable[[Pool], None]


def unary(pool: Pool) -> None:
    """A function of one tensor."""
    x = pool.pick()
    if x is not None:
        pool.call(f"{pool.draw(st.sampled_from(UNARY))}.default", self=x)


def binary(pool: Pool) -> None:
    """Arithmetic of two tensors, or of a tensor and a number."""
    x = pool.pick()
    if x is None:
        return
    name = pool.draw(st.sampled_from(("add", "sub", "mul", "rsub", "gt", "le", "div")))
    y = pool.draw(st.sampled_from([item for item in pool.tensors if item.shape in (x.shape, ())]))
    alpha = {"alpha": pool.draw(st.sampled_from((1, 2)))} if name in ("add", "sub", "rsub") else {}
    if pool.draw(st.booleans()):
        pool.call(f"{name}.Tensor", self=x, other=y, **alpha)
    else:
        pool.call(f"{name}.Scalar", self=x, other=pool.number(), **alpha)


def choose(pool: Pool) -> None:
    """A choice element by element."""
    mask = pool.pick(lambda item: item.element == BOOL)
    if mask is None:
        return
    x = pool.pick(lambda item: item.shape == mask.shape) or mask
    way = pool.draw(st.sampled_from(("masked_fill.Scalar", "where.ScalarOther", "where.self")))
    if way == "masked_fill.Scalar":
        pool.call(way, self=x, mask=mask, value=pool.number())
    else:
        pool.call(way, condition=mask, self=x, other=x if way == "where.self" else pool.number())


def reshape(pool: Pool) -> None:
    """Another shape of the same elements."""
    x = pool.ranked()
    if x is None:
        return
    way = pool.draw(st.sampled_from(("view", "squeeze", "squeeze_dim", "squeeze_dims", "unsqueeze")))
    if way == "view":
        pool.call("view.default", self=x, size=(*x.shape[:-1], -1, 1))
    elif way == "squeeze":
        pool.call("squeeze.default", self=x)
    elif way == "squeeze_dims":
        pool.call("squeeze.dims", self=x, dim=(pool.axis(x),))
    else:
        pool.call("squeeze.dim" if way == "squeeze_dim" else "unsqueeze.default", self=x, dim=pool.axis(x))


def move_axes(pool: Pool) -> None:
    """Dimensions in another order."""
    x = pool.ranked(2)
    if x is not None and pool.draw(st.booleans()):
        pool.call("transpose.int", self=x, dim0=pool.axis(x), dim1=pool.axis(x))
    elif x is not None:
        pool.call("permute.default", self=x, dims=tuple(pool.draw(st.permutations(range(len(x.shape))))))


def cut(pool: Pool) -> None:
    """A part, or all parts."""
    x = pool.ranked()
    if x is None:
        return
    axis = pool.axis(x)
    way = pool.draw(st.sampled_from(("slice.Tensor", "select.int", "split.Tensor", "unbind.int")))
    if way == "slice.Tensor":
        pool.call(way, self=x, dim=axis, start=pool.draw(st.integers(-1, 1)), end=x.shape[axis])
    elif way == "split.Tensor":
        pool.call(way, self=x, split_size=pool.draw(st.integers(1, 3)), dim=axis)
    else:
        pool.call(way, self=x, dim=axis, **({"index": 0} if way == "select.int" else {}))


def join(pool: Pool) -> None:
    """Tensors one behind the other, or on top of each other."""
    x = pool.ranked()
    if x is None:
        return
    alike = [item for item in pool.tensors if (item.element, item.shape) == (x.element, x.shape)]
    parts = tuple(pool.draw(st.lists(st.sampled_from(alike), min_size=1, max_size=3)))
    pool.call(pool.draw(st.sampled_from(("cat.default", "stack.default"))), tensors=parts, dim=pool.axis(x))


def reduce_axes(pool: Pool) -> None:
    """A reduction."""
    x = pool.pick(lambda item: item.element in FLOATS and len(item.shape) > 0)
    if x is None:
        return
    way = pool.draw(
        st.sampled_from(("mean.dim", "sum.dim_IntList", "softmax.int", "max.dim", "amax.default"))
    )
    axis: Operand = pool.axis(x)
    if way in ("mean.dim", "sum.dim_IntList", "amax.default"):
        pool.call(way, self=x, dim=(axis,), keepdim=pool.draw(st.booleans()))
    else:
        pool.call(way, self=x, dim=axis)


def convert(pool: Pool) -> None:
    """Another element type."""
    x = pool.pick()
    if x is not None:
        pool.call("_to_copy.default", self=x, dtype=pool.draw(st.sampled_from(TYPES)))


def create(pool: Pool) -> None:
    """Tensors made from sizes: of a number, of a range."""
    x = pool.ranked()
    if x is None:
        return
    way = pool.draw(st.sampled_from(("full.default", "arange.start_step", "zeros_like.default", "expand")))
    if way == "full.default":
        pool.call(way, size=x.shape, fill_value=pool.number(), dtype=pool.draw(st.sampled_from(TYPES)))
    elif way == "arange.start_step":
        pool.call(way, start=0, end=x.shape[0], step=1)
    elif way == "expand":
        pool.call("expand.default", self=x, size=(2, *x.shape))
    else:
        pool.call(way, self=x)


def multiply(pool: Pool) -> None:
    """Layers with parameters of their own."""
    x = pool.pick(lambda item: item.element in FLOATS and len(item.shape) > 1 and _is_static(item))
    if x is None:
        return
    width = x.shape[-1]
    weight = pool.builder.variable("layer.weight", x.element, (2, width))
    bias = pool.builder.variable("layer.bias", x.element, (2,))
    if pool.draw(st.booleans()):
        pool.call("linear.default", input=x, weight=weight, bias=pool.draw(st.sampled_from((bias, None))))
    else:
        scale = pool.builder.variable("norm.weight", x.element, (width,))
        pool.call(
            "native_layer_norm.default", input=x, normalized_shape=(width,), weight=scale, bias=None, eps=1e-5
        )


def _is_static(tensor: Tensor) -> bool:
    return all(isinstance(extent, int) for extent in tensor.shape[-1:])


def look_up(pool: Pool) -> None:
    """Rows of a table."""
    x = pool.pick(lambda item: item.element == I64)
    if x is not None:
        table = pool.builder.variable("table", pool.draw(st.sampled_from(FLOATS)), (5, 3))
        pool.call("embedding.default", weight=table, indices=x)


MOVES: Mapping[str, Move] = {
    **{move.__name__: move for move in (unary, binary, choose, reshape, move_axes, cut, join)},
    **{move.__name__: move for move in (reduce_axes, convert, create, multiply, look_up)},
}


@st.composite
def aten_models(draw: st.DrawFn, open_extents: bool = True) -> Model:
    """A model of a few inputs and some ATen operations."""
    builder = Builder(library(), "G")
    pool = Pool(draw, builder)
    sizes = st.integers(1, 4)
    extents = sizes | st.just(symbol("n", 4, 1)) if open_extents else sizes
    for number in range(draw(st.integers(1, 3))):
        shape = draw(st.lists(extents, max_size=3))
        pool.tensors.append(builder.input(f"x{number}", draw(st.sampled_from(TYPES)), shape))
    for move in draw(st.lists(st.sampled_from(list(MOVES.values())), min_size=3, max_size=STEPS)):
        try:
            move(pool)
        except Found:  # this way leads nowhere
            continue
    outputs = draw(st.lists(st.sampled_from(pool.tensors), min_size=1, max_size=3, unique=True))
    return Model(builder.finish(*outputs), library())
