"""A model at one level as a sequence, for Python: what `lower` makes, linked with the graph as on a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, cast

from lamella.base.errors import InputError
from lamella.base.levels import Level, LevelItem
from lamella.base.suggest import list_known
from lamella.graph.model import Model as GraphModel
from lamella.graph.nodes import Graph
from lamella.kernels.nodes import KernelGraph
from lamella.lang.nac.listing import listing
from lamella.lang.nem.resolved import Region
from lamella.pipeline.api import lower
from lamella.pipeline.diff import as_graph
from lamella.pipeline.languages import Model
from lamella.pipeline.nac.model import Model as NacModel
from lamella.pipeline.nac.results import find_results
from lamella.pipeline.nem.lowering import LoweredPlan
from lamella.pipeline.nem.program import Program, plan_of
from lamella.pipeline.options import Options
from lamella.pipeline.tensor.program import KernelFile
from lamella.studio.code_levels import instruction_things, kernel_level, kernel_things
from lamella.studio.graph_level import Things, attributes_of, operands_of, operator_of, results_of, type_of

if TYPE_CHECKING:
    from lamella.pipeline.api_options import LowerOptions

ALIASES = MappingProxyType(
    {"graph": "sknd", "skriptnd": "sknd", "kernels": "tensor", "plan": "nem", "machine": "asm"}
)
"""Other words for levels."""
CODE = ("llvm", "asm")
Found = TypeVar("Found")


def level_of(model: Model, word: str, options: Mapping[str, object]) -> Level:
    """A model at a level; InputError for a word that is none, or that is not below the model."""
    name = ALIASES.get(word, word)
    if name not in MAKERS:
        raise InputError(f"there is no level '{word[:80]}'", hint=list_known(word, MAKERS, "levels are:"))
    return MAKERS[name](model, name, options)


def _title(model: object) -> str:
    graph = getattr(model, "graph", None)
    path = getattr(model, "path", None)
    return graph.name if isinstance(graph, Graph) else path.name if isinstance(path, Path) else ""


def _lowered(model: Model, to: str, options: Mapping[str, object], kind: type[Found]) -> Found:
    """A model lowered, or as it is where it stands there already."""
    found: object = model if isinstance(model, kind) and not options else None
    if found is None:
        found = lower(model, to=to, **cast("LowerOptions", options))
    if not isinstance(found, kind):
        raise InputError(f"a model of {model.language} has no level '{to}'")
    return found


def _items(things: Things, rows: list[tuple[str, str, str, list[int]]]) -> tuple[LevelItem, ...]:
    """Rows of name, text, type and numbers of operations as items."""
    return tuple(
        LevelItem(index, name, text, kind, *_behind(things, numbers))
        for index, (name, text, kind, numbers) in enumerate(rows)
    )


def _behind(things: Things, numbers: list[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of operations, and the parts that they stand in."""
    made = [results_of(things.nodes[number]) for number in numbers]
    parts = dict.fromkeys(".".join(things.paths[number]) for number in numbers if things.paths[number])
    return tuple(items[0].name for items in made if items), tuple(parts)


# --- one maker for each level ------------------------------------------------------------------------------------


def _graph(model: Model, name: str, options: Mapping[str, object]) -> Level:
    known = as_graph(model, Options()) if not options else None
    found = known or _lowered(model, name, options, GraphModel)
    things = Things(found.graph)
    rows = []
    for number, node in enumerate(things.nodes):
        made, read = ([item.name for item in items] for items in (results_of(node), operands_of(node)))
        types = [type_of(item) for item in results_of(node)]
        attributes = attributes_of(node)
        call = f"{operator_of(node)}{f'{{{attributes}}}' if attributes else ''}({', '.join(read)})"
        text = f"{', '.join(made)} = {call};  # {', '.join(types)}"
        rows.append((operator_of(node), text, types[0] if len(types) == 1 else "", [number]))
    return Level(name, _title(found), _items(things, rows), found)


def _nac(model: Model, name: str, options: Mapping[str, object]) -> Level:
    found = _lowered(model, name, options, NacModel)
    graph = model if isinstance(model, GraphModel) else as_graph(found, Options())
    things = Things(Graph("", (), (), ()) if graph is None else graph.graph)
    types = find_results(found, Options()).types
    lines = listing(found.file, types).splitlines()
    numbers = instruction_things(found.file, things)
    rows = [
        (_called(line), line, types.get(index, ""), numbers[index])
        for index, line in enumerate(lines[: len(found.file.instructions)])
    ]
    return Level(name, _title(graph or found), _items(things, rows), found)


def _called(line: str) -> str:
    """The instruction of a line such as `v3 = aten.add(v1, v2)`."""
    return line.partition(" = ")[2].partition("(")[0].partition(" ")[0].strip()


def _kernels(model: Model, name: str, options: Mapping[str, object]) -> Level:
    found: KernelFile | KernelGraph
    if isinstance(model, KernelFile):
        found, things, made = model, Things(Graph("", (), (), ())), dict[str, list[int]]()
    else:
        found = _lowered(model, "tensor", options, KernelGraph)
        graph = model if isinstance(model, GraphModel) else found.model
        things = Things(graph.graph)
        made = kernel_things(found, things)
    rows = []
    for row in kernel_level(found.program, made, Options(), name in CODE):
        listed = row if name not in CODE else row.get(name, {"lines": []})
        lines, numbers = cast("dict[str, list[str]]", listed)["lines"], cast("list[int]", row["things"])
        rows.append((str(row["name"]), "\n".join(lines), "", numbers))
    return Level(name, _title(getattr(found, "model", found)), _items(things, rows), found)


def _plan(model: Model, name: str, options: Mapping[str, object]) -> Level:
    if isinstance(model, Program):
        tasks, things, numbers = list(plan_of(model).tasks()), Things(Graph("", (), (), ())), []
        found: Program | LoweredPlan = model
    else:
        found = lowered = _lowered(model, name, options, LoweredPlan)
        graph = model if isinstance(model, GraphModel) else lowered.model
        tasks, things = list(plan_of(lowered.final.program).tasks()), Things(graph.graph)
        makers = [things.maker(made) for made in lowered.operations]
        numbers = [[] if maker is None else [maker] for maker in makers]
    numbers += [[]] * (len(tasks) - len(numbers))
    rows = [
        (task.opcode, task.span.text, _region_type(task.outputs), numbers[place])
        for place, task in enumerate(tasks)
    ]
    return Level(name, _title(getattr(found, "model", found)), _items(things, rows), found)


def _region_type(outputs: tuple[Region, ...]) -> str:
    kind = outputs[0].type if len(outputs) == 1 else None
    return "" if kind is None else str(kind)


MAKERS: Mapping[str, Callable[[Model, str, Mapping[str, object]], Level]] = MappingProxyType(
    {"sknd": _graph, "nac": _nac, "tensor": _kernels, **dict.fromkeys(CODE, _kernels), "nem": _plan}
)
