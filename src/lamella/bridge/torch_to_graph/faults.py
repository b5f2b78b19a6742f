"""The exceptions with which PyTorch refuses something."""

from __future__ import annotations

import pickle
import struct
import zipfile
import zlib

from lamella.base.optional import need

_KNOWN: tuple[type[Exception], ...] = (
    *(
        ArithmeticError,
        AssertionError,
        AttributeError,
        EOFError,
        ImportError,
        LookupError,
        NameError,
        OSError,
    ),
    *(RuntimeError, SyntaxError, TypeError, ValueError),
    *(pickle.PickleError, struct.error, zipfile.BadZipFile, zlib.error),
)


def faults() -> tuple[type[Exception], ...]:
    """What PyTorch raises on the way from a module or a file to a program; a full memory is not among them."""
    verifier, errors = need("torch._export.verifier"), need("torch._export.error")
    return (*_KNOWN, verifier.SpecViolationError, errors.ExportError, errors.InternalError)


def first_line(problem: BaseException) -> str:
    """What an exception says first."""
    lines = str(problem).strip().splitlines()
    return lines[0][:300] if lines else type(problem).__name__
