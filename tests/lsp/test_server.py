"""The language server through its real protocol: one process answers for all four languages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lamella.lsp.features import MODIFIERS, TOKEN_TYPES
from tests.support.lsp.client import Editor, Message, pick
from tests.support.strategies.mutation import mutants

ROOT = Path(__file__).parents[2]
PARTS = """module Scale(width: int = 8):
  params:
    weight: [width]
  forward:
    in: [B, width]
    out: [B, width]
    graph:
      in -> mul(weight) -> out
"""
MODEL = """# 😀 a comment outside of the basic plane
from parts import Scale

model Twice(width: int = 8):
  let:
    double = width * 2
  params:
    first: Scale(width=width)
    proj: [double, width]
  forward:
    in: [B, width]
    out: [B, double]
    graph:
      in -> first -> scaled
      (scaled, proj) -> matmul(transpose=NT) -> out
"""
SHARED = """# Half of a tensor.
public operator halve {
    @input { x: real[n..(d)]; }
    @output { y: real[n..(d)]; }
    @lower { y[i..] = x[i..] / 2.0, i < n; }
}
"""
GRAPH = """import shared, nn;

graph Main {
    @input { image: real[4, 6]; }
    @output { out: real[4, 6]; }
    @compose {
        half = shared.halve(image); # 𝔸😀
        out = nn.relu(half);
    }
}
"""
KERNEL = """func @copy(%A: memref<f32x64>, %B: memref<f32x64>) {
    %zero = constant 0 : index
    %one = constant 1 : index
    %n = size %A[0] : index
    for %i=%zero,%n,%one {
        %v = load %A[%i] : f32
        store %v, %B[%i]
    }
}
"""


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "parts.module").write_text(PARTS, encoding="utf-8")
    (folder / "shared.sknd").write_text(SHARED, encoding="utf-8")
    (folder / "main.sknd").write_text(GRAPH, encoding="utf-8")
    (folder / "twice.module").write_text(MODEL, encoding="utf-8")
    with Editor(folder) as found:
        yield found


def shown(found: Message) -> str:
    text: str = found["contents"]["value"]
    return text


def labels(found: Message) -> set[str]:
    return {item["label"] for item in found["items"]}


def changed(text: str, edits: list[Message]) -> str:
    """A text with edits made, from the last to the first."""
    lines = text.split("\n")
    for edit in sorted(
        edits, key=lambda item: str((item["range"]["start"]["line"], item["range"]["start"])), reverse=True
    ):
        start, end = edit["range"]["start"], edit["range"]["end"]
        head = lines[start["line"]].encode("utf-16-le")[: 2 * start["character"]].decode("utf-16-le")
        tail = lines[end["line"]].encode("utf-16-le")[2 * end["character"] :].decode("utf-16-le")
        lines[start["line"] : end["line"] + 1] = (head + edit["newText"] + tail).split("\n")
    return "\n".join(lines)


def test_architectures(editor: Editor) -> None:
    name = "twice.module"
    editor.open(name, MODEL)
    assert editor.findings(name) == []
    # values with where they come from, shapes of parameters and of tensors
    assert "width = 8 (default)" in shown(
        editor.ask("textDocument/hover", **editor.at(name, MODEL, "width: int"))
    )
    assert "double = 16 (let)" in shown(editor.ask("textDocument/hover", **editor.at(name, MODEL, "double")))
    assert "[16, 8]" in shown(editor.ask("textDocument/hover", **editor.at(name, MODEL, "proj:")))
    assert "f32[" in shown(editor.ask("textDocument/hover", **editor.at(name, MODEL, "scaled")))
    assert "impl" in shown(editor.ask("textDocument/hover", **editor.at(name, MODEL, "matmul")))
    # across files, with unsaved text of the other one
    place = editor.ask("textDocument/definition", **editor.at(name, MODEL, "Scale(width=width)"))
    assert (place["uri"], pick(PARTS, place["range"])) == (editor.uri("parts.module"), "Scale")
    member = editor.ask("textDocument/definition", **editor.at(name, MODEL, "width=width"))
    assert (member["uri"], member["range"]["start"]) == (
        editor.uri("parts.module"),
        {"line": 0, "character": 13},
    )
    library = editor.ask("textDocument/definition", **editor.at(name, MODEL, "matmul"))
    assert library["uri"].endswith("linear_algebra.module")
    wrong = MODEL.replace("matmul", "matmull")
    editor.change(name, wrong)
    (finding,) = editor.findings(name)
    assert finding["severity"] == 1
    assert "did you mean 'matmul'" in finding["message"]
    actions = editor.ask(
        "textDocument/codeAction",
        textDocument={"uri": editor.uri(name)},
        range=finding["range"],
        context={"diagnostics": [finding]},
    )
    (action,) = actions
    assert changed(wrong, action["edit"]["changes"][editor.uri(name)]) == MODEL
    editor.change(name, MODEL)
    assert editor.findings(name) == []


def test_rename_goes_through_files(editor: Editor) -> None:
    at = editor.at("parts.module", PARTS, "Scale")
    places = editor.ask("textDocument/references", **at, context={"includeDeclaration": True})
    assert sorted(Path(item["uri"]).name for item in places) == ["parts.module"] + ["twice.module"] * 2
    edit = editor.ask("textDocument/rename", **at, newName="Stretch")["changes"]
    texts = {editor.uri("parts.module"): PARTS, editor.uri("twice.module"): MODEL}
    assert {uri: changed(texts[uri], edits) for uri, edits in edit.items()} == {
        uri: text.replace("Scale", "Stretch") for uri, text in texts.items()
    }
    for word, why in (("matmul", "outside of this project"), ("in -> first", "a word of the language")):
        refused = editor.answer("textDocument/rename", **editor.at("twice.module", MODEL, word), newName="x")
        assert why in refused["error"]["message"]
    assert (
        "already"
        in editor.answer(
            "textDocument/rename", **editor.at("twice.module", MODEL, "double"), newName="width"
        )["error"]["message"]
    )


def test_graphs(editor: Editor) -> None:
    name = "main.sknd"
    editor.open(name, GRAPH)
    assert editor.findings(name) == []
    assert "f32[4, 6]" in shown(editor.ask("textDocument/hover", **editor.at(name, GRAPH, "half =")))
    formula = shown(editor.ask("textDocument/hover", **editor.at(name, GRAPH, "halve")))
    assert "y[i..] = x[i..] / 2.0" in formula
    assert "Half of a tensor." in formula
    place = editor.ask("textDocument/definition", **editor.at(name, GRAPH, "halve"))
    assert (place["uri"], pick(SHARED, place["range"])) == (editor.uri("shared.sknd"), "halve")
    file = editor.ask("textDocument/definition", **editor.at(name, GRAPH, "nn.relu"))
    assert file["uri"].endswith("ops/nn.sknd")
    typing = GRAPH.replace("nn.relu(half)", "nn.re")
    editor.change(name, typing)
    assert {"relu"} <= labels(editor.ask("textDocument/completion", **editor.at(name, typing, "nn.re", 5)))
    # what the editor shows of another file counts, saved or not
    editor.open("shared.sknd", SHARED.replace("halve", "third"))
    editor.change(name, GRAPH)
    (finding,) = editor.findings(name)
    assert pick(GRAPH, finding["range"]).startswith("shared.halve")
    editor.tell("textDocument/didClose", textDocument={"uri": editor.uri("shared.sknd")})
    editor.tell("textDocument/didSave", textDocument={"uri": editor.uri(name)})
    assert editor.findings(name) == []
    symbols = editor.ask("textDocument/documentSymbol", textDocument={"uri": editor.uri(name)})
    assert [(item["name"], [child["name"] for child in item["children"]]) for item in symbols] == [
        ("Main", ["image", "out", "half"])
    ]
    found = editor.ask("workspace/symbol", query="hal")
    assert [item["name"] for item in found] == ["halve"]


def test_kernels_and_their_format(editor: Editor) -> None:
    name = "copy.tensor"
    editor.open(name, KERNEL)
    editor.findings(name)
    hover = shown(editor.ask("textDocument/hover", **editor.at(name, KERNEL, "%v, %B", 1)))
    assert "%v: f32" in hover
    assert "load %A[%i]" in hover
    edits = editor.ask(
        "textDocument/formatting",
        textDocument={"uri": editor.uri(name)},
        options={"tabSize": 4, "insertSpaces": True},
    )
    formatted = changed(KERNEL, edits)
    editor.change(name, formatted)
    assert (
        editor.ask(
            "textDocument/formatting",
            textDocument={"uri": editor.uri(name)},
            options={"tabSize": 4, "insertSpaces": True},
        )
        == []
    )
    typing = formatted.replace("store %v", "store %zer")
    editor.change(name, typing)
    assert "zero" in labels(
        editor.ask("textDocument/completion", **editor.at(name, typing, "store %zer", 10))
    )
    assert any("did you mean '%zero'" in item["message"] for item in editor.findings(name))
    highlights = editor.ask("textDocument/documentHighlight", **editor.at(name, typing, "%i", 1))
    assert {pick(typing, item["range"]) for item in highlights} == {"i"}
    assert len(highlights) == 3


def test_plans(editor: Editor) -> None:
    text = (ROOT / "examples/npu/conv_relu.nem").read_text(encoding="utf-8")
    editor.open("conv.nem", text)
    assert {item["severity"] for item in editor.findings("conv.nem")} <= {2, 3}
    cost = shown(editor.ask("textDocument/hover", **editor.at("conv.nem", text, "conv2d")))
    assert "cycles on NMU of npm_lite" in cost
    assert "accum_type" in cost
    device = editor.ask("textDocument/definition", **editor.at("conv.nem", text, "device npm_lite", 9))
    assert device["uri"].endswith("devices/npm_lite.nem")
    inside = editor.at("conv.nem", text, "out Yt ", 7)
    assert {"pads", "strides"} <= labels(editor.ask("textDocument/completion", **inside))


def test_colours_are_where_words_are(editor: Editor) -> None:
    """Counted in UTF-16: behind characters outside of the basic plane too; and a change gives the same as the whole."""
    text = GRAPH.replace("{ image", "{ # 😀😀\n image")
    editor.open("colours.sknd", text)
    document: Any = {"uri": editor.uri("colours.sknd")}
    whole = editor.ask("textDocument/semanticTokens/full", textDocument=document)
    words = decoded(text, whole["data"])
    assert ("halve", "function") in words
    assert ("# 𝔸😀", "comment") in words
    assert ("image", "variable") in words
    after = text.replace("half", "quarter")
    editor.change("colours.sknd", after)
    delta = editor.ask(
        "textDocument/semanticTokens/full/delta", textDocument=document, previousResultId=whole["resultId"]
    )
    data = list(whole["data"])
    for edit in delta["edits"]:
        data[edit["start"] : edit["start"] + edit["deleteCount"]] = edit["data"]
    assert data == editor.ask("textDocument/semanticTokens/full", textDocument=document)["data"]
    assert ("quarter", "variable") in decoded(after, data)
    lines = {"start": {"line": 0, "character": 0}, "end": {"line": 1, "character": 0}}
    part = editor.ask("textDocument/semanticTokens/range", textDocument=document, range=lines)["data"]
    assert part == data[: len(part)] != []


def decoded(text: str, data: list[int]) -> set[tuple[str, str]]:
    found, line, column = set(), 0, 0
    for place in range(0, len(data), 5):
        down, right, width, kind, modifiers = data[place : place + 5]
        line, column = line + down, right + (0 if down else column)
        start, end = {"line": line, "character": column}, {"line": line, "character": column + width}
        found.add((pick(text, {"start": start, "end": end}), TOKEN_TYPES[kind]))
        assert modifiers < 1 << len(MODIFIERS)
    return found


def test_broken_texts_do_not_end_it(editor: Editor) -> None:
    """Unsaved nonsense in every language, quickly one after the other: the server answers all the same."""
    seeds = {"twice.module": MODEL, "main.sknd": GRAPH, "copy.tensor": KERNEL}
    for name, seed in seeds.items():
        for text in [*mutants([seed], 12, 5), "", "\0", "😀" * 40, "{" * 3000, '"""', "\r\r\n\u2028"]:
            editor.change(name, text)
            document = {"uri": editor.uri(name)}
            editor.ask("textDocument/documentSymbol", textDocument=document)
            editor.ask("textDocument/semanticTokens/full", textDocument=document)
            editor.answer("textDocument/hover", textDocument=document, position={"line": 3, "character": 7})
            editor.ask("textDocument/completion", textDocument=document, position={"line": 5, "character": 9})
        editor.findings(name)
        editor.change(name, seed)
        assert [item for item in editor.findings(name) if item["severity"] == 1] == []


def test_a_text_that_is_no_file(editor: Editor) -> None:
    item = {
        "uri": "untitled:Untitled-1",
        "languageId": "nem",
        "version": 1,
        "text": "buffer A : L9 (size=0)\n",
    }
    editor.tell("textDocument/didOpen", textDocument=item)
    symbols = editor.ask("textDocument/documentSymbol", textDocument={"uri": "untitled:Untitled-1"})
    assert [symbol["name"] for symbol in symbols] == ["A"]
