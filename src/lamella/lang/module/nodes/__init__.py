"""The Module DSL on one page: the nodes of a document, in the words of the specification.

Spans and notes (comments, blank lines) are carried and never compared, so `parse(write(d)) == d` is plain equality.
Other spellings of one thing (`×` and `x`, `inputs:` and `in:`, `import a.{B}` and `from a import B`) have one node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from lamella.base.source import Span, Trivia, beside, where
from lamella.lang.module.nodes.expressions import (
    Argument,
    ArrayType,
    Bool,
    Call,
    Chain,
    ConfigType,
    Dict,
    DictEntry,
    Dim,
    Expr,
    Index,
    InstanceType,
    Integer,
    List,
    Member,
    Name,
    Null,
    ParamType,
    Path,
    PathPart,
    PortType,
    Real,
    Rest,
    ScalarType,
    Select,
    SequenceType,
    Set,
    Slice,
    Star,
    Subscript,
    TensorType,
    Text,
    TiedType,
    TupleType,
    Unary,
    Unchanged,
    name_nodes,
    names_in,
    parts_of,
)

# --- graphs: data flow, guards, recomputation, and the annotations on all of it -----------------------------


@dataclass(frozen=True, slots=True)
class Annotation:
    """`@name(argument, …)`."""

    name: str
    arguments: tuple[Argument, ...] = ()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Operation:
    """`callee(argument, …)` between two arrows: a primitive, a module, an instance, `blocks[0:8]`, `mlp.backward`.

    An instance may be named without parentheses; the written form has them.
    """

    callee: Expr
    arguments: tuple[Argument, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class ShapeAssertion:
    """`[dim, …]` between two arrows: the shape that flows through."""

    type: TensorType
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Target:
    """A tensor that a statement binds; `_` is dropped."""

    name: str
    annotations: tuple[Annotation, ...] = ()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Flow:
    """`source -> step -> … -> target @annotation…`; without a step it is an identity.

    Annotations behind a single target belong to the statement, those inside a tuple to their target.
    """

    sources: tuple[Expr, ...]
    steps: tuple[Step, ...]
    targets: tuple[Target, ...]
    annotations: tuple[Annotation, ...] = ()
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Arm:
    """One guarded arm of a conditional."""

    condition: Expr
    body: tuple[Statement, ...]
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Conditional:
    """`if`, `elif`, `else`: the first arm whose guard holds; `otherwise` is None where there is no `else`."""

    arms: tuple[Arm, ...]
    otherwise: tuple[Statement, ...] | None = None
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Recompute:
    """`recompute:` in a backward graph: forward tensors built again from saved ones."""

    body: tuple[Statement, ...]
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Stub:
    """`...` in the place of a statement: a body that is not finished."""

    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Pattern:
    """An item of `save:` and `recompute:`: a name, a glob such as `ln*_out`, or `name...` (`spread`).

    A spread item stands for all that the stacked blocks save; its name says nothing more.
    """

    text: str
    spread: bool = False
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Selection:
    """`[item, …] if condition`: the tensors that `save:` or `recompute:` names."""

    items: tuple[Pattern, ...]
    condition: Expr | None = None
    notes: Trivia = beside()
    span: Span = where()


Step: TypeAlias = Operation | ShapeAssertion
Statement: TypeAlias = Flow | Conditional | Recompute | Stub


# --- sections of a declaration: bindings, parameters, forward and backward ----------------------------------


@dataclass(frozen=True, slots=True)
class ConfigParam:
    """`name: type = default` in the head of a declaration, or in `params:` of a primitive."""

    name: str
    type: ConfigType | None = None
    default: Expr | None = None
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Let:
    """`name = expression`."""

    name: str
    value: Expr
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class RuntimeDim:
    """`name: batch_dim`: a dimension that the inputs bind."""

    name: str
    kind: str
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Constraint:
    """`condition, "message"`."""

    condition: Expr
    message: str
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Constant:
    """`name: builtin(argument, …)` in `constants:`."""

    name: str
    value: Call
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Param:
    """`name: type if condition else type @annotation…` in `params:`; `+name` adds to what is inherited.

    A path with placeholders changes or adds parameters below this declaration.
    """

    path: Path
    type: ParamType
    condition: Expr | None = None
    otherwise: ParamType | None = None
    added: bool = False
    annotations: tuple[Annotation, ...] = ()
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output; without a name it is `in` or `out`, without a type its primitive leaves it open."""

    name: str | None
    type: PortType | None
    default: Expr | None = None
    annotations: tuple[Annotation, ...] = ()
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Forward:
    """`forward:`; inputs or outputs that are not declared are None, and so is a graph that is missing."""

    inputs: tuple[Port, ...] | None = None
    outputs: tuple[Port, ...] | None = None
    graph: tuple[Statement, ...] | None = None
    save: Selection | None = None
    recompute: Selection | None = None
    annotations: tuple[Annotation, ...] = ()
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Backward:
    """`backward:`; `gradients` are the `d_name: type` lines outside of `inputs:` and `outputs:`."""

    gradients: tuple[Port, ...] = ()
    inputs: tuple[Port, ...] | None = None
    outputs: tuple[Port, ...] | None = None
    graph: tuple[Statement, ...] | None = None
    annotations: tuple[Annotation, ...] = ()
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Sublayers:
    """`pattern: name` with its `sublayers:`, each a tuple of parameter names in the order of application."""

    pattern: str
    sublayers: tuple[tuple[str, ...], ...]
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Field:
    """`name: value` of a recipe, a preset, `hf_config:` or a free section of a primitive.

    What is no expression (`O(B * T)` is one, `x must be contiguous` is none) is kept as its text.
    """

    name: str
    value: Expr | str | tuple[Field, ...]
    notes: Trivia = beside()
    span: Span = where()


Binding: TypeAlias = Let | RuntimeDim | Constraint | Stub


# --- how parameters correspond to the tensors of a Hugging Face checkpoint ----------------------------------


@dataclass(frozen=True, slots=True)
class Direct:
    """`"name"`: one tensor as it is; `{placeholder}` stands for an index."""

    name: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Transform:
    """`transform("name", fn: function)`."""

    name: str
    function: str
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Fuse:
    """`fuse("a", "b", …, dim=0)`: tensors one behind the other; each may be transformed first."""

    sources: tuple[Direct | Transform, ...]
    dim: int = 0
    span: Span = where()


@dataclass(frozen=True, slots=True)
class SplitPart:
    """`"name": [low, high]`, half open."""

    name: str
    low: Expr
    high: Expr
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Split:
    """`split("a": [0, n], …, dim=0)`: one parameter as several tensors."""

    parts: tuple[SplitPart, ...]
    dim: int = 0
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Mapping:
    """`path: spec if condition`; `path?: spec` where the checkpoint may lack it."""

    path: Path
    spec: Spec
    optional: bool = False
    condition: Expr | None = None
    notes: Trivia = beside()
    span: Span = where()


Spec: TypeAlias = Direct | Transform | Fuse | Split | TiedType


# --- declarations, and the document that holds them ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Imported:
    """`name` or `name as alias` in a list of imports."""

    name: str
    alias: str | None = None
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Import:
    """`import a.b.C.v1 as D`, `import a.b.*`, or `from a.b import C, D as E`.

    `names` is None for the first form, empty for the wildcard; `import a.b.{C, D}` is read into the third.
    """

    path: tuple[str, ...]
    version: int | None = None
    alias: str | None = None
    names: tuple[Imported, ...] | None = None
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Module:
    """`module`, `block` or `model`, with its sections; one that is missing is None or empty.

    `params` is None where the head has no list: the parameters are those of the declaration that is extended.
    """

    kind: str
    name: str
    params: tuple[ConfigParam, ...] | None = ()
    abstract: bool = False
    extends: str | None = None
    doc: str = ""
    annotations: tuple[Annotation, ...] = ()
    bindings: tuple[Binding, ...] = ()
    constants: tuple[Constant, ...] = ()
    tensors: tuple[Param, ...] = ()
    sublayers: Sublayers | None = None
    forward: Forward | None = None
    backward: Backward | None = None
    hf_config: tuple[Field, ...] | None = None
    hf_mapping: tuple[Mapping, ...] | None = None
    hf_export: tuple[Mapping, ...] | None = None
    stub: bool = False
    """Whether `...` stands in the place of a section."""
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Equation:
    """`d_A = matmul(d_C, B, transpose=NT)`: a gradient of a primitive in terms of other primitives."""

    targets: tuple[str, ...]
    value: Expr
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Signature:
    """What a primitive takes and gives, forwards or backwards; `native` is a lone `_`."""

    inputs: tuple[Port, ...] | None = None
    outputs: tuple[Port, ...] | None = None
    equations: tuple[Equation, ...] = ()
    fields: tuple[Field, ...] = ()
    native: bool = False
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Primitive:
    """`primitive name:`; `sections` are `impl`, `precision`, `memory`, `fusion`, `constraints` and the like."""

    name: str
    doc: str = ""
    params: tuple[ConfigParam, ...] = ()
    forward: Signature | None = None
    backward: Signature | None = None
    save: Selection | None = None
    sections: tuple[Field, ...] = ()
    stub: bool = False
    notes: Trivia = beside()
    span: Span = where()

    def operator(self, way: str = "forward") -> str | None:
        """The dotted name of the SkriptND operator that its `impl:` names for a way; None where it names none."""
        for section in self.sections:
            if section.name == "impl" and isinstance(section.value, tuple):
                return next((_dotted(item) for item in section.value if item.name == way), None)
        return None


def _dotted(item: Field) -> str | None:
    value, parts = item.value, []
    while isinstance(value, Member):
        parts.append(value.field)
        value = value.operand
    return ".".join([value.id, *reversed(parts)]) if isinstance(value, Name) else None


@dataclass(frozen=True, slots=True)
class Recipe:
    """`recipe name:`, the decisions about precision for a whole compilation."""

    name: str
    fields: tuple[Field, ...]
    doc: str = ""
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Preset:
    """`preset name:`, a named set of config values for the model of the same file."""

    name: str
    fields: tuple[Field, ...]
    doc: str = ""
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Export:
    """`export kind name`: an imported name, or a preset, that importers of this file see too.

    `export *` has the kind `*` and no name: all that this file imports.
    """

    kind: str
    name: str = ""
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Setting:
    """`verify_backward:`, `topology:` or `groups:` of a file: how gradients are verified, which devices there are."""

    kind: str
    fields: tuple[Field, ...]
    doc: str = ""
    notes: Trivia = beside()
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Broken:
    """A declaration that could not be read; its name, if that was readable."""

    name: str = ""
    span: Span = where()


@dataclass(frozen=True, slots=True)
class Document:
    """A file: its docstring, its imports and its declarations in order."""

    items: tuple[Item, ...]
    doc: str = ""
    notes: Trivia = beside()
    span: Span = where()
    lost: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Names in lines that could not be read: what they mean is not known, and that they mean nothing neither."""


Declaration: TypeAlias = Module | Primitive | Recipe | Preset
Item: TypeAlias = Import | Export | Declaration | Setting | Broken


__all__ = [
    "Annotation",
    "Argument",
    "Arm",
    "ArrayType",
    "Backward",
    "Binding",
    "Bool",
    "Broken",
    "Call",
    "Chain",
    "Conditional",
    "ConfigParam",
    "ConfigType",
    "Constant",
    "Constraint",
    "Declaration",
    "Dict",
    "DictEntry",
    "Dim",
    "Direct",
    "Document",
    "Equation",
    "Export",
    "Expr",
    "Field",
    "Flow",
    "Forward",
    "Fuse",
    "Import",
    "Imported",
    "Index",
    "InstanceType",
    "Integer",
    "Item",
    "Let",
    "List",
    "Mapping",
    "Member",
    "Module",
    "Name",
    "Null",
    "Operation",
    "Param",
    "ParamType",
    "Path",
    "PathPart",
    "Pattern",
    "Port",
    "PortType",
    "Preset",
    "Primitive",
    "Real",
    "Recipe",
    "Recompute",
    "Rest",
    "RuntimeDim",
    "ScalarType",
    "Select",
    "Selection",
    "SequenceType",
    "Set",
    "Setting",
    "ShapeAssertion",
    "Signature",
    "Slice",
    "Spec",
    "Split",
    "SplitPart",
    "Star",
    "Statement",
    "Step",
    "Stub",
    "Sublayers",
    "Subscript",
    "Target",
    "TensorType",
    "Text",
    "TiedType",
    "Transform",
    "TupleType",
    "Unary",
    "Unchanged",
    "name_nodes",
    "names_in",
    "parts_of",
]
