"""Training graphs of files whose code is written anew."""

from __future__ import annotations

from dataclasses import replace

from lamella.base.source import NOWHERE
from lamella.bridge.nac_to_graph.training import has_training
from lamella.lang.nac import check, restate
from lamella.lang.nac.check.sections.entry import GRAPH, NOTES, read_entry
from lamella.lang.nac.nodes import File
from lamella.lang.nac.rules.roads import LEFT_OUT
from lamella.pipeline.nac.model import Model


def carry_training(made: Model, before: File) -> Model:
    """The file with the training graph of the one that it was made from; a note where it does not fit any more."""
    if not has_training(before):
        return made
    older = restate(before)
    kept = tuple(item for item in older.resources if item.name in (NOTES, GRAPH))
    file = replace(made.file, resources=(*made.file.resources, *kept))
    entry, _ = read_entry(file, check)
    if entry is not None and not entry.saved:
        return replace(made, file=file)
    reason = "it takes results of instructions that are no longer there"
    finding = LEFT_OUT.at(NOWHERE, what="the training graph", reason=reason)
    return replace(made, findings=(*made.findings, finding))
