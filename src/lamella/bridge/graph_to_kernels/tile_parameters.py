"""The parameters of kernels while they are written: the tensors that they are, and promises of alignment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from lamella.bridge.graph_to_kernels.accesses import Access
from lamella.bridge.graph_to_kernels.tiled import Key
from lamella.kernels.build import Builder, FreshNames
from lamella.kernels.fragments import WARP
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Dictionary, DictionaryEntry, Memref, Parameter, Region, Scalar, Value
from lamella.lang.tensor.nodes.types import FLOATS, make_memref

FAULT = Parameter(Value("fault"), make_memref("i32", (1,)))
"""The last parameter of a kernel that may find a step without a value."""


@dataclass(frozen=True, slots=True)
class TileKernel:
    """A kernel with the tensors that its parameters are."""

    parameters: tuple[Parameter, ...]
    keys: tuple[Key, ...]
    body: Region
    groups: int
    attributes: Dictionary | None = None
    """The sizes that it is written for, where any will not do."""
    faults: bool = False
    """Whether it tells steps without a value by a flag."""


def group_sizes(subgroups: int, registers: int | None = None) -> Dictionary:
    """The attributes of a kernel: so many subgroups of threads in a work-group, and perhaps a register limit."""
    size = DictionaryEntry("work_group_size", (WARP * subgroups, 1))
    bound = () if registers is None else (DictionaryEntry("registers", registers),)
    return Dictionary((DictionaryEntry("subgroup_size", WARP), size, *bound))


def promise_pairs(kernel: TileKernel, outputs: Iterable[Value]) -> TileKernel:
    """The kernel with the alignment of two elements promised for its outputs and all their columns."""
    names = {item.name for item in outputs}
    parameters = []
    for item in kernel.parameters:
        type_ = item.type
        if item.value.name in names and isinstance(type_, Memref):
            steps = [step for step in type_.stride if step not in (None, 1)]
            if not any((step or 0) % 2 for step in steps) and type_.element in FLOATS:
                promise = DictionaryEntry("alignment", 2 * BYTES[type_.element])
                item = replace(item, attributes=Dictionary((promise,)))
        parameters.append(item)
    return replace(kernel, parameters=tuple(parameters))


@dataclass(slots=True)
class Parameters:
    """The parameters of a kernel while it is written: a tensor that is seen in two shapes is two of them."""

    found: dict[tuple[Key, Memref], Value] = field(default_factory=dict)

    def add(self, key: Key, access: Access) -> Access:
        """The access with the memref of its parameter."""
        stem = "".join(char if char.isascii() and char.isalnum() else "_" for char in key[0]).strip("_")
        name = f"{stem or 't'}{'' if key[1] is None else f'_{key[1]}'}"
        if name[0].isdigit():
            name = f"t{name}"
        taken = {FAULT.value.name, *(item.name for item in self.found.values())}
        while (key, access.type) not in self.found and name in taken:
            name += "_"
        value = self.found.setdefault((key, access.type), Value(name))
        return replace(access, memref=value)

    def close(self, builder: Builder, groups: int) -> TileKernel:
        """The kernel of what was written."""
        parameters = tuple(Parameter(value, type_) for (_, type_), value in self.found.items())
        return TileKernel(parameters, tuple(key for key, _ in self.found), builder.region(), groups)

    def builder(self) -> Builder:
        """A builder whose values have other names."""
        return Builder(FreshNames({item.name for item in self.found.values()}))


def tell_fault(builder: Builder, condition: Value) -> None:
    """Set the fault flag on a condition."""
    with builder.condition(condition) as inner:
        inner.store(inner.constant(1, Scalar("i32")), FAULT.value, [inner.constant(0)])
