"""Formulas: SKR160 to SKR199."""

from __future__ import annotations
