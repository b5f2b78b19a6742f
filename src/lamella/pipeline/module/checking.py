"""A Hugging Face folder against the model that it is: config, tensors, shapes."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.pipeline.module.folders import read_source
from lamella.pipeline.module.planning import plan_weights
from lamella.pipeline.options import Options


def check_folder(path: Path, options: Options) -> list[Diagnostic]:
    """What is wrong with a folder; nothing of its numbers is read."""
    try:
        source = read_source(path, True, options)
        if source.folder is None:
            return []
        return [
            *source.folder.findings,
            *plan_weights(source.instance, source.folder, options.unused).findings,
        ]
    except LamellaError as problem:
        return list(problem.findings)
