"""What an instruction calls, and with which operands: names and arguments as compilers write them."""

from __future__ import annotations

from lamella.bridge.nac_to_graph.calls.names import call, foreign, foresee, is_dropped, is_in_place, is_known

__all__ = ["call", "foreign", "foresee", "is_dropped", "is_in_place", "is_known"]
