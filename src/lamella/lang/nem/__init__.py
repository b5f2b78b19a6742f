"""NEM, the execution-plan language: NPU buffers, regions, tasks and tokens, and the devices they run on."""

from lamella.lang.nem.check import Checked, check
from lamella.lang.nem.nodes import Document
from lamella.lang.nem.parse import ParsedNem, parse
from lamella.lang.nem.resolved import Plan
from lamella.lang.nem.rules import RULES
from lamella.lang.nem.write import write

__all__ = ["RULES", "Checked", "Document", "ParsedNem", "Plan", "check", "parse", "write"]
