"""Hash-consing of terms: equal ones are one object, and affine integers are in normal form.

Quotients and remainders of affine integers are simplified where the ranges of the loops allow it: with `j < 64`, `(64 *
i + j) / 64` is `i` and the remainder is `j`, so that the index of a flattened tensor finds back to its dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamella.base.affine import Affine, combine
from lamella.bridge.graph_to_kernels.affine import LARGEST, Form, find_range, is_integer
from lamella.ops.formula import Apply, Element, Guard, Index, Lookup, Scalar


class TermTable:
    """The hash-consed terms of one contraction, whose loops have these extents."""

    def __init__(self, extents: Mapping[str, int]) -> None:
        self.extents = extents
        self._terms: dict[object, Scalar | Guard] = {}
        self._forms: dict[int, Form | None] = {}

    def key(self, term: Scalar | Guard | None) -> object:
        """The identity of a term of this table."""
        if isinstance(term, Index):
            return term
        if isinstance(term, Guard):
            return "|", self.key(term.index), self.key(term.below), self.key(term.above)
        if isinstance(term, Apply | Element | Lookup):
            return id(term)
        return type(term), repr(term)

    def _once(self, key: object, term: Scalar) -> Scalar:
        found = self._terms.setdefault(key, term)
        assert not isinstance(found, Guard)
        return found

    def element(
        self, tensor: str, indices: Sequence[Scalar | Guard], type_: str, item: Scalar | None = None
    ) -> Scalar:
        """An element of a tensor."""
        key = ("element", tensor, self.key(item), *map(self.key, indices))
        return self._once(key, Element(tensor, tuple(indices), type_, item))

    def lookup(self, table: Sequence[Scalar], index: Scalar, type_: str) -> Scalar:
        """An item of a pack of known values."""
        key = ("lookup", self.key(index), *map(self.key, table))
        return self._once(key, Lookup(tuple(table), index, type_))

    def apply(self, function: str, operands: Sequence[Scalar], type_: str) -> Scalar:
        """A function of terms; an affine integer in normal form."""
        if type_ == "int":
            form = self._affine(function, operands)
            if form is not None:
                return self.affine(form)
        return self._once(
            (function, type_, *map(self.key, operands)), Apply(function, tuple(operands), type_)
        )

    # --- integers -------------------------------------------------------------------------------------------

    def _affine(self, function: str, operands: Sequence[Scalar]) -> Form | None:
        forms = [self.form(item) for item in operands]
        known = [item for item in forms if item is not None]
        if len(known) < len(forms) or not known:
            return None
        if function in ("/", "%") and not known[1].terms and known[1].constant > 0:
            parts = self._divide(known[0], known[1].constant)
            return None if parts is None else parts[function == "%"]
        return combine(function, known)

    def _divide(self, form: Form, divisor: int) -> tuple[Form, Form] | None:
        """Quotient and remainder of an affine integer; None where they are not affine."""
        whole = Affine(
            form.constant // divisor, tuple((n, f // divisor) for n, f in form.terms if f // divisor)
        )
        rest = form.plus(whole, -divisor)
        box = {name: (0, max(self.extents[name] - 1, 0)) for name, _ in form.terms}
        (first, last), (low, high) = form.bounds(box), rest.bounds(box)
        # What may wrap around in 64 bits has another quotient.
        return (whole, rest) if low >= 0 and high < divisor and -LARGEST < first <= last < LARGEST else None

    def form(self, term: Scalar) -> Form | None:
        """The affine form of an integer of this table."""
        if is_integer(term):
            return Affine(term)
        if isinstance(term, Index):
            return Affine(0, ((term.name, 1),) if self.extents.get(term.name) != 1 else ())
        return self._forms.get(id(term))

    def affine(self, form: Form) -> Scalar:
        """The term of an affine form."""
        found: Scalar | None = None
        for name, factor in form.terms:
            part: Scalar = Index(name)
            if factor != 1:
                part = self._integer("*", part, factor)
            found = part if found is None else self._integer("+", found, part)
        if found is None:
            return form.constant
        if form.constant:
            found = self._integer("+", found, form.constant)
        if isinstance(found, Apply):
            self._forms[id(found)] = form
        return found

    def _integer(self, function: str, left: Scalar, right: Scalar) -> Scalar:
        key = (function, "int", self.key(left), self.key(right))
        return self._once(key, Apply(function, (left, right), "int"))

    def is_within(self, index: Scalar, size: int) -> bool:
        """Whether an index is known to stay inside."""
        found = find_range(index, self.extents)
        return found is not None and found[0] >= 0 and found[1] < size
