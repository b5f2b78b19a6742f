"""Lexical structure and grammar: SKR001 to SKR029, and the notes on newer spellings."""

from __future__ import annotations
