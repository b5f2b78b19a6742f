"""The calls of a graph as instructions that have no place yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from lamella.base.origin import Origin, tell_origin
from lamella.bridge.graph_to_nac.calls.replay import Replayed, Said, SaidFork, Spoken, flat_calls, forks
from lamella.bridge.graph_to_nac.calls.restate import Inexpressible
from lamella.bridge.graph_to_nac.calls.said import tensors_of
from lamella.bridge.graph_to_nac.code.layout import Item, Opened
from lamella.bridge.graph_to_nac.code.sizes import SizeWriter
from lamella.bridge.graph_to_nac.code.words import Ref, Word, plain, say
from lamella.graph.nodes import Tensor
from lamella.lang.nac.nodes import CONTROL_FLOW, CONVERGENCE
from lamella.ops.problem import Problem

TUPLE_KEY = "\0tuple "
GETITEM = "getitem"


def write_items(replayed: Replayed, parameters: Collection[str], plain_signatures: bool) -> list[Item]:
    """All instructions but inputs and loads, the output last."""
    writer = _Writer(replayed, parameters, plain_signatures)
    for item in replayed.inputs:
        writer.sizes.see(item)
    writer.take_all(replayed.calls)
    given = (*replayed.outputs, *(item.value for item in replayed.updates))
    writer.items.append(Item(None, tuple(Word("T", Ref(item.name)) for item in given)))
    return writer.items


class _Writer:
    """Writes calls one after the other, the sizes that they need before them."""

    def __init__(self, replayed: Replayed, parameters: Collection[str], plain_signatures: bool) -> None:
        self.parameters = parameters
        self.plain = plain_signatures
        self.items: list[Item] = []
        self.origin: Origin | None = None
        self.sizes = SizeWriter(self._emit)
        read = (item.name for call in flat_calls(replayed.calls) for item in tensors_of(call.saying))
        kept = (item.value.name for item in replayed.updates)
        self.used = {*read, *kept, *(item.name for item in replayed.outputs)}
        for fork in forks(replayed.calls):
            self.used |= {fork.given.name, *(item.name for block in fork.blocks for item in block.outputs)}

    def _emit(self, name: str, words: tuple[Word, ...], key: str) -> None:
        coded = tuple(map(self._coded, words))
        self.items.append(Item(name, plain(coded) if self.plain else coded, key, self.origin))

    def _coded(self, word: Word) -> Word:
        """A parameter that has no other role is one all the same."""
        loaded = isinstance(word.value, Ref) and word.value.key in self.parameters
        return replace(word, code="P") if loaded and word.code == "T" else word

    def take_all(self, calls: Iterable[Spoken]) -> None:
        """Calls in order."""
        for call in calls:
            if isinstance(call, SaidFork):
                self._take_fork(call)
            else:
                self.take(call)

    def _take_fork(self, fork: SaidFork) -> None:
        """The blocks of a branch or of a convergence, then the items of its result that are used."""
        merges = isinstance(fork.result, Tensor)
        whole = fork.result.name if isinstance(fork.result, Tensor) else f"{TUPLE_KEY}{len(self.items)}"
        kind = CONVERGENCE if merges else CONTROL_FLOW
        opened = Opened(kind, fork.threshold, len(fork.blocks))
        given = (Word("T", Ref(fork.given.name)),)
        self.items.append(Item(None, given, whole, fork.origin, opened))
        for block in fork.blocks:
            with self.sizes.block():
                self.take_all(block.calls)
            words = tuple(Word("T", Ref(item.name)) for item in block.outputs)
            self.items.append(Item(None, words, closes=True))
        self.origin = fork.origin
        self._take_parts(whole, fork.result)

    def _take_parts(self, whole: str, result: Tensor | tuple[Tensor | None, ...]) -> None:
        """The items of a tuple that are used; a tensor is there already."""
        if isinstance(result, Tensor):
            self.sizes.see(result)
            return
        for number, item in enumerate(result):
            if item is not None and item.name in self.used:
                self._emit(GETITEM, (Word("T", Ref(whole)), Word("i", number)), item.name)
                self.sizes.see(item)

    def take(self, call: Said) -> None:
        """One call, and the items of its result that are used."""
        self.origin = call.origin
        try:
            name, words = say(call.saying, self.sizes.write)
        except Inexpressible as refused:
            raise Problem(tell_origin(refused.finding(call.operator), call.origin)) from None
        except Problem as problem:
            raise Problem(*(tell_origin(item, call.origin) for item in problem.findings)) from None
        whole = call.result.name if isinstance(call.result, Tensor) else f"{TUPLE_KEY}{len(self.items)}"
        self._emit(name, words, whole)
        self._take_parts(whole, call.result)
