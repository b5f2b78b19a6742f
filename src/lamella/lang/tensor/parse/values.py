"""Instructions that compute values, and those that look at and change memory."""

from __future__ import annotations

from lamella.base.cursor import SHOWN
from lamella.lang.tensor.nodes import (
    BOOL,
    INDEX,
    Alloca,
    Arith,
    AtomicUpdate,
    Builtin,
    Cast,
    Compare,
    Constant,
    Expand,
    Fuse,
    IndexOrSize,
    LifetimeStop,
    Load,
    Math,
    Memref,
    Number,
    Scalar,
    SizeOf,
    Slice,
    Store,
    Subview,
    Type,
    Value,
)
from lamella.lang.tensor.parse.lexis import FLOAT, INT
from lamella.lang.tensor.parse.operands import Operands
from lamella.lang.tensor.rules import syntax
from lamella.lang.tensor.words import AXES, AXIS_BUILTINS, BINARY, BINARY_MATH, EXTRA_ARITH, STORE_FLAGS


class Values(Operands):
    """The rules of the grammar for scalar instructions, views, loads and stores.

    Each method is called with the word of its instruction, which has been taken.
    """

    # --- scalars --------------------------------------------------------------------------------------------

    def constant(self, word: str) -> Constant:
        """`'constant' number ':' type`."""
        value = self.number()
        if self.text == "->":
            self.note(syntax.CONSTANT_ARROW, self.span(self.next()))
            return Constant(value, self.type("after '->'"))
        return Constant(value, self.result_type("after a constant"))

    def arith(self, word: str) -> Arith:
        """`'arith.add' value ',' value ':' type`, or one operand, or three."""
        function = word.partition(".")[2]
        count = 3 if function in EXTRA_ARITH else 2 if function in BINARY else 1
        return Arith(function, self.operands(count), self.result_type("after the operands"))

    def math(self, word: str) -> Math:
        """`'math.exp' value ':' type`, or two operands."""
        function = word.partition(".")[2]
        operands = self.operands(2 if function in BINARY_MATH else 1)
        return Math(function, operands, self.result_type("after the operands"))

    def cast(self, word: str) -> Cast:
        """`'cast' value ':' type`."""
        return Cast(self.operand(), self.result_type("after the operand"))

    def builtin(self, word: str) -> Builtin:
        """`'builtin.group_id' axis? ':' type`; the first axis is the one that has no name in the specification."""
        first, function = self.index - 1, word.partition(".")[2]
        axes = "".join(self.texts[token] for token in self.modifiers())
        if axes and (axes[1:] not in AXES or function not in AXIS_BUILTINS):
            name = f"{self.texts[first]}{axes}"[:SHOWN]
            repair = "work-groups have the axes .x, .y and .z, subgroups one number: 'builtin.subgroup_id'"
            raise self.report(syntax.UNSUPPORTED.at(self.span_from(first), word=name, repair=repair))
        function += axes if axes != ".x" else ""
        return Builtin(function, self.result_type(f"after '{word}'"))

    def compare(self, word: str) -> Compare:
        """`'cmp.lt' value ',' value ':' 'bool'`; a number leniently stands for a value of the other's type."""
        tokens = [self.index]
        given: list[Value | Number] = [self._compared()]
        self.expect(",", "between operands")
        tokens.append(self.index)
        given.append(self._compared())
        type_ = self._compared_type()
        known = [self.types_of.get(item.name) for item in given if isinstance(item, Value)]
        wanted = next((item for item in known if item is not None), None if type_ == BOOL else type_)
        left, right = (
            item if isinstance(item, Value) else self.literal(token, item, wanted or _default(item))
            for token, item in zip(tokens, given, strict=True)
        )
        result = BOOL if isinstance(type_, Scalar) else type_
        return Compare(word.partition(".")[2], left, right, result)

    def _compared(self) -> Value | Number:
        if self.kind in (INT, FLOAT):
            return self.number()
        return self.operand()

    def _compared_type(self) -> Type:
        """The type behind a comparison, as it is written."""
        type_ = self.result_type("after the operands")
        if isinstance(type_, Scalar) and type_ != BOOL:
            self.note(syntax.COMPARE_TYPE, self.span(self.index - 1))
        return type_

    # --- memory ---------------------------------------------------------------------------------------------

    def load(self, word: str) -> Load:
        """`'load' value '[' index,* ']' ':' type`."""
        return Load(self.operand(), self.index_list(), self.result_type("after the indices"))

    def store(self, word: str) -> Store:
        """`'store' flag? value ',' value '[' index,* ']'`; a newer name says its flag itself."""
        newer_flag = word.partition(".")[2]
        flag = newer_flag or self.store_flag("store")
        value, operand, indices = self.operand(), self.next_operand(), self.index_list()
        if newer_flag and self.text == ":":
            self.result_type("here")
        return Store(value, operand, indices, flag)

    def atomic(self, word: str) -> AtomicUpdate | Store:
        """`'atomic_add' value ',' value '[' index,* ']' ':' type`; without a result it is a store with a flag."""
        function = word.removeprefix("atomic_")
        if self.texts[self.index - 2] != "=" and function == "add":
            repair = f"store.{word}"
            self.note(syntax.NEWER_NAME, self.span(self.index - 1), word=word, repair=repair)
            return self.store(repair)
        value, operand, indices = self.operand(), self.next_operand(), self.index_list()
        return AtomicUpdate(function, value, operand, indices, self.result_type("after the indices"))

    def store_flag(self, instruction: str) -> str:
        """`.atomic`, `.atomic_add` or nothing."""
        flag = ""
        for token in self.modifiers():
            text = self.texts[token][1:]
            if flag or text not in STORE_FLAGS:
                why = " as well" if flag else ""
                self.reject_modifier(instruction, token, why, "a store has one flag, .atomic or .atomic_add")
            else:
                flag = text
        return flag

    def size_instruction(self, word: str) -> SizeOf:
        """`'size' value '[' mode ']' ':' 'index'`."""
        operand = self.operand()
        self.expect("[", "before the mode")
        mode = self.integer("a mode", "in '[…]'")
        self.expect("]", "after the mode")
        return SizeOf(operand, mode, self.result_type("after the mode"))

    def alloca(self, word: str) -> Alloca:
        """`'alloca' dictionary? ':' memref`; where no address space is named, it is local."""
        attributes = self.dictionary("here") if self.text == "{" else None
        self.expect(":", "after 'alloca'")
        first = self.index
        type_, has_space = self.memref("after ':'")
        if not has_space:
            type_ = Memref(type_.element, type_.shape, type_.stride, True)
            written = "".join(self.texts[first : self.index - 1])
            self.note(syntax.ALLOCA_SPACE, self.span_from(first), repair=f"{written},local>")
        return Alloca(type_, attributes)

    def lifetime_stop(self, word: str) -> LifetimeStop:
        """`'lifetime_stop' value`."""
        return LifetimeStop(self.operand())

    # --- views ----------------------------------------------------------------------------------------------

    def subview(self, word: str) -> Subview:
        """`'subview' value '[' slice,* ']' ':' memref`."""
        operand = self.operand()
        self.expect("[", "before the slices")
        slices: list[Slice] = []
        if self.text != "]":
            slices.append(self.slice(operand, 0))
            while self.accept(","):
                slices.append(self.slice(operand, len(slices)))
        self.expect("]", "after the slices")
        return Subview(operand, tuple(slices), self.view_type())

    def slice(self, operand: Value, mode: int) -> Slice:
        """`offset (':' size)?`; a lone `:` leniently takes the whole mode."""
        if self.text == ":":
            return self.whole_mode(operand, mode)
        offset = self.index_or_size("an index or a slice", "in '[…]'")
        return Slice(offset, self.index_or_size("a size", "after ':'") if self.accept(":") else 0)

    def whole_mode(self, operand: Value, mode: int) -> Slice:
        """The slice that a lone `:` stands for."""
        token = self.next()
        type_ = self.types_of.get(operand.name)
        if not isinstance(type_, Memref) or mode >= type_.order:
            self.report(syntax.NO_SIZE.at(self.span(token), mode=mode, operand=operand.name))
            return Slice(0)
        static = type_.shape[mode]
        size: IndexOrSize = self.size_of(operand, mode, token) if static is None else static
        repair = (
            f"0:{static}" if static is not None else f"0:%n with %n = size %{operand.name}[{mode}] : index"
        )
        self.note(syntax.LONE_COLON, self.span(token), mode=mode, repair=repair)
        return Slice(0, size)

    def expand(self, word: str) -> Expand:
        """`'expand' value '[' mode '->' size ('x' size)+ ']' ':' memref`."""
        operand = self.operand()
        self.expect("[", "before the mode")
        mode = self.integer("a mode", "in '[…]'")
        self.expect("->", "after the mode")
        sizes = [self.index_or_size("a size", "after '->'")]
        self.expect("x", "between the sizes")
        sizes += self.separated(lambda: self.index_or_size("a size", "after 'x'"), "x")
        self.expect("]", "after the sizes")
        return Expand(operand, mode, tuple(sizes), self.view_type())

    def fuse(self, word: str) -> Fuse:
        """`'fuse' value '[' mode ',' mode ']' ':' memref`."""
        operand = self.operand()
        self.expect("[", "before the modes")
        first = self.integer("a mode", "in '[…]'")
        self.expect(",", "between the modes")
        last = self.integer("a mode", "after ','")
        self.expect("]", "after the modes")
        return Fuse(operand, first, last, self.view_type())

    def view_type(self) -> Memref:
        """`':' memref`."""
        self.expect(":", "after ']'")
        return self.memref("after ':'")[0]


def _default(number: Number) -> Type:
    """The type of a number where nothing else says it."""
    return Scalar("f64") if isinstance(number, float) else INDEX
