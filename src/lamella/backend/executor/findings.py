"""Exceptions of a run as findings at the origin of the operation that met them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lamella.base.diagnostic import Diagnostic, Label, LamellaError, printable
from lamella.base.errors import Found
from lamella.base.origin import Origin, blamed, with_origin
from lamella.base.source import NOWHERE, Span
from lamella.lang.skriptnd.rules.graphs import NO_MEANING, TOO_MUCH_MEMORY
from lamella.ops.fault import Fault


@contextmanager
def findings_at(name: str, origin: Origin | None = None, span: Span = NOWHERE) -> Iterator[None]:
    """Raise what goes wrong as findings that name an operator, at its origin or at a place."""
    place = origin.span if origin is not None and origin.span is not None else span
    try:
        yield
    except Fault as fault:
        finding = fault.rule.at(place, hint=None, labels=(), **{"operator": name, **fault.values})
        raise LamellaError([with_origin(_at_model(finding, origin), origin)]) from None
    except Found as problem:
        raise LamellaError([with_origin(item, origin) for item in problem.findings]) from None
    except ZeroDivisionError:
        finding = NO_MEANING.at(place, operator=name, reason="an extent is divided by zero in this run")
        raise LamellaError([with_origin(finding, origin)]) from None
    except MemoryError:
        finding = TOO_MUCH_MEMORY.at(place, operator=name, needed="more", limit="the memory of this machine")
        raise LamellaError([with_origin(finding, origin)]) from None


def _at_model(finding: Diagnostic, origin: Origin | None) -> Diagnostic:
    """A finding in a formula of the library, at the operation of the model that calls it."""
    source = blamed(origin)
    if source is None or source is origin:
        return finding
    span = source.span or NOWHERE
    inner = (Label(finding.span, "in the library here"),) if finding.span is not NOWHERE else ()
    labels = (*finding.labels, *inner) if finding.span != span else finding.labels
    return replace(finding, message=f"{printable(source.what)}: {finding.message}", span=span, labels=labels)
