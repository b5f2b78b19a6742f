"""Files as graphs, where a sound file says too little or what has no translation: NAC220 to NAC234, 287, 288."""

from __future__ import annotations

from lamella.base.diagnostic import Rule

# Inputs and parameters
INPUT_TYPE_MISSING = Rule(
    "NAC220",
    "7.1 <INPUT>",
    "nothing tells the element type and the shape of input '{name}'",
    hint="give them, as in --type '{name}=f32[1,8]', or describe the input in the resource lamella.json",
)
INPUT_UNKNOWN = Rule(
    "NAC221",
    "7.1 <INPUT>",
    "input '{name}' is described, but the file has no such input",
    hint="the inputs are {known}",
)
WEIGHTS_MISSING = Rule(
    "NAC222",
    "6.1 DATA",
    "instruction {index} loads parameter '{name}', whose weights and shape are not given",
    hint="weights stand in DATA or in the .safetensors file beside the file",
)
NOTES_MALFORMED = Rule(
    "NAC223",
    "6.3 RSRC",
    "resource lamella.json: {problem}",
    hint="write the file again, or remove the resource and say what the inputs are",
)
OPERATORS_MALFORMED = Rule(
    "NAC287",
    "6.3 RSRC",
    "resource '{name}'{place}: {problem}",
    hint="it holds SkriptND operators that instructions call; `lamella show --extract` writes it to a file",
)
OPERATOR_SHADOWS = Rule(
    "NAC288",
    "5.1 CMAP",
    "operator '{operator}' of the model's own has the name of one of the library, which readers would take",
    hint="give its module another name",
)

# Instructions
STATE_REFUSED = Rule(
    "NAC224",
    "7.1 <INPUT>",
    "instruction {index} loads state {id}; no field says what it is and what updates it",
    hint='describe it under the key "states" of the resource lamella.json',
)
CONDITION = Rule(
    "NAC225",
    "7.3 <CONTROL_FLOW>",
    "instruction {index} chooses by {what}",
    hint="a condition is one truth value: a bool tensor without dimensions",
)
OPERATION_FOREIGN = Rule(
    "NAC226",
    "5.1 CMAP",
    "instruction {index} is '{name}', which is no operation that Lamella knows",
    hint="known are the standard operations, those of ATen and those of our library",
)
ARGUMENTS_UNFIT = Rule(
    "NAC227",
    "5.2 PERM",
    "instruction {index}, '{name}', cannot take {arguments}",
    hint="it is {schema}",
)
NO_VALUE = Rule(
    "NAC228",
    "3.5 Field D",
    "instruction {index}, '{name}', uses instruction {target}, which gives {what}",
    hint="use the instruction that computes the value",
)
OUTPUT_KIND = Rule(
    "NAC229",
    "7.2 <OUTPUT>",
    "output {number} is instruction {target}, which gives {what}",
    hint="only tensors can be outputs",
)

# Sizes
TOO_LARGE = Rule(
    "NAC230",
    "8.2 Execution",
    "instruction {index}, '{name}', gives {what}: {problem}",
    hint="raise it with --limit {limit}=N",
)
CALL_REFUSED = Rule(
    "NAC231",
    "8.2 Execution",
    "instruction {index}, '{name}': {problem}",
    hint="sizes are signed 64-bit integers, and numbers are finite where sizes are made of them",
)
