"""From a `tokenizer.json` to the manifest and the resources of a file."""

from __future__ import annotations

from lamella.bridge.tokenizer_to_nac.convert import TokenizerParts, tokenizer_to_nac

__all__ = ["TokenizerParts", "tokenizer_to_nac"]
