"""The table of gradients: every operator of the library with how it is differentiated, or why it is not.

| gradient | what it means |
|---|---|
| derived | from its formulas, or through its parts |
| flat | the derivative is 0 wherever there is one |
| by hand | a backward operator that is written, and why it stays |
| none | nothing to differentiate, or no way to |
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from lamella.base.errors import Unsupported
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.check.definitions import invoked
from lamella.ops.gradient import STOPPING, declared_gradients, derive_formulas
from lamella.ops.gradient.operators import is_real
from lamella.ops.library import NEWER, SPECIFICATION, Library

DERIVED, FLAT, BY_HAND, NONE = "derived", "flat", "by hand", "none"
KEPT = {
    "split_": "joins what was split",
    "convert_dtype": "converts between two types, one of which is that of the gradient",
    "rmsnorm": "reads the saved factor of a row",
    "layernorm": "reads the saved statistics of a row",
    "layer_norm": "reads the saved statistics of a row",
    "group_norm": "reads the saved statistics of a group",
    "qk_norm": "reads the saved factors of rows",
    "attention": "recomputes weights from the saved logarithms of rows",
    "softmax": "reads what came out, not what went in",
    "cross_entropy": "reads scores once, and gives no gradient to ignored labels",
    "nll_loss": "the signature of ATen",
    "rope": "turns back by the same angles",
    "scan": "goes back from saved states in chunks",
    "conv": "both gradients in one call, by the signature of its forward operator",
    "pool": "reads the positions that were saved, or the signature of ATen",
    "router": "the gradient of the auxiliary loss joins that of the weights",
    "permute": "a view, or a gather by saved places",
    "view": "a view",
    "reshape": "a view",
    "expand": "the sum over what was repeated",
    "linear": "two products in one call",
    "bias": "the sum over rows",
    "reduce_max": "gives everything to the first of equal maxima, which it is told",
    "embedding": "the signature of ATen",
    "elu": "may read what came out, as ATen does",
    "solve": "the same system, turned round",
    "squared_error": "the gradient of a loss of training, by its own signature",
}
"""Why backward operators stay that are written, by a part of their names; the first that fits."""


def gradient_table() -> str:
    """The table as comma-separated values."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(("operator", "gradient", "why"))
    writer.writerows(gradient_rows())
    return written.getvalue()


def gradient_rows() -> Iterator[tuple[str, str, str]]:
    """A row for each public operator."""
    for dialect, prefix in ((SPECIFICATION, ""), (NEWER, "newer/")):
        library = Library(dialect)
        for module in sorted(library.standard):
            for word in library.operators(module):
                name = f"{module}.{word}"
                operator = library.find_operator(name)
                if word.startswith("_") or operator is None:
                    continue
                if prefix and not _is_newer(operator):
                    continue
                yield f"{prefix}{name}", *_describe(name, operator, library)


def _is_newer(operator: n.Operator) -> bool:
    return "newer" in operator.span.source.name


def _describe(name: str, operator: n.Operator, library: Library) -> tuple[str, str]:
    """How an operator is differentiated, and why so."""
    row = declared_gradients().get(name)
    if row is not None:
        return DERIVED, f"the gradient of {row.forward}"
    if "backward" in name:
        return BY_HAND, next((why for part, why in KEPT.items() if part in name), "")
    if name in STOPPING:
        return FLAT, "gradients stop here"
    types = {item.name: item.base for item in operator.items("dtype") if isinstance(item, n.Dtype)}
    if not any(is_real(item, types) for item in operator.parameters("output")):
        return NONE, "it gives no reals"
    if not any(is_real(item, types) for item in operator.parameters("input")):
        variables = any(True for _ in operator.parameters("variable"))
        return (DERIVED, "by its variables") if variables else (NONE, "it takes no reals")
    return _of_parts(name, operator, library)


def _of_parts(name: str, operator: n.Operator, library: Library) -> tuple[str, str]:
    """What the formulas of an operator, or of all that it is made of, say."""
    found, wrong = False, dict[str, None]()
    for part, inner in _formulas_of(name, operator, library, set()):
        types = {item.name: item.base for item in inner.items("dtype") if isinstance(item, n.Dtype)}
        for item in inner.parameters("input"):
            if not is_real(item, types):
                continue
            try:
                found = derive_formulas(part, inner, item.name) is not None or found
            except Unsupported as problem:
                wrong[f"{part}: {problem}"] = None
    if wrong:
        return NONE, ("in part: " if found else "") + "; ".join(wrong)
    return (DERIVED, "" if operator.kind == "lower" else "through its parts") if found else (FLAT, "")


def _formulas_of(
    name: str, operator: n.Operator, library: Library, seen: set[str]
) -> Iterator[tuple[str, n.Operator]]:
    if operator.kind != "compose":
        yield name, operator
        return
    for called in invoked(operator):
        inner = library.resolve(called, name.rpartition(".")[0])
        found = library.find_operator(inner)
        if found is not None and inner not in seen:
            seen.add(inner)
            yield from _formulas_of(inner, found, library, seen)
