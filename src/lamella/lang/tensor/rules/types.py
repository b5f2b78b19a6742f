"""Types, attributes and parameters: TEN040 to TEN069."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, WARNING, Rule

# Types
NEGATIVE_SIZE = Rule("TEN040", "Memref type", "mode {mode} of {type} has the negative size {size}")
STRIDE_COUNT = Rule(
    "TEN041",
    "Strided layout",
    "{type} is of order {order}, and its list of strides has length {strides}",
    hint="give one stride per mode, or leave the layout out for the packed one",
)
NEGATIVE_STRIDE = Rule("TEN042", "Strided layout", "mode {mode} of {type} has the negative stride {stride}")
OVERLAPPING_STRIDE = Rule(
    "TEN043",
    "Strided layout",
    "elements of {type} overlap: mode {mode} has stride {stride}, less than {least}",
    WARNING,
    "what is written to one element may change another",
)
ZERO_SIZE = Rule(
    "TEN044", "Memref type", "mode {mode} of {type} has size 0: it has no elements", WARNING, "give it a size"
)
TYPE_TOO_LARGE = Rule(
    "TEN045",
    "Memref type",
    "a memref of order {order} reaches beyond 2^63 - 1 bytes",
    hint="choose smaller sizes and strides",
)
COOPMATRIX_SIZE = Rule(
    "TEN046", "Cooperative matrix type", "{type} is {rows}x{columns}; rows and columns are 1 or more"
)
GROUP_SIZE = Rule("TEN047", "Group type", "{type} has the negative size {size}")

# Parameters
COOPMATRIX_PARAMETER = Rule(
    "TEN048",
    "Functions",
    "parameter '%{name}' is of type {type}; a cooperative matrix is not passed to a kernel",
    hint="pass a memref and load the matrix from it",
)
LOCAL_PARAMETER = Rule(
    "TEN049",
    "Functions",
    "parameter '%{name}' is of type {type}; local memory is not passed to a kernel",
    hint="pass global memory, or make local memory with alloca",
)

# Attributes
UNUSED_ATTRIBUTE = Rule(
    "TEN050", "Attributes", "attribute '{key}' has no effect on {what}", NOTE, "remove it, or check its name"
)
DUPLICATE_ATTRIBUTE = Rule("TEN051", "Attributes", "attribute '{key}' is given twice")
ATTRIBUTE_KIND = Rule("TEN052", "Attributes", "attribute '{key}' is {wanted}, not {found}")
ALIGNMENT_POWER = Rule("TEN053", "Alignment attribute", "alignment {alignment} is not a power of two")
ALIGNMENT_ELEMENT = Rule(
    "TEN054",
    "Alignment attribute",
    "alignment {alignment} is not a multiple of {size}, the bytes of {element}",
)
ALIGNMENT_LARGE = Rule(
    "TEN055", "Alloca", "alignment {alignment} of an alloca is larger than the default alignment {limit}"
)
GCD_COUNT = Rule(
    "TEN056",
    "Greatest common divisor (GCD) attributes",
    "{key} has length {count}, more than the order {order} of the memref",
)
GCD_POSITIVE = Rule(
    "TEN057",
    "Greatest common divisor (GCD) attributes",
    "entry {mode} of {key} is {divisor}; divisors are 1 or more",
)
GCD_BROKEN = Rule(
    "TEN058",
    "Greatest common divisor (GCD) attributes",
    "{key} says that {divisor} divides entry {mode}, which is {value}",
)
WORK_GROUP_SIZE = Rule(
    "TEN059", "Functions", "work_group_size is [{sizes}]; it has 2 entries, each 1 or more"
)
SUBGROUP_SIZE = Rule("TEN060", "Functions", "subgroup_size is {size}; it is 1 or more")
WORK_GROUP_MULTIPLE = Rule(
    "TEN061",
    "Functions",
    "the first entry {rows} of work_group_size is not a multiple of the subgroup size {size}",
)
UNROLL = Rule("TEN062", "For", "unroll is {value}; it is true, false or a number of trips of 1 or more")
