"""Rules of the container, read (NAC001 to NAC039) and written as version 1.6 (NAC200 to NAC207)."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

# --- what the bytes of version 1.6 cannot say: NAC200 to NAC219 ---------------------------------------------


VERSION = Rule(
    "NAC200",
    "1.4 Versioning",
    "this file is of version {version}; only 1.6 is written",
    hint="restate it in version 1.6 first",
)
NEWER_SECTION = Rule("NAC201", "2.3 Sections", "version 1.6 has no section {section}", hint="leave it out")
FIELD_RANGE = Rule(
    "NAC202",
    "2.3 Sections",
    "{what} is {value}; its field in {section} holds {low} to {high}",
)
UNWRITABLE_TEXT = Rule(
    "NAC203", "5.1 CMAP", "{what} {problem}", hint="names and strings are UTF-8 without NUL"
)
FIELDS = Rule(
    "NAC204",
    "3.1 Instructions",
    "instruction {index} has {given} in field {field}, where its operation has {wanted}",
)
UNWRITABLE_OPERATION = Rule(
    "NAC205",
    "7 System operations",
    "instruction {index} is operation {operation} with variant {variant}, whose fields nobody knows",
)
VALUE = Rule("NAC206", "5.3 CNST, 6.1.1 Metadata", "{what} {problem}")
EXTERNAL_TENSORS = Rule(
    "NAC207",
    "6.1 DATA",
    "there are {count} tensors, but the header says that the weights stand elsewhere",
    hint="mark the weights as internal, or leave the tensors out",
)


# --- the header ---------------------------------------------------------------------------------------------

NOT_NAC = Rule("NAC001", "2.2 Header", "the file begins with {found}, and a NAC file with 'NAC'")
SHORT_HEADER = Rule(
    "NAC002",
    "2.2 Header",
    "the file has {size} bytes; the header of version {version} alone has {needed}",
    hint="the file was cut off",
)
UNKNOWN_VERSION = Rule(
    "NAC003",
    "2.2 Header",
    "the version byte is {found}; known are 1 (versions 1.5 and 1.6) and 2 (versions 1.7 and 1.8)",
)
UNKNOWN_METHOD = Rule(
    "NAC004", "2.2 Header", "there is no quantisation method {method}", hint="the methods are 0 to 4"
)
RESERVED = Rule(
    "NAC005", "2.2 Header", "{what} is {found} and should be zero", WARNING, hint="it is not kept"
)
NO_SECTIONS = Rule(
    "NAC006",
    "2.2 Header",
    "all section offsets are 0",
    hint="the public compiler leaves such a file where it fails: compile the model again",
)
NO_INSTRUCTIONS = Rule("NAC007", "2.3 Sections", "the file has no OPS section")
TRAINING_FLAG = Rule(
    "NAC008",
    "2.2 Header",
    "bit 6 of the quantisation byte is {bit}, but a TRNG section is {presence}",
    WARNING,
)

# --- the table of sections ----------------------------------------------------------------------------------

OFFSET_OUTSIDE = Rule(
    "NAC010", "2.2 Header", "{section} is to begin at byte {offset}; sections lie from byte {first} to {size}"
)
SHARED_OFFSET = Rule("NAC011", "2.2 Header", "{section} and {other} are both to begin at byte {offset}")
WRONG_TAG = Rule(
    "NAC012", "2.3 Sections", "{section} begins with {found} and not with its tag", hint="{repair}"
)
STRAY_BYTES = Rule(
    "NAC013",
    "2.1 Layout",
    "{count} bytes behind {section} belong to nothing",
    hint="{repair}",
)

# --- records ------------------------------------------------------------------------------------------------

CUT_OFF = Rule("NAC020", "2.3 Sections", "{section}: {problem}", hint="{section} ends at byte {end}")
NOT_TEXT = Rule("NAC021", "5.1 CMAP", "{what} {problem}", hint="names and strings are UTF-8 without NUL")
LIMIT = Rule("NAC022", "2.3 Sections", "{problem}", hint="raise it with --limit {option}=N")
CONSTANT_TYPE = Rule(
    "NAC023",
    "5.3 CNST",
    "constant {id} has the type code {type}; the codes are 0 to 6",
    hint="the constants behind it are not read",
)
CONSTANT_LENGTH = Rule(
    "NAC024",
    "5.3 CNST",
    "constant {id} is of type {type} and of length {length}; its length must be {wanted}",
)
TRUTH_VALUE = Rule(
    "NAC025", "5.3 CNST", "constant {id} is a bool with the value {value}", WARNING, hint="{repair}"
)
METADATA = Rule("NAC026", "6.1.1 Metadata", "the metadata of parameter {id} {problem}")
TENSOR_METHOD = Rule(
    "NAC027",
    "6.1.1 Metadata",
    "the tensor of parameter {id} has the quantisation code {method}",
    hint="the codes are 0 to 4",
)
UNKNOWN_FIELDS = Rule(
    "NAC028",
    "7 System operations",
    "instruction {index} is operation {operation} with variant {variant}, whose fields nobody knows",
    hint="the instructions behind it are not read",
)
NEGATIVE_COUNT = Rule(
    "NAC029",
    "3.4 Field C",
    "instruction {index} has {count} constants",
    hint="the instructions behind it are not read",
)
PREFIX = Rule(
    "NAC030",
    "7 System operations",
    "field C of instruction {index} begins with {found} instead of {wanted}",
    WARNING,
    hint="the prefix is not used: what follows it is known without it",
)
RESERVED_VALUES = Rule(
    "NAC031",
    "7.2 <OUTPUT>",
    "field C of the output at instruction {index} holds {found} and should hold zeros",
    WARNING,
    hint="it is not kept",
)
