"""What runs keep, and where they go: states NAC260 to NAC264, branches and convergence NAC265 to NAC274."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

_INPUT = "7.1 <INPUT>"
_BRANCH, _OUTPUT = "7.3 <CONTROL_FLOW>", "7.2 <OUTPUT>"

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

# Blocks
BLOCK_END = Rule(
    "NAC265",
    _OUTPUT,
    "block {number} of instruction {owner} {problem}",
    hint="a block ends with <OUTPUT> of variant 1, which names its results",
)
HANDED_ELSEWHERE = Rule(
    "NAC266",
    _OUTPUT,
    "instruction {index} is <OUTPUT> of variant 1 and {problem}",
    hint="it is the last instruction of a block, or one of several at its end",
)
FINAL_INSIDE = Rule(
    "NAC267",
    _OUTPUT,
    "instruction {index} ends the program inside a block of instruction {owner}",
    hint="hand the results over with variant 1, and end the program behind the blocks",
)
ACROSS = Rule(
    "NAC268",
    _BRANCH,
    "instruction {index} uses instruction {target}, {problem}",
    hint="a block hands its results over; use the result of the instruction that has the blocks, behind them",
)
RESULT_COUNT = Rule(
    "NAC269",
    _BRANCH,
    "instruction {index}: {problem}",
    hint="all blocks of a branch hand over the same number of results",
)
CONVERGENCE_EMPTY = Rule(
    "NAC270",
    "7.3 <CONVERGENCE>",
    "instruction {index} merges no blocks",
    hint="field C holds the length of each block",
)
THRESHOLD = Rule(
    "NAC271",
    "7.3 <CONVERGENCE>",
    "instruction {index} has a threshold of {threshold} percent",
    hint="it is a number from 0 to 100, and 0 stands for 50",
)
RESULT_TYPES = Rule(
    "NAC272",
    _BRANCH,
    "result {number} of instruction {index} is {one} from block {first} and {other} from block {second}",
    hint="all blocks give results of the same element types and shapes",
)
NESTED = Rule(
    "NAC273",
    _BRANCH,
    "the blocks of instruction {index} stand inside {depth} others; {limit} may stand inside each other",
    hint="compute with nac.where what need not be skipped",
)
FREE_INSIDE = Rule(
    "NAC274",
    "4.5 Actions",
    "FREE at tick {tick} of instruction {target}, which stands before the block that tick {tick} is in",
    WARNING,
    "whether the block runs is not known: free behind the blocks",
)
