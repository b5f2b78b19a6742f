"""The report of a quantisation as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.page import article, table, text
from lamella.pipeline.quantize.report import LayerRow, QuantizationReport, number

HEADS = ("layer", "operator", "scheme", "range", "SQNR dB", "error alone", "share", "", "bytes")


def report_page(report: QuantizationReport) -> str:
    """The whole page."""
    return article(
        f"lamella quantize {report.name}: {report.scheme}", (f"{part}\n" for part in _body(report))
    )


def _body(report: QuantizationReport) -> Iterator[str]:
    for line in (*report.notes, *(item.line() for item in report.outputs)):
        yield f"<p>{text(line)}</p>"
    yield f"<p>Weights: {report.bytes_before:,} bytes before, {report.bytes_after:,} after.</p>"
    yield "<h2>Layers, those that hurt the outputs most first</h2>"
    longest = max((row.share or 0.0 for row in report.layers), default=0.0) or 1.0
    yield table(HEADS, (_row(row, longest) for row in report.layers))
    if report.real:
        yield "<h2>What computes in real numbers</h2>"
        heads = ("result", "operator", "reason")
        yield table(heads, ([text(word, 200) for word in item] for item in report.real))


def _row(row: LayerRow, longest: float) -> list[str]:
    interval = "" if row.low is None or row.high is None else f"{row.low:.4g} .. {row.high:.4g}"
    words = (row.name, row.operator, row.scheme, interval)
    numbers = (number(row.sqnr, ".1f"), number(row.error, ".2e"), number(row.share, ".1%"))
    cells = [text(cell, 200) for cell in (*words, *numbers)]
    wide = f"{100 * (row.share or 0.0) / longest:.1f}"
    bar = f'<svg class="share" viewBox="0 0 100 6" preserveAspectRatio="none"><rect width="{wide}" height="6"/></svg>'
    return [*cells, bar, f"{row.bytes_after:,}"]
