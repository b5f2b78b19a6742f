"""Write the grammars of editors from the tables of the lexers: `python -m editors.generate`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from lamella.base.source import Source
from lamella.lsp import nem, skriptnd, tensor
from lamella.lsp.module import KEYWORDS as MODULE_WORDS
from lamella.lsp.workspace import LANGUAGES
from lamella.pipeline.grammars import COMMENT_SCOPE, GRAMMARS, NUMBER, STRING, Grammar

HERE = Path(__file__).parent
EXAMPLES = (
    ("module", "examples/llama/page.module"),
    ("skriptnd", "examples/operator/window_attention.sknd"),
    ("tensor", "examples/kernels/ader.tensor"),
    ("nem", "examples/npu/conv_relu.nem"),
)
"""Texts whose colours `npm test` compares by itself; the tests of the repository compare all there are."""
SCOPES = {
    **dict.fromkeys(("int", "float", "real"), NUMBER),
    **dict.fromkeys(("string", "doc"), STRING),
}
WORDS = {
    "module": MODULE_WORDS,
    "skriptnd": skriptnd.KEYWORDS,
    "tensor": tensor.KEYWORDS,
    "nem": nem.KEYWORDS,
}


def files() -> Iterator[tuple[Path, str]]:
    """Each file that is generated, and its text."""
    for name, grammar in GRAMMARS.items():
        text = json.dumps(grammar.textmate(), indent=2, ensure_ascii=False)
        yield HERE / "vscode" / "syntaxes" / f"{name}.tmLanguage.json", f"{text}\n"
        yield HERE / "vim" / "syntax" / f"{vim_name(grammar)}.vim", _vim(name, grammar)
    detect = "".join(
        f"autocmd BufRead,BufNewFile *{ending} setfiletype {vim_name(grammar)}\n"
        for grammar in GRAMMARS.values()
        for ending in grammar.endings
        if ending != ".ir"  # others write this one too
    )
    yield HERE / "vim" / "ftdetect" / "lamella.vim", detect
    texts = ((name, (HERE.parent / path).read_text(encoding="utf-8")) for name, path in EXAMPLES)
    cases = json.dumps([colour_case(*item) for item in texts], ensure_ascii=False)
    yield HERE / "vscode" / "test" / "cases.json", f"{cases}\n"


def colour_case(name: str, text: str) -> dict[str, object]:
    """A text and the colours that its tokens must have, as the test of the extension reads them."""
    return {"language": GRAMMARS[name].id, "text": text, "tokens": list(expected_colours(name, text))}


def expected_colours(name: str, text: str) -> Iterator[tuple[int, int, str]]:
    """Each token whose colour the lexer alone decides."""
    kinds, words, starts, comments = LANGUAGES[name].index_text(Source("x", text)).tokens
    for kind, word, start in zip(kinds, words, starts, strict=True):
        # A docstring goes over lines, and the numbers of a shape are glued to what is before them.
        if kind in SCOPES and word and "\n" not in word and text[start - 1 : start] != "x":
            yield start, start + len(word), SCOPES[kind]
    for item in comments:
        yield item.start, item.start + len(item.text.rstrip()), COMMENT_SCOPE


def vim_name(grammar: Grammar) -> str:
    """The file type: Vim has no hyphens in them."""
    return grammar.id.replace("-", "_")


def _vim(name: str, grammar: Grammar) -> str:
    plain = sorted(word for word in WORDS[name] if word.isidentifier())
    other = sorted(word for word in WORDS[name] if not word.isidentifier())
    lines = [
        f'" {grammar.title}: written by editors/generate.py from the tables of the lexer.',
        'if exists("b:current_syntax") | finish | endif',
        f"setlocal commentstring={grammar.comment}\\ %s",
        *(
            f"syntax keyword lamellaKeyword {' '.join(plain[place : place + 12])}"
            for place in range(0, len(plain), 12)
        ),
        *(f"syntax match lamellaKeyword /\\V{word}\\>/" for word in other),
        r"syntax match lamellaNumber /\<[0-9][0-9_]*\(\.[0-9]\+\)\?\([eE][+-]\?[0-9]\+\)\?\>/",
        r"syntax match lamellaName /[%@][A-Za-z0-9_]\+/",
        'syntax region lamellaString start=/"/ skip=/\\\\"/ end=/"/ oneline',
        f"syntax match lamellaComment /{grammar.comment}.*$/",
    ]
    if name == "module":
        lines.append('syntax region lamellaString start=/"""/ end=/"""/')
    for group in ("Keyword", "Number", "String", "Comment"):
        lines.append(f"highlight default link lamella{group} {group}")
    lines += [
        "highlight default link lamellaName Identifier",
        f'let b:current_syntax = "{vim_name(grammar)}"',
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text, encoding="utf-8")
