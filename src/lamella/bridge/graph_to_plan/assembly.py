"""The statements of a selected plan: buffers, regions and tasks that get their names when the text is written.

Every tensor is one whole typed region of a buffer in DDR; a task waits for whoever wrote what it reads, and, where it
writes what others read (states), for those too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lamella.base.dtype import find_in
from lamella.base.quant import PerChannel, PerGroup, PerTensor, Quant, scales_of, zero_points_of
from lamella.base.shape import bytes_for, element_count
from lamella.base.source import Trivia
from lamella.bridge.graph_to_plan.values import BufferRecord, Order, Value, fits, is_spread
from lamella.graph.nodes import Operation
from lamella.lang.nem import nodes
from lamella.lang.nem.nodes import Attribute, Expr, Integer, Items, Name, Negate, Real
from lamella.lang.nem.words import ELEMENTS, RESERVED

ALIGN = 64
"""Bytes to which buffers are aligned: a burst of the widest bus."""
LAYOUTS = {1: "C", 2: "MK", 3: "BMK"}
"""What a row-major region of a rank is called; of any other rank it is ROWS."""
IMAGE: Order = (0, 2, 3, 1)
"""How an image with its channels second lies as NHWC."""

AttributeValue = int | float | bool | str | tuple[int, ...] | tuple[float, ...]


@dataclass(eq=False, slots=True)
class RegionRecord:
    """A typed view of a buffer, in the order in which it lies."""

    buffer: BufferRecord
    offset: int
    """In bytes."""
    extent: int
    elem: str
    shape: tuple[int, ...]
    layout: str
    strides: tuple[int, ...] | None
    quant: Quant | None
    name: str = ""
    is_port: bool = False
    """Whether it is an input, an output or a state of the model."""


@dataclass(eq=False, slots=True)
class TaskRecord:
    """One task, and the operation of the model that it belongs to."""

    opcode: str
    inputs: list[RegionRecord]
    outputs: list[RegionRecord]
    attributes: dict[str, AttributeValue]
    deps: list[TaskRecord] = field(default_factory=list)
    origin: Operation | None = None
    note: str = ""
    token: str = ""


@dataclass(slots=True)
class Assembly:
    """A plan as far as it is made."""

    buffers: list[BufferRecord] = field(default_factory=list)
    regions: dict[object, RegionRecord] = field(default_factory=dict)
    tasks: list[TaskRecord] = field(default_factory=list)
    made: dict[BufferRecord, TaskRecord] = field(default_factory=dict)
    """The task that wrote a buffer last."""
    origin: Operation | None = None
    """The operation whose tasks are being made."""

    def buffer(self, shape: Sequence[int], elem: str, label: str) -> BufferRecord:
        """A new buffer for a tensor."""
        found = BufferRecord(size_of(shape, elem), label)
        self.buffers.append(found)
        return found

    def region(self, value: Value, order: Order, layout: str = "") -> RegionRecord:
        """The region of a value that lies in an order; equal ones are one."""
        if value.buffer is None:
            raise ValueError("a value without a place has no region")
        shape = tuple(value.shape[axis] for axis in order) or (1,)
        gaps = is_spread(value) or not fits(value, order)
        strides = tuple(value.strides[axis] for axis in order) or (1,) if gaps else None
        elements = element_count(shape) if strides is None else 1 + _reach(shape, strides)
        word = layout or ("NHWC" if order == IMAGE and len(shape) == 4 else LAYOUTS.get(len(shape), "ROWS"))
        quant = _turned(value.quant, order)
        offset = size_of([value.offset], value.elem)
        key = (value.buffer, offset, value.elem, shape, strides or word, quant)
        if key not in self.regions:
            extent = size_of([elements], value.elem)
            self.regions[key] = RegionRecord(
                value.buffer, offset, extent, value.elem, shape, word, strides, quant
            )
        return self.regions[key]

    def task(
        self,
        opcode: str,
        inputs: Sequence[RegionRecord],
        outputs: Sequence[RegionRecord],
        attributes: Mapping[str, AttributeValue],
    ) -> TaskRecord:
        """A new task, behind all that are there."""
        found = TaskRecord(opcode, list(inputs), list(outputs), dict(attributes), origin=self.origin)
        self.made |= {item.buffer: found for item in outputs}
        self.tasks.append(found)
        return found

    def mark(self) -> tuple[int, int]:
        """How far the plan is made, for `forget`."""
        return len(self.buffers), len(self.tasks)

    def forget(self, mark: tuple[int, int]) -> None:
        """Take back what was made since a mark."""
        del self.buffers[mark[0] :]
        del self.tasks[mark[1] :]

    def put_into(self, old: BufferRecord, new: BufferRecord) -> bool:
        """Let what is written to one buffer be written to another that keeps its old content until then.

        That is not possible where a task reads that content and writes the new one, or reads it later.
        """
        maker = self.made.get(old)
        writers = [task for task in self.tasks if any(item.buffer is old for item in task.outputs)]
        if maker is None or len(writers) != 1 or old.size != new.size:
            return False
        later = self.tasks[self.tasks.index(maker) :]
        if any(item.buffer is new for task in later for item in (*task.inputs, *task.outputs)):
            return False
        for region in self.regions.values():
            if region.buffer is old:
                region.buffer = new
        return True

    def order_tasks(self) -> None:
        """Let every task wait for whoever wrote what it reads, and for all who used what it writes."""
        writers: dict[BufferRecord, TaskRecord] = {}
        readers: dict[BufferRecord, list[TaskRecord]] = {}
        for task in self.tasks:
            deps: dict[TaskRecord, None] = {}
            for item in (*task.inputs, *task.outputs):
                if item.buffer in writers:
                    deps[writers[item.buffer]] = None
            for item in task.outputs:
                deps |= dict.fromkeys(readers.pop(item.buffer, ()))
                writers[item.buffer] = task
            for item in task.inputs:
                readers.setdefault(item.buffer, []).append(task)
            deps.pop(task, None)
            task.deps = list(deps)


def size_of(shape: Sequence[int], elem: str) -> int:
    """Bytes of a dense tensor."""
    element = find_in("nem", elem)
    return bytes_for(element_count(shape), 8 if element is None else element.bits)


def _reach(shape: Sequence[int], strides: Sequence[int]) -> int:
    return sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _turned(quant: Quant | None, order: Order) -> Quant | None:
    """A descriptor whose axis counts in the order in which the axes lie."""
    if isinstance(quant, PerChannel):
        return PerChannel(order.index(quant.axis % len(order)), quant.scales, quant.zero_points)
    return quant


# --- names ---------------------------------------------------------------------------------------------------


LONGEST_NAME = 60


def identifier(name: str) -> str:
    """A name of the model as an identifier of NEM."""
    found = re.sub(r"[^0-9A-Za-z_]+", "_", name).strip("_")[:LONGEST_NAME] or "t"
    return f"t{found}" if found[0].isdigit() else found


class UniqueNames:
    """Identifiers that nothing else in the plan has."""

    def __init__(self) -> None:
        self.taken = {*RESERVED, *ELEMENTS}

    def take(self, stem: str) -> str:
        """The stem itself, or with the first number that makes it new."""
        found, number = stem, 2
        while found in self.taken:
            found, number = f"{stem}_{number}", number + 1
        self.taken.add(found)
        return found


def port_names(names: Iterable[str]) -> dict[str, str]:
    """What the inputs and outputs of a model are called in its plans, in order; the same for every plan of it."""
    unique = UniqueNames()
    return {name: unique.take(identifier(name)) for name in names}


# --- the document --------------------------------------------------------------------------------------------


def write_document(
    assembly: Assembly, device: nodes.DeviceRef | None, ports: Mapping[str, str]
) -> tuple[nodes.Document, Mapping[BufferRecord, str]]:
    """The statements with their names (buffers, tables of scales, regions, tasks), and the names of the buffers."""
    writing = _Writing(assembly, ports)
    return writing.document(device), writing.buffers


class _Writing:
    def __init__(self, assembly: Assembly, ports: Mapping[str, str]) -> None:
        self.assembly = assembly
        self.names = UniqueNames()
        self.names.taken |= set(ports.values())
        self.ports = ports
        self.buffers: dict[BufferRecord, str] = {}
        self.tables: dict[tuple[object, ...], str] = {}
        self.lists: list[nodes.Statement] = []

    def document(self, device: nodes.DeviceRef | None) -> nodes.Document:
        self.assembly.order_tasks()
        used = {item.buffer for task in self.assembly.tasks for item in (*task.inputs, *task.outputs)}
        kept = [item for item in self.assembly.buffers if item in used or item.port]
        for item in kept:
            stem = self.ports[item.port] if item.port else identifier(item.label)
            self.buffers[item] = self.names.take(f"{stem}_ddr")
        regions = [self._region(item) for item in self._regions()]
        for task in self.assembly.tasks:
            task.token = self.names.take(f"do_{task.outputs[0].name}")
        waited = {item for task in self.assembly.tasks for item in task.deps}
        tasks = [self._task(task, task in waited) for task in self.assembly.tasks]
        statements = (*(self._buffer(item) for item in kept), *self.lists, *regions, *tasks)
        return nodes.Document(device=device, statements=statements)

    def _regions(self) -> Iterator[RegionRecord]:
        """Every region that a task reads or writes, and those of ports; each gets its name."""
        touched = {id(item) for task in self.assembly.tasks for item in (*task.inputs, *task.outputs)}
        for item in self.assembly.regions.values():
            if item.is_port:
                item.name = self.ports[item.buffer.port]
                yield item
            elif id(item) in touched:
                stem = self.ports[item.buffer.port] if item.buffer.port else identifier(item.buffer.label)
                item.name = self.names.take(stem)
                yield item

    def _buffer(self, item: BufferRecord) -> nodes.Buffer:
        size, align = Integer(max(item.size, 1)), Integer(ALIGN)
        return nodes.Buffer(Name(self.buffers[item]), "DDR", None, size, align, item.imported)

    def _region(self, item: RegionRecord) -> nodes.RegionDef:
        kind = nodes.TypeAttributes(
            Name(item.elem),
            tuple(Integer(size) for size in item.shape),
            Name(item.layout) if item.strides is None else None,
            None if item.strides is None else tuple(Integer(size) for size in item.strides),
            None if item.quant is None else self._quant(item.quant, item.name),
        )
        place = Name(self.buffers[item.buffer])
        region = nodes.Region(place, Integer(item.offset), Integer(item.extent), kind)
        return nodes.RegionDef(Name(item.name), region, let=True)

    def _quant(self, quant: Quant, name: str) -> nodes.Quant:
        if isinstance(quant, PerTensor):
            fields = {"scale": _number(quant.scale), "zero_point": _number(quant.zero_point)}
            return nodes.Quant("per_tensor", _attributes(fields))
        axis = {"axis": _number(quant.axis)}
        if isinstance(quant, PerGroup):
            axis["group_size"] = _number(quant.group_size)
        tables: dict[str, nodes.Value] = {
            "scales": self._table(scales_of(quant), f"{name}_scales"),
            "zero_points": self._table(zero_points_of(quant), f"zeros_{len(zero_points_of(quant))}"),
        }
        form = "per_group" if isinstance(quant, PerGroup) else "per_channel"
        return nodes.Quant(form, _attributes({**axis, **tables}))

    def _table(self, numbers: Sequence[float], name: str) -> nodes.Value:
        key = (name.startswith("zeros_"), *numbers)
        if key not in self.tables:
            self.tables[key] = self.names.take(name)
            items = Items(tuple(_number(item) for item in numbers))
            self.lists.append(nodes.Let(Name(self.tables[key]), items))
        return Name(self.tables[key])

    def _task(self, task: TaskRecord, waited: bool) -> nodes.Task:
        attributes = {
            name: nodes.Text(str(value)) if name == "op" else _value(value)
            for name, value in task.attributes.items()
        }
        above = (f"# {task.note}",) if task.note else ()
        return nodes.Task(
            Name(task.token) if waited else None,
            Name(task.opcode),
            "async",
            tuple(nodes.Operand(Name(item.name)) for item in task.inputs),
            tuple(nodes.Operand(Name(item.name)) for item in task.outputs),
            _attributes(attributes),
            tuple(Name(item.token) for item in task.deps),
            # A token that nobody waits for would be one too many; the name stays, for layers and messages.
            decorators=() if waited else (nodes.Decorator("debug", (nodes.Text(task.token),)),),
            notes=Trivia(above=above, blank=bool(above)),
        )


def _attributes(fields: Mapping[str, nodes.Value]) -> tuple[Attribute, ...]:
    return tuple(Attribute(Name(name), value) for name, value in fields.items())


def _number(value: float) -> Expr:
    if isinstance(value, int):
        return Integer(value) if value >= 0 else Negate(Integer(-value))
    return Real(value) if value >= 0 else Negate(Real(-value))


WORDS = ("accum_type", "mode")
"""Attributes whose values are words of the language."""


def _value(value: AttributeValue) -> nodes.Value:
    if isinstance(value, bool):
        return Name("true" if value else "false")
    if isinstance(value, str):
        return Name(value)
    if isinstance(value, tuple):
        return Items(tuple(_number(item) for item in value))
    return _number(value)
