"""Checkpoints of a training: all that the next step needs in one file, which is there whole or not at all.

Files are called by their steps, `step-00000100.safetensors`. One is written beside its name and moved to it when all of
it is on the disk; only then the one before the last is removed. So whenever a process is killed, the newest file that
has its name is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, printable
from lamella.base.errors import InputError, Malformed
from lamella.base.jsontext import decode_object
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import is_folder, read_bytes_in, shown
from lamella.base.records import dataclass
from lamella.base.writer import make_folder, remove_file
from lamella.graph.data.safetensors import decode_store, write_safetensors

FORMAT = "lamella.training.1"
FOLDER_ENDING = ".training"
"""What the folder of checkpoints is called behind the name of what is saved."""
KEPT = 2
"""Checkpoints that are kept."""
STATE, HISTORY = "state.", "history."
"""What stands before the names of what a trainer keeps, and of what a run has seen."""
_FILE = re.compile(r"step-(\d{8,12})\.safetensors")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A training after a step."""

    step: int
    """Steps that were taken."""
    state: Mapping[str, Array]
    """Parameters, optimiser slots, and what else a trainer keeps."""
    losses: Array
    """The losses of all steps so far."""
    evaluations: Array
    """Pairs of a step and a loss."""
    fingerprint: Mapping[str, object]
    """What must be the same for the rest of the run."""


def checkpoint_folder(target: Path) -> Path:
    """The folder of the checkpoints of what is saved at a path."""
    return target.with_name(f"{target.name}{FOLDER_ENDING}")


def checkpoint_file(folder: Path, step: int) -> Path:
    """The file of the checkpoint behind a step."""
    return folder / f"step-{step:08d}.safetensors"


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint, and remove those that are older than the one before it.

    Those of later steps are of a run before this one, which began anew: going on from them would be going on there.
    """
    make_folder(folder)
    path = checkpoint_file(folder, checkpoint.step)
    arrays = {f"{STATE}{name}": np.asarray(value) for name, value in checkpoint.state.items()}
    arrays[f"{HISTORY}losses"] = checkpoint.losses
    arrays[f"{HISTORY}evaluations"] = checkpoint.evaluations
    about = {
        "format": FORMAT,
        "step": str(checkpoint.step),
        "fingerprint": json.dumps(dict(checkpoint.fingerprint)),
    }
    write_safetensors(path, arrays, about, through_links=False)
    files = _files(folder)
    place = files.index(path)
    for old in (*files[: max(0, place + 1 - KEPT)], *files[place + 1 :]):
        remove_file(old)
    return path


def _files(folder: Path) -> list[Path]:
    """The checkpoints of a folder, the newest last."""
    if not is_folder(folder):
        return []
    found = [(int(match[1]), item) for item in folder.iterdir() if (match := _FILE.fullmatch(item.name))]
    return [item for _, item in sorted(found)]


def read_last(folder: Path, limits: Limits = DEFAULT) -> Checkpoint | None:
    """The newest checkpoint of a folder; None where there is none.

    A disk may lose what was written to it: where the newest cannot be read the one before it is taken.
    """
    files = _files(folder)
    problem: LamellaError | None = None
    for path in reversed(files):
        try:
            return read_checkpoint(path, limits)
        except LamellaError as found:
            problem = problem or found
    if problem is not None:
        hint = "no other checkpoint can be read either: begin anew without --resume"
        raise LamellaError([replace(item, hint=hint) for item in problem.findings])
    return None


def read_checkpoint(path: Path, limits: Limits = DEFAULT) -> Checkpoint:
    """The checkpoint of a file; LamellaError says what is wrong with it."""
    found = decode_store(read_bytes_in(path.parent, path.name, limits), shown(path))
    about = found.metadata
    if about.get("format") != FORMAT or not about.get("step", "").isdecimal():
        raise InputError("it is no checkpoint of a training", path=shown(path))
    try:
        fingerprint = decode_object(about.get("fingerprint", ""))
    except Malformed as problem:
        raise InputError(f"what it says of its training {problem}", path=shown(path)) from None
    losses, evaluations = (found.arrays.get(f"{HISTORY}{name}") for name in ("losses", "evaluations"))
    step = int(about["step"])
    if losses is None or evaluations is None or losses.shape != (step,) or evaluations.shape[1:] != (2,):
        raise InputError("it does not hold the losses of its steps", path=shown(path))
    state = {
        name.removeprefix(STATE): value for name, value in found.arrays.items() if name.startswith(STATE)
    }
    return Checkpoint(step, state, losses, evaluations, fingerprint)


def require_same(
    found: Mapping[str, object], wanted: Mapping[str, object], free: Sequence[str], folder: Path
) -> None:
    """InputError names what a run was begun with otherwise; what is `free` may differ."""
    for key in sorted({*found, *wanted}):
        if key not in free and found.get(key) != wanted.get(key):
            before, now = (printable(json.dumps(item.get(key)), 80) for item in (found, wanted))
            hint = "give the options of the first run, or begin anew without --resume"
            raise InputError(
                f"the checkpoint in '{shown(folder)}' was written with {key} {before}, not {now}", hint=hint
            )
