"""Kernels of the tensor language that mean something: well typed, inside their memory, without races.

Integers wrap, so any order of additions gives the same; floating-point kernels have none whose order is open. The
texts are what a run may be compared by, bit for bit, whatever executes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.support.backend.interpreter.kernels import INTEGERS

ATOMIC = ("i32", "i64", "index")
ELEMENTS = ("i8", "i16", "i32", "i64", "index", "bf16", "f16", "f32", "f64")
SIZES = ((1, 1, 1), (4, 4, 1), (4, 8, 2), (16, 16, 1), (16, 32, 2))
"""Subgroup size, and the work-group's."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The text of a kernel `@f` and what its arrays are: element type and shape of each."""

    text: str
    element: str
    shapes: tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class _Kernel:
    """A kernel that grows."""

    draw: st.DrawFn
    element: str
    items: int
    lines: list[str] = field(default_factory=list)
    memrefs: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    scalars: list[str] = field(default_factory=list)
    """Values of the element type that can be used here."""
    roots: dict[str, str] = field(default_factory=dict)
    """What views look at."""
    count: int = 0
    indent: int = 1

    # --- small things

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def put(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    def value(self, text: str) -> str:
        name = self.name()
        self.put(f"{name} = {text}")
        return name

    def pick(self, *items: object) -> object:
        return self.draw(st.sampled_from(items))

    def chance(self) -> bool:
        return self.draw(st.booleans())

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def constant(self) -> str:
        if self.element in INTEGERS:
            return self.value(f"constant {self.number(-9, 9)} : {self.element}")
        return self.value(f"constant {self.number(-9, 9) / 2} : {self.element}")

    def index(self, value: int) -> str:
        return self.value(f"constant {value} : index")

    def scalar(self) -> str:
        if self.scalars and self.number(0, 3):
            return str(self.pick(*self.scalars))
        return self.constant()

    def compute(self) -> str:
        """Arithmetic on what is there."""
        functions = ["add", "sub", "mul", "min", "max"]
        functions += ["and", "or", "xor"] if self.element in INTEGERS else []
        function = self.pick(*functions)
        if function == "max" and self.chance():
            test = self.value(f"cmp.{self.pick('lt', 'eq', 'ge')} {self.scalar()}, {self.scalar()} : bool")
            return self.value(f"arith.select {test}, {self.scalar()}, {self.scalar()} : {self.element}")
        return self.value(f"arith.{function} {self.scalar()}, {self.scalar()} : {self.element}")

    def inside(self, write: Callable[[], None]) -> None:
        """A region: what it defines is not seen behind it."""
        scalars, memrefs = list(self.scalars), list(self.memrefs)
        self.indent += 1
        write()
        self.indent -= 1
        self.scalars, self.memrefs = scalars, memrefs

    def root(self, name: str) -> str:
        return self.roots.get(name, name)

    def memref(self, order: int | None = None) -> tuple[str, tuple[int, ...]]:
        found = [item for item in self.memrefs if order is None or len(item[1]) == order]
        return self.draw(st.sampled_from(found))

    # --- collective statements

    def statements(self, depth: int) -> None:
        for _ in range(self.number(1, 4)):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        choices = [
            self.write_foreach,
            self.write_blas,
            self.write_parallel,
            self.write_alloca,
            self.write_access,
            self.write_view,
        ]
        if depth > 0:
            choices += [lambda: self.write_for(depth), lambda: self.write_if(depth)]
        self.draw(st.sampled_from(choices))()

    def write_alloca(self) -> None:
        order = self.number(1, 2)
        shape = tuple(self.number(1, 20) for _ in range(order))
        dims = "".join(f"x{size}" for size in shape)
        name = self.value(f"alloca : memref<{self.element}{dims},local>")
        self.fill(name, shape)
        self.memrefs.append((name, shape))

    def write_view(self) -> None:
        """A block of a memref."""
        name, shape = self.memref()
        local = ",local" if self.root(name) not in ("%A", "%B") else ""
        offsets = [self.number(0, size - 1) for size in shape]
        sizes = tuple(self.number(1, size - offset) for size, offset in zip(shape, offsets, strict=True))
        dims = "".join(f"x{size}" for size in sizes)
        strides = ",".join("?" * len(shape))
        slices = ",".join(f"{offset}:{size}" for offset, size in zip(offsets, sizes, strict=True))
        view = f"memref<{self.element}{dims},strided<{strides}>{local}>"
        found = self.value(f"subview {name}[{slices}] : {view}")
        self.roots[found] = self.root(name)
        self.memrefs.append((found, sizes))

    def fill(self, name: str, shape: tuple[int, ...]) -> None:
        """Local memory holds nothing until something is written."""
        variables = [self.name() for _ in shape]
        zero, ends = self.index(0), [self.index(size) for size in shape]
        begins = ",".join([zero] * len(shape))
        value = self.scalar()
        self.put(f"foreach ({','.join(variables)})=({begins}),({','.join(ends)}) {{")
        self.put(f"  store {value}, {name}[{','.join(variables)}]")
        self.put("}")

    def write_access(self) -> None:
        """A load and a store of the whole work-group."""
        name, shape = self.memref()
        places = [self.index(self.number(0, size - 1)) for size in shape]
        loaded = self.value(f"load {name}[{','.join(places)}] : {self.element}")
        self.scalars.append(loaded)
        if self.chance():
            self.put(f"store {self.compute()}, {name}[{','.join(places)}]")

    def write_blas(self) -> None:
        functions = ["axpby.n", "axpby.t", "hadamard", "ger"]
        functions += ["gemm", "gemv", "sum.n", "sum.t", "cumsum"] if self.element in INTEGERS else []
        function = str(self.pick(*functions))
        write = {"ger": self._ger, "gemm": self._gemm, "gemv": self._gemv}.get(function)
        if write is not None:
            write()
        elif function.startswith("sum"):
            self._sum(function)
        else:
            self._elementwise(function)

    def fresh(self, *shape: int) -> str:
        """Local memory of a shape, filled."""
        dims = "".join(f"x{size}" for size in shape)
        name = self.value(f"alloca : memref<{self.element}{dims},local>")
        self.fill(name, shape)
        return name

    def factors(self) -> tuple[str, str]:
        return self.scalar(), self.scalar()

    def _elementwise(self, function: str) -> None:
        name, shape = self.memref()
        alpha, beta = self.factors()
        source = self.fresh(*(shape[::-1] if function == "axpby.t" else shape))
        if function == "hadamard":
            self.put(f"hadamard {alpha}, {source}, {source}, {beta}, {name}")
        elif function == "cumsum":
            mode = self.number(0, len(shape) - 1)
            self.put(f"cumsum {alpha}, {source}, {mode}, {beta}, {name}")
        else:
            self.put(f"{function} {alpha}, {source}, {beta}, {name}")

    def _ger(self) -> None:
        name, (m, n) = self.memref(2)
        alpha, beta = self.factors()
        self.put(f"ger {alpha}, {self.fresh(m)}, {self.fresh(n)}, {beta}, {name}".replace("  ", " "))

    def _gemm(self) -> None:
        name, (m, n) = self.memref(2)
        k, flags = self.number(1, 5), (self.chance(), self.chance())
        alpha, beta = self.factors()
        left = self.fresh(*((k, m) if flags[0] else (m, k)))
        right = self.fresh(*((n, k) if flags[1] else (k, n)))
        forms = "".join(".t" if flag else ".n" for flag in flags)
        self.put(f"gemm{forms} {alpha}, {left}, {right}, {beta}, {name}")

    def _gemv(self) -> None:
        name, (m,) = self.memref(1)
        k, alpha, beta = self.number(1, 5), *self.factors()
        left, right = self.fresh(m, k), self.fresh(k)
        self.put(f"gemv.n {alpha}, {left}, {right}, {beta}, {name}")

    def _sum(self, function: str) -> None:
        name, (m,) = self.memref(1)
        k, (alpha, beta) = self.number(1, 40), self.factors()
        source = self.fresh(*((k, m) if function == "sum.t" else (m, k)))
        self.put(f"{function} {alpha}, {source}, {beta}, {name}")

    # --- regions

    def write_for(self, depth: int) -> None:
        begin = self.number(0, 2)
        bounds = ",".join(
            [self.index(begin), self.index(begin + self.number(0, 5)), self.index(self.number(1, 2))]
        )
        start, result, carried = self.scalar(), self.name(), self.name()
        form = self.pick("", " {unroll=true}", " {unroll=2}", " {unroll=false}", " {unroll=3}")
        variable = self.pick("%i", self.name()) if depth > 1 else self.name()
        self.put(f"{result} = for {variable}:index={bounds} init({carried}={start}) -> ({self.element}) {{")

        def body() -> None:
            self.scalars += [carried, self.value(f"cast {variable} : {self.element}")]
            self.statements(depth - 1)
            self.put(f"yield ({self.compute()})")

        self.inside(body)
        self.put(f"}}{form}")
        self.scalars.append(result)

    def write_if(self, depth: int) -> None:
        test = self.value(f"cmp.{self.pick('lt', 'ne', 'ge')} {self.scalar()}, {self.scalar()} : bool")
        result = self.name()

        def body() -> None:
            self.statements(depth - 1)
            self.put(f"yield ({self.compute()})")

        self.put(f"{result} = if {test} -> ({self.element}) {{")
        self.inside(body)
        self.put("} else {")
        self.inside(body)
        self.put("}")
        self.scalars.append(result)

    def write_foreach(self) -> None:
        """Each work-item changes elements of its own, and reads what nobody writes."""
        name, shape = self.memref()
        other, wide = self.memref()
        kind = self.pick("index", "i32", "i64")
        variables = [self.name() for _ in shape]
        begins = ",".join(self.value(f"constant {self.number(0, 1)} : {kind}") for _ in shape)
        ends = ",".join(self.value(f"constant {size} : {kind}") for size in shape)
        places = [self.index(self.number(0, size - 1)) for size in wide]
        counts = self.root(other) != self.root(name) and self.element in ATOMIC and self.chance()
        self.put(f"foreach ({','.join(variables)}):{kind}=({begins}),({ends}) {{")

        def body() -> None:
            own = [item if kind == "index" else self.value(f"cast {item} : index") for item in variables]
            self.scalars.append(self.value(f"load {name}[{','.join(own)}] : {self.element}"))
            if counts:
                self.put(f"store.atomic_add {self.compute()}, {other}[{','.join(places)}]")
            elif self.root(other) != self.root(name):
                self.scalars.append(self.value(f"load {other}[{','.join(places)}] : {self.element}"))
            self.scalars.append(self.value(f"cast {variables[0]} : {self.element}"))
            self.store_in_spmd(name, own)

        self.inside(body)
        self.put("}")

    def store_in_spmd(self, name: str, own: list[str]) -> None:
        """A store, behind a branch that work-items may not all take."""
        value = self.compute()
        if not self.chance():
            self.put(f"store {value}, {name}[{','.join(own)}]")
            return
        test = self.value(f"cmp.{self.pick('lt', 'ne', 'ge')} {self.scalar()}, {self.scalar()} : bool")
        self.put(f"if {test} {{")
        self.inside(lambda: self.put(f"store {self.compute()}, {name}[{','.join(own)}]"))
        self.put("}")

    def write_parallel(self) -> None:
        """Work-items that know their number: scans, and what another one has written, behind a barrier."""
        shared = self.value(f"alloca : memref<{self.element}x{self.items},local>")
        last, target = self.index(self.items - 1), self.fresh(self.items)
        self.put("parallel {")

        def body() -> None:
            lane = self.value("builtin.subgroup_local_id : i32")
            subgroup, size = (
                self.value("builtin.subgroup_id : i32"),
                self.value("builtin.subgroup_size : i32"),
            )
            item = self.value(f"arith.add {self.value(f'arith.mul {subgroup}, {size} : i32')}, {lane} : i32")
            own = self.value(f"cast {item} : index")
            self.scalars.append(self.value(f"cast {item} : {self.element}"))
            if self.element in INTEGERS:
                form = self.pick("reduce", "inclusive_scan", "exclusive_scan")
                operation = f"subgroup_{self.pick('add', 'max', 'min')}.{form}"
                self.scalars.append(self.value(f"{operation} {self.scalar()} : {self.element}"))
            self.put(f"store {self.compute()}, {shared}[{own}]")
            self.put("barrier.local")
            mirror = self.value(f"arith.sub {last}, {own} : index")
            self.scalars.append(self.value(f"load {shared}[{mirror}] : {self.element}"))
            self.store_in_spmd(target, [own])

        self.inside(body)
        self.put("}")
        self.memrefs += [(shared, (self.items,)), (target, (self.items,))]


@st.composite
def kernels(draw: st.DrawFn, depth: int = 2) -> Kernel:
    """Kernels of some statements on two arrays and a scalar."""
    element = draw(st.sampled_from(ELEMENTS))
    subgroup, rows, columns = draw(st.sampled_from(SIZES))
    shapes = (tuple(draw(st.integers(1, 20)) for _ in range(2)), (draw(st.integers(1, 40)),))
    kernel = _Kernel(draw, element, rows * columns)
    kernel.memrefs = [("%A", shapes[0]), ("%B", shapes[1])]
    kernel.scalars = ["%x"]
    types = [f"memref<{element}{''.join(f'x{size}' for size in shape)}>" for shape in shapes]
    if draw(st.booleans()):  # a matrix whose layout only the run tells
        sizes = "x".join(map(str, shapes[0]))
        slices = ",".join(f"0:{size}" for size in shapes[0])
        view = kernel.value(f"subview %A[{slices}] : memref<{element}x{sizes},strided<?,?>>")
        kernel.roots[view] = "%A"
        kernel.memrefs[0] = (view, shapes[0])
        types[0] = f"memref<{element}x?x?,strided<?,?>>"
    kernel.statements(depth)
    places = f"attributes{{subgroup_size={subgroup}, work_group_size=[{rows},{columns}]}}"
    head = f"func @f(%A: {types[0]}, %B: {types[1]}, %x: {element}) {places} {{"
    return Kernel("\n".join([head, *kernel.lines, "}", ""]), element, shapes)
