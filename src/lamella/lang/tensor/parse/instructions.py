"""Instructions of the tensor language and their operands; those that hold regions are read by the parser."""

from __future__ import annotations

from itertools import count

from lamella.base.cursor import SHOWN
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.lang.tensor.nodes import (
    BOOL,
    INDEX,
    Alloca,
    Arith,
    AtomicUpdate,
    Barrier,
    Blas,
    Builtin,
    Cast,
    Compare,
    Constant,
    CoopConstruct,
    CoopExtract,
    CoopInsert,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopReduce,
    CoopScale,
    CoopStore,
    Expand,
    Fuse,
    IndexOrSize,
    Instruction,
    LifetimeStop,
    Load,
    Math,
    Memref,
    Number,
    Scalar,
    SizeOf,
    Slice,
    Statement,
    Store,
    SubgroupBroadcast,
    SubgroupOperation,
    Subview,
    Type,
    Value,
    Yield,
)
from lamella.lang.tensor.nodes.types import FLOATS
from lamella.lang.tensor.parse.tokens import FLOAT, INT, LOCAL, MODIFIER, TensorTokens
from lamella.lang.tensor.rules import syntax
from lamella.lang.tensor.words import (
    AXES,
    AXIS_BUILTINS,
    BINARY,
    BINARY_MATH,
    CHECKS,
    EXTRA_ARITH,
    OPERANDS,
    STORE_FLAGS,
    SUBGROUP_AXES,
    TRANSPOSES,
)

TRANSPOSED = {".n": False, ".t": True}
CHECKED = {f".{name}_checked": name for name in CHECKS}
FLAGS = {f".{name}": name for name in STORE_FLAGS}
REDUCED = {".row": "row", ".column": "column"}


class TensorInstructions(TensorTokens):
    """The rules of the grammar from operands to instructions without regions.

    A number where only a value may stand becomes a constant before the instruction. For that, and for a lone `:`, the
    types of the values of a function are remembered: a visible name has the type that it was given last.
    The method of an instruction is called with its word, which has been taken.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source, limits)
        self.types_of: dict[str, Type] = {}
        self.hoisted: list[Statement] = []
        self._numbers = count()
        self._taken: frozenset[str] | None = None

    # --- what stands before an instruction ------------------------------------------------------------------

    def hoist(self, instruction: Instruction, type_: Type, token: int) -> Value:
        """Put an instruction before the one that is being read; the value it produces."""
        span = self.span(token)
        value = Value(self.fresh_name(), span)
        self.types_of[value.name] = type_
        self.hoisted.append(Statement((value,), instruction, span))
        return value

    def fresh_name(self) -> str:
        """A name that stands nowhere in the text."""
        # Taken from all tokens, those of later functions too: the name stands nowhere in the text.
        if self._taken is None:
            self._taken = frozenset(text[1:] for text in self.texts if text.startswith("%"))
        return next(name for number in self._numbers if (name := f"c{number}") not in self._taken)

    def literal(self, token: int, number: Number, type_: Type) -> Value:
        """The value of a number that stands where only a value may stand."""
        if type(number) is int and isinstance(type_, Scalar) and type_.name in FLOATS:
            number = float(number)
        value = self.hoist(Constant(number, type_), type_, token)
        text = self.texts[token]
        self.note(
            syntax.LITERAL_OPERAND, self.span(token), text=text, name=value.name, type=_type_word(type_)
        )
        return value

    def size_of(self, operand: Value, mode: int, token: int) -> Value:
        """The size of a mode that only the run knows."""
        return self.hoist(SizeOf(operand, mode), INDEX, token)

    # --- operands -------------------------------------------------------------------------------------------

    def operand(self) -> Value:
        """A value that an instruction takes."""
        return self.local("a value", "as an operand")

    def next_operand(self) -> Value:
        """`',' value`."""
        self.expect(",", "between operands")
        return self.operand()

    def operands(self, count: int) -> tuple[Value, ...]:
        """As many values as an instruction takes, with commas between them."""
        return (self.operand(), *(self.next_operand() for _ in range(count - 1)))

    def index_value(self) -> Value:
        """An index of an element, a value or leniently a number."""
        if self.kind == INT:
            token = self.index
            return self.literal(token, self.integer("an index", "here"), INDEX)
        return self.local("an index", "in '[…]'")

    def index_list(self) -> tuple[Value, ...]:
        """`'[' index,* ']'`."""
        self.expect("[", "before the indices")
        found = [] if self.text == "]" else self.separated(self.index_value)
        self.expect("]", "after the indices")
        return tuple(found)

    def position(self) -> tuple[Value, Value]:
        """`'[' index ',' index ']'`."""
        self.expect("[", "before the position")
        row = self.index_value()
        self.expect(",", "between the row and the column")
        column = self.index_value()
        self.expect("]", "after the position")
        return row, column

    def index_or_size(self, what: str, where: str) -> IndexOrSize:
        """A value or a number."""
        if self.kind == LOCAL:
            return self.local(what, where)
        return self.integer(what, where)

    def number(self) -> Number:
        """A constant of any kind."""
        if self.text in ("true", "false"):
            return self.texts[self.next()] == "true"
        if self.kind == INT:
            return self.integer("a constant", "here")
        if self.kind == FLOAT:
            return self.real("here")
        if not self.accept("["):
            raise self.problem("a constant", "after 'constant'")
        real = self.real("as the real part")
        self.expect(",", "between the parts of a complex number")
        imaginary = self.real("as the imaginary part")
        self.expect("]", "after a complex number")
        return real, imaginary

    def modifiers(self) -> list[int]:
        """The tokens of the modifiers ahead."""
        tokens = []
        while self.kind == MODIFIER:
            tokens.append(self.next())
        return tokens

    def reject_modifier(self, instruction: str, token: int, why: str, repair: str) -> None:
        """Report a modifier that an instruction does not take there, and read on without it."""
        span, text = self.span(token), self.texts[token][:SHOWN]
        self.report(syntax.MODIFIER.at(span, instruction=instruction, modifier=text, why=why, repair=repair))

    # --- scalars --------------------------------------------------------------------------------------------

    def constant(self, word: str) -> Constant:
        """`'constant' number ':' type`."""
        first, value = self.index, self.number()
        span = self.span_from(first)
        if self.text == "->":
            self.note(syntax.CONSTANT_ARROW, self.span(self.next()))
            return Constant(value, self.type("after '->'"), span)
        return Constant(value, self.result_type("after a constant"), span)

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
        """`'builtin.group_id' axis? ':' type`; of work-groups the first axis has no name in the specification."""
        first, function = self.index - 1, word.partition(".")[2]
        axes = "".join(self.texts[token] for token in self.modifiers())
        if axes and (axes[1:] not in AXES or function not in (*AXIS_BUILTINS, *SUBGROUP_AXES)):
            name = f"{self.texts[first]}{axes}"[:SHOWN]
            repair = "work-groups and subgroups have the axes .x, .y and .z, work-items one number"
            raise self.report(syntax.UNSUPPORTED.at(self.span_from(first), word=name, repair=repair))
        function += axes if axes != ".x" or function in SUBGROUP_AXES else ""
        return Builtin(function, self.result_type(f"after '{word}'"))

    def compare(self, word: str) -> Compare:
        """`'cmp.lt' value ',' value ':' 'bool'`; a number leniently stands for a value of the other's type."""
        tokens = [self.index]
        given: list[Value | Number] = [self._compared()]
        self.expect(",", "between operands")
        tokens.append(self.index)
        given.append(self._compared())
        type_ = self.result_type("after the operands")
        written = self.span(self.index - 1)
        known = [self.types_of.get(item.name) for item in given if isinstance(item, Value)]
        wanted = next((item for item in known if item is not None), None if type_ == BOOL else type_)
        left, right = (
            item if isinstance(item, Value) else self.literal(token, item, wanted or _default(item))
            for token, item in zip(tokens, given, strict=True)
        )
        if type_ != BOOL and isinstance(type_, Scalar) and type_ == wanted:
            self.note(syntax.COMPARE_TYPE, written)
            type_ = BOOL
        return Compare(word.partition(".")[2], left, right, type_)

    def _compared(self) -> Value | Number:
        if self.kind in (INT, FLOAT):
            return self.number()
        return self.operand()

    # --- memory ---------------------------------------------------------------------------------------------

    def load(self, word: str) -> Load:
        """`'load' value '[' index,* ']' ':' type`."""
        return Load(self.operand(), self.index_list(), self.result_type("after the indices"))

    def store(self, word: str) -> Store:
        """`'store' flag? value ',' value '[' index,* ']'`; a newer name says its flag itself."""
        newer_flag = word.partition(".")[2]
        flag = newer_flag or self.store_flag("store")
        value, operand, indices = self.operand(), self.next_operand(), self.index_list()
        if newer_flag and self.accept(":"):
            stored = self.types_of.get(value.name)
            if isinstance(stored, Scalar) and self.text != stored.name:
                raise self.problem(f"'{stored.name}'", f"as the type of '%{value.name}'")
            self.type("after ':'")
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

    # --- collective -----------------------------------------------------------------------------------------

    def blas(self, word: str) -> Blas:
        """`'gemm' transpose transpose '.atomic'? value,+` and its kind."""
        transposes, atomic = self.blas_modifiers(word)
        operands = [self.operand(), self.next_operand()]
        mode = None
        if word == "cumsum":
            self.expect(",", "between operands")
            mode = self.integer("the mode of the sum", "as the third operand")
        while len(operands) < OPERANDS[word]:
            operands.append(self.next_operand())
        return Blas(word, tuple(operands), transposes, atomic, mode)

    def blas_modifiers(self, word: str) -> tuple[tuple[bool, ...], bool]:
        """Transposes and `.atomic`; in a newer version `.atomic` stands first and transposes may be left out."""
        first, wanted = self.index - 1, TRANSPOSES[word]
        transposes: list[bool] = []
        atomic = out_of_order = False
        for token in self.modifiers():
            text = self.texts[token]
            if text in TRANSPOSED and len(transposes) < wanted:
                transposes.append(TRANSPOSED[text])
                out_of_order = out_of_order or atomic
            elif text == ".atomic" and not atomic:
                atomic = True
            else:
                self.reject_modifier(word, token, "", f"write '{_blas_head(word, transposes, atomic)}'")
        written = len(transposes)
        transposes += [False] * (wanted - written)
        repair = _blas_head(word, transposes, atomic)
        if written < wanted:
            self.note(syntax.NO_TRANSPOSE, self.span_from(first), instruction=word, repair=repair)
        elif out_of_order:
            self.note(syntax.MODIFIER_ORDER, self.span_from(first), instruction=word, repair=repair)
        return tuple(transposes), atomic

    # --- mixed ----------------------------------------------------------------------------------------------

    def barrier(self, word: str) -> Barrier:
        """`'barrier' '.global'? '.local'?`, in any order."""
        first = self.index - 1
        spaces: list[str] = []
        for token in self.modifiers():
            text = self.texts[token]
            if text not in (".global", ".local") or text in spaces:
                self.reject_modifier(word, token, "", "a barrier takes .global and .local")
            else:
                spaces.append(text)
        if spaces == [".local", ".global"]:
            repair = "barrier.global.local"
            self.note(syntax.MODIFIER_ORDER, self.span_from(first), instruction=word, repair=repair)
        return Barrier(".global" in spaces, ".local" in spaces)

    def yield_values(self, word: str) -> Yield:
        """`'yield' '(' value,* ')'`."""
        self.expect("(", "after 'yield'")
        values = self.locals("a value", "after 'yield'") if self.kind == LOCAL else ()
        self.expect(")", "after the values")
        return Yield(values)

    # --- cooperative matrices -------------------------------------------------------------------------------

    def coop_load(self, word: str) -> CoopLoad:
        """`'cooperative_matrix_load' transpose checked? value '[' index ',' index ']' ':' coopmatrix`."""
        first = self.index - 1
        transposed: bool | None = None
        checked, out_of_order = "", False
        for token in self.modifiers():
            text = self.texts[token]
            if text in TRANSPOSED and transposed is None:
                transposed, out_of_order = TRANSPOSED[text], bool(checked)
            elif text in CHECKED and not checked:
                checked = CHECKED[text]
            else:
                self.reject_modifier(word, token, "", f"write '{word}.n.rows_checked' or the like")
        repair = f"{word}{'.t' if transposed else '.n'}{f'.{checked}_checked' * bool(checked)}"
        if transposed is None:
            self.note(syntax.NO_TRANSPOSE, self.span_from(first), instruction=word, repair=repair)
        elif out_of_order:
            self.note(syntax.MODIFIER_ORDER, self.span_from(first), instruction=word, repair=repair)
        operand = self.operand()
        row, column = self.position()
        return CoopLoad(operand, row, column, self.coop_type(), bool(transposed), checked)

    def coop_store(self, word: str) -> CoopStore:
        """`'cooperative_matrix_store' checked? flag? value ',' value '[' index ',' index ']'`."""
        checked, flag = self.coop_store_modifiers(*word.partition(".")[::2])
        value, operand = self.operand(), self.next_operand()
        row, column = self.position()
        return CoopStore(value, operand, row, column, checked, flag)

    def coop_store_modifiers(self, word: str, flag: str) -> tuple[str, str]:
        """What is checked, and the flag; a newer name says its flag itself."""
        first, known, checked = self.index - 1, flag, ""
        out_of_order = False
        for token in self.modifiers():
            text = self.texts[token]
            if text in CHECKED and not checked:
                checked, out_of_order = CHECKED[text], flag != known
            elif text in FLAGS and not flag:
                flag = FLAGS[text]
            else:
                self.reject_modifier(word, token, "", f"write '{word}.rows_checked.atomic' or the like")
        if out_of_order:
            repair = f"{word}.{checked}_checked.{flag}"
            self.note(syntax.MODIFIER_ORDER, self.span_from(first), instruction=word, repair=repair)
        return checked, flag

    def coop_mul_add(self, word: str) -> CoopMulAdd:
        """`'cooperative_matrix_mul_add' value ',' value ',' value ':' coopmatrix`."""
        operands = self.operand(), self.next_operand(), self.next_operand()
        return CoopMulAdd(*operands, self.coop_type())

    def coop_scale(self, word: str) -> CoopScale:
        """`'cooperative_matrix_scale' value ',' value ':' coopmatrix`."""
        return CoopScale(self.operand(), self.next_operand(), self.coop_type())

    def coop_construct(self, word: str) -> CoopConstruct:
        """`'cooperative_matrix_construct' value ':' coopmatrix`."""
        return CoopConstruct(self.operand(), self.coop_type())

    def coop_reduce(self, word: str) -> CoopReduce:
        """`'cooperative_matrix_reduce_add' '.row'|'.column' value ':' coopmatrix`."""
        mode = ""
        for token in self.modifiers():
            text = self.texts[token]
            if text not in REDUCED or mode:
                self.reject_modifier(word, token, "", f"write '{word}.column' or '{word}.row'")
            mode = REDUCED[text]
        if not mode:
            self.problem("'.column' or '.row'", f"after '{word}'")
        function = word.removeprefix("cooperative_matrix_reduce_")
        return CoopReduce(function, mode, self.operand(), self.coop_type())

    def coop_extract(self, word: str) -> CoopExtract:
        """`'cooperative_matrix_extract' value '[' integer ']' ':' type`."""
        operand, number = self.operand(), self.component()
        return CoopExtract(operand, number, self.result_type("after the component"))

    def coop_insert(self, word: str) -> CoopInsert:
        """`'cooperative_matrix_insert' value ',' value '[' integer ']' ':' coopmatrix`."""
        scalar, operand, number = self.operand(), self.next_operand(), self.component()
        return CoopInsert(scalar, operand, number, self.coop_type())

    def component(self) -> int:
        """`'[' integer ']'`."""
        self.expect("[", "before the component")
        number = self.integer("the number of a component", "in '[…]'")
        self.expect("]", "after the component")
        return number

    def coop_type(self) -> Coopmatrix:
        """`':' coopmatrix`."""
        self.expect(":", "after the operands")
        return self.coopmatrix("after ':'")

    # --- subgroups ------------------------------------------------------------------------------------------

    def subgroup_broadcast(self, word: str) -> SubgroupBroadcast:
        """`'subgroup_broadcast' value ',' value ':' type`."""
        operands = self.operand(), self.next_operand()
        return SubgroupBroadcast(*operands, self.result_type("after the operands"))

    def subgroup_operation(self, word: str) -> SubgroupOperation:
        """`'subgroup_add.reduce' value ':' type`."""
        name, _, form = word.partition(".")
        function = name.removeprefix("subgroup_")
        return SubgroupOperation(function, form, self.operand(), self.result_type("after the operand"))


def _type_word(type_: Type) -> str:
    return type_.name if isinstance(type_, Scalar) else "index"


def _default(number: Number) -> Type:
    """The type of a number where nothing else says it."""
    return Scalar("f64") if isinstance(number, float) else INDEX


def _blas_head(word: str, transposes: list[bool], atomic: bool) -> str:
    """The instruction with its modifiers as the specification orders them."""
    return word + "".join(".t" if item else ".n" for item in transposes) + ".atomic" * atomic
