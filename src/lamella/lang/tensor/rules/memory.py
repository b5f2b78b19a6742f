"""Bounds, races, aliases and uninitialised memory: TEN170 to TEN199."""

from __future__ import annotations
