"""Lamella as a backend of ONNX: the interface of `onnx.backend.base`, by which its own tests run.

Needs the package `onnx` (extra `onnx`), which nothing else here does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lamella.base.arrays import Array, numpy_dtype
from lamella.base.diagnostic import LamellaError, errors
from lamella.base.optional import need
from lamella.bridge.onnx.arrays import ExternalData
from lamella.bridge.onnx.check import check_model
from lamella.bridge.onnx.nodes import Model as OnnxModel
from lamella.bridge.onnx.read import decode_model
from lamella.bridge.onnx_to_graph import graph_for, sizes_for
from lamella.graph.model import Model
from lamella.graph.nodes import Tensor
from lamella.pipeline.api import compile

if TYPE_CHECKING:
    from lamella.pipeline.languages import Executable

REFERENCE = "reference"
"""The backend of ours that runs models where none is asked for."""
MOST_KEPT = 16
"""Graphs of one model that are kept, each for other contents of its inputs."""


class ModelProto(Protocol):
    """A model of the package `onnx`."""

    def SerializeToString(self) -> bytes:
        """Its bytes."""


class NodeProto(Protocol):
    """A node of the package `onnx`."""

    input: Sequence[str]
    output: Sequence[str]


class LamellaBackendRep:
    """A model that is ready to run.

    Inputs that say shapes are constants of a graph, so the graph is made when they are known, and kept for their next
    use.
    """

    def __init__(self, model: OnnxModel, backend: str = REFERENCE) -> None:
        self._model = model
        self._backend = backend
        own = {item.name for item in model.graph.initializers}
        self._inputs = tuple(item.name for item in model.graph.inputs if item.name not in own)
        self._fixed: tuple[str, ...] = ()
        self._ready: dict[tuple[bytes, ...], tuple[Model, Executable]] = {}

    def run(self, inputs: object, **_: object) -> tuple[Array, ...]:
        """The outputs in order, for inputs in order or by name."""
        names = self._inputs
        given = inputs if isinstance(inputs, Mapping) else dict(zip(names, _listed(inputs), strict=False))
        arrays = {name: np.asarray(value) for name, value in given.items()}
        graph, executable = self._prepare(arrays)
        wanted = {item.name for item in graph.graph.inputs if isinstance(item, Tensor)}
        found = executable(**{name: array for name, array in arrays.items() if name in wanted})
        # Narrow types come out as wider ones, which hold the same numbers.
        return tuple(
            np.asarray(found[item.name]).astype(numpy_dtype(item.element))
            for item in graph.graph.outputs
            if isinstance(item, Tensor)
        )

    def _prepare(self, arrays: Mapping[str, Array]) -> tuple[Model, Executable]:
        sizes = sizes_for(self._model, {}, arrays)
        key = self._key(arrays, sizes)
        if key not in self._ready:
            graph = graph_for(self._model, arrays, sizes=sizes)
            self._fixed = tuple(dict.fromkeys((*self._fixed, *graph.fixed)))
            if len(self._ready) >= MOST_KEPT:
                self._ready.clear()
            key = self._key(arrays, sizes)
            self._ready[key] = graph, compile(graph, self._backend)
        return self._ready[key]

    def _key(self, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> tuple[bytes, ...]:
        """What a graph is made for: contents of inputs, and extents that are 0."""
        fixed = (arrays[name] for name in self._fixed if name in arrays)
        contents = (repr((item.shape, item.dtype)).encode() + item.tobytes() for item in fixed)
        return repr(sorted(sizes)).encode(), *contents


def _listed(inputs: object) -> Sequence[object]:
    return inputs if isinstance(inputs, list | tuple) else [inputs]


class Backend:
    """The interface of `onnx.backend.base.Backend`; `backend=` chooses one of ours."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **_: object) -> bool:
        """Whether a model can become a graph, as far as it can be known without its inputs."""
        try:
            cls.prepare(model, device)
        except LamellaError:
            return False
        return True

    @classmethod
    def prepare(
        cls, model: ModelProto, device: str = "CPU", backend: str = REFERENCE, **_: object
    ) -> LamellaBackendRep:
        """A model that is checked and ready to run; LamellaError says what is wrong with it."""
        if not cls.supports_device(device):
            raise ValueError(f"there is no device '{device}' here")
        found = decode_model(model.SerializeToString())
        findings = errors(check_model(found, ExternalData(None)))
        if findings:
            raise LamellaError(findings)
        return LamellaBackendRep(found, backend)

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: object, device: str = "CPU", **options: str
    ) -> tuple[Array, ...]:
        """The outputs of a model."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: object,
        device: str = "CPU",
        outputs_info: object = None,
        **options: str,
    ) -> tuple[Array, ...]:
        """The outputs of one node, as a model of its own."""
        helper = need("onnx.helper")
        arrays = [np.asarray(item) for item in _listed(inputs)]
        names = [name for name in node.input if name]
        ports = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(item.dtype), item.shape)
            for name, item in zip(names, arrays, strict=True)
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        del outputs_info
        graph = helper.make_graph([node], "node", ports, results)
        return cls.run_model(helper.make_model(graph), arrays, device, **options)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run there."""
        return device.partition(":")[0] == "CPU"


prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
is_compatible = Backend.is_compatible
