"""Simulations of plans, shared with the tests of their reports."""

from __future__ import annotations

from tests.plan.report.conftest import conv_relu, hostile, named

__all__ = ["conv_relu", "hostile", "named"]
