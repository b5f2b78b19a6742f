"""Whole kernels of the tensor language with a defined meaning: well typed, inside their memory, without races.

Work-items write only what is their own, or add integers; what they read nobody writes before the next barrier. Every
result is the same bits whatever executes the kernel, but for those of `%loose`, which are close.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests.support.backend.interpreter.kernels import FLOATS
from tests.support.strategies.tensor_memory import Ref, Writer, packed, take_view
from tests.support.strategies.tensor_scalars import ELEMENTS
from tests.support.strategies.tensor_together import (
    Matrices,
    make_matrices,
    write_linear,
    write_matrices,
    write_together,
)

SIZES = (
    (1, 1, 1),
    (1, 1, 4),
    (2, 4, 1),
    (4, 4, 1),
    (4, 8, 2),
    (8, 8, 1),
    (16, 16, 1),
    (16, 32, 1),
    (32, 32, 1),
)
"""Subgroup size, and the work-group's."""
COUNTED = ("i32", "i64", "index")


@dataclass(frozen=True, slots=True)
class Array:
    """An argument: its element type, shape, and whether there are gaps between its columns."""

    element: str
    shape: tuple[int, ...]
    gaps: bool


@dataclass(frozen=True, slots=True)
class Kernel:
    """The text of a kernel `@f`, what its arguments are in order, and how many work-groups run."""

    text: str
    arrays: tuple[Array, ...]
    """The last one holds what is only close."""
    members: tuple[Array, ...]
    """The members of the group, which is the argument behind the arrays."""
    scalars: tuple[str, ...]
    """The types of the scalars that come last."""
    groups: int


@dataclass(frozen=True, slots=True)
class Task:
    """What the work-items of a region do: which element is a work-item's own, where it meets others."""

    own: Ref
    place: tuple[str, ...]
    shared: Ref | None = None
    """Memory for what work-items tell each other; None where they cannot meet."""
    counted: Ref | None = None
    """Memory that all add to."""
    matrices: Matrices | None = None


@dataclass(slots=True)
class Program(Writer):
    """A kernel that grows: regions and work-items."""

    items: int = 1
    subgroup: int = 1
    loose: Ref | None = None
    task: Task | None = None

    # --- collective statements

    def collective(self, depth: int) -> None:
        for _ in range(self.number(1, 4)):
            self.collective_statement(depth)

    def collective_statement(self, depth: int) -> None:
        choices: list[Callable[[], None]] = [self.write_alloca, self.write_access, self.write_view]
        choices += [self.write_foreach, self.write_parallel, self.write_parallel]
        choices += [lambda: write_linear(self), lambda: write_linear(self)]
        if depth:
            choices += [lambda: self.write_for(depth), lambda: self.write_if(depth)]
        self.draw(st.sampled_from(choices))()

    def write_alloca(self) -> None:
        shape = tuple(self.number(1, 6) for _ in range(self.number(1, 3)))
        self.refs.append(self.fresh(self.pick(*self.elements), shape))

    def write_view(self) -> None:
        ref = self.draw(st.sampled_from(self.refs))
        if ref.shape:
            self.refs.append(take_view(self, ref))

    def write_access(self) -> None:
        """A load and a store of the whole work-group."""
        ref = self.draw(st.sampled_from(self.refs))
        places = [self.inside(size, True) for size in ref.shape]
        self.keep(self.value(f"load {ref.name}[{','.join(places)}] : {ref.element}"), ref.element, True)
        if self.chance():
            self.put(f"store {self.scalar(ref.element, True)}, {ref.name}[{','.join(places)}]")

    # --- control flow

    def write_for(self, depth: int, diverge: bool = False) -> None:
        """A loop with a carried value; where it may diverge, each work-item has an end of its own."""
        kind, element = self.pick("index", "i32", "i64"), self.pick("bool", *self.elements)
        begin, step = (
            self.constant(str(self.number(-1, 1)), kind),
            self.constant(str(self.number(1, 2)), kind),
        )
        end = self.constant(str(self.number(-1, 4)), kind)
        if diverge:
            begin, end = self.between(kind, -2, 3), self.between(kind, -2, 3)
        uniform = self.task is None or (not diverge and self.chance())
        start, result, carried, variable = self.scalar(element, uniform), *(self.name() for _ in range(3))
        self.put(
            f"{result} = for {variable}:{kind}={begin},{end},{step} init({carried}={start}) -> ({element}) {{"
        )
        with self.region():
            self.keep(carried, element, uniform)
            self.keep(variable, kind, not diverge)
            self.statements(depth - 1, diverge)
            self.put(f"yield ({self.scalar(element, uniform)})")
        self.put("}" + self.pick("", " {unroll=true}", " {unroll=2}", " {unroll=false}"))
        self.keep(result, element, uniform)

    def write_if(self, depth: int, diverge: bool = False) -> None:
        element = self.pick("bool", *self.elements)
        test = self.scalar("bool", not diverge)
        uniform = self.task is None or (not diverge and self.chance())
        result = self.name()
        self.put(f"{result} = if {test} -> ({element}) {{")
        for end in ("} else {", "}"):
            with self.region():
                self.statements(depth - 1, diverge)
                self.put(f"yield ({self.scalar(element, uniform)})")
            self.put(end)
        self.keep(result, element, uniform)

    def statements(self, depth: int, diverged: bool) -> None:
        refs = list(self.refs)
        if self.task is None:
            self.collective(depth)
        else:
            self.work(depth, diverged)
        self.refs = refs

    # --- work-items

    def write_foreach(self) -> None:
        """Each work-item changes elements of its own, and reads what nobody writes."""
        ref = self.draw(st.sampled_from(self.refs))
        kind, variables = self.pick("index", "i32", "i64"), [self.name() for _ in ref.shape]
        begins = ",".join(self.constant(str(self.number(0, 1)), kind) for _ in ref.shape)
        ends = ",".join(self.constant(str(size), kind) for size in ref.shape)
        self.put(f"foreach ({','.join(variables)}):{kind}=({begins}),({ends}) {{")
        with self.region():
            own = [item if kind == "index" else self.value(f"cast {item} : index") for item in variables]
            for item, place in zip(variables, own, strict=True):
                self.keep(item, kind)
                self.keep(place, "index")
            self.run(Task(ref, tuple(own)))
        self.put("}")

    def write_parallel(self) -> None:
        """Work-items that know their number; they meet at barriers and in their subgroup."""
        own = self.fresh(self.pick(*self.elements), (self.items,))
        shared = self.fresh(self.pick(*self.elements), (self.items,))
        matrices = make_matrices(self, self.items // self.subgroup) if self.chance() else None
        self.put("parallel {")
        with self.region():
            lane = self.value("builtin.subgroup_local_id : i32")
            subgroup, size = (
                self.value("builtin.subgroup_id : i32"),
                self.value("builtin.subgroup_size : i32"),
            )
            item = self.value(f"arith.add {self.value(f'arith.mul {subgroup}, {size} : i32')}, {lane} : i32")
            place = self.value(f"cast {item} : index")
            self.keep(item, "i32")
            self.keep(place, "index")
            self.keep(size, "i32", True)
            self.run(Task(own, (place,), shared, matrices=matrices))
        self.put("}")
        self.refs += [own, shared]

    def run(self, task: Task) -> None:
        """The body of a region of work-items: what it writes is read at the own place only."""
        refs, taken = self.refs, {task.own.root}
        counted = [item for item in refs if item.element in COUNTED and item.root not in taken]
        if counted and self.chance():
            task = replace(task, counted=self.draw(st.sampled_from(counted)))
            taken.add(counted[0].root if task.counted is None else task.counted.root)
        self.refs = [item for item in refs if item.root not in taken]
        self.task = task
        self.work(2, task.shared is None)
        self.write_products()
        self.store_own()
        self.task, self.refs = None, refs

    def work(self, depth: int, diverged: bool) -> None:
        for _ in range(self.number(1, 4)):
            self.work_statement(depth, diverged)

    def work_statement(self, depth: int, diverged: bool) -> None:
        choices: list[Callable[[], None]] = [
            lambda: None,
            self.store_own,
            self.load_own,
            self.read,
            self.add_to,
        ]
        if depth:
            choices += [lambda: self.write_for(depth, diverged or self.chance())]
            choices += [lambda: self.write_if(depth, diverged or self.chance())]
        if not diverged:
            together: list[Callable[[], None]] = [self.exchange, lambda: write_together(self, self.subgroup)]
            choices += [*together, *together, self.write_loose, self.write_products]
        self.draw(st.sampled_from(choices))()
        self.compute(self.pick("bool", *self.elements))

    def store_own(self) -> None:
        if self.task is not None:
            own = self.task.own
            self.put(f"store {self.scalar(own.element)}, {own.name}[{','.join(self.task.place)}]")

    def load_own(self) -> None:
        if self.task is not None:
            own = self.task.own
            loaded = self.value(f"load {own.name}[{','.join(self.task.place)}] : {own.element}")
            self.keep(loaded, own.element)

    def read(self) -> None:
        """A load of what nobody writes, each work-item at a place that may be its own."""
        if self.refs:
            ref = self.draw(st.sampled_from(self.refs))
            places = [self.inside(size) for size in ref.shape]
            self.keep(self.part(f"load {ref.name}[{','.join(places)}] : {ref.element}"), ref.element)

    def add_to(self) -> None:
        if self.task is not None and self.task.counted is not None:
            ref = self.task.counted
            places = [self.inside(size) for size in ref.shape]
            self.put(f"store.atomic_add {self.scalar(ref.element)}, {ref.name}[{','.join(places)}]")

    def exchange(self) -> None:
        """Tell the others a number, and take one of theirs."""
        if self.task is not None and self.task.shared is not None:
            ref = self.task.shared
            self.put(f"store {self.scalar(ref.element)}, {ref.name}[{self.task.place[0]}]")
            self.put("barrier.local")
            loaded = self.part(f"load {ref.name}[{self.inside(self.items)}] : {ref.element}")
            self.put("barrier.local")
            self.keep(loaded, ref.element)

    def write_loose(self) -> None:
        if self.task is not None and self.loose is not None:
            leaf = self.leaf(self.loose.element)
            self.put(f"store {leaf}, {self.loose.name}[{self.task.place[0]}]")

    def write_products(self) -> None:
        if self.task is not None and self.task.matrices is not None:
            write_matrices(self, self.task.matrices)


# --- the whole ----------------------------------------------------------------------------------------------


@st.composite
def kernels(draw: st.DrawFn, depth: int = 2) -> Kernel:
    """Kernels of some statements on some arrays, on the members of a group and on scalars."""
    elements = tuple(draw(st.lists(st.sampled_from(ELEMENTS), min_size=1, max_size=3, unique=True)))
    subgroup, rows, columns = draw(st.sampled_from(SIZES))
    program = Program(draw, (*elements, "index"), items=rows * columns, subgroup=subgroup)
    groups = program.number(1, 2)
    group_id = program.keep(program.value("builtin.group_id : index"), "index", True)
    arrays = [_array(program, groups) for _ in range(program.number(1, 3))]
    loose = Array(next((item for item in elements if item in FLOATS), "f32"), (program.items, groups), False)
    parameters = [_take(program, n, array, group_id) for n, array in enumerate(arrays)]
    parameters.append(f"%loose: memref<{loose.element}x{program.items}x{groups}>")
    program.loose = _slice(program, "%loose", loose, packed(loose.shape), group_id)
    members, kind = _members(program, groups, group_id)
    scalars = ("bool", *program.elements)
    parameters += [kind, *(f"%x{n}: {element}" for n, element in enumerate(scalars))]
    for n, element in enumerate(scalars):
        program.keep(f"%x{n}", element, True)
    program.collective(depth)
    sizes = f"attributes{{subgroup_size={subgroup}, work_group_size=[{rows},{columns}]}}"
    text = "\n".join([f"func @f({', '.join(parameters)}) {sizes} {{", *program.lines, "}", ""])
    return Kernel(text, (*arrays, loose), members, scalars, groups)


def _array(program: Program, groups: int) -> Array:
    shape = tuple(program.number(1, 5) for _ in range(program.number(1, 3)))
    return Array(program.pick(*program.elements), (*shape, groups), program.chance())


def _take(program: Program, number: int, array: Array, group_id: str) -> str:
    """A parameter of an array, and the part of it that belongs to the work-group."""
    name = f"%A{number}"
    dynamic, unknown = program.chance(), array.gaps or program.chance()
    strides: tuple[int | None, ...] = tuple(None if n else 1 for n in range(len(array.shape)))
    if not unknown and not dynamic:
        strides = packed(array.shape)
    sizes = tuple(None if dynamic else size for size in array.shape)
    whole = Ref(name, array.element, array.shape, sizes, strides, name)
    program.refs.append(_slice(program, name, array, strides, group_id))
    return f"{name}: {whole.kind}"


def _slice(program: Program, name: str, array: Array, strides: tuple[int | None, ...], group_id: str) -> Ref:
    shape = array.shape[:-1]
    ref = Ref("", array.element, shape, shape, strides[:-1], name)
    slices = ",".join([*(f"0:{size}" for size in shape), group_id])
    return replace(ref, name=program.value(f"subview {name}[{slices}] : {ref.kind}"))


def _members(program: Program, groups: int, group_id: str) -> tuple[tuple[Array, ...], str]:
    """Members of a group, some for each work-group, and the parameter that they are passed as."""
    element, count = program.pick(*program.elements), program.number(1, 2)
    dynamic = program.chance()
    shapes = [(program.number(1, 5), program.number(1, 3)) for _ in range(count if dynamic else 1)]
    shapes *= 1 if dynamic else count
    first = program.value(f"arith.mul {group_id}, {program.index(count)} : index")
    for number, shape in enumerate(shapes):
        sizes = (None, None) if dynamic else shape
        place = program.value(f"arith.add {first}, {program.index(number)} : index")
        ref = Ref("", element, shape, sizes, (1, None) if dynamic else packed(shape), f"%G{number}")
        program.refs.append(replace(ref, name=program.value(f"load %G[{place}] : {ref.kind}")))
    size = "?" if program.chance() else str(count * groups)
    kind = f"%G: group<{program.refs[-1].kind}x{size}>"
    return tuple(Array(element, shape, False) for shape in shapes) * groups, kind
