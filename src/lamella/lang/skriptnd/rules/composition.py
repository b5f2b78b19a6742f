"""Composition, control flow, updates and quantisation: SKR200 to SKR259."""

from __future__ import annotations
