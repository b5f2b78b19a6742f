"""Tokens: every wait gets a bit of the bank of the engine that waits.

A bit may be used again when its last waiter is complete before the new producer starts, or is that producer, and is
complete before the new waiter starts by the order of queues alone; then no interleaving can confuse the two. Where the
bank is too small the program is serialised: items are held back by ever shorter leashes until the colouring fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lamella.plan.bind.order import Item, Order, Serial, order_items
from lamella.plan.expand import Node

_DEPTHS = (64, 32, 24, 16, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1)


@dataclass(frozen=True, slots=True)
class Token:
    """A wait of one item for another, and the bit that carries it."""

    maker: int
    waiter: int
    bit: int


@dataclass(frozen=True, slots=True)
class Coloring:
    """All tokens; `needed` is the largest number of bits of a bank, `full` the first token behind the limit."""

    tokens: tuple[Token, ...]
    needed: int
    full: Token | None


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a program; where it was serialised, what it would have needed and where it began."""

    tokens: tuple[Token, ...]
    bits: int
    wanted: int
    added: int = 0
    full: Token | None = None

    @property
    def fits(self) -> bool:
        """Whether the bits that exist are enough."""
        return self.bits >= self.needed

    needed: int = 0


def assign_tokens(nodes: Sequence[Node], items: Sequence[Item], queues: int, bits: int) -> Tokens:
    """Bits for all dependencies that need one."""
    order = order_items(nodes, items, queues, None)
    free = color(items, order, bits)
    if free.needed <= bits:
        return Tokens(free.tokens, bits, free.needed, needed=free.needed)
    best = Tokens(free.tokens, bits, free.needed, full=free.full, needed=free.needed)
    for serial in _leashes(len(items)):
        order = order_items(nodes, items, queues, serial)
        found = color(items, order, bits)
        if found.needed < best.needed:
            best = Tokens(found.tokens, bits, free.needed, order.added, free.full, found.needed)
        if best.fits:
            break
    return best


def _leashes(count: int) -> Iterator[Serial]:
    """Ever shorter ones, first along each engine, then over the whole device."""
    for whole_device in (False, True):
        yield from (Serial(depth, whole_device) for depth in _DEPTHS if depth < max(2, count))


def color(items: Sequence[Item], order: Order, limit: int) -> Coloring:
    """Give each wait the bit whose last waiter was in the same queue, or any other that is free, or a new one."""
    banks: dict[int, list[Token]] = {}
    tokens: list[Token] = []
    full: Token | None = None
    for maker, waiter in sorted(order.waits):
        bank = banks.setdefault(items[waiter].engine, [])
        token = Token(maker, waiter, _choose(bank, maker, waiter, order))
        bank[token.bit : token.bit + 1] = [token]
        tokens.append(token)
        full = token if full is None and token.bit >= limit else full
    return Coloring(tuple(tokens), max(map(len, banks.values()), default=0), full)


def _choose(bank: Sequence[Token], maker: int, waiter: int, order: Order) -> int:
    free = [
        last
        for last in bank
        if order.is_before(last.waiter, order.done[maker])
        and order.is_before(last.waiter, order.base[waiter])
    ]
    same = [last for last in free if order.place[last.waiter][0] == order.place[waiter][0]]
    best = max(same or free, key=lambda last: last.waiter, default=None)
    return len(bank) if best is None else best.bit
