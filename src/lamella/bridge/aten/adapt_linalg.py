"""Adapters of ATen's linear algebra, by the factorisations of `linalg`."""

from __future__ import annotations

from types import MappingProxyType

from lamella.base.dtype import F64, I32
from lamella.bridge.aten.nodes import Result
from lamella.bridge.aten.promotion import result_type
from lamella.bridge.aten.site import CallSite, as_extent
from lamella.graph.nodes import Shape, Tensor


def _matrix(site: CallSite) -> Tensor:
    """The first operand, under whichever name ATen has for it."""
    return site.tensor("A" if "A" in site.operands else "self")


def _turned(site: CallSite, tensor: Tensor) -> Tensor:
    return site.call("aten.transpose", tensor, dim0=-2, dim1=-1)


def _success(site: CallSite, shape: Shape) -> Tensor:
    """That no matrix failed: one that does ends the run."""
    return site.make("aten.zeros", I32, size=shape)


def build_factorisation(site: CallSite) -> Result:
    """An operator of one matrix that gives one result, and where it is asked for that it succeeded."""
    matrix = _matrix(site)
    found = site.call(site.schema.operator, matrix)
    if site.flag("upper"):
        found = _turned(site, found)
    asked = site.schema.results[1:] and site.schema.name.split(".")[1].endswith("_ex")
    return (found, _success(site, matrix.shape[:-2])) if asked else site.padded(found)


def build_log_determinant(site: CallSite) -> Result:
    """Signs and logarithms of determinants; `logdet` is not a number where one is negative."""
    sign, logarithm = site.call_all("linalg.log_determinant", _matrix(site))
    if len(site.schema.results) > 1:
        return site.padded(sign, logarithm)
    positive = site.call("aten.gt", sign, site.cast(0.0, sign.element))
    empty = site.call("aten.eq", sign, site.cast(0.0, sign.element))
    known = site.call("aten.logical_or", positive, empty)
    return site.call("aten.where", known, logarithm, site.cast(float("nan"), logarithm.element))


# --- systems of equations -----------------------------------------------------------------------------------


def build_solve(site: CallSite) -> Result:
    """X with A X = B, or X A = B; B may be vectors."""
    matrix, right = _matrix(site), site.tensor("B")
    vector = len(right.shape) == 1 or (
        len(right.shape) == len(matrix.shape) - 1 and right.shape == matrix.shape[:-1]
    )
    if vector:
        right = site.call("aten.unsqueeze", right, dim=-1)
    left = "left" not in site.operands or site.flag("left")
    if not left and vector:
        site.refuse("left", "vectors stand to the right of a matrix")
    found = _solved(site, "linalg.solve", matrix, right, left)
    if vector:
        found = site.call("aten.squeeze", found, dim=(-1,))
    if site.schema.name.split(".")[1] == "linalg_solve_ex":
        return found, _success(site, matrix.shape[:-2])
    return site.padded(found)


def _solved(
    site: CallSite, operator: str, matrix: Tensor, right: Tensor, left: bool = True, **flags: bool
) -> Tensor:
    """X with A X = B for batches of one shape; X A = B is the same of the transposes."""
    if not left:
        matrix, right = _turned(site, matrix), _turned(site, right)
    element = result_type((matrix, right))
    matrix, right = site.cast(matrix, element), site.cast(right, element)
    batch = _batch(site, matrix, right)
    pair = (
        item if item.shape[:-2] == batch else site.call("aten.expand", item, size=(*batch, *item.shape[-2:]))
        for item in (matrix, right)
    )
    found = site.call(operator, *pair, **flags)
    return found if left else _turned(site, found)


def _batch(site: CallSite, first: Tensor, second: Tensor) -> Shape:
    """The extents of batches that two tensors of matrices have together."""
    if first.shape[:-2] == second.shape[:-2]:
        return first.shape[:-2]
    heads = (_first_element(site, item) for item in (first, second))
    return site.call("aten.add", *heads).shape


def _first_element(site: CallSite, tensor: Tensor) -> Tensor:
    for _ in range(2):
        tensor = site.call("aten.select", tensor, dim=-1, index=0)
    return tensor


def build_triangular(site: CallSite) -> Result:
    """X with A X = B, or X A = B, of a triangular matrix."""
    old = site.schema.name.split(".")[1] == "triangular_solve"
    matrix, right = (
        (site.tensor("A"), site.tensor("self")) if old else (site.tensor("self"), site.tensor("B"))
    )
    upper, left = site.flag("upper"), old or site.flag("left")
    if site.flag("transpose"):
        matrix, upper = _turned(site, matrix), not upper
    flags = {"upper": upper if left else not upper, "unit": site.flag("unitriangular")}
    found = _solved(site, "linalg.solve_triangular", matrix, right, left, **flags)
    return (found, matrix) if old else found


def build_cholesky_solve(site: CallSite) -> Result:
    """X with A X = B, of the Cholesky factor of A; without B the inverse of A."""
    inverse = site.schema.name.split(".")[1] == "cholesky_inverse"
    factor = site.tensor("self" if inverse else "input2")
    lower = _turned(site, factor) if site.flag("upper") else factor
    size = factor.shape[-1]
    right = site.make("aten.eye", factor.element, n=size, m=size) if inverse else site.tensor("self")
    half = _solved(site, "linalg.solve_triangular", lower, right, upper=False)
    return _solved(site, "linalg.solve_triangular", _turned(site, lower), half, upper=True)


# --- orthogonal factors -------------------------------------------------------------------------------------


def build_qr(site: CallSite) -> Result:
    """Q and R; with mode `r` Q is empty."""
    matrix = _matrix(site)
    mode = site.word("mode") if "mode" in site.operands else "reduced" if site.flag("some") else "complete"
    if mode not in ("reduced", "complete", "r"):
        site.refuse("mode", '"reduced", "complete" and "r" are possible')
    orthogonal, upper = site.call_all("linalg.qr", matrix, complete=mode == "complete")
    return (site.make("aten.zeros", matrix.element, size=(0,)) if mode == "r" else orthogonal), upper


def build_svd(site: CallSite) -> Result:
    """U, the singular values, and V transposed; the older operation gives V itself."""
    name = site.schema.name.split(".")[1]
    full = not site.flag("some") if name == "svd" else site.flag("full_matrices")
    left, values, right = site.call_all("linalg.svd", _matrix(site), full=full)
    if len(site.schema.results) == 1:
        return values
    return left, values, _turned(site, right) if name == "svd" else right


def build_eigh(site: CallSite) -> Result:
    """Eigenvalues and eigenvectors of symmetric matrices."""
    values, vectors = site.call_all("linalg.eigh", _matrix(site), upper=site.word("UPLO").upper() == "U")
    return site.padded(values, vectors) if len(site.schema.results) > 1 else values


def build_pinv(site: CallSite) -> Result:
    """The pseudo-inverse: singular values up to a part of the largest count as zero."""
    matrix = site.tensor("self")
    left, values, right = site.call_all("linalg.svd", matrix, full=False)
    bound = _bound(site, matrix, values)
    kept = site.call("aten.gt", values, bound)
    zero = site.cast(0.0, values.element)
    inverse = site.call("aten.where", kept, site.call("aten.reciprocal", values), zero)
    scaled = site.call("aten.mul", _turned(site, right), site.call("aten.unsqueeze", inverse, dim=-2))
    return site.call("aten.matmul", scaled, _turned(site, left))


def _bound(site: CallSite, matrix: Tensor, values: Tensor) -> Tensor:
    """Up to which number singular values count as zero: absolutely, and as a part of the largest."""
    names = ("rcond",) if "rcond" in site.operands else ("rtol", "atol")
    part = site.scalar(names[0]) if site.has(names[0]) else None
    least = site.scalar("atol") if "atol" in names and site.has("atol") else 0.0
    if part is None:
        sides = [as_extent(item) for item in matrix.shape[-2:]]
        known = [item for item in sides if isinstance(item, int)]
        step = 2.0**-52 if matrix.element == F64 else 2.0**-23
        part = max(known, default=1) * step if least == 0.0 else 0.0
    largest = site.call("aten.amax", values, dim=(-1,), keepdim=True)
    scaled = site.call("aten.mul", largest, site.cast(part, values.element))
    return site.call("aten.maximum", scaled, site.cast(least, values.element))


def build_lstsq(site: CallSite) -> Result:
    """The smallest X that brings A X closest to B; of the other results only the run of LAPACK tells more."""
    matrix, right = site.tensor("self"), site.tensor("b")
    vector = len(right.shape) == len(matrix.shape) - 1
    if vector:
        right = site.call("aten.unsqueeze", right, dim=-1)
    left, values, across = site.call_all("linalg.svd", matrix, full=False)
    step = 2.0**-52 if matrix.element == F64 else 2.0**-23
    sides = [item for item in matrix.shape[-2:] if isinstance(item, int)]
    part = site.real("rcond") if site.has("rcond") else max(sides, default=1) * step
    largest = site.call("aten.amax", values, dim=(-1,), keepdim=True)
    kept = site.call("aten.gt", values, site.call("aten.mul", largest, site.cast(part, values.element)))
    inverse = site.call(
        "aten.where", kept, site.call("aten.reciprocal", values), site.cast(0.0, values.element)
    )
    turned = site.call("aten.matmul", _turned(site, left), right)
    scaled = site.call("aten.mul", turned, site.call("aten.unsqueeze", inverse, dim=-1))
    found = site.call("aten.matmul", _turned(site, across), scaled)
    if vector:
        found = site.call("aten.squeeze", found, dim=(-1,))
    return site.padded(found)


def build_lu(site: CallSite) -> Result:
    """P, L and U."""
    if not site.flag("pivot"):
        site.refuse("pivot", "elimination with pivots is possible")
    return site.call_all("linalg.lu", _matrix(site))


LINALG = MappingProxyType(
    {
        **{"factorisation": build_factorisation, "log_determinant": build_log_determinant},
        **{"solve": build_solve, "triangular": build_triangular, "cholesky_solve": build_cholesky_solve},
        **{"qr": build_qr, "svd": build_svd, "eigh": build_eigh, "pinv": build_pinv, "lstsq": build_lstsq},
        "lu": build_lu,
    }
)
"""Adapters of linear algebra, by the words of the table."""
