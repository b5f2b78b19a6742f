"""Rules of tables (NAC040 to NAC069), parameters, inputs, tensors and their quantisation (NAC130 to NAC150)."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

# --- operations, signatures and constants: NAC040 to NAC069 -------------------------------------------------


# Operations
SYSTEM_REDEFINED = Rule(
    "NAC040",
    "5.1 CMAP",
    "operation id {id} is given the name '{name}'; ids below 10 are system operations",
    hint="give it an id from 201 to 255",
)
OPERATION_TWICE = Rule(
    "NAC041",
    "5.1 CMAP",
    "operation id {id} has two names: '{first}' and '{name}'",
    hint="each id stands for one operation",
)
OPERATION_NAME_TWICE = Rule(
    "NAC042",
    "5.1 CMAP",
    "operation '{name}' has two ids: {first} and {id}",
    WARNING,
    "one id for each operation is enough",
)
OPERATION_UNREACHABLE = Rule(
    "NAC043",
    "3.2 Field A",
    "no instruction can name operation id {id}; field A reaches to 255",
    WARNING,
    "give it an id from 201 to 255",
)
OPERATION_UNNAMED = Rule(
    "NAC044",
    "5.1 CMAP",
    "operation id {id} has an empty name",
    hint="name it, for example 'aten.relu.default'",
)

# Signatures
SIGNATURE_TWICE = Rule(
    "NAC050",
    "5.2 PERM",
    "signature id {id} stands for two signatures: '{first}' and '{codes}'",
    hint="each id stands for one signature",
)
SIGNATURE_UNREACHABLE = Rule(
    "NAC051",
    "3.3 Field B",
    "no instruction can name signature id {id}; field B reaches to 255",
    WARNING,
    "give it an id from 1 to 255",
)
SIGNATURE_CODE = Rule(
    "NAC052",
    "5.2 PERM",
    "'{code}' in signature '{codes}' is not a code",
    hint="tensors are Q K V M B W T P, constants are A S i f b s c",
)
SIGNATURE_ZERO = Rule(
    "NAC053",
    "3.3 Field B",
    "signature id 0 is '{codes}'; instructions with field B 0 have no arguments",
    WARNING,
    "give it an id from 1 to 255",
)

# Constants
CONSTANT_TWICE = Rule(
    "NAC060",
    "5.3 CNST",
    "constant id {id} has two values",
    hint="each id stands for one constant",
)
CONSTANT_UNREACHABLE = Rule(
    "NAC061",
    "3.4 Field C",
    "no instruction can name constant id {id}; field C reaches to 32767",
    WARNING,
    "give it a smaller id",
)


# --- parameters, inputs and tensors: NAC130 to NAC150 -------------------------------------------------------


# Names
PARAMETER_TWICE = Rule(
    "NAC130",
    "6.1 DATA",
    "parameter id {id} has two names: '{first}' and '{name}'",
    hint="each id stands for one parameter",
)
PARAMETER_NAME_TWICE = Rule(
    "NAC131",
    "6.1 DATA",
    "parameter '{name}' has two ids: {first} and {id}",
    hint="a tensor that is shared has one id, which several instructions load",
)
INPUT_TWICE = Rule(
    "NAC132",
    "6.1 DATA",
    "the input of instruction {index} has two names: '{first}' and '{name}'",
    hint="each input has one name",
)
INPUT_NAME_TWICE = Rule(
    "NAC133",
    "6.1 DATA",
    "instructions {first} and {index} take inputs of one name, '{name}'",
    hint="each input has a name of its own",
)
INPUT_NOT_USER = Rule(
    "NAC134",
    "6.1 DATA",
    "input '{name}' belongs to instruction {index}, which is not an <INPUT> of variant 0 or 3",
    hint="names belong to the instructions that take user inputs, or lifted constants",
)
PARAMETER_UNKNOWN = Rule(
    "NAC135",
    "7.1 <INPUT>",
    "parameter id {id} is not in DATA",
    hint="name the parameter",
)
TENSOR_TWICE = Rule(
    "NAC136",
    "6.1 DATA",
    "parameter id {id} has two tensors",
    hint="each parameter has one tensor",
)
TENSOR_UNNAMED = Rule(
    "NAC137",
    "6.1 DATA",
    "a tensor is given for parameter id {id}, which has no name",
    hint="name the parameter",
)
TENSOR_MISSING = Rule(
    "NAC138",
    "6.1 DATA",
    "parameter '{name}' has no tensor, and the weights are in this file",
    hint="add its tensor, or store the weights outside",
)
NAME_EMPTY = Rule(
    "NAC139",
    "6.1 DATA",
    "{what} {id} has an empty name",
    hint="name it",
)

# Tensors
DTYPE_UNKNOWN = Rule(
    "NAC140",
    "6.1.1 Metadata",
    "{what} has element type {dtype}, which does not exist",
    hint="element types are 0 to 9",
)
DATA_LENGTH = Rule(
    "NAC141",
    "6.1.1 Metadata",
    "{what} has {length} bytes; {dtype} of shape {shape} has {wanted}",
    hint="the product of the dimensions times the bytes of an element",
)
SHAPE_TOO_LARGE = Rule(
    "NAC142",
    "6.1.1 Metadata",
    "{what} has shape {shape}, which is more than can be counted or has more than {limit} dimensions",
    hint="correct the shape",
)

# Quantisation
QUANT_DTYPE = Rule(
    "NAC143",
    "6.1.1 Metadata",
    "{what} is quantised by {method} and has elements of {dtype}",
    hint="FP16 has float16, all other methods have int8",
)
SCALE_VALUE = Rule(
    "NAC144",
    "6.1.1 Metadata",
    "scale {number} of {what} is {scale}",
    hint="scales are positive and finite",
)
AXIS_RANGE = Rule(
    "NAC145",
    "6.1.1 Metadata",
    "{what} has scales along axis {axis} and has {rank} dimensions",
    hint="axes are counted from 0",
)
SCALE_COUNT = Rule(
    "NAC146",
    "6.1.1 Metadata",
    "{what} has {count} scales; its shape needs {wanted}",
    hint="one for each index of the axis, or for each block",
)
BLOCK_SIZE = Rule(
    "NAC147",
    "6.1.1 Metadata",
    "{what} has blocks of 0 elements",
    hint="blocks usually have 64",
)
BLOCK_SHAPE = Rule(
    "NAC148",
    "6.1.1 Metadata",
    "{what} is stored with shape {shape}; {original} in blocks of {block} is stored as [{wanted}]",
    hint="the flattened tensor, filled up to whole blocks",
)
METHOD_MISMATCH = Rule(
    "NAC149",
    "2.2 Header",
    "{what} is quantised by {method}; the header says {header}",
    WARNING,
    "the header names the method of the file",
)
PARAMETER_UNREACHABLE = Rule(
    "NAC150",
    "6.1 DATA",
    "no instruction can load parameter id {id}; field C reaches to 32767",
    WARNING,
    "give it a smaller id",
)
