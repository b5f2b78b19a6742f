"""The user's operators that a graph calls: copied with those that they call, module by module.

A graph names its operators from the main module, where the private ones of other modules have no name. Such a
formula is copied under a public name; its module keeps the private one where others of it are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from lamella.graph.nodes import Graph, Tensor
from lamella.graph.rewrite import FreshNames, defined
from lamella.lang.skriptnd import nodes as n
from lamella.ops.instance import Definition
from lamella.ops.library import Library

MAIN = "main"


class WrittenOperators:
    """What must be written beside a graph."""

    def __init__(self, graph: Graph, library: Library) -> None:
        self.library = library
        self.modules: dict[str, list[n.Operator]] = {MAIN: []}
        """The operators to write, by module."""
        self.words: dict[str, str] = {}
        """What an operator is called in the text where it is not called by its own name."""
        named = list(dict.fromkeys(_called(graph)))
        for name in named:
            self._publish(name)
        self.calls = [self.words.get(name, name) for name in named]
        for definition in needed(library, [name for name in named if name not in self.words]):
            if not definition.standard:
                self.modules.setdefault(definition.module, []).append(self._spelled(definition))
        for module in list(self.modules):
            self._copy_newer(module, self.calls if module == MAIN else ())

    def _copy_newer(self, module: str, calls: Iterable[str]) -> None:
        """Give a module its own copies of what means something else where the text is read, and call those."""
        operators, library = self.modules[module], self.library
        called = (library.resolve(name, module) for item in operators for name in calls_in(item))
        fresh = FreshNames([*library.operators(module), *(item.name for item in operators)])
        words: dict[str, str] = {}
        copies: list[n.Operator] = []
        for name in filter(library.is_newer, dict.fromkeys([*calls, *called])):
            definition = library.find(name)
            assert definition is not None  # nothing else is newer
            words[name] = fresh.take(name.replace(".", "_"))
            copies.append(replace(_qualified(library, definition), name=words[name]))
        if not words:
            return

        def change(name: str) -> str:
            return words.get(library.resolve(name, module), name)

        if module == MAIN:
            self.words |= {name: f"{MAIN}.{words[name]}" for name in calls if name in words}
            self.calls = [name for name in self.calls if name not in words]
        renamed = [
            found
            for found in (respelled(item, change) for item in operators)
            if isinstance(found, n.Operator)
        ]
        self.modules[module] = [*copies, *renamed]

    def _spelled(self, definition: Definition) -> n.Operator:
        """An operator's text; where the model had files of its own for standard modules, calls say which is meant."""
        if not self.library.shadows:
            return definition.operator

        def change(name: str) -> str:
            found = self.library.find(self.library.resolve(name, definition.module)) if "." in name else None
            return name if found is None else found.name

        found = respelled(definition.operator, change)
        return found if isinstance(found, n.Operator) else definition.operator

    def _publish(self, name: str) -> None:
        """Give a private operator of another module a name that the graph can call."""
        definition = self.library.find(name)
        if definition is None or definition.module == MAIN or not definition.operator.name.startswith("_"):
            return
        operator = definition.operator
        if definition.standard and operator.kind != "lower":
            return
        module = MAIN if definition.standard else definition.module
        stem = (
            f"{definition.module}{operator.name}".replace(".", "_")
            if module == MAIN
            else operator.name.strip("_")
        )
        word = FreshNames(self.library.operators(module)).take(stem)
        self.words[name] = f"{module}.{word}"
        self.modules.setdefault(module, []).append(replace(operator, name=word))


def _qualified(library: Library, definition: Definition) -> n.Operator:
    """The text of an operator whose calls name their modules."""
    found = respelled(definition.operator, lambda name: library.resolve(name, definition.module))
    return found if isinstance(found, n.Operator) else definition.operator


def needed(library: Library, names: Iterable[str]) -> list[Definition]:
    """The definitions of operators, with those that they call, in the order of their texts."""
    found: dict[str, Definition] = {}
    waiting = list(names)[::-1]
    while waiting:
        name = waiting.pop()
        definition = None if name in found else library.find(name)
        if definition is not None:
            found[name] = definition
            if not definition.standard:
                waiting += [
                    library.resolve(call, definition.module) for call in calls_in(definition.operator)
                ]
    return sorted(found.values(), key=lambda item: item.operator.span.start)


def module_document(module: str, operators: Sequence[n.Operator]) -> n.Document:
    """Operators as a module that imports what they call."""
    calls = [call for operator in operators for call in calls_in(operator)]
    imports = sorted(modules_of(calls) - {module})
    return n.Document(tuple(n.Import((name,)) for name in imports), tuple(operators))


def _called(graph: Graph) -> Iterator[str]:
    yield from (operation.operator for operation in graph.operations())
    for item in defined(graph):
        if isinstance(item, Tensor) and item.quantization is not None:
            yield item.quantization.operator


def respelled(node: object, change: Callable[[str], str]) -> object:
    """A piece of syntax with the names of the operators that it calls changed."""

    def respell(item: object) -> object:
        if isinstance(item, n.Invocation | n.Quantization):
            return replace(item, operator=change(item.operator))
        return item

    return n.rebuilt(node, respell)


def calls_in(operator: n.Operator) -> Iterator[str]:
    """The operators that the body of an operator names."""
    for section in ("compose", "update", "quantize"):
        for item in operator.items(section):
            if isinstance(item, n.Component):
                yield from _calls_of(item.value)
            elif isinstance(item, n.Quantization):
                yield item.operator


def _calls_of(value: object) -> Iterator[str]:
    """The operators that a callee, a branch or a loop names."""
    if isinstance(value, n.Invocation):
        yield value.operator
    elif isinstance(value, n.Block):
        for component in value.components:
            yield from _calls_of(component.value)
    elif isinstance(value, n.Branch):
        for part in (*(item for case in value.cases for item in case), value.otherwise):
            yield from _calls_of(part)
    elif isinstance(value, n.Loop):
        for inner in (value.before, value.body, value.after):
            yield from _calls_of(inner)


def modules_of(calls: Iterable[str]) -> set[str]:
    """The modules that calls by qualified names need."""
    return {name.rpartition(".")[0] for name in calls if "." in name}
