"""What the bytes of version 1.6 cannot say: NAC200 to NAC219."""

from __future__ import annotations

from lamella.base.diagnostic import Rule

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
