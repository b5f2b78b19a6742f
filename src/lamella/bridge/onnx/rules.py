"""The rules of ONNX files.

ONX001 to ONX039 say what makes one wrong, ONX040 to ONX059 what cannot become a graph, ONX060 on what cannot leave as
ONNX.
"""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

MODEL, GRAPHS, NODES, TENSORS = "ModelProto", "GraphProto", "NodeProto", "TensorProto"
IMPORTING = "Import"
EXPORTING = "Export"

# --- the model ----------------------------------------------------------------------------------------------------

IR_VERSION = Rule(
    "ONX001", MODEL, "ir_version is {version}; versions 3 to {newest} are known", hint="save the model again"
)
NO_OPSET = Rule("ONX002", MODEL, "domain '{domain}' is used by {user} and not imported")
OPSET_TWICE = Rule("ONX003", MODEL, "domain '{domain}' is imported twice, in versions {first} and {second}")
OPSET_RANGE = Rule(
    "ONX004",
    MODEL,
    "version {version} of domain '{domain}' is not known; {oldest} to {newest} are",
    severity=WARNING,
    hint="convert the model with onnx.version_converter",
)
FUNCTION_TWICE = Rule("ONX005", "FunctionProto", "function '{name}' of domain '{domain}' is defined twice")
RECURSIVE_FUNCTION = Rule("ONX006", "FunctionProto", "function '{name}' calls itself")
TRAINING = Rule(
    "ONX007",
    MODEL,
    "the graphs for training in this file are not read",
    severity=WARNING,
    hint="train the model with `lamella train`",
)

# --- graphs and nodes ---------------------------------------------------------------------------------------------

NO_NAME = Rule("ONX010", GRAPHS, "{what} has no name")
TWICE = Rule("ONX011", GRAPHS, "'{name}' is defined twice: by {first} and by {second}")
NOT_DEFINED = Rule(
    "ONX012",
    GRAPHS,
    "{node} reads '{name}', which nothing before it defines",
    hint="nodes stand in topological order",
)
OUTPUT_NOT_DEFINED = Rule("ONX013", GRAPHS, "output '{name}' is not computed")
NO_TYPE = Rule("ONX014", GRAPHS, "input '{name}' has no type")
UNKNOWN_OPERATOR = Rule(
    "ONX015", NODES, "{node}: domain '{domain}' has no operator '{operator}' in version {version}"
)
INPUT_COUNT = Rule("ONX016", NODES, "{node} has {given} inputs; '{operator}' has {least} to {most}")
OUTPUT_COUNT = Rule("ONX017", NODES, "{node} has {given} outputs; '{operator}' has {least} to {most}")
MISSING_INPUT = Rule("ONX018", NODES, "{node} leaves out input {index}, which '{operator}' needs")
UNKNOWN_ATTRIBUTE = Rule("ONX019", NODES, "{node}: '{operator}' has no attribute '{attribute}'")
ATTRIBUTE_KIND = Rule(
    "ONX020", NODES, "{node}: attribute '{attribute}' is {given}; '{operator}' has {wanted}"
)
MISSING_ATTRIBUTE = Rule("ONX021", NODES, "{node} needs the attribute '{attribute}'")
ATTRIBUTE_TWICE = Rule("ONX022", NODES, "{node} has the attribute '{attribute}' twice")
REFERENCE_OUTSIDE = Rule(
    "ONX023", NODES, "{node}: attribute '{attribute}' refers to '{reference}', which no function here has"
)
EXPERIMENTAL = Rule("ONX024", NODES, "{node}: '{operator}' was removed in version {version}")

# --- tensors ------------------------------------------------------------------------------------------------------

BAD_TENSOR = Rule("ONX030", TENSORS, "tensor '{name}' {reason}")
BAD_SPARSE = Rule("ONX031", "SparseTensorProto", "sparse tensor '{name}' {reason}")
UNKNOWN_TYPE = Rule("ONX032", TENSORS, "'{name}' has the element type {number}, which is none of ONNX")

# --- what cannot become a graph -----------------------------------------------------------------------------------

NOT_SUPPORTED = Rule("ONX040", IMPORTING, "{node}: operator '{operator}' {reason}")
GIVEN = "a graph can be made for contents that are given"
VALUE_NEEDED = Rule(
    "ONX041",
    IMPORTING,
    "{node}: {what} of '{operator}' must be known before the run, and '{name}' is not",
    hint="it depends on numbers that only the run computes; fold the model's constants",
)
NOT_A_TENSOR = Rule("ONX042", IMPORTING, "input '{name}' is {kind}; only tensors can be inputs of a graph")
NO_ELEMENT = Rule("ONX043", IMPORTING, "'{name}' has elements of {type}, which nothing computes with here")
NO_RANK = Rule(
    "ONX044", IMPORTING, "input '{name}' has no shape", hint="run shape inference, or set its shape"
)
REFUSED = Rule("ONX045", IMPORTING, "{node}: {reason}")

# --- what cannot leave as ONNX ------------------------------------------------------------------------------------

NOT_IN_ONNX = Rule("ONX060", EXPORTING, "{what} cannot be written as ONNX: {reason}")

RULES = (
    *(IR_VERSION, NO_OPSET, OPSET_TWICE, OPSET_RANGE, FUNCTION_TWICE, RECURSIVE_FUNCTION, TRAINING),
    *(NO_NAME, TWICE, NOT_DEFINED, OUTPUT_NOT_DEFINED, NO_TYPE, UNKNOWN_OPERATOR, INPUT_COUNT, OUTPUT_COUNT),
    *(MISSING_INPUT, UNKNOWN_ATTRIBUTE, ATTRIBUTE_KIND, MISSING_ATTRIBUTE, ATTRIBUTE_TWICE),
    *(REFERENCE_OUTSIDE, EXPERIMENTAL, BAD_TENSOR, BAD_SPARSE, UNKNOWN_TYPE),
    *(NOT_SUPPORTED, VALUE_NEEDED, NOT_A_TENSOR, NO_ELEMENT, NO_RANK, REFUSED),
    NOT_IN_ONNX,
)
"""Every rule, in order."""
