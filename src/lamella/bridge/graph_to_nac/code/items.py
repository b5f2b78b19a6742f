"""The calls of a graph as instructions that have no place yet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from lamella.base.origin import Origin, tell_origin
from lamella.bridge.graph_to_nac.calls.replay import Replayed, Said
from lamella.bridge.graph_to_nac.calls.restate import Inexpressible
from lamella.bridge.graph_to_nac.calls.said import tensors_of
from lamella.bridge.graph_to_nac.code.layout import Item
from lamella.bridge.graph_to_nac.code.sizes import SizeWriter
from lamella.bridge.graph_to_nac.code.words import Ref, Word, plain, say
from lamella.graph.nodes import Tensor
from lamella.ops.problem import Problem

TUPLE_KEY = "\0tuple "
GETITEM = "getitem"


def write_items(replayed: Replayed, parameters: Collection[str], plain_signatures: bool) -> list[Item]:
    """All instructions but inputs and loads, the output last."""
    writer = _Writer(replayed, parameters, plain_signatures)
    for item in replayed.inputs:
        writer.sizes.see(item)
    for call in replayed.calls:
        writer.take(call)
    writer.items.append(Item(None, tuple(Word("T", Ref(item.name)) for item in replayed.outputs)))
    return writer.items


class _Writer:
    """Writes calls one after the other, the sizes that they need before them."""

    def __init__(self, replayed: Replayed, parameters: Collection[str], plain_signatures: bool) -> None:
        self.parameters = parameters
        self.plain = plain_signatures
        self.items: list[Item] = []
        self.origin: Origin | None = None
        self.sizes = SizeWriter(self._emit)
        read = (item.name for call in replayed.calls for item in tensors_of(call.saying))
        self.used = {*read, *(item.name for item in replayed.outputs)}

    def _emit(self, name: str, words: tuple[Word, ...], key: str) -> None:
        coded = tuple(map(self._coded, words))
        self.items.append(Item(name, plain(coded) if self.plain else coded, key, self.origin))

    def _coded(self, word: Word) -> Word:
        """A parameter that has no other role is one all the same."""
        loaded = isinstance(word.value, Ref) and word.value.key in self.parameters
        return replace(word, code="P") if loaded and word.code == "T" else word

    def take(self, call: Said) -> None:
        """One call, and the items of its result that are used."""
        self.origin = call.origin
        try:
            name, words = say(call.saying, self.sizes.write)
        except Inexpressible as refused:
            raise Problem(tell_origin(refused.finding(call.operator), call.origin)) from None
        except Problem as problem:
            raise Problem(*(tell_origin(item, call.origin) for item in problem.findings)) from None
        if isinstance(call.result, Tensor):
            self._emit(name, words, call.result.name)
            self.sizes.see(call.result)
            return
        whole = f"{TUPLE_KEY}{len(self.items)}"
        self._emit(name, words, whole)
        for number, item in enumerate(call.result):
            if item is not None and item.name in self.used:
                self._emit(GETITEM, (Word("T", Ref(whole)), Word("i", number)), item.name)
                self.sizes.see(item)
