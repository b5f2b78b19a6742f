"""NAC, the portable binary of graphs: its container, its instructions and its memory schedule."""

from lamella.lang.nac.assembly import assemble, disassemble
from lamella.lang.nac.check import check
from lamella.lang.nac.files import OpenedFile, open_file, save_file
from lamella.lang.nac.nodes import File
from lamella.lang.nac.parse import ParsedFile, parse
from lamella.lang.nac.rules import RULES
from lamella.lang.nac.schedule import describe_schedule, plan_memory
from lamella.lang.nac.upgrade_version import upgrade_version
from lamella.lang.nac.write import find_unwritable, write, write_pieces

__all__ = [
    "RULES",
    "File",
    "OpenedFile",
    "ParsedFile",
    "assemble",
    "check",
    "describe_schedule",
    "disassemble",
    "find_unwritable",
    "open_file",
    "parse",
    "plan_memory",
    "save_file",
    "upgrade_version",
    "write",
    "write_pieces",
]
