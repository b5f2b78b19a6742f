"""Machines that LLVM writes code for: the host as it is, and named ones whose code can be read anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType, ModuleType

from lamella.base.optional import need
from lamella.kernels.target import TARGETS

AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
AVX2 = ("avx2", "fma", "f16c")


@dataclass(frozen=True, slots=True)
class Processor:
    """What LLVM is told about a processor: its triple, its name, and its features as `+a,-b`."""

    triple: str
    cpu: str
    features: str = ""

    def has(self, *names: str) -> bool:
        """Whether all of these features are switched on."""
        listed = self.features.split(",")
        return all(f"+{name}" in listed for name in names)

    @property
    def level(self) -> str:
        """The vector instructions of the machine: avx512, avx2, neon, ptx or plain."""
        if self.triple.startswith("aarch64"):
            return "neon"
        if self.triple.startswith("nvptx"):
            return "ptx"
        return "avx512" if self.has(*AVX512) else "avx2" if self.has(*AVX2) else "plain"


MACHINES = MappingProxyType(
    {
        name: Processor(target.triple, target.cpu, target.features)
        for name, target in TARGETS.items()
        if target.triple
    }
)
"""The machines of the targets that LLVM writes code for; it can be printed on any host."""


def find_machine(name: str | None) -> Processor | None:
    """The machine of a target by its name, the host for None, or None where nobody is called so."""
    return host_machine() if name is None else MACHINES.get(name)


@cache
def llvm() -> ModuleType:
    """LLVM's binding, loaded once and made ready for all its targets."""
    binding = need("llvmlite.binding")
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding


@cache
def host_machine() -> Processor:
    """The machine that this process runs on."""
    binding = need("llvmlite.binding")
    features: dict[str, bool] = dict(binding.get_host_cpu_features())
    # LLVM would otherwise keep to half of a register where it chooses the width itself.
    features["prefer-256-bit"] = False
    listed = ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))
    return Processor(str(binding.get_process_triple()), str(binding.get_host_cpu_name()), listed)
