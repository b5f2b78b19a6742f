"""The virtual machine of NAC: runs the instructions of a file and obeys its memory schedule."""

from __future__ import annotations

from lamella.backend.nacvm.machine import Machine, compile_program
from lamella.backend.nacvm.program import Event, Program, Result, State

__all__ = ["Event", "Machine", "Program", "Result", "State", "compile_program"]
