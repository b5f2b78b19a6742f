"""What runs the launch lists of an executable on a GPU: the memory that they share, and the code that they launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from lamella.backend.cpu.run.pool import ListWalker
from lamella.backend.cpu.run.prepared import PreparedLaunch
from lamella.backend.cpu.run.proving import ProvingSource
from lamella.backend.cuda.cublaslt import usable_version
from lamella.backend.cuda.greedy import GreedyChoice
from lamella.backend.cuda.kernels import CudaKernels
from lamella.backend.cuda.lists import CudaList
from lamella.backend.cuda.memory import DeviceMachine, SharedDeviceMemory
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.kernels.fuse_launches import fuse_launches
from lamella.kernels.launches import LaunchList
from lamella.kernels.native_products import NativeProduct, find_native
from lamella.lang.tensor.nodes import Function, Program


@dataclass(frozen=True, slots=True)
class _JoinedKernels:
    """The kernels of a graph, and the fused ones of several launches."""

    first: CudaKernels
    fused: CudaKernels
    names: frozenset[str]
    """Of the second."""

    @property
    def walker(self) -> ListWalker:
        """Lists do not run on threads of the host."""
        return self.first.walker

    def prepare(self, name: str, arguments: Sequence[object], groups: int) -> PreparedLaunch:
        """A launch for arrays of these layouts."""
        return (self.fused if name in self.names else self.first).prepare(name, arguments, groups)


@dataclass(frozen=True)
class CudaMachine(DeviceMachine):
    """The machine that runs the launch lists of an executable on a GPU."""

    kernels: CudaKernels
    functions: Mapping[str, Function]
    """The kernels by name, as text."""
    compile_more: Callable[[Program], CudaKernels]
    """Compiles fused kernels of several launches."""
    room: SharedDeviceMemory = field(default_factory=SharedDeviceMemory)
    strict: bool = False
    """Whether kernels alone compute, no library."""

    def compile(self, whole: LaunchList, once: bool = False) -> CudaList:
        """Make a list runnable, with fused launches where it runs often."""
        fewer, made = (whole, ()) if once else fuse_launches(whole, self.functions)
        natives = self._natives()
        if fewer is not whole:
            try:
                return CudaList(
                    ProvingSource(self._with(made)), fewer, self.room, GreedyChoice, False, natives
                )
            except (Unsupported, LamellaError):
                pass  # a fused launch cannot be proved: its parts can, or nothing can
        return CudaList(ProvingSource(self.kernels), whole, self.room, GreedyChoice, once, natives)

    def _natives(self) -> dict[str, NativeProduct]:
        """The kernels that the library of the device computes, where it is there and may."""
        if self.strict or not any(map(find_native, self.functions.values())) or not usable_version():
            return {}
        found = {name: find_native(item) for name, item in self.functions.items()}
        return {name: item for name, item in found.items() if item is not None}

    def _with(self, made: Sequence[Function]) -> CudaKernels | _JoinedKernels:
        if not made:
            return self.kernels
        names = frozenset(item.name for item in made)
        fused = self.compile_more(Program(tuple(made)))
        fused.wait()  # where the driver refuses one of them, their parts are launched
        return _JoinedKernels(self.kernels, fused, names)
