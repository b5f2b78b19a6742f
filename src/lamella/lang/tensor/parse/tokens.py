"""Tokens of the tensor language: identifiers, numbers, strings and words; types and attributes."""

from __future__ import annotations

import math
import re

from lamella.base.cursor import COMMENT, SHOWN, Lexer, SyntaxProblem
from lamella.base.diagnostic import ERROR, Diagnostic, Rule
from lamella.base.limits import LARGEST, Limits
from lamella.base.source import Source, Span
from lamella.base.suggest import nearest
from lamella.base.trivia import TriviaCursor
from lamella.lang.tensor.nodes import (
    Attribute,
    Coopmatrix,
    Dictionary,
    DictionaryEntry,
    Group,
    Memref,
    Scalar,
    Size,
    Text,
    Type,
    Value,
    make_memref,
)
from lamella.lang.tensor.nodes.types import INTEGERS, KEYS, USES
from lamella.lang.tensor.rules import syntax
from lamella.lang.tensor.words import ELEMENTS, OTHER_NAMES, SCALARS, UNSUPPORTED, WORDS

LOCAL, GLOBAL, WORD, MODIFIER, SIGN = "local", "global", "word", "modifier", "sign"
INT, FLOAT, STRING, ODD, NAMELESS, OPEN = "int", "float", "string", "odd", "nameless", "open"

IDENTIFIER = r"(?:[A-Za-z][0-9A-Za-z_]*+|[0-9]++)"
# `f32x16` is three tokens, `2x8` as well; all other words end where a letter, a digit or an underscore does not follow.
WORDS_PATTERN = (
    rf"(?:{'|'.join(ELEMENTS)})(?=x(?![A-Za-z_]))|x(?=[0-9])"
    r"|(?:arith|cmp|math|builtin|subgroup_(?:add|max|min))\.[A-Za-z_][0-9A-Za-z_]*+|[A-Za-z_][0-9A-Za-z_]*+"
)
DECIMAL = r"(?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+\-]?[0-9]++)?+|[0-9]++[eE][+\-]?[0-9]++"
HEX = (
    r"0x(?:[0-9A-Fa-f]++\.[0-9A-Fa-f]*+|\.[0-9A-Fa-f]++)(?:[pP][+\-]?[0-9]++)?+"
    r"|0x[0-9A-Fa-f]++[pP][+\-]?[0-9]++"
)
# FLOAT stands before WORD, for `inf` and `nan` look like words; ODD is what begins like a number and is none.
LEXER = Lexer(
    {
        LOCAL: rf"%{IDENTIFIER}",
        GLOBAL: rf"@{IDENTIFIER}",
        FLOAT: rf"[+\-]?(?:{HEX}|{DECIMAL}|inf|nan)(?![0-9A-Za-z_.])",
        WORD: WORDS_PATTERN,
        MODIFIER: r"\.[A-Za-z_][0-9A-Za-z_]*+",
        INT: r"[+\-]?[0-9]++(?![0-9A-Za-wyz_.])",
        SIGN: r"->|[=,()\[\]:{}<>?]",
        ODD: r"[+\-]?\.?[0-9](?:[eEpP][+\-][0-9]|[0-9A-Za-z_.])*+",
        NAMELESS: r"[%@][0-9A-Za-z_]*+",
        STRING: r'"[^"\x00-\x1f]*+"',
        OPEN: r'"[^\r\n]*+',
        COMMENT: r";[^\n]*+",
    },
    skip=r"[ \t\v\r\n]*+",
    by_lines=True,
)
DIGITS = len(str(LARGEST))
MOST_SUGGESTIONS = 50
"""Finding a word that is close takes long, and nobody reads more suggestions than that."""
DEEPEST = 64
"""Deeper nesting would meet the limit of Python's own stack, here, in a later phase or where nodes are compared."""


OTHER_TYPES = ("float", "double", "half", "bfloat", "int", "uint", "u8", "u16", "u32", "u64", "complex")
"""What other languages call their numbers."""
ELEMENT_TYPES = frozenset(ELEMENTS)
INTEGER_TYPES = frozenset(INTEGERS)


class TensorTokens(TriviaCursor):
    """A token cursor that knows the words of the tensor language, its types and its attributes."""

    def __init__(self, source: Source, limits: Limits) -> None:
        # By the core rules a NUL ends the program.
        nul = source.text.find("\0")
        tokens = LEXER.cut(source, 0, None if nul < 0 else nul)
        super().__init__(source, tokens, syntax.SYNTAX, syntax.BAD_CHARACTER)
        self.limits = limits
        self.depth_left = self._deepest = min(limits.max_depth, DEEPEST)
        self.error_count = 0
        self.open_braces = 0
        """Braces of dictionaries that are open; what leaves a statement must know of them."""
        self._noted: set[Rule] = set()
        self._suggested = 0
        self._too_deep = False
        if nul >= 0:
            rest = len(source.text) - nul - 1
            self.report(syntax.NUL.at(Span(source, nul, nul + 1), count=rest))

    # --- what is wrong --------------------------------------------------------------------------------------

    def report(self, finding: Diagnostic) -> SyntaxProblem:
        """Record a finding and give the exception that leaves the statement, to be raised or not."""
        self.error_count += finding.severity == ERROR
        return super().report(finding)

    def note(self, rule: Rule, span: Span, **values: str | int) -> None:
        """Say that a spelling is not the specification's, once for each kind of them."""
        if rule not in self._noted:
            self._noted.add(rule)
            self.report(rule.at(span, hint=None, labels=(), **values))

    def problem(self, wanted: str, where: str, hint: str = "") -> SyntaxProblem:
        """Record what is wrong at the token ahead: what is no token at all is more wrong than a misplaced one."""
        span, text = self.span(self.index), self.text[:SHOWN]
        if self.kind == ODD:
            return self.report(syntax.NUMBER_FORM.at(span, text=text))
        if self.kind == NAMELESS:
            return self.report(syntax.IDENTIFIER_FORM.at(span, text=text))
        if self.kind == OPEN:
            return self.report(syntax.OPEN_STRING.at(span, text=text))
        if self.kind == WORD and (written := self.written_word()) in OTHER_NAMES:
            whole, repair = Span(self.source, span.start, span.start + len(written)), OTHER_NAMES[written]
            return self.report(
                syntax.UNKNOWN_WORD.at(whole, text=written, repair=f"in this language it is '{repair}'")
            )
        if self.kind == WORD and self.text not in WORDS:
            return self.report(syntax.UNKNOWN_WORD.at(span, text=text, repair=self._suggestion()))
        if self.text in UNSUPPORTED:
            repair = "write what it does in the instructions of the specification"
            return self.report(syntax.UNSUPPORTED.at(span, word=text, repair=repair))
        if not hint and self.text[:1] in "0123456789.+-" and wanted in ("a value", "an instruction"):
            hint = f"a number is named first: %c = constant {text} : {'f32' if '.' in text else 'index'}"
        return super().problem(wanted, where, hint)

    def _suggestion(self) -> str:
        """The word that somebody may have meant, the part behind a dot taken along."""
        self._suggested += 1
        if self._suggested > MOST_SUGGESTIONS:
            return ""
        written = self.written_word()
        if written.startswith(OTHER_TYPES):
            return f"elements are {', '.join(SCALARS)}"
        close = nearest(written, sorted(WORDS - UNSUPPORTED))
        return f"did you mean '{close[0]}'?" if close else "names begin with '%' or '@'"

    def written_word(self) -> str:
        """The word ahead with what follows it at once: a misspelt `airth` of `airth.add`."""
        end = self.span(self.index).end
        suffix = re.match(r"\.\w{1,30}", self.source.text[end : end + 31])
        return self.text[:SHOWN] + (suffix.group() if suffix else "")

    def exceed(self, token: int, what: str, limit: int, option: str) -> SyntaxProblem:
        """Report that a limit is passed."""
        return self.report(syntax.LIMIT.at(self.span(token), what=what, limit=limit, option=option))

    def too_deep(self, where: str) -> SyntaxProblem:
        """Report that the nesting limit is reached, once: what lies as deep beside it is not read either."""
        what, span, limit = f"the nesting {where}", self.span(self.index), self._deepest
        hint = "write what is inside as a kernel of its own" if limit == DEEPEST else None
        if not self._too_deep:
            self._too_deep = True
            self.report(syntax.LIMIT.at(span, hint=hint, what=what, limit=limit, option="max_depth"))
        return SyntaxProblem()

    # --- identifiers ----------------------------------------------------------------------------------------

    def local(self, what: str, where: str) -> Value:
        """`%name` or `%12`."""
        token = self.expect_kind(LOCAL, what, where)
        return Value(self._bare(token), self.span(token))

    def locals(self, what: str, where: str) -> tuple[Value, ...]:
        """One or more local identifiers with commas between them."""
        return tuple(self.separated(lambda: self.local(what, where)))

    def global_name(self, what: str, where: str) -> str:
        """`@name` or `@12`, without the sigil."""
        return self._bare(self.expect_kind(GLOBAL, what, where))

    def _bare(self, token: int) -> str:
        """An identifier without sigil; numbers are compared as numbers."""
        name = self.texts[token][1:]
        if len(name) > self.limits.max_name:
            what = f"a name of {len(name)} characters"
            raise self.exceed(token, what, self.limits.max_name, "max_name")
        return name.lstrip("0") or "0" if name[0].isdigit() else name

    # --- literals -------------------------------------------------------------------------------------------

    def integer(self, what: str, where: str) -> int:
        """An integer constant; its smallest value is the negative of the largest."""
        text = self.text
        if self.kind != INT:
            raise self.problem(what, where)
        digits = text.lstrip("+-0") or "0"
        if len(digits) > DIGITS or int(digits) > LARGEST:
            raise self._out_of_range(f"integers reach from -{LARGEST} to {LARGEST}")
        self.next()
        return -int(digits) if text[0] == "-" else int(digits)

    def real(self, where: str) -> float:
        """A floating constant in the range of doubles."""
        text = self.text
        if self.kind != FLOAT:
            raise self.problem("a floating-point number", where)
        if text[-3:] in ("inf", "nan"):
            self.note(syntax.NEWER_CONSTANT, self.span(self.index), text=text)
            self.next()
            return math.nan if text[-1] == "n" else float(text)
        value = _double(text)
        if value is None:
            raise self._out_of_range("floating constants are doubles")
        self.next()
        return value

    def _out_of_range(self, repair: str) -> SyntaxProblem:
        text = self.text
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
        return self.report(syntax.LITERAL_RANGE.at(self.span(self.index), text=shown, repair=repair))

    def string(self) -> str:
        """The text between the quotes of the token ahead."""
        return self.texts[self.next()][1:-1]

    # --- types ----------------------------------------------------------------------------------------------

    def type(self, where: str) -> Type:
        """`bool`, a scalar type, a memref, a group or a cooperative matrix."""
        text = self.text
        if text in ELEMENT_TYPES or text == "bool":
            self.next()
            return Scalar(text)
        if text == "memref":
            return self.memref(where)[0]
        if text == "group":
            return self.group()
        if text == "coopmatrix":
            return self.coopmatrix(where)
        raise self.problem("a type", where)

    def result_type(self, where: str) -> Type:
        """`':' type`."""
        self.expect(":", where)
        return self.type("after ':'")

    def element(self, where: str) -> str:
        """A scalar type as the element of a memref or a cooperative matrix."""
        if self.text not in ELEMENT_TYPES:
            raise self.problem("a scalar type", where)
        return self.texts[self.next()]

    def integer_type(self) -> Scalar:
        """The type of a loop variable."""
        if self.text not in INTEGER_TYPES:
            raise self.problem("an integer type", "after ':'")
        return Scalar(self.texts[self.next()])

    def memref(self, where: str) -> tuple[Memref, bool]:
        """A memref type, and whether it names its address space."""
        first = self.expect("memref", where)
        self.expect("<", "after 'memref'")
        element = self.element("as the element of a memref")
        shape: list[Size] = []
        while self.accept("x"):
            shape.append(self.size("after 'x'"))
        if len(shape) > self.limits.max_rank:
            raise self.exceed(first, "the order of the memref", self.limits.max_rank, "max_rank")
        stride = None
        if self.text == "," and self.ahead() == "strided":
            self.next()
            stride = self.strides()
        space = ""
        if self.accept(","):
            if self.text not in ("global", "local"):
                wanted = "'global' or 'local'" if stride is not None else "'strided', 'global' or 'local'"
                raise self.problem(wanted, "in a memref type")
            space = self.texts[self.next()]
        self.expect(">", "at the end of a memref type")
        return make_memref(element, tuple(shape), stride, space == "local"), bool(space)

    def strides(self) -> tuple[Size, ...]:
        """`strided<1,?>`."""
        self.next()
        self.expect("<", "after 'strided'")
        sizes = [] if self.text == ">" else self.separated(lambda: self.size("in a stride"))
        self.expect(">", "at the end of the strides")
        return tuple(sizes)

    def size(self, where: str) -> Size:
        """A number or `?`."""
        return None if self.accept("?") else self.integer("a size or '?'", where)

    def group(self) -> Group:
        """`group<memref x size, offset: …>`."""
        self.next()
        self.expect("<", "after 'group'")
        memref, _ = self.memref("in a group type")
        self.expect("x", "after the memref of a group")
        size = self.size("as the size of a group")
        offset: Size = 0
        if self.accept(","):
            self.expect("offset", "in a group type")
            self.expect(":", "after 'offset'")
            offset = self.size("as the offset of a group")
        self.expect(">", "at the end of a group type")
        return Group(memref, size, offset)

    def coopmatrix(self, where: str) -> Coopmatrix:
        """`coopmatrix<element x rows x columns, use>`."""
        self.expect("coopmatrix", where)
        self.expect("<", "after 'coopmatrix'")
        element = self.element("as the component of a cooperative matrix")
        self.expect("x", "before the rows")
        rows = self.integer("the number of rows", "in a cooperative matrix type")
        self.expect("x", "before the columns")
        columns = self.integer("the number of columns", "in a cooperative matrix type")
        self.expect(",", "before the use of a cooperative matrix")
        if self.text not in USES:
            raise self.problem("'matrix_a', 'matrix_b' or 'matrix_acc'", "in a cooperative matrix type")
        use = self.texts[self.next()]
        self.expect(">", "at the end of a cooperative matrix type")
        return Coopmatrix(element, rows, columns, use)

    # --- attributes -----------------------------------------------------------------------------------------

    def dictionary(self, where: str) -> Dictionary:
        """`{key = value, …}`; the order of the text means nothing, so the keys are sorted."""
        first = self.expect("{", where)
        self.open_braces += 1
        self.descend("of attributes")
        entries = [] if self.text == "}" else self.separated(self.entry)
        self.expect("}", "at the end of the attributes")
        # Where an error leaves before this line, the recovery finds the braces that are open.
        self.open_braces -= 1
        self.depth_left += 1
        return Dictionary(tuple(sorted(entries, key=lambda item: item.key)), self.span_from(first))

    def entry(self) -> DictionaryEntry:
        """`key = value`."""
        first = self.index
        if self.text not in KEYS and self.kind != STRING:
            raise self.problem("the name of an attribute", "here")
        key = self.string() if self.kind == STRING else self.texts[self.next()]
        self.expect("=", "after the name of an attribute")
        return DictionaryEntry(key, self.attribute(), self.span_from(first))

    def attribute(self) -> Attribute:
        """The value of an attribute."""
        text = self.text
        if text == "[":
            return self.array()
        if text == "{":
            return self.dictionary("here")
        if self.kind == INT:
            return self.integer("an integer", "here")
        if self.kind == STRING:
            return Text(self.string())
        if text in ("true", "false"):
            self.next()
            return text == "true"
        raise self.problem("a boolean, an integer, a string, '[' or '{'", "as the value of an attribute")

    def array(self) -> tuple[Attribute, ...]:
        """`[value, …]`."""
        self.next()
        self.descend("of attributes")
        items = [] if self.text == "]" else self.separated(self.attribute)
        self.expect("]", "at the end of an array")
        self.depth_left += 1
        return tuple(items)


def _double(text: str) -> float | None:
    """The double that a floating constant is; None where it is too large, or so small that nothing of it is left."""
    is_hex = text.lstrip("+-").startswith("0x")
    try:
        value = float.fromhex(text) if is_hex else float(text)
    except (OverflowError, ValueError):
        return None
    mantissa = text.lower().partition("p" if is_hex else "e")[0].partition("x" if is_hex else " ")
    lost = value == 0 and (mantissa[2] or mantissa[0]).strip("+-0.")
    return None if math.isinf(value) or lost else value
