"""What is read of PyTorch: exported programs, tensors, open sizes and errors, as types of our own."""

from __future__ import annotations

import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Protocol, TypeAlias, cast

from lamella.base import dim
from lamella.base import dtype as types
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dim import Dim, Extent
from lamella.base.dtype import ElementType, Kind
from lamella.base.optional import need

# --- element types and numbers of PyTorch's tensors; the arrays share their memory --------------------------


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


class TorchTensor(Protocol):
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

    def detach(self) -> TorchTensor:
        """The numbers without their history."""

    def cpu(self) -> TorchTensor:
        """The same tensor in the memory of the processor."""

    def resolve_conj(self) -> TorchTensor:
        """The tensor without a delayed conjugation."""

    def resolve_neg(self) -> TorchTensor:
        """The tensor without a delayed negation."""

    def view(self, kind: object) -> TorchTensor:
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


def why_unreadable(tensor: TorchTensor) -> str | None:
    """Why a tensor has no numbers that could be read; None where it has."""
    if "FakeTensor" in type(tensor).__name__:
        return "is a fake tensor without numbers"
    if str(tensor.device) == "meta":
        return "lies on the device 'meta' and has no numbers"
    if str(tensor.layout) != "torch.strided":
        return f"has the layout {tensor.layout}"
    return None if element_of(tensor.dtype) else f"has elements of type {tensor.dtype}"


def array_of(tensor: TorchTensor) -> Array:
    """The numbers of a readable tensor; the array shares memory with a tensor of the processor."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    element = cast("ElementType", element_of(tensor.dtype))
    carrier = _CARRIERS.get(element)
    if carrier is None:
        return plain.numpy()
    return plain.view(getattr(need("torch"), carrier)).numpy().view(numpy_dtype(element))


def is_complex(tensor: TorchTensor) -> bool:
    """Whether a tensor holds complex numbers."""
    element = element_of(tensor.dtype)
    return element is not None and element.kind is Kind.COMPLEX


def memory_of(tensor: TorchTensor) -> object:
    """What equal tensors of one memory have in common: two names of it are one variable."""
    if why_unreadable(tensor) is not None or not tensor.numel():
        return id(tensor)
    return tensor.data_ptr(), str(tensor.device), str(tensor.dtype), tuple(tensor.shape), tensor.stride()


class FxNode(Protocol):
    """One line of an exported graph; `meta` holds its value on fake tensors, its module and its source line."""

    @property
    def op(self) -> str:
        """Its kind: `placeholder`, `get_attr`, `call_function` or `output`."""

    @property
    def name(self) -> str:
        """The name of its result."""

    @property
    def target(self) -> object:
        """What it calls, or the name of what it reads."""

    @property
    def args(self) -> tuple[FxArgument, ...]:
        """What is given by position."""

    @property
    def kwargs(self) -> Mapping[str, FxArgument]:
        """What is given by name."""

    @property
    def meta(self) -> Mapping[str, object]:
        """What the export remembers of it."""

    @property
    def users(self) -> Mapping[FxNode, None]:
        """The nodes that read it."""


FxArgument: TypeAlias = "FxNode | int | float | bool | str | Sequence[FxArgument] | object | None"
"""What a node is given: the result of another, a number, a word, a type of PyTorch, or a list."""


class FxNodes(Protocol):
    """The lines of a graph, in order."""

    @property
    def nodes(self) -> Iterable[FxNode]:
        """Placeholders first, the output last."""


class FxModule(Protocol):
    """A graph with the graphs and tensors that it refers to by name."""

    @property
    def graph(self) -> FxNodes:
        """Its lines."""


class ExportArgument(Protocol):
    """What an input or an output stands for."""

    @property
    def name(self) -> str:
        """The node."""


class PortSpec(Protocol):
    """One input or output of the graph: what it is to the module."""

    @property
    def kind(self) -> object:
        """Whether it is a parameter, a buffer, a constant, an input of the user or something else."""

    @property
    def arg(self) -> ExportArgument:
        """The node."""

    @property
    def target(self) -> str | None:
        """The name in the module."""


class ExportSignature(Protocol):
    """All inputs and outputs of the graph, in order."""

    @property
    def input_specs(self) -> Sequence[PortSpec]:
        """What the placeholders are."""

    @property
    def output_specs(self) -> Sequence[PortSpec]:
        """What the results are."""


class OutputTree(Protocol):
    """How results are nested in what the module gives."""

    @property
    def type(self) -> type[object] | None:
        """The class of a container; None for a leaf."""

    @property
    def context(self) -> object:
        """What the container knows of its children, such as the keys of a dictionary."""

    @property
    def num_children(self) -> int:
        """How many children it has."""

    def children(self) -> Sequence[OutputTree]:
        """Its children in order."""


class CallSpec(Protocol):
    """The trees of what a module takes and gives."""

    @property
    def out_spec(self) -> OutputTree | None:
        """The tree of what it gives."""


class SymbolRange(Protocol):
    """The values that a symbol may have."""

    @property
    def lower(self) -> object:
        """The smallest."""

    @property
    def upper(self) -> object:
        """The largest; it may be infinite."""


class ExportedProgram(Protocol):
    """An exported program: `torch.export.ExportedProgram`."""

    @property
    def graph_module(self) -> FxModule:
        """The graph and what it refers to."""

    @property
    def graph_signature(self) -> ExportSignature:
        """Its inputs and outputs."""

    @property
    def call_spec(self) -> CallSpec:
        """How they are nested."""

    @property
    def state_dict(self) -> Mapping[str, object]:
        """Parameters and buffers that persist, by their names."""

    @property
    def constants(self) -> Mapping[str, object]:
        """Tensors that the export lifted out of the code, and buffers that do not persist."""

    @property
    def range_constraints(self) -> Mapping[object, SymbolRange]:
        """The ranges of the symbols in shapes."""

    def run_decompositions(self, decomp_table: object) -> ExportedProgram:
        """The program in simpler operations."""


def kind_of(item: PortSpec) -> str:
    """The kind of an input or output in PyTorch's words, such as `PARAMETER`."""
    return str(getattr(item.kind, "name", item.kind))


def is_node(item: object) -> bool:
    """Whether something is a line of a graph."""
    return hasattr(item, "op") and hasattr(item, "meta") and hasattr(item, "users")


# --- sizes that PyTorch leaves open: expressions over symbols become extents of the graph -------------------


UNBOUNDED = 1 << 20
"""The largest value of an extent that PyTorch gives no end."""


class SympyExpression(Protocol):
    """What is read of a sympy expression."""

    @property
    def args(self) -> tuple[SympyExpression, ...]:
        """Its operands."""

    @property
    def free_symbols(self) -> Iterable[object]:
        """The symbols in it."""

    def __int__(self) -> int:
        """The number that it is."""


def expression_of(size: object) -> SympyExpression | None:
    """The expression of a symbolic number of PyTorch; None for what is none."""
    found = getattr(getattr(size, "node", None), "expr", None)
    return None if found is None else cast("SympyExpression", found)


class OpenExtents:
    """The symbols of a program and the extents that they are."""

    def __init__(self, ranges: Mapping[object, SymbolRange]) -> None:
        self._ranges = {str(name): _ends(item) for name, item in ranges.items()}
        self._extents: dict[str, Extent] = {}
        self._named: dict[str, tuple[int, int]] = {}

    def declare(self, size: object, name: str) -> None:
        """Name the symbol that a dimension of an input is, unless it has a name or is more than a symbol."""
        expression = expression_of(size)
        if expression is None or type(expression).__name__ != "Symbol" or str(expression) in self._extents:
            return
        low, high = self._ranges.get(str(expression), (0, UNBOUNDED))
        low = max(0, low)
        # Two symbols of one name are one extent: what both ranges allow.
        if name in self._named:
            before = self._named[name]
            low, high = max(low, before[0]), min(high, before[1])
        self._named[name] = (low, max(low, high))
        same = [key for key, extent in self._extents.items() if str(extent) == name]
        for key in (*same, str(expression)):
            self._extents[key] = dim.symbol(name, max(low, high), low)

    def ends(self, size: object) -> tuple[int, int] | None:
        """The least and the largest value of a number that is a symbol; None for what is none."""
        expression = expression_of(size)
        if isinstance(size, int) or expression is None or type(expression).__name__ != "Symbol":
            return None
        return self._ranges.get(str(expression))

    def bind(self, size: object, extent: Extent) -> None:
        """An extent that only the run tells is what PyTorch calls by a symbol."""
        self._extents[str(expression_of(size))] = extent

    def extent(self, size: object) -> Extent | None:
        """The extent that a size is; None where a graph cannot express it."""
        if isinstance(size, int):
            return int(size)
        expression = expression_of(size)
        return None if expression is None else self._convert(expression)

    def _convert(self, expression: SympyExpression) -> Extent | None:
        kind = type(expression).__name__
        if not expression.args:
            return self._extents.get(str(expression)) if kind == "Symbol" else _number(expression)
        operands = [self._convert(item) for item in expression.args]
        known = [item for item in operands if item is not None]
        rule = _RULES.get(kind)
        return rule(known) if rule is not None and len(known) == len(operands) else None


def _ends(item: SymbolRange) -> tuple[int, int]:
    return _bounded(item.lower, -UNBOUNDED), _bounded(item.upper, UNBOUNDED)


def _bounded(end: object, otherwise: int) -> int:
    """The end of a range; an infinite one is no integer of Python."""
    text = str(end)
    return min(int(text), UNBOUNDED) if text.lstrip("-").isdigit() else otherwise


def _number(expression: SympyExpression) -> int | None:
    text = str(expression)
    return int(text) if text.lstrip("-").isdigit() else None


def _power(operands: list[Extent]) -> Extent | None:
    base, exponent = operands
    if isinstance(exponent, Dim) or not 0 <= exponent <= 8:
        return None
    one: Extent = 1
    return reduce(dim.mul, [base] * exponent, one)


def _pair(rule: Callable[[Extent, Extent], Extent]) -> Callable[[list[Extent]], Extent | None]:
    return lambda operands: rule(operands[0], operands[1])


def _several(rule: Callable[[Extent, Extent], Extent]) -> Callable[[list[Extent]], Extent | None]:
    return lambda operands: reduce(rule, operands)


_RULES: Mapping[str, Callable[[list[Extent]], Extent | None]] = MappingProxyType(
    {
        "Add": _several(dim.add),
        "Mul": _several(dim.mul),
        "Max": _several(dim.larger),
        "Min": _several(dim.smaller),
        "FloorDiv": _pair(dim.floor_divide),
        "CleanDiv": _pair(dim.floor_divide),
        "CeilDiv": _pair(dim.ceil_divide),
        "Mod": _pair(dim.remainder),
        "PythonMod": _pair(dim.remainder),
        "Pow": _power,
        "PowByNatural": _power,
    }
)


# --- the exceptions with which PyTorch refuses something ----------------------------------------------------


_KNOWN: tuple[type[Exception], ...] = (
    *(
        ArithmeticError,
        AssertionError,
        AttributeError,
        EOFError,
        ImportError,
        LookupError,
        NameError,
        OSError,
    ),
    *(RuntimeError, SyntaxError, TypeError, ValueError),
    *(pickle.PickleError, struct.error, zipfile.BadZipFile, zlib.error),
)


def torch_errors() -> tuple[type[Exception], ...]:
    """What PyTorch raises on the way from a module or a file to a program; a full memory is not among them."""
    verifier, errors = need("torch._export.verifier"), need("torch._export.error")
    return (*_KNOWN, verifier.SpecViolationError, errors.ExportError, errors.InternalError)


def first_line(problem: BaseException) -> str:
    """What an exception says first."""
    lines = str(problem).strip().splitlines()
    return lines[0][:300] if lines else type(problem).__name__
