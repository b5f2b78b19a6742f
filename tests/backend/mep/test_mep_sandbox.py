"""What a plan may touch: nothing without a grant, nothing beside the granted folder, nothing beyond its budget."""

from __future__ import annotations

import numpy as np
import pytest

from lamella.backend.mep import CAPABILITIES, Host, PlanBudget, run_plan
from lamella.backend.mep.actions import normalise
from lamella.base.diagnostic import Diagnostic, LamellaError
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from tests.support.backend.mep.fakes import ALL, RecordingHost, WordTokenizer, assembled, give, run

ACTIONS = {
    "prompt": ("SRC_USER_PROMPT(0, 0, 0)", "prompt a.npy", "prompt"),
    "print": ("SRC_CONSTANT(0, 0)\nIO_WRITE(0, 0, 0, 0)", "print stdout", "print"),
    "debug": ("SRC_CONSTANT(0, 0)\nSYS_DEBUG_PRINT(0, 0)", "print stderr", "print"),
    "read": ("RES_LOAD_DATAFILE(0, 2, 0)", "read a.npy", "read=DIR"),
    "read what a slot names": ("SRC_CONSTANT(0, 0)\nRES_LOAD_DYNAMIC(0, 0, 2)", "read a.npy", "read=DIR"),
    "picture": ("SRC_CONSTANT(0, 0)\nRES_LOAD_DYNAMIC(0, 0, 3)", "image a.npy 256 0", "read=DIR"),
    "write": ("SRC_CONSTANT(0, 0)\nIO_WRITE(0, 2, 0, 0)", "write a.npy", "write=DIR"),
    "models": ("RES_LOAD_MODEL(0, 0)", "model a.npy", "models=DIR"),
}
PICTURE = np.arange(256 * 300 * 3).reshape(256, 300, 3).astype(np.uint8)


def finding(
    plan: str, host: Host, grants: frozenset[str] = ALL, budget: PlanBudget | None = None
) -> Diagnostic:
    """The one finding that ends a plan."""
    with pytest.raises(LamellaError) as caught:
        run_plan(assembled(plan), host, grants=grants, budget=budget)
    (found,) = caught.value.findings
    return found


@pytest.mark.parametrize("name", list(ACTIONS))
def test_every_action_needs_its_own_grant(name: str) -> None:
    plan, touch, flag = ACTIONS[name]
    text = f'{plan}\nEXEC_HALT()\n0 = "a.npy"'
    capability = flag.partition("=")[0]
    host = RecordingHost({"a.npy": PICTURE}, ["yes"])
    refused = finding(text, host, ALL - {capability})
    assert refused.code == "NAC245"
    assert refused.hint == f"allow it with --allow {flag}"
    assert not host.touched
    run(text, host, grants=frozenset({capability}))
    assert host.touched == [touch]


def test_answers_that_are_given_ask_nobody() -> None:
    asked = "\n".join(f"SRC_USER_PROMPT({kind}, {kind}, 0)" for kind in range(3))
    plan = f'{asked}\nEXEC_RETURN([0, 1, 2])\n0 = "?"'
    host = RecordingHost(replies=["2.5"])
    assert run(plan, host, answers=("a", " 7 ")).values == ("a", 7, 2.5)
    assert host.touched == ["prompt ?"]
    assert finding(plan, RecordingHost(replies=["a", "seven"])).code == "NAC246"
    assert finding(plan, RecordingHost(replies=["a", "1" * 30])).code == "NAC246"
    assert finding(plan, RecordingHost()).message.endswith("asks a person: nobody answers")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/x",
        "../up.npy",
        "a/../../b",
        "..",
        ".",
        "",
        "a//b",
        "C:\\x",
        "a\\b",
        "a\x1bb",
        "CON",
        "a:b",
        "x" * 2000,
    ],
)
@pytest.mark.parametrize("name", [name for name, (_, _, flag) in ACTIONS.items() if "=DIR" in flag])
def test_paths_lead_down(path: str, name: str) -> None:
    host = RecordingHost({path: PICTURE})
    escaped = path.replace("\\", "\\\\").replace("\x1b", "\\u{1b}")
    found = finding(f'{ACTIONS[name][0]}\nEXEC_HALT()\n0 = "{escaped}"', host)
    assert found.code == "NAC248"
    assert found.message.isprintable()
    assert not host.touched


def test_folders_below_are_allowed() -> None:
    host = RecordingHost({"data/deep/a.npy": np.ones(3)})
    found = give('RES_LOAD_DATAFILE(0, 2, 0)\nEXEC_RETURN([0])\n0 = "data/deep/a.npy"', host)
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [1, 1, 1]
    missing = finding('RES_LOAD_DATAFILE(0, 2, 0)\nEXEC_HALT()\n0 = "b.npy"', host)
    assert missing.message == "RES_LOAD_DATAFILE at byte 0 of the plan reads 'b.npy': there is no such file"
    assert missing.hint == "name a file that is there"


def test_what_hosts_give_is_looked_at() -> None:
    plan = 'RES_LOAD_DATAFILE(0, 2, 0)\nEXEC_HALT()\n0 = "a"'
    assert finding(plan, RecordingHost({"a": np.array(["text"])})).code == "NAC248"
    assert finding(plan, RecordingHost({"a": np.array([None])})).code == "NAC248"


def test_pictures_are_cut_and_scaled() -> None:
    plan = 'SRC_CONSTANT(0, 0)\nRES_LOAD_DYNAMIC(1, 0, 3)\nEXEC_RETURN([1])\n0 = "a.png"'
    host = RecordingHost({"a.png": PICTURE})
    found = give(plan, host)
    assert isinstance(found, np.ndarray)
    assert found.shape == (1, 3, 224, 224)
    assert found.dtype == np.float32
    for channel, mean, deviation in ((0, 0.485, 0.229), (1, 0.456, 0.224), (2, 0.406, 0.225)):
        wanted = (PICTURE[16:240, 38:262, channel] / 255.0 - mean) / deviation
        np.testing.assert_allclose(found[0, channel], wanted, atol=2e-6)
    run(plan, host, version="1.6")
    assert host.touched == ["image a.png 256 0", "image a.png 256 256"]
    assert finding(plan, RecordingHost({"a.png": PICTURE[:100]})).code == "NAC248"
    assert "no package reads pictures" in finding(plan, RecordingHost()).message
    assert normalise(PICTURE).flags.c_contiguous


def test_steps_end_at_the_budget() -> None:
    plan = 'SRC_CONSTANT(0, 0)\nFLOW_LABEL("again")\nFLOW_BRANCH_IF(0, "again")\nEXEC_HALT()\n0 = 1'
    found = finding(plan, RecordingHost(), budget=PlanBudget(steps=50))
    assert found.code == "NAC247"
    assert found.message == "FLOW_BRANCH_IF at byte 4 of the plan would be step 51; 50 are allowed"
    assert found.hint == "raise it with --limit max_steps=N"
    assert run(plan.replace("0 = 1", "0 = 0"), budget=PlanBudget(steps=3)).steps == 3


@pytest.mark.parametrize(
    "plan",
    [
        "SRC_CONSTANT(0, 0)\nTENSOR_CREATE(1, 0, 2, 0)\nEXEC_HALT()\n0 = [100000, 100000]",
        "SRC_CONSTANT(0, 0)\nTENSOR_CREATE(1, 5, 1, 0)\nEXEC_HALT()\n0 = 9223372036854775807",
        "SRC_CONSTANT(0, 0)\nSRC_CONSTANT(1, 1)\nTENSOR_MANIPULATE(1, 2, 0, 1, 1)\nEXEC_HALT()\n0 = [1]\n1 = 1000000",
        "SRC_CONSTANT(1, 0)\nSRC_CONSTANT(2, 1)\nTENSOR_CREATE(0, 0, 1, 1)\nTENSOR_MANIPULATE(2, 3, 0, 2)\n"
        "MATH_BINARY(0, 4, 0, 3)\nEXEC_HALT()\n0 = 2000\n1 = 2",
        "SRC_CONSTANT(0, 0)\nSRC_CONSTANT(1, 1)\nFLOW_LOOP_START(1)\nSTRING_FORMAT(0, 2, [0, 0])\nFLOW_LOOP_END()\n"
        'EXEC_HALT()\n0 = "ab"\n1 = 60\n2 = "{}{}"',
        "SRC_CONSTANT(0, 0)\nSRC_CONSTANT(1, 1)\nSRC_CONSTANT(2, 2)\nTENSOR_CREATE(0, 0, 0, 0)\nFLOW_LOOP_START(1)\n"
        "TENSOR_COMBINE(0, 0, [0, 0], 2)\nFLOW_LOOP_END()\nEXEC_HALT()\n0 = [1, 2]\n1 = 60\n2 = 1",
    ],
)
def test_bytes_end_at_the_budget(plan: str) -> None:
    found = finding(plan, RecordingHost(), budget=PlanBudget(bytes=1 << 20))
    assert found.code == "NAC247"
    assert found.hint == "raise it with --limit max_total_bytes=N"


def test_what_is_printed_ends_at_the_budget() -> None:
    loop = "FLOW_LOOP_START(1)\nIO_WRITE(0, 0, 0, 2)\nFLOW_LOOP_END()"
    plan = f"SRC_CONSTANT(0, 0)\nSRC_CONSTANT(1, 1)\n{loop}\nEXEC_HALT()"
    host = RecordingHost()
    found = finding(f'{plan}\n0 = "word"\n1 = 100000', host, budget=PlanBudget(bytes=1000))
    assert (found.code, len(host.printed["stdout"])) == ("NAC247", 1000)


def test_budgets_are_freed_with_slots() -> None:
    plan = """SRC_CONSTANT(0, 0)
        SRC_CONSTANT(1, 1)
        FLOW_LOOP_START(1)
        TENSOR_CREATE(2, 0, 2, 0)
        RES_UNLOAD(1, 2)
        TENSOR_CREATE(3, 0, 2, 0)
        FLOW_LOOP_END()
        EXEC_HALT()
        0 = [200]
        1 = 20"""
    outcome = run(plan, budget=PlanBudget(bytes=2100))
    assert 1600 <= outcome.peak_bytes <= 2100
    assert outcome.steps == 3 + 20 * 4 + 1


def test_output_goes_where_it_is_sent() -> None:
    plan = """SRC_CONSTANT(0, 0)
        SRC_CONSTANT(1, 1)
        SRC_CONSTANT(2, 2)
        IO_WRITE(0, 0, 0, 0)
        IO_WRITE(1, 0, 0, 2)
        IO_WRITE(1, 1, 0, 1)
        SYS_DEBUG_PRINT(1, 0)
        IO_WRITE(0, 2, 2, 0)
        IO_WRITE(1, 2, 2, 1)
        EXEC_HALT()
        0 = "text"
        1 = [1, 2]
        2 = "out.txt" """
    host = RecordingHost()
    assert run(plan, host).values == ()
    assert host.printed == {"stdout": "text\n[1, 2]", "stderr": "[1, 2]\ntext [1, 2]\n"}
    assert host.written == {"out.txt": b"text[1, 2]"}
    run(plan.replace("IO_WRITE(1, 2, 2, 1)", "IO_WRITE(1, 2, 2, 0)"), host)
    assert host.written == {"out.txt": b"[1, 2]"}


@pytest.mark.parametrize("word", ["MODEL_ZERO_GRAD(0)", "MODEL_SAVE_WEIGHTS(0, 0, 0)",
                                  "MODEL_TRAIN_STEP(0, 0, [1], [1], 2, 1, 0, 0, 0)"])  # fmt: skip
def test_training_needs_to_be_allowed_and_a_host_that_can(word: str) -> None:
    plan = f'RES_LOAD_MODEL(0, 0)\nSRC_CONSTANT(0, 0)\nSRC_CONSTANT(1, 1)\n{word}\nEXEC_HALT()\n0 = "self"\n1 = 0.5'
    found = finding(plan, RecordingHost())
    assert found.code == "NAC248"
    assert "plans do not train here" in found.message
    found = finding(plan, RecordingHost(), grants=ALL - {"train"})
    assert found.code == "NAC245"
    assert "--allow train" in str(found)


def test_weights_are_saved_in_one_form() -> None:
    plan = 'RES_LOAD_MODEL(0, 0)\nSRC_CONSTANT(0, 0)\nMODEL_SAVE_WEIGHTS(0, 0, 7)\nEXEC_HALT()\n0 = "self"'
    assert "form 0 is a file of safetensors" in str(finding(plan, RecordingHost()))


def test_findings_of_models_name_the_instruction() -> None:
    class Broken(RecordingHost):
        def tokenizer(self, path: str, /) -> WordTokenizer:
            raise LamellaError(
                [Diagnostic("NAC238", "error", "input 'ids' has elements of i64; f32 is given")]
            )

    plan = 'RES_LOAD_MODEL(0, 0)\nRES_LOAD_EXTERN(1, 0, 1)\nEXEC_HALT()\n0 = "self"\n1 = 0'
    found = finding(plan, Broken())
    assert found.code == "NAC238"
    assert found.origins == ("RES_LOAD_EXTERN at byte 4 of the plan",)


def test_hosts_and_callers_are_told_what_is_wrong() -> None:
    with pytest.raises(InputError, match="'network' is no capability"):
        run("EXEC_HALT()", grants=frozenset({"network"}))
    with pytest.raises(InputError, match="seed is -1"):
        run("EXEC_HALT()", seed=-1)
    assert set(CAPABILITIES) == {"prompt", "print", "read", "write", "models", "train"}
    assert PlanBudget.of(Limits(max_steps=7, max_total_bytes=9)) == PlanBudget(7, 9)
    assert run("EXEC_HALT()").values == ()
    with pytest.raises(LamellaError, match="NAC174"):
        run("EXEC_RETURN([3])")
