"""Programs of PyTorch on their way to a graph: SKR376 to SKR385."""

from __future__ import annotations

from lamella.base.diagnostic import Rule

_EXPORT = "Graphs from PyTorch"
_FILE = "Graphs from PyTorch: .pt2 files"

NO_OPERATION = Rule(
    "SKR376",
    _EXPORT,
    "operation '{operation}' has no operator here: {count}, the first in {module}",
    hint="say it with other operations; `lamella show aten` lists those that are known",
)
REFUSED_CALL = Rule(
    "SKR377",
    _EXPORT,
    "a call of '{operation}' cannot be said here: {reason}; {count}, the first in {module}",
)
DATA_DEPENDENT = Rule(
    "SKR378",
    _EXPORT,
    "a call of '{operation}' needs a number that is known before the run, and gets one out of a tensor: {count}, the"
    " first in {module}",
    hint="compute with the tensor itself instead of its item(), or fix the number",
)
REFUSED_FLOW = Rule(
    "SKR379",
    _EXPORT,
    "'{operation}' cannot be said here: {reason}; {count}, the first in {module}",
    hint="torch.cond and while_loop over tensors of unchanging shapes can be",
)
CHANGED_INPUT = Rule(
    "SKR380",
    _EXPORT,
    "input '{name}' is changed in place",
    hint="compute a new tensor instead: x = x + 1, not x.add_(1)",
)
OPEN_NUMBER = Rule(
    "SKR381",
    _EXPORT,
    "input '{name}' is {what}; inputs of a graph are tensors",
    hint="export with a fixed number, or give it as a tensor",
)
NO_NUMBERS = Rule(
    "SKR382",
    _EXPORT,
    "'{name}' {reason}",
    hint="give the module dense parameters on a device before it is exported",
)
EXPORT_FAILED = Rule(
    "SKR383",
    _EXPORT,
    "torch.export does not take {what}: {reason}",
)
BROKEN_FILE = Rule(
    "SKR384",
    _FILE,
    "the file cannot be read as a program of torch.export: {reason}",
    hint="write it with torch.export.save of the same version of PyTorch",
)
UNSAFE_FILE = Rule(
    "SKR385",
    _FILE,
    "the file asks PyTorch to run code when it is loaded: {reason}",
    hint="load it yourself where you trust it, and export it again without custom objects",
)
