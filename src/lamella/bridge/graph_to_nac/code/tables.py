"""The tables of a file while it is written: operations, signatures, constants, each record once."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from lamella.base.diagnostic import Diagnostic
from lamella.base.source import NOWHERE
from lamella.bridge.graph_to_nac.code.words import Ref, Word
from lamella.lang.nac import nodes as n
from lamella.lang.nac.check.tables import LAST_CONSTANT
from lamella.lang.nac.operations import FIRST_CUSTOM, LAST, standard_operations
from lamella.lang.nac.rules import graphs as rules

NULL = 1
"""The id of the null constant; others follow it."""
_STANDARD = {item.name: id_ for id_, item in standard_operations(n.V1_6).items()}


class Tables:
    """Ids in the order of first use."""

    def __init__(self) -> None:
        self._operations: dict[str, int] = {}
        self._signatures: dict[str, int] = {}
        self._constants: dict[tuple[n.ConstantType, bytes], n.Constant] = {}

    def operation(self, name: str) -> int:
        """The id of an operation: a standard one, or the next of the file's own."""
        if name in _STANDARD:
            return _STANDARD[name]
        return self._operations.setdefault(name, FIRST_CUSTOM + len(self._operations))

    def signature(self, codes: str) -> int:
        """The id of a signature; 0 stands for no arguments."""
        return self._signatures.setdefault(codes, len(self._signatures) + 1) if codes else 0

    def constants(self, words: tuple[Word, ...]) -> tuple[int, ...]:
        """The ids of the arguments that are constants."""
        return tuple(self._constant(item.value) for item in words if not isinstance(item.value, Ref))

    def _constant(self, value: n.ConstantValue) -> int:
        """The id of a constant; values of different types, and of different bits, are different ones."""
        kind, image = identify(value)
        if kind is n.ConstantType.NULL:
            record = n.Constant(NULL, kind, None)
        else:
            null = (n.ConstantType.NULL, b"") in self._constants
            record = n.Constant(NULL + 1 + len(self._constants) - null, kind, _spelled(value))
        return self._constants.setdefault((kind, image), record).id

    # --- the records ----------------------------------------------------------------------------------------

    @property
    def operations(self) -> tuple[n.Operation, ...]:
        """The records of CMAP."""
        return tuple(n.Operation(id_, name) for name, id_ in self._operations.items())

    @property
    def signatures(self) -> tuple[n.Signature, ...]:
        """The records of PERM."""
        return tuple(n.Signature(id_, codes) for codes, id_ in self._signatures.items())

    @property
    def records(self) -> tuple[n.Constant, ...]:
        """The records of CNST."""
        return tuple(sorted(self._constants.values(), key=lambda item: item.id))

    def find_full(self) -> Iterator[Diagnostic]:
        """The tables that have more records than instructions can name."""
        room = LAST - FIRST_CUSTOM + 1
        if len(self._operations) > room:
            first = ", ".join(list(self._operations)[room : room + 8])
            hint = f"there is no room for {first}{' and others' * (len(self._operations) > room + 8)}"
            yield rules.TOO_MANY.at(
                NOWHERE, count=len(self._operations), what="operations of its own", limit=room, hint=hint
            )
        if len(self._signatures) > LAST:
            yield rules.TOO_MANY.at(NOWHERE, count=len(self._signatures), what="signatures", limit=LAST)
        if len(self._constants) > LAST_CONSTANT - 1:
            count = len(self._constants)
            yield rules.TOO_MANY.at(NOWHERE, count=count, what="constants", limit=LAST_CONSTANT - 1)


def identify(value: n.ConstantValue) -> tuple[n.ConstantType, bytes]:
    """The type of a constant, and bytes that only equal values share."""
    match value:
        case None:
            return n.ConstantType.NULL, b""
        case bool():
            return n.ConstantType.BOOL, bytes([value])
        case int():
            return n.ConstantType.INT64, str(value).encode()
        case float():
            return n.ConstantType.FLOAT64, struct.pack("<d", _spelled_real(value))
        case str():
            return n.ConstantType.STRING, value.encode("utf-8", "surrogatepass")
        case tuple():
            real = any(isinstance(item, float) for item in value)
            kind = n.ConstantType.FLOAT32_LIST if real else n.ConstantType.INT32_LIST
            return kind, struct.pack(f"<{len(value)}d", *map(_spelled_real, value))


def _spelled_real(value: float) -> float:
    return math.nan if value != value else value


def _spelled(value: n.ConstantValue) -> n.ConstantValue:
    """A value in the one form that files have: NaN is always the same."""
    if isinstance(value, float):
        return _spelled_real(value)
    if isinstance(value, tuple) and any(isinstance(item, float) for item in value):
        return tuple(_spelled_real(item) for item in value)
    return value
