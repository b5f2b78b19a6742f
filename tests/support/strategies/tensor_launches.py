"""Random kernels whose accesses may leave their memory, and random launches of them.

Results do not depend on the order of work-items: arrays are only read, or get one number everywhere, or sums of
integers, or are written by collective instructions and matrices of one subgroup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

INTEGERS = ("i8", "i16", "i32", "i64")
ELEMENTS = ("f32", "f64", "f16", "c32", *INTEGERS)
HUGE = (2**63 - 1, -(2**63), 2**62, 2**31 - 1, -(2**31), 2**40)
LIMITS = {"i8": 127, "i16": 2**15 - 1, "i32": 2**31 - 1, "i64": 2**63 - 1, "index": 2**63 - 1}


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """A memref parameter: its sizes (None where the launch says them), whether its strides are open, its use."""

    name: str
    element: str
    shape: tuple[int | None, ...]
    strided: bool
    use: str
    """read, mark (one number is stored), sum (integers are added), whole (collective instructions write)."""
    group: bool = False

    @property
    def spelled(self) -> str:
        """Its type."""
        memref = spell(self.element, self.shape, self.strided)
        return f"group<{memref}x?>" if self.group else memref


def spell(element: str, shape: Sequence[int | None], strided: bool, local: bool = False) -> str:
    """The type of a memref; a strided one takes any strides."""
    sizes = "".join(f"x{'?' if size is None else size}" for size in shape)
    layout = f",strided<{','.join('?' * len(shape))}>" if strided and shape else ""
    return f"memref<{element}{sizes}{layout}{',local' if local else ''}>"


@dataclass(frozen=True, slots=True)
class RandomKernel:
    """A kernel: its text, its arrays and its integers."""

    text: str
    arrays: tuple[ArrayOf, ...]
    integers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """An array of a launch: its sizes and its strides in elements, and at which end of its pages it lies."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    at_end: bool


@dataclass(frozen=True, slots=True)
class RandomLaunch:
    """How a kernel is called: layouts (a list of them for a group), integers, work-groups, a seed for the data."""

    layouts: tuple[tuple[Layout, ...], ...]
    integers: tuple[int, ...]
    groups: int
    seed: int


# --- launches -----------------------------------------------------------------------------------------------


def draw_launch(random: Random, kernel: RandomKernel) -> RandomLaunch:
    """A launch of a kernel, of sizes like those that it was written for."""
    sizes = [random.choice((4, 8, 12, 16, random.randint(1, 20))) for _ in range(2)]
    layouts = tuple(
        tuple(_draw_layout(random, item, sizes) for _ in range(random.randint(1, 4) if item.group else 1))
        for item in kernel.arrays
    )
    return RandomLaunch(
        layouts,
        tuple(_draw_integer(random, kind) for kind in kernel.integers),
        random.choice((1, 1, 2, 3, 4, 5)),
        random.getrandbits(32),
    )


def _draw_layout(random: Random, item: ArrayOf, sizes: Sequence[int]) -> Layout:
    shape = tuple(
        (random.choice(sizes) if random.random() < 0.9 else random.randint(0, 20)) if size is None else size
        for size in item.shape
    )
    if len(shape) == 3:
        shape = tuple(min(size, 8) for size in shape)
    strides, step = [], 1
    for mode, size in enumerate(shape):
        free = item.strided or (mode > 0 and None in item.shape[:mode])
        if free and random.random() < 0.4:
            step += random.randint(1, 3)
        strides.append(step)
        step *= max(1, size)
    if item.strided and item.use == "read" and random.random() < 0.1:
        strides[random.randrange(len(strides))] = 0
    return Layout(shape, tuple(strides), random.random() < 0.7)


def _draw_integer(random: Random, kind: str) -> int:
    if random.random() < 0.06:
        return max(-LIMITS[kind] - 1, min(LIMITS[kind], random.choice(HUGE)))
    return random.choice((0, 1, 2, 3, 4, random.randint(-3, 20)))


# --- kernels ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Memory:
    """A memref in scope."""

    name: str
    element: str
    shape: tuple[int | None, ...]
    use: str
    local: bool = False

    def view(self, name: str, shape: Sequence[int | None]) -> Memory:
        """A view of it."""
        return Memory(name, self.element, tuple(shape), self.use, self.local)

    def spelled(self, shape: Sequence[int | None]) -> str:
        """The type of a view."""
        return spell(self.element, shape, True, self.local)


@dataclass(slots=True)
class Scope:
    """What can be used at a place."""

    integers: list[str]
    memories: list[Memory]
    spmd: bool = False
    depth: int = 0
    parallel: bool = False
    """Whether the subgroup runs together, so that it may hold matrices."""

    def inner(self, **changes: object) -> Scope:
        """A region inside."""
        made = replace(self, integers=list(self.integers), memories=list(self.memories), depth=self.depth + 1)
        for key, value in changes.items():
            setattr(made, key, value)
        return made


@dataclass(slots=True)
class Writer:
    """Writes one kernel."""

    random: Random
    lines: list[str] = field(default_factory=list)
    count: int = 0
    left: int = 14
    """Statements that may still be written."""

    def name(self) -> str:
        """A new value."""
        self.count += 1
        return f"%v{self.count}"

    def put(self, text: str) -> str:
        """Write a statement with a result."""
        name = self.name()
        self.lines.append(f"{name} = {text}")
        return name

    def constant(self, number: int, kind: str = "index") -> str:
        """An integer."""
        return self.put(f"constant {number} : {kind}")

    # --- integers -------------------------------------------------------------------------------------------

    def integer(self, scope: Scope, depth: int = 0) -> str:
        """An integer of type index: something in scope, or computed from it."""
        random, draw = self.random, self.random.random()
        if depth > 2 or draw < 0.45:
            return random.choice(scope.integers)
        if draw < 0.55:
            return self.constant(random.choice((0, 1, 2, 3, 4, 8, random.randint(-4, 24))))
        left = self.integer(scope, depth + 1)
        match random.randrange(12):
            case 0 | 1 | 2:
                return self.put(f"arith.add {left}, {self.integer(scope, depth + 1)} : index")
            case 3:
                return self.put(f"arith.sub {left}, {self.integer(scope, depth + 1)} : index")
            case 4 | 5:
                factor = self.constant(random.choice((2, 3, 4, 8, 16, -1, -2)))
                return self.put(f"arith.mul {left}, {factor} : index")
            case 6:
                return self.put(f"arith.mul {left}, {self.integer(scope, depth + 1)} : index")
            case 7 | 8:
                divisor = self.constant(random.choice((2, 3, 4, 5, 8)))
                return self.put(f"arith.{random.choice(('div', 'rem', 'rem'))} {left}, {divisor} : index")
            case 9:
                word = random.choice(("min", "max"))
                return self.put(f"arith.{word} {left}, {self.integer(scope, depth + 1)} : index")
            case 10:
                return self._bits(left)
            case _:
                return self._chosen(scope, left, depth)

    def _bits(self, left: str) -> str:
        match self.random.randrange(5):
            case 0:
                return self.put(f"arith.and {left}, {self.constant(self.random.choice((3, 7, 5)))} : index")
            case 1:
                word = self.random.choice(("shl", "shr"))
                return self.put(f"arith.{word} {left}, {self.constant(self.random.randint(0, 3))} : index")
            case 2:
                return self.put(f"arith.{self.random.choice(('neg', 'abs', 'not'))} {left} : index")
            case _:
                kind = self.random.choice(INTEGERS)
                narrow = self.put(f"cast {left} : {kind}")
                if self.random.random() < 0.5:
                    narrow = self.put(f"arith.add {narrow}, {self.constant(3, kind)} : {kind}")
                return self.put(f"cast {narrow} : index")

    def _chosen(self, scope: Scope, left: str, depth: int) -> str:
        right = self.integer(scope, depth + 1)
        word = self.random.choice(("lt", "ge", "eq"))
        condition = self.put(f"cmp.{word} {left}, {self.random.choice(scope.integers)} : bool")
        return self.put(f"arith.select {condition}, {left}, {right} : index")

    def position(self, scope: Scope, memory: Memory, mode: int) -> str:
        """A position that often lies inside."""
        draw = self.random.random()
        if draw < 0.35:
            return self.random.choice(scope.integers)
        if draw < 0.65:
            return self.integer(scope, 1)
        size = self.put(f"size {memory.name}[{mode}] : index")
        found = self.integer(scope, 1)
        if draw < 0.8:
            return self.put(f"arith.rem {found}, {self.constant(self.random.choice((4, 8)))} : index")
        one = self.constant(1)
        last = self.put(f"arith.sub {size}, {one} : index")
        low = self.put(f"arith.min {found}, {last} : index")
        return self.put(f"arith.max {low}, {self.constant(0)} : index")

    def small(self, scope: Scope) -> str:
        """An end of a loop: never far, so that every loop ends soon."""
        draw = self.random.random()
        if draw < 0.5:
            return self.constant(self.random.choice((1, 2, 4, 5, 8)))
        found = self.random.choice(scope.integers) if draw < 0.8 else self.integer(scope, 1)
        low = self.put(f"arith.min {found}, {self.constant(12)} : index")
        return self.put(f"arith.max {low}, {self.constant(-2)} : index")

    # --- statements -----------------------------------------------------------------------------------------

    def region(self, scope: Scope, statements: int) -> None:
        """Statements of a region."""
        for _ in range(statements):
            if self.left > 0:
                self.left -= 1
                self.statement(scope)

    def statement(self, scope: Scope) -> None:
        """One statement of any kind that may stand here."""
        choices = [self._access] * 5 + [self._subview] * 2 + [self._expand, self._fuse, self._member]
        if scope.depth < 3:
            choices += [self._for, self._if]
            choices += [] if scope.spmd else [self._foreach] * 3 + [self._parallel] * 2 + [self._tiles]
        if not scope.spmd:
            choices += [self._collective] * 2
        if scope.parallel:
            choices += [self._matrix] * 3 + [self._together, self._packed]
        self.random.choice(choices)(scope)

    def _access(self, scope: Scope) -> None:
        found = [item for item in scope.memories if item.use not in ("group", "packed")]
        if not found:
            return
        memory = self.random.choice(found)
        places = ",".join(self.position(scope, memory, mode) for mode in range(len(memory.shape)))
        if memory.use == "read":
            value = self.put(f"load {memory.name}[{places}] : {memory.element}")
            if memory.element in INTEGERS:
                scope.integers.append(self.put(f"cast {value} : index"))
        elif memory.use == "sum":
            one = self.constant(3, memory.element)
            if scope.spmd and self.random.random() < 0.5:
                self.put(f"atomic_add {one}, {memory.name}[{places}] : {memory.element}")
            else:
                self.lines.append(f"store.atomic_add {one}, {memory.name}[{places}]")
        else:
            number = "[7.0,0.5]" if memory.element[0] == "c" else "7" if memory.element in INTEGERS else "7.0"
            value = self.put(f"constant {number} : {memory.element}")
            flag = self.random.choice(("", "", ".atomic")) if memory.element not in ("i8", "i16") else ""
            self.lines.append(f"store{flag} {value}, {memory.name}[{places}]")

    def _subview(self, scope: Scope) -> None:
        found = [item for item in scope.memories if item.use != "group" and item.shape]
        if not found:
            return
        memory, slices, shape = self.random.choice(found), [], list[int | None]()
        for mode in range(len(memory.shape)):
            inside = self.random.random() < 0.3
            offset = (
                self.constant(self.random.randint(0, 3)) if inside else self.position(scope, memory, mode)
            )
            draw = self.random.random()
            if draw < 0.15 and len(memory.shape) > 1:
                slices.append(offset)
            elif draw < 0.6:
                size = self.random.choice((1, 2, 3, 4, 8))
                slices.append(f"{offset}:{size}")
                shape.append(size)
            else:
                slices.append(f"{offset}:{self.integer(scope, 1)}")
                shape.append(None)
        kind = memory.spelled(shape)
        name = self.put(f"subview {memory.name}[{','.join(slices)}] : {kind}")
        scope.memories.append(memory.view(name, shape))

    def _expand(self, scope: Scope) -> None:
        found = [
            item for item in scope.memories if item.use != "group" and item.shape and len(item.shape) < 3
        ]
        if not found:
            return
        memory = self.random.choice(found)
        mode = self.random.randrange(len(memory.shape))
        size, first = memory.shape[mode], self.random.choice((1, 2, 3, 4))
        factor = self.constant(first)
        whole = self.put(f"size {memory.name}[{mode}] : index")
        rest = self.put(f"arith.div {whole}, {factor} : index")
        if self.random.random() < 0.3:
            rest = self.integer(scope, 1)
        sizes, new = f"{first} x {rest}", [first, None]
        if size is not None and size % first == 0 and self.random.random() < 0.5:
            sizes, new = f"{first} x {size // first}", [first, size // first]
        shape = [*memory.shape[:mode], *new, *memory.shape[mode + 1 :]]
        name = self.put(f"expand {memory.name}[{mode} -> {sizes}] : {memory.spelled(shape)}")
        scope.memories.append(memory.view(name, shape))

    def _fuse(self, scope: Scope) -> None:
        found = [item for item in scope.memories if item.use != "group" and len(item.shape) > 1]
        if not found:
            return
        memory = self.random.choice(found)
        first = self.random.randrange(len(memory.shape) - 1)
        one, other = memory.shape[first : first + 2]
        size = None if one is None or other is None else one * other
        shape = [*memory.shape[:first], size, *memory.shape[first + 2 :]]
        kind = memory.spelled(shape)
        name = self.put(f"fuse {memory.name}[{first},{first + 1}] : {kind}")
        scope.memories.append(memory.view(name, shape))

    def _member(self, scope: Scope) -> None:
        found = [item for item in scope.memories if item.use == "group"]
        if found:
            group = self.random.choice(found)
            draw = self.random.random()
            index = self.random.choice(scope.integers) if draw < 0.5 else self.integer(scope, 1)
            name = self.put(f"load {group.name}[{index}] : {spell(group.element, group.shape, False)}")
            scope.memories.append(Memory(name, group.element, group.shape, "mark"))

    def _for(self, scope: Scope) -> None:
        begin, end = self.constant(self.random.choice((0, 0, 0, 1, -1))), self.small(scope)
        step = f",{self.constant(self.random.choice((1, 2, 3, 5)))}" if self.random.random() < 0.4 else ""
        variable, head = self.name(), f"{begin},{end}{step}"
        inner = scope.inner(parallel=False)
        inner.integers += [variable, variable]
        if self.random.random() < 0.7:
            self.lines.append(f"for {variable}:index={head} {{")
            self.region(inner, self.random.randint(1, 3))
            self.lines.append("}")
            return
        result, carried = self.name(), self.name()
        start = self.integer(scope, 1)
        self.lines.append(f"{result} = for {variable}:index={head} init({carried}={start}) -> (index) {{")
        inner.integers += [carried, carried]
        self.region(inner, self.random.randint(1, 3))
        self.lines += [f"yield ({self.integer(inner, 1)})", "}"]
        scope.integers.append(result)

    def _if(self, scope: Scope) -> None:
        left, right = self.integer(scope, 1), self.integer(scope, 2)
        used = left
        if self.random.random() < 0.3:
            used = self.random.choice(scope.integers)
            left = self.put(f"arith.add {used}, {self.constant(self.random.choice((1, 3, 8)))} : index")
        if self.random.random() < 0.5 and scope.memories:
            memory = self.random.choice(scope.memories)
            if memory.shape:
                mode = self.random.randrange(len(memory.shape) if memory.use != "group" else 1)
                right = self.put(f"size {memory.name}[{mode}] : index")
        word = self.random.choice(("lt", "lt", "le", "ge", "gt", "eq", "ne"))
        condition = self.put(f"cmp.{word} {left}, {right} : bool")
        if self.random.random() < 0.4:
            other = self.put(f"cmp.ge {used}, {self.constant(0)} : bool")
            condition = self.put(f"arith.and {condition}, {other} : bool")
        self.lines.append(f"if {condition} {{")
        inner = scope.inner(parallel=False)
        inner.integers += [used] * 4
        self.region(inner, self.random.randint(1, 2))
        if self.random.random() < 0.3:
            self.lines.append("} else {")
            self.region(scope.inner(parallel=False), 1)
        self.lines.append("}")
        scope.integers += [used] * 2

    def _foreach(self, scope: Scope) -> None:
        ends = [self.small(scope) for _ in range(self.random.choice((1, 1, 2)))]
        kind = "index"
        begins = [self.constant(self.random.choice((0, 0, 0, 1, -1)))] * len(ends)
        if self.random.random() < 0.15:
            kind = self.random.choice(("i8", "i16", "i32"))
            ends = [self.put(f"cast {end} : {kind}") for end in ends]
            begins = [self.put(f"cast {begin} : {kind}") for begin in begins]
        variables = [self.name() for _ in ends]
        self.lines.append(
            f"foreach ({','.join(variables)}):{kind}=({','.join(begins)}),({','.join(ends)}) {{"
        )
        inner = scope.inner(spmd=True)
        found = variables if kind == "index" else [self.put(f"cast {item} : index") for item in variables]
        inner.integers += found * 3
        self.region(inner, self.random.randint(1, 3))
        self.lines.append("}")

    def _tiles(self, scope: Scope) -> None:
        ends = [self.small(scope) for _ in range(self.random.choice((1, 2)))]
        begins = [self.constant(self.random.choice((0, 0, 1, -1)))] * len(ends)
        variables, taken = [self.name() for _ in ends], [self.name() for _ in ends]
        most = [str(self.random.choice((1, 2, 3, 4, 8))) for _ in ends]
        self.lines.append(
            f"foreach_tile ({','.join(variables)})=({','.join(begins)}),({','.join(ends)})"
            f" as ({','.join(taken)})<=({','.join(most)}) {{"
        )
        inner = scope.inner(spmd=True, parallel=True)
        inner.integers = [*variables, *taken, *inner.integers]
        self.region(inner, self.random.randint(1, 3))
        self.lines.append("}")

    def _parallel(self, scope: Scope) -> None:
        self.lines.append("parallel {")
        inner = scope.inner(spmd=True, parallel=True)
        for word in ("subgroup_id", "subgroup_local_id"):
            item = self.put(f"builtin.{word} : i32")
            inner.integers += [self.put(f"cast {item} : index")] * 2
        self.region(inner, self.random.randint(1, 3))
        self.lines.append("}")

    def _collective(self, scope: Scope) -> None:
        """A collective instruction on vectors or matrices of f32, of which the last is written."""
        vectors, matrices = (
            [item for item in scope.memories if item.element == "f32" and len(item.shape) == order]
            for order in (1, 2)
        )
        kind = self.random.choice(("axpby", "hadamard", "gemm", "gemv", "sum", "cumsum"))
        orders = {
            "axpby": (1, 1),
            "hadamard": (1, 1, 1),
            "gemm": (2, 2, 2),
            "gemv": (2, 1, 1),
            "sum": (2, 1),
            "cumsum": (1, 1),
        }[kind]
        chosen = []
        for place, order in enumerate(orders):
            use = "whole" if place == len(orders) - 1 else "read"
            found = [item for item in (vectors if order == 1 else matrices) if item.use == use]
            if not found:
                return
            chosen.append(self.random.choice(found).name)
        one = self.put("constant 1.0 : f32")
        beta = self.put(f"constant {self.random.choice(('0.0', '1.0'))} : f32")
        flags = {"axpby": ".n", "gemm": f".{self.letter()}.{self.letter()}", "gemv": f".{self.letter()}"}
        flags |= {"sum": f".{self.letter()}"}
        mode = ", 0" if kind == "cumsum" else ""
        names = ", ".join(chosen[:-1])
        self.lines.append(f"{kind}{flags.get(kind, '')} {one}, {names}{mode}, {beta}, {chosen[-1]}")

    def letter(self) -> str:
        """Whether an operand is transposed."""
        return self.random.choice("nt")

    def _together(self, scope: Scope) -> None:
        """An integer that a subgroup computes together."""
        word = self.random.choice(("add", "max", "min"))
        form = self.random.choice(("reduce", "inclusive_scan", "exclusive_scan"))
        form = "inclusive_scan" if word != "add" and form == "exclusive_scan" else form
        found = self.put(f"subgroup_{word}.{form} {self.random.choice(scope.integers)} : index")
        scope.integers.append(found)

    def _packed(self, scope: Scope) -> None:
        """A packed block, of which nothing is stored."""
        found = [item for item in scope.memories if len(item.shape) == 3 and item.use == "packed"]
        if found:
            memory, places = self.random.choice(found), self.random.choices(scope.integers[:3], k=2)
            pack = self.constant(memory.shape[0] or 1)
            places[1] = self.put(f"arith.mul {places[1]}, {pack} : index")
            rows, columns = (
                self.random.choice((1, 2, 4, 5)),
                (memory.shape[0] or 1) * self.random.choice((1, 2)),
            )
            check = self.random.choice(("", "", ".rows_checked", ".cols_checked", ".both_checked"))
            kind = f"coopmatrix<{memory.element}x{rows}x{columns},matrix_a>"
            self.put(f"cooperative_matrix_load.n{check} {memory.name}[{','.join(places)}] : {kind}")

    def _matrix(self, scope: Scope) -> None:
        """A block from one matrix to another; its place is the same for the whole subgroup."""
        sources = [
            item
            for item in scope.memories
            if (item.element, item.use) == ("f32", "read") and len(item.shape) == 2
        ]
        targets = [
            item
            for item in scope.memories
            if (item.element, item.use) == ("f32", "whole") and len(item.shape) == 2
        ]
        if not sources:
            return
        even = scope.integers[:3]
        places = [
            self.random.choice(even) if self.random.random() < 0.6 else self.constant(0) for _ in range(4)
        ]
        rows, columns = self.random.choice((1, 2, 4, 5)), self.random.choice((1, 2, 3, 4))
        check = self.random.choice(("", "", "", ".rows_checked", ".cols_checked", ".both_checked"))
        kind = f"coopmatrix<f32x{rows}x{columns},matrix_acc>"
        source = self.random.choice(sources).name
        text = f"cooperative_matrix_load.{self.letter()}{check} {source}[{places[0]},{places[1]}] : {kind}"
        found = self.put(text)
        if self.random.random() < 0.3:
            found = self._applied(scope, found, kind)
        if targets:
            target = self.random.choice(targets).name
            check = self.random.choice(("", "", ".rows_checked", ".both_checked"))
            self.lines.append(f"cooperative_matrix_store{check} {found}, {target}[{places[2]},{places[3]}]")

    def _applied(self, scope: Scope, matrix: str, kind: str) -> str:
        """A function of the components of a matrix that stores as well."""
        made, row, column, value = (self.name() for _ in range(4))
        self.lines.append(f"{made} = cooperative_matrix_apply ({row},{column},{value})={matrix} -> {kind} {{")
        inner = scope.inner(parallel=False, depth=3)
        inner.integers += [self.put(f"cast {item} : index") for item in (row, column)] * 2
        self._access(inner)
        self.lines += [f"yield ({value})", "}"]
        return made


def draw_kernel(random: Random, name: str) -> RandomKernel:
    """A kernel of a name; most are right as far as a check of types goes."""
    arrays = tuple(_draw_arrays(random))
    integers = tuple(random.choice(("index", "index", "i32", "i8")) for _ in range(random.randint(0, 2)))
    writer = Writer(random)
    memories = [Memory(f"%{item.name}", item.element, item.shape, _use(item)) for item in arrays]
    scope = Scope([], memories)
    for place, kind in enumerate(integers):
        scope.integers.append(f"%n{place}" if kind == "index" else writer.put(f"cast %n{place} : index"))
    scope.integers.append(writer.put("builtin.group_id : index"))
    scope.integers.append(scope.integers[-1])
    if random.random() < 0.3:
        scope.integers.append(writer.put("builtin.group_size : index"))
    scope.integers.append(writer.constant(random.choice((0, 1, 2))))
    if random.random() < 0.3:
        local = writer.put("alloca : memref<i32x8x4,local>")
        scope.memories.append(Memory(local, "i32", (8, 4), "mark", True))
    writer.region(scope, random.randint(2, 6))
    names = [f"%{item.name}: {item.spelled}" for item in arrays]
    names += [f"%n{place}: {kind}" for place, kind in enumerate(integers)]
    sizes = random.choice(("", "", " attributes{subgroup_size=16,work_group_size=[32,1]}"))
    body = "\n  ".join(writer.lines)
    return RandomKernel(f"func @{name}({', '.join(names)}){sizes} {{\n  {body}\n}}\n", arrays, integers)


def _use(item: ArrayOf) -> str:
    return "group" if item.group else item.use


def _draw_arrays(random: Random) -> list[ArrayOf]:
    def shape(order: int) -> tuple[int | None, ...]:
        return tuple(random.choice((None, None, 4, 8)) for _ in range(order))

    def order() -> int:
        return random.choice((1, 1, 1, 2, 2, 3))

    found = [ArrayOf("j", random.choice(INTEGERS), shape(1), random.random() < 0.3, "read")]
    for place in range(random.randint(1, 2)):
        element = random.choice(ELEMENTS)
        found.append(ArrayOf(f"x{place}", element, shape(order()), random.random() < 0.4, "read"))
    for place in range(random.randint(1, 2)):
        element = random.choice(ELEMENTS)
        found.append(ArrayOf(f"y{place}", element, shape(order()), random.random() < 0.3, "mark"))
    if random.random() < 0.5:
        found.append(
            ArrayOf("s", random.choice(("i32", "i64")), shape(order()), random.random() < 0.3, "sum")
        )
    if random.random() < 0.3:
        found.append(ArrayOf("g", random.choice(ELEMENTS), shape(random.choice((1, 2))), False, "mark", True))
    if random.random() < 0.2:
        element, pack = random.choice((("bf16", 2), ("f16", 2), ("i8", 4)))
        found.append(ArrayOf("p", element, (pack, *shape(2)), False, "packed"))
    if random.random() < 0.4:
        for name, number, use in (("a", 2, "read"), ("b", 1, "read"), ("c", 2, "whole"), ("d", 1, "whole")):
            found.append(ArrayOf(name, "f32", (None,) * number, random.random() < 0.3, use))
    return found
