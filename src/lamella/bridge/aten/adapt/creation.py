"""Operations that make tensors: filled ones, copies of a shape, ranges."""

from __future__ import annotations

from types import MappingProxyType

from lamella.base.dim import Dim
from lamella.base.dtype import BF16, F16, F32, I64, ElementType, Kind
from lamella.bridge.aten.nodes import Result
from lamella.bridge.aten.promotion import Number, number_type
from lamella.bridge.aten.site import Site, fit_number
from lamella.graph.nodes import Shape, Tensor


def _full(site: Site, value: Tensor | Number, element: ElementType, shape: Shape) -> Tensor:
    return site.call("aten.full", site.cast(value, element), size=shape)


def build_fill(site: Site) -> Result:
    """A tensor of one value; without a dtype it has the type of the value."""
    value = site.scalar("fill_value")
    told = value.element if isinstance(value, Tensor) else number_type(value)
    return _full(site, value, site.element() or told, site.extents("size"))


def build_create(site: Site) -> Result:
    """Zeros or ones; what is not filled is zero."""
    element = site.element() or F32
    names = [name for name in ("size", "stride", "physical_layout") if name in site.operands]
    return site.make(site.schema.operator, element, **{name: site.extents(name) for name in names})


def build_like(site: Site) -> Result:
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


def build_new(site: Site) -> Result:
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


def build_scalar(site: Site) -> Result:
    """A number as a tensor; one that only the run tells is a constant of it."""
    element, value = site.element() or F32, site.number("s")
    if isinstance(value, Dim):
        return site.call("aten.clone", site.cast(value, element))
    return site.make("aten.scalar_tensor", element, s=fit_number(value, element))


def build_eye(site: Site) -> Result:
    """Ones on the diagonal."""
    rows = site.extent("n")
    columns = site.extent("m") if "m" in site.operands else rows
    return site.make("aten.eye", site.element() or F32, n=rows, m=columns)


def build_linspace(site: Site) -> Result:
    """Numbers at equal distances, computed in 32 bits."""
    element = site.element() or F32
    if element not in (F32, F16, BF16):
        site.refuse("dtype", "f32, f16 and bf16 are possible")
    given = {name: site.real(name) for name in ("start", "end")}
    return site.cast(site.call("aten.linspace", steps=site.extent("steps"), **given), element)


def build_arange(site: Site) -> Result:
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


HOW = MappingProxyType(
    {
        **{"fill": build_fill, "create": build_create, "like": build_like, "new": build_new},
        **{"scalar": build_scalar, "arange": build_arange, "eye": build_eye, "linspace": build_linspace},
    }
)
"""The words of the table that are explained here."""
