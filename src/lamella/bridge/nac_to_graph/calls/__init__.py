"""What an instruction calls, and with which operands: names and arguments as compilers write them."""

from __future__ import annotations

from lamella.bridge.nac_to_graph.calls.names import call, is_dropped, is_in_place

__all__ = ["call", "is_dropped", "is_in_place"]
