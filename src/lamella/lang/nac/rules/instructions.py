"""Instructions, their arguments, inputs, outputs and branches: NAC070 to NAC099."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

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
