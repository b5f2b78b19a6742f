"""Binding: a plan becomes a task-control stream for one device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.limits import DEFAULT, Limits
from lamella.base.source import NOWHERE, Span
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.resolved import Plan
from lamella.lang.nem.rules import ABSTRACT_TARGET, BAD_STREAM, NO_DEVICE, SERIALISED, TOPOLOGY_VALUE
from lamella.plan.bind.addresses import assign_addresses
from lamella.plan.bind.fusion import find_chains, outside
from lamella.plan.bind.order import Item
from lamella.plan.bind.placement import Placement, Seat, check_tasks
from lamella.plan.bind.stream import StreamBuilder
from lamella.plan.bind.tokens import Tokens, assign_tokens
from lamella.plan.expand import Node, expand
from lamella.plan.stcb.nodes import MOST_BITS, MOST_ENGINES, MOST_QUEUES, Stream

__all__ = ["bind"]

_DEFAULT_BITS = 16


def bind(
    plan: Plan, device: ResolvedDevice | None = None, *, allow_future: bool = False, limits: Limits = DEFAULT
) -> tuple[Stream | None, list[Diagnostic]]:
    """The stream of a checked plan on a device, and what was found; without a stream there is an error among it."""
    target = device or plan.device
    if target is None:
        return None, [NO_DEVICE.at(_first_span(plan))]
    if target.topology is None:
        return None, [ABSTRACT_TARGET.at(_first_span(plan), name=target.name)]
    if target.topology.num_engines > MOST_ENGINES:
        problem = (
            f"{target.name} has {target.topology.num_engines} engines; a stream has at most {MOST_ENGINES}"
        )
        return None, [BAD_STREAM.at(_first_span(plan), problem=problem)]
    placement = Placement(plan, target)
    addresses, findings = assign_addresses(plan.buffers, target.topology)
    findings += check_tasks(plan, placement, allow_future)
    findings += _check_bits(target)
    if errors(findings):
        return None, findings
    builder = StreamBuilder(plan, target, addresses)
    try:
        stream, told = _build(expand(plan, limits, "max_records"), placement, builder)
    except LamellaError as problem:
        return None, [*findings, *problem.findings]
    return stream, findings + told


def _build(
    nodes: Sequence[Node], placement: Placement, builder: StreamBuilder
) -> tuple[Stream | None, list[Diagnostic]]:
    """Fuse, place, colour and write; where even one after another needs too many bits, with fewer units."""
    device = builder.device
    chains = find_chains(builder.plan, nodes, placement)
    items, seats = _seat(nodes, chains, placement)
    if _count_queues(items) > MOST_QUEUES:
        problem = f"{_count_queues(items)} units are in use; a stream has at most {MOST_QUEUES}"
        return None, [BAD_STREAM.at(_first_span(builder.plan), problem=problem)]
    tokens = assign_tokens(nodes, items, _count_queues(items), _bits(device))
    if not tokens.fits:
        placement = Placement(builder.plan, device, narrow=True)
        items, seats = _seat(nodes, chains, placement)
        fewer = assign_tokens(nodes, items, _count_queues(items), _bits(device))
        needed = min(tokens.needed, fewer.needed)
        tokens = replace(fewer, wanted=tokens.wanted, full=tokens.full, needed=needed)
    told = [*placement.remapped.values(), *_tell_tokens(tokens, items, device)]
    if errors(told):
        return None, told
    return builder.build(items, seats, tokens, placement.machine.engines), told


def _first_span(plan: Plan) -> Span:
    return next((item.span for item, _ in plan.walk()), NOWHERE)


def _bits(device: ResolvedDevice) -> int:
    return min(MOST_BITS, device.characteristic("SEQ", "max_active_tokens", _DEFAULT_BITS))


def _check_bits(device: ResolvedDevice, least: int = 1) -> Iterator[Diagnostic]:
    if _bits(device) < least:
        field = "SEQ.max_active_tokens"
        yield TOPOLOGY_VALUE.at(device.span, field=field, name=device.name, value=_bits(device), least=least)


def _seat(
    nodes: Sequence[Node], chains: Mapping[int, tuple[Node, ...]], placement: Placement
) -> tuple[list[Item], dict[int, Seat]]:
    """Place all instances in program order; a chain stands where its first member stands."""
    queues: dict[Seat, int] = {}
    seats: dict[int, Seat] = {}
    items: list[Item] = []
    chained = {member.number for members in chains.values() for member in members[1:]}
    for node in nodes:
        if node.task is None or node.number in chained:
            continue
        members = chains.get(node.number, (node,))
        found = placement.seat_chain(list(members))
        seats |= {member.number: seat for member, seat in zip(members, found, strict=True)}
        numbers = tuple(dict.fromkeys(queues.setdefault(seat, len(queues)) for seat in found))
        after = outside(members, nodes) if len(members) > 1 else node.after
        items.append(Item(len(items), found[0].engine, numbers, members, tuple(after or ())))
    return items, seats


def _count_queues(items: Sequence[Item]) -> int:
    return 1 + max((queue for item in items for queue in item.queues), default=0)


def _tell_tokens(tokens: Tokens, items: Sequence[Item], device: ResolvedDevice) -> Iterator[Diagnostic]:
    """That the program was serialised, or that even that does not help."""
    if not tokens.fits:
        yield from _check_bits(device, tokens.needed)
    elif tokens.full is not None:
        task = items[tokens.full.waiter].members[0].task
        span = NOWHERE if task is None else task.span
        yield SERIALISED.at(span, count=tokens.wanted, limit=tokens.bits, added=tokens.added)
