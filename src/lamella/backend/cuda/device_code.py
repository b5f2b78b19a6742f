"""GPU code of a process: kernels by their numbers, each loaded to the device when it is wanted there."""

from __future__ import annotations

from collections.abc import Mapping

from lamella.backend.cpu.jit import KeptObject, LoadedCode
from lamella.backend.cuda.binaries import BuiltProgram
from lamella.backend.cuda.modules import CudaModule, DeviceKernel
from lamella.base.background import Background


class DeviceCode(LoadedCode):
    """Loaded code: what stands for the address of a kernel is its number."""

    def __init__(self, kernels: Mapping[str, DeviceKernel], kept: KeptObject | None) -> None:
        numbers = {symbol: place for place, symbol in enumerate(kernels, 1)}
        super().__init__(None, numbers, kept)
        self.kernels = {numbers[symbol]: kernel for symbol, kernel in kernels.items()}


def device_code(
    built: BuiltProgram, blocks: Mapping[str, tuple[int, int]], places: Mapping[str, str]
) -> DeviceCode:
    """The kernels of a program whose symbols have a size of work-groups; where texts stand, by names of kernels."""
    modules = {symbol: CudaModule(content) for symbol, content in built.contents.items() if symbol in blocks}
    loading = Background()
    for module in modules.values():
        if module.is_text:  # which takes the driver longer than anything else
            loading.begin(module.load)
    found = {
        item.symbol: DeviceKernel(modules[item.symbol], item, blocks[item.symbol], places.get(item.name, ""))
        for item in built.entries
        if item.symbol in blocks
    }
    return DeviceCode(found, None if built.key is None else KeptObject(built.key, 0))
