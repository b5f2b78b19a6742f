"""Calls like the one before: what was verified for that one need not be verified again.

A call of a small network takes a few milliseconds, after which nothing of Python is in a cache: each function that a
call goes through costs a microsecond or more.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_

import numpy as np

from lamella.backend.drawing import Drawn
from lamella.backend.executor.segments import Segment
from lamella.base.arrays import Array, DType, to_exchange
from lamella.base.records import dataclass


@dataclass(frozen=True, slots=True)
class RepeatedCall:
    """A call of a graph that is one segment and keeps no states, as it was made last."""

    segment: Segment
    inputs: Mapping[str, tuple[DType, tuple[int, ...]]]
    """The types and shapes of what was given: all inputs."""
    variables: Mapping[str, Array]
    outputs: tuple[str, ...]
    drawn: Drawn

    def run(self, given: object, state: Mapping[str, Array]) -> dict[str, Array] | None:
        """The outputs; None where the call is another one, or the segment found something wrong."""
        variables = self.variables
        if not isinstance(given, Mapping):
            return None
        if len(given) != len(self.inputs) or not all(map(is_, map(state.get, variables), variables.values())):
            return None
        found: dict[str, Array] = dict(variables)
        for name, (dtype, shape) in self.inputs.items():
            array = given.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
                return None
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                return None
            found[name] = array
        made = self.segment.run(found)
        return None if made is None else {name: to_exchange(made[name]) for name in self.outputs}
