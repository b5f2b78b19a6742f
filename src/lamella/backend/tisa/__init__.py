"""The tokenizers of NAC: runs the manifest of a file over its vocabulary."""

from __future__ import annotations

from lamella.backend.tisa.tokenizer import Tokenizer, load_tokenizer

__all__ = ["Tokenizer", "load_tokenizer"]
