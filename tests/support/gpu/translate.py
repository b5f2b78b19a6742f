"""Translation of PTX instructions to lines of Python on rows of registers, a lane a column.

A row is called by its register, with `s` behind it where it is seen as signed integers and `f` as reals. `m` is the
predicate of the lanes: True, or a row of truths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.support.gpu import mathematics
from tests.support.gpu.memory import LOCAL, SHARED, WINDOW
from tests.support.gpu.ptx import Address, Entry, Instruction, Operand

BITS = {"h": 16, "w": 32, "d": 64}
TYPES = re.compile(r"^(pred|[busf](?:8|16|32|64)|bf16|f16x2|bf16x2|e4m3x2|e5m2x2|tf32)$")
SPECIAL = re.compile(r"^%(n?tid|n?ctaid|laneid|warpid|cluster_n?ctarank)")
COMPARE = {
    "eq": "{0} == {1}", "ne": "{0} != {1}",
    "lo": "{0} < {1}", "ls": "{0} <= {1}", "hi": "{0} > {1}", "hs": "{0} >= {1}",
    "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}",
    "equ": "~(({0} < {1}) | ({0} > {1}))", "neu": "{0} != {1}",
    "ltu": "~({0} >= {1})", "leu": "~({0} > {1})", "gtu": "~({0} <= {1})", "geu": "~({0} < {1})",
    "num": "~({0} != {0}) & ~({1} != {1})", "nan": "({0} != {0}) | ({1} != {1})",
}  # fmt: skip
UNARY = {
    "ex2": "np.exp2",
    "lg2": "np.log2",
    "sqrt": "np.sqrt",
    "sin": "np.sin",
    "cos": "np.cos",
    "tanh": "np.tanh",
}
SIGNS = {"add": "+", "sub": "-", "mul": "*"}
IGNORED = ("prefetch", "fence", "setmaxnreg", "membar", "cp.async.bulk.prefetch")
"""What changes no number here."""
WARP = ("shfl", "bar.warp", "barrier.warp", "mma.", "stmatrix", "vote", "match", "redux", "elect")
"""What the lanes of a warp do together."""


class Untranslated(Exception):
    """An instruction that nobody has said the meaning of yet."""


@dataclass
class Translator:
    """Writes the instructions of a kernel."""

    entry: Entry
    constants: dict[str, int]
    """Where the constants of the module lie."""
    values: dict[str, Any] = field(default_factory=dict)
    """What the lines name beside rows."""

    def lines(self, item: Instruction) -> Iterator[str]:
        """The lines of an instruction; none where it changes nothing here."""
        if item.name.startswith(IGNORED) or item.name.startswith("barrier.cluster.arrive"):
            return
        mask = "m"
        if item.guard:
            negated = "~" * item.guard.startswith("!")
            yield f"g = m & {negated}{item.guard.lstrip('!')}"
            mask = "g"
        found = self._write(item, mask)
        yield from [found] if isinstance(found, str) else found

    def read(self, operand: Operand, kind: str) -> str:
        """An operand as an expression of some type."""
        assert isinstance(operand, str), operand
        if operand in self.entry.registers:
            return self._read_register(operand, kind)
        if operand.startswith("%"):
            return self._cast_special(operand, kind)
        if operand in self.entry.shared:
            return self._constant(WINDOW + self.entry.shared[operand], kind)
        if operand in self.entry.local:
            return self._constant(LOCAL + self.entry.local[operand], kind)
        if operand in self.constants:
            return self._constant(self.constants[operand], kind)
        return self._constant(_number(operand, kind), kind)

    def _read_register(self, name: str, kind: str) -> str:
        held = self.entry.registers[name]
        if kind == "pred" or held == "p":
            return name
        bits, signs = int(re.sub(r"\D", "", kind)), {"s": "s", "f": "f"}.get(kind[0], "")
        if kind == "bf16":
            return f"maths.from_bf16({name})"
        if bits == BITS[held]:
            return f"{name}{signs}"
        if bits > BITS[held]:
            raise Untranslated(f"{name} has less than {bits} bits")
        narrow = f"{name}.astype(np.uint{bits})"
        view = {"s": f".view(np.int{bits})", "f": f".view(np.float{bits})"}.get(kind[0], "")
        return narrow + view

    def _cast_special(self, name: str, kind: str) -> str:
        if not SPECIAL.match(name):
            raise Untranslated(name)
        called = "special_" + name[1:].replace(".", "_")
        return called if "64" not in kind else f"{called}.astype(np.uint64)"

    def _constant(self, value: Any, kind: str) -> str:
        name = f"k{len(self.values)}"
        if kind == "pred":
            self.values[name] = bool(value)
        elif kind == "bf16":
            self.values[name] = np.array([int(value)], np.uint16).astype(np.uint32) << np.uint32(16)
            self.values[name] = self.values[name].view(np.float32)[0]
        else:
            bits = int(re.sub(r"\D", "", kind))
            if kind[0] == "f" and isinstance(value, int):
                value = np.array([value], f"u{bits // 8}").view(f"f{bits // 8}")[0]
            elif kind[0] != "f":
                value = np.array([value % (1 << bits)], f"u{bits // 8}").view(
                    f"{'i' if kind[0] == 's' else 'u'}{bits // 8}"
                )[0]
            self.values[name] = value
        return name

    def put(self, target: Operand, kind: str, value: str, mask: str) -> str:
        """Write a value of some type to a register."""
        assert isinstance(target, str), target
        if target == "_":
            return "pass"
        held = self.entry.registers[target]
        if held == "p":
            return f"put({target}, {value}, where={mask})"
        bits = int(re.sub(r"\D", "", kind))
        if kind == "bf16":
            return f"put({target}, maths.to_bf16({value}), where={mask})"
        if bits == BITS[held]:
            return f"put({target}{ {'s': 's', 'f': 'f'}.get(kind[0], '') }, {value}, where={mask}, casting='unsafe')"
        if bits > BITS[held]:
            raise Untranslated(f"{target} has less than {bits} bits")
        sign = "s" if kind[0] == "s" else ""
        return f"put({target}{sign}, {value}, where={mask}, casting='unsafe')"

    # --- instructions -----------------------------------------------------------------------------------------

    def _write(self, item: Instruction, mask: str) -> str | list[str]:
        head = item.name.partition(".")[0]
        if item.name.startswith(WARP):
            return self._warp(item, mask)
        special = getattr(self, f"_write_{head}", None)
        if special is not None:
            found: str | list[str] = special(item, mask)
            return found
        kind = _kind(item.name)
        value = self._value(item, head, kind)
        wide = "wide" in item.name.split(".")
        if wide:
            kind = kind[0] + str(2 * int(kind[1:]))
        return self.put(item.operands[0], kind, value, mask)

    def _value(self, item: Instruction, head: str, kind: str) -> str:
        parts = item.name.split(".")
        given = [
            self.read(operand, self._operand_kind(head, place, kind))
            for place, operand in enumerate(item.operands[1:])
        ]
        bits = "pred" if kind == "pred" else f"b{re.sub(r'[^0-9]', '', kind)}"
        if head in ("add", "sub", "mul", "mad") and kind[0] != "f" and kind != "bf16":
            return self._integer(item, head, kind, parts)
        found: dict[str, Callable[[], str]] = {
            "add": lambda: f"{given[0]} + {given[1]}",
            "sub": lambda: f"{given[0]} - {given[1]}",
            "mul": lambda: f"{given[0]} * {given[1]}",
            "mad": lambda: f"maths.fma({', '.join(given)})",
            "fma": lambda: f"maths.fma({', '.join(given)})",
            "div": lambda: (
                f"{given[0]} / {given[1]}" if kind[0] == "f" else f"maths.divide({given[0]}, {given[1]})"
            ),
            "rem": lambda: f"maths.remainder({given[0]}, {given[1]})",
            "min": lambda: (
                f"np.{'minimum' if kind[0] != 'f' or 'NaN' in parts else 'fmin'}({given[0]}, {given[1]})"
            ),
            "max": lambda: (
                f"np.{'maximum' if kind[0] != 'f' or 'NaN' in parts else 'fmax'}({given[0]}, {given[1]})"
            ),
            "abs": lambda: f"np.abs({given[0]})",
            "neg": lambda: f"-({given[0]})",
            "not": lambda: f"~({given[0]})",
            "and": lambda: f"{given[0]} & {given[1]}",
            "or": lambda: f"{given[0]} | {given[1]}",
            "xor": lambda: f"{given[0]} ^ {given[1]}",
            "shl": lambda: f"maths.shift_left({given[0]}, {given[1]})",
            "shr": lambda: f"maths.shift_right({given[0]}, {given[1]})",
            "bfe": lambda: f"maths.extract_bits({', '.join(given)})",
            "bfi": lambda: f"maths.insert_bits({', '.join(given)})",
            "shf": lambda: f"maths.funnel_{'left' if parts[1] == 'l' else 'right'}({', '.join(given)})",
            "prmt": lambda: f"maths.permute_bytes({', '.join(given)})",
            "brev": lambda: f"maths.reverse_bits({given[0]})",
            "copysign": lambda: f"np.copysign({given[1]}, {given[0]})",
            "rcp": lambda: f"one_{kind} / {given[0]}",
            "rsqrt": lambda: f"one_{kind} / np.sqrt({given[0]})",
        }
        if head in UNARY:
            return f"{UNARY[head]}({given[0]})"
        if head in found:
            return found[head]()
        raise Untranslated(f"{item.name} ({bits})")

    def _operand_kind(self, head: str, place: int, kind: str) -> str:
        if (
            (head in ("shl", "shr") and place == 1)
            or (head == "bfe" and place > 0)
            or (head == "bfi" and place > 1)
        ):
            return "u32"
        return kind

    def _integer(self, item: Instruction, head: str, kind: str, parts: list[str]) -> str:
        bits = int(kind[1:])
        if "wide" in parts:
            wide = f"np.{'int' if kind[0] == 's' else 'uint'}{2 * bits}"
            one, other = (
                f"np.asarray({self.read(operand, kind)}).astype({wide})" for operand in item.operands[1:3]
            )
            more = self.read(item.operands[3], f"{kind[0]}{2 * bits}") if head == "mad" else ""
            return f"{one} * {other}{f' + {more}' * bool(more)}"
        one, other = (self.read(operand, kind) for operand in item.operands[1:3])
        if "hi" in parts:
            more = self.read(item.operands[3], kind) if head == "mad" else ""
            return f"maths.mul_high({one}, {other}){f' + {more}' * bool(more)}"
        if head == "mad":
            return f"{one} * {other} + {self.read(item.operands[3], kind)}"
        return f"{one} {SIGNS[head]} {other}"

    def _write_add(self, item: Instruction, mask: str) -> str | list[str]:
        parts = item.name.split(".")
        if item.head in SIGNS and "cc" not in parts:
            kind = _kind(item.name)
            return self.put(item.operands[0], kind, self._value(item, item.head, kind), mask)
        kind, sign = f"u{_kind(item.name)[1:]}", SIGNS[item.head[:3]]
        one, other = (self.read(operand, kind) for operand in item.operands[1:3])
        more = f"carry.astype(np.uint{kind[1:]})" if item.head not in SIGNS else f"np.uint{kind[1:]}(0)"
        lines = [f"x, y, z = {one}, {other}, {more}", f"v = x {sign} y", f"w = v {sign} z"]
        if "cc" in parts:
            order = "<" if sign == "+" else ">"
            lines += [f"put(carry, (v {order} x) | (w {order} v), where={mask})"]
        return [*lines, self.put(item.operands[0], kind, "w", mask)]

    _write_addc = _write_sub = _write_subc = _write_add

    def _write_mov(self, item: Instruction, mask: str) -> str | list[str]:
        kind = _kind(item.name)
        target, source = item.operands
        bits = 1 if kind == "pred" else int(kind[1:])
        if isinstance(source, tuple):
            part = bits // len(source)
            words = [
                f"np.asarray({self.read(one, f'u{part}')}).astype(np.uint{bits}) << np.uint{bits}({part * place})"
                for place, one in enumerate(source)
            ]
            return self.put(target, f"u{bits}", " | ".join(f"({one})" for one in words), mask)
        if isinstance(target, tuple):
            part = bits // len(target)
            return [f"v = np.asarray({self.read(source, f'u{bits}')})"] + [
                self.put(one, f"u{part}", f"(v >> np.uint{bits}({part * place})).astype(np.uint{part})", mask)
                for place, one in enumerate(target)
            ]
        kind = kind if kind == "pred" else f"u{bits}"
        return self.put(target, kind, self.read(source, kind), mask)

    def _write_trap(self, item: Instruction, mask: str) -> str:
        return f"lanes.trap({mask})"

    def _write_griddepcontrol(self, item: Instruction, mask: str) -> str:
        return f"lanes.{'wait_before' if item.name.endswith('wait') else 'let_next'}({mask})"

    def _write_cvta(self, item: Instruction, mask: str) -> str:
        source = self.read(item.operands[1], "u64")
        if "shared" in item.name:
            source += f" {'-' if '.to.' in item.name else '+'} {self._constant(SHARED, 'u64')}"
        return self.put(item.operands[0], "u64", source, mask)

    def _write_mapa(self, item: Instruction, mask: str) -> str:
        place, rank = (self.read(operand, "u32") for operand in item.operands[1:3])
        return self.put(
            item.operands[0],
            "u32",
            f"({place} & np.uint32(0xFFFFFF)) | (({rank} + np.uint32(1)) << np.uint32(24))",
            mask,
        )

    def _write_clz(self, item: Instruction, mask: str) -> str:
        kind = f"u{_kind(item.name)[1:]}"
        return self.put(
            item.operands[0], "u32", f"maths.leading_zeros({self.read(item.operands[1], kind)})", mask
        )

    def _write_popc(self, item: Instruction, mask: str) -> str:
        kind = f"u{_kind(item.name)[1:]}"
        return self.put(
            item.operands[0], "u32", f"maths.count_bits({self.read(item.operands[1], kind)})", mask
        )

    def _write_testp(self, item: Instruction, mask: str) -> str:
        _, way, kind = item.name.split(".")
        function = {"infinite": "np.isinf", "finite": "np.isfinite", "notanumber": "np.isnan"}[way]
        return self.put(item.operands[0], "pred", f"{function}({self.read(item.operands[1], kind)})", mask)

    def _write_setp(self, item: Instruction, mask: str) -> str:
        parts = item.name.split(".")
        kind = _kind(item.name)
        kind = f"u{kind[1:]}" if kind[0] == "b" and kind != "bf16" else kind
        one, other = (self.read(operand, kind) for operand in item.operands[1:3])
        value = COMPARE[parts[1]].format(one, other)
        if parts[2] in ("and", "or", "xor"):
            sign = {"and": "&", "or": "|", "xor": "^"}[parts[2]]
            value = f"({value}) {sign} {self.read(item.operands[3], 'pred')}"
        return self.put(item.operands[0], "pred", value, mask)

    def _write_selp(self, item: Instruction, mask: str) -> str:
        kind = _kind(item.name)
        kind = kind if kind[0] == "f" else f"u{kind[1:]}"
        one, other = (self.read(operand, kind) for operand in item.operands[1:3])
        return self.put(
            item.operands[0], kind, f"np.where({self.read(item.operands[3], 'pred')}, {one}, {other})", mask
        )

    def _write_cvt(self, item: Instruction, mask: str) -> str | list[str]:
        parts = item.name.split(".")
        *ways, target, source = [part for part in parts[1:] if part not in ("ftz", "relu")]
        if source.endswith("x2") or target.endswith("x2"):
            return self._convert_pairs(item, target, source, mask)
        value = self.read(item.operands[1], source)
        way = next((part[:2] for part in ways if part[:2] in mathematics.ROUND), "")
        is_whole = any(part.endswith("i") for part in ways)
        from_real = source[0] == "f" or source == "bf16"
        to_real = target[0] == "f" or target == "bf16"
        if from_real and to_real:
            if is_whole:
                value = f"maths.ROUND['{way}']({value})"
            if "sat" in ways:
                value = f"np.fmax(np.fmin({value}, 1), 0)"
            shown = "float32" if target == "bf16" else f"float{target[1:]}"
            value = f"({value}).astype(np.{shown})"
        elif from_real:
            value = f"maths.to_integer({value}, '{'int' if target[0] == 's' else 'uint'}{target[1:]}', '{way or 'rz'}')"
        elif to_real:
            value = f"({value}).astype(np.{'float32' if target == 'bf16' else f'float{target[1:]}'})"
        elif "sat" in ways:
            value = (
                f"maths.to_integer_clipped({value}, '{'int' if target[0] == 's' else 'uint'}{target[1:]}')"
            )
        else:
            value = f"({value}).astype(np.{'int' if target[0] == 's' else 'uint'}{target[1:]})"
        return self.put(item.operands[0], target, value, mask)

    def _convert_pairs(self, item: Instruction, target: str, source: str, mask: str) -> str | list[str]:
        kinds = {"f16x2": "f16", "bf16x2": "bf16", "e4m3x2": "e4m3", "e5m2x2": "e5m2"}
        if source == "f32":
            # The first operand is the upper half.
            upper, lower = (self.read(operand, "f32") for operand in item.operands[1:3])
            each = [_narrow(value, kinds[target]) for value in (lower, upper)]
        else:
            held = self.read(item.operands[1], "u32" if source in ("f16x2", "bf16x2") else "u16")
            half = 16 if source in ("f16x2", "bf16x2") else 8
            words = [
                f"(({held} >> {half * place}) & {(1 << half) - 1}).astype(np.uint{half})"
                for place in range(2)
            ]
            each = [_narrow(_widen(word, kinds[source]), kinds[target]) for word in words]
        bits, half = (32, 16) if target in ("f16x2", "bf16x2") else (16, 8)
        value = (
            f"{each[0]}.astype(np.uint{bits}) | ({each[1]}.astype(np.uint{bits}) << np.uint{bits}({half}))"
        )
        return self.put(item.operands[0], f"u{bits}", value, mask)

    # --- memory -----------------------------------------------------------------------------------------------

    def address(self, place: Operand) -> str:
        """Addresses of lanes."""
        assert isinstance(place, Address), place
        kind = "u64"
        if place.base in self.entry.registers and self.entry.registers[place.base] == "w":
            kind = "u32"
        shown = self.read(place.base, kind)
        shown = shown if kind == "u64" else f"{shown}.astype(np.uint64)"
        return f"({shown} + {self._constant(place.offset, 'u64')})" if place.offset else shown

    def _write_ld(self, item: Instruction, mask: str) -> str | list[str]:
        kind, place = _kind(item.name), item.operands[1]
        assert isinstance(place, Address)
        if ".param" in item.name:
            if place.base in self.entry.registers:
                return self.put(item.operands[0], f"u{kind[1:]}", place.base, mask)
            return self.put(item.operands[0], f"u{kind[1:]}", f"parameters[{place.base!r}]", mask)
        targets = item.operands[0] if isinstance(item.operands[0], tuple) else (item.operands[0],)
        size = int(kind[1:]) // 8
        lines = [
            f"words, at, i = lanes.find({self.address(place)}, {_space(item)!r}, {size}, {len(targets)}, False, {mask})"
        ]
        view = {"s": f".view(np.int{8 * size})"}.get(kind[0], "")
        for number, target in enumerate(targets):
            assert isinstance(target, str)
            if target == "_":
                continue
            held = BITS[self.entry.registers[target]]
            shown = f"{target}s" if kind[0] == "s" else target
            assert held >= 8 * size
            lines.append(f"{shown}[i] = words[at{f' + {number}' * bool(number)}]{view}")
        return lines

    def _write_st(self, item: Instruction, mask: str) -> str | list[str]:
        kind, place = _kind(item.name), item.operands[0]
        assert isinstance(place, Address)
        if ".param" in item.name:
            return self.put(place.base, f"u{kind[1:]}", self.read(item.operands[1], f"u{kind[1:]}"), mask)
        sources = item.operands[1] if isinstance(item.operands[1], tuple) else (item.operands[1],)
        size = int(kind[1:]) // 8
        lines = [
            f"words, at, i = lanes.find({self.address(place)}, {_space(item)!r}, {size}, {len(sources)}, True, {mask})"
        ]
        for number, source in enumerate(sources):
            value = self.read(source, f"u{8 * size}")
            shown = value if value.startswith("k") else f"{value}[i]"
            lines.append(f"words[at{f' + {number}' * bool(number)}] = {shown}")
        return lines

    def _write_atom(self, item: Instruction, mask: str) -> str:
        return self._atomic(item, item.operands[0], item.operands[1:], mask)

    def _write_red(self, item: Instruction, mask: str) -> str:
        return self._atomic(item, "_", item.operands, mask)

    def _atomic(self, item: Instruction, target: Operand, rest: tuple[Operand, ...], mask: str) -> str:
        parts = item.name.split(".")
        kind = _kind(item.name)
        way = next(part for part in parts if part in ("add", "min", "max", "and", "or", "xor", "exch", "cas"))
        kind = kind if kind[0] in "sf" or kind == "bf16" else f"u{kind[1:]}"
        values = ", ".join(self.read(operand, kind) for operand in rest[1:])
        uses = sum(target in one.operands for one in self.entry.instructions)
        bits = 16 if kind == "bf16" else int(kind[1:])
        shown = "None" if target == "_" or uses == 1 else str(target)
        found = f"lanes.find({self.address(rest[0])}, {_space(item)!r}, {bits // 8}, 1, True, {mask})"
        return f"lanes.change({shown}, {found}, '{kind}', '{way}', ({values},))"

    # --- what several lanes do --------------------------------------------------------------------------------

    def _warp(self, item: Instruction, mask: str) -> str | list[str]:
        if item.head == "shfl":
            target, source, *rest = item.operands
            assert isinstance(target, str)
            target, _, truth = target.partition("|")
            told = ", ".join(self.read(operand, "u32") for operand in rest)
            assert not truth, item.text
            way = item.name.split(".")[2]
            return self.put(
                target, "u32", f"lanes.shuffle('{way}', {self.read(source, 'u32')}, {told}, {mask})", mask
            )
        if item.name.startswith(("bar.warp", "barrier.warp")):
            return "pass"
        if item.head in ("mma", "stmatrix"):
            rows = [self._row_list(operand) for operand in item.operands]
            return f"lanes.{item.head}({item.name!r}, {', '.join(rows)}, {mask})"
        raise Untranslated(item.name)

    def _row_list(self, operand: Operand) -> str:
        if isinstance(operand, Address):
            return self.address(operand)
        if isinstance(operand, str):
            if operand in self.entry.registers or operand.startswith("%"):
                return operand
            return self._constant(_number(operand, "u64"), "u64")
        return f"({''.join(f'{self.read(item, _row_kind(self.entry, item))}, ' for item in operand)})"

    def _write_wgmma(self, item: Instruction, mask: str) -> str:
        if "mma_async" in item.name:
            rows = ", ".join(self._row_list(operand) for operand in item.operands)
            return f"lanes.wgmma({item.name!r}, ({rows}), {mask})"
        if "commit_group" in item.name:
            return f"lanes.commit_products({mask})"
        if "wait_group" in item.name:
            return f"lanes.wait_products({item.operands[0]}, {mask})"
        return "pass"

    def _write_bar(self, item: Instruction, mask: str) -> str:
        if not item.name.startswith("bar.arrive"):
            raise Untranslated(item.name)
        number, count = (self.read(operand, "u32") for operand in item.operands)
        return f"lanes.arrive_only({number}, {count}, {mask})"

    def _write_mbarrier(self, item: Instruction, mask: str) -> str:
        way = item.name.split(".")[1]
        if way == "init":
            count = self.read(item.operands[1], "u32")
            return f"lanes.begin_barrier({self.address(item.operands[0])}, {count}, {mask})"
        assert (way, item.operands[0]) == ("arrive", "_"), item.text
        expected = self.read(item.operands[2], "u32") if "expect_tx" in item.name else "0"
        return f"lanes.arrive({self.address(item.operands[1])}, {expected}, {mask})"

    def _write_cp(self, item: Instruction, mask: str) -> str:
        if item.name.startswith("cp.async.bulk.commit_group"):
            return f"lanes.commit_copies({mask})"
        if item.name.startswith("cp.async.bulk.wait_group"):
            return f"lanes.wait_copies({item.operands[0]}, {mask})"
        if not item.name.startswith("cp.async.bulk.tensor.2d"):
            raise Untranslated(item.name)
        stores = ".global.shared" in item.name
        tensor, near = item.operands[:2] if stores else item.operands[1::-1]
        assert isinstance(tensor, Address)
        places = ", ".join(self.read(one, "s32") for one in tensor.coordinates)
        where = self.address(Address(tensor.base, tensor.offset))
        if stores:
            return f"lanes.store_box({where}, ({places}), {self.address(near)}, {mask})"
        shared = self.read(item.operands[3], "u16") if "multicast" in item.name else "None"
        barrier = self.address(item.operands[2])
        return f"lanes.load_box({where}, ({places}), {self.address(near)}, {barrier}, {shared}, {mask})"


def _row_kind(entry: Entry, name: str) -> str:
    return {"h": "u16", "w": "u32", "d": "u64", "p": "pred"}.get(entry.registers.get(name, ""), "u32")


def _kind(name: str) -> str:
    """The last type that a name tells."""
    kinds = [part for part in name.split(".") if TYPES.match(part)]
    if not kinds:
        raise Untranslated(name)
    return kinds[-1]


def _space(item: Instruction) -> str:
    for part in item.name.split("."):
        part = part.partition("::")[0]
        if part in ("global", "shared", "local", "const"):
            return "global" if part == "const" else part
    return "generic"


def _number(text: str, kind: str) -> int | float:
    if text.startswith(("0f", "0F")):
        return int(text[2:], 16)
    if text.startswith(("0d", "0D")):
        return int(text[2:], 16)
    if kind[0] == "f" and re.fullmatch(r"-?\d+\.\d*", text):
        return float(text)
    negative, digits = text.startswith("-"), text.lstrip("-").removesuffix("U")
    found = (
        int(digits, 0)
        if not digits.startswith("0") or digits[1:2] in ("x", "b") or digits == "0"
        else int(digits, 8)
    )
    return -found if negative else found


def _narrow(value: str, kind: str) -> str:
    if kind == "f16":
        return f"({value}).astype(np.float16).view(np.uint16)"
    if kind == "bf16":
        return f"maths.to_bf16({value})"
    return f"maths.to_byte({value}, '{kind}')"


def _widen(value: str, kind: str) -> str:
    if kind == "f16":
        return f"{value}.view(np.float16)"
    if kind == "bf16":
        return f"maths.from_bf16({value})"
    return f"maths.from_byte({value}, '{kind}')"
