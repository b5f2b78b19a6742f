"""Compositions: components, control flow, updates and quantisation."""

from lamella.lang.skriptnd.check.composition.compose import check_composition
from lamella.lang.skriptnd.check.composition.state import Edge

__all__ = ["Edge", "check_composition"]
