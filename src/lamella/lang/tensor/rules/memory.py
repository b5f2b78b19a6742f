"""Bounds, races, aliases and uninitialised memory: TEN140 to TEN199."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, WARNING, Rule

# Bounds
LEAVES = Rule(
    "TEN140",
    "Memref type",
    "{what} of '%{name}' reaches {value}{example}; the mode has {size}",
    hint="positions run from 0 to the size of the mode minus 1",
)
CAN_LEAVE = Rule(
    "TEN141",
    "Memref type",
    "{what} of '%{name}' reaches {value}{example} where this is executed; the mode has {size}",
    WARNING,
    "positions run from 0 to the size of the mode minus 1",
)
UNPROVED = Rule(
    "TEN142",
    "Memref type",
    "it cannot be proved that {what} of '%{name}' {stays}{unknown}",
    NOTE,
    "compare it with the size in an if around the access to have it proved",
)
UP_TO_LAUNCH = Rule(
    "TEN143",
    "Execution model",
    "kernel '@{function}' uses group_id as a position, here in '%{name}': the launch decides whether it stays inside",
    NOTE,
    "a launch proves it with its sizes and work-groups, and is refused where it leaves; for every launch it is proved "
    "in an if that compares the position with the size",
)
WRONG_EXPANSION = Rule(
    "TEN144",
    "Expand",
    "mode {mode} of '%{name}' has {size}, and its new sizes make {product}",
    WARNING,
    "the product of the new sizes is the size of the mode",
)

# Work-items
STORE_RACE = Rule(
    "TEN145",
    "Execution model",
    "work-items with {first} and {second} store to one element of '%{name}', and their values may differ",
    WARNING,
    "let the indices tell work-items apart, store from one of them, or use an atomic store",
)
ACCESS_RACE = Rule(
    "TEN146",
    "Execution model",
    "the work-item with {first} {does} an element of '%{name}' that the one with {second} {other}, without a barrier",
    WARNING,
    "put a barrier between the accesses, or end the region between them",
)

# Collective instructions
ALIAS = Rule(
    "TEN147",
    "Collective instructions",
    "'{instruction}' writes to '%{output}' while it reads '%{input}', and they share memory",
    WARNING,
    "compute into memory of its own, and copy it from there",
)

# Local memory
UNINITIALISED = Rule(
    "TEN148",
    "Alloca",
    "'{instruction}' reads '%{name}', and nothing was written to that local memory before",
    WARNING,
    "write to it first; with a constant beta of 0 nothing is read, with one that only the run knows it may be",
)

# Loops
MAY_NOT_END = Rule(
    "TEN149",
    "For",
    "it cannot be proved that the loop over '%{name}' ends: {why}",
    NOTE,
    "let the step be 1 or more for every argument, and the end a step below the largest number of the type",
)
