"""`lamella quantize`: a model whose weights and activations are integers, and what that costs."""

from __future__ import annotations

from pathlib import Path

import click

from lamella.base.diagnostic import printable
from lamella.base.writer import write_text
from lamella.cli.options import command, file_argument, print_findings, print_json
from lamella.cli.progress import show_progress
from lamella.cli.waiting import waiting
from lamella.pipeline.options import Options
from lamella.pipeline.quantize.api import load_graph, quantize_graph, require_target, settings_of
from lamella.pipeline.quantize.page import report_page


@command("quantize")
@file_argument
def quantize(file: Path, options: Options) -> None:
    """Quantise the model of FILE after training, by what it computes on --data.

    FILE is a graph in any form: .sknd, .nac, .nacs, .module, .pt2, .onnx, a compiled unit, a Hugging Face folder. The
    result, -o OUT.sknd, .nac or .onnx, takes and gives the same real numbers. Layers are ranked by what each of them
    does to the outputs when it alone is quantised.
    """
    settings_of(options)  # what is wrong is said before anything takes long
    with waiting(f"reading {printable(str(file))}"):
        model = load_graph(file, options)
    if options.output is not None:
        require_target(model, file, options.output, options)
    found = quantize_graph(model, options, progress=show_progress)
    if options.output is not None:
        found.save(options.output)
    if options.html is not None:
        write_text(options.html, report_page(found.report))
    written = None if options.output is None else printable(str(options.output))
    if options.as_json:
        diagnostics = [item.to_json() for item in found.findings]
        print_json({"ok": True, "diagnostics": diagnostics, **found.report.to_json(), "written": written})
        return
    print_findings(found.findings)
    for line in (*found.report.lines(), *([] if written is None else [written])):
        click.echo(line)
