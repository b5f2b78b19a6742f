"""Measure the virtual machine of NAC: the time of an instruction beside torch and onnxruntime, large operators too."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper

from bench.measuring import row
from lamella.backend.formula.storage import known_shape
from lamella.backend.nacvm import NacMachine, NacProgram, compile_program
from lamella.backend.nacvm.program import Result
from lamella.backend.reference import compile_model
from lamella.base.dtype import F32
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, Operation, Tensor
from lamella.lang.nac.nodes import INPUT, OUTPUT, File, Input, Instruction
from lamella.lang.nac.schedule import plan_memory
from lamella.ops.library import Library

Floats = NDArray[np.float32]
INSTRUCTIONS, SIDE, ROUNDS = 1000, 8, 15
CYCLE = ("add", "mul", "relu", "tanh", "matmul", "sub", "sigmoid", "add", "relu", "mul")
WORDS = {"add": "Add", "mul": "Mul", "sub": "Sub", "relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}


@dataclass
class Code:
    """Instructions for a graph of operations with one result each."""

    instructions: list[Instruction] = field(default_factory=list)
    steps: list[tuple[Operation, ...]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def put(self, item: Instruction, steps: tuple[Operation, ...], result: Result) -> None:
        """One more instruction."""
        if isinstance(result, Tensor):
            self.places[result.name] = len(self.instructions)
        self.instructions.append(item)
        self.steps.append(steps)
        self.results.append(result)

    def offsets(self, arguments: Sequence[object]) -> tuple[int, ...]:
        """Where the arguments of the next instruction come from."""
        here, names = len(self.instructions), [item.name for item in arguments if isinstance(item, Tensor)]
        return tuple(self.places[name] - here for name in names if name in self.places)


def assemble(graph: Graph, library: Library) -> NacProgram:
    """A graph as a program without weights or schedule."""
    code, inputs = Code(), [item for item in graph.inputs if isinstance(item, Tensor)]
    for tensor in inputs:
        code.put(Instruction(INPUT), (), tensor)
    for operation in graph.operations():
        result = operation.outputs[0]
        item = Instruction(201, 1, (), code.offsets(operation.inputs))
        code.put(item, (operation,), result if isinstance(result, Tensor) else None)
    code.put(Instruction(OUTPUT, 0, (), code.offsets(graph.outputs)), (), None)
    named = tuple(Input(place, item.name) for place, item in enumerate(inputs))
    file = File(instructions=tuple(code.instructions), inputs=named)
    steps, results = tuple(code.steps), tuple(code.results)
    return NacProgram(file, steps, results, graph.constants, library, lambda _: np.zeros(0))


def scheduled(program: NacProgram) -> NacProgram:
    """The program with the memory schedule that our writer gives it."""
    return replace(program, file=replace(program.file, schedule=plan_memory(program.file)))


# --- many small instructions --------------------------------------------------------------------------------


def small_program() -> NacProgram:
    """A long row of operations on tiny tensors."""
    library = Library()
    builder = Builder(library, "G")
    x, w = (builder.input(name, F32, (SIDE, SIDE)) for name in ("x", "w"))
    value = x
    for number in range(INSTRUCTIONS):
        name = CYCLE[number % len(CYCLE)]
        second = () if name in ("relu", "tanh", "sigmoid") else (w,)
        value = builder.call(f"aten.{name}", value, *second)
    return assemble(builder.finish(value), library)


def small_torch(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The same operations in eager mode, found before the clock starts."""
    value = x
    for function, two in SMALL_TORCH:
        value = function(value, w) if two else function(value)
    return value


SMALL_TORCH: tuple[tuple[Callable[..., torch.Tensor], bool], ...] = tuple(
    (
        getattr(torch, CYCLE[number % len(CYCLE)]),
        CYCLE[number % len(CYCLE)] not in ("relu", "tanh", "sigmoid"),
    )
    for number in range(INSTRUCTIONS)
)


def small_onnx() -> onnxruntime.InferenceSession:
    """The same operations in onnxruntime, none of them merged."""
    nodes = []
    for number in range(INSTRUCTIONS):
        name = CYCLE[number % len(CYCLE)]
        given = [f"t{number}"] if name in ("relu", "tanh", "sigmoid") else [f"t{number}", "w"]
        nodes.append(helper.make_node(WORDS.get(name, "MatMul"), given, [f"t{number + 1}"]))
    described = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIDE, SIDE])
        for name in ("t0", "w", f"t{INSTRUCTIONS}")
    }
    ends = [described["t0"], described["w"]], [described[f"t{INSTRUCTIONS}"]]
    model = helper.make_model(
        helper.make_graph(nodes, "G", *ends), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def alternate(works: Sequence[Callable[[], object]]) -> list[float]:
    """The fastest round of each, taken in turns: what disturbs the machine disturbs all of them."""
    times = [float("inf")] * len(works)
    gc.collect()
    for _ in range(ROUNDS):
        for place, work in enumerate(works):
            start = time.perf_counter()
            work()
            times[place] = min(times[place], time.perf_counter() - start)
    return times


def measure_instructions() -> None:
    """The time of one instruction among a thousand."""
    draw = np.random.default_rng(0)
    x, w = (draw.uniform(-0.3, 0.3, (SIDE, SIDE)).astype(np.float32) for _ in range(2))
    program, session = small_program(), small_onnx()
    machines = compile_program(program), compile_program(scheduled(program))
    given, fed = {"x": x, "w": w}, {"t0": x, "w": w}
    tensors = torch.from_numpy(x), torch.from_numpy(w)
    with torch.inference_mode():
        judged = small_torch(*tensors).numpy()
        for machine in machines:
            np.testing.assert_allclose(next(iter(machine(**given).values())), judged, rtol=1e-4, atol=1e-5)
        works = [
            *(partial(machine, **given) for machine in machines),
            partial(small_torch, *tensors),
            partial(session.run, None, fed),
        ]
        plain, kept, eager, runtime = alternate(works)
    for what, ours in (("no schedule", plain), ("a schedule", kept)):
        told = f"torch {eager / INSTRUCTIONS * 1e6:.2f} µs: {ours / eager:.2f} of it; "
        told += f"onnxruntime {runtime / INSTRUCTIONS * 1e6:.2f} µs: {ours / runtime:.2f} of it"
        row(f"an instruction of {INSTRUCTIONS:,}, {what}", f"{ours / INSTRUCTIONS * 1e6:.2f} µs", told)


# --- large operators ----------------------------------------------------------------------------------------


def single(operator: str, shapes: Sequence[tuple[int, ...]], **attributes: Any) -> Model:
    """A graph of one operation."""
    library = Library()
    builder = Builder(library, "G")
    given = [builder.input(f"x{place}", F32, shape) for place, shape in enumerate(shapes)]
    return Model(builder.finish(builder.call(f"aten.{operator}", *given, **attributes)), library)


def measure_large() -> None:
    """Large operators beside the reference and torch."""
    draw = np.random.default_rng(0)
    for what, model, peer in large_operators():
        shapes = [known_shape(item.shape, {}) for item in model.graph.inputs if isinstance(item, Tensor)]
        arrays = [draw.standard_normal(shape).astype(np.float32) for shape in shapes]
        given = {f"x{place}": array for place, array in enumerate(arrays)}
        machine: NacMachine = compile_program(assemble(model.graph, model.library))
        tensors = [torch.from_numpy(array) for array in arrays]
        with torch.inference_mode():
            works = [
                partial(machine, **given),
                partial(compile_model(model), **given),
                partial(peer, *tensors),
            ]
            ours, reference, eager = alternate(works)
        told = f"reference {reference * 1e3:.2f} ms: {ours / reference:.2f} of it; "
        row(what, f"{ours * 1e3:.2f} ms", f"{told}torch {eager * 1e3:.2f} ms: {ours / eager:.2f} of it")


def large_operators() -> Sequence[tuple[str, Model, Callable[..., torch.Tensor]]]:
    """What is measured: its words, our graph, torch's function."""
    function = torch.nn.functional
    return (
        ("matmul 256 x 256 x 256", single("matmul", [(256, 256), (256, 256)]), torch.matmul),
        (
            "conv2d 3 x 3, 64 to 64 channels, 32 x 32",
            single("conv2d", [(1, 64, 32, 32), (64, 64, 3, 3), (64,)], padding=(1, 1)),
            partial(function.conv2d, padding=1),
        ),
        ("softmax 64 x 1024", single("softmax", [(64, 1024)], dim=-1), partial(torch.softmax, dim=-1)),
        (
            "layer_norm 64 x 1024",
            single("layer_norm", [(64, 1024), (1024,), (1024,)], normalized_shape=(1024,)),
            lambda x, w, b: function.layer_norm(x, (1024,), w, b),
        ),
        ("gelu 64 x 1024", single("gelu", [(64, 1024)]), function.gelu),
    )


def measure() -> None:
    """All of it, one thread each."""
    torch.set_num_threads(1)
    measure_instructions()
    measure_large()
