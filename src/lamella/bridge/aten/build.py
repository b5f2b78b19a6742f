"""Lowering of ATen calls to operations of a graph: the adapter that each row of the table names, and type promotion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from lamella.base.dim import Dim, TooComplex
from lamella.base.dtype import BF16, F16, F32, I64, ElementType, Kind
from lamella.base.errors import Found
from lamella.base.origin import Origin, with_origin
from lamella.bridge.aten.adapt_composed import COMPOSED
from lamella.bridge.aten.adapt_dynamic import DYNAMIC
from lamella.bridge.aten.adapt_layout import LAYOUTS, NETWORKS
from lamella.bridge.aten.adapt_linalg import LINALG
from lamella.bridge.aten.adapt_numeric import ELEMENTWISE, REDUCTIONS
from lamella.bridge.aten.adapt_random import RANDOM
from lamella.bridge.aten.nodes import AtenCall, Result
from lamella.bridge.aten.promotion import Number, number_type
from lamella.bridge.aten.site import CallSite, build_first, build_plain, fit_number, volume
from lamella.bridge.aten.table import rows
from lamella.graph.build import Builder
from lamella.graph.nodes import Shape, Tensor
from lamella.lang.skriptnd.rules.aten import UNSAYABLE

# --- operations that make tensors: filled ones, copies of a shape, ranges -----------------------------------


def _full(site: CallSite, value: Tensor | Number, element: ElementType, shape: Shape) -> Tensor:
    return site.call("aten.full", site.cast(value, element), size=shape)


def build_fill(site: CallSite) -> Result:
    """A tensor of one value; without a dtype it has the type of the value."""
    value = site.scalar("fill_value")
    implied = value.element if isinstance(value, Tensor) else number_type(value)
    return _full(site, value, site.element() or implied, site.extents("size"))


def build_create(site: CallSite) -> Result:
    """Zeros or ones; what is not filled is zero."""
    element = site.element() or F32
    names = [name for name in ("size", "stride", "physical_layout") if name in site.operands]
    return site.make(site.schema.operator, element, **{name: site.extents(name) for name in names})


def build_like(site: CallSite) -> Result:
    """A tensor of the shape of another, and of its type unless another is given."""
    operand = site.tensor("self")
    element = site.element() or operand.element
    if "fill_value" in site.operands:
        value = site.scalar("fill_value")
        if element != operand.element:
            return _full(site, value, element, operand.shape)
        return site.call("aten.full_like", operand, site.cast(value, element))
    if element == operand.element:
        return site.call(site.schema.operator, operand)
    operator = "aten.ones" if site.schema.operator == "aten.ones_like" else "aten.zeros"
    return site.make(operator, element, size=operand.shape)


def build_new(site: CallSite) -> Result:
    """A tensor of the type of another, or of a given one."""
    operand, shape = site.tensor("self"), site.extents("size")
    element = site.element() or operand.element
    value = [site.cast(site.scalar("fill_value"), element)] if "fill_value" in site.operands else []
    if element == operand.element:
        return site.call(site.schema.operator, operand, *value, size=shape)
    if value:
        return _full(site, value[0], element, shape)
    operator = "aten.ones" if site.schema.operator == "aten.new_ones" else "aten.zeros"
    return site.make(operator, element, size=shape)


def build_scalar(site: CallSite) -> Result:
    """A number as a tensor; one that only the run tells is a constant of it."""
    element, value = site.element() or F32, site.number("s")
    if isinstance(value, Dim):
        return site.call("aten.clone", site.cast(value, element))
    return site.make("aten.scalar_tensor", element, s=fit_number(value, element))


def build_eye(site: CallSite) -> Result:
    """Ones on the diagonal."""
    rows = site.extent("n")
    columns = site.extent("m") if "m" in site.operands else rows
    return site.make("aten.eye", site.element() or F32, n=rows, m=columns)


def build_linspace(site: CallSite) -> Result:
    """Numbers at equal distances, computed in 32 bits."""
    element = site.element() or F32
    if element not in (F32, F16, BF16):
        site.refuse("dtype", "f32, f16 and bf16 are possible")
    given = {name: site.real(name) for name in ("start", "end")}
    return site.cast(site.call("aten.linspace", steps=site.extent("steps"), **given), element)


def build_arange(site: CallSite) -> Result:
    """A range; a size in it makes it a range of integers, converted where a dtype asks for another type."""
    numbers = {name: site.number(name) for name in ("start", "end", "step") if name in site.operands}
    fractions = any(isinstance(value, float) for value in numbers.values())
    element = site.element() or (F32 if fractions else I64)
    symbolic = any(isinstance(value, Dim) for value in numbers.values())
    kept = I64 if symbolic or element.kind is Kind.BOOL else element
    for name, value in numbers.items():
        if kept.is_integer and isinstance(value, float) and not value.is_integer():
            site.refuse(name, f"a range of {kept} has whole numbers")
    given = {name: fit_number(value, kept) for name, value in numbers.items()}
    return site.cast(site.make("aten.arange", kept, **given), element)


CREATION = MappingProxyType(
    {
        **{"fill": build_fill, "create": build_create, "like": build_like, "new": build_new},
        **{"scalar": build_scalar, "arange": build_arange, "eye": build_eye, "linspace": build_linspace},
    }
)
"""Adapters of calls that create tensors, by the words of the table."""


Build = Callable[[CallSite], Result]


def build_call(builder: Builder, call: AtenCall, origin: Origin | None = None) -> Result:
    """Add what a call computes to a graph: defaults filled, types promoted as torch does it.

    Gives the tensor, the size, or a tuple of them; None where nothing is computed. Found says why a call cannot be
    said.
    """
    row = rows().get(call.schema.name)
    around, builder.origin = builder.origin, origin
    try:
        site = CallSite.of(builder, call)
        return _build("refuse" if row is None else row.how, site)
    except TooComplex:
        finding = site.problem(UNSAYABLE, reason="the sizes of its results cannot be followed")
        raise Found(*(with_origin(item, origin) for item in finding.findings)) from None
    except Found as problem:
        raise Found(*(with_origin(item, origin) for item in problem.findings)) from None
    finally:
        builder.origin = around


def _build(how: str, site: CallSite) -> Result:
    """Call the adapter of a row; torch takes a tensor without dimensions for one of a single dimension."""
    given = site.operands.get("dim") not in (None, ())
    names = _ALONG.get(how, ()) if given else ()
    raised = {name: site.call("aten.unsqueeze", item, dim=0) for name, item in _points(site, names)}
    if not raised:
        return _ADAPTERS[how](site)
    return _lower(site, _ADAPTERS[how](replace(site, operands={**site.operands, **raised})))


def _points(site: CallSite, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
    """The operands of some names that are tensors without dimensions."""
    for name in names:
        operand = site.operands.get(name)
        if isinstance(operand, Tensor) and not operand.shape:
            yield name, operand


def _lower(site: CallSite, result: Result) -> Result:
    if isinstance(result, tuple):
        return tuple(_lower(site, item) for item in result)
    return (
        site.call("aten.squeeze", result, dim=(0,)) if isinstance(result, Tensor) and result.shape else result
    )


def _drop(_: CallSite) -> Result:
    """What only tests a size or a type, which the graph knows."""
    return None


def _size(site: CallSite) -> Result:
    """An extent of a tensor, or how many elements it has."""
    shape = site.tensor("self").shape
    if "dim" in site.operands:
        dim = site.integer("dim")
        if not -len(shape) <= dim < len(shape):
            site.refuse("dim", f"the tensor has {len(shape)} dimensions")
        return shape[dim]
    return volume(shape)


def _refuse(site: CallSite) -> Result:
    site.give_up("its result, or the shape of it, depends on the numbers of a tensor")


_ADAPTERS: Mapping[str, Build] = MappingProxyType(
    {
        **{"drop": _drop, "size": _size, "refuse": _refuse},
        **{"plain": build_plain, "first": build_first},
        **ELEMENTWISE,
        **REDUCTIONS,
        **CREATION,
        **LAYOUTS,
        **NETWORKS,
        **COMPOSED,
        **DYNAMIC,
        **RANDOM,
        **LINALG,
    }
)
"""The adapter of each word of the table."""
_ALONG: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys((*REDUCTIONS, "softmax", "safe_softmax", "squeeze", "kth", "nanmedian"), ("self",)),
        "softmax_backward": ("grad_output", "output"),
    }
)
"""What works along dimensions, and the operands that have them."""
