"""Names of a program: files, imports, scopes, versions."""

from lamella.lang.module.resolve.lock import Lock, Locked, check_lock, read_lock, write_lock
from lamella.lang.module.resolve.nodes import Declared, Resolved, Scope, Unit, Use
from lamella.lang.module.resolve.resolver import resolve
from lamella.lang.module.resolve.workspace import Workspace

__all__ = [
    "Declared",
    "Lock",
    "Locked",
    "Resolved",
    "Scope",
    "Unit",
    "Use",
    "Workspace",
    "check_lock",
    "read_lock",
    "resolve",
    "write_lock",
]
