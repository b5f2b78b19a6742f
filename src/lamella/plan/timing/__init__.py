"""The simulator: what a plan costs on a device, how it is scheduled, and how far that is from the possible."""

from lamella.plan.timing.report import Report
from lamella.plan.timing.simulation import simulate

__all__ = ["Report", "simulate"]
