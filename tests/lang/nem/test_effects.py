"""Nothing is inert: every decorator, attribute and buffer property changes something, and here is what."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lamella.backend.npu import compile_plan
from lamella.base.source import Source
from lamella.lang.nem.registry import load_registry
from lamella.lang.nem.resolve.regions import TARGETS
from lamella.pipeline.nem.program import Program, check_program, plan_of
from lamella.plan.bind import bind
from lamella.plan.report import chrome_trace
from lamella.plan.stcb import to_json
from lamella.plan.timing import simulate


def program(text: str, device: str | None = None) -> Program:
    return check_program(Source("effect.nem", text), None, device)


def codes(text: str, device: str | None = None) -> list[str]:
    return [item.code for item in program(text, device).findings]


def stream_of(text: str, device: str) -> str:
    stream, findings = bind(plan_of(program(text, device)))
    assert stream is not None, findings
    return to_json(stream)


# --- decorators ---------------------------------------------------------------------------------------------

MOVES = """
buffer A : L2 (size=256)
buffer B : L1 (size=256)
{statements}
"""
CHAIN = """
buffer A : L2 (size=8192)
buffer B : L1 (size=8192)
buffer C : L1 (size=8192)
let X = region(B, 0, 2048) elem=f16, shape=[32, 32], layout=MN
let W = region(B, 2048, 2048) elem=f16, shape=[32, 32], layout=MN
let Y = region(C, 0, 2048) elem=f16, shape=[32, 32], layout=MN {marks}
load = transfer.async(dst=B, src=A)
g = matmul.async in X, W out Y accum_type=f32 deps=[load]
r = relu.async in Y out Y deps=[g]
store.async(dst=region(A, 0, 2048), src=Y, deps=[r])
"""


def effect_of_materialized() -> tuple[object, object]:
    """Without it the middle of the chain never reaches memory."""
    return stream_of(CHAIN.format(marks=""), "npm_lite"), stream_of(
        CHAIN.format(marks="@materialized"), "npm_lite"
    )


def effect_of_readonly() -> tuple[object, object]:
    text = "buffer A : L2 (size=64, import)\nbuffer B : L2 (size=64, import)\n" + (
        "transfer.async(dst=region(B, 0, 32), src=region(B, 32, 32))\n"
        "transfer.async(dst=region(B, 0, 32), src=region(A, 0, 32) {0})\n"
    )
    split = text.replace("dst=region(B, 0, 32), src=region(A", "dst=region(B, 32, 16), src=region(A")
    return codes(split.format("")), codes(split.format("@readonly"))


def effect_of_writeonly() -> tuple[object, object]:
    text = MOVES.format(statements="transfer.sync(dst=B, src=region(A, 0, 256) {0})")
    return codes(text.format("")), codes(text.format("@writeonly"))


def effect_of_deterministic() -> tuple[object, object]:
    """A device without CSTL runs relu on its VPU, unless the bits must be kept."""
    device = """include "nem_baseline_1.0.nem"
device small extends nem_baseline_1_0 {{
    topology {{
        num_engines = 1
        l2_size_bytes = 65536
        per_engine {{ NMU = 1 DMA = 1 VPU = 1 SEQ = 1 l1_size_bytes = 65536 }}
    }}
}}
device small
buffer B : L1 (size=64)
let X = region(B, 0, 64) elem=f16, shape=[32], layout=N
relu.sync in X out X {0}
"""
    return bind_codes(device.format("")), bind_codes(device.format("@deterministic"))


def bind_codes(text: str) -> list[str]:
    return [item.code for item in bind(plan_of(program(text)))[1]]


def effect_of_memmove() -> tuple[object, object]:
    text = MOVES.format(
        statements="transfer.sync(dst=region(B, 0, 64), src=region(B, 32, 64)) {0}\ntransfer.sync(dst=B, src=A)"
    )
    return codes(text.format("")), codes(text.format("@memmove"))


def units(text: str) -> list[str]:
    report = simulate(plan_of(program(text, "npm_mid")))
    return sorted(f"{item.engine}.{item.unit}{item.instance}" for item in report.units if item.busy)


def effect_of_resource() -> tuple[object, object]:
    text = MOVES.format(statements="transfer.sync(dst=B, src=A) {0}")
    return units(text.format("")), units(text.format("@resource(DMA[1])"))


def effect_of_seq_engine() -> tuple[object, object]:
    text = "buffer A : L2 (size=64)\nbuffer B : L2 (size=64)\ntransfer.sync(dst=B, src=A) {0}\n"
    return units(text.format("")), units(text.format("@seq_engine(1)"))


def effect_of_max_in_flight() -> tuple[object, object]:
    text = MOVES.format(
        statements="loop i in [0..3] {0}:\n"
        "    t = transfer.async(dst=region(B, i * 64, 64), src=region(A, i * 64, 64))\n"
        "    store.async(dst=region(A, i * 64, 64), src=region(B, i * 64, 64), deps=[t])\nendloop"
    )
    one, two = (simulate(plan_of(program(text.format(marks)))).cycles for marks in ("", "@max_in_flight(4)"))
    assert two < one
    return one, two


def effect_of_debug() -> tuple[object, object]:
    text = MOVES.format(statements="transfer.sync(dst=B, src=A) {0}")
    return traced(text.format("")), traced(text.format("@debug(weights)"))


def effect_of_profile() -> tuple[object, object]:
    text = MOVES.format(statements="transfer.sync(dst=B, src=A) {0}")
    return traced(text.format("")), traced(text.format("@profile(loads)"))


def traced(text: str) -> tuple[str, str]:
    plan = plan_of(program(text))
    report = simulate(plan)
    return str(report.to_json()), str(chrome_trace(report, plan))


EFFECTS: dict[str, Callable[[], tuple[object, object]]] = {
    name.removeprefix("effect_of_"): value
    for name, value in globals().items()
    if name.startswith("effect_of_")
}


def test_every_decorator_is_shown() -> None:
    assert set(EFFECTS) == set(TARGETS)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_decorator_has_an_effect(name: str) -> None:
    without, with_it = EFFECTS[name]()
    assert without != with_it


@pytest.mark.parametrize(
    ("without", "with_it"),
    [
        (
            "buffer A : L2 (size=100)\nbuffer B : L2 (size=64)",
            "buffer A : L2 (size=100)\nbuffer B : L2 (size=64, align=64)",
        ),
        (
            "buffer A : L2 (size=100)\nbuffer B : L2 (size=64)",
            "buffer A : L2 (size=100, import)\nbuffer B : L2 (size=64)",
        ),
    ],
    ids=["align", "import"],
)
def test_a_buffer_property_has_an_effect(without: str, with_it: str) -> None:
    task = "\ntransfer.sync(dst=B, src=region(A, 0, 64))\n"
    assert stream_of(without + task, "npm_mid") != stream_of(with_it + task, "npm_mid")


# --- attributes ---------------------------------------------------------------------------------------------

#  opcode: inputs (elem, shape), outputs, attributes, and for each attribute another value
CASES: dict[str, tuple[list[str], list[str], dict[str, str], dict[str, str]]] = {}


def case(opcode: str, inputs: str, outputs: str, attributes: dict[str, tuple[str, str]]) -> None:
    first = {name: values[0] for name, values in attributes.items()}
    other = {name: values[1] for name, values in attributes.items()}
    CASES[opcode] = (inputs.split(), outputs.split(), first, other)


for _name in ("gemm", "matmul"):
    case(_name, "f16:4,4 f16:4,4", "f16:4,4", {"accum_type": ("f32", "i32")})


def conv(opcode: str, axes: int, x: str, w: str, y: str, groups: bool) -> None:
    ones, twos = ", ".join(["1"] * axes), ", ".join(["2"] * axes)
    none = ", ".join(["0"] * (2 * axes))
    shifted = ", ".join(["1"] * axes + ["0"] * axes)
    attributes = {
        "pads": (f"[{none}]", f"[{shifted}]"),
        "strides": (f"[{ones}]", f"[{twos}]"),
        "dilations": (f"[{ones}]", f"[{twos}]"),
        "accum_type": ("f32", "i32"),
    }
    if groups:
        attributes["groups"] = ("1", "2")
    case(opcode, f"{x} {w}", y, attributes)


conv("conv1d", 1, "f16:1,5,2", "f16:2,2,2", "f16:1,4,2", True)
conv("conv2d", 2, "f16:1,5,5,2", "f16:2,2,2,2", "f16:1,4,4,2", True)
conv("conv3d", 3, "f16:1,3,3,3,2", "f16:2,2,2,2,2", "f16:1,2,2,2,2", True)
conv("depthwise_conv2d", 2, "f16:1,5,5,2", "f16:2,2,1,2", "f16:1,4,4,2", False)
case("leaky_relu", "f16:8", "f16:8", {"alpha": ("0.1", "0.5")})
case("clamp", "f16:64", "f16:64", {"min_val": ("-0.5", "-0.1"), "max_val": ("0.5", "0.1")})
for _name in ("maxpool", "avgpool"):
    case(
        _name,
        "f16:1,5,5,1",
        "f16:1,4,4,1",
        {
            "kernel_shape": ("[2, 2]", "[3, 3]"),
            "pads": ("[0, 0, 0, 0]", "[1, 1, 0, 0]"),
            "strides": ("[1, 1]", "[2, 2]"),
        },
    )
case("transpose", "f16:4,4", "f16:4,4", {"perm": ("[0, 1]", "[1, 0]")})
case("reshape", "f16:4,4", "f16:2,8", {"target_shape": ("[2, 8]", "[8, 2]")})
case(
    "slice",
    "f16:6,6",
    "f16:3,6",
    {"starts": ("[0]", "[1]"), "ends": ("[3]", "[2]"), "axes": ("[0]", "[1]"), "steps": ("[1]", "[2]")},
)
case("concat", "f16:2,2 f16:2,2", "f16:4,2", {"axis": ("0", "1")})
case("split", "f16:4,4", "f16:2,4 f16:2,4", {"axis": ("0", "1"), "split_sizes": ("[2, 2]", "[1, 3]")})
case(
    "pad",
    "f16:3",
    "f16:5",
    {"pads": ("[1, 1]", "[2, 0]"), "mode": ("constant", "edge"), "constant_value": ("1.0", "2.0")},
)
case("gather", "f16:4,4 i32:2", "f16:2,4", {"axis": ("0", "1")})
for _name in ("reduce_sum", "reduce_max", "reduce_min"):
    case(_name, "f16:3,4", "f16:3,1", {"axes": ("[1]", "[0]"), "keepdims": ("true", "false")})
for _name in ("argmax", "argmin"):
    case(_name, "f16:3,4", "i32:3,1", {"axis": ("1", "0"), "keepdims": ("true", "false")})
case("layernorm", "f16:4,4", "f16:4,4", {"axis": ("1", "0"), "epsilon": ("0.001", "1.0")})
case("rmsnorm", "f16:4,4", "f16:4,4", {"axis": ("1", "0"), "epsilon": ("0.001", "1.0")})
for _name in ("softmax", "log_softmax"):
    case(_name, "f16:4,4", "f16:4,4", {"axis": ("1", "0")})
case("compute", "f16:4", "f16:4", {"op": ('"fft"', '"dct"')})


def text_of(opcode: str, attributes: dict[str, str]) -> str:
    inputs, outputs, _, _ = CASES[opcode]
    lines, names = ["buffer M : L2 (size=8192)"], []
    for number, operand in enumerate([*inputs, *outputs]):
        elem, _, shape = operand.partition(":")
        rank = shape.count(",") + 1
        layout = "HWIO" if rank == 4 and number == 1 and "conv2d" in opcode else "NHWC" if rank == 4 else "N"
        size = int(np.prod([int(item) for item in shape.split(",")])) * (2 if elem == "f16" else 4)
        names.append(f"r{number}")
        lines.append(
            f"let r{number} = region(M, {number * 512}, {size}) elem={elem}, shape=[{shape}], layout={layout}"
        )
    words = " ".join(f"{name}={value}" for name, value in attributes.items())
    ins, outs = ", ".join(names[: len(inputs)]), ", ".join(names[len(inputs) :])
    return "\n".join([*lines, f"{opcode}.sync in {ins} out {outs} {words}", ""])


def outcome(opcode: str, attributes: dict[str, str]) -> str:
    """What a user gets: the findings, and where there are no errors the bytes."""
    found = program(text_of(opcode, attributes))
    told = [str(item) for item in found.findings]
    if found.plan is None or any(item.severity == "error" for item in found.findings):
        return "\n".join(told)
    if opcode == "compute":
        return "\n".join(told)
    outputs = compile_plan(found.plan, seed=3)()
    return "\n".join([*told, *(f"{name} {array.tobytes().hex()}" for name, array in outputs.items())])


def pairs() -> list[tuple[str, str]]:
    return [(spec.name, name) for spec in load_registry().values() for name in spec.attributes]


@pytest.mark.parametrize("opcode", sorted(CASES))
def test_a_case_is_a_right_program(opcode: str) -> None:
    found = program(text_of(opcode, CASES[opcode][2]))
    assert not [item for item in found.findings if item.severity == "error"], "\n".join(
        map(str, found.findings)
    )


@pytest.mark.parametrize(("opcode", "attribute"), pairs())
def test_an_attribute_has_an_effect(opcode: str, attribute: str) -> None:
    _, _, first, other = CASES[opcode]
    assert outcome(opcode, first) != outcome(opcode, {**first, attribute: other[attribute]})
