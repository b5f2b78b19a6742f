"""Findings as SARIF 2.1.0, the format that code hosts and editors take from checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from lamella.base.diagnostic import Diagnostic, Rule
from lamella.base.source import EMPTY_SOURCE, Binary, Span

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
VERSION = "2.1.0"


def to_sarif(findings: Sequence[Diagnostic], rules: Mapping[str, Rule], version: str) -> dict[str, object]:
    """One run with all findings; columns count code points, as ours do."""
    codes = list(dict.fromkeys(item.code for item in findings))
    driver = {
        "name": "lamella",
        "version": version,
        "rules": [_rule(code, rules.get(code)) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(item, codes.index(item.code)) for item in findings],
    }
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def _rule(code: str, rule: Rule | None) -> dict[str, object]:
    if rule is None:
        return {"id": code}
    found: dict[str, object] = {
        "id": code,
        "shortDescription": {"text": rule.sentence},
        "defaultConfiguration": {"level": rule.severity},
        "help": {"text": f"lamella explain {code}"},
    }
    return found


def _result(finding: Diagnostic, number: int) -> dict[str, object]:
    lines = [finding.message, *([f"hint: {finding.hint}"] if finding.hint else [])]
    lines += [f"from: {'  <-  '.join(finding.origins)}"] if finding.origins else []
    found: dict[str, object] = {
        "ruleId": finding.code,
        "ruleIndex": number,
        "level": finding.severity,
        "message": {"text": "\n".join(lines)},
    }
    if finding.span.source is not EMPTY_SOURCE:
        found["locations"] = [{"physicalLocation": _place(finding.span)}]
    if finding.labels:
        found["relatedLocations"] = [
            {"physicalLocation": _place(item.span), "message": {"text": item.text}} for item in finding.labels
        ]
    return found


def _place(span: Span) -> dict[str, object]:
    source = span.source
    path = Path(source.name)
    found: dict[str, object] = {
        "artifactLocation": {"uri": path.as_uri() if path.is_absolute() else quote(path.as_posix())}
    }
    if isinstance(source, Binary):
        found["region"] = {"byteOffset": span.start, "byteLength": max(0, span.end - span.start)}
    elif source.text:
        line, column = source.place(span.start)
        end_line, end_column = source.place(max(span.end, span.start))
        found["region"] = {
            "startLine": line,
            "startColumn": column,
            "endLine": end_line,
            "endColumn": end_column,
        }
    return found
