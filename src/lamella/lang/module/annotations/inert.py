"""Annotations that are read, checked and kept, and that nothing here obeys yet: the one table of them.

A row goes when the annotation gets its effect. Notes never count under `--strict`: what they name is right, and no
change of the file would make them go but leaving the annotation out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.lang.module.annotations.nodes import DECLARATION, GRAPH, INSTANCE, OPERATION, ArgumentValue
from lamella.lang.module.annotations.table import KINDS
from lamella.lang.module.nodes import Annotation, Argument
from lamella.lang.module.rules.annotated import INERT as RULE


@dataclass(frozen=True, slots=True)
class Inert:
    """What has no effect: an annotation, in some places or in all, or an argument, with some values or with all."""

    argument: str = ""
    values: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


_WHOLE = (Inert(),)
INERT: Mapping[str, tuple[Inert, ...]] = MappingProxyType(
    {
        "memory": (
            Inert("mode", ("pin", "offload", "stream")),
            Inert("priority"),
            Inert("prefetch"),
            Inert("async"),
        ),
        "checkpoint": (Inert(places=(OPERATION,)),),
        "lifetime": _WHOLE,
        "hook": (Inert("mode", ("modify", "replace")), Inert("priority")),
        "adapter": _WHOLE,
        "probe": (
            Inert("capture", ("histogram", "sample", "full", "grad_stats", "grad_full")),
            Inert("frequency"),
        ),
        "scaling": (Inert("strategy", ("delayed",)), Inert("history_len"), Inert("update_interval")),
        "fuse": _WHOLE,
        "fuse_required": _WHOLE,
        "nofuse": _WHOLE,
        "kernel": _WHOLE,
        "shard": _WHOLE,
        "partition": _WHOLE,
        "comm": _WHOLE,
        "profile": _WHOLE,
        "trace": (Inert(places=(INSTANCE, DECLARATION, GRAPH)), Inert("level", ("values",))),
        "trainable": (Inert("lr_scale"), Inert("wd_scale"), Inert("grad_clip")),
        "gradient": (Inert("mode", ("accumulate", "checkpoint")), Inert("clip")),
    }
)
"""For each annotation what of it nothing obeys; one that is not here has its effect."""


def find_inert(
    annotation: Annotation, place: str, arguments: Mapping[str, ArgumentValue]
) -> Iterator[Diagnostic]:
    """A note for an annotation that has no effect where it stands, or for each argument of it that has none."""
    rows = INERT.get(annotation.name, ())
    if any(not row.argument and (not row.places or place in row.places) for row in rows):
        yield RULE.at(annotation.span, what=f"'@{annotation.name}'", place=place)
        return
    given = dict(_given(annotation))
    for row in rows:
        if row.argument in given and (not row.values or arguments.get(row.argument) in row.values):
            argument = given[row.argument]
            shown = argument.span.text if argument.name else f"{row.argument}={argument.span.text}"
            yield RULE.at(argument.span, what=f"'{shown}' of '@{annotation.name}'", place=place)


def _given(annotation: Annotation) -> Iterator[tuple[str, Argument]]:
    """The arguments that are written, by the names of their parameters."""
    names = [item.name for item in KINDS[annotation.name].parameters]
    for number, argument in enumerate(annotation.arguments):
        name = argument.name or (names[number] if number < len(names) else "")
        yield name, argument
