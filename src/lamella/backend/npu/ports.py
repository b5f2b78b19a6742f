"""How arrays of the outside enter and leave the memory of a plan, by the name of a buffer or a region.

A buffer travels as bytes, a typed region as an array of its shape: i4 as int8, bf16 as float32. Regions are those
named outside loops whose place is the same in every iteration.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from lamella.backend.npu.access import BufferAccess
from lamella.backend.npu.memory import MemoryImage, byte_type
from lamella.backend.npu.opcodes.call import element_of
from lamella.base import arrays
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError
from lamella.base.errors import InputError
from lamella.base.source import NOWHERE, Span
from lamella.lang.nem.codecs import CODECS
from lamella.lang.nem.resolved import Buffer, Plan, TensorType
from lamella.lang.nem.rules import BAD_INPUT, CODEC_DATA
from lamella.plan.wdm import pack, unpack


class Ports:
    """The names of a plan and the places they stand for."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.buffers = {item.name: item for item in plan.buffers}
        self.regions = {
            name: BufferAccess(region.buffer.name, region.offset.constant, region.type)
            for name, region in plan.regions.items()
            if region.offset.is_constant and region.type is not None
        }
        """The typed ones."""

    def find(self, name: str) -> BufferAccess:
        """The place that a name stands for; an untyped region is a place of bytes."""
        if name in self.regions:
            return self.regions[name]
        if name in self.buffers:
            return BufferAccess(name, 0, byte_type(self.buffers[name].size))
        region = self._plan.regions.get(name)
        if region is None:
            known = ", ".join([*self.buffers, *self._plan.regions][:20])
            raise self._refuse(name, f"is neither a buffer nor a region of the program; there are {known}")
        if not region.offset.is_constant:
            raise self._refuse(name, "has another place in every iteration; give its buffer instead")
        return BufferAccess(region.buffer.name, region.offset.constant, byte_type(region.extent))

    def read(self, memory: MemoryImage, name: str) -> Array:
        """The bytes of a buffer or the tensor of a region, as outsiders read it."""
        access = self.find(name)
        return arrays.to_exchange(memory.read(access.buffer, access.offset, access.type))

    def write(self, memory: MemoryImage, values: Mapping[str, npt.ArrayLike]) -> None:
        """Store arrays by name, in order; what does not fit is an error."""
        for name, value in values.items():
            access = self.find(name)
            array = self._fit(name, np.asarray(value), access.type)
            memory.write(access.buffer, access.offset, access.type, array)

    def stored(self) -> list[Buffer]:
        """The buffers that are stored by a codec; on a device without WDM there are none."""
        device = self._plan.device
        if device is not None and device.units("WDM") == 0:
            return []
        return [buffer for buffer in self.buffers.values() if buffer.codec]

    def verify_stored(self, memory: MemoryImage) -> None:
        """What is stored by a codec can be stored so, in as many bytes as the program says."""
        for buffer in self.stored():
            try:
                found = pack(memory.read(buffer.name, 0, byte_type(buffer.size)), CODECS[buffer.codec]).size
            except InputError as problem:
                raise self._bad_data(buffer.name, problem.message) from None
            if found > buffer.stored:
                problem_text = f"it takes {found} bytes, and the program says {buffer.stored}"
                raise self._bad_data(buffer.name, problem_text)

    def _bad_data(self, name: str, problem: str) -> LamellaError:
        codec = self.buffers[name].codec
        return LamellaError([CODEC_DATA.at(self._span(name), name=name, codec=codec, problem=problem)])

    def _fit(self, name: str, array: Array, type: TensorType) -> Array:
        """The array in the type of its place."""
        if arrays.element_type_of(array.dtype) is None:
            raise self._refuse(name, f"has NumPy type {array.dtype}, which is no element type")
        if name not in self.regions:
            return self._as_bytes(name, array, type.shape[0])
        if array.shape != type.shape:
            raise self._refuse(name, f"has shape {list(array.shape)}; the region is {type}")
        try:
            return _convert(array, type)
        except InputError as problem:
            raise self._refuse(name, f"does not fit {type}: {problem.message}") from None

    def _as_bytes(self, name: str, array: Array, size: int) -> Array:
        data = arrays.to_memory(array)
        buffer = self.buffers.get(name)
        if buffer is not None and buffer.codec and data.size != size:
            try:
                return unpack(data, CODECS[buffer.codec], size)
            except InputError as problem:
                raise self._bad_data(name, problem.message) from None
        if data.size != size:
            raise self._refuse(name, f"has {data.size} bytes; {size} are expected")
        return data

    def _refuse(self, name: str, problem: str) -> LamellaError:
        return LamellaError([BAD_INPUT.at(self._span(name), name=name, problem=problem)])

    def _span(self, name: str) -> Span:
        if name in self._plan.regions:
            return self._plan.regions[name].span
        return self.buffers[name].span if name in self.buffers else NOWHERE


def _convert(array: Array, type: TensorType) -> Array:
    """Exchange types convert as they do everywhere; any other type must keep every value."""
    element = element_of(type)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype == arrays.exchange_dtype(element):
        return arrays.from_exchange(array, element)
    found = arrays.cast(array, element)
    back = arrays.cast(found, arrays.element_type_of(array.dtype) or element)
    same = (back == array) | ((back != back) & (array != array))
    if not same.all():
        raise InputError(f"a value of {array.dtype} has no equal in {element}")
    return found
