"""Graphs of one call each, as text: every operator of the library, extents and lengths known or left to the run."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from lamella.base.dim import Dim, Extent
from lamella.base.dtype import ElementType, name_in
from lamella.base.errors import Found
from lamella.ops.instance import Argument, Instance, Value
from lamella.ops.library import Library
from tests.support.ops.engine.calls import Fake, call
from tests.support.ops.engine.random_calls import Drawn, blur, draw_call

MOST = 7
"""The bound of every open extent."""


def draw_graph(random: Random, library: Library, name: str) -> str | None:
    """A graph that calls an operator, some of its extents open; None where the call itself is refused."""
    definition = library.find(name)
    assert definition is not None
    drawn = draw_call(random, definition.operator)
    if random.random() < 0.7:
        drawn, _ = blur(random, drawn)
    try:
        return _text(random, name, drawn, call(library, name, drawn.arguments, drawn.attributes))
    except Found:
        return None


def _text(random: Random, name: str, drawn: Drawn, instance: Instance) -> str:
    known: set[str] = set()
    inputs: list[str] = []
    arguments = [_argument(random, f"x{k}", item, inputs, known) for k, item in enumerate(drawn.arguments)]
    while arguments and arguments[-1] == "~":
        arguments.pop()
    outputs, results = [], []
    for number, item in enumerate(instance.outputs):
        length = ""
        if item.items is not None or item.size is not None:
            length = f"..({len(item.items)})" if item.items is not None else "..(~|40)"
        outputs.append(f"o{number}: {_word(item.element)}{length};")
        results.append(f"o{number}{length}")
    attributes = ", ".join(f"{key}={_literal(value)}" for key, value in drawn.attributes.items())
    component = f"{', '.join(results)} = {name}{{{attributes}}}({', '.join(arguments)});"
    return (
        f"import {name.rpartition('.')[0]};\ngraph G {{\n    @input {{ {' '.join(inputs)} }}\n"
        f"    @output {{ {' '.join(outputs)} }}\n    @compose {{ {component} }}\n}}\n"
    )


def _argument(random: Random, name: str, value: Argument, inputs: list[str], known: set[str]) -> str:
    """An argument as the call writes it; tensors become inputs of the graph."""
    if isinstance(value, Fake):
        inputs.append(f"{name}: {_type(value, known)};")
        return name
    if not isinstance(value, tuple):
        return "~" if value is None else _literal(value if isinstance(value, int | float | str) else 0)
    items = [item for item in value if isinstance(item, Fake)]
    if items and len({(item.shape, item.element) for item in items}) == 1 and random.random() < 0.6:
        length = str(len(items)) if random.random() < 0.4 else f"p{name}|4"
        inputs.append(f"{name}: {_type(items[0], known)}..({length});")
        return name
    names = [f"{name}_{number}" for number in range(len(items))]
    inputs += [f"{key}: {_type(item, known)};" for key, item in zip(names, items, strict=True)]
    return f"[{', '.join(names)}]"


def _type(tensor: Fake, known: set[str]) -> str:
    return f"{_word(tensor.element)}[{', '.join(_extents(tensor.shape, known))}]"


def _extents(shape: Sequence[Extent], known: set[str]) -> list[str]:
    """Extents; an open one has its bound where it stands first."""
    found = []
    for extent in shape:
        text = str(extent)
        found.append(f"{text}|{MOST}" if isinstance(extent, Dim) and text not in known else text)
        known.add(text)
    return found


def _word(element: ElementType) -> str:
    return name_in("skriptnd", element) or str(element)


def _literal(value: Value) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)
