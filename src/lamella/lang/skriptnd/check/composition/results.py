"""Results: what is assigned to the names of a component."""

from __future__ import annotations

from lamella.lang.skriptnd.check.composition.state import State
from lamella.lang.skriptnd.check.context import Entry
from lamella.lang.skriptnd.check.declare.patterns import pack_of, take
from lamella.lang.skriptnd.check.declare.shapes import Declaring, read_tensor, type_of
from lamella.lang.skriptnd.check.kinds import UNKNOWN, Kind, agrees
from lamella.lang.skriptnd.check.lengths import length_of, shown
from lamella.lang.skriptnd.nodes import ListPattern, Parameter, Pattern, Result
from lamella.lang.skriptnd.rules import composition as rules


class Results:
    """Assigns results on one level of a composition; `open` are the declared names it has to assign."""

    def __init__(self, state: State, open_names: set[str], top: bool, section: str = "compose") -> None:
        self._state = state
        self._open = open_names
        self._top = top
        self._section = section
        self._assigned: set[str] = set()

    def assign(self, pattern: Pattern, kind: Kind, invoked: bool) -> None:
        """Give the names of a pattern their tensors; `invoked` where an operator gives the result."""
        if isinstance(pattern, ListPattern) and kind.known and not kind.packed:
            self._state.context.report(rules.RESULT_PATTERN.at(pattern.span))
            kind = UNKNOWN
        for result, taken in take(self._state.context, pattern, kind):
            self._assign(result, taken, invoked and isinstance(pattern, Result))

    def _assign(self, result: Result, kind: Kind, invoked: bool) -> None:
        context = self._state.context
        kind = self._typed(result, kind)
        entry = context.scope.names.get(result.name)
        if result.name in self._assigned:
            context.report(rules.RESULT_TWICE.at(result.span, name=result.name))
            return
        self._assigned.add(result.name)
        if result.name in self._open and entry is not None:
            self._open.discard(result.name)
            self._compare(result, entry.kind, kind)
            return
        if entry is not None and self._top:
            self._refuse(result, entry)
            return
        if kind.packed and invoked and pack_of(result) is None:
            context.report(rules.RESULT_LENGTH.at(result.span, name=result.name))
        if kind.packed and kind.length is None:
            kind = kind.pack(length_of(f"|{result.name}|"))
        context.scope.names[result.name] = Entry(kind.present(), "a result", result.span)

    def _refuse(self, result: Result, entry: Entry) -> None:
        """A declared name that this block may not assign."""
        name, report = result.name, self._state.context.report
        if self._section == "update":
            report(rules.UPDATE_TARGET.at(result.span, name=name, what=entry.what))
        elif entry.what == "a variable":
            report(rules.VARIABLE_ASSIGNED.at(result.span, name=name))
        else:
            report(rules.PARAMETER_ASSIGNED.at(result.span, name=name, what=entry.what))

    def _typed(self, result: Result, kind: Kind) -> Kind:
        """A result with what is written of its type."""
        if result.type is None:
            return kind
        context = self._state.context
        if result.type.shape is None:
            declared = Kind(type_of(context, result.type, result.name), packed=kind.packed, tensor=True)
        else:
            parameter = Parameter(result.name, result.type, span=result.span)
            declared = read_tensor(context, parameter, Declaring("result", graph=True))
        if not self._compare(result, declared, kind):
            return UNKNOWN
        if not declared.known:
            return kind
        packed, length = declared.packed or kind.packed, declared.length or kind.length
        rank = kind.rank if declared.rank is None else declared.rank
        return Kind(declared.type, False, packed, True, length, rank)

    def _compare(self, result: Result, declared: Kind, kind: Kind) -> bool:
        """Whether what is declared and what is given agree in type, rank and number."""
        context, name = self._state.context, result.name
        if not (declared.known and kind.known):
            return True
        if not agrees(declared, kind):
            left, right = declared.type, kind.type
            context.report(rules.OUTPUT_TYPE.at(result.span, name=name, left=left, right=right))
        elif declared.packed != kind.packed and not (kind.packed and result.type is not None):
            left, right = (_number(item) for item in (declared, kind))
            context.report(rules.OUTPUT_PACK.at(result.span, name=name, left=left, right=right))
        elif context.algebra.differ(declared.rank, kind.rank):
            left, right = shown(declared.rank), shown(kind.rank)
            context.report(rules.OUTPUT_RANK.at(result.span, name=name, left=left, right=right))
        else:
            return True
        return False


def _number(kind: Kind) -> str:
    return "a pack" if kind.packed else "a single tensor"
