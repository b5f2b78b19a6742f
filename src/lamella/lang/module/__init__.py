"""The Module DSL, the language of architectures."""

from lamella.lang.module.check import check
from lamella.lang.module.nodes import Document
from lamella.lang.module.parse import ParsedModule, parse
from lamella.lang.module.rules import RULES
from lamella.lang.module.write import write

__all__ = ["RULES", "Document", "ParsedModule", "check", "parse", "write"]
