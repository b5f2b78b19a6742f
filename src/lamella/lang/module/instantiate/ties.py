"""Tied parameters: which storage each of them uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lamella.lang.module.instantiate.evaluate import Problem
from lamella.lang.module.instantiate.nodes import Instance, TensorSlot
from lamella.lang.module.instantiate.walk import Child, path_text, slot_at
from lamella.lang.module.nodes import Path, TiedType
from lamella.lang.module.resolve.near import guess
from lamella.lang.module.rules import constants as rules
from lamella.lang.module.rules import graphs
from lamella.lang.module.rules import names as name_rules


@dataclass(frozen=True, slots=True)
class Ties:
    """The tied parameters of one instance beside the tensors and instances that it holds."""

    module: str
    tied: Mapping[str, TiedType]
    tensors: Mapping[str, TensorSlot]
    children: Mapping[str, Child]

    def settle(self, name: str) -> TensorSlot:
        """A tied parameter with the shape and the path of its storage; Problem where it has none."""
        seen = [name]
        kind = self.tied[name]
        while (text := path_text(kind.path)) in self.tied:
            if text in seen:
                cycle = " -> ".join([*seen, text])
                raise Problem(graphs.CYCLE.at(self.tied[name].span, name=name, cycle=cycle))
            seen.append(text)
            kind = self.tied[text]
        storage = self._find(kind.path, text)
        own = self.tensors[name]
        path = text if storage.tied is None else _below(text, storage.tied)
        return replace(own, dims=storage.dims, dtype=storage.dtype, optional=storage.optional, tied=path)

    def _find(self, path: Path, text: str) -> TensorSlot:
        slot = self.tensors.get(text) or self._find_below(path, text)
        if slot is not None:
            return slot
        if text in self.children:
            what, wanted = f"'{text}'", "a tensor, which can be shared,"
            raise Problem(
                rules.KIND.at(
                    path.span, what=what, found="an instance", wanted=wanted, repair="name one of its tensors"
                )
            )
        repair = guess(text, (*self.tensors, *self.children))
        raise Problem(name_rules.UNKNOWN.at(path.span, name=text, where=f"in '{self.module}'", repair=repair))

    def _find_below(self, path: Path, text: str) -> TensorSlot | None:
        first = path.parts[0]
        child = self.children.get(first.name)
        for index in first.indices:
            if not isinstance(child, tuple) or not isinstance(index, int) or index >= len(child):
                return None
            child = child[index]
        rest = path_text(Path(path.parts[1:]))
        return slot_at(child, rest) if isinstance(child, Instance) and rest else None


def _below(path: str, inner: str) -> str:
    """A path from the instance that holds another path's tensor."""
    above, _, _ = path.rpartition(".")
    return f"{above}.{inner}" if above else inner
