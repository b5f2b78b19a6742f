"""The pass that says where local memory is used for the last time, so that others may have it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lamella.kernels.build import regions
from lamella.kernels.hazards import find_memories
from lamella.kernels.rewrite import change_functions, rewrite, used_values
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Alloca, Function, LifetimeStop, Program, Region, Statement, Value


def stop_lifetimes(program: Program, _: Target) -> Program:
    """A program in which each alloca is stopped behind its last use, through any view, in its own region."""
    return change_functions(program, _stop)


def _stop(function: Function) -> Function:
    work = _Lifetimes(dict(find_memories(function).roots))
    return replace(function, body=rewrite(function.body, work.visit))


@dataclass(slots=True)
class _Lifetimes:
    """The pass on one function, region by region from the inside out."""

    roots: dict[str, str]
    used: dict[int, set[str]] = field(default_factory=dict)
    """The memories that regions use, by their identity."""
    kept: list[Region] = field(default_factory=list)
    """The regions themselves, which stay alive so."""

    def visit(self, region: Region, _: bool) -> Region:
        """The region with the ends of what it allocates; ends that it had before are made anew."""
        statements = [item for item in region.statements if not isinstance(item.instruction, LifetimeStop)]
        last: dict[str, int] = {}
        for position, statement in enumerate(statements):
            last.update(dict.fromkeys(self._uses(statement), position))
        found: list[Statement] = []
        stops = _stops(statements, last)
        for position, statement in enumerate(statements):
            found.append(statement)
            found += [Statement((), LifetimeStop(item), statement.span) for item in stops.get(position, ())]
        new = replace(region, statements=tuple(found))
        self.kept.append(new)
        self.used[id(new)] = set(last)
        return new

    def _uses(self, statement: Statement) -> set[str]:
        """The memories that a statement uses or makes views of, in its regions too."""
        own = {
            self.roots[item.name] for item in used_values(statement.instruction) if item.name in self.roots
        }
        for region in regions(statement.instruction):
            own |= self.used[id(region)]
        return own


def _stops(statements: list[Statement], last: dict[str, int]) -> dict[int, list[Value]]:
    """What ends behind which statement: an alloca that nobody uses ends at once."""
    found: dict[int, list[Value]] = {}
    for position, statement in enumerate(statements):
        if isinstance(statement.instruction, Alloca):
            for value in statement.results:
                found.setdefault(last.get(value.name, position), []).append(value)
    return found
