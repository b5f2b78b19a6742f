"""The one door to heavy packages that not every installation has."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, TypeAlias

from lamella.base.diagnostic import LamellaError
from lamella.base.errors import MISSING_PACKAGE
from lamella.base.source import NOWHERE

Foreign: TypeAlias = Any
"""An object of a package that comes through this door: its types cannot be named where it may be missing."""

EXTRAS = MappingProxyType(
    {
        "onnx": "onnx",
        "onnxruntime": "bench",
        "onnxscript": "bench",
        "openvino": "bench",
        "torch": "torch",
        "tokenizers": "hf",
        "transformers": "transformers",
        "huggingface_hub": "transformers",
        "jinja2": "hf",
        "pyarrow": "parquet",
        "PIL": "image",
        "nvtx": "nvtx",
        "ortools": "plan",
        "scipy": "genome",
        "Bio": "genome",
        "duckdb": "genome",
        "pygls": "lsp",
        "lsprotocol": "lsp",
    }
)
"""Import names of packages and the extra of ours that installs each."""

CORE = ("llvmlite",)
"""Packages that every installation should have, loaded only where they are used because they are heavy."""


def load_late(name: str) -> ModuleType:
    """A module that is loaded where it is used, because few runs use it and every start would pay for it."""
    return import_module(name)


class Late:
    """A module of ours that loads itself when something of it is asked for; for types, import the module itself."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(load_late(self._name), name)


def need(name: str) -> ModuleType:
    """Import an optional or heavy package, or say what to install."""
    package = name.partition(".")[0]
    wanted = package if package in CORE else f"'lamella[{EXTRAS[package]}]'"
    try:
        return load_late(name)
    except ImportError as problem:
        absent = isinstance(problem, ModuleNotFoundError)
        state = "is not installed" if absent else f"cannot be loaded: {problem}"
        finding = MISSING_PACKAGE.at(
            NOWHERE, message=f"package '{name}' {state}", hint=f"pip install {wanted}"
        )
        raise LamellaError([finding]) from problem
