"""Wrong tokenizers as text: assembly of a file with a manifest, or the JSON text that one is made from."""

from __future__ import annotations

import re

from lamella.backend.tisa import load_tokenizer
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.source import Source
from lamella.bridge.tokenizer_to_nac import tokenizer_to_nac
from lamella.lang.nac.assembly import assemble


def findings_of(text: str) -> list[Diagnostic]:
    """What is found where the tokenizer is loaded, or made."""
    try:
        if "nac 1.6" in text:
            built = assemble(Source("wrong.nacs", text))
            load_tokenizer(built.file)
            return list(built.findings)
        return list(tokenizer_to_nac(re.sub(r";.*", "", text).encode()).findings)
    except LamellaError as problem:
        return list(problem.findings)
