"""Adapters of Einsum, determinants, losses and signals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType

import numpy as np

from lamella.base import dim
from lamella.base.arrays import numpy_dtype
from lamella.base.dim import Extent
from lamella.base.dtype import F32, F64, I64
from lamella.bridge.onnx_to_graph.site import NodeSite, Results
from lamella.bridge.onnx_to_graph.values import known_value
from lamella.graph.nodes import Tensor

# --- Einsum -------------------------------------------------------------------------------------------------------

_DOTS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _einsum(site: NodeSite) -> Results:
    """Operands are multiplied two by two; what no later one and no result needs is summed at once."""
    tensors = list(site.tensors())
    inputs, output = _equation(site, tensors)
    terms = [_undiagonal(site, tensor, letters) for tensor, letters in zip(tensors, inputs, strict=True)]
    while len(terms) > 1:
        kept = set(output).union(*(letters for _, letters in terms[2:]))
        terms = [_contract(site, terms[0], terms[1], kept), *terms[2:]]
    tensor, letters = _summed(site, *terms[0], set(output))
    return site.transpose(tensor, [letters.index(item) for item in output])


def _equation(site: NodeSite, tensors: Sequence[Tensor]) -> tuple[list[str], str]:
    """The letters of the operands and of the result; dots stand for letters of their own."""
    text = site.text("equation", "").replace(" ", "")
    left, arrow, right = text.partition("->")
    words = left.split(",")
    if len(words) != len(tensors):
        site.refuse(f"has the equation '{text}' for {len(tensors)} tensors")
    used = set(text)
    spare = [item for item in _DOTS if item not in used]
    most = max([len(t.shape) - len(w) + 3 for t, w in zip(tensors, words, strict=True) if "..." in w] or [0])
    dots = "".join(spare[:most])
    inputs = []
    for tensor, word in zip(tensors, words, strict=True):
        count = len(tensor.shape) - len(word) + 3
        inputs.append(word.replace("...", dots[most - count :] if "..." in word and count else ""))
    if any(len(word) != len(t.shape) for word, t in zip(inputs, tensors, strict=True)):
        site.refuse(f"has the equation '{text}', which does not fit its tensors")
    if arrow:
        return inputs, right.replace("...", dots)
    letters = "".join(inputs)
    once = sorted(item for item in set(letters) - set(dots) if letters.count(item) == 1)
    return inputs, dots + "".join(once)


def _undiagonal(site: NodeSite, x: Tensor, letters: str) -> tuple[Tensor, str]:
    """A tensor with the diagonal of axes that have one letter; it comes last."""
    for item in dict.fromkeys(letters):
        while letters.count(item) > 1:
            first = letters.index(item)
            second = letters.index(item, first + 1)
            x = site.call("aten.diagonal", x, offset=0, dim1=first, dim2=second)
            letters = letters[:first] + letters[first + 1 : second] + letters[second + 1 :] + item
    return x, letters


def _summed(site: NodeSite, x: Tensor, letters: str, kept: set[str]) -> tuple[Tensor, str]:
    axes = tuple(place for place, item in enumerate(letters) if item not in kept)
    if not axes:
        return x, letters
    return (
        site.call("math.sum_reduce", x, axes=axes, squeeze=True),
        "".join(item for item in letters if item in kept),
    )


def _contract(
    site: NodeSite, left: tuple[Tensor, str], right: tuple[Tensor, str], kept: set[str]
) -> tuple[Tensor, str]:
    """Two operands as a product of matrices, with the letters that both have and keep as batches."""
    a, a_letters = _summed(site, *left, kept | set(right[1]))
    b, b_letters = _summed(site, *right, kept | set(a_letters))
    shared = [item for item in a_letters if item in b_letters]
    batch = [item for item in shared if item in kept]
    inner = [item for item in shared if item not in kept]
    rows = [item for item in a_letters if item not in b_letters]
    columns = [item for item in b_letters if item not in a_letters]
    sizes: dict[str, Extent] = {}
    for tensor, letters in ((a, a_letters), (b, b_letters)):
        for item, size in zip(letters, tensor.shape, strict=True):
            if sizes.get(item, 1) == 1:
                sizes[item] = size
    if not inner or not a.element.is_float or _stretches(a, a_letters, b, b_letters):
        return _product(site, (a, a_letters), (b, b_letters), kept)
    one: Extent = 1
    volume = {
        name: reduce(dim.mul, [sizes[item] for item in group], one)
        for name, group in (("inner", inner), ("rows", rows), ("columns", columns))
    }
    outer = [sizes[item] for item in batch]
    first = site.reshape(
        _ordered(site, a, a_letters, [*batch, *rows, *inner]), (*outer, volume["rows"], volume["inner"])
    )
    second = site.reshape(
        _ordered(site, b, b_letters, [*batch, *inner, *columns]), (*outer, volume["inner"], volume["columns"])
    )
    found = site.call("linalg.matmul", first, second)
    shape = [*outer, *(sizes[item] for item in rows), *(sizes[item] for item in columns)]
    return site.reshape(found, shape), "".join([*batch, *rows, *columns])


def _stretches(a: Tensor, a_letters: str, b: Tensor, b_letters: str) -> bool:
    """Whether an axis of extent 1 meets a longer one of its letter."""
    return any(
        a.shape[a_letters.index(item)] != b.shape[b_letters.index(item)]
        for item in a_letters
        if item in b_letters
    )


def _ordered(site: NodeSite, x: Tensor, letters: str, wanted: Sequence[str]) -> Tensor:
    return site.transpose(x, [letters.index(item) for item in wanted])


def _product(
    site: NodeSite, left: tuple[Tensor, str], right: tuple[Tensor, str], kept: set[str]
) -> tuple[Tensor, str]:
    """A product element by element, with broadcasting, and the sum of what is not kept."""
    letters = "".join(dict.fromkeys(left[1] + right[1]))
    spread = []
    for tensor, own in (left, right):
        order = [item for item in letters if item in own]
        moved = _ordered(site, tensor, own, order)
        shape = [moved.shape[order.index(item)] if item in own else 1 for item in letters]
        spread.append(site.reshape(moved, shape))
    return _summed(site, site.mul(*spread), letters, kept)


# --- determinants -------------------------------------------------------------------------------------------------


def _det(site: NodeSite) -> Results:
    """Elimination with the largest pivot of each column."""
    x = site.tensor()
    count = x.shape[-1]
    if not isinstance(count, int):
        site.refuse_open("has matrices with as many rows as", count)
    if count > 64:
        site.refuse(f"has matrices of {count} rows; 64 are the most")
    rank = len(x.shape)
    total: Tensor | None = None
    for _ in range(count):
        x, factor = _eliminated(site, x, rank)
        total = factor if total is None else site.mul(total, factor)
    return total if total is not None else site.scalar(1, x.element)


def _eliminated(site: NodeSite, x: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """A matrix without its first column and one row, and the factor of the determinant."""
    pivot, rest, sign = site.call_all("onnx.eliminate", x)
    return rest, site.mul(pivot, sign)


# --- losses -------------------------------------------------------------------------------------------------------


def _nll(site: NodeSite) -> Results:
    return _loss(site, site.tensor(0), site.tensor(1), site.optional(2))


def _loss(site: NodeSite, scores: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """The negated score of the class of each item, times the weight of that class."""
    ignored = site.attributes.get("ignore_index")
    given = {"ignored": ignored if isinstance(ignored, int) else -(1 << 40)}
    classes = site.cast(target, I64)
    if weight is None:
        one = site.scalar(1, scores.element)
        weight = site.make("layout.uniform", scores.element, one, shape=(scores.shape[1],))
    losses = site.call("onnx.pick_losses", scores, classes, weight, **given)
    reduction = site.text("reduction", "mean")
    if reduction == "none":
        return losses
    total = site.call("math.sum_reduce", losses, squeeze=True)
    if reduction == "sum":
        return total
    counted = site.call("onnx.pick_weights", classes, weight, **given)
    return site.call("math.div", total, site.call("math.sum_reduce", counted, squeeze=True))


def _cross_entropy(site: NodeSite) -> Results:
    scores = site.call("aten.log_softmax", site.tensor(0), dim=1)
    return [_loss(site, scores, site.tensor(1), site.optional(2)), scores]


# --- signals ------------------------------------------------------------------------------------------------------

_WINDOWS = MappingProxyType(
    {
        "HannWindow": (0.5, 0.5, 0.0),
        "HammingWindow": (25.0 / 46.0, 1.0 - 25.0 / 46.0, 0.0),
        "BlackmanWindow": (0.42, 0.5, 0.08),
    }
)


def _window(site: NodeSite) -> Results:
    """A sum of cosines; a periodic one ends one step before it begins again."""
    (size,) = site.extents(0, "the size")
    a0, a1, a2 = _WINDOWS[site.node.op_type]
    period = size if site.flag("periodic", True) else dim.larger(dim.sub(size, 1), 1)
    made = site.make("onnx.cosine_window", F64, size=size, period=period, a0=a0, a1=a1, a2=a2)
    return site.cast(made, site.type_of("output_datatype", F32))


def _dft(site: NodeSite) -> Results:
    x = site.tensor()
    rank = len(x.shape)
    if site.version < 20:
        axis = site.axis_in(site.integer("axis", 1), rank)
    else:
        axis = site.axis_in(site.integers(2, "the axis")[0] if site.has(2) else -2, rank)
    inverse, onesided = site.flag("inverse"), site.flag("onesided")
    have = x.shape[axis]
    length: Extent = dim.mul(dim.sub(have, 1), 2) if inverse and onesided else have
    if site.has(1):
        (length,) = site.extents(1, "the length")
    return _transformed(site, x, axis, length, inverse, onesided)


def _transformed(
    site: NodeSite, x: Tensor, axis: int, length: Extent, inverse: bool, onesided: bool
) -> Tensor:
    """A discrete Fourier transform along an axis, in 64 bits; the last axis holds real and imaginary parts."""
    element, x = x.element, site.cast(x, F64)
    if x.shape[-1] == 1:
        zero = site.scalar(0, x.element)
        x = site.call("layout.pad", x, zero, axes=(len(x.shape) - 1,), padding=(0, 1))
    have = x.shape[axis]
    if inverse and onesided:
        return site.cast(site.call("onnx.inverse_of_half", x, axis=axis, length=length), element)
    count = dim.smaller(have, length)
    if count != have:
        x = site.call("layout.slice", x, axes=(axis,), begin=(0,), end=(count,))
    size = dim.add(dim.floor_divide(length, 2), 1) if onesided else length
    found = site.call("onnx.fourier", x, axis=axis, length=length, size=size, inverse=inverse)
    return site.cast(found, element)


def _stft(site: NodeSite) -> Results:
    x = site.tensor()
    (step,) = site.integers(1, "the step")
    window = site.optional(2)
    if site.has(3):
        (length,) = site.integers(3, "the length of a frame")
    else:
        size = window.shape[0] if window is not None else x.shape[1]
        if not isinstance(size, int):
            site.refuse_open("has frames of the length", size)
        length = size
    if len(x.shape) == 2:
        x = site.reshape(x, (*x.shape, 1))
    frames = site.transpose(site.call("aten.unfold", x, dimension=1, size=length, step=step), (0, 1, 3, 2))
    if window is not None:
        frames = site.mul(frames, site.reshape(window, (length, 1)))
    return _transformed(site, frames, 2, length, inverse=False, onesided=site.flag("onesided", True))


MOST_BINS = 1 << 16
"""Bands and bins of a matrix that is computed before the run."""


def _mel(site: NodeSite) -> Results:
    """Triangles over the bins of a spectrum, at equal distances on the mel scale."""
    (bins,), (length,), (rate,) = (site.integers(index, "a number") for index in range(3))
    low, high = (site.numbers(index, "a frequency")[0] for index in (3, 4))
    if not (0 < bins <= MOST_BINS and 0 < length <= MOST_BINS and rate > 0):
        site.refuse(f"has {bins} bands of {length} bins")
    edges = [2595 * math.log10(1 + item / 700) for item in (low, high)]
    places = np.arange(bins + 2) * ((edges[1] - edges[0]) / (bins + 2)) + edges[0]
    hertz = 700 * (np.power(10, places / 2595) - 1)
    points = (((length + 1) * hertz) // rate).astype(int)
    found = np.zeros((length // 2 + 1, bins))
    for number in range(bins):
        start, middle, end = points[number : number + 3]
        if middle == start:
            found[middle, number] = 1
        else:
            found[start : middle + 1, number] = np.arange(middle - start + 1) / (middle - start)
        if end > middle:
            found[middle:end, number] = (end - np.arange(middle, end)) / (end - middle)
    return known_value(found.astype(numpy_dtype(site.type_of("output_datatype", F32))))


ALGEBRA: Mapping[str, Callable[[NodeSite], Results]] = MappingProxyType(
    {
        "Einsum": _einsum,
        "Det": _det,
        "NegativeLogLikelihoodLoss": _nll,
        "SoftmaxCrossEntropyLoss": _cross_entropy,
        **dict.fromkeys(_WINDOWS, _window),
        "DFT": _dft,
        "STFT": _stft,
        "MelWeightMatrix": _mel,
    }
)
"""Adapters by the names of ONNX's operators."""
