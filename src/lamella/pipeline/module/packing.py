"""What lies beside a model in a Hugging Face folder, for the one file that it becomes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lamella.base.diagnostic import LamellaError
from lamella.base.paths import is_there, read_bytes
from lamella.bridge.hf_to_module import is_model_folder
from lamella.bridge.tokenizer_to_nac import tokenizer_to_nac
from lamella.pipeline.options import Options

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
