"""Hostile NEM texts by their case in the list of attacks, E1 to E10; each grows with its size.

E1 is about files: tests/lang/nem/test_documents.py has include circles, ten thousand includes, diamonds, duplicate
devices, folders, FIFOs, links and `..`; tests/base/test_paths.py has the resolver's own refusals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

HEAD = "program p:\nbuffer A : L2 (size=1048576)\nbuffer B : L1 (size=262144)\n"
F16 = "elem=f16, shape=[4], layout=C"
BASELINE = 'include "nem_baseline_1.0.nem"\n'
LONG = 10**15


@dataclass(frozen=True, slots=True)
class Attack:
    """A text of any size, the codes that must be found in it, and the codes that may."""

    make: Callable[[int], str]
    codes: frozenset[str]
    also: frozenset[str] = frozenset()


def move(offset: str = "0", rest: str = "", token: str = "", source: str = "0") -> str:
    """A transfer of 64 bytes."""
    start = f"{token} = " if token else ""
    return f"{start}transfer.async(dst=region(B, {offset}, 64), src=region(A, {source}, 64){rest})\n"


def lines(count: int, line: Callable[[int], str]) -> str:
    """So many lines."""
    return "".join(line(number) for number in range(count))


def doubling(size: int) -> str:
    """E2: each constant is the square of the one before."""
    return "program p:\nconst c0 = 3\n" + lines(size, lambda n: f"const c{n + 1} = c{n} * c{n}\n")


def forward(size: int) -> str:
    """E2: each constant uses the next one."""
    return "program p:\n" + lines(size, lambda n: f"const c{n} = c{n + 1} + 1\n") + f"const c{size} = 1\n"


def zeros(size: int) -> str:
    """E2: divisions by zero, written and computed."""
    return "program p:\nconst z = 0\n" + lines(
        size, lambda n: f"const c{n} = {n} {('/', 'mod')[n % 2]} (z * {n})\n"
    )


def chain_of_parents(size: int) -> str:
    """E3: a long chain of devices."""
    first = BASELINE + "device d0 extends nem_baseline_1_0 { }\n"
    return first + lines(size, lambda n: f"device d{n + 1} extends d{n} {{ }}\n")


def circle_of_parents(size: int) -> str:
    """E3: the chain bites its tail."""
    return BASELINE + lines(size, lambda n: f"device d{n} extends d{(n + 1) % size} {{ }}\n")


def long_loops(size: int) -> str:
    """E4: loops of 10^15 iterations, one after the other; the last leaves its buffer in its last iteration."""
    body = lines(size, lambda n: f"loop i in [0..{LONG}]:\n{move('(i mod 4) * 64')}endloop\n")
    return HEAD + body + f"loop i in [0..{LONG}]:\n{move(f'(i / {LONG}) * 262100')}endloop\n"


def long_nest(size: int) -> str:
    """E4: loops of 10^9 iterations inside each other, up to the limit of nesting and beyond."""
    depth = min(size, 300)
    heads = lines(depth, lambda n: f"loop v{n} in [0..999999999]:\n")
    return HEAD + heads + move("(v0 mod 4) * 64") + "endloop\n" * depth


def backward_loops(size: int) -> str:
    """E4: loops that end before they begin."""
    return HEAD + lines(size, lambda n: f"loop i in [5..{-n}]:\n{move()}endloop\n")


def outside(size: int) -> str:
    """E5: offsets that leave the buffer by a byte, below and above, constant and in the last iteration."""

    def attack(number: int) -> str:
        offsets = ("262081", "0 - 1", "i * 64 - 1", "i * 26209", "(i mod 3) * 131072", "9223372036854775807")
        return f"loop i in [0..10]:\n{move(offsets[number % len(offsets)])}endloop\n"

    return HEAD + lines(size, attack)


def extents(size: int) -> str:
    """E5: extents and strides that do not cover the shape."""
    types = (
        "elem=i8, shape=[65], layout=C",
        "elem=f32, shape=[4, 4], strides=[4, 5]",
        "elem=f32, shape=[4], strides=[0 - 1]",
        "elem=i4, shape=[129], layout=C",
        "elem=i8, shape=[4611686018427387904, 4], layout=C",
        "elem=i8, shape=[2], strides=[9223372036854775807]",
        "elem=i8, shape=[0, 9223372036854775807], layout=C",
        "elem=i8, shape=[" + ", ".join(["1"] * 99) + "], layout=C",
    )
    return HEAD + lines(size, lambda n: f"let r{n} = region(A, 0, 64) {types[n % len(types)]}\n")


def racing_writes(size: int) -> str:
    """E5: writes to the same bytes from different places, in no order."""
    return HEAD + lines(size, lambda n: move("0", source=str(64 * (n % 1000))))


def sizes(size: int) -> str:
    """E6: sizes and alignments that are no sizes and alignments."""
    wrong = (
        *("size=0", "size=0 - 1", "size=4611686018427387904 * 2", "size=9223372036854775808"),
        *("size=8, align=0", "size=8, align=3", "size=8, align=1099511627776"),
    )
    return "program p:\n" + lines(size, lambda n: f"buffer b{n} : L2 ({wrong[n % len(wrong)]})\n")


def one_byte_too_many(size: int) -> str:
    """E6: buffers that together exceed the L2 of npm_lite by one byte."""
    parts = [f"buffer b{n} : L2 (size=1, align=1)\n" for n in range(size)]
    rest = 4 * 1024 * 1024 + 1 - size
    return f'include "npm_lite.nem"\ndevice npm_lite\nprogram p:\n{"".join(parts)}buffer rest : L2 (size={rest})\n'


def tokens(size: int) -> str:
    """E7: tokens that do not exist, come later, are made twice or wait for themselves; windows of nothing."""
    forms = (
        "wait(lost{n})\n",
        move("0", ", deps=[t{n}]", "t{n}"),
        move("0", "", "twice") + move("64", "", "twice"),
        "wait()\n",
        f"loop i in [0..3] @max_in_flight(0):\n{move()}endloop\n",
        move("0", ", deps=[u{n}]", "s{n}") + move("0", ", deps=[s{n}]", "u{n}"),
    )
    return HEAD + lines(size, lambda n: forms[n % len(forms)].replace("{n}", str(n)))


def quants(size: int) -> str:
    """E8: descriptors that do not fit their tensors."""
    wrong = (
        "per_channel(axis=0, scales=[0.5], zero_points=[0, 0])",
        "per_channel(axis=7, scales=[0.5, 0.5, 0.5, 0.5], zero_points=[0, 0, 0, 0])",
        "per_group(axis=0, group_size=0, scales=[0.5], zero_points=[0])",
        "per_group(axis=0, group_size=9223372036854775807, scales=[0.5, 0.5], zero_points=[0])",
        "per_tensor(scale=0.0, zero_point=0)",
        "per_tensor(scale=0.0 / 0.0, zero_point=0)",
        "per_tensor(scale=1.0e308 * 10.0, zero_point=0)",
        "per_tensor(scale=-1.0, zero_point=0)",
        "per_tensor(scale=0.5, zero_point=128)",
    )
    form = "let r{0} = region(A, 0, 4) elem=i8, shape=[4], layout=C, quant={1}\n"
    return HEAD + lines(size, lambda n: form.format(n, wrong[n % len(wrong)]))


def units(size: int) -> str:
    """E9: units that are no targets, or not for this task."""
    targets = ("CSTL[1000000000]", "SEQ[0]", "sDMA[0]", "NMU[0]", "NOSUCH[0]", "WDM[0]")
    region = f"region(B, 0, 8) {F16}"
    form = f"relu.sync in {region} out {region} @resource({{0}})\n"
    return HEAD + lines(size, lambda n: form.format(targets[n % len(targets)]))


def instances(size: int) -> str:
    """E9: indices below zero and beyond every device, now and then."""
    indices = ("0 - 1", "i - 1", "1000000000", "i * 1000000000000", "3 - i")
    body = lines(size, lambda n: move("i * 64").strip() + f" @resource(DMA[{indices[n % len(indices)]}])\n")
    return f"{HEAD}loop i in [0..9]:\n{body}endloop\n"


def engines(size: int) -> str:
    """E9: engines that no device has."""
    return "program p:\n" + lines(size, lambda n: f"buffer b{n} : L1[{10**9 + n}] (size=8)\n")


def deep(size: int) -> str:
    """E10: one expression, deeper and deeper."""
    return f"program p:\nconst c = {'(' * 10 * size}1{')' * 10 * size}\n"


def flat(size: int) -> str:
    """E10: one expression, longer and longer, with every operator."""
    return f"program p:\nconst c = 1{' + 2 * 3 - 8 mod 5 / 2' * size}\n"


def products(size: int) -> str:
    """E10: expressions in loop variables whose parts double with every line."""
    body = lines(size, lambda n: f"let e{n + 1} = (e{n} mod 7) * (e{n} mod 5)\n")
    return f"{HEAD}loop i in [0..9]:\nlet e0 = i\n{body}{move(f'e{size} * 64')}endloop\n"


def remainders(size: int) -> str:
    """E10: a chain of remainders of a loop variable."""
    return f"{HEAD}loop i in [0..9]:\n{move('i' + ' mod 7' * size)}endloop\n"


def strangers(size: int) -> str:
    """E2: names that nothing has, each near to many that there are."""
    return "program p:\n" + lines(size, lambda n: f"const name{n} = {n}\nconst d{n} = nome{n}\n")


def crowded(size: int) -> str:
    """E5: one task with more and more operands, all of them the same bytes."""
    item = f"region(B, 0, 8) {F16}"
    ins, outs = (", ".join([item] * (20 * size)) for _ in range(2))
    return f'{HEAD}compute.async in {ins} out {outs} op="x"\n'


def _attack(make: Callable[[int], str], codes: str, also: str = "") -> Attack:
    return Attack(make, frozenset(codes.split()), frozenset(also.split()))


ATTACKS = (
    _attack(doubling, "NEM023"),
    _attack(forward, "NEM021"),
    _attack(strangers, "NEM002"),
    _attack(zeros, "NEM022"),
    _attack(chain_of_parents, "NEM018"),
    _attack(circle_of_parents, "NEM151"),
    _attack(long_loops, "NEM040"),
    _attack(long_nest, "NEM018"),
    _attack(backward_loops, "NEM060"),
    _attack(outside, "NEM040"),
    _attack(extents, "NEM018 NEM023 NEM042 NEM043 NEM046"),
    _attack(racing_writes, "NEM142"),
    _attack(crowded, "NEM144"),
    _attack(sizes, "NEM004 NEM006 NEM023 NEM032"),
    _attack(one_byte_too_many, "NEM130"),
    _attack(tokens, "NEM002 NEM007 NEM061 NEM070", "NEM021"),
    _attack(quants, "NEM022 NEM051 NEM052 NEM053 NEM054 NEM055"),
    _attack(units, "NEM001 NEM113 NEM114"),
    _attack(instances, "NEM116"),
    _attack(engines, "NEM033"),
    _attack(deep, "NEM018"),
    _attack(flat, ""),
    _attack(products, "NEM018"),
    _attack(remainders, "NEM018"),
)
