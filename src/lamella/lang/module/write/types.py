"""Types, paths, annotations and mappings as text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from lamella.lang.module import nodes as n
from lamella.lang.module.write.expressions import (
    write_arguments,
    write_condition,
    write_expression,
)
from lamella.lang.module.write.strings import quote

Type = n.ConfigType | n.PortType | n.ParamType


@singledispatch
def write_type(node: Type) -> str:
    """The canonical text of a type: of a config parameter, a tensor, or what `params:` declares."""
    raise TypeError(f"{type(node).__name__} is not a type")


@write_type.register
def _(node: n.ConfigType) -> str:
    text = f"enum({', '.join(node.choices)})" if node.name == "enum" else node.name
    return (f"[{text}]" if node.listed else text) + "?" * node.optional


@write_type.register
def _(node: n.TensorType) -> str:
    parts = [*map(_dim, node.dims), *([] if node.dtype is None else [node.dtype])]
    text = f"[{', '.join(parts)}]" if parts else "scalar"
    return text + "?" * node.optional


def _dim(node: n.Dim) -> str:
    if isinstance(node, n.Star):
        return "*"
    return "..." if isinstance(node, n.Unchanged) else write_expression(node)


@write_type.register
def _(node: n.TupleType) -> str:
    return f"({', '.join(map(write_type, node.items))})"


@write_type.register
def _(node: n.SequenceType) -> str:
    return f"tuple<{'' if node.item is None else write_type(node.item)}>"


@write_type.register
def _(node: n.ScalarType) -> str:
    return node.name + "?" * node.optional


@write_type.register
def _(node: n.InstanceType) -> str:
    # With parentheses a module of this name would be the parameter that another one shares.
    if node.module == "tied_to" and not node.arguments:
        return node.module
    return node.module + write_arguments(node.arguments)


@write_type.register
def _(node: n.ArrayType) -> str:
    return f"[{write_expression(node.size)}] x {write_type(node.element)}"


@write_type.register
def _(node: n.TiedType) -> str:
    return f"tied_to({write_path(node.path)})"


def write_path(node: n.Path) -> str:
    """`blocks[{i}].attention.qkv_weight`."""
    return ".".join(part.name + "".join(map(_place, part.indices)) for part in node.parts)


def _place(index: str | int) -> str:
    return f"[{{{index}}}]" if isinstance(index, str) else f"[{index}]"


def write_if(condition: n.Expr | None) -> str:
    """` if condition`, or nothing."""
    return "" if condition is None else f" if {write_condition(condition)}"


# --- annotations and what they stand behind -----------------------------------------------------------------


def write_annotation(node: n.Annotation) -> str:
    """`@name` or `@name(argument, …)`."""
    return f"@{node.name}{write_arguments(node.arguments) if node.arguments else ''}"


def write_annotations(annotations: Iterable[n.Annotation]) -> str:
    """Annotations behind something, each after a space."""
    return "".join(f" {write_annotation(item)}" for item in annotations)


def write_config_param(node: n.ConfigParam) -> str:
    """`name: type = default`; without a type `name=default`."""
    default = "" if node.default is None else write_expression(node.default)
    if node.type is None:
        return f"{node.name}={default}" if default else node.name
    return f"{node.name}: {write_type(node.type)}" + (f" = {default}" if default else "")


def write_port(node: n.Port) -> str:
    """`name: type = default @annotation…`, as far as it is given."""
    text = _port_head(node)
    if node.default is not None:
        text += f" = {write_expression(node.default)}"
    return text + write_annotations(node.annotations)


def _port_head(node: n.Port) -> str:
    if node.name is None:
        return "" if node.type is None else write_type(node.type)
    if node.type is None:
        return node.name
    if isinstance(node.type, n.SequenceType) and node.type.item is None:
        return f"{node.name}..."
    return f"{node.name}: {write_type(node.type)}"


def write_param(node: n.Param) -> str:
    """`+path: type if condition else type @annotation…`."""
    text = f"{'+' * node.added}{write_path(node.path)}: {write_type(node.type)}{write_if(node.condition)}"
    if node.otherwise is not None:
        text += f" else {write_type(node.otherwise)}"
    return text + write_annotations(node.annotations)


# --- mappings -----------------------------------------------------------------------------------------------


def write_mapping(node: n.Mapping) -> str:
    """`path?: spec if condition`."""
    optional = "?" * node.optional
    return f"{write_path(node.path)}{optional}: {_spec(node.spec)}{write_if(node.condition)}"


def _spec(node: n.Spec) -> str:
    if isinstance(node, n.Direct):
        return quote(node.name)
    if isinstance(node, n.Transform):
        return f"transform({quote(node.name)}, fn: {node.function})"
    if isinstance(node, n.TiedType):
        return write_type(node)
    name, parts = ("fuse", map(_spec, node.sources)) if isinstance(node, n.Fuse) else ("split", _parts(node))
    return f"{name}({', '.join([*parts, f'dim={node.dim}'])})"


def _parts(node: n.Split) -> Iterable[str]:
    for part in node.parts:
        yield f"{quote(part.name)}: [{write_expression(part.low)}, {write_expression(part.high)}]"
