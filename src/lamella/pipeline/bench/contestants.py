"""Contestants of a benchmark: what runs one model, ours on a backend or a peer, each behind the same two steps.

Peers run the program of torch from which our graph was made, or torch's own ONNX of it.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np

from lamella.base.arrays import Array
from lamella.base.errors import InputError
from lamella.base.optional import Foreign, need
from lamella.pipeline.api import make_executable
from lamella.pipeline.languages import Executable
from lamella.pipeline.options import Options
from lamella.pipeline.torch.execution import opened_program

OURS = "lamella"
NO_PROGRAM = "{name} runs what torch exported: a .pt2 file"
PACKAGES = MappingProxyType(
    {"torch": "torch", "inductor": "torch", "onnxruntime": "onnxruntime", "openvino": "openvino"}
)
"""The package behind each peer."""


@dataclass(frozen=True, slots=True)
class Material:
    """The same model in the forms that contestants read, and the inputs of every call."""

    model: Path
    """What we read."""
    program: Path | None = None
    """The program of torch, a .pt2 file."""
    onnx: Path | None = None
    onnx_problem: str = ""
    """Why there is no ONNX of a program."""
    inputs: Mapping[str, Array] = field(default_factory=dict)
    """By name, in the order of the model."""


class Contestant(Protocol):
    """A model that is ready to run: `call` gives what `results` makes arrays of."""

    def call(self) -> object:
        """Run once, on the inputs of the contest."""

    def results(self, found: object) -> list[Array]:
        """What a call gave, as arrays in the order of the model."""


class Ours:
    """The model on one of our backends."""

    def __init__(self, material: Material, backend: str | None, options: Options) -> None:
        self.executable: Executable = make_executable(material.model, backend, options)
        self.inputs = material.inputs

    def call(self) -> object:
        """Run once."""
        return self.executable(**self.inputs)

    def results(self, found: object) -> list[Array]:
        """The outputs, in order."""
        assert isinstance(found, dict)
        return [np.asarray(item) for item in found.values()]


class Torch:
    """The program in eager mode."""

    def __init__(self, material: Material, threads: int, options: Options) -> None:
        self._torch = need("torch")
        self._torch.set_num_threads(threads)
        path = material.program
        if path is None:
            raise InputError(NO_PROGRAM.format(name="torch"))
        self._open = ExitStack()  # and stays so: a call gives results in containers of the program
        program: Foreign = self._open.enter_context(opened_program(path, options.limits))
        self._module: Callable[..., object] = program.module()
        arrays = [self._torch.from_numpy(np.array(item)) for item in material.inputs.values()]
        self._args, self._kwargs = arguments_of(program, arrays)

    def call(self) -> object:
        """Run once."""
        with self._torch.inference_mode():
            return self._module(*self._args, **self._kwargs)

    def results(self, found: object) -> list[Array]:
        """The tensors of what was returned."""
        leaves = need("torch.utils._pytree").tree_leaves(found)
        return [
            item.float().numpy() if item.dtype == self._torch.bfloat16 else item.numpy() for item in leaves
        ]


class Inductor(Torch):
    """The program through torch.compile, its weights frozen."""

    def __init__(self, material: Material, threads: int, options: Options) -> None:
        super().__init__(material, threads, options)
        settings: Foreign = need("torch._inductor.config")
        settings.freezing = True
        with self._torch.inference_mode():
            self._module = self._torch.compile(self._module)


class OnnxRuntime:
    """The ONNX of the program in onnxruntime."""

    def __init__(self, material: Material, threads: int) -> None:
        package = need("onnxruntime")
        settings = package.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
        settings.log_severity_level = 4
        path = _onnx_of(material, "onnxruntime")
        self._session = package.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
        names = [item.name for item in self._session.get_inputs()]
        self._inputs = dict(zip(names, material.inputs.values(), strict=True))

    def call(self) -> object:
        """Run once."""
        found: object = self._session.run(None, self._inputs)
        return found

    def results(self, found: object) -> list[Array]:
        """The outputs, in order."""
        assert isinstance(found, list)
        return [np.asarray(item) for item in found]


class OpenVino:
    """The ONNX of the program in OpenVINO, for the shortest time of one call and in f32."""

    def __init__(self, material: Material, threads: int) -> None:
        package = need("openvino")
        path = _onnx_of(material, "openvino")
        settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
        compiled = package.Core().compile_model(
            str(path), "CPU", {**settings, "INFERENCE_PRECISION_HINT": "f32"}
        )
        self._request = compiled.create_infer_request()
        self._inputs = dict(enumerate(material.inputs.values()))
        self._count = len(compiled.outputs)

    def call(self) -> object:
        """Run once."""
        found: object = self._request.infer(self._inputs, share_inputs=True, share_outputs=True)
        return found

    def results(self, found: object) -> list[Array]:
        """The outputs, in order."""
        assert isinstance(found, Mapping)
        return [np.array(found[place]) for place in range(self._count)]


def load_packages(name: str, material: Material) -> None:
    """Import what a contestant needs before the clock starts."""
    if name in PACKAGES:
        need(PACKAGES[name])
    elif material.model == material.program:
        need("torch")


def enter(name: str, material: Material, threads: int, options: Options) -> Contestant:
    """Make a contestant ready by its name: a peer, or one of our backends."""
    if name == "onnxruntime":
        return OnnxRuntime(material, threads)
    if name == "openvino":
        return OpenVino(material, threads)
    if name in ("torch", "inductor"):
        return (Inductor if name == "inductor" else Torch)(material, threads, options)
    backend, _, precision = name.partition(" ")
    return Ours(material, backend, replace(options, precision=precision or options.precision))


def precise(backend: str, precision: str) -> str:
    """The name of one of our backends in a precision."""
    return f"{backend} {precision}"


def version_of(name: str) -> str:
    """The version of the package behind a contestant, as its metadata says."""
    try:
        return importlib.metadata.version(PACKAGES.get(name, OURS))
    except importlib.metadata.PackageNotFoundError:
        return ""


def arguments_of(program: Foreign, arrays: Sequence[object]) -> tuple[list[object], dict[str, object]]:
    """The arguments of a program's call: its examples, tensors replaced in order."""
    torch, tree = need("torch"), need("torch.utils._pytree")
    leaves, spec = tree.tree_flatten(program.example_inputs)
    following = iter(arrays)
    args, kwargs = tree.tree_unflatten(
        [next(following) if isinstance(item, torch.Tensor) else item for item in leaves], spec
    )
    return list(args), dict(kwargs)


def _onnx_of(material: Material, name: str) -> Path:
    if material.onnx is None:
        raise InputError(material.onnx_problem or NO_PROGRAM.format(name=name))
    return material.onnx
