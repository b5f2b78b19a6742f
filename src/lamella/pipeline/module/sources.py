"""What only .module files and Hugging Face folders can do: become units and folders, be observed and verified."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lamella.base.diagnostic import LamellaError
from lamella.base.paths import is_there, read_bytes
from lamella.bridge.hf_to_module import is_model_folder
from lamella.bridge.tokenizer_to_nac import tokenizer_to_nac
from lamella.pipeline.module.export import export
from lamella.pipeline.module.generate import generate_text, generate_tokens
from lamella.pipeline.module.gradients import verify
from lamella.pipeline.module.observe import observe
from lamella.pipeline.module.units import build_unit
from lamella.pipeline.options import Options

__all__ = ["build_unit", "export", "generate_text", "generate_tokens", "observe", "verify", "with_parts"]

CONFIG, TOKENIZER = "config.json", "tokenizer.json"


def with_parts(source: Path, options: Options) -> Options:
    """The options that also put the config and the tokenizer of a folder into a NAC file.

    A tokenizer that the manifest of a file cannot say travels as it is.
    """
    if not is_model_folder(source):
        return options
    embed = {CONFIG: str(source / CONFIG), **options.embed}
    path = source / TOKENIZER
    if options.tokenizer is not None or not is_there(path):
        return replace(options, embed=embed)
    try:
        tokenizer_to_nac(read_bytes(path, options.limits))
    except LamellaError:
        return replace(options, embed={TOKENIZER: str(path), **embed})
    return replace(options, embed=embed, tokenizer=path)
