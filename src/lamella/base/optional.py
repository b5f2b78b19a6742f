"""The one door to heavy packages that not every installation has."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType, ModuleType

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import MISSING_PACKAGE
from lamella.base.source import NOWHERE

EXTRAS = MappingProxyType(
    {
        "onnx": "onnx",
        "onnxruntime": "onnx",
        "torch": "torch",
        "tokenizers": "hf",
        "cuda": "cuda",
        "ortools": "plan",
        "scipy": "genome",
        "Bio": "genome",
        "duckdb": "genome",
        "pygls": "lsp",
    }
)
"""Import names of packages and the extra of ours that installs each."""


def need(name: str) -> ModuleType:
    """Import an optional package, or say which extra to install."""
    extra = EXTRAS[name.partition(".")[0]]
    try:
        return import_module(name)
    except ImportError as problem:
        absent = isinstance(problem, ModuleNotFoundError)
        state = "is not installed" if absent else f"cannot be loaded: {problem}"
        finding = MISSING_PACKAGE.at(
            NOWHERE, message=f"package '{name}' {state}", hint=f"pip install lamella[{extra}]"
        )
        raise LamellaError([finding]) from problem
