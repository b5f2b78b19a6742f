"""Operations, signatures and constants: NAC040 to NAC069."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

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
