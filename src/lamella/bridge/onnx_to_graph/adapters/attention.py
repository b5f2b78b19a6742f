"""Adapters of attention and of what stands around it: rotary embeddings, gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base import dim
from lamella.base.dim import Extent
from lamella.base.dtype import BOOL, I64, ElementType
from lamella.bridge.onnx_to_graph.site import NodeSite, Results
from lamella.graph.nodes import Tensor

BATCH, HEADS, ROWS, WIDTH = 0, 1, 2, 3
"""The axes of queries, keys and values."""


def by_heads(site: NodeSite, x: Tensor, heads: int) -> Tensor:
    """[batch, rows, heads * width] as [batch, heads, rows, width]."""
    width = dim.floor_divide(x.shape[2], heads)
    return site.transpose(site.reshape(x, (*x.shape[:2], heads, width)), (0, 2, 1, 3))


def joined_heads(site: NodeSite, x: Tensor) -> Tensor:
    """[batch, heads, rows, width] as [batch, rows, heads * width]."""
    moved = site.transpose(x, (0, 2, 1, 3))
    return site.reshape(moved, (*moved.shape[:2], dim.mul(moved.shape[2], moved.shape[3])))


def repeat_heads(site: NodeSite, x: Tensor, heads: Extent) -> Tensor:
    """Keys or values with each head as often as queries share it."""
    if x.shape[HEADS] == heads:
        return x
    times = dim.floor_divide(heads, x.shape[HEADS])
    return site.call("aten.repeat_interleave", x, repeats=times, dim=HEADS)


@dataclass(slots=True)
class Masks:
    """What keeps queries from keys: a bias that is added to their products, built up from several reasons."""

    site: NodeSite
    element: ElementType
    bias: Tensor | None = None

    def add(self, bias: Tensor) -> None:
        """Numbers to add."""
        given = self.site.cast(bias, self.element)
        self.bias = given if self.bias is None else self.site.add(self.bias, given)

    def keep(self, allowed: Tensor) -> None:
        """Truths: what is false is hidden."""
        site, kind = self.site, self.element
        self.add(site.call("math.select", allowed, site.scalar(0, kind), site.scalar(float("-inf"), kind)))

    def window(self, rows: Extent, columns: Extent, offset: Extent | Tensor, sides: tuple[int, int]) -> None:
        """Keys near the place of a query: so many before it and so many behind; -1 is any number.

        The place of row i is i + offset; offsets of their own for each batch are a tensor.
        """
        given = {"rows": rows, "columns": columns, "before": sides[0], "behind": sides[1]}
        if isinstance(offset, Tensor):
            self.keep(self.site.call("onnx.window_of_batch", self.site.cast(offset, I64), **given))
        else:
            self.keep(self.site.call("onnx.window", offset=offset, **given))

    def mask(self, given: Tensor, columns: Extent) -> None:
        """A mask of truths or of numbers; keys that it does not reach are hidden."""
        missing = dim.sub(columns, given.shape[-1])
        if missing != 0 and given.shape[-1] != 1:
            outside = self.site.scalar(0 if given.element == BOOL else float("-inf"), given.element)
            axis = (len(given.shape) - 1,)
            given = self.site.call("layout.pad", given, outside, axes=axis, padding=(0, missing))
        if given.element == BOOL:
            self.keep(given)
        else:
            self.add(given)


@dataclass(slots=True)
class Attended:
    """Attention: its result, and the stages that it went through."""

    output: Tensor
    products: Tensor
    capped: Tensor
    biased: Tensor
    weights: Tensor


def attend(
    site: NodeSite,
    heads: tuple[Tensor, Tensor, Tensor],
    scale: float | None,
    masks: Masks,
    softcap: float = 0.0,
    precision: ElementType | None = None,
) -> Attended:
    """Softmax of queries times keys, times values; a query without keys gives zeros."""
    query, key, value = heads
    count = query.shape[HEADS]
    key, value = repeat_heads(site, key, count), repeat_heads(site, value, count)
    factor = _root(site, query, scale)
    products = site.call("linalg.matmul", site.scaled(query, factor), site.scaled(key, factor), transB=True)
    capped = site.call("onnx.cap", products, cap=softcap) if softcap > 0 else products
    biased = capped if masks.bias is None else site.add(capped, masks.bias)
    wide = biased if precision is None else site.cast(biased, precision)
    plain = masks.bias is None
    weights = site.call("nn.softmax", wide, axes=(3,)) if plain else site.call("onnx.safe_softmax", wide)
    weights = site.cast(weights, query.element)
    return Attended(site.call("linalg.matmul", weights, value), products, capped, biased, weights)


def _root(site: NodeSite, query: Tensor, scale: float | None) -> float:
    """The factor of queries and of keys: the square root of the scale."""
    if scale is not None:
        return float(scale**0.5)
    width = query.shape[WIDTH]
    if not isinstance(width, int):
        site.refuse_open("has heads of the width", width)
    return float(width**-0.25)


def _attention(site: NodeSite) -> Results:
    query, key, value = (site.tensor(index) for index in range(3))
    flat = len(query.shape) == 3
    if flat:
        heads, shared = site.integer("q_num_heads"), site.integer("kv_num_heads")
        query, key, value = (
            by_heads(site, item, count) for item, count in ((query, heads), (key, shared), (value, shared))
        )
    past_key, past_value, lengths = site.optional(4), site.optional(5), site.optional(6)
    if past_key is not None and past_value is not None:
        key = site.call("layout.concat", (past_key, key), axis=ROWS)
        value = site.call("layout.concat", (past_value, value), axis=ROWS)
    masks = _masks(site, query, key, past_key, lengths)
    scale = site.attributes.get("scale")
    precision = site.type_of("softmax_precision", query.element)
    found = attend(
        site,
        (query, key, value),
        float(scale) if isinstance(scale, float | int) else None,
        masks,
        site.real("softcap", 0.0),
        precision,
    )
    output = joined_heads(site, found.output) if flat else found.output
    stages = (found.products, found.capped, found.biased, found.weights)
    return [output, key, value, stages[site.integer("qk_matmul_output_mode", 0)]]


def _masks(site: NodeSite, query: Tensor, key: Tensor, past: Tensor | None, lengths: Tensor | None) -> Masks:
    rows, columns = query.shape[ROWS], key.shape[ROWS]
    masks = Masks(site, query.element)
    given = site.optional(3)
    if given is not None:
        masks.mask(given, columns)
    offset: Extent | Tensor = 0 if past is None else past.shape[ROWS]
    if past is None and lengths is not None:
        offset = site.call("math.sub", site.cast(lengths, I64), site.builder.constant(rows, I64))
    if site.flag("is_causal"):
        masks.window(rows, columns, offset, (-1, 0))
    sides = (site.integer("left_window_size", -1), site.integer("right_window_size", -1))
    if max(sides) >= 0:
        masks.window(rows, columns, offset, sides)
    if lengths is not None:
        # Keys behind the length of a batch are padding.
        last = site.call("math.sub", site.cast(lengths, I64), site.scalar(1, I64))
        masks.window(1, columns, last, (-1, 0))
    return masks


# --- rotary embeddings --------------------------------------------------------------------------------------------


def rotate(site: NodeSite, x: Tensor, caches: tuple[Tensor, Tensor], interleaved: bool, count: int) -> Tensor:
    """[batch, rows, heads, width] with its first elements turned by angles of [batch or 1, rows, 1, count / 2]."""
    cos, sin = caches
    width = x.shape[3]
    turned = x
    rest: Sequence[Tensor] = ()
    if width != count:
        turned, *rest = site.call_all("layout.split", x, axis=3, sizes=(count, dim.sub(width, count)))
    operator = "onnx.rotate_pairs" if interleaved else "onnx.rotate_halves"
    found = site.call(operator, turned, site.cast(cos, x.element), site.cast(sin, x.element))
    return site.call("layout.concat", (found, *rest), axis=3) if rest else found


def _rotary(site: NodeSite) -> Results:
    x = site.tensor()
    flat = len(x.shape) == 3
    if flat:
        heads = site.integer("num_heads")
        work = site.reshape(x, (*x.shape[:2], heads, dim.floor_divide(x.shape[2], heads)))
    else:
        work = site.transpose(x, (0, 2, 1, 3))
    caches = [site.tensor(1), site.tensor(2)]
    places = site.optional(3)
    if places is not None:
        index = site.cast(places, I64)
        caches = [site.call("onnx.gather", item, index, axis=0) for item in caches]
    cos, sin = (site.call("layout.unsqueeze", item, axes=(2,)) for item in caches)
    half = cos.shape[3]
    if not isinstance(half, int):
        site.refuse_open("turns a number of elements of", half)
    turned = rotate(site, work, (cos, sin), site.flag("interleaved"), 2 * half)
    return site.reshape(turned, x.shape) if flat else site.transpose(turned, (0, 2, 1, 3))


def _swiglu(site: NodeSite) -> Results:
    gate, up = site.tensor(0), site.tensor(1)
    return site.mul(site.call("onnx.swish", gate, alpha=site.real("alpha", 1.0)), up)


ATTENTION: Mapping[str, Callable[[NodeSite], Results]] = MappingProxyType(
    {"Attention": _attention, "RotaryEmbedding": _rotary, "SwiGLU": _swiglu}
)
"""Adapters by the names of ONNX's operators."""
