"""Loops over integers as machine code: functions in a small subset of Python, compiled with LLVM.

A function of the subset takes one array of 64-bit integers, its memory `m`, and integers, and gives an integer. Its
statements are assignments to names and to `m[…]`, `if`, `while`, `break`, `return` and calls of other functions of the
subset; its expressions `+ - * // %`, comparisons, `and`, `or`, `not`, and integer constants of the module. It is plain
Python too, and means the same there as long as no number leaves 64 bits: so it can be read, stepped through, and
judged without a compiler.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from functools import partial
from textwrap import dedent
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lamella.base.optional import Foreign, need

Words: TypeAlias = MutableSequence[int]
"""The memory that functions of the subset work on; machine code takes an array."""
Memory: TypeAlias = NDArray[np.int64]
IntegerFunction: TypeAlias = Callable[..., int]

_SIGNS = MappingProxyType({ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"})
_COMPARISONS = MappingProxyType(
    {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge"}
)
_DIVISION = """
define internal i64 @floor_divide(i64 %a, i64 %b) alwaysinline {
  %q = sdiv i64 %a, %b
  %r = srem i64 %a, %b
  %x = xor i64 %r, %b
  %negative = icmp slt i64 %x, 0
  %inexact = icmp ne i64 %r, 0
  %down = and i1 %negative, %inexact
  %less = sub i64 %q, 1
  %found = select i1 %down, i64 %less, i64 %q
  ret i64 %found
}
"""


def compile_functions(functions: Sequence[IntegerFunction]) -> Callable[[Memory], int]:
    """The machine code of the last function, which takes the memory alone; it may call the others by name."""
    names = {function.__name__ for function in functions}
    texts = [_DIVISION, *(_Translation(function, names).text() for function in functions)]
    last = functions[-1].__name__
    texts.append(f"define i64 @entry(ptr %m) {{\n  %found = call i64 @{last}(ptr %m)\n  ret i64 %found\n}}\n")
    engine = _assemble("\n".join(texts))
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(engine.get_function_address("entry"))
    return partial(_call, engine, call)


def _call(engine: Foreign, call: Callable[[int], int], memory: Memory) -> int:
    """Call machine code; the engine that owns it lives as long as the partial application of this does."""
    assert engine is not None
    return call(memory.ctypes.data)


def _assemble(text: str) -> Foreign:
    binding = need("llvmlite.binding")
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(text)
    module.verify()
    machine = binding.Target.from_default_triple().create_target_machine(opt=2)
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


class _Translation:
    """One function on its way to LLVM IR; variables are stack slots, which LLVM turns into registers."""

    def __init__(self, function: IntegerFunction, names: set[str]) -> None:
        parsed = ast.parse(dedent(inspect.getsource(function))).body[0]
        assert isinstance(parsed, ast.FunctionDef)
        self.node = parsed
        self.names = names
        self.constants: Mapping[str, object] = inspect.unwrap(function).__globals__
        self.arguments = [item.arg for item in parsed.args.args][1:]
        self.lines: list[str] = []
        self.slots: dict[str, None] = dict.fromkeys(self.arguments)
        self.count = 0
        self.loops: list[str] = []

    def text(self) -> str:
        """The definition of the function."""
        self.block(self.node.body)
        arguments = ", ".join(["ptr %m", *(f"i64 %in_{name}" for name in self.arguments)])
        head = [f"define internal i64 @{self.node.name}({arguments}) {{", "entry:"]
        head += [f"  %v_{name} = alloca i64" for name in self.slots]
        head += [f"  store i64 %in_{name}, ptr %v_{name}" for name in self.arguments]
        return "\n".join([*head, *self.lines, "  ret i64 0", "}"]) + "\n"

    def fresh(self) -> str:
        """A name that nothing has yet."""
        self.count += 1
        return f"t{self.count}"

    def emit(self, instruction: str) -> str:
        """Append an instruction; the name of its result."""
        name = self.fresh()
        self.lines.append(f"  %{name} = {instruction}")
        return f"%{name}"

    def label(self, name: str) -> None:
        """Begin a block, into which the one before falls."""
        self.lines += [f"  br label %{name}", f"{name}:"]

    # --- statements -----------------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt]) -> None:
        """Translate statements one after the other."""
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Translate one statement."""
        match node:
            case ast.Assign(targets=[target], value=value):
                self.store(target, self.value(value))
            case ast.AugAssign(target=target, op=op, value=value):
                before = self.value(target)
                self.store(target, self.binary(op, before, self.value(value)))
            case ast.If(test=test, body=body, orelse=orelse):
                self.branch(test, body, orelse)
            case ast.While(test=test, body=body):
                self.loop(test, body)
            case ast.Break():
                self.lines += [f"  br label %{self.loops[-1]}", f"{self.fresh()}:"]
            case ast.Return(value=value):
                result = "0" if value is None else self.value(value)
                self.lines += [f"  ret i64 {result}", f"{self.fresh()}:"]
            case ast.Expr(value=ast.Call() as call):
                self.value(call)
            case ast.Expr(value=ast.Constant()):
                pass
            case _:
                raise SyntaxError(f"{self.node.name}: {ast.unparse(node)} is not of the subset")

    def branch(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        """Translate an `if`."""
        then, other, end = self.fresh(), self.fresh(), self.fresh()
        self.condition(test, then, other)
        self.lines.append(f"{then}:")
        self.block(body)
        self.lines += [f"  br label %{end}", f"{other}:"]
        self.block(orelse)
        self.label(end)

    def loop(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        """Translate a `while`."""
        head, inside, end = self.fresh(), self.fresh(), self.fresh()
        self.label(head)
        self.condition(test, inside, end)
        self.lines.append(f"{inside}:")
        self.loops.append(end)
        self.block(body)
        self.loops.pop()
        self.lines += [f"  br label %{head}", f"{end}:"]

    def store(self, target: ast.expr, value: str) -> None:
        """Assign to a name or to an element of the memory."""
        place = f"%v_{target.id}" if isinstance(target, ast.Name) else self.element(target)
        if isinstance(target, ast.Name):
            self.slots[target.id] = None
        self.lines.append(f"  store i64 {value}, ptr {place}")

    # --- expressions ----------------------------------------------------------------------------------------

    def element(self, node: ast.expr) -> str:
        """The address of `m[…]`."""
        assert isinstance(node, ast.Subscript)
        return self.emit(f"getelementptr i64, ptr %m, i64 {self.value(node.slice)}")

    def value(self, node: ast.expr) -> str:
        """The value of an expression: a register or a literal."""
        match node:
            case ast.Constant(value=int() as number):
                return str(int(number))
            case ast.Name(id=name) if name in self.slots:
                return self.emit(f"load i64, ptr %v_{name}")
            case ast.Name(id=name):
                constant = self.constants[name]
                assert isinstance(constant, int), name
                return str(constant)
            case ast.Subscript():
                return self.emit(f"load i64, ptr {self.element(node)}")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.emit(f"sub i64 0, {self.value(operand)}")
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.value(left), self.value(right))
            case ast.Call(func=ast.Name(id=name), args=[_, *rest]) if name in self.names:
                given = ", ".join(["ptr %m", *(f"i64 {self.value(item)}" for item in rest)])
                return self.emit(f"call i64 @{name}({given})")
            case _:
                raise SyntaxError(f"{self.node.name}: {ast.unparse(node)} is not of the subset")

    def binary(self, op: ast.operator, left: str, right: str) -> str:
        """The result of an operation on two values; quotients are rounded down, as Python does."""
        if isinstance(op, ast.FloorDiv | ast.Mod):
            quotient = self.emit(f"call i64 @floor_divide(i64 {left}, i64 {right})")
            if isinstance(op, ast.FloorDiv):
                return quotient
            return self.emit(f"sub i64 {left}, {self.emit(f'mul i64 {quotient}, {right}')}")
        return self.emit(f"{_SIGNS[type(op)]} i64 {left}, {right}")

    def condition(self, node: ast.expr, then: str, other: str) -> None:
        """Branch by the truth of an expression, evaluating no more of it than Python does."""
        match node:
            case ast.BoolOp(op=op, values=[*first, last]):
                for item in first:
                    following = self.fresh()
                    passed = isinstance(op, ast.And)
                    self.condition(item, following if passed else then, other if passed else following)
                    self.lines.append(f"{following}:")
                self.condition(last, then, other)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.condition(operand, other, then)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                first_value, second_value = self.value(left), self.value(right)
                found = self.emit(f"icmp {_COMPARISONS[type(op)]} i64 {first_value}, {second_value}")
                self.lines.append(f"  br i1 {found}, label %{then}, label %{other}")
            case _:
                found = self.emit(f"icmp ne i64 {self.value(node)}, 0")
                self.lines.append(f"  br i1 {found}, label %{then}, label %{other}")
