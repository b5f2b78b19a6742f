"""Rules of the bridges between files and graphs (NAC208 to NAC231, 287, 288) and of external weights (NAC151 on)."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, WARNING, Rule

# --- graphs that NAC cannot express: NAC208 to NAC218 -------------------------------------------------------


_OPERATIONS = "3.2 Field A"

CONTROL_FLOW = Rule(
    "NAC208",
    "7.3 <CONTROL_FLOW>",
    "'{tensor}' is made by {what}, and instructions of NAC never run twice",
    hint="loops of few steps are written out where their number is known, as by --shape; "
    "or let a plan run the model several times",
)
UPDATED = Rule(
    "NAC209",
    "7.1 <INPUT>",
    "variable '{name}' is {type} and becomes {found} after a run; a state of NAC keeps its type and its shape",
    hint="give the new value the type and the shape of the variable",
)
OPEN_PACK = Rule(
    "NAC210",
    "3.5 Field D",
    "'{name}' is a pack of {size} tensors, a number that only the run tells",
    hint="give the extents their values before the model is written",
)
NOT_SHIPPED = Rule(
    "NAC211",
    _OPERATIONS,
    "no reader knows operator '{operator}', which makes '{tensor}'",
    hint="decompose it into operators of the library",
)
QUANTIZED = Rule(
    "NAC212",
    "6.1 DATA",
    "tensor '{name}' is quantised by '{operator}' while the graph runs; NAC has no field for that",
    hint="leave the quantisation out, or call the operator in the graph",
)
EXTENT = Rule(
    "NAC213",
    "3.5 Field D",
    "{what} '{name}' needs '{extent}', which {problem}",
    hint="give the extents their values before the model is written",
)
ELEMENT = Rule(
    "NAC214",
    "6.1.1 Metadata",
    "{what} '{name}' has elements of {element}, which NAC has no code for",
    hint="the types are float32, float64, float16, bfloat16, int32, int64, int16, int8, uint8 and bool",
)
NO_VALUES = Rule(
    "NAC215",
    "6.1 DATA",
    "variable '{name}' {problem}",
    hint="load the model with its weights, or write the file without them",
)
TOO_MANY = Rule(
    "NAC216",
    "3 Instructions",
    "the graph needs {count} {what}; a file has room for {limit}",
)
LEFT_OUT = Rule("NAC217", "4 MMAP, 6.1 DATA", "{what} is left out: {reason}", NOTE)
OTHERWISE = Rule(
    "NAC218",
    _OPERATIONS,
    "operator '{operator}' makes '{tensor}' as {wanted}; written down it makes {found}",
    hint="decompose it into operators of the library",
)


# --- weights beside a file, or in place of its own: NAC151 to NAC158 ----------------------------------------


_EXTERNAL = "6.1 DATA, external weights"

WEIGHT_MISSING = Rule(
    "NAC151",
    _EXTERNAL,
    "parameter '{name}' has no weights among the {count} that are given",
    hint="weights bear the names of parameters; these may belong to another model",
)
WEIGHT_UNUSED = Rule(
    "NAC152",
    _EXTERNAL,
    "weights are given for '{name}', which is no parameter of this file",
    WARNING,
    "they are left out",
)
WEIGHT_SHAPE = Rule(
    "NAC153",
    _EXTERNAL,
    "parameter '{name}' has shape {shape}; the weights that are given have {found}",
    hint="code stays as it is, so weights keep their shapes",
)
WEIGHT_TYPE = Rule(
    "NAC154",
    _EXTERNAL,
    "parameter '{name}' has elements of {dtype}; the weights that are given have {found}",
    hint="floating types are converted into each other, others stay what they are",
)
WEIGHT_ELEMENTS = Rule(
    "NAC155",
    _EXTERNAL,
    "the weights of parameter '{name}' have elements of {found}, which NAC has no code for",
    hint="the types are float32, float64, float16, bfloat16, int32, int64, int16, int8, uint8 and bool",
)
QUANT_ENTRY = Rule(
    "NAC156",
    _EXTERNAL,
    "the quantisation of '{name}' {problem}",
    hint="an object of quant_type, scale or scales, and axis or block_size with original_shape",
)
QUANT_TWICE = Rule(
    "NAC157",
    _EXTERNAL,
    "the quantisation of '{name}' is given under '{first}' and differently under '{key}'",
    hint="keep one of them",
)
CODES_WITHOUT_SCALE = Rule(
    "NAC158",
    _EXTERNAL,
    "parameter '{name}' has elements of int8 in a file of method {method}, and no scales are given at all",
    hint="say in the weights' metadata how they are quantised",
)
WEIGHTS_OF_ANOTHER = Rule(
    "NAC159",
    _EXTERNAL,
    "these weights have the digest {found}; the file was written together with weights of {wanted}",
    hint="write both again, or name the weights themselves where they are to be taken",
)


# --- files that have no lowering to a graph, or say too little: NAC220 to NAC231, 287, 288 ------------------


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
