"""NAC from the command line: check, fmt, show and convert, on bytes and on assembly text."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lamella.cli import lamella as command
from lamella.lang.nac import nodes as n
from lamella.lang.nac import write
from tests.support.lang.nac.containers import HEADERS, patched
from tests.support.lang.nac.models import in_blocks, perceptron
from tests.support.repository import ROOT

EXAMPLES = ROOT / "examples" / "nac"
HEADER = 88


def run(*words: str | Path, stdin: bytes | None = None) -> Result:
    done = CliRunner().invoke(command, [str(word) for word in words], input=stdin)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    path = tmp_path / "model.nac"
    path.write_bytes(write(perceptron()))
    return path


def offsets(data: bytes) -> dict[str, int]:
    """Where the sections of a 1.6 file begin, read by hand."""
    tags = HEADERS["1.6"][2]
    found = zip(tags, struct.unpack_from(f"<{len(tags)}Q", data, 12), strict=True)
    return {tag.strip(): start for tag, start in found if start}


def test_findings_of_bytes_have_byte_offsets(binary: Path) -> None:
    data = binary.read_bytes()
    assert run("check", binary).stdout == "1 file checked: nothing found\n"
    start = offsets(data)["OPS"]
    binary.write_bytes(patched(data, start, b"OOPS"))
    done = run("check", binary)
    assert done.exit_code == 1
    assert f"model.nac:byte {start}: error[NAC012]" in done.output
    report = json.loads(run("check", binary, "--json").stdout)
    assert [(item["code"], item["line"], item["column"]) for item in report["diagnostics"]] == [
        ("NAC012", 1, start + 1)
    ]


def test_findings_of_a_text_have_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.nacs"
    path.write_text("nac 1.6\n.code\n    %x = input()\n    %y = output(%z)\n", encoding="utf-8")
    done = run("check", path)
    assert done.exit_code == 1
    assert "a.nacs:4:17: error[NAC188]" in done.output


def test_show_tells_where_the_sections_lie(binary: Path) -> None:
    data = binary.read_bytes()
    shown = json.loads(run("show", binary, "--json").stdout)
    found = {item["name"]: item["offset"] for item in shown["sections"]}
    assert found == offsets(data)
    assert HEADER + sum(item["bytes"] for item in shown["sections"]) == len(data) == shown["bytes"]
    lines = run("show", binary).stdout.splitlines()
    assert lines[0] == f"{binary}: NAC 1.6, {len(data)} bytes"
    for name, start in found.items():
        assert [line for line in lines if line.split()[:3] == [name, "at", str(start)]]


def test_show_tells_what_a_file_holds(binary: Path) -> None:
    text = run("show", binary).stdout
    rows = [" ".join(line.split()) for line in text.splitlines()]
    for row in (
        "weights internal, quantization int8_channel, 1 input, 1 output, d_model 3",
        "3 × <INPUT>",
        "1 × nac.add",
        "1 × aten.gelu.default",
        "%0 x",
        "1 fc.weight int8[3, 2] 6 bytes int8_channel, 3 scales on axis 0",
        "2 fc.bias int8[3] 3 bytes int8_tensor, scale 0.25",
        "vocab.json 8 bytes",
    ):
        assert row in rows, text
    shown = json.loads(run("show", binary, "--json").stdout)
    assert shown["inputs"] == [{"instruction": 0, "name": "x"}]
    assert shown["commands"] == {"SAVE_RESULT": 2, "FREE": 3, "FORWARD": 1, "PRELOAD": 2}
    assert shown["operations"]["<INPUT>"] == 3
    assert shown["parameters"][0]["shape"] == [3, 2]
    assert shown["resources"][1] == {"name": "merges.txt", "bytes": 0}


def test_show_of_a_text_and_of_its_bytes_differ_in_places_only(binary: Path, tmp_path: Path) -> None:
    text = tmp_path / "model.nacs"
    assert run("convert", binary, text).exit_code == 0
    of_bytes, of_text = (json.loads(run("show", path, "--json").stdout) for path in (binary, text))
    for item in (of_bytes, of_text):
        del item["file"], item["bytes"], item["sections"]
    assert of_text == of_bytes


def test_blocks_and_what_has_no_name(tmp_path: Path) -> None:
    path = tmp_path / "a.nac"
    path.write_bytes(write(replace(in_blocks(), parameters=())))
    done = run("show", path)
    assert "(no name)" in done.stdout
    assert "block_fp8, 1 scale for blocks of 64, of [2, 3]" in done.stdout


def test_the_listing_is_code_with_its_memory_commands(binary: Path) -> None:
    lines = run("show", binary, "--listing").stdout.splitlines()
    assert [" ".join(line.split()) for line in lines[2:]][:5] == [
        "v0 = input x PRELOAD -> 1, PRELOAD -> 2",
        "v1 = parameter fc.weight: int8[3, 2]",
        "v2 = parameter fc.bias: int8[3]",
        "v3 = aten.linear.default(v0, v1, v2) SAVE_RESULT -> 3",
        'v4 = aten.gelu.default(v3, "tanh") FORWARD -> 5, FREE -> 1, FREE -> 2',
    ]
    shown = json.loads(run("show", binary, "--listing", "--json").stdout)
    assert shown["listing"] == lines[2:]
    other = run("show", ROOT / "examples/npu/conv_relu.nem", "--listing")
    assert other.exit_code == 2
    assert "--listing cannot have an effect" in other.output


def test_a_plan_tells_what_it_returns_within_folders_that_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ROOT / "examples/nac/words.nacs"
    (tmp_path / "words.nac").write_bytes(b"")
    run("convert", words, tmp_path / "words.nac")
    (tmp_path / "asked.nacs").write_bytes(words.read_bytes())
    monkeypatch.chdir(tmp_path)
    refused = run("run", "asked.nacs", "--plan", "--answer", "b")
    assert refused.exit_code == 1
    assert "--allow models=DIR" in refused.output
    for folder in (".", "./", str(tmp_path)):
        allowed = ("--allow", f"models={folder}", "--allow", "read=.", "--allow", "print")
        done = run("run", "asked.nacs", "--plan", "--answer", "b", *allowed)
        assert done.exit_code == 0, done.output
        assert done.stdout == "returned 0: float32[1, 2]  [[127.0, -127.0]]\n"
    for wrong in ("models", "models=", "print=.", "nonsense=."):
        done = run("run", "asked.nacs", "--plan", "--allow", wrong)
        assert done.exit_code == 2
        assert f"'{wrong}' is no capability" in done.output


def test_show_says_what_could_not_be_read_and_shows_the_rest(binary: Path) -> None:
    data = binary.read_bytes()
    binary.write_bytes(patched(data, offsets(data)["CNST"], b"CONS"))
    done = run("show", binary)
    assert done.exit_code == 1
    assert "NAC012" in done.stderr
    assert "fc.weight" in done.stdout


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"NAC\1", b"NAC\1" + bytes(84)])
def test_show_of_something_else_is_only_a_finding(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.nac"
    path.write_bytes(content)
    done = run("show", path)
    assert done.exit_code == 1
    assert not done.stdout
    assert "error[NAC00" in done.stderr


def test_names_of_a_file_do_not_reach_the_terminal_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.nac"
    wild = "\x1b[2J\n‮"
    file = perceptron()
    renamed = replace(
        file,
        operations=(n.Operation(201, wild), file.operations[1]),
        parameters=(n.Parameter(1, wild), file.parameters[1]),
        inputs=(n.Input(0, wild),),
        resources=(n.Resource(wild, b""),),
    )
    path.write_bytes(write(renamed))
    for words in ((), ("--listing",)):
        done = run("show", path, *words)
        assert not set(wild) & set(done.stdout.replace("\n", "")) - set("[2J")


def test_fmt_keeps_comments_and_is_at_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.nacs"
    path.write_text("nac   1.6 ; first\n.code\n%x=input( )\n; between\n%z = output(%x)\n", encoding="utf-8")
    assert run("fmt", path, "--check").exit_code == 1
    assert run("fmt", path, "--write").exit_code == 0
    text = path.read_text(encoding="utf-8")
    assert text == "nac 1.6  ; first\n\n.code\n    %x = input()\n    ; between\n    %z = output(%x)\n"
    assert run("fmt", path, "--check").exit_code == 0
    for example in EXAMPLES.glob("*.nacs"):
        assert run("fmt", example, "--check").exit_code == 0


def test_fmt_of_bytes_prints_text_that_gives_the_same_bytes(binary: Path, tmp_path: Path) -> None:
    data = binary.read_bytes()
    text = tmp_path / "printed.nacs"
    text.write_text(run("fmt", binary).stdout, encoding="utf-8")
    assert run("convert", text, tmp_path / "again.nac").exit_code == 0
    assert (tmp_path / "again.nac").read_bytes() == data
    for option in ("--write", "--check"):
        done = run("fmt", binary, option)
        assert done.exit_code == 2
        assert "is binary" in done.output
    assert binary.read_bytes() == data


def test_fmt_does_not_print_weights_without_end(binary: Path) -> None:
    done = run("fmt", binary, "--limit", "max_file_bytes=20")
    assert done.exit_code == 1
    assert "max_file_bytes is 20" in done.output
    assert "lamella convert model.nac model.nacs" in done.output


def test_fmt_of_broken_bytes_says_what_is_broken(binary: Path) -> None:
    binary.write_bytes(binary.read_bytes()[:200])
    done = run("fmt", binary)
    assert done.exit_code == 1
    assert "error[NAC010]" in done.output


def test_standard_input_is_bytes_or_text(binary: Path) -> None:
    text = run("fmt", binary).stdout
    for content in (binary.read_bytes(), text.encode()):
        done = run("check", "-", "--language", "nac", stdin=content)
        assert done.output == "1 file checked: nothing found\n"
        assert run("fmt", "-", "--language", "nac", stdin=content).stdout == text


def test_a_file_that_does_not_describe_its_inputs_asks_for_them(binary: Path) -> None:
    for words in (("run",), ("lower", "--to", "tensor")):
        done = run(*words, binary)
        assert done.exit_code == 1
        assert "--type" in done.output


def test_convert_says_what_it_wrote(binary: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.nacs"
    assert run("convert", binary, target).stdout == f"{target}\n"
    done = run("convert", target, tmp_path / "b.nac", "--json")
    assert json.loads(done.stdout) == {"ok": True, "diagnostics": [], "written": str(tmp_path / "b.nac")}
    wrong = run("convert", binary, tmp_path / "a.txt")
    assert wrong.exit_code == 1
    assert "no ending for a NAC file" in wrong.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.nacs", "b.nac", "model.nac"]


def test_rules_are_listed_and_explained() -> None:
    assert run("rules", "nac").stdout.startswith("NAC001")
    explained = run("explain", "nac111").stdout
    assert explained.startswith("NAC111 (error)")
    assert "wrong:" in explained
    assert "right:" in explained
