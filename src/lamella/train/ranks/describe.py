"""`show --ranks`: what each rank has of a model, and what ranks exchange in a step, before they run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lamella.pipeline.languages import Description
from lamella.pipeline.options import Options
from lamella.train.ranks.ledger import RankParameter, StageLedger, StepLedger, Transfer, read_ledger

SLOTS = 2
"""Numbers that AdamW remembers of a parameter."""


def describe_ranks(path: Path, options: Options) -> Description:
    """The ranks of a step of training the model of a file."""
    ledger = read_ledger(path, options)
    return Description("\n".join(_lines(ledger)), _data(ledger))


def _lines(ledger: StepLedger) -> Iterator[str]:
    extents = ", ".join(f"{name}={size}" for name, size in ledger.extents.items())
    parts = f" in {ledger.parts} parts" if ledger.parts > 1 else ""
    count = ledger.mesh.size
    yield f"{ledger.name} on {count} rank{'s' * (count > 1)}, {ledger.mesh}: a step of {extents or 'one batch'}{parts}"
    for number, stage in enumerate(ledger.stages):
        yield ""
        ranks = count // ledger.mesh.pp
        if ledger.mesh.pp > 1:
            yield f"stage {number}: {ranks} rank{'s' * (ranks > 1)}, each with"
        else:
            yield "each rank has"
        yield from _parameter_lines(stage)
        yield "  and exchanges in a step" if any(stage.transfers(ledger.parts)) else "  and exchanges nothing"
        yield from _transfer_lines(stage, ledger.parts)


def _parameter_lines(stage: StageLedger) -> Iterator[str]:
    groups: dict[tuple[str, RankParameter], int] = {}
    for item in stage.parameters:
        name = re.sub(r"\d+", "*", item.path)
        key = next((key for key in groups if key[0] == name and _alike(key[1], item)), (name, item))
        groups[key] = groups.get(key, 0) + 1
    rows = [(name if count > 1 else item.path, count, item) for (name, item), count in groups.items()]
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, count, item in rows:
        times = f"{count} ×" if count > 1 else ""
        of = f"  of {_shape(item.whole)}, {item.how}" if item.how else ""
        yield f"  {name:<{width}}  {times:>5} {_shape(item.local)}{of}".rstrip()
    held, trained = _bytes(stage), sum(item.size for item in stage.parameters if item.is_trained)
    yield f"  {_shown(held)} of parameters, {_shown(SLOTS * trained)} of AdamW's slots"


def _alike(first: RankParameter, second: RankParameter) -> bool:
    return (first.whole, first.local, first.how) == (second.whole, second.local, second.how)


def _transfer_lines(stage: StageLedger, parts: int) -> Iterator[str]:
    groups: dict[tuple[str, str, str], list[tuple[Transfer, int]]] = {}
    for item, times in stage.transfers(parts):
        groups.setdefault((item.phase, item.kind, item.axis), []).append((item, times))
    for (phase, kind, axis), items in groups.items():
        count = sum(times for _, times in items)
        sent = sum(item.sent * times for item, times in items)
        later = sum(times for item, times in items if item.is_later)
        while_ = f", {later} of them while it computes" if later else ""
        yield f"  {phase:<10} {kind:<15} {axis}  {count:>4} ×, {_shown(sent)} sent{while_}"


def _bytes(stage: StageLedger) -> int:
    return sum(item.size for item in stage.parameters)


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "one number"


def _shown(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.4g} {unit}"
        size /= 1000
    return f"{size:.4g} GB"


def _data(ledger: StepLedger) -> dict[str, object]:
    return {
        "name": ledger.name,
        "mesh": dict(ledger.mesh.extents),
        "ranks": ledger.mesh.size,
        "parts": ledger.parts,
        "extents": dict(ledger.extents),
        "stages": [_stage_data(item, ledger.parts) for item in ledger.stages],
    }


def _stage_data(stage: StageLedger, parts: int) -> dict[str, object]:
    return {
        "parameters": [
            {
                "path": item.path,
                "shape": list(item.whole),
                "local": list(item.local),
                "how": item.how,
                "bytes": item.size,
                "trained": item.is_trained,
            }
            for item in stage.parameters
        ],
        "bytes": _bytes(stage),
        "exchanges": [
            {
                "kind": item.kind,
                "axis": item.axis,
                "tensor": item.tensor,
                "phase": item.phase,
                "times": times,
                "bytes": item.size,
                "sent": item.sent,
                "later": item.is_later,
            }
            for item, times in stage.transfers(parts)
        ],
        "sent": sum(item.sent * times for item, times in stage.transfers(parts)),
    }
