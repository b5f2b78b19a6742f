"""One declaration being built: what its names mean, in the constant world and in the data world."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping

from lamella.base.origin import Origin
from lamella.base.source import Span
from lamella.bridge.module_to_graph.nodes import Bound
from lamella.lang.module.instantiate.nodes import Instance, Known


class Frame:
    """An instance at its place in the model, with the tensors that are bound so far."""

    def __init__(self, instance: Instance, path: str = "", origin: Origin | None = None) -> None:
        self.instance = instance
        self.path = path
        self.origin = origin
        """What called the instance."""
        self.bound: dict[str, Bound] = {}
        self.given: dict[str, Bound] = {}
        """Parameters that the caller passes instead of storage of their own."""
        self.dims: dict[str, Known] = {}
        self._values = dict(instance.values)
        self.saved: Mapping[str, Bound] = {}
        """The forward tensors that a backward graph may read."""

    @property
    def name(self) -> str:
        """What the declaration is called."""
        return self.instance.module.name

    @property
    def known(self) -> Mapping[str, Known]:
        """The constant world: config parameters, let names, and the dimensions that the inputs bound."""
        return ChainMap(self.dims, self._values)

    def place(self, name: str) -> str:
        """The path of something in this declaration."""
        return f"{self.path}.{name}" if self.path else name

    def at(self, what: str, span: Span) -> Origin:
        """The origin of what a statement of this declaration makes."""
        return Origin(f"{self.place(what)}", span, self.origin)

    def data_names(self) -> Iterator[str]:
        """Every name of the data world, for hints about misspelt ones."""
        yield from self.bound
        yield from self.instance.tensors
        yield from self.instance.children
        yield from self.instance.constants


def graph_name(path: str) -> str:
    """The path of a parameter as graphs name it: `blocks[3].mlp.up` is `blocks.3.mlp.up`."""
    return path.replace("][", ".").replace("[", ".").replace("]", "")
