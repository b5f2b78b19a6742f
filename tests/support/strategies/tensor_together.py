"""What a whole work-group or subgroup does together in kernels of the tensor language, exact in every order.

Integers wrap, so that sums have no order; of floating-point numbers only what has one step is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests.support.backend.interpreter.kernels import COMPLEX, INTEGERS
from tests.support.differential.varieties import PROMOTION
from tests.support.strategies.tensor_memory import Ref, Writer

FORMS = ("reduce", "inclusive_scan", "exclusive_scan")
CHECKED = ("", ".both_checked")


# --- linear algebra of the work-group -----------------------------------------------------------------------


def write_linear(text: Writer) -> None:
    """One of the collective instructions, on local memory and on what there is."""
    known = [item for item in text.refs if item.element not in COMPLEX and None not in item.sizes]
    if not known or text.chance(3):
        element = text.pick(*(item for item in text.elements if item not in COMPLEX))
        shape = tuple(text.number(1, 20) for _ in range(text.number(1, 2)))
        known = [text.fresh(element, shape)]
        text.refs += known
    target = text.draw(st.sampled_from(known))
    order, whole = len(target.shape), target.element in INTEGERS
    functions = ["axpby.n", "axpby.t", "hadamard"] if order <= 2 else []
    functions += ["ger"] if order == 2 else []
    functions += ["cumsum"] if whole else []
    functions += ["sum.n", "sum.t", "gemv.n", "gemv.t"] if whole and order == 1 else []
    functions += ["gemm.n.n", "gemm.t.n", "gemm.n.t", "gemm.t.t"] if whole and order == 2 else []
    if functions:
        _put_linear(text, text.pick(*functions), target)


def _put_linear(text: Writer, function: str, target: Ref) -> None:
    element = text.pick(*(item for item in text.elements if target.element in PROMOTION[item]))
    inputs = [text.fresh(element, shape).name for shape in _inputs(text, function, target.shape)]
    alpha, beta = text.scalar(element, True), text.scalar(target.element, True)
    mode = [str(text.number(0, len(target.shape) - 1))] if function == "cumsum" else []
    text.put(f"{function} {', '.join([alpha, *inputs, *mode, beta, target.name])}")


def _inputs(text: Writer, function: str, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shapes of what an instruction reads."""
    word, *forms = function.split(".")
    k, m, n = text.number(1, 5), shape[0], shape[-1]
    found: dict[str, list[tuple[int, ...]]] = {
        "axpby": [shape],
        "cumsum": [shape],
        "hadamard": [shape, shape],
        "ger": [(m,), (n,)],
        "sum": [(m, k)],
        "gemv": [(m, k), (k,)],
        "gemm": [(m, k), (k, n)],
    }
    return [item[::-1] if forms[i : i + 1] == ["t"] else item for i, item in enumerate(found[word])]


# --- subgroups ----------------------------------------------------------------------------------------------


def write_together(text: Writer, subgroup: int) -> None:
    """A scan, a reduction or a broadcast of the work-items of a subgroup."""
    kind = text.pick(*text.elements)
    if text.chance(3) or kind in COMPLEX:
        lane = text.constant(str(text.number(0, subgroup - 1)), "i32")
        name = text.value(f"subgroup_broadcast {text.scalar(kind)}, {lane} : {kind}")
    else:
        function = text.pick("max", "min", *(["add"] if kind in INTEGERS else []))
        name = text.value(f"subgroup_{function}.{text.pick(*FORMS)} {text.scalar(kind)} : {kind}")
    text.keep(name, kind)


# --- cooperative matrices -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Matrices:
    """Memory for cooperative matrices: one to read, and one for each subgroup to write."""

    source: Ref
    target: Ref
    shape: tuple[int, int]


def make_matrices(text: Writer, subgroups: int) -> Matrices:
    """Memory of an element type in which matrices of a shape have their place."""
    element = text.pick(*text.elements)
    shape = (2 ** text.number(0, 4), text.number(1, 5))
    source = text.fresh(element, (shape[0] + text.number(0, 2), shape[1] + text.number(0, 2)))
    return Matrices(source, text.fresh(element, (*shape, subgroups)), shape)


def write_matrices(text: Writer, matrices: Matrices) -> None:
    """Load, compute and store; all operands are those of the whole subgroup."""
    element, shape = matrices.source.element, matrices.shape
    found = _load(text, matrices, shape, "matrix_acc")
    kind = f"coopmatrix<{element}x{shape[0]}x{shape[1]},matrix_acc>"
    if element in INTEGERS:
        k = text.number(1, 4)
        left, right = (
            _load(text, matrices, (shape[0], k), "matrix_a"),
            _load(text, matrices, (k, shape[1]), "matrix_b"),
        )
        found = text.value(f"cooperative_matrix_mul_add {left}, {right}, {found} : {kind}")
    if text.chance():
        found = text.value(f"cooperative_matrix_scale {text.scalar(element, True)}, {found} : {kind}")
    if text.chance():
        other = _load(text, matrices, shape, "matrix_acc")
        found = text.value(f"arith.{text.pick('add', 'sub', 'mul')} {found}, {other} : {kind}")
    _store(text, matrices, found)


def _load(text: Writer, matrices: Matrices, shape: tuple[int, int], use: str) -> str:
    """A matrix from a place of the source; where it need not fit, what is outside is 0."""
    source, turned = matrices.source, text.chance()
    size = shape[::-1] if turned else shape
    room = [whole - part for whole, part in zip(source.shape, size, strict=True)]
    fits = min(room) >= 0 and text.chance()
    places = [text.index(text.number(0, most) if fits else text.number(-2, 3)) for most in room]
    form = (".t" if turned else ".n") + ("" if fits else ".both_checked")
    kind = f"coopmatrix<{source.element}x{shape[0]}x{shape[1]},{use}>"
    return text.value(f"cooperative_matrix_load{form} {source.name}[{','.join(places)}] : {kind}")


def _store(text: Writer, matrices: Matrices, matrix: str) -> None:
    """A store where the subgroup has its place, or partly beside it."""
    target, (rows, columns) = matrices.target, matrices.shape
    subgroup = text.value(f"cast {text.value('builtin.subgroup_id : i32')} : index")
    part = replace(target, sizes=target.sizes[:2], strides=target.strides[:2])
    view = text.value(f"subview {target.name}[0:{rows},0:{columns},{subgroup}] : {part.kind}")
    fits = text.chance()
    places = [text.index(0 if fits else text.number(-1, 1)) for _ in range(2)]
    checked = "" if fits else ".both_checked"
    text.put(f"cooperative_matrix_store{checked} {matrix}, {view}[{','.join(places)}]")
