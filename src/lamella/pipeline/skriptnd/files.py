"""SkriptND files for the commands: check, format, show; models are checked without numpy."""

from __future__ import annotations

from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors, sort_findings
from lamella.base.limits import Limits
from lamella.base.paths import read_text, shown
from lamella.base.source import Source
from lamella.lang.skriptnd import parse, write
from lamella.lang.skriptnd.rules.graphs import NOT_COMPOSED
from lamella.pipeline.languages import Description
from lamella.pipeline.options import Options
from lamella.pipeline.skriptnd.describe import describe_model, describe_operator
from lamella.pipeline.skriptnd.reading import chosen_graph, compose_graph, missing_config, read_module


def check(path: Path, options: Options) -> list[Diagnostic]:
    """The rules of the language, then every graph composed; with a model named, only that one."""
    read = read_module(path, options)
    findings = list(read.findings)
    if read.sound:
        graphs = [chosen_graph(read.module, options)] if options.model else read.module.graphs
        for definition in graphs:
            missing = missing_config(definition.operator, options.config)
            if missing and not options.model:
                words = " ".join(f"--set {name}=…" for name in missing)
                operator = definition.operator
                findings.append(
                    NOT_COMPOSED.at(
                        operator.span, name=operator.name, missing=", ".join(missing), words=words
                    )
                )
            else:
                findings += compose_graph(read.module, definition, options)[1]
    return sort_findings(findings)


def canonical(path: Path, limits: Limits) -> tuple[str, str]:
    """The text of a file and its canonical form; a text with syntax errors raises."""
    source = Source(shown(path), read_text(path, limits))
    document, findings = parse(source, limits)
    if errors(findings):
        raise LamellaError(errors(findings))
    return source.text, write(document)


def describe(name: str, options: Options) -> Description:
    """A model, or an operator of the library by its qualified name."""
    path = Path(name)
    if not path.exists():
        found = describe_operator(name, options)
        if found is not None:
            return found
    return describe_model(path, options)
