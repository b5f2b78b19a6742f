"""Expressions, values, regions and decorators as words.

A word is a piece of text that no line break divides; joined with spaces, the words of a node are its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lamella.lang.nem.nodes import (
    Attribute,
    Chain,
    Decorator,
    Expr,
    Integer,
    Items,
    Name,
    Negate,
    Operand,
    Quant,
    Real,
    Region,
    Text,
    TypeAttributes,
    UnitRef,
    Value,
)

ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def write_expression(value: Expr) -> str:
    """An expression, with parentheses where the reading needs them."""
    if isinstance(value, Name):
        return value.id
    if isinstance(value, Integer):
        return str(value.value)
    if isinstance(value, Real):
        return write_real(value.value)
    if isinstance(value, Negate):
        inner = write_expression(value.operand)
        return f"-({inner})" if isinstance(value.operand, Chain) else f"-{inner}"
    is_sum = _is_sum(value)
    parts = [_operand(value.first, is_sum)]
    for sign, operand in value.rest:
        parts.append(sign)
        parts.append(_operand(operand, is_sum))
    return " ".join(parts)


def _is_sum(value: Chain) -> bool:
    return value.rest[0][0] in ("+", "-")


def _operand(value: Expr, in_sum: bool) -> str:
    """An operand of a chain: of chains, only a product in a sum stands without parentheses."""
    text = write_expression(value)
    bare = not isinstance(value, Chain) or (in_sum and not _is_sum(value))
    return text if bare else f"({text})"


def write_real(value: float) -> str:
    """A FLOAT that reads back as the same number; it has digits on both sides of the point."""
    text = repr(value)
    mantissa, mark, exponent = text.partition("e")
    return text if "." in mantissa else f"{mantissa}.0{mark}{exponent}"


def write_string(value: str) -> str:
    """A STRING; what cannot be seen is escaped."""
    return (
        '"' + "".join(ESCAPES.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):x}}}") for c in value) + '"'
    )


def words_of(value: Value) -> list[str]:
    """A value; each item of a list is a word."""
    if isinstance(value, Items):
        return enclosed("[", [words_of(item) for item in value.values], "]")
    if isinstance(value, Text):
        return [write_string(value.value)]
    return [write_expression(value)]


def listed(parts: Iterable[Sequence[str]]) -> list[str]:
    """Parts with a comma behind each but the last."""
    found: list[str] = []
    for part in parts:
        if found:
            found[-1] += ","
        found += part
    return found


def enclosed(opening: str, parts: Iterable[Sequence[str]], closing: str) -> list[str]:
    """Parts with commas between them and signs around them."""
    found = listed(parts) or [""]
    found[0] = opening + found[0]
    found[-1] += closing
    return found


def attribute_words(attribute: Attribute) -> list[str]:
    """`name=value`."""
    return _led(f"{attribute.name.id}=", words_of(attribute.value))


def _led(prefix: str, words: list[str]) -> list[str]:
    return [prefix + words[0], *words[1:]]


def region_words(region: Region) -> list[str]:
    """A region without its type."""
    offset, extent = write_expression(region.offset), write_expression(region.extent)
    return [f"region({region.buffer.id},", f"{offset},", f"{extent})"]


def type_groups(type_: TypeAttributes | None) -> list[list[str]]:
    """The type attributes in their canonical order, the quantisation descriptor apart from the others."""
    if type_ is None:
        return []
    parts: list[list[str]] = []
    if type_.elem is not None:
        parts.append([f"elem={type_.elem.id}"])
    if type_.shape is not None:
        parts.append(_sizes("shape=[", type_.shape))
    if type_.layout is not None:
        parts.append([f"layout={type_.layout.id}"])
    if type_.strides is not None:
        parts.append(_sizes("strides=[", type_.strides))
    words = listed(parts)
    if type_.quant is None:
        return [words]
    if words:
        words[-1] += ","
    return [words, quant_words(type_.quant)]


def _sizes(opening: str, sizes: tuple[Expr, ...]) -> list[str]:
    return enclosed(opening, [[write_expression(item)] for item in sizes], "]")


def quant_words(quant: Quant) -> list[str]:
    """A quantisation descriptor."""
    return enclosed(f"quant={quant.form}(", [attribute_words(item) for item in quant.fields], ")")


def operand_words(operand: Operand) -> list[str]:
    """An operand with its type and decorators."""
    value = operand.value
    if isinstance(value, Name):
        found = [value.id]
    else:
        found = region_words(value) + [word for group in type_groups(value.type) for word in group]
    return found + decorators_words(operand.decorators)


def decorators_words(decorators: tuple[Decorator, ...]) -> list[str]:
    """Decorators one behind the other."""
    return [word for decorator in decorators for word in decorator_words(decorator)]


def decorator_words(decorator: Decorator) -> list[str]:
    """`@name` or `@name(arguments)`."""
    name = f"@{decorator.name}"
    if not decorator.arguments:
        return [name]
    return enclosed(f"{name}(", [_argument_words(item) for item in decorator.arguments], ")")


def _argument_words(argument: Value | UnitRef) -> list[str]:
    if isinstance(argument, UnitRef):
        return [f"{argument.unit}[{write_expression(argument.index)}]"]
    return words_of(argument)
