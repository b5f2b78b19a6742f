"""Element types and numbers of PyTorch's tensors; the arrays share their memory."""

from __future__ import annotations

from types import MappingProxyType
from typing import Protocol, cast

from lamella.base import dtype as types
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import ElementType
from lamella.base.optional import need

_TYPES = MappingProxyType(
    {
        "torch.bool": types.BOOL,
        "torch.int8": types.I8,
        "torch.int16": types.I16,
        "torch.int32": types.I32,
        "torch.int64": types.I64,
        "torch.uint8": types.U8,
        "torch.uint16": types.U16,
        "torch.uint32": types.U32,
        "torch.uint64": types.U64,
        "torch.float8_e4m3fn": types.F8E4M3,
        "torch.float8_e5m2": types.F8E5M2,
        "torch.float16": types.F16,
        "torch.bfloat16": types.BF16,
        "torch.float32": types.F32,
        "torch.float64": types.F64,
        "torch.complex64": types.C32,
        "torch.complex128": types.C64,
    }
)
_CARRIERS = MappingProxyType({types.BF16: "int16", types.F8E4M3: "uint8", types.F8E5M2: "uint8"})
"""Types that NumPy has no word for travel as integers of their width."""


class Numbers(Protocol):
    """What is read of a tensor of PyTorch."""

    @property
    def dtype(self) -> object:
        """Its element type."""

    @property
    def layout(self) -> object:
        """How it lies in memory."""

    @property
    def device(self) -> object:
        """Where it lies."""

    @property
    def shape(self) -> tuple[object, ...]:
        """Its extents: integers, or expressions of symbols."""

    def stride(self) -> tuple[int, ...]:
        """The steps between neighbours along each axis."""

    def numel(self) -> int:
        """The number of its elements."""

    def data_ptr(self) -> int:
        """Where its memory begins."""

    def detach(self) -> Numbers:
        """The numbers without their history."""

    def cpu(self) -> Numbers:
        """The same tensor in the memory of the processor."""

    def resolve_conj(self) -> Numbers:
        """The tensor without a delayed conjugation."""

    def resolve_neg(self) -> Numbers:
        """The tensor without a delayed negation."""

    def view(self, kind: object) -> Numbers:
        """The same bits as another type."""

    def numpy(self) -> Array:
        """An array that shares the memory."""


def element_of(kind: object) -> ElementType | None:
    """The element type that a `torch.dtype` is; None where we have none for it."""
    return _TYPES.get(str(kind))


def is_type(item: object) -> bool:
    """Whether something is a `torch.dtype`."""
    return isinstance(item, need("torch").dtype)


def is_tensor(item: object) -> bool:
    """Whether something is a tensor of PyTorch."""
    return isinstance(item, need("torch").Tensor)


def why_unreadable(tensor: Numbers) -> str | None:
    """Why a tensor has no numbers that could be read; None where it has."""
    if "FakeTensor" in type(tensor).__name__:
        return "is a fake tensor without numbers"
    if str(tensor.device) == "meta":
        return "lies on the device 'meta' and has no numbers"
    if str(tensor.layout) != "torch.strided":
        return f"has the layout {tensor.layout}"
    return None if element_of(tensor.dtype) else f"has elements of type {tensor.dtype}"


def array_of(tensor: Numbers) -> Array:
    """The numbers of a readable tensor; the array shares memory with a tensor of the processor."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    element = cast("ElementType", element_of(tensor.dtype))
    carrier = _CARRIERS.get(element)
    if carrier is None:
        return plain.numpy()
    return plain.view(getattr(need("torch"), carrier)).numpy().view(numpy_dtype(element))


def memory_of(tensor: Numbers) -> object:
    """What equal tensors of one memory have in common: two names of it are one variable."""
    if why_unreadable(tensor) is not None or not tensor.numel():
        return id(tensor)
    return tensor.data_ptr(), str(tensor.device), str(tensor.dtype), tuple(tensor.shape), tensor.stride()
