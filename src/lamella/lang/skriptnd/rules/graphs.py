"""Composed graphs, dynamic shapes and the run: SKR300 to SKR339."""

from __future__ import annotations
