"""The tensor language, the language of kernels."""

from lamella.lang.tensor.check import check, result_types
from lamella.lang.tensor.parse import ParsedTensor, parse
from lamella.lang.tensor.write import write, write_type

__all__ = ["ParsedTensor", "check", "parse", "result_types", "write", "write_type"]
