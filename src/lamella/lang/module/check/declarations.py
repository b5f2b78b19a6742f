"""Recipes, presets and heads: fields that mean something, with values and types that they can have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.base.source import Span
from lamella.lang.module.annotations.arguments import accepts, show_value, wanted
from lamella.lang.module.annotations.table import STRATEGIES, AnnotationParameter
from lamella.lang.module.check.views import bodies_in, view_of
from lamella.lang.module.instantiate.evaluate import EvaluationContext, evaluate
from lamella.lang.module.nodes import (
    Call,
    ConfigParam,
    Document,
    Expr,
    Field,
    Item,
    List,
    Member,
    Module,
    Name,
    Preset,
    Primitive,
    Recipe,
    Star,
    Stub,
    TensorType,
    Text,
    Unchanged,
    names_in,
)
from lamella.lang.module.resolve.nodes import Scope
from lamella.lang.module.rules import annotated, constants, gradients, names, syntax
from lamella.lang.module.suggest import suggest
from lamella.lang.module.words import CONFIG_TYPES, DTYPES


def check_declaration(item: Item) -> Iterator[Diagnostic]:
    """What is wrong with the types of config parameters, with a primitive or with a recipe."""
    if isinstance(item, Module | Primitive):
        yield from _check_types(item.params or ())
    if isinstance(item, Module):
        yield from _check_graph(item)
        yield from _check_stubs(item)
        yield from _check_shapes(item)
    elif isinstance(item, Primitive):
        yield from _check_primitive(item)
    elif isinstance(item, Recipe):
        yield from _check_recipe(item)


# --- modules: a graph, and the shapes of what they take, give and hold --------------------------------------


def _check_graph(module: Module) -> Iterator[Diagnostic]:
    """A forward section that no child is to finish has a graph; an extension may inherit one."""
    forward = module.forward
    is_open = module.abstract or module.extends is not None or module.sublayers is not None or module.stub
    if forward is not None and forward.graph is None and not is_open:
        yield constants.MISSING_SECTION.at(
            forward.span,
            module=module.name,
            section="graph in its forward section",
            repair=f"add graph:, or make it an abstract {module.kind}",
        )


def _check_stubs(module: Module) -> Iterator[Diagnostic]:
    """Graphs that are not finished, whether or not they are built."""
    for part in (module.forward, module.backward):
        for body in bodies_in((part.graph or ()) if part is not None else ()):
            for item in body:
                if isinstance(item, Stub):
                    yield syntax.STUB.at(item.span, name=module.name)


def _check_shapes(module: Module) -> Iterator[Diagnostic]:
    passes = [item for item in (module.forward, module.backward) if item is not None]
    ports = [port for item in passes for port in (*(item.inputs or ()), *(item.outputs or ()))]
    for port in ports:
        if isinstance(port.type, TensorType):
            yield from _check_leading(port.type)
            yield from _check_last(port.type)
    for param in module.tensors:
        if isinstance(param.type, TensorType):
            yield from _check_last(param.type)


def _check_leading(type: TensorType) -> Iterator[Diagnostic]:
    """`*` leads; `...` stands for nothing that a type could be compared with."""
    for number, dim in enumerate(type.dims):
        repair = "'*' stands for any number of dimensions, and leads: [*, T, C]"
        if isinstance(dim, Unchanged):
            yield syntax.MISPLACED.at(dim.span, what="'...'", where="in this type", repair=repair)
        elif isinstance(dim, Star) and number:
            yield syntax.MISPLACED.at(dim.span, what="'*'", where="behind a dimension", repair=repair)


def _check_last(type: TensorType) -> Iterator[Diagnostic]:
    """An element type stands behind the dimensions."""
    for dim in type.dims:
        if isinstance(dim, Name) and dim.id in DTYPES:
            yield syntax.MISPLACED.at(
                dim.span,
                what=f"the element type {dim.id}",
                where="among dimensions",
                repair="it stands behind them, once",
            )


# --- primitives: what they are implemented by, what they keep for their gradients ---------------------------


IMPL, INVARIANTS, BACKWARD_USES = "impl", "invariants", "backward_uses"


def _check_primitive(primitive: Primitive) -> Iterator[Diagnostic]:
    """What is wrong with the sections of a primitive."""
    if primitive.stub:
        return
    if primitive.forward is None:
        yield constants.MISSING_SECTION.at(
            primitive.span,
            module=primitive.name,
            section="forward section",
            repair="say what it takes and gives",
        )
        return
    for section in primitive.sections:
        if section.name == IMPL:
            yield from _check_impl(section, primitive)
        elif section.name == INVARIANTS and isinstance(section.value, tuple):
            yield from _check_invariants(section.value, primitive)
    yield from _check_save(primitive)


def _check_impl(section: Field, primitive: Primitive) -> Iterator[Diagnostic]:
    """Every way names an operator by its dotted name, or says in words what is done."""
    fields = section.value if isinstance(section.value, tuple) else (section,)
    for item in fields:
        if isinstance(item.value, str) or (not isinstance(item.value, tuple) and _is_operator(item.value)):
            continue
        yield constants.KIND.at(
            item.span,
            what=f"'{item.name}' of '{primitive.name}'",
            found="no name",
            wanted="the name of an operator",
            repair="write it as in forward: llm.rmsnorm",
        )


def _is_operator(value: Expr) -> bool:
    while isinstance(value, Member | Call):
        value = value.operand if isinstance(value, Member) else value.callee
    return isinstance(value, Name)


def tensors_of(primitive: Primitive) -> list[str]:
    """The inputs and outputs of a primitive, by name."""
    forward = primitive.forward
    if forward is None:
        return []
    inputs = [port.name or "in" for port in forward.inputs or ()]
    return [*inputs, *(port.name or "out" for port in forward.outputs or ())]


def _check_save(primitive: Primitive) -> Iterator[Diagnostic]:
    """What is saved is an input or an output."""
    known = tensors_of(primitive)
    condition = primitive.save.condition if primitive.save is not None else None
    params = [param.name for param in primitive.params]
    words = {word for param in primitive.params if param.type is not None for word in param.type.choices}
    for name in names_in(condition) if condition is not None else ():
        if condition is not None and name not in params and name not in words:
            where = f"among the parameters of '{primitive.name}'"
            yield names.UNKNOWN.at(condition.span, name=name, where=where, repair=suggest(name, params))
            break
    for item in primitive.save.items if primitive.save is not None else ():
        if item.spread or any(fnmatchcase(name, item.text) for name in known):
            continue
        yield _unknown_tensor(item.text, item.span, primitive, known)


def _unknown_tensor(name: str, span: Span, primitive: Primitive, known: list[str]) -> Diagnostic:
    where = f"among the inputs and outputs of '{primitive.name}'"
    return names.UNKNOWN.at(span, name=name, where=where, repair=suggest(name, known))


def _check_invariants(fields: tuple[Field, ...], primitive: Primitive) -> Iterator[Diagnostic]:
    """Tensors that the gradient uses are inputs or outputs, and they are saved."""
    known = tensors_of(primitive)
    saved = [item.text for item in primitive.save.items] if primitive.save is not None else []
    for field in fields:
        if field.name != BACKWARD_USES:
            continue
        for name in _listed(field):
            if name not in known:
                yield _unknown_tensor(name, field.span, primitive, known)
            elif not any(fnmatchcase(name, pattern) for pattern in saved):
                repair = f"add '{name}' to save:"
                yield gradients.NOT_SAVED.at(field.span, name=name, module=primitive.name, repair=repair)


def _listed(field: Field) -> list[str]:
    """The names in a list of a field."""
    items = field.value.items if isinstance(field.value, List) else (field.value,)
    texts = [
        item.id if isinstance(item, Name) else item.value if isinstance(item, Text) else "" for item in items
    ]
    return [text for text in texts if text]


RECIPE_FIELDS: Mapping[str, AnnotationParameter] = MappingProxyType(
    {
        item.name: item
        for item in (
            *(
                AnnotationParameter(f"{name}_dtype", "dtype")
                for name in (
                    "forward_activation",
                    "backward_gradient",
                    "accumulation",
                    "output",
                    "weight_storage",
                )
            ),
            AnnotationParameter("scaling_strategy", "word", choices=STRATEGIES),
            AnnotationParameter("amax_history_len", "int", least=1),
            AnnotationParameter("block_size", "pair"),
            AnnotationParameter("margin", "float", least=0.0),
        )
    }
)
"""The decisions that a recipe bundles."""
MODEL = "model"


def _check_recipe(recipe: Recipe) -> Iterator[Diagnostic]:
    """What is wrong with the fields of a recipe."""
    for field in recipe.fields:
        parameter = RECIPE_FIELDS.get(field.name)
        if parameter is None:
            repair = suggest(field.name, RECIPE_FIELDS) or f"it has {', '.join(RECIPE_FIELDS)}"
            yield annotated.RECIPE_FIELD.at(field.span, field=field.name, repair=repair)
            continue
        if isinstance(field.value, str | tuple):
            found = "no value"
        else:
            try:
                value = evaluate(field.value, {}, EvaluationContext(words=True))
            except Found as problem:
                yield problem.finding
                continue
            if accepts(parameter, value):
                continue
            found = show_value(value, parameter)
        yield annotated.RECIPE_VALUE.at(
            field.span, field=field.name, name=recipe.name, found=found, wanted=wanted(parameter), repair=""
        )


def check_presets(document: Document, scope: Scope | None) -> Iterator[Diagnostic]:
    """Names that presets set and no model of the file has."""
    modules = [item for item in document.items if isinstance(item, Module)]
    models = [item for item in modules if item.kind == MODEL] or modules
    views = [view_of(item, scope) for item in models]
    if not views or not all(view.whole for view in views):
        return
    known = {name for view in views for name in view.config}
    for preset in (item for item in document.items if isinstance(item, Preset)):
        yield from (
            _unknown_field(field, models[0], known) for field in preset.fields if field.name not in known
        )


def _unknown_field(field: Field, model: Module, known: set[str]) -> Diagnostic:
    repair = suggest(field.name, sorted(known))
    return names.UNKNOWN_ARGUMENT.at(field.span, module=model.name, name=field.name, repair=repair)


def _check_types(params: Iterable[ConfigParam]) -> Iterator[Diagnostic]:
    """Types of config parameters that there are not."""
    for param in params:
        if param.type is not None and param.type.name not in CONFIG_TYPES:
            name, types = param.type.name, ", ".join(CONFIG_TYPES)
            repair = suggest(name, CONFIG_TYPES) or f"types are: {types}"
            yield constants.UNKNOWN_TYPE.at(param.type.span, name=name, param=param.name, repair=repair)
