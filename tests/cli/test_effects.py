"""Options that the table calls effective have an effect: each is tried on a real input, with and without."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lamella.graph.data import write_safetensors
from lamella.pipeline.command_options import ALWAYS
from lamella.pipeline.effects import ANY, GRAPHS, SOURCES
from lamella.pipeline.options import table
from tests.support.cli.effects import (
    AXPY,
    GATE,
    INNER,
    INNER_MODULE,
    NEM,
    NET,
    NEXT,
    NEXT_MODULE,
    NPU,
    PLAIN,
    SHARED,
)
from tests.support.cli.skriptnd_models import call
from tests.support.repository import ROOT

SHOWN = {"levels": "--levels kernels", "errors": "--errors", "device": "--device nope"}
DECLARED = {
    "threads": "only the clock shows it",
    "timing": "only the clock shows it: tests/cli/test_polish.py",
    "check_bounds": "only wrong kernels show it: tests/cli/test_tensor_options.py",
    "strict_backend": "only an operation without a kernel shows it",
    "backends": "tests/cli/test_diff.py",
    "architecture": "tests of Hugging Face folders",
    "via": "tests of Hugging Face folders, with transformers",
    "unused": "tests of Hugging Face folders",
    "language": "it decides what the input is",
    "random": "commands always draw: tests/pipeline/test_missing_inputs.py",
    "training": "the command train says it",
    "serve": "it goes on until it is interrupted: tests/studio/test_serve.py",
    "allow_future": "tests/plan",
    "order": "a program without hazards gives the same bytes in every order: tests/backend/npu",
    "seed": "allowed wherever something may be drawn",
    "strict": "only warnings show it",
    "prompt": "there is nothing to generate without it: tests/cli/test_module.py, test_nac_app.py",
    "contents": "tests/pipeline/test_onnx_files.py, tests/models/test_hf_masks.py",
    **dict.fromkeys(("text", "context", "audio", "image", "top"), "tests/pipeline/test_tasks.py"),
    "against": "tests/cli/test_bench.py",
    **dict.fromkeys(("tune", "tune_seconds"), "only a GPU shows it: tests/pipeline/test_tuning.py"),
    "thread_counts": "only the clock shows it",
    "batches": "tests/cli/test_bench.py",
    "page": "tests/cli/test_bench.py",
    "round_seconds": "only the clock shows it",
    "targets": "no step is done without them: tests/cli/test_nac_training.py",
    "wdm": "only weights that a codec stores in fewer bytes show it: docs/layers/wdm.md",
}
"""Options whose effect is not in what a plain run prints or writes."""
STAGES = {"after": "--after fold-constants", "print_all": "--print-after-all"}
ONLY_WITH_ARCHITECTURE = {("root", "folder"), ("model", "folder")}
GRAPH_OPTIONS = {
    "seed": "--seed 1",
    "backend": "--backend npu",
    "dtype": "--dtype f64",
    "trace": "--trace --backend interpreter",
    "output": "--output o",
    "profile": "--profile",
    "run_timeline": "--timeline t.json",
}

DIGITS = "--backend reference --data examples/digits/digits.npz --samples 2"
QUANTIZE_OPTIONS = {
    "scheme": "--scheme w4a8",
    "method": "--method percentile:90",
    "per": "--per tensor",
    "symmetric": "--symmetric",
    "kept": "--keep *conv2*",
    "wide_outputs": "--wide-outputs",
    "data": "--data nope.npz",
    "samples": "--samples 3",
    "equalize": "--equalize",
    "gptq": "--gptq",
    "bias_correction": "--no-bias-correction",
    "rank": "--rank",
    "accuracy_budget": "--accuracy-budget 0.001",
    "size_budget": "--size-budget 5000",
}

OPTIMAL = {"optimal": "--optimal"}
PLANS = {**OPTIMAL, "effort": "--effort 0"}
CASES: list[tuple[str, str, str, dict[str, str]]] = [
    ("quantize", "sknd", f"quantize examples/digits/digits.sknd --no-rank {DIGITS}", QUANTIZE_OPTIONS),
    ("quantize", "nac", f"quantize digits.nac --no-rank {DIGITS}", QUANTIZE_OPTIONS),
    (
        "quantize",
        "sknd",
        f"quantize examples/digits/digits.sknd --no-rank {DIGITS} --keep *conv2* -o o.sknd",
        {"islands": "--islands f16"},
    ),
    (
        "quantize",
        "nac",
        f"quantize digits.nac --no-rank {DIGITS} --keep *conv2* -o o.sknd",
        {"islands": "--islands f16"},
    ),
    (
        "check",
        "sknd",
        "check net.sknd",
        {
            "model": "--model Nope",
            "config": "--set nope=1",
            "keep": "--keep nope",
            "decompose": "--decompose nope",
            "shape": "--shape q=1",
        },
    ),
    ("check", "sknd", "check below/inner.sknd", {"root": "--root ."}),
    (
        "check",
        "module",
        "check gate.module",
        {
            "model": "--model Nope",
            "config": "--set nope=1",
            "preset": "--preset nope",
            "lock": "--lock",
            "verify_backward": "--verify-backward",
        },
    ),
    ("check", "module", "check below/inner.module", {"root": "--root ."}),
    ("verify", "module", "check gate.module --verify-backward", {"shape": "--shape Q=2"}),
    ("check", "folder", "check hf", {"config": "--set vocab_size=3", "preset": "--preset nope"}),
    (
        "check",
        "nac",
        "check plain.nac",
        {"types": "--type nope=f32[1]"},
    ),
    ("check", "nem", f"check {NPU}", {"device": "--device nope", "as_sarif": "--sarif"}),
    ("check", "nem", "check below/inner.nem", {"root": "--root ."}),
    (
        "show",
        "sknd",
        "show net.sknd",
        {
            "model": "--model Other",
            "config": "--set nope=1",
            "keep": "--keep twice",
            "decompose": "--decompose all",
            "shape": "--shape b=1",
        },
    ),
    ("show", "library", "show layout.broadcast", {"dialect": "--dialect newer", "gradient": "--gradient"}),
    (
        "show",
        "module",
        "show gate.module",
        {"model": "--model Gate", "config": "--set d=5", "preset": "--preset wide"},
    ),
    ("memory", "module", "show gate.module", {"memory": "--memory"}),
    (
        "memory",
        "module",
        "show gate.module --model Gate --memory --shape B=2",
        {"picture": "--picture a.svg", "memory_budget": "--memory-budget 100B", **OPTIMAL},
    ),
    *(
        ("ranks", kind, words, options)
        for kind, name, shape in (
            ("module", "gate.module --model Gate", "B=2"),
            ("folder", "hf", "B=2,T=2"),
        )
        for words, options in (
            (f"show {name}", {"ranks": "--ranks dp=2"}),
            (
                f"sim {name} --ranks dp=2 --shape {shape}",
                {"html": "--html a.html", "timeline": "--trace a.json", "link": "--link bandwidth=1"},
            ),
        )
    ),
    ("memory", "folder", "show hf", {"memory": "--memory"}),
    (
        "memory",
        "folder",
        "show hf --memory --shape B=1,T=2",
        {"picture": "--picture a.svg", "memory_budget": "--memory-budget 100B", **OPTIMAL},
    ),
    ("show", "data", "show w.safetensors --json", {"stats": "--stats"}),
    ("show", "folder", "show hf", {"config": "--set vocab_size=3", "preset": "--preset nope"}),
    (
        "show",
        "nac",
        "show slope.nacs",
        {"listing": "--listing", "picture": "--picture a.svg", "extract": "--extract there"},
    ),
    ("show", "nac", "show slope.nacs --listing", {"types": "--type x=f32[2]"}),
    (
        "load",
        "sknd",
        "lower net.sknd --to sknd -o out",
        {
            "model": "--model Other",
            "config": "--set scale=2.0",
            "dialect": "--dialect newer",
            "keep": "--keep twice",
            "decompose": "--decompose nn.softmax",
            "shape": "--shape b=1",
            "weights": "--weights w.safetensors",
            "passes": "--pass nope",
            "compare": "--no-compare",
            "to": "--to nac",
        },
    ),
    ("load", "sknd", "run below/inner.sknd", {"root": "--root ."}),
    (
        "compile",
        "sknd",
        "run net.sknd --shape b=2",
        {"quantized": "--quantized", "inputs": "--input x=x23.npy", **GRAPH_OPTIONS},
    ),
    ("compile", "sknd", "run net.sknd --shape b=2 --backend cpu", {"precision": "--precision w8"}),
    ("lower", "sknd", "lower plain.sknd --to tensor --shape n=2", STAGES),
    ("lower", "sknd", "lower net.sknd --to sknd -o out", {"explain": "--explain fuse"}),
    ("lower", "sknd", "lower plain.sknd --to llvm --shape n=2", {"target": "--target cuda"}),
    ("lower", "sknd", "lower plain.sknd --to nem --shape n=2", {"device": "--device npm_lite"}),
    ("lower", "sknd", "lower plain.sknd --to nem --shape n=2 --device npm_lite", {"fit": "--fit"}),
    *(
        ("lower", kind, f"lower plain.{kind} --to nem --shape n=2 --device npm_lite -o there", PLANS)
        for kind in ("sknd", "nac")
    ),
    (
        "load",
        "module",
        "run gate.module --model Gate",
        {
            "model": "--model Half",
            "config": "--set d=5",
            "preset": "--preset wide",
            "shape": "--shape B=3",
            "weights": "--weights w.safetensors",
            "dtype": "--dtype f64",
            "observe": "--observe",
        },
    ),
    ("load", "module", "run below/inner.module", {"root": "--root ."}),
    ("load", "module", "run page.module --shape T=2", {"cache": "--cache 4"}),
    (
        "observe",
        "module",
        "run gate.module --observe",
        {"inputs": "--input x=x24.npy", "backend": "--backend npu"},
    ),
    (
        "load",
        "folder",
        "run hf --shape B=1,T=2",
        {
            "config": "--set eps=0.5",
            "preset": "--preset nope",
            "shape": "--shape B=1,T=3",
            "weights": "--weights w.safetensors",
            "dtype": "--dtype f64",
            "observe": "--observe",
        },
    ),
    ("load", "folder", "run hf --shape T=2", {"cache": "--cache 4", "backend": "--backend npu"}),
    (
        "generate",
        "folder",
        "generate hf --tokens 1,2 --max-tokens 3",
        {
            "tokens": "--tokens 7",
            "max_tokens": "--max-tokens 5",
            "temperature": "--temperature 9 --seed 3",
        },
    ),
    (
        "generate",
        "module",
        "generate page.module --tokens 1,2 --max-tokens 3",
        {"tokens": "--tokens 7", "max_tokens": "--max-tokens 5", "temperature": "--temperature 9 --seed 3"},
    ),
    ("load", "unit", "run unit", {"shape": "--shape B=1,T=2"}),
    (
        "compile",
        "nac",
        "run plain.nac --shape n=2",
        {
            "types": "--type nope=f32[1]",
            "weights": "--weights w2.safetensors",
            "shape": "--shape n=3",
            "inputs": "--input x=x23.npy",
            **GRAPH_OPTIONS,
        },
    ),
    (
        "train",
        "nac",
        "train slope.nacs --steps 2 --input x=x.npy --target 0=t.npy",
        {
            "steps": "--steps 3",
            "lr": "--lr 0.5",
            "save": "--save s.nac",
            "output": "--output o",
            "profile": "--profile",
            "run_timeline": "--timeline t.json",
        },
    ),
    ("train", "nac", "train slope.nacs --target 0=t.npy", {"inputs": "--input x=x.npy"}),
    *(
        (
            "fit",
            kind,
            f"train next.{kind} --data row.npy --steps 3 --batch 4 --sequence 2 --backend reference",
            {
                "data": "--data row.npy[9:]",
                "steps": "--steps 2",
                "batch": "--batch 2",
                "sequence": "--sequence 3",
                "shuffle": "--shuffle",
                "seed": "--seed 3 --shuffle",
                "eval_data": "--eval-data row.npy",
                "eval_every": "--eval-data row.npy --eval-every 1",
                "optimizer": "--optimizer sgd",
                "lr": "--lr 0.5",
                "weight_decay": "--weight-decay 0.9 --lr 0.5",
                "beta1": "--beta1 0.5",
                "beta2": "--beta2 0.5",
                "momentum": "--optimizer sgd --momentum 0.9",
                "schedule": "--schedule linear",
                "warmup": "--warmup 2",
                "decay": "--schedule wsd --decay 2",
                "min_lr": "--schedule linear --min-lr 0.0001",
                "clip": "--clip 0.01",
                "accumulate": "--accumulate 2",
                "ranks": "--ranks none",
                "memory_budget": "--memory-budget 100B",
                "adapters": "--adapter lora:rank=2",
                "base": "--adapter lora:rank=2 --base int8",
                "merge": "--adapter lora:rank=2 --merge --save s.safetensors",
                "save": "--save s.safetensors",
                "save_every": "--save s.safetensors --save-every 2",
                "resume": "--save s.safetensors --resume",
                "log": "--log l",
                "html": "--html o.html",
                "dtype": "--dtype f64",
                "backend": "--backend npu",
            },
        )
        for kind in ("nac", "sknd")
    ),
    (
        "fit",
        "module",
        "train next.module --data row.npy --steps 2 --batch 4 --sequence 2 --backend reference",
        {"recipe": "--recipe fp8_hybrid"},
    ),
    (
        "fit",
        "folder",
        "train hf --data row.npy --steps 1 --batch 2 --sequence 2 --backend reference",
        {"recipe": "--recipe nope"},
    ),
    (
        "fit",
        "nac",
        "train next.nac --data row.npy --steps 3 --batch 4 --sequence 2 --backend reference",
        {"types": "--type nope=f32[1]", "weights": "--weights w2.safetensors"},
    ),
    *(
        (
            "generate by names",
            kind,
            f"generate tiny.{kind} --tokens 0",
            {
                "ends": "--ends token_ids=nope",
                "tokens": "--tokens 7",
                "max_tokens": "--max-tokens 3",
                "temperature": "--temperature 9 --seed 3",
                "inputs": "--input nope=x.npy",
            },
        )
        for kind in ("nac", "sknd")
    ),
    (
        "plan",
        "nac",
        "run words.nac",
        {"run_plan": "--plan", "answers": "--answer a"},
    ),
    (
        "plan",
        "nac",
        "run words.nac --plan",
        {
            "allow": "--allow prompt",
            "answers": "--answer a",
        },
    ),
    (
        "plan",
        "nac",
        "run words.nac --answer a",
        {
            "patch": "--patch 2=1",
            "types": "--type nope=f32[1]",
            "weights": "--weights w.safetensors",
            "shape": "--shape nope=1",
        },
    ),
    ("plan", "nac", "run words.nac --answer a --patch 2=1", {"rewrite": "--rewrite"}),
    (
        "answer",
        "nac",
        "generate words.nac --prompt a",
        {
            "patch": "--patch 2=1",
            "types": "--type nope=f32[1]",
            "weights": "--weights w.safetensors",
            "shape": "--shape nope=1",
        },
    ),
    (
        "lower",
        "nac",
        "lower plain.nac --to sknd -o out",
        {
            "types": "--type nope=f32[1]",
            "weights": "--weights w2.safetensors",
            "shape": "--shape n=2",
            "passes": "--pass nope",
        },
    ),
    ("compile", "nac", "run plain.nac --shape n=2 --backend cpu", {"precision": "--precision int8"}),
    ("lower", "nac", "lower plain.nac --to tensor --shape n=2", STAGES),
    ("lower", "nac", "lower plain.nac --to sknd -o out", {"explain": "--explain fuse"}),
    ("lower", "nac", "lower plain.nac --to llvm --shape n=2", {"target": "--target cuda"}),
    ("lower", "nac", "lower plain.nac --to nem --shape n=2", {"device": "--device npm_lite"}),
    ("lower", "nac", "lower plain.nac --to nem --shape n=2 --device npm_lite", {"fit": "--fit"}),
    (
        "diff",
        "nac",
        "diff plain.nac plain.sknd",
        {"types": "--type nope=f32[1]", "shape": "--shape nope=2"},
    ),
    (
        "diff",
        "nac",
        "diff plain.nac seven.nac",
        {
            "tolerance": "--tolerance 9",
            "output": "-o o",
            "corners": "--corners",
            "precisions": "--precision f64 --precision f32",
            "html": "--html o.html",
            "inputs": "--input x=x.npy",
        },
    ),
    ("diff", "nac", "diff plain.nac seven.nac", {"reduce": "-o o --reduce"}),
    (
        "diff",
        "sknd",
        "diff plain.sknd seven.nac",
        {
            "corners": "--corners",
            "precisions": "--precision f64 --precision f32",
            "html": "--html o.html",
            "inputs": "--input x=x.npy",
            "reduce": "-o o --reduce",
        },
    ),
    (
        "write nac",
        "nac",
        "convert plain.nac o.nac",
        {
            "weights": "--weights w2.safetensors",
            "quantize": "--quantize fp16",
            "external": "--external",
            "tokenizer": "--tokenizer examples/nac-app/tokenizer.json",
            "plan": "--plan words.nacs",
            "embed": "--embed a=x.npy",
            "optimize": "--optimize exact",
            "plain_signatures": "--plain-signatures",
        },
    ),
    ("write nac", "nac", "convert plain.nac o.nac --quantize int8_channel", {"axis": "--axis 1"}),
    ("write nac", "nac", "convert plain.nac o.nac --optimize exact", {"types": "--type nope=f32[1]"}),
    ("write nac", "nac", "convert plain.nac o.nac --quantize fp16", {"shape": "--shape n=2"}),
    (
        "write graph",
        "nac",
        "convert plain.nac o.sknd",
        {
            "types": "--type nope=f32[1]",
            "weights": "--weights w2.safetensors",
            "shape": "--shape n=2",
        },
    ),
    (
        "write nac",
        "sknd",
        "convert plain.sknd o.nac",
        {
            "quantize": "--quantize fp16",
            "external": "--external",
            "optimize": "--optimize none",
            "plain_signatures": "--plain-signatures",
            "tokenizer": "--tokenizer examples/nac-app/tokenizer.json",
            "plan": "--plan words.nacs",
            "embed": "--embed a=x.npy",
        },
    ),
    ("write nac", "sknd", "convert plain.sknd o.nac --quantize int8_channel", {"axis": "--axis 1"}),
    *(
        ("merge", kind, f"convert {words}", options)
        for kind, name, target in (("folder", "hf", "o"), ("nac", "next.nac", "o.nac"))
        for words, options in (
            (f"{name} {target}", {"adapters": f"--adapter {kind}-adapter"}),
            (f"{name} {target} --adapter {kind}-adapter", {"unmerge": "--unmerge"}),
        )
    ),
    (
        "compile",
        "tensor",
        "run k.tensor --kernel axpy --arg a=2.0",
        {
            "kernel": "--kernel copy",
            "groups": "--groups 0",
            "trace": "--trace",
            "backend": "--backend npu",
            "arguments": "--arg x=x8.npy",
            "inputs": "--input x=x8.npy",
            "output": "--output o",
            "profile": "--profile",
            "run_timeline": "--timeline t.json",
            "judge": "--compare examples/sessions/softmax.sknd",
        },
    ),
    (
        "execute",
        "tensor",
        "run examples/kernels/rows.tensor --kernel softmax --groups 4 --backend cpu "
        "--compare examples/sessions/softmax.sknd --json",
        {"tolerance": "--tolerance 0"},
    ),
    (
        "lower",
        "tensor",
        "lower k.tensor --to tensor",
        {"target": "--target cuda", **STAGES, "after": "--after nope"},
    ),
    ("load", "nem", f"run {NPU}", {"device": "--device nope"}),
    ("load", "nem", "run below/inner.nem", {"root": "--root ."}),
    (
        "compile",
        "nem",
        f"run {NPU}",
        {
            "backend": "--backend cpu",
            "inputs": "--input nope=x.npy",
            "output": "--output o",
            "profile": "--profile",
            "run_timeline": "--timeline t.json",
        },
    ),
    (
        "compile",
        "stream",
        "run conv.stcb",
        {
            "backend": "--backend cpu",
            "inputs": "--input nope=x.npy",
            "output": "--output o",
            "profile": "--profile",
            "run_timeline": "--timeline t.json",
        },
    ),
    (
        "sim",
        "nem",
        f"sim {NPU}",
        {
            "device": "--device nope",
            "timeline": "--trace t.json",
            "html": "--html t.html",
            "advise": "--advise",
            "fix": "--fix f.nem",
            "layer": "--explain tc",
            "untiled": f"--against {NPU}",
        },
    ),
    ("sim", "nem", "sim below/inner.nem", {"root": "--root ."}),
    ("view", "sknd", "view plain.sknd --shape n=4 --levels nac", SHOWN | {"output": "-o other.html"}),
    ("view", "nac", "view plain.nac --levels nac", SHOWN | {"profile": "--profile"}),
    ("bind", "nem", f"bind {NPU} -o o.stcb", {"device": "--device nope", "output": "-o other.stcb"}),
    ("bind", "nem", "bind below/inner.nem -o o.stcb", {"root": "--root ."}),
    ("fmt", "nem", "fmt spaced.nem", {"in_place": "--write", "only_check": "--check"}),
]
"""By step and kind of input: a command, and for each option what is added to it."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an input of every kind."""
    folder = tmp_path_factory.mktemp("effects")
    shutil.copytree(ROOT / "examples", folder / "examples")
    texts = {
        "net.sknd": NET,
        "plain.sknd": PLAIN,
        "next.sknd": NEXT,
        "next.module": NEXT_MODULE,
        "gate.module": GATE,
        "k.tensor": AXPY,
        "shared.sknd": SHARED,
        "below/inner.sknd": INNER,
        "shared.module": "module Half(d: int = 4):\n" + GATE.split("module Half(d: int = 4):\n")[1],
        "below/inner.module": INNER_MODULE,
        "lite.nem": 'include "npm_lite.nem"\n',
        "below/inner.nem": NEM.replace('device "npm_lite.nem"', 'include "../lite.nem"\ndevice npm_lite'),
        "spaced.nem": NEM.replace(" = ", "   =   "),
    }
    (folder / "below").mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name in ("nac/slope.nacs", "nac/words.nacs"):
        shutil.copy(folder / "examples" / name, folder)
    page = (folder / "examples" / "llama" / "page.module").read_text(encoding="utf-8")
    for wide, narrow in (
        ("= 256", "= 16"),
        ("= 64", "= 8"),
        ("= 160", "= 8"),
        ("n_layers: int = 2", "n_layers: int = 1"),
    ):
        page = page.replace(wide, narrow)
    (folder / "page.module").write_text(page, encoding="utf-8")
    random = np.random.default_rng(0)
    arrays = {"x23": (2, 3), "x24": (2, 4), "x8": (8,), "x": (4,), "t": (4,)}
    for name, shape in arrays.items():
        np.save(folder / f"{name}.npy", random.normal(size=shape).astype(np.float32))
    np.save(folder / "ids.npy", np.array([[1, 2]]))
    np.save(folder / "row.npy", random.integers(0, 8, 40))
    stores = {"w": {"w": (3, 3), "up": (4, 4)}, "w2": {"w": (8, 3)}}
    for name, shapes in stores.items():
        numbers = {key: random.normal(size=shape).astype(np.float32) for key, shape in shapes.items()}
        write_safetensors(folder / f"{name}.safetensors", numbers)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in (
            "convert page.module hf --seed 1",
            "lower page.module --to ir -o unit --no-compare",
            "convert plain.sknd plain.nac",
            "convert next.sknd next.nac",
            "convert plain.sknd seven.nac --seed 7",
            "convert page.module tiny.nac --shape T=1 --cache 32",
            "convert page.module tiny.sknd --shape T=1 --cache 32",
            "convert words.nacs words.nac",
            "convert examples/digits/digits.sknd digits.nac",
            f"bind {NPU} -o conv.stcb",
            *(
                f"train {name} --data row.npy --steps 2 --batch 2 --sequence 2 --backend reference --lr 1 "
                f"--adapter lora:rank=2 --save {kind}-adapter"
                for kind, name in (("folder", "hf"), ("nac", "next.nac"))
            ),
        ):
            done = call(*words.split())
            assert done.exit_code == 0, done.output
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder that commands may write."""
    found = (item for item in folder.rglob("*") if item.is_file() and "examples" not in item.parts)
    return {item.relative_to(folder).as_posix(): item.read_bytes() for item in found}


def outcome(words: str, folder: Path, before: dict[str, bytes]) -> tuple[object, ...]:
    """What a command says and leaves behind; the folder is as before afterwards."""
    done = call(*words.split())
    after = contents(folder)
    made = {
        name: hashlib.sha256(data).hexdigest() for name, data in after.items() if before.get(name) != data
    }
    for name in made:
        if name in before:
            (folder / name).write_bytes(before[name])
        else:
            (folder / name).unlink()
    return done.exit_code, done.output, made


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{'-'.join(case[3])}"[:80])
def test_an_option_has_its_effect(
    case: tuple[str, str, str, dict[str, str]], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, kind, words, options = case
    monkeypatch.chdir(place)
    before = contents(place)
    plain = outcome(words, place, before)
    assert plain[0] != 2, plain[1]
    for name, more in options.items():
        row = table()[name]
        with_it = outcome(f"{words} {more}", place, before)
        assert with_it[0] != 2, (name, with_it[1])
        assert with_it != plain, (name, step, kind, with_it[1])
        assert any(kind in subjects for subjects in row.effects.values()), (name, kind)


def wanted() -> Iterator[tuple[str, frozenset[str]]]:
    """What must be tried of every option: each kind of input; those that are one graph by then, and all, once."""
    kinds = {case[1] for case in CASES}
    for name, row in table().items():
        if row.effects is ALWAYS or name in DECLARED:
            continue
        for step, subjects in row.effects.items():
            alike = [ANY, GRAPHS, *([SOURCES] if step in ("speak", "observe") else [])]
            group = next((item for item in alike if item <= subjects), frozenset[str]())
            if group:
                yield name, group
            for kind in (subjects & kinds) - group:
                if (name, kind) not in ONLY_WITH_ARCHITECTURE:
                    yield name, frozenset([kind])


def test_nothing_is_called_effective_that_nobody_tried() -> None:
    tried = {(name, case[1]) for case in CASES for name in case[3]}
    missing = {(name, *group) for name, group in wanted() if not any((name, kind) in tried for kind in group)}
    assert not missing
