"""Memrefs as views of memory: parameters, local memory, elements of groups, subview, expand and fuse."""

from __future__ import annotations

from dataclasses import replace

from lamella.lang.tensor.check.memory.forms.affine import Affine
from lamella.lang.tensor.check.memory.forms.integers import BITS, assumed_range
from lamella.lang.tensor.check.memory.forms.symbols import FREE, Symbol
from lamella.lang.tensor.check.memory.known import Condition, Family, Known, Number, View
from lamella.lang.tensor.check.memory.state import State
from lamella.lang.tensor.nodes import (
    BOOL,
    Dictionary,
    Expand,
    Fuse,
    Group,
    Memref,
    Parameter,
    Scalar,
    Subview,
)


def make_parameter(state: State, parameter: Parameter) -> Known:
    """What is known of a parameter: whoever launches the kernel chooses it."""
    type_, name = parameter.type, parameter.value.name
    if isinstance(type_, Memref):
        return _with_divisors(state, state.make_view(name, type_), parameter.attributes)
    if isinstance(type_, Group):
        ends = () if state.launch is None else state.launch.members.get(name, ())
        size = state.size(type_.size, f"size %{name}[0]")
        return Family(name, state.new_root(), type_.memref, size, tuple(ends))
    if type_ == BOOL:
        return Condition(parameter=name)
    if isinstance(type_, Scalar) and type_.name in BITS:
        low, high = assumed_range(type_.name, state.integers.strict)
        return Number(state.integers.new(Symbol(f"%{name}", FREE, low, high)))
    return Number()


def _with_divisors(state: State, view: View, attributes: Dictionary | None) -> View:
    """A memref whose unknown sizes are multiples of what `shape_gcd` promises."""
    promised = None if attributes is None else attributes.find("shape_gcd")
    if not isinstance(promised, tuple):
        return view
    sizes = list(view.sizes)
    for mode, (divisor, size) in enumerate(zip(promised, view.type.shape, strict=False)):
        if size is None and isinstance(divisor, int) and divisor > 1:
            sizes[mode] = state.size(None, f"size %{view.name}[{mode}]", divisor)
    return replace(view, sizes=tuple(sizes))


def load_member(state: State, family: Family, index: Affine, name: str) -> View:
    """An element of a group; the same index gives the same memory."""
    key = (family.root, index)
    if key not in state.members:
        state.members[key] = state.make_view(name, family.type, family.ends)
    return replace(state.members[key], name=name)


def make_subview(state: State, view: View, item: Subview, name: str) -> View:
    """A block of each mode; a mode of static size 0 goes away."""
    offsets = tuple(state.form(part.offset) for part in item.slices)
    kept = [mode for mode, part in enumerate(item.slices) if part.size != 0]
    sizes = tuple(state.form(item.slices[mode].size) for mode in kept)
    strides = tuple(view.strides[mode] for mode in kept)
    return View(name, view.root, item.type, sizes, strides, view.locate(offsets))


def make_expand(state: State, view: View, item: Expand, name: str) -> View:
    """A mode as several, the first of them fastest."""
    mode, factors = item.mode, tuple(state.form(size) for size in item.sizes)
    strides: list[Affine | None] = [view.strides[mode]]
    for factor in factors[:-1]:
        strides.append(_product(strides[-1], factor))
    sizes = (*view.sizes[:mode], *factors, *view.sizes[mode + 1 :])
    steps = (*view.strides[:mode], *strides, *view.strides[mode + 1 :])
    return View(name, view.root, item.type, sizes, steps, view.address)


def _product(stride: Affine | None, factor: Affine) -> Affine | None:
    if stride is None or (stride.terms and factor.terms):
        return None
    return stride.times(factor.constant) if not factor.terms else factor.times(stride.constant)


def make_fuse(state: State, view: View, item: Fuse, name: str) -> View:
    """Several modes as one."""
    size: Affine | None = view.sizes[item.first]
    for other in view.sizes[item.first + 1 : item.last + 1]:
        size = None if size is None else _product(size, other)
    if size is None:
        size = state.integers.new(Symbol(f"size %{name}[{item.first}]", low=0))
    sizes = (*view.sizes[: item.first], size, *view.sizes[item.last + 1 :])
    strides = (*view.strides[: item.first + 1], *view.strides[item.last + 1 :])
    return View(name, view.root, item.type, sizes, strides, view.address)
