"""One statement: its results, the word of its instruction, and what is kept beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lamella.base.limits import Limits
from lamella.base.source import Notes, Source
from lamella.lang.tensor.nodes import (
    Alloca,
    Barrier,
    Blas,
    CoopConstruct,
    CoopExtract,
    CoopInsert,
    CoopLoad,
    Coopmatrix,
    CoopMulAdd,
    CoopScale,
    CoopStore,
    For,
    If,
    Instruction,
    Statement,
    SubgroupBroadcast,
    SubgroupOperation,
    Type,
    Value,
    Yield,
)
from lamella.lang.tensor.parse.lexis import LOCAL, WORD
from lamella.lang.tensor.parse.values import Values
from lamella.lang.tensor.rules import syntax
from lamella.lang.tensor.words import (
    ALIASES,
    CHECKS,
    DOTTED,
    NEWER,
    OPERANDS,
    REDUCTIONS,
    STORE_FLAGS,
    TRANSPOSES,
    VALUELESS,
)

# --- linear algebra, cooperative matrices and subgroups -----------------------------------------------------


TRANSPOSED = {".n": False, ".t": True}
CHECKED = {f".{name}_checked": name for name in CHECKS}
FLAGS = {f".{name}": name for name in STORE_FLAGS}


class Matrices(Values):
    """The rules of the grammar for what a work-group or a subgroup does together."""

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
        given = len(transposes)
        transposes += [False] * (wanted - given)
        repair = _blas_head(word, transposes, atomic)
        if given < wanted:
            self.note(syntax.NO_TRANSPOSE, self.span_from(first), instruction=word, repair=repair)
        elif out_of_order:
            self.note(syntax.MODIFIER_ORDER, self.span_from(first), instruction=word, repair=repair)
        return tuple(transposes), atomic

    # --- mixed ----------------------------------------------------------------------------------------------

    def barrier(self, word: str) -> Barrier:
        """`'barrier' '.global'? '.local'?`, in any order."""
        first = self.index - 1
        found: list[str] = []
        for token in self.modifiers():
            text = self.texts[token]
            if text not in (".global", ".local") or text in found:
                self.reject_modifier(word, token, "", "a barrier takes .global and .local")
            else:
                found.append(text)
        if found == [".local", ".global"]:
            repair = "barrier.global.local"
            self.note(syntax.MODIFIER_ORDER, self.span_from(first), instruction=word, repair=repair)
        return Barrier(".global" in found, ".local" in found)

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


def _blas_head(word: str, transposes: list[bool], atomic: bool) -> str:
    """The instruction with its modifiers as the specification orders them."""
    return word + "".join(".t" if item else ".n" for item in transposes) + ".atomic" * atomic


class Statements(Matrices):
    """The rules of the grammar for `instruction`."""

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source, limits)
        self.first = 0
        """The first token of the statement that is being read."""
        self.head: Notes | None = None
        """The notes of an instruction that holds a region: they are those of the line that opens it."""
        families: dict[str, Callable[[str], Instruction]] = {
            "arith": self.arith,
            "cmp": self.compare,
            "math": self.math,
            "builtin": self.builtin,
        }
        self.openers: dict[str, Callable[[str], Instruction]] = {
            **{word: families.get(word.partition(".")[0], self.subgroup_operation) for word in DOTTED},
            **dict.fromkeys(TRANSPOSES, self.blas),
            **dict.fromkeys(("store", "store.atomic", "store.atomic_add"), self.store),
            **{f"cooperative_matrix_store{flag}": self.coop_store for flag in ("", ".atomic", ".atomic_add")},
            **{f"atomic_{name}": self.atomic for name in REDUCTIONS},
            "alloca": self.alloca,
            "barrier": self.barrier,
            "cast": self.cast,
            "constant": self.constant,
            "cooperative_matrix_construct": self.coop_construct,
            "cooperative_matrix_extract": self.coop_extract,
            "cooperative_matrix_insert": self.coop_insert,
            "cooperative_matrix_load": self.coop_load,
            "cooperative_matrix_mul_add": self.coop_mul_add,
            "cooperative_matrix_scale": self.coop_scale,
            "expand": self.expand,
            "fuse": self.fuse,
            "lifetime_stop": self.lifetime_stop,
            "load": self.load,
            "size": self.size_instruction,
            "subgroup_broadcast": self.subgroup_broadcast,
            "subview": self.subview,
            "yield": self.yield_values,
        }

    def statement(self) -> Statement:
        """`(value,+ '=')? instruction`."""
        first = self.index
        results: tuple[Value, ...] = ()
        if self.kind == LOCAL:
            results = self.locals("a value", "before '='")
            self.expect("=", "after the names of the results")
        self.first = first
        token = self.index
        word = self.instruction_word()
        instruction = self.openers[word](word)
        self.check_results(token, word.partition(".")[0], results, instruction)
        self.types_of.update(
            (value.name, kind) for value, kind in zip(results, _types(instruction), strict=False)
        )
        span, head = self.span_from(first), self.head
        self.head = None
        return Statement(results, instruction, span, self.settle(first)[1] if head is None else head)

    def instruction_word(self) -> str:
        """Take the word that begins an instruction; the specification's name for it."""
        text, span = self.text, self.span(self.index)
        word = ALIASES.get(text) or NEWER.get(text, text)
        if self.kind != WORD or word not in self.openers:
            raise self.problem("an instruction", "here")
        self.next()
        if text == "group_id":
            self.note(syntax.BARE_GROUP_ID, span)
        elif text in NEWER:
            self.note(syntax.NEWER_NAME, span, word=text, repair=word)
        return word

    def check_results(
        self, token: int, word: str, results: tuple[Value, ...], instruction: Instruction
    ) -> None:
        """Report where not as many values are named as an instruction produces; loops and branches may name none."""
        is_multiple = isinstance(instruction, (For, If))
        produced = 0 if word in VALUELESS else len(_types(instruction))
        if len(results) == produced or (is_multiple and not results):
            return
        repair = "name each of them" if produced else "leave out what stands before it"
        given = f"{_counted(len(results))} {'is' if len(results) == 1 else 'are'}"
        span, name, counted = self.span(token), self.texts[token], _counted(produced)
        self.report(syntax.RESULTS.at(span, instruction=name, produced=counted, given=given, repair=repair))

    def led_by_hoisted(self, statement: Statement, found: list[Statement]) -> Statement:
        """Put the instructions that a statement needs before it; comments above it stand above them."""
        notes = statement.notes
        above = Notes(above=notes.above, blank=notes.blank)
        found.append(replace(self.hoisted[0], notes=above))
        found += self.hoisted[1:]
        self.hoisted.clear()
        return replace(statement, notes=Notes(behind=notes.behind))


def _types(instruction: Instruction) -> tuple[Type, ...]:
    """The types of the values that an instruction produces."""
    if isinstance(instruction, (For, If)):
        return instruction.types
    if isinstance(instruction, Alloca):
        return (instruction.type,)
    found: Type | None = getattr(instruction, "type", None)
    return () if found is None else (found,)


def _counted(number: int) -> str:
    return f"{number or 'no'} value{'s' * (number != 1)}"
