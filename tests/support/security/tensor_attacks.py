"""Hostile kernels by their case in the list of attacks, T1 to T9, with the codes that compiling them must give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

NOTHING = ""
MANY = 10_000


@dataclass(frozen=True, slots=True)
class Attack:
    """A text, and the code of the error that compiling it must give; NOTHING where there is machine code for it."""

    make: Callable[[], str]
    code: str = NOTHING


def kernel(body: str, parameters: str = "%A: memref<f32x16>", attributes: str = NOTHING) -> str:
    """A kernel, by default of one array; `%z`, `%o` and `%x` are constants."""
    first = "%z = constant 0 : index\n%o = constant 1 : index\n%x = constant 1.0 : f32"
    return f"func @f({parameters}) {attributes} {{\n{first}\n{body}\n}}\n"


def sized(subgroup: int, rows: int, columns: int) -> str:
    """A kernel that asks for sizes."""
    attributes = f"attributes{{subgroup_size={subgroup}, work_group_size=[{rows},{columns}]}}"
    return kernel("parallel {\n%l = builtin.subgroup_local_id : i32\n}", attributes=attributes)


def nested(count: int, opening: str, inner: str = NOTHING, closing: str = "}\n") -> str:
    """Regions in regions; `{n}` is the level."""
    return "".join(opening.replace("{n}", str(n)) for n in range(count)) + inner + closing * count


def spread(count: int) -> str:
    """A foreach of so many variables."""
    names, bounds = ",".join(f"%i{n}" for n in range(count)), ",".join(["%z"] * count)
    return kernel(f"foreach ({names})=({bounds}),({bounds.replace('z', 'o')}) {{\nstore %x, %A[%i0]\n}}")


def looped(trips: str, form: str, kind: str = "index") -> str:
    """A loop that asks to be unrolled."""
    body = "%j = arith.rem %i, %o : index\nstore %x, %A[%j]"
    return kernel(f"%n = constant {trips} : {kind}\nfor %i=%z,%n {{\n{body}\n}} {{unroll={form}}}")


def matrix(rows: int, columns: int) -> str:
    """A cooperative matrix that is loaded, computed and stored."""
    kind = f"coopmatrix<f32x{rows}x{columns},matrix_acc>"
    return kernel(
        f"parallel {{\n%c = cooperative_matrix_load.n.both_checked %A[%z,%z] : {kind}\n"
        f"%d = arith.add %c, %c : {kind}\ncooperative_matrix_store.both_checked %d, %A[%z,%z]\n}}",
        "%A: memref<f32x16x16>",
    )


def product(size: str, count: int = 1) -> str:
    """Products of large matrices."""
    return kernel("gemm.n.n %x, %A, %A, %x, %C\n" * count, f"%A: memref<f32x{size}>, %C: memref<f32x{size}>")


def chain(count: int, first: str, step: str) -> str:
    """Values that are computed one from the other."""
    return first + "".join(step.replace("{n}", str(n)).replace("{m}", str(n + 1)) for n in range(count))


def allocated(count: int, size: int, later: bool = False) -> str:
    """Local memory; where all of it is used later, all of it is alive at once."""
    one = "".join(f"%m{n} = alloca : memref<f32x{size},local>\nstore %x, %m{n}[%z]\n" for n in range(count))
    return kernel(one + "".join(f"store %x, %m{n}[%z]\n" for n in range(count if later else 0)))


DEPTH = "TEN008"
MATRIX = "TEN240"

T1: Mapping[str, Attack] = {
    "loops": Attack(lambda: kernel(nested(MANY, "for %i{n}=%z,%o {\n")), DEPTH),
    "branches": Attack(lambda: kernel(nested(MANY, "if %t {\n"), "%t: bool"), DEPTH),
    "loops allowed": Attack(lambda: kernel(nested(60, "for %i{n}=%z,%o {\n", "store %x, %A[%z]\n"))),
    "branches allowed": Attack(
        lambda: kernel(nested(60, "if %t {\n", "store %x, %A[%z]\n"), "%t: bool, %A: memref<f32x4>")
    ),
    "divergent branches": Attack(
        lambda: kernel(
            "parallel {\n%l = builtin.subgroup_local_id : i32\n%i = cast %l : index\n%t = cmp.lt %i, %o : bool\n"
            + nested(58, "if %t {\n", "store %x, %A[%i]\n")
            + "}"
        )
    ),
    "foreach": Attack(lambda: kernel(nested(MANY, "foreach (%i{n})=(%z),(%o) {\n")), DEPTH),
    "order": Attack(lambda: kernel(NOTHING, f"%A: memref<f32{'x2' * 5000}>"), DEPTH),
    "variables": Attack(lambda: spread(500), DEPTH),
    "variables allowed": Attack(lambda: spread(24)),
}
T2: Mapping[str, Attack] = {
    "too large": Attack(lambda: kernel("%n = constant 9223372036854775808 : i64"), "TEN006"),
    "digits": Attack(lambda: kernel(f"%n = constant {'9' * 100_000} : i64"), "TEN006"),
    "float": Attack(lambda: kernel(f"%n = constant {'9' * 100_000}.0 : f64"), "TEN006"),
    "exponent": Attack(lambda: kernel("%n = constant 1e999999999 : f64"), "TEN006"),
}
T3: Mapping[str, Attack] = {
    "shape": Attack(lambda: kernel(NOTHING, "%A: memref<f32x4000000000x4000000000>"), "TEN045"),
    "stride": Attack(lambda: kernel(NOTHING, "%A: memref<f32x4x4,strided<1,9223372036854775807>>"), "TEN045"),
    "negative": Attack(lambda: kernel(NOTHING, "%A: memref<f32x-4>"), "TEN040"),
    "nothing": Attack(lambda: product("0x0")),
    "zero strides": Attack(
        lambda: kernel("axpby.n %x, %A, %x, %C", "%A: memref<f32x4x4,strided<0,0>>, %C: memref<f32x4x4>")
    ),
    "huge product": Attack(lambda: product("1000000x1000000")),
    "group": Attack(
        lambda: kernel(
            "%m = load %G[%z] : memref<f32x4>\nstore %x, %m[%z]",
            "%G: group<memref<f32x4>x9223372036854775807, offset: 9223372036854775807>",
        )
    ),
}
T4: Mapping[str, Attack] = {
    "nobody": Attack(lambda: sized(0, 0, 0), "TEN060"),
    "three": Attack(lambda: sized(3, 9, 1), "TEN238"),
    "wide": Attack(lambda: sized(128, 128, 1), "TEN238"),
    "uneven": Attack(lambda: sized(16, 24, 1), "TEN061"),
    "crowd": Attack(lambda: sized(16, 1 << 20, 1 << 20), "TEN239"),
    "largest": Attack(lambda: sized(1, 1, 1 << 14)),
    "largest product": Attack(
        lambda: product("1000x1000").replace(
            ")  {", ") attributes{subgroup_size=64, work_group_size=[16384,1]} {"
        )
    ),
}
T6: Mapping[str, Attack] = {
    "no step": Attack(lambda: kernel("for %i=%z,%o,%z {\n}"), "TEN090"),
    "backwards": Attack(lambda: kernel("%m = constant -1 : index\nfor %i=%z,%o,%m {\n}"), "TEN090"),
    "overflow": Attack(
        lambda: kernel(
            "%a = constant 120 : i8\n%b = constant 127 : i8\n%s = constant 100 : i8\n"
            "for %i:i8=%a,%b,%s {\nstore %x, %A[%z]\n} {unroll=true}"
        )
    ),
    "unknown step": Attack(
        lambda: kernel(
            "for %i=%z,%e,%s {\nstore %x, %A[%z]\n} {unroll=7}", "%A: memref<f32x1>, %e: index, %s: index"
        )
    ),
}
T7: Mapping[str, Attack] = {
    "one": Attack(lambda: allocated(1, 100_000_000), "TEN236"),
    "all": Attack(lambda: allocated(1000, 100_000, later=True), "TEN236"),
    "one after the other": Attack(lambda: allocated(1000, 100_000)),
    "overflow": Attack(lambda: kernel("%m = alloca : memref<f64x4611686018427387904x4,local>"), "TEN045"),
}
T9: Mapping[str, Attack] = {
    "whole": Attack(lambda: looped("1000000000", "true")),
    "a number": Attack(lambda: looped("1000000000", "1000000000")),
    "ends of types": Attack(lambda: looped("9223372036854775807", "true")),
    "nested": Attack(
        lambda: kernel(
            "%n = constant 60 : index\n"
            + nested(6, "for %i{n}=%z,%n {\n", "store %x, %A[%z]\n", "} {unroll=true}\n")
        )
    ),
    "one after the other": Attack(
        lambda: kernel(
            "%n = constant 4000 : index\n"
            + "".join(f"for %i{n}=%z,%n {{\nstore %x, %A[%z]\n}} {{unroll=true}}\n" for n in range(50))
        )
    ),
    "matrix": Attack(lambda: matrix(1024, 1024), MATRIX),
    "tall matrix": Attack(lambda: matrix(1_000_000, 1), MATRIX),
    "wide matrix": Attack(lambda: matrix(1, 1_000_000), MATRIX),
    "products": Attack(lambda: product("64x64", 2000), "TEN241"),
    "numbers": Attack(
        lambda: kernel(chain(5000, "%v0 = load %A[%z] : f32\n", "%v{m} = arith.mul %v{n}, %x : f32\n"))
    ),
    "nothing is used": Attack(
        lambda: kernel(chain(MANY, "%v0 = constant 1 : i32\n", "%v{m} = arith.add %v{n}, %v{n} : i32\n"))
    ),
    "functions": Attack(lambda: "".join(f"func @f{n}() {{}}\n" for n in range(1000))),
}
GROUPS: Mapping[str, Mapping[str, Attack]] = MappingProxyType(
    {"T1": T1, "T2": T2, "T3": T3, "T4": T4, "T6": T6, "T7": T7, "T9": T9}
)
