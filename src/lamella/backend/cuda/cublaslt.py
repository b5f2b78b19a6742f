"""cuBLASLt through ctypes, where it is installed: it computes kernels that are one GEMM and allow it.

It is one more candidate for autotuning; nothing needs it. Sums are those of f32, without TF32.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from lamella.backend.cuda.driver import WORK, Stream, device, find_library
from lamella.base.errors import InputError, Unsupported
from lamella.base.records import dataclass

if TYPE_CHECKING:
    from lamella.kernels.native_products import Matrix, NativeProduct

LIBRARIES = ("libcublasLt.so.13", "libcublasLt.so.12")
WHEELS = ("nvidia/cu13/lib", "nvidia/cublas/lib", "torch/lib")
"""The folders of Python packages that have it."""
POINTER, SIZE, INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (POINTER,),
    "cublasLtMatmulDescCreate": (POINTER, INT, INT),
    "cublasLtMatmulDescSetAttribute": (POINTER, INT, POINTER, SIZE),
    "cublasLtMatrixLayoutCreate": (POINTER, INT, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "cublasLtMatmulPreferenceCreate": (POINTER,),
    "cublasLtMatmulPreferenceSetAttribute": (POINTER, INT, POINTER, SIZE),
    "cublasLtMatmulPreferenceDestroy": (POINTER,),
    "cublasLtMatmulAlgoGetHeuristic": (*(POINTER,) * 7, INT, POINTER, POINTER),
    "cublasLtMatmul": (*(POINTER,) * 14, SIZE, POINTER),
}
"""The parameters of each function that we call."""
COMPUTE_F32, REAL_F32 = 68, 0
KINDS = {"f32": REAL_F32, "f16": 2, "bf16": 14}
TRANSPOSES = (3, 4)
"""Attributes of a product: whether its factors are transposed."""
MOST_WORKSPACE, ALIGNMENTS = 1, (5, 6, 7, 8)
"""Attributes of a wish: the bytes that it may use, and those of which addresses are multiples."""
WORKSPACE = 32 << 20
"""Bytes that a product may use beside its matrices: what NVIDIA advises for Hopper."""
MOST_ALIGNED = 256


class _Proposal(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", SIZE),
        ("state", INT),
        ("waves", ctypes.c_float),
        ("reserved", INT * 4),
    )


@cache
def _library() -> ctypes.CDLL | None:
    """The library under one of its names, else where packages of Python put it; None where there is none."""
    return find_library(LIBRARIES, WHEELS)


@cache
def _version() -> str:
    """The version of the library; empty where there is none."""
    library = _library()
    if library is None:
        return ""
    library.cublasLtGetVersion.restype = SIZE
    return str(library.cublasLtGetVersion())


@cache
def usable_version() -> str:
    """The version of the library; empty where there is none, or it does not start on this device."""
    try:
        return _version() if _version() and _handle() else ""
    except InputError:
        return ""


def describe() -> str:
    """Whether the library is there, for people."""
    found = _version()
    return (
        f"cuBLASLt {found}: --tune measures it beside our kernels" if found else "cuBLASLt is not installed"
    )


@cache
def _functions() -> dict[str, Callable[..., int]]:
    found: dict[str, Callable[..., int]] = {}
    for name, parameters in SIGNATURES.items():
        function = getattr(_library(), name)
        function.argtypes, function.restype = parameters, INT
        found[name] = function
    return found


def _call(name: str, *arguments: object) -> None:
    status = _functions()[name](*arguments)
    if status:
        raise InputError(
            f"cuBLASLt failed at '{name}' with status {status}", hint="--strict-backend does without it"
        )


def _made(name: str, *arguments: object) -> int:
    """What a function makes."""
    found = POINTER()
    _call(name, ctypes.byref(found), *arguments)
    return found.value or 0


@cache
def _handle() -> int:
    device()
    return _made("cublasLtCreate")


class LibraryProduct:
    """A GEMM by the library's heuristic algorithm; Unsupported where it has none.

    Addresses are multiples of as many bytes as is said, in the order of the operands and the output.
    """

    def __init__(self, product: NativeProduct, alignments: tuple[int, int, int]) -> None:
        if not usable_version():
            raise Unsupported("there is no cuBLASLt here")
        sides = product.left, product.right, product.output
        self._handle = _handle()
        self._kind = _made("cublasLtMatmulDescCreate", COMPUTE_F32, REAL_F32)
        for attribute, item in zip(TRANSPOSES, sides, strict=False):
            flag = ctypes.c_int32(item.transposed)
            _call("cublasLtMatmulDescSetAttribute", self._kind, attribute, ctypes.byref(flag), 4)
        self._layouts = [_layout(item) for item in sides]
        self._proposal = self._propose(alignments)
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)

    def _propose(self, alignments: tuple[int, int, int]) -> _Proposal:
        wish, found, count = _made("cublasLtMatmulPreferenceCreate"), _Proposal(), ctypes.c_int()
        most = ctypes.c_uint64(WORKSPACE)
        _call("cublasLtMatmulPreferenceSetAttribute", wish, MOST_WORKSPACE, ctypes.byref(most), 8)
        for attribute, size in zip(ALIGNMENTS, (*alignments, alignments[-1]), strict=True):
            given = ctypes.c_uint32(size)
            _call("cublasLtMatmulPreferenceSetAttribute", wish, attribute, ctypes.byref(given), 4)
        left, right, output = self._layouts
        operands = self._handle, self._kind, left, right, output, output, wish
        places = ctypes.byref(found), ctypes.byref(count)
        status = _functions()["cublasLtMatmulAlgoGetHeuristic"](*operands, 1, *places)
        _call("cublasLtMatmulPreferenceDestroy", wish)
        if status or not count.value or found.state:
            raise Unsupported("cuBLASLt has no algorithm for it")
        return found

    def launch(self, stream: Stream, addresses: tuple[int, int, int], workspace: int) -> None:
        """Compute it behind what a stream was given before; the workspace has `WORKSPACE` bytes."""
        stream.launched.append("cublasLtMatmul")
        with WORK:
            self._multiply(stream, addresses, workspace)
        stream.settle("running cublasLtMatmul")

    def _multiply(self, stream: Stream, addresses: tuple[int, int, int], workspace: int) -> None:
        left, right, output = addresses
        left_kind, right_kind, output_kind = self._layouts
        _call(
            "cublasLtMatmul", self._handle, self._kind,
            ctypes.byref(self._one), left, left_kind, right, right_kind,
            ctypes.byref(self._zero), output, output_kind, output, output_kind,
            ctypes.byref(self._proposal), workspace, WORKSPACE, stream.handle,
        )  # fmt: skip


def _layout(matrix: Matrix) -> int:
    sizes = KINDS[matrix.element], matrix.rows, matrix.columns, matrix.stride
    return _made("cublasLtMatrixLayoutCreate", *sizes)


@cache
def _find(product: NativeProduct, alignments: tuple[int, int, int]) -> LibraryProduct:
    return LibraryProduct(product, alignments)


@dataclass(frozen=True, slots=True)
class LibraryLaunch:
    """A product on matrices at addresses of the device."""

    product: LibraryProduct
    addresses: tuple[int, int, int]
    workspace: int

    def launch(self, stream: Stream) -> None:
        """Compute it once."""
        self.product.launch(stream, self.addresses, self.workspace)


def bind_product(product: NativeProduct, places: Sequence[int], workspace: int) -> LibraryLaunch:
    """A product whose parameters lie at some addresses; Unsupported where the library does not compute it."""
    left, right, output = (places[item.place] for item in (product.left, product.right, product.output))
    aligned = tuple(min(MOST_ALIGNED, item & -item) for item in (left, right, output))
    return LibraryLaunch(
        _find(product, (aligned[0], aligned[1], aligned[2])), (left, right, output), workspace
    )
