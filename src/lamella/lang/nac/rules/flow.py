"""What runs keep, and where they go: states NAC260 to NAC264, branches and convergence NAC265 to NAC274."""

from __future__ import annotations

from lamella.base.diagnostic import Rule

_INPUT = "7.1 <INPUT>"

# States
STATE_UNDESCRIBED = Rule(
    "NAC260",
    _INPUT,
    "instruction {index} loads state {id}, which lamella.json does not describe",
    hint="described are the states {known}",
)
STATE_TWICE = Rule(
    "NAC261",
    _INPUT,
    "state {id}, '{name}', has {what} of state '{first}'",
    hint="each state has an id, a name and an output of its own",
)
STATE_INITIAL = Rule(
    "NAC262",
    _INPUT,
    "state '{name}' is {type} and begins as parameter {id}, which {problem}",
    hint="name a parameter of this type, or null for zeros",
)
STATE_UPDATE = Rule(
    "NAC263",
    _INPUT,
    "state '{name}' becomes output {update}; the new values of {states} are outputs {wanted}",
    hint="new values stand behind the outputs that the caller gets",
)
STATE_TYPE = Rule(
    "NAC264",
    _INPUT,
    "state '{name}' is {type}; output {update}, which it becomes, is {found}",
    hint="a state keeps its element type and its shape",
)
