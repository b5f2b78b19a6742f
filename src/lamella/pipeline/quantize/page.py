"""The report of a quantisation as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from lamella.base.diagnostic import printable
from lamella.pipeline.quantize.report import LayerRow, QuantizationReport, number

BAR = 160
"""Pixels of the longest bar."""
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --faint: #8a929c; --line: #d9dee4; --bar: #2563eb }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --paper: #14171b; --line: #2f353d; --bar: #60a5fa } }
body { font: 14px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 72rem; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem } .scroll { overflow: auto; max-height: 80vh }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .15rem .6rem; border-bottom: 1px solid var(--line) }
th:nth-child(-n+3), td:nth-child(-n+3) { text-align: left } .bar { background: var(--bar); height: .7rem }
.faint { color: var(--faint) }
"""
HEADS = ("layer", "operator", "scheme", "range", "SQNR dB", "error alone", "share", "", "bytes")


def report_page(report: QuantizationReport) -> str:
    """The whole page."""
    title = escape(f"lamella quantize {printable(report.name)}: {report.scheme}")
    body = "\n".join(_body(report))
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style>\n<h1>{title}</h1>\n{body}\n</html>\n"
    )


def _body(report: QuantizationReport) -> Iterator[str]:
    for line in (*report.notes, *(item.line() for item in report.outputs)):
        yield f"<p>{escape(printable(line, 400))}</p>"
    yield f"<p>Weights: {report.bytes_before:,} bytes before, {report.bytes_after:,} after.</p>"
    yield "<h2>Layers, those that hurt the outputs most first</h2>"
    yield '<div class="scroll"><table><tr>' + "".join(f"<th>{head}</th>" for head in HEADS) + "</tr>"
    longest = max((row.share or 0.0 for row in report.layers), default=0.0) or 1.0
    yield from (_row(row, longest) for row in report.layers)
    yield "</table></div>"
    if report.real:
        yield "<h2>What computes in real numbers</h2>"
        yield '<div class="scroll"><table><tr><th>result</th><th>operator</th><th>reason</th></tr>'
        for item in report.real:
            yield f"<tr>{''.join(f'<td>{escape(printable(word, 200))}</td>' for word in item)}</tr>"
        yield "</table></div>"


def _row(row: LayerRow, longest: float) -> str:
    interval = "" if row.low is None or row.high is None else f"{row.low:.4g} .. {row.high:.4g}"
    words = (printable(row.name, 200), row.operator, row.scheme, interval)
    numbers = (number(row.sqnr, ".1f"), number(row.error, ".2e"), number(row.share, ".1%"))
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in (*words, *numbers))
    bar = f'<td><div class="bar" style="width: {BAR * (row.share or 0.0) / longest:.0f}px"></div></td>'
    return f"<tr>{cells}{bar}<td>{row.bytes_after:,}</td></tr>"
