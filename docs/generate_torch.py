"""Write the tables of docs/languages/torch.md: every model of the tests exported, translated and compared with PyTorch.

It needs torch and transformers and takes minutes, so `make docs` leaves it out.

usage: python -m docs.generate_torch [--core]: with it, the table of core operations and what bench.coverage found alone
"""

from __future__ import annotations

import csv
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import lamella
from bench.coverage.agreement import AGREEMENT, known_results, table
from docs.markdown import cell
from lamella.base.diagnostic import LamellaError
from lamella.base.paths import read_shipped
from lamella.bridge.aten.table import rows
from lamella.bridge.torch_to_graph import torch_to_graph
from tests.support.bridge.torch_models.judge import largest_error, stretched
from tests.support.bridge.torch_models.small_models import NETWORKS
from tests.support.bridge.torch_models.transformer_models import MODELS, Sample

MISSING = "ops/tables/aten_missing.csv"
PAGE = Path(__file__).resolve().parent / "languages" / "torch.md"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one model."""

    name: str
    exported: Counter[str]
    decomposed: Counter[str]
    operations: int
    errors: tuple[str, ...]
    remark: str


def calls(program: Any) -> Counter[str]:
    """How often a program calls each operation of ATen."""
    targets = (str(node.target) for node in program.graph.nodes if node.op == "call_function")
    return Counter(name for name in targets if name.startswith("aten."))


def judge(name: str, sample: Sample) -> Outcome:
    """Export a model as it is and decomposed; compare both with PyTorch, at two sizes."""
    exported = torch.export.export(sample.module, (), dict(sample.inputs))
    decomposed, remark = exported, ""
    try:
        decomposed = exported.run_decompositions(torch.export.default_decompositions())
    except (RuntimeError, ValueError) as problem:
        remark = f"PyTorch cannot decompose it: {str(problem).splitlines()[0]}"
    try:
        model = lamella.from_torch(sample.module, (), sample.inputs, dynamic=sample.dynamic)
        found = [largest_error(model, sample, inputs) for inputs in (sample.inputs, stretched(sample))]
        found += [] if remark else [largest_error(torch_to_graph(decomposed), sample, sample.inputs)]
        count = sum(1 for _ in model.graph.operations())
    except LamellaError as error:
        found, count, remark = [], 0, "; ".join(item.message for item in error.findings)
    errors = tuple(f"{error:.1e}" for error in found)
    return Outcome(name, calls(exported), calls(decomposed), count, errors, remark)


def outcomes() -> list[Outcome]:
    """All models, in the order of the page."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [judge(name, make()) for name, make in {**NETWORKS, **MODELS}.items()]


def models_table(found: list[Outcome]) -> Iterator[str]:
    """One row for each model."""
    yield "| model | operations | ATen: calls, kinds | error | at another size | decomposed | remarks |"
    yield "|---|--:|--:|--:|--:|--:|---|"
    for item in found:
        kinds = f"{item.exported.total()}, {len(item.exported)}"
        errors = " | ".join((*item.errors, "–", "–", "–")[:3])
        yield f"| {item.name} | {item.operations} | {kinds} | {errors} | {cell(item.remark)} |"


def operations_table(found: list[Outcome]) -> Iterator[str]:
    """One row for each operation of ATen that any of the exports contains."""
    exported: Counter[str] = sum((item.exported for item in found), Counter())
    decomposed: Counter[str] = sum((item.decomposed for item in found), Counter())
    yield "| operation | calls as exported | calls decomposed | operator |"
    yield "|---|--:|--:|---|"
    for name in sorted({*exported, *decomposed}, key=lambda name: (-exported[name] - decomposed[name], name)):
        yield f"| `{name}` | {exported[name] or ''} | {decomposed[name] or ''} | {_operator(name)} |"


def _operator(name: str) -> str:
    """What an operation is here."""
    row = rows().get(name)
    if row is None:
        return "by PyTorch's decomposition"
    word = row.schema.operator
    return f"`{word}`" if "." in word else {"drop": "left out", "size": "a size"}.get(word, "–")


def core_table() -> Iterator[str]:
    """Every operation that PyTorch tags as core, and the operator that says it or why none does."""
    reasons = {row["name"]: row["reason"] for row in csv.DictReader(read_shipped(MISSING).splitlines())}
    yield "| operation | here |"
    yield "|---|---|"
    for stem in sorted({*dir(torch.ops.aten), "resize_", "sym_is_contiguous"}):
        packet = getattr(torch.ops.aten, stem)
        kinds = packet.overloads() if hasattr(packet, "overloads") else ()
        tagged = [kind for kind in kinds if torch.Tag.core in getattr(packet, kind).tags]
        for kind in tagged:
            name = f"aten.{stem}" if kind == "default" else f"aten.{stem}.{kind}"
            row = rows().get(f"aten.{stem}.{kind}")
            here = reasons.get(name, f"`{row.schema.operator}`" if row else "missing")
            yield f"| `{name}` | {cell(here)} |"


def with_tables(page: str, tables: Mapping[str, Iterator[str]]) -> str:
    """The page with what stands between its marks replaced."""
    for name, lines in tables.items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = page.partition(start)
        page = "\n".join([f"{before}{start}", "", *lines, "", end + rest.partition(end)[2]])
    return page


def main() -> int:
    """Write the tables into the page."""
    tables = {"core": core_table()}
    if AGREEMENT.exists():
        tables["coverage"] = table(
            sorted(known_results(AGREEMENT).values(), key=lambda row: str(row["name"]))
        )
    if "--core" not in sys.argv:
        found = outcomes()
        tables |= {"models": models_table(found), "operations": operations_table(found)}
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
