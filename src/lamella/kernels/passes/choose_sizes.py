"""The pass that writes the sizes of a kernel into its attributes, so that all that follows can read them there."""

from __future__ import annotations

from dataclasses import replace

from lamella.kernels.sizes import choose_sizes
from lamella.kernels.target import Target
from lamella.lang.tensor.nodes import Dictionary, Entry, Function


def write_sizes(function: Function, target: Target) -> Function:
    """The kernel with `subgroup_size` and `work_group_size`, as it asks for them or as they fit the target."""
    sizes = choose_sizes(function, target)
    given = Dictionary() if function.attributes is None else function.attributes
    chosen = (
        Entry("subgroup_size", sizes.subgroup_size),
        Entry("work_group_size", sizes.work_group_size),
    )
    kept = [entry for entry in given.entries if entry.key not in ("subgroup_size", "work_group_size")]
    entries = tuple(sorted([*kept, *chosen], key=lambda entry: entry.key))
    return replace(function, attributes=replace(given, entries=entries))
