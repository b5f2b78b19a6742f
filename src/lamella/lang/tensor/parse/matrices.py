"""Linear algebra, cooperative matrices and subgroups."""

from __future__ import annotations

from lamella.lang.tensor.nodes import (
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
    SubgroupBroadcast,
    SubgroupOperation,
    Yield,
)
from lamella.lang.tensor.parse.lexis import LOCAL
from lamella.lang.tensor.parse.values import Values
from lamella.lang.tensor.rules import syntax
from lamella.lang.tensor.words import CHECKS, OPERANDS, STORE_FLAGS, TRANSPOSES

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
