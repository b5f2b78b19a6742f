"""Gated epilogues of a GEMV (SwiGLU, GeGLU): outputs that read several rows of the product at once.

    y[j] += x[k] * w[j, k], j < 2 n;  z[i] = act(y[i]) * y[i + n]

One subgroup then computes the rows i and i + n: in the product j counts to n, and the parts are items of its target.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamella.base.errors import Unsupported
from lamella.base.records import replace
from lamella.bridge.graph_to_kernels.affine import Form, find_form
from lamella.bridge.graph_to_kernels.tiled import ProductGroup, Tensors, extents_of, key_of, meeting
from lamella.ops.formula import Apply, Contraction, Element, Guard, Index, Lookup
from lamella.ops.formula import Scalar as Term


def split_gates(group: ProductGroup, tensors: Tensors) -> tuple[ProductGroup, Tensors]:
    """A product whose epilogues read several of its rows together, and its tensors; unchanged where none does."""
    target, extents = group.product.targets[0], extents_of(group.product)
    row = target.indices[-1] if target.indices else None
    if not isinstance(row, Index) or not group.epilogues:
        return group, tensors
    forms = [
        (item, _last(item, end), extents_of(end))
        for end in group.epilogues
        for item in meeting(end, target.tensor)
    ]
    lengths = {own[name] for _, form, own in forms for name, _ in form.terms}
    length = next(iter(lengths), 0)
    if len(lengths) != 1 or length == extents[row.name]:
        return group, tensors
    if extents[row.name] % length or any(
        [factor for _, factor in form.terms] != [1] or form.constant % length for _, form, _ in forms
    ):
        raise Unsupported("what follows it reads its rows in no equal parts")
    items = {
        id(item): replace(item, indices=(*item.indices[:-1], _index(form)), item=form.constant // length)
        for item, form, _ in forms
    }
    parts = extents[row.name] // length
    loops = [replace(loop, extent=length) if loop.index == row.name else loop for loop in group.product.loops]
    held = tensors[key_of(target)]
    short = replace(held, shape=(*held.shape[:-1], length), layout=None)
    views = {**tensors, **{(target.tensor, item): short for item in (None, *range(parts))}}
    epilogues = tuple(_with_items(end, items) for end in group.epilogues)
    product = replace(group.product, loops=tuple(loops))
    return replace(group, product=product, epilogues=epilogues, parts=parts), views


def _last(element: Element, end: Contraction) -> Form:
    """The row index that an epilogue reads."""
    index = element.indices[-1]
    form = None if isinstance(index, Guard) else find_form(index, extents_of(end))
    if form is None:
        raise Unsupported("what follows it tests its rows, or finds them by no sum")
    return form


def _index(form: Form) -> Index:
    return Index(form.terms[0][0])


def _with_items(end: Contraction, items: dict[int, Element]) -> Contraction:
    """A formula that reads items instead of elements."""
    known: dict[int, Term] = dict(items)
    return replace(end, values=tuple(_replaced(item, known) for item in end.values))


def _replaced(term: Term, known: dict[int, Term]) -> Term:
    if id(term) not in known:
        found = term
        if isinstance(term, Apply):
            found = replace(term, operands=_all_replaced(term.operands, known))
        elif isinstance(term, Lookup):
            table = _all_replaced(term.table, known)
            found = replace(term, table=table, index=_replaced(term.index, known))
        known[id(term)] = found
    return known[id(term)]


def _all_replaced(terms: Sequence[Term], known: dict[int, Term]) -> tuple[Term, ...]:
    return tuple(_replaced(item, known) for item in terms)
