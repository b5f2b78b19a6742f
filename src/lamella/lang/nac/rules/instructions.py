"""Rules of instructions (NAC070 to NAC099), states (NAC260 to NAC264) and control flow (NAC265 to NAC274)."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

# --- states and control flow: NAC260 to NAC274 --------------------------------------------------------------


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


# --- instructions: NAC070 to NAC099 -------------------------------------------------------------------------


# Operations and signatures
UNKNOWN_OPERATION = Rule(
    "NAC070",
    "3.2 Field A",
    "operation id {id} is neither in CMAP nor a standard operation of version {version}",
    hint="name it in CMAP",
)
UNUSED_SYSTEM = Rule(
    "NAC071",
    "3.2 Field A",
    "there is no system operation {id}",
    hint="system operations are 2 <INPUT>, 3 <OUTPUT>, 6 <CONTROL_FLOW> and 7 <CONVERGENCE>",
)
CONSTANT_LOST = Rule(
    "NAC072",
    "3.2 Field A",
    "instruction {user} uses instruction {index}, which is <NONE>: a folded constant whose value was not written",
    hint="compile the model again, with the constant as a parameter",
)
CONSTANT_LOST_UNUSED = Rule(
    "NAC073",
    "3.2 Field A",
    "instruction {index} is <NONE>, a folded constant whose value was not written; nothing uses it",
    WARNING,
    "remove it",
)
UNKNOWN_SIGNATURE = Rule(
    "NAC074",
    "3.3 Field B",
    "signature id {id} is not in PERM",
    hint="0 stands for an operation without arguments",
)

# Arguments
ARGUMENT_COUNT = Rule(
    "NAC075",
    "5.1 CMAP",
    "'{name}' takes {counts} arguments; signature '{codes}' gives it {count}",
    hint="its arguments are {arguments}",
)
CONSTANT_COUNT = Rule(
    "NAC076",
    "3.5 Field D",
    "{count} constants are given; the offsets of signature '{codes}' ask for {wanted}",
    hint="each 0 in field D takes the next id of field C",
)
TENSOR_WITHOUT_OFFSET = Rule(
    "NAC077",
    "5.2 PERM",
    "argument {number} has code '{code}', the code of a tensor, and offset 0",
    hint="point to the instruction that computes it, or use the code of a constant",
)
NOT_BEFORE = Rule(
    "NAC078",
    "3.5 Field D",
    "argument {number} of instruction {index} is instruction {target}, which does not come before it",
    hint="offsets are negative",
)
BEFORE_FIRST = Rule(
    "NAC079",
    "3.5 Field D",
    "argument {number} of instruction {index} has offset {offset}, which points before the first instruction",
    hint="an offset reaches back {index} instructions here",
)
NO_RESULT = Rule(
    "NAC080",
    "3.5 Field D",
    "argument {number} is instruction {target}, {name}, which has no result",
    hint="use the instruction that computes the value",
)
CONSTANT_MISSING = Rule(
    "NAC081",
    "3.4 Field C",
    "constant id {id} is not in CNST",
    hint="add the constant",
)
CONSTANT_UNFIT = Rule(
    "NAC082",
    "5.2 PERM",
    "argument {number} has code '{code}', {wanted}; constant {id} is {value}",
    hint="change the code or the constant",
)

# Inputs and outputs
INPUT_VARIANT = Rule(
    "NAC084",
    "7.1 <INPUT>",
    "<INPUT> has no variant {variant} here",
    hint="variants are 0 user, 1 parameter, 2 state, 3 constant; in a training graph also 4 activation, 5 target",
)
OUTPUT_VARIANT = Rule(
    "NAC085",
    "7.2 <OUTPUT>",
    "<OUTPUT> has no variant {variant} here",
    hint="variants are 0 final, 1 of a subgraph; in a training graph 3 update, 4 end",
)
NO_FINAL_OUTPUT = Rule(
    "NAC086",
    "7.2 <OUTPUT>",
    "no instruction is the final <OUTPUT>",
    hint="the last instruction is <OUTPUT> of variant 0",
)
SECOND_FINAL_OUTPUT = Rule(
    "NAC087",
    "7.2 <OUTPUT>",
    "instruction {index} is a second final <OUTPUT>; instruction {first} already ends the program",
    hint="one <OUTPUT> names all outputs",
)
AFTER_FINAL = Rule(
    "NAC088",
    "7.2 <OUTPUT>",
    "instruction {index} is never executed; instruction {first} ends the program",
    WARNING,
    "remove what follows the final <OUTPUT>",
)
OUTPUT_COUNT = Rule(
    "NAC089",
    "7.2 <OUTPUT>",
    "<OUTPUT> names {count} results; the header says {wanted}",
    hint="the header counts the outputs",
)
LIFTED_LOST = Rule(
    "NAC090",
    "7.1 <INPUT>",
    "constant {id} is '{value}', which describes a tensor whose elements were not written",
    hint="compile the model again, with the tensor as a parameter",
)
INPUT_COUNT = Rule(
    "NAC091",
    "2.2 Header",
    "the header says {wanted} inputs; {count} instructions take one",
    hint="the header counts the <INPUT> instructions of variant 0",
)
INPUT_LOST = Rule(
    "NAC092",
    "7.1 <INPUT>",
    "instruction {index} takes an input that has no name, and the header counts {wanted} inputs of {count}",
    hint="it is likely a tensor constant that was not written; name it, or store it as a parameter",
)

# Branches
BRANCH_RANGE = Rule(
    "NAC094",
    "7.3 <CONTROL_FLOW>",
    "branches of {lengths} instructions do not fit the {left} that follow",
    hint="lengths count the instructions behind this one",
)
BRANCH_CROSSES = Rule(
    "NAC095",
    "7.3 <CONTROL_FLOW>",
    "branches of {lengths} instructions leave the branch around them, which ends before instruction {end}",
    hint="an inner branch ends inside the outer one",
)
