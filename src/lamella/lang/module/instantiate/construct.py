"""One instance: its values, then its parameters, in the order of the text."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.base.limits import Limits, OutOfRange, product
from lamella.base.source import Span
from lamella.lang.module.instantiate.bind import (
    ConstantScope,
    Findings,
    bind_constants,
    runtime_dimension,
    takes_words,
    type_of,
)
from lamella.lang.module.instantiate.evaluate import EvaluationContext, evaluate, evaluate_bool, evaluate_int
from lamella.lang.module.instantiate.inherit import Merged, Restated, merge
from lamella.lang.module.instantiate.messages import quote
from lamella.lang.module.instantiate.nodes import BuiltConstant, Instance, Known, TensorSlot
from lamella.lang.module.instantiate.tree import (
    Child,
    InstanceTree,
    ParameterOverride,
    changes_only,
    inherit,
    is_override,
    slot_at,
    total,
)
from lamella.lang.module.nodes import (
    Annotation,
    Argument,
    ArrayType,
    ConfigParam,
    Constant,
    Dim,
    Expr,
    InstanceType,
    Module,
    Name,
    Param,
    ParamType,
    Path,
    Port,
    Star,
    TensorType,
    TiedType,
    Unchanged,
    names_in,
)
from lamella.lang.module.resolve.lineage import Generation, config_params, find_module, trace_lineage
from lamella.lang.module.resolve.nodes import Declared, Scope
from lamella.lang.module.rules import constants as rules
from lamella.lang.module.rules import graphs, inheritance, syntax
from lamella.lang.module.rules import names as name_rules
from lamella.lang.module.suggest import suggest
from lamella.lang.module.words import DTYPES, TABLES
from lamella.lang.module.write import write_path

LAYER = "layer"
"""In the arguments of an array's element, the index of that element."""
LIKE_OPERATIONS = 20
"""An element with arguments of its own costs as much as so many operations."""


@dataclass(frozen=True, slots=True)
class InstanceRequest:
    """An instance that is asked for: the declaration, where it is read, its arguments and the place that asks."""

    declared: Declared
    scope: Scope
    given: Mapping[str, Known]
    span: Span
    name: str = ""


Steps: TypeAlias = Generator[InstanceRequest, Instance | None, Instance | None]
"""A construction that asks for the instances it holds."""
_Element: TypeAlias = Generator[InstanceRequest, Instance | None, Child | None]


@dataclass(slots=True, eq=False)
class _InstanceParts:
    """What an instance holds, while it is built; `complete` until something could not be built."""

    names: ConstantScope
    limits: Limits
    tensors: dict[str, TensorSlot] = field(default_factory=dict)
    children: dict[str, Child] = field(default_factory=dict)
    tied: dict[str, TiedType] = field(default_factory=dict)
    switched_off: dict[str, str] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    """Parameters that could not be built."""

    @property
    def complete(self) -> bool:
        """Whether all could be built."""
        return not self.lost


def construct(wanted: InstanceRequest, findings: Findings, limits: Limits, cache: dict[int, Merged]) -> Steps:
    """The construction of one instance; mistakes go to the findings."""
    merged = _merged(wanted, limits, cache)
    module = merged.module
    _refuse_unfinished(merged, wanted)
    names = bind_constants(merged, wanted.given, wanted.span, findings)
    parts = _InstanceParts(names, limits)
    for param, generation in merged.tensors:
        if not is_override(param):
            yield from _add(param, generation, parts)
    built = dict(_build_constants(module.constants, names))
    tree = _finish(merged, parts)
    lost = {*names.failed, *parts.lost, *(item.name for item in module.constants if item.name not in built)}
    size = total(tree.tensors, tree.children)
    if size > limits.max_operations:
        raise Found(_too_many(module.name, size, wanted.span, limits))
    return Instance(
        wanted.declared,
        module,
        dict(names.known),
        tree.tensors,
        tree.children,
        built,
        merged.graph.scope,
        merged.backward.scope,
        parts.switched_off,
        frozenset(lost),
        size,
    )


def _merged(wanted: InstanceRequest, limits: Limits, cache: dict[int, Merged]) -> Merged:
    # By identity: the cache lives as long as one program, and so do its declarations.
    key = id(wanted.declared.declaration)
    if key not in cache:
        cache[key] = merge(trace_lineage(wanted.declared, wanted.scope, limits))
    return cache[key]


def _refuse_unfinished(merged: Merged, wanted: InstanceRequest) -> None:
    """What cannot be instantiated whatever its values are."""
    module = merged.module
    if module.abstract:
        raise Found(inheritance.ABSTRACT.at(wanted.span, name=module.name))
    extends = isinstance(wanted.declared.declaration, Module) and wanted.declared.declaration.extends
    graph = module.forward is not None and module.forward.graph is not None
    if extends and not graph and module.sublayers is None:
        raise Found(inheritance.NO_GRAPH.at(module.span, name=module.name))
    if module.stub:
        raise Found(syntax.STUB.at(module.span, name=module.name))


def _add(
    param: Param, generation: Generation, parts: _InstanceParts
) -> Generator[InstanceRequest, Instance | None, None]:
    """One entry of `params:`."""
    name = param.path.parts[0].name
    try:
        kind = _choose(param, name, parts)
        match kind:
            case TensorType():
                _add_tensor(name, kind, param, parts)
            case TiedType():
                parts.tied[name] = kind
                parts.tensors[name] = TensorSlot(name, (), annotations=param.annotations, span=param.span)
            case InstanceType():
                _keep(param, (yield from _single(name, kind, generation, parts)), parts)
            case ArrayType(element=TensorType()):
                _add_stacked(name, kind, param, parts)
            case ArrayType():
                _keep(param, (yield from _elements(name, kind, generation, parts)), parts)
    except Found as problem:
        parts.names.findings.add(problem.finding)
        parts.lost.add(name)


def _choose(param: Param, name: str, parts: _InstanceParts) -> ParamType | None:
    """The type that the condition picks; None where there is no parameter."""
    condition, names = param.condition, parts.names
    if condition is None:
        return param.type
    if not names.is_usable(condition):
        parts.lost.add(name)
        return None
    if evaluate_bool(condition, names.known, f"the condition of '{name}'", names.around):
        return param.type
    if param.otherwise is None:
        parts.switched_off[name] = f"'{quote(condition.span, 'condition')}'"
    return param.otherwise


def _add_tensor(name: str, kind: TensorType, param: Param, parts: _InstanceParts) -> None:
    if _is_measurable(kind, parts.names):
        parts.tensors[name] = _measure(name, kind, parts.names, parts.limits, param.annotations)
    else:
        parts.lost.add(name)


def _add_stacked(name: str, kind: ArrayType, param: Param, parts: _InstanceParts) -> None:
    """An array of tensors is one tensor with a dimension in front."""
    if isinstance(kind.element, TensorType):
        stacked = replace(kind.element, dims=(kind.size, *kind.element.dims), span=kind.span)
        _add_tensor(name, stacked, param, parts)


def _keep(param: Param, child: Child | None, parts: _InstanceParts) -> None:
    name = param.path.parts[0].name
    if child is None:
        parts.lost.add(name)
    else:
        parts.children[name] = inherit(child, param.annotations)


def _single(
    name: str,
    kind: InstanceType,
    generation: Generation,
    parts: _InstanceParts,
    names: ConstantScope | None = None,
) -> Steps:
    wanted = _request(name, kind, generation, names or parts.names)
    return None if wanted is None else (yield wanted)


def _elements(name: str, kind: ArrayType, generation: Generation, parts: _InstanceParts) -> _Element:
    """The elements of an array: one object as often as the array is long, unless their arguments use the index."""
    if not parts.names.is_usable(kind.size):
        return None
    count = _count_elements(name, kind, parts.names, parts.limits)
    if count == 0 or not isinstance(kind.element, InstanceType):
        return ()
    if _uses_layer(kind.element, parts.names):
        return (yield from _numbered(name, kind, kind.element, count, generation, parts))
    # Equal elements are one object: a stack of equal layers is built once, whatever its length.
    one = yield from _single(name, kind.element, generation, parts)
    if one is None:
        return None
    _keep_budget(name, count * one.size, kind, parts)
    return (one,) * count


def _numbered(
    name: str,
    kind: ArrayType,
    element: InstanceType,
    count: int,
    generation: Generation,
    parts: _InstanceParts,
) -> _Element:
    """The elements of an array whose arguments use the index; those with equal arguments are one object still."""
    most = parts.limits.max_operations // LIKE_OPERATIONS
    if count > most:
        what = f"the length of '{name}', {count}, with elements that differ,"
        raise Found(syntax.LIMIT.at(kind.size.span, what=what, limit=most, option="max_operations"))
    found: list[Instance] = []
    size = 0
    for index in range(count):
        names = _with_layer(parts.names, index)
        item = yield from _single(f"{name}[{index}]", element, generation, parts, names)
        if item is None:
            return None
        found.append(item)
        size += item.size
        _keep_budget(name, size, kind, parts)
    return tuple(found)


def _keep_budget(name: str, size: int, kind: ArrayType, parts: _InstanceParts) -> None:
    if size > parts.limits.max_operations:
        raise Found(_too_many(name, size, kind.span, parts.limits))


def _too_many(name: str, size: int, span: Span, limits: Limits) -> Diagnostic:
    what = f"the number of parts of '{name}', {size},"
    return syntax.LIMIT.at(span, what=what, limit=limits.max_operations, option="max_operations")


def _finish(merged: Merged, parts: _InstanceParts) -> InstanceTree:
    """What needs all parameters: ties, restatements, overrides."""
    findings = parts.names.findings
    ties = Ties(merged.module.name, parts.tied, dict(parts.tensors), parts.children)
    before = frozenset(parts.lost)
    for name, kind in parts.tied.items():
        # What stands for a parameter that could not be built cannot be either.
        slot = None if kind.path.parts[0].name in before else findings.attempt(partial(ties.settle, name))
        if slot is not None:
            parts.tensors[name] = slot
        else:
            del parts.tensors[name]
            parts.lost.add(name)
    _check_restated(merged, parts.names, parts.limits)
    tree = InstanceTree(parts.tensors, parts.children, parts.switched_off)
    for param, _ in merged.tensors:
        if is_override(param) and param.path.parts[0].name not in parts.lost:
            changed = findings.attempt(partial(_override, param, tree, merged, parts))
            tree = changed or tree
    return tree


def _override(param: Param, tree: InstanceTree, merged: Merged, parts: _InstanceParts) -> InstanceTree:
    """One entry of `params:` about what is below, or inherited."""
    name = write_path(param.path)
    kind = _choose(param, name, parts)
    if kind is None:
        return tree
    added = None
    if not changes_only(param):
        if not isinstance(kind, TensorType):
            what, found = f"'{name}'", f"'{quote(kind.span, 'an instance')}'"
            raise Found(rules.KIND.at(param.span, what=what, found=found, wanted="a tensor type", repair=""))
        added = _measure(name, kind, parts.names, parts.limits, param.annotations)
    return ParameterOverride(merged.module.name, param.path, param.annotations, added).apply(tree)


# --- tensor parameters with their shapes, and what the others ask for ---------------------------------------


def _measure(
    name: str,
    kind: TensorType,
    names: ConstantScope,
    limits: Limits,
    annotations: tuple[Annotation, ...] = (),
) -> TensorSlot:
    """A tensor with all its extents; raises Found where one is not a size."""
    dims, dtype = _without_dtype(kind, names)
    if len(dims) > limits.max_rank:
        what = f"the rank of '{name}'"
        raise Found(syntax.LIMIT.at(kind.span, what=what, limit=limits.max_rank, option="max_rank"))
    sizes = tuple(_size(item, f"dimension {index} of '{name}'", names) for index, item in enumerate(dims))
    try:
        product(sizes)
    except OutOfRange:
        what, found = f"the number of elements of '{name}'", "too large"
        raise Found(rules.OUT_OF_RANGE.at(kind.span, what=what, found=found, repair="")) from None
    return TensorSlot(name, sizes, dtype, kind.optional, None, annotations, kind.span)


def _without_dtype(kind: TensorType, names: ConstantScope) -> tuple[tuple[Dim, ...], str | None]:
    """The dimensions and the element type, which may be a config parameter in the last place."""
    last = kind.dims[-1] if kind.dims else None
    known = names.known.get(last.id) if isinstance(last, Name) else None
    if kind.dtype is None and known is not None and isinstance(known.value, str) and known.value in DTYPES:
        return kind.dims[:-1], known.value
    return kind.dims, kind.dtype


def _size(dim: Dim, what: str, names: ConstantScope) -> int:
    if isinstance(dim, Star | Unchanged):
        found = "'*'" if isinstance(dim, Star) else "'...'"
        raise Found(rules.KIND.at(dim.span, what=what, found=found, wanted="a size", repair=""))
    size = evaluate_int(dim, names.known, what, names.around)
    if size < 0:
        raise Found(rules.KIND.at(dim.span, what=what, found=size, wanted="a size of 0 or more", repair=""))
    return size


def _is_measurable(kind: TensorType, names: ConstantScope) -> bool:
    """Whether a shape is free of names that failed before."""
    return names.failed.isdisjoint(names_in(*kind.dims))


def _count_elements(name: str, kind: ArrayType, names: ConstantScope, limits: Limits) -> int:
    """The length of an array; raises Found where it is none that we could build."""
    what = f"the length of '{name}'"
    count = _size(kind.size, what, names)
    if count > limits.max_operations:
        limit, what = limits.max_operations, f"{what}, {count},"
        raise Found(syntax.LIMIT.at(kind.size.span, what=what, limit=limit, option="max_operations"))
    return count


def _request(
    name: str, kind: InstanceType, generation: Generation, names: ConstantScope
) -> InstanceRequest | None:
    """The instance that a parameter wants; None where an argument has a mistake, which is then kept."""
    declared = find_module(kind, generation.scope)
    scope = generation.scope.of(declared)
    params = config_params(trace_lineage(declared, scope))
    before = len(names.findings.items)
    found = _match_arguments(kind.module, params, kind.arguments, names.findings)
    given = {param.name: _give(found[param.name], param, names) for param in params if param.name in found}
    known = {key: value for key, value in given.items() if value is not None}
    if len(known) < len(given) or len(names.findings.items) > before:
        return None
    return InstanceRequest(declared, scope, known, kind.span, name)


def _give(argument: Argument, param: ConfigParam, names: ConstantScope) -> Known | None:
    return names.attempt(argument.value, lambda: _evaluate_argument(argument.value, param, names))


def _uses_layer(kind: InstanceType, names: ConstantScope) -> bool:
    """Whether the elements of an array differ by their index; a declared name of that spelling is what it is."""
    used = names_in(*(argument.value for argument in kind.arguments))
    return LAYER not in names.known and LAYER in used


def _with_layer(names: ConstantScope, index: int) -> ConstantScope:
    """The names as the arguments of one element see them."""
    known: ChainMap[str, Known] = ChainMap({LAYER: Known(index, "its place in the array")}, names.known)
    return replace(names, known=known)


def _build_constants(
    constants: tuple[Constant, ...], names: ConstantScope
) -> Iterator[tuple[str, BuiltConstant]]:
    """The entries of `constants:` with the values of their arguments; element types are words there."""
    types = {word: Known(word) for word in DTYPES} if constants else {}
    inner = replace(names, known=ChainMap(names.known, types))
    for constant in constants:
        wrong = tuple(_check_table(constant, names.module))
        inner.findings.add(*wrong)
        found = [(item.name, _argument(item, inner)) for item in constant.value.arguments]
        values = [(name, known.value) for name, known in found if known is not None]
        if len(values) == len(found) and not wrong:
            callee = constant.value.callee
            function = callee.id if isinstance(callee, Name) else quote(callee.span, "")
            positional = tuple(value for name, value in values if name is None)
            named = {name: value for name, value in values if name is not None}
            yield constant.name, BuiltConstant(function, positional, named, constant.span)


def _check_table(constant: Constant, module: str) -> Iterator[Diagnostic]:
    """Whether there is a function of that name."""
    callee = constant.value.callee
    name = callee.id if isinstance(callee, Name) else quote(callee.span, "this")
    if name not in TABLES:
        where = f"in the constants of '{module}'"
        repair = suggest(name, TABLES) or f"there are {', '.join(sorted(TABLES))}"
        yield name_rules.UNKNOWN.at(callee.span, name=name, where=where, repair=repair)


def _argument(argument: Argument, names: ConstantScope) -> Known | None:
    return names.attempt(argument.value, lambda: Known(evaluate(argument.value, names.known, names.around)))


def _evaluate_argument(argument: Expr, param: ConfigParam, names: ConstantScope) -> Known:
    """The value of an argument in the world of the caller, with the source that it has for the callee."""
    around = EvaluationContext(where=f"in '{names.module}'", words=takes_words(type_of(param)))
    return Known(evaluate(argument, names.known, around), _source(argument, names), argument.span)


def _source(argument: Expr, names: ConstantScope) -> str:
    """A name that is handed on keeps where its value came from."""
    before = names.known.get(argument.id) if isinstance(argument, Name) else None
    if before is None or before.source in ("", "let", "argument"):
        return "argument"
    if before.source == "default":
        return f"argument from the default of '{names.module}'"
    return before.source if before.source.startswith("argument") else f"argument from {before.source}"


def _match_arguments(
    module: str, params: tuple[ConfigParam, ...], arguments: Iterable[Argument], findings: Findings
) -> dict[str, Argument]:
    """Arguments by the names of the parameters that take them: positional ones in order, then by name."""
    places = {param.name: param for param in params}
    found: dict[str, Argument] = {}
    for index, argument in enumerate(arguments):
        name = argument.name if argument.name is not None else _name_at(index, params)
        if name is None:
            what, wanted = f"the call of '{module}'", f"at most {len(params)}"
            findings.add(rules.LENGTH.at(argument.span, what=what, found=index + 1, wanted=wanted, repair=""))
        elif name not in places:
            repair = suggest(name, places)
            findings.add(
                name_rules.UNKNOWN_ARGUMENT.at(argument.span, module=module, name=name, repair=repair)
            )
        elif name in found:
            findings.add(
                name_rules.DUPLICATE.at(
                    argument.span, kind="argument", name=name, where=f"a call of '{module}'"
                )
            )
        else:
            found[name] = argument
    return found


def _name_at(index: int, params: tuple[ConfigParam, ...]) -> str | None:
    return params[index].name if index < len(params) else None


# --- tied parameters: which storage each of them uses -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ties:
    """The tied parameters of one instance beside the tensors and instances that it holds."""

    module: str
    tied: Mapping[str, TiedType]
    tensors: Mapping[str, TensorSlot]
    children: Mapping[str, Child]

    def settle(self, name: str) -> TensorSlot:
        """A tied parameter with the shape and the path of its storage; raises Found where it has none."""
        seen = [name]
        kind = self.tied[name]
        # A tie may lead to another tie: all of them share the storage at the end.
        while (text := write_path(kind.path)) in self.tied:
            if text in seen:
                cycle = " -> ".join([*seen, text])
                raise Found(graphs.CYCLE.at(self.tied[name].span, name=name, cycle=cycle))
            seen.append(text)
            kind = self.tied[text]
        storage = self._find(kind.path, text)
        own = self.tensors[name]
        path = text if storage.tied is None else _below(text, storage.tied)
        return replace(own, dims=storage.dims, dtype=storage.dtype, optional=storage.optional, tied=path)

    def _find(self, path: Path, text: str) -> TensorSlot:
        slot = self.tensors.get(text) or self._find_below(path, text)
        if slot is not None:
            return slot
        if text in self.children:
            what, wanted = f"'{text}'", "a tensor, which can be shared,"
            raise Found(
                rules.KIND.at(
                    path.span, what=what, found="an instance", wanted=wanted, repair="name one of its tensors"
                )
            )
        repair = suggest(text, (*self.tensors, *self.children))
        raise Found(name_rules.UNKNOWN.at(path.span, name=text, where=f"in '{self.module}'", repair=repair))

    def _find_below(self, path: Path, text: str) -> TensorSlot | None:
        first = path.parts[0]
        child = self.children.get(first.name)
        for index in first.indices:
            if not isinstance(child, tuple) or not isinstance(index, int) or index >= len(child):
                return None
            child = child[index]
        rest = write_path(Path(path.parts[1:]))
        return slot_at(child, rest) if isinstance(child, Instance) and rest else None


def _below(path: str, inner: str) -> str:
    """A path from the instance that holds another path's tensor."""
    above, _, _ = path.rpartition(".")
    return f"{above}.{inner}" if above else inner


# --- what a descendant says again must be what its ancestor said --------------------------------------------


def _check_restated(merged: Merged, names: ConstantScope, limits: Limits) -> None:
    """Keep a finding for everything that is restated as something else, or added though it is there."""
    for param in merged.added_twice:
        where = f"'{merged.module.name}'"
        names.findings.add(
            name_rules.DUPLICATE.at(param.span, kind="parameter", name=write_path(param.path), where=where)
        )
    for item in merged.restated:
        finding = names.findings.attempt(partial(_compare, item, names, limits))
        if finding is not None:
            names.findings.add(finding)


def _compare(pair: Restated, names: ConstantScope, limits: Limits) -> Diagnostic | None:
    if isinstance(pair.now, Param) and isinstance(pair.before, Param):
        return _compare_params(pair, pair.now, pair.before, names, limits)
    if isinstance(pair.now, tuple) and isinstance(pair.before, tuple):
        return _compare_ports(pair, pair.now, pair.before, names)
    return None


def _compare_params(
    pair: Restated, now: Param, before: Param, names: ConstantScope, limits: Limits
) -> Diagnostic | None:
    if isinstance(now.type, TensorType) and isinstance(before.type, TensorType):
        if not (_is_measurable(now.type, names) and _is_measurable(before.type, names)):
            return None
        name = write_path(now.path)
        new, old = _measure(name, now.type, names, limits), _measure(name, before.type, names, limits)
        if (new.dims, new.dtype, new.optional) == (old.dims, old.dtype, old.optional):
            return None
        found, wanted = (_shape_text(item.dims, item.dtype, item.optional) for item in (new, old))
    elif now.type == before.type:
        return None
    else:
        found, wanted = _type_text(now.type), _type_text(before.type)
    return _differs(pair, f"'{write_path(now.path)}'", found, wanted, now.span)


def _shape_text(dims: Iterable[object], dtype: str | None, optional: bool) -> str:
    items = [*(str(item) for item in dims), *([dtype] if dtype else [])]
    return f"[{', '.join(items)}]{'?' if optional else ''}"


def _type_text(kind: ParamType) -> str:
    return f"'{quote(kind.span, type(kind).__name__)}'"


def _differs(pair: Restated, what: str, found: str, wanted: str, span: Span) -> Diagnostic:
    return inheritance.RESTATED.at(
        span,
        name=pair.child.module.name,
        what=what,
        parent=pair.parent.module.name,
        found=found,
        wanted=wanted,
    )


def _compare_ports(
    pair: Restated, now: tuple[Port, ...], before: tuple[Port, ...], names: ConstantScope
) -> Diagnostic | None:
    found, wanted = _signature(now, names), _signature(before, names)
    if found == wanted:
        return None
    forward = pair.child.module.forward
    what = "the inputs" if forward is not None and now is forward.inputs else "the outputs"
    span = now[0].span if now else pair.child.module.span
    return _differs(pair, what, _ports_text(now, names), _ports_text(before, names), span)


def _signature(ports: tuple[Port, ...], names: ConstantScope) -> list[object]:
    """Shapes in which a dimension of the inputs is the place of its first use, whatever it is called."""
    places: dict[str, int] = {}
    return [
        tuple(_place(item, names, places) for item in port.type.dims)
        if isinstance(port.type, TensorType)
        else port.type
        for port in ports
    ]


def _place(dim: Dim, names: ConstantScope, places: dict[str, int]) -> object:
    if isinstance(dim, Name) and dim.id not in names.known:
        return f"#{places.setdefault(dim.id, len(places))}"
    return _extent(dim, names)


def _extent(dim: Dim, names: ConstantScope) -> object:
    if isinstance(dim, Star | Unchanged):
        return "*" if isinstance(dim, Star) else "..."
    around = EvaluationContext(where=f"in '{names.module}'", runtime=runtime_dimension)
    return evaluate(dim, names.known, around)


def _ports_text(ports: tuple[Port, ...], names: ConstantScope) -> str:
    shapes = [
        _shape_text((_extent(item, names) for item in port.type.dims), None, port.type.optional)
        if isinstance(port.type, TensorType)
        else quote(port.span, "another kind")
        for port in ports
    ]
    return f"({', '.join(shapes)})" if len(shapes) != 1 else shapes[0]
