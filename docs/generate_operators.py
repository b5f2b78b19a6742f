"""The pages of docs/operators: every operator of the library, from the text that defines it.

A sentence is the comment above an operator, whose last lines may declare traits. The judges are those that the tests
of the library name.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from docs.markdown import cell, code, fenced
from lamella.backend.reference.intrinsics import INTRINSICS
from lamella.base.paths import shipped
from lamella.base.source import Source
from lamella.lang.skriptnd import parse
from lamella.lang.skriptnd.nodes import Assertion, Document, Dtype, Operator, Parameter
from lamella.lang.skriptnd.write import bounds_text, type_text, write, write_expression
from lamella.ops.traits import DERIVED, KNOWN

TITLES = {
    "layout": "shapes and places",
    "math": "elementwise operators and reductions",
    "linalg": "products of vectors and matrices",
    "nn": "layers of neural networks",
    "image": "resizing, sampling and regions",
    "quant": "quantisation",
    "algo": "sorting and selecting",
    "layer": "operators that hold their own variables",
    "misc": "grids",
    "rand": "random numbers",
    "nac": "operators of NAC files",
    "aten": "operators by the names and attributes of ATen",
    "llm": "language models: primitives of the module language, with their gradients",
    "moe": "mixtures of experts: primitives of the module language, with their gradients",
    "mamba": "state space models: primitives of the module language, with their gradients",
    "recurrent": "recurrent layers: averages that decay, the delta rule",
}
INTRODUCTIONS = {
    "aten": """\
These operators compute what those of ATen compute, the operators of PyTorch, in inference; other languages name theirs
after them. Attributes have the names of ATen's schemas, and every operator is composed of the rest of the library where
that can say it.

- **Names.** Overloads that differ in types alone are one operator: `aten.eq(x, 1.0)` is `eq.Scalar`, `aten.eq(x, y)`
  is `eq.Tensor`. Those that compute something else have a name of their own: `max.other` is `max_other`, `max.dim` is
  `max_dim`. A leading `_` is left out, since it makes a name private: `_softmax` is `softmax`.
- **Types.** Nothing is converted. Operands have one type, scalars included, results have it too, comparisons give
  `bool`, positions `i64`. Where ATen promotes (an integer plus a real, `div` or `mean` of integers, `sum` of truth
  values) the caller casts first, with `to_copy`.
- **Broadcasting** is that of ATen: shapes are aligned at their ends, and extents of 1 are stretched.
- **Numbers.** `round` goes to the even neighbour, unlike `math.round`. `upsample_nearest2d` finds its places in whole
  numbers; ATen does so in 32 bits and can land one pixel lower. NaN wins every maximum and minimum,
  as in ATen, but the positions of `argmax`, `argmin`, `max_dim` and `min_dim` pass it over. `cumsum` and `cumprod` take
  time by the square of the extent.
- **Left out** is what a shape cannot tell: `nonzero`, `masked_select`, `unique`, `index` by a mask. So are bits of
  integers, unbatched convolutions, the positions that `max_pool2d_with_indices` finds, negative and circular padding,
  random numbers, and everything that differentiates.
""",
}
KINDS = {"lower": "a formula", "compose": "a composition", "intrinsic": "intrinsic"}
SECTIONS = {
    "attrib": "attribute",
    "input": "input",
    "constant": "constant",
    "variable": "variable",
    "output": "output",
}
TRAITS = "traits:"
BODY = ("using", "lower", "compose", "update")
HEAD = "Written here by `make docs` from the text of the library and the tests that judge it."


@dataclass(frozen=True, slots=True)
class Module:
    """One file of the library: its operators in their order, and those that the newer draft changes."""

    name: str
    operators: tuple[Operator, ...]
    newer: Mapping[str, Operator]

    @property
    def public(self) -> tuple[Operator, ...]:
        """The operators that a model can call."""
        return tuple(item for item in self.operators if not item.name.startswith("_"))


def operator_pages() -> dict[str, str]:
    """The name and text of every page."""
    # transformers, which some judges load, fails with a torchvision that does not fit torch: no judge needs it
    sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]  # which is how a package is hidden
    judges: Mapping[str, list[str]] = importlib.import_module("tests.support.judges.registry").table()
    modules = [_module(name) for name in TITLES]
    pages = {f"{module.name}.md": _join(_page(module, judges)) for module in modules}
    return {"README.md": _join(_index(modules)), **pages}


def _join(lines: Iterator[str]) -> str:
    return "\n".join(lines) + "\n"


def _module(name: str) -> Module:
    folder = shipped("ops")
    newer = {item.name: item for item in _operators(folder / "newer" / f"{name}.sknd")}
    return Module(name, tuple(_operators(folder / f"{name}.sknd")), newer)


def _operators(path: Path) -> tuple[Operator, ...]:
    if not path.is_file():
        return ()
    document, _ = parse(Source(path.name, path.read_text(encoding="utf-8")))
    return document.declarations


# --- the index ------------------------------------------------------------------------------------------------


def _index(modules: list[Module]) -> Iterator[str]:
    public = [item for module in modules for item in module.public]
    kinds = Counter(item.kind for item in public)
    changed = [f"[{m.name}.{name}]({m.name}.md#{name})" for m in modules for name in m.newer]
    yield from ("# The operators", "", f"{HEAD} `lamella show nn.conv` prints one operator.", "")
    yield (
        f"{len(public)} operators: {kinds['lower']} with a formula, {kinds['compose']} composed of others, "
        + (f"{kinds['intrinsic']} intrinsic (\\*, no formula).")
    )
    yield from ("", "| module | operators |", "|---|---|")
    for module in modules:
        names = " · ".join(_link(module, item) for item in module.public)
        yield f"| [{module.name}]({module.name}.md): {TITLES[module.name]} | {names} |"
    yield from ("", f"The newer dialect gives another meaning to {', '.join(changed)}.")
    yield from ("", "## Traits", "")
    yield (
        "What an operator declares of itself in the comment above it, for passes to ask; each is tested on numbers. "
        "The others follow from formulas and compositions, of models too."
    )
    yield from ("", "| trait | values | means |", "|---|---|---|")
    yield from (f"| {name} | {item.values} | {cell(item.sentence)} |" for name, item in KNOWN.items())
    yield from (f"| {name}, derived | | {cell(sentence)} |" for name, sentence in DERIVED.items())


def _link(module: Module, operator: Operator) -> str:
    star = "\\*" if operator.kind == "intrinsic" else ""
    return f"[{operator.name}]({module.name}.md#{operator.name.lower()}){star}"


# --- the page of a module -------------------------------------------------------------------------------------


def _page(module: Module, judges: Mapping[str, list[str]]) -> Iterator[str]:
    yield from (f"# {module.name}: {TITLES[module.name]}", "", f"{HEAD} [All operators](README.md).", "")
    if module.name in INTRODUCTIONS:
        yield INTRODUCTIONS[module.name]
    yield " · ".join(f"[{item.name}](#{item.name.lower()})" for item in module.public)
    for operator in (*module.public, *(item for item in module.operators if item.name.startswith("_"))):
        name = f"{module.name}.{operator.name}"
        yield from ("", f"## {operator.name}", "")
        yield from _operator(operator, name, judges.get(name, []))
        newer = module.newer.get(operator.name)
        if newer is not None:
            yield from ("", f"### {operator.name}, newer dialect", "")
            yield from _operator(newer, name, judges.get(f"newer/{name}", []))


def _operator(operator: Operator, name: str, judges: list[str]) -> Iterator[str]:
    lines = [line.lstrip("# ") for line in operator.notes.above]
    yield " ".join(line for line in lines if not line.startswith(TRAITS))
    traits = [line.removeprefix(TRAITS).strip() for line in lines if line.startswith(TRAITS)]
    facts = _facts(operator, name, judges)
    facts += f" [Traits](README.md#traits): {', '.join(traits)}." if traits else ""
    yield from ("", facts, "", "| | name | type | default |", "|---|---|---|---|")
    yield from _rows(operator)
    assertions = [item for item in operator.items("assert") if isinstance(item, Assertion)]
    if assertions:
        yield from ("", "| it must hold that | or else |", "|---|---|")
        yield from (f"| {code(write_expression(item.condition))} | {_message(item)} |" for item in assertions)
    body = replace(
        operator, sections=tuple(item for item in operator.sections if item.name in BODY), public=False
    )
    if body.sections:
        yield from ("", *fenced(_inside(body)))


def _facts(operator: Operator, name: str, judges: list[str]) -> str:
    kind = KINDS[operator.kind].capitalize()
    said = INTRINSICS[name].__doc__ if operator.kind == "intrinsic" else None
    parts = [f"{kind}: {said.splitlines()[0]}" if said else f"{kind}."]
    if judges:
        parts.append(f"Judged by {', '.join(judges)}.")
    elif operator.name.startswith("_"):
        parts.append("Private: judged through the operators that use it.")
    return " ".join(parts)


def _rows(operator: Operator) -> Iterator[str]:
    for item in operator.items("dtype"):
        if isinstance(item, Dtype):
            default = code(item.default) if item.default else ""
            yield f"| type | {code(item.name)} | {code(item.base)} | {default} |"
    for section, word in SECTIONS.items():
        for parameter in operator.parameters(section):
            yield f"| {word} | {code(parameter.name)} | {code(type_text(parameter.type))} | {_default(parameter)} |"


def _default(parameter: Parameter) -> str:
    if parameter.value is None:
        return ""
    bounds = bounds_text(parameter.bounds)
    return code(write_expression(parameter.value) + (f", {bounds}" if bounds else ""))


def _message(item: Assertion) -> str:
    return "" if item.message is None else cell(write_expression(item.message)[1:-1])


def _inside(operator: Operator) -> list[str]:
    """The blocks of an operator, without the braces around them all."""
    lines = write(Document((), (replace(operator, notes=operator.end),))).splitlines()
    return [line.removeprefix("    ") for line in lines[1:-1]]
