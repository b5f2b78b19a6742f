"""Files of variables and what makes a graph whole: SKR340 to SKR369."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

_DAT = "Model folder and binary tensor file"
_STORE = "Model folder: safetensors"
_WEIGHTS = "2.7 Variable and constant tensors"

SHORT_HEADER = Rule(
    "SKR340",
    _DAT,
    "the file has {size} bytes; its header alone takes 128",
    hint="the file was cut, or it is no tensor file",
)
WRONG_MAGIC = Rule("SKR341", _DAT, "byte 0 begins with {found}; a tensor file begins with 4e ef")
WRONG_VERSION = Rule("SKR342", _DAT, "byte 2 gives version {major}.{minor}; 1.0 is read here")
WRONG_LENGTH = Rule(
    "SKR343", _DAT, "byte 4 promises {length} bytes of items; {found} bytes follow the header"
)
WRONG_RANK = Rule("SKR344", _DAT, "byte 8 gives rank {rank}; a tensor file has at most 8 extents")
WRONG_EXTENT = Rule(
    "SKR345", _DAT, "byte {offset} gives extent {extent} for axis {axis}, which is not positive"
)
UNUSED_EXTENT = Rule(
    "SKR346", _DAT, "byte {offset} gives extent {extent} for axis {axis} of a tensor of rank {rank}"
)
WRONG_BITS = Rule(
    "SKR347", _DAT, "byte 44 gives {bits} bits for an item of type {kind}; it may have {widths}"
)
WRONG_ITEM = Rule("SKR348", _DAT, "byte 48 gives item type {code} of vendor {vendor}, which is not known")
WRONG_RESERVED = Rule("SKR349", _DAT, "byte {offset} is reserved and must be 0, not {value}")
WRONG_VOLUME = Rule(
    "SKR350", _DAT, "{shape} of {bits} bits takes {needed} bytes; the header promises {length}"
)
PADDING_BITS = Rule("SKR351", _DAT, "byte {offset}, the last one, has bits set behind the last item")
WRONG_BOOL = Rule("SKR352", _DAT, "byte {offset} is {value}; a bool of 8 bits is 0 or 1")
NOT_EXPRESSIBLE = Rule(
    "SKR353",
    _DAT,
    "'{name}' ({what}) cannot be written as a tensor file: {reason}",
    hint="a .safetensors file holds it",
)
WRONG_STORE_HEADER = Rule("SKR354", _STORE, "byte {offset}: {reason}")
WRONG_STORE_ENTRY = Rule("SKR355", _STORE, "the entry of '{name}' {reason}")
WRONG_STORE_RANGE = Rule(
    "SKR356",
    _STORE,
    "'{name}' lies at bytes {begin} to {end} of the data; {reason}",
    hint="the tensors of a file lie one behind the other and fill it",
)
STORED_TWICE = Rule("SKR357", _STORE, "'{name}' is stored twice")
EXTENT_OUT_OF_BOUND = Rule(
    "SKR358",
    "3.1 Dynamic tensor shapes",
    "extent '{name}' is to be {value}; it lies between {low} and {high}",
)
NO_SUCH_EXTENT = Rule(
    "SKR359",
    "3.1 Dynamic tensor shapes",
    "graph '{graph}' has no open extent '{name}'",
    hint="its open extents are: {known}",
)
NO_DATA = Rule(
    "SKR360",
    _WEIGHTS,
    "variable '{name}' ({type}) has no data",
    hint="expected {files}",
)
UNUSED_DATA = Rule("SKR361", _WEIGHTS, "'{file}' belongs to no variable of graph '{graph}'", severity=WARNING)
WRONG_SHAPE = Rule("SKR362", _WEIGHTS, "variable '{name}' is {type}; its data have shape {found}")
WRONG_TYPE = Rule("SKR363", _WEIGHTS, "variable '{name}' is {type}; its data are {found}")
ROUNDED_DATA = Rule(
    "SKR364",
    _WEIGHTS,
    "the data of variable '{name}' are {found} and are rounded to {type}",
    severity=WARNING,
    hint="declare the variable with the type of its data, or compute in 64 bits: --dtype f64",
)
DATA_DO_NOT_FIT = Rule("SKR365", _WEIGHTS, "variable '{name}' is {type}; its data hold {value}")
SEVERAL_DATA = Rule(
    "SKR366", _WEIGHTS, "variable '{name}' has several data: {files}", hint="keep one of the files"
)
CODES_WITHOUT_SCALE = Rule(
    "SKR367",
    "2.14 Quantization",
    "the data of variable '{name}' are codes of {bits} bits, and nothing says what they stand for",
    hint="give the variable a linear quantizer in @quantize",
)
OPEN_SHAPE = Rule(
    "SKR368", _WEIGHTS, "variable '{name}' has shape {shape}; the shape of a variable is known before the run"
)
BAD_GRAPH = Rule("SKR369", "3 Graph composition", "graph '{graph}': {problem}")
