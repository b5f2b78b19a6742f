"""The ground of every HTML page: one shell, one style, one escaper, and a policy that lets nothing else in.

A page is one file that needs no network. Names from files reach it as escaped text or as JSON that cannot leave its
element; styles and scripts are named by their hashes, so that nothing that is smuggled in runs.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape

from lamella.base.diagnostic import printable
from lamella.base.paths import read_shipped

LONGEST = 400
"""Letters of a text from a file that a page shows."""
MARK = (
    '<svg aria-hidden="true" class="mark" viewBox="0 0 20 20" width="16" height="16">'
    '<path d="M2 5h11v3H2zM5 9h13v3H5zM3 13h8v3H3z"/></svg>'
)
"""The picture beside the name of the tool."""


def text(value: object, limit: int = LONGEST) -> str:
    """What a file says, as text of a page: escaped, without control characters, of bounded length."""
    return escape(printable(str(value), limit))


def embed(value: object) -> str:
    """JSON that cannot end the element it stands in nor open a comment there."""
    written = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return written.replace("<", "\\u003c")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are markup already; it scrolls where it is wide or long."""
    head = "".join(f"<th>{item}</th>" for item in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def article(title: str, body: Iterable[str], style: str = "") -> str:
    """A page to read, which runs nothing: a heading and its body."""
    command, _, rest = title.partition(" ")
    brand = f'<p class="brand">{MARK}{text(command)}</p>' if rest else ""
    heading = f"<header>{brand}<h1>{text(rest or title)}</h1></header>"
    return page(title, f'<main class="article">\n{heading}\n{"".join(body)}\n</main>', style=style)


def page(
    title: str, body: str, *, style: str = "", script: str = "", data: object = None, more: str = ""
) -> str:
    """A whole page; `data` is for the script, which finds it by the id `data`, `more` is added to the policy."""
    sheet = read_shipped("base/page.css") + style
    held = "" if data is None else f'<script type="application/json" id="data">{embed(data)}</script>\n'
    runs = f"<script>{script}</script>\n" if script else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(sheet, script)}{more}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text(title)}</title>\n<style>{sheet}</style>\n</head>\n<body>\n{body}\n{held}{runs}</body>\n</html>\n"
    )


def policy(style: str, script: str = "") -> str:
    """What a page may do: have this style, run this script, and nothing else."""
    runs = f" script-src '{_hash(script)}';" if script else ""
    rest = "img-src data: blob:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; style-src '{_hash(style)}';{runs} {rest}"


def _hash(written: str) -> str:
    return f"sha256-{b64encode(sha256(written.encode()).digest()).decode()}"
