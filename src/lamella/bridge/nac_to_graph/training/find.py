"""The training graph of a file: from its section TRNG, or from the resources that version 1.6 has instead."""

from __future__ import annotations

from typing import cast

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.bridge.nac_to_graph.training.entry import entry_to_backward, find_misfits
from lamella.bridge.nac_to_graph.training.nodes import Backward, Change
from lamella.bridge.nac_to_graph.weights import Weights
from lamella.lang.nac.check import check
from lamella.lang.nac.check.sections.entry import has_entry, read_entry
from lamella.lang.nac.check.sections.training import is_end, is_update, rate_constant
from lamella.lang.nac.check.tables import read_tables
from lamella.lang.nac.nodes import File


def has_training(file: File) -> bool:
    """Whether a file says how it is trained."""
    return bool(file.training) or has_entry(file)


def find_backward(file: File, weights: Weights) -> Backward:
    """The training graph of a checked file; LamellaError tells what is wrong with it, or that there is none."""
    if file.training:
        return _of_section(file)
    entry, findings = read_entry(file, check)
    if entry is not None:
        findings = list(find_misfits(file, entry, weights))
    if findings:
        raise LamellaError(findings)
    if entry is None:
        raise no_training()
    return entry_to_backward(file, entry)


def no_training() -> InputError:
    """What is told of a file that cannot be trained."""
    hint = "lamella.from_torch(module, args, loss=…, targets=…) makes one"
    return InputError("the file has no training graph", hint=hint)


def _of_section(file: File) -> Backward:
    tables, code = read_tables(file), file.training
    changes = []
    for index, item in enumerate(code):
        if is_update(item):
            constant = rate_constant(file, index, tables)
            gradient, source = (index + offset for offset in item.offsets)
            number = None if constant is None else float(cast("float", constant.value))
            changes.append(Change(item.constants[0], gradient, item.span, number, source))
    ends = (index + item.offsets[0] for index, item in enumerate(code) if is_end(item) and item.offsets)
    return Backward(file, code, tuple(changes), next(ends, None))
