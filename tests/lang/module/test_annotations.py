"""Every annotation of the specification: its arguments, its places, its values, alone and beside others."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from lamella.base.source import Source
from lamella.cli import lamella as command
from lamella.lang.module.annotations import KINDS, gradient_mode, is_frozen, read_annotation
from lamella.lang.module.annotations.table import (
    BESIDE,
    DECLARATION,
    DISTRIBUTION,
    GRAPH,
    IDENTITY,
    INSTANCE,
    NUMBERS,
    OPERATION,
    PARAMETER,
    PORT,
    RUNS,
    TRAINING,
    AnnotationParameter,
)
from lamella.lang.module.check import check
from lamella.lang.module.check.annotated import INERT
from lamella.lang.module.instantiate import Known
from lamella.lang.module.nodes import Annotation, Chain, Module, Unary
from lamella.lang.module.parse import parse
from tests.support.lang.module.parsed import flow

BAD = Path(__file__).parent / "bad"
BRIDGE = Path(__file__).parents[2] / "bridge"
RIGHT = {
    "memory": "@memory(save, priority=2, prefetch=false, async=true)",
    "checkpoint": "@checkpoint(selective, preserve=[a, b])",
    "lifetime": "@lifetime(scope=block, start=relu, end=relu)",
    "hook": "@hook(AfterEmbedding, mode=replace, priority=3)",
    "adapter": "@adapter(lora, rank=4, alpha=8, dropout=0.1, targets=[q, v])",
    "probe": '@probe("p", capture=histogram, condition=has_nan(a) || norm(a) > 1e3, frequency=10)',
    "dtype": "@dtype(bf16)",
    "precision": "@precision(compute=bf16, accumulate=fp32, output=fp32)",
    "scaling": "@scaling(per_block, block_size=(16, 32))",
    "recipe": "@recipe(Plain)",
    "fuse": "@fuse(scope=global)",
    "fuse_required": "@fuse_required(ops=[relu])",
    "nofuse": '@nofuse(reason="to look at it")',
    "kernel": '@kernel("fast", autotune=false, workspace=1_000, fallback=true)',
    "shard": "@shard(row, tp_size=2, async_comm=false)",
    "partition": "@partition(1, micro_batch=false)",
    "comm": '@comm(all_reduce, group="tp", async=true, bucket_size=25_000_000)',
    "assert": '@assert(!has_nan(a) && a.shape[-1] == 4, message="wrong")',
    "profile": '@profile("p", memory=true, nvtx=false)',
    "trace": "@trace(level=values)",
    "frozen": "@frozen",
    "trainable": "@trainable(lr_scale=0.1, wd_scale=0, grad_clip=1.0)",
    "gradient": "@gradient(skip, scale=-1.0)",
    "alias": "@alias",
    "noalias": "@noalias",
    "barrier": "@barrier",
}
"""A right use of each."""
WRONG = {
    "memory": ["@memory", "@memory(keep)", "@memory(save, prefetch=1)", "@memory(save, 1, true, true, 5)"],
    "checkpoint": ["@checkpoint(some)", "@checkpoint(preserve=a)", "@checkpoint(full, keep=[a])"],
    "lifetime": ["@lifetime(forever)", "@lifetime(start=3)", "@lifetime(end=gelu)", "@lifetime(from=relu)"],
    "hook": ["@hook", "@hook(3)", "@hook(P, mode=change)", "@hook(P, mode=observe, priority=high)"],
    "adapter": [
        "@adapter(qlora)",
        "@adapter(lora, rank=0)",
        "@adapter(lora, targets=[x])",
        "@adapter",
        "@adapter(ia3, rank=4)",
    ],
    "probe": ["@probe", "@probe(1)", '@probe("p", capture=mean)', '@probe("p", frequency=0)'],
    "dtype": ["@dtype", "@dtype(float)", "@dtype(bf16, fp32)", "@dtype(16)"],
    "precision": ["@precision(policy=fast)", "@precision(compute=half)", "@precision(storage=bf16)"],
    "scaling": ["@scaling", "@scaling(per_row)", "@scaling(per_block, block_size=(0, 32))"],
    "recipe": ["@recipe", "@recipe(3)"],
    "fuse": ["@fuse(scope=all)", "@fuse(ops=add)", "@fuse(3)"],
    "fuse_required": ["@fuse_required(scope=all)"],
    "nofuse": ["@nofuse(reason=3)", "@nofuse(why=slow)"],
    "kernel": ["@kernel", '@kernel("k", workspace=-1)', '@kernel("k", fallback=never)'],
    "shard": ["@shard", "@shard(diagonal)", "@shard(row, tp_size=0)", "@shard(row, tp_size=2.5)"],
    "partition": ["@partition", "@partition(-1)", "@partition(first)", "@partition(true)"],
    "comm": ["@comm", "@comm(reduce)", "@comm(all_reduce, bucket_size=0)"],
    "assert": [
        "@assert",
        '@assert("a >")',
        "@assert(a[0] > 1)",
        "@assert(sum(a) > 0)",
        "@assert(a % 2 == 0)",
    ],
    "profile": ["@profile", '@profile("p", memory=2)', '@profile("p", time=true)'],
    "trace": ["@trace(level=all)", "@trace(deep=true)"],
    "frozen": ["@frozen(true)"],
    "trainable": ["@trainable(lr_scale=-1)", "@trainable(rate=0.1)", "@trainable(grad_clip=no)"],
    "gradient": ["@gradient(stop)", "@gradient(clip=-1.0)"],
    "alias": ["@alias(x)"],
    "noalias": ["@noalias(x)"],
    "barrier": ["@barrier(1)"],
}
"""Uses that are wrong in their arguments."""
PLACES = {
    OPERATION: "      x -> relu() -> a {0}\n      a -> y\n",
    IDENTITY: "      x -> relu() -> b\n      b -> a {0}\n      a -> y\n",
}
TEXT = """\
recipe Plain:
  output_dtype: fp32
module Inner():
  params:
    weight: [4]
module M(d: int = 4):
{declaration}
  params:
    a: [d] {parameter}
    inner: Inner() {instance}
  forward:
{graph}
    in: x: [B, d] {port}
    out: y: [B, d]
    graph:
{statements}
"""
EFFECTS = {
    NUMBERS: {"dtype", "precision", "scaling", "recipe", "noalias"},
    BESIDE: {"lifetime", "fuse", "fuse_required", "nofuse", "kernel", "alias", "barrier"},
    RUNS: {"hook", "probe", "assert", "profile", "trace"},
    TRAINING: {"memory", "checkpoint", "adapter", "frozen", "trainable", "gradient"},
    DISTRIBUTION: {"shard", "partition", "comm"},
}
"""Where each shows what it does; what only training or several devices can show is validated and kept."""


def annotation(text: str) -> Annotation:
    """One annotation."""
    return flow(f"x -> relu() -> a {text}").annotations[0]


def placed(text: str, place: str, notes: bool = False) -> list[str]:
    """The codes of a module with an annotation in one place; notes on what has no effect where they are asked for."""
    gaps = dict.fromkeys(("declaration", "parameter", "instance", "graph", "port"), "")
    names = {PARAMETER: "parameter", INSTANCE: "instance", PORT: "port"}
    if place in names:
        gaps[names[place]] = text
    elif place == DECLARATION:
        gaps["declaration"] = f"  {text}"
    elif place == GRAPH:
        gaps["graph"] = f"    {text}"
    statements = PLACES.get(place, PLACES[OPERATION]).format(text if place in PLACES else "")
    found = parse(Source("test.module", TEXT.format(statements=statements, **gaps)))
    assert not found.findings, "\n".join(map(str, found.findings))
    return [item.code for item in check(found.document) if notes or item.code != "W116"]


def test_every_annotation_is_tried() -> None:
    assert set(RIGHT) == set(WRONG) == set(KINDS)
    assert {name for names in EFFECTS.values() for name in names} == set(KINDS)
    assert all(KINDS[name].effect == effect for effect, names in EFFECTS.items() for name in names)


@pytest.mark.parametrize("name", RIGHT)
def test_right_arguments_are_read(name: str) -> None:
    found = read_annotation(annotation(RIGHT[name]), {})
    assert not found.findings
    assert set(found.arguments) == {item.name for item in KINDS[name].parameters}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused(name: str) -> None:
    for text in WRONG[name]:
        place = PARAMETER if KINDS[name].places[0] == PARAMETER else OPERATION
        place = DECLARATION if KINDS[name].places == (DECLARATION,) else place
        place = IDENTITY if name == "alias" else place
        assert placed(text, place) == ["E008"], text


@pytest.mark.parametrize("name", RIGHT)
def test_places_are_kept(name: str) -> None:
    """In every place an annotation is either right or one finding, as its table says."""
    for place in (OPERATION, IDENTITY, PORT, PARAMETER, INSTANCE, DECLARATION, GRAPH):
        text = RIGHT[name]
        if place == PARAMETER:
            text = {"memory": "@memory(pin)", "precision": "@precision(storage=bf16)"}.get(name, text)
        allowed = place in KINDS[name].places
        if name == "alias" and place == OPERATION:
            allowed = False  # a new tensor is no alias
        assert placed(text, place) == ([] if allowed else ["E008"]), (name, place)


def test_an_alias_may_stand_on_views() -> None:
    for operation in ("view([B, d])", "transpose(0, 1)", "reshape([B, d])"):
        text = TEXT.format(
            statements=f"      x -> {operation} -> a @alias\n      a -> y\n",
            declaration="",
            parameter="",
            instance="",
            graph="",
            port="",
        )
        assert not list(check(parse(Source("test.module", text)).document))


# --- effects ----------------------------------------------------------------------------------------------------

EFFECT_TESTS = {
    "memory": ("../train/test_streaming", "mode priority prefetch async"),
    "checkpoint": ("../train/test_recompute", "granularity preserve"),
    "lifetime": ("test_module_ir_schedule", "scope start end"),
    "adapter": (
        "../train/test_adapters",
        "type rank alpha dropout targets length hidden_dim bottleneck_dim activation",
    ),
    "hook": ("../pipeline/test_module_watch", "point mode priority"),
    "probe": ("../pipeline/test_module_watch", "name capture condition frequency"),
    "dtype": ("test_module_annotations", "type"),
    "precision": ("test_module_annotations", "compute accumulate output policy storage"),
    "scaling": ("../train/test_precision", "strategy history_len update_interval block_size margin"),
    "recipe": ("test_module_annotations", "name"),
    "assert": ("../pipeline/test_module_observing", "condition message enabled"),
    "trace": ("../pipeline/test_module_observing", "level"),
    "profile": ("../pipeline/test_module_observing", "name memory cuda_events nvtx"),
    "shard": ("../train/test_ranks", "strategy tp_size ep_size pp_size async_comm reduce_scatter"),
    "partition": ("../train/test_ranks", "stage micro_batch recompute"),
    "comm": ("../train/test_ranks", "op group async bucket_size"),
    "frozen": ("test_module_backward", ""),
    "trainable": ("../train/test_step", "lr_scale wd_scale grad_clip"),
    "gradient": ("../train/test_step", "mode scale clip"),
    "fuse": ("test_module_fusion", "pattern ops scope"),
    "fuse_required": ("test_module_fusion", "pattern ops scope"),
    "nofuse": ("test_module_fusion", "reason"),
    "kernel": ("test_module_fusion", "name autotune fallback"),
    "alias": ("test_module_ir_schedule", ""),
    "noalias": ("test_module_annotations", ""),
    "barrier": ("test_module_annotations", ""),
}
"""For each annotation with an effect the tests that show it, and the arguments that have one."""


@pytest.mark.parametrize("name", KINDS)
def test_every_annotation_has_an_effect_that_is_tested_or_a_note(name: str) -> None:
    """And so has every argument of it; what is said in one place is not said in the other."""
    rows = INERT.get(name, ())
    whole = any(not row.argument and not row.places for row in rows)
    assert whole != (name in EFFECT_TESTS)
    if whole:
        for place in KINDS[name].places:
            if not (name == "alias" and place == OPERATION):
                assert placed(RIGHT[name], place, notes=True) == ["W116"], place
        return
    file, words = EFFECT_TESTS[name]
    assert f"@{name}" in (BRIDGE / f"{file}.py").read_text(encoding="utf-8")
    inert = {row.argument: row.values for row in rows if row.argument and not row.beside[0]}
    for parameter in KINDS[name].parameters:
        some = set(inert.get(parameter.name, ())) < set(parameter.choices)
        assert (parameter.name in words.split()) == (parameter.name not in inert or some), parameter.name
        assert set(inert.get(parameter.name, ())) <= set(parameter.choices)


INERT_USES = {
    "@memory(offload)": (OPERATION, 0),
    "@memory(stream)": (PARAMETER, 0),
    "@memory(save, priority=2, prefetch=false)": (OPERATION, 2),
    "@memory(offload, priority=2, prefetch=false, async=false)": (OPERATION, 0),
    "@memory(save)": (OPERATION, 0),
    "@checkpoint(full)": (OPERATION, 0),
    "@checkpoint(selective)": (DECLARATION, 0),
    "@hook(P, replace)": (OPERATION, 0),
    "@hook(P, mode=observe)": (OPERATION, 0),
    '@probe("p", frequency=4)': (OPERATION, 0),
    '@probe("p", capture=full)': (OPERATION, 0),
    '@probe("p", capture=grad_full)': (OPERATION, 0),
    '@probe("p", capture=stats)': (OPERATION, 0),
    "@scaling(delayed, history_len=4)": (OPERATION, 0),
    "@scaling(per_tensor, history_len=4, update_interval=2)": (OPERATION, 2),
    "@scaling(dynamic, block_size=(4, 4), margin=0.1)": (OPERATION, 1),
    "@trace": (DECLARATION, 0),
    '@profile("p", memory=true)': (INSTANCE, 0),
    '@profile("p", nvtx=false)': (OPERATION, 0),
    "@trace(level=ops)": (OPERATION, 0),
    "@trainable(lr_scale=0.5)": (PARAMETER, 0),
    "@gradient(clip=1.0)": (OPERATION, 0),
    "@gradient(checkpoint)": (OPERATION, 0),
    "@lifetime(global)": (OPERATION, 0),
    "@gradient(skip)": (OPERATION, 0),
    '@kernel("k")': (OPERATION, 0),
    '@kernel("k", autotune=false, workspace=4)': (OPERATION, 1),
}
"""Uses with the number of notes on them."""


@pytest.mark.parametrize("text", INERT_USES)
def test_what_has_no_effect_is_noted_by_its_argument_and_its_place(text: str) -> None:
    place, count = INERT_USES[text]
    assert placed(text, place, notes=True) == ["W116"] * count


def test_notes_name_the_annotation_and_do_not_fail_a_strict_check(tmp_path: Path) -> None:
    path = tmp_path / "m.module"
    statement = PLACES[OPERATION].format('@kernel("k", workspace=4)')
    gaps = dict.fromkeys(("declaration", "instance", "graph", "port"), "")
    path.write_text(TEXT.format(statements=statement, parameter="", **gaps), encoding="utf-8")
    done = CliRunner().invoke(command, ["check", "--strict", str(path)])
    assert done.exit_code == 0, done.output
    assert "'workspace=4' of '@kernel' on an operation is kept for targets that obey it" in done.output


def test_a_kernel_without_fallback_is_refused_wherever_it_is_read(tmp_path: Path) -> None:
    path = BAD / "e118_kernel.module"
    for words in (("check", path), ("run", path, "--shape", "B=2")):
        done = CliRunner().invoke(command, [str(word) for word in words])
        assert done.exit_code == 1
        assert "'@kernel' asks for 'my_relu' and for nothing else" in done.output


# --- values -----------------------------------------------------------------------------------------------------


def test_defaults_are_filled_in() -> None:
    found = read_annotation(annotation("@adapter(lora, 8)"), {}).arguments
    assert found == {
        "type": "lora",
        "rank": 8,
        "alpha": 32.0,
        "dropout": 0.0,
        "targets": (),
        "length": 10,
        "hidden_dim": None,
        "bottleneck_dim": 64,
        "activation": "relu",
    }


def test_names_are_words_unless_they_have_values() -> None:
    written = annotation("@checkpoint(preserve=[attn_out, mlp])")
    assert read_annotation(written, {}).arguments["preserve"] == ("attn_out", "mlp")
    rank = annotation("@adapter(lora, rank=2 * r)")
    assert read_annotation(rank, {"r": Known(3)}).arguments["rank"] == 6
    assert "rank" not in read_annotation(rank, {}, ["r"]).arguments
    assert [item.code for item in read_annotation(rank, {"r": Known(-1)}).findings] == ["E008"]
    assert [item.code for item in read_annotation(rank, {}).findings] == ["E002"]


def test_hook_points_may_be_free_and_none() -> None:
    for text, point in (("MyOwn", "MyOwn"), ("None", "None"), ('"AfterQKV"', "AfterQKV")):
        assert read_annotation(annotation(f"@hook({text})"), {}).arguments["point"] == point


@pytest.mark.parametrize("text", ["!has_nan(a) && all(a >= 0)", '"!has_nan(a) && all(a >= 0)"'])
def test_conditions_are_expressions_bare_or_quoted(text: str) -> None:
    found = read_annotation(annotation(f"@assert({text})"), {}).arguments["condition"]
    assert isinstance(found, Chain)
    assert isinstance(found.first, Unary)
    assert found.rest[0][0] == "&&"


@given(st.text(alphabet="a()[]<>=!&|+-*/%. 09x,\"'\\\n", max_size=40))
def test_conditions_in_strings_never_end_in_an_exception(text: str) -> None:
    quoted = text.replace("\\", "").replace('"', "").replace("\n", " ")
    found = read_annotation(annotation(f'@assert("{quoted}")'), {})
    assert bool(found.findings) != ("condition" in found.arguments)


@given(st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(KINDS)))
def test_pairs_clash_where_the_table_says_so(first: str, second: str) -> None:
    text = f"{RIGHT[first]} {RIGHT[second]}"
    alone = placed(RIGHT[first], OPERATION) + placed(RIGHT[second], OPERATION)
    excluded = second in KINDS[first].excludes or first in KINDS[second].excludes
    twice = first == second and not KINDS[first].repeated
    together = placed(text, OPERATION)
    assert len(together) >= len(alone)
    if not alone:
        assert together == (["E008"] if excluded or twice else [])


def test_training_reads_annotations_without_values() -> None:
    text = "params:\n    a: [4] @frozen @memory(pin)\n    b: [4]\n    c: [4] @frozen\n"
    (module,) = parse(Source("test.module", f"module M():\n  {text}")).document.items
    assert isinstance(module, Module)
    a, b, c = (param.annotations for param in module.tensors)
    assert (is_frozen(a), is_frozen(b), is_frozen(c)) == (True, False, True)
    assert not is_frozen((*c, annotation("@trainable")))
    assert is_frozen((annotation("@trainable"), *c))
    assert gradient_mode([annotation("@gradient(skip)")]) == "skip"
    assert gradient_mode([annotation("@gradient(mode=accumulate)")]) == "accumulate"
    assert gradient_mode([annotation("@gradient(scale=0.5)")]) == "compute"
    assert gradient_mode([annotation("@frozen")]) is None


# --- the specification ------------------------------------------------------------------------------------------

SPECIFICATIONS = os.environ.get("LAMELLA_SPECIFICATIONS", "")
BLOCK = re.compile(r"^annotation @(\w+):\n(.*?)^```", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^    (\w+): ([^=#\n]+?)(?: = ([^#\n]+?))?\s*(?:#.*)?$", re.MULTILINE)
OURS = {"precision": {"storage"}}
"""Arguments that the examples of the specification use and its tables leave out."""


@pytest.mark.skipif(
    not SPECIFICATIONS, reason="LAMELLA_SPECIFICATIONS does not name the folder of the specifications"
)
def test_the_table_is_that_of_the_specification() -> None:
    text = (Path(SPECIFICATIONS) / "module-dsl.md").read_text(encoding="utf-8")
    blocks = dict(BLOCK.findall(text))
    assert len(blocks) > 20
    for name, block in blocks.items():
        section = re.search(r"^  params:\n((?:    .*\n|\n)*)", block, re.MULTILINE)
        fields = FIELD.findall(section[1]) if section else []
        own = {item.name: item for item in KINDS[name].parameters if item.name not in OURS.get(name, set())}
        assert list(own) == [field[0] for field in fields], name
        for field, kind, default in fields:
            check_field(own[field], kind, default)


def check_field(parameter: AnnotationParameter, kind: str, default: str) -> None:
    """A parameter against its line in the specification."""
    if kind.startswith("enum("):
        assert parameter.choices == tuple(kind[5:-1].replace(" ", "").split(",")), parameter.name
    if default and default != "None":
        shown = {"true": True, "false": False, "[]": ()}.get(default, parameter.default)
        assert parameter.default == shown
        assert not parameter.required
        if not isinstance(shown, bool | tuple):
            assert str(parameter.default) == default.strip('"'), parameter.name
