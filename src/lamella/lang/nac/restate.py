"""Files of other versions as files of version 1.6, the only one that is written."""

from __future__ import annotations

from dataclasses import replace

from lamella.lang.nac.nodes import V1_6, File, Operation
from lamella.lang.nac.operations import standard_operations


def restate(file: File) -> File:
    """The same file in version 1.6, where operations that became standard later need names in CMAP.

    What 1.6 has no section for stays in the file: writing it is a finding.
    """
    known = {item.id for item in file.operations} | set(standard_operations(V1_6))
    names = standard_operations(file.header.version)
    used = {item.operation for item in file.instructions} & set(names) - known
    added = (Operation(number, names[number].name) for number in used)
    operations = (
        tuple(sorted((*file.operations, *added), key=lambda item: item.id)) if used else file.operations
    )
    return replace(file, header=replace(file.header, version=V1_6), operations=operations)
