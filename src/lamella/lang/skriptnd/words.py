"""The words of SkriptND."""

from __future__ import annotations

KEYWORDS = frozenset(
    (
        *("import", "graph", "public", "operator", "optional", "static", "dynamic"),
        *("type", "arith", "num", "int", "real", "bool", "str", "inf", "pi", "true", "false"),
        *("as", "is", "in", "if", "then", "else", "elif", "do", "for", "while", "with", "yield", "unroll"),
    )
)
"""What is never a name."""

CONCRETE_TYPES = ("int", "real", "bool", "str")
ABSTRACT_TYPES = ("type", "arith", "num")
TYPE_WORDS = frozenset((*CONCRETE_TYPES, *ABSTRACT_TYPES))

BLOCKS = (
    *("dtype", "attrib", "input", "using", "constant", "variable", "output"),
    *("assert", "lower", "compose", "update", "quantize"),
)
"""The blocks of an operator, in the order in which they are processed."""

PARAMETER_BLOCKS = frozenset(("attrib", "input", "output", "constant", "variable"))

MEMBERS = ("shape", "rank", "size")

BUILT_INS = frozenset(
    (
        *("abs", "sign", "sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"),
        *("tanh", "asinh", "acosh", "atanh", "erf", "round", "floor", "ceil", "frac"),
    )
)
"""The built-in functions, all of one argument."""

LEVELS = {
    "=>": 1,
    **dict.fromkeys(("&&", "||", "^"), 2),
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", ":=", "is", "in"), 3),
    **dict.fromkeys(("<<", ">>"), 4),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "/", "\\", "%"), 6),
    "**": 7,
}
"""The binary operators with their precedence; a higher level binds tighter, all are associative to the left."""

POWER = LEVELS["**"]
CUMULATIVE = frozenset(("+", "*", "&&", "||", "<<", ">>"))
FOLDS = CUMULATIVE | {"<", "<=", ">", ">=", "==", "!=", ":="}
"""The operators that fold a pack; `:=` does nothing else."""

LOWERING_SIGNS = ("=", ":=", "+=", "*=", "&=", "|=", "<=", ">=")

NEWER = {"<?": "<<", ">?": ">>", "<?=": "<=", ">?=": ">="}
"""The newer draft's spellings of minimum and maximum, and the specification's."""
