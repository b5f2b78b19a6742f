"""Attributes, shapes and the binding order: SKR120 to SKR159."""

from __future__ import annotations
