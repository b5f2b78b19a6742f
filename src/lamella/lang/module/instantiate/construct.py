"""One instance: its values, then its parameters, in the order of the text."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.base.limits import Limits
from lamella.base.source import Span
from lamella.lang.module.instantiate.bind import (
    Names,
    bind_missing,
    bind_params,
    run_bindings,
    runtime_dimension,
)
from lamella.lang.module.instantiate.collecting import Findings
from lamella.lang.module.instantiate.evaluate import Surroundings, evaluate, evaluate_bool
from lamella.lang.module.instantiate.inherit import Merged, Restated, merge
from lamella.lang.module.instantiate.nodes import Instance, TensorSlot
from lamella.lang.module.instantiate.overrides import Change, Tree, changes_only, is_override
from lamella.lang.module.instantiate.parameters import (
    Wanted,
    ask,
    build_constants,
    count_elements,
    is_measurable,
    measure,
    uses_layer,
    with_layer,
)
from lamella.lang.module.instantiate.telling import names_in, quote
from lamella.lang.module.instantiate.walk import Child, path_text, slot_at, total
from lamella.lang.module.nodes import (
    ArrayType,
    Dim,
    InstanceType,
    Let,
    Module,
    Name,
    Param,
    ParamType,
    Path,
    Port,
    RuntimeDim,
    ScalarType,
    Star,
    TensorType,
    TiedType,
    Unchanged,
)
from lamella.lang.module.resolve.lineage import Generation, trace_lineage
from lamella.lang.module.resolve.near import guess
from lamella.lang.module.rules import constants, graphs, inheritance, syntax
from lamella.lang.module.rules import constants as constants_rules
from lamella.lang.module.rules import inheritance as rules
from lamella.lang.module.rules import names as name_rules

# --- what a descendant says again must be what its ancestor said --------------------------------------------


def check_restated(merged: Merged, names: Names, limits: Limits) -> None:
    """Keep a finding for everything that is restated as something else, or added though it is there."""
    for param in merged.added_twice:
        where = f"'{merged.module.name}'"
        names.findings.add(
            name_rules.DUPLICATE.at(param.span, kind="parameter", name=path_text(param.path), where=where)
        )
    for item in merged.restated:
        finding = names.findings.attempt(partial(_compare, item, names, limits))
        if finding is not None:
            names.findings.add(finding)


def _compare(pair: Restated, names: Names, limits: Limits) -> Diagnostic | None:
    if isinstance(pair.now, Param) and isinstance(pair.before, Param):
        return _compare_params(pair, pair.now, pair.before, names, limits)
    if isinstance(pair.now, tuple) and isinstance(pair.before, tuple):
        return _compare_ports(pair, pair.now, pair.before, names)
    return None


def _compare_params(
    pair: Restated, now: Param, before: Param, names: Names, limits: Limits
) -> Diagnostic | None:
    if isinstance(now.type, TensorType) and isinstance(before.type, TensorType):
        if not (is_measurable(now.type, names) and is_measurable(before.type, names)):
            return None
        name = path_text(now.path)
        new, old = measure(name, now.type, names, limits), measure(name, before.type, names, limits)
        if (new.dims, new.dtype, new.optional) == (old.dims, old.dtype, old.optional):
            return None
        found, wanted = (_shape_text(item.dims, item.dtype, item.optional) for item in (new, old))
    elif now.type == before.type:
        return None
    else:
        found, wanted = _type_text(now.type), _type_text(before.type)
    return _differs(pair, f"'{path_text(now.path)}'", found, wanted, now.span)


def _shape_text(dims: Iterable[object], dtype: str | None, optional: bool) -> str:
    items = [*(str(item) for item in dims), *([dtype] if dtype else [])]
    return f"[{', '.join(items)}]{'?' if optional else ''}"


def _type_text(kind: ParamType) -> str:
    return f"'{quote(kind.span, type(kind).__name__)}'"


def _differs(pair: Restated, what: str, found: str, wanted: str, span: Span) -> Diagnostic:
    return rules.RESTATED.at(
        span,
        name=pair.child.module.name,
        what=what,
        parent=pair.parent.module.name,
        found=found,
        wanted=wanted,
    )


def _compare_ports(
    pair: Restated, now: tuple[Port, ...], before: tuple[Port, ...], names: Names
) -> Diagnostic | None:
    found, wanted = _signature(now, names), _signature(before, names)
    if found == wanted:
        return None
    forward = pair.child.module.forward
    what = "the inputs" if forward is not None and now is forward.inputs else "the outputs"
    span = now[0].span if now else pair.child.module.span
    return _differs(pair, what, _ports_text(now, names), _ports_text(before, names), span)


def _signature(ports: tuple[Port, ...], names: Names) -> list[object]:
    """Shapes in which a dimension of the inputs is the place of its first use, whatever it is called."""
    places: dict[str, int] = {}
    return [
        tuple(_place(item, names, places) for item in port.type.dims)
        if isinstance(port.type, TensorType)
        else port.type
        for port in ports
    ]


def _place(dim: Dim, names: Names, places: dict[str, int]) -> object:
    if isinstance(dim, Name) and dim.id not in names.known:
        return f"#{places.setdefault(dim.id, len(places))}"
    return _extent(dim, names)


def _extent(dim: Dim, names: Names) -> object:
    if isinstance(dim, Star | Unchanged):
        return "*" if isinstance(dim, Star) else "..."
    around = Surroundings(where=f"in '{names.module}'", runtime=runtime_dimension)
    return evaluate(dim, names.known, around)


def _ports_text(ports: tuple[Port, ...], names: Names) -> str:
    shapes = [
        _shape_text((_extent(item, names) for item in port.type.dims), None, port.type.optional)
        if isinstance(port.type, TensorType)
        else quote(port.span, "another kind")
        for port in ports
    ]
    return f"({', '.join(shapes)})" if len(shapes) != 1 else shapes[0]


# --- tied parameters: which storage each of them uses -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ties:
    """The tied parameters of one instance beside the tensors and instances that it holds."""

    module: str
    tied: Mapping[str, TiedType]
    tensors: Mapping[str, TensorSlot]
    children: Mapping[str, Child]

    def settle(self, name: str) -> TensorSlot:
        """A tied parameter with the shape and the path of its storage; Found where it has none."""
        seen = [name]
        kind = self.tied[name]
        while (text := path_text(kind.path)) in self.tied:
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
                constants_rules.KIND.at(
                    path.span, what=what, found="an instance", wanted=wanted, repair="name one of its tensors"
                )
            )
        repair = guess(text, (*self.tensors, *self.children))
        raise Found(name_rules.UNKNOWN.at(path.span, name=text, where=f"in '{self.module}'", repair=repair))

    def _find_below(self, path: Path, text: str) -> TensorSlot | None:
        first = path.parts[0]
        child = self.children.get(first.name)
        for index in first.indices:
            if not isinstance(child, tuple) or not isinstance(index, int) or index >= len(child):
                return None
            child = child[index]
        rest = path_text(Path(path.parts[1:]))
        return slot_at(child, rest) if isinstance(child, Instance) and rest else None


def _below(path: str, inner: str) -> str:
    """A path from the instance that holds another path's tensor."""
    above, _, _ = path.rpartition(".")
    return f"{above}.{inner}" if above else inner


LIKE_OPERATIONS = 20
"""An element with arguments of its own costs as much as so many operations."""
Steps: TypeAlias = Generator[Wanted, Instance | None, Instance | None]
"""A construction that asks for the instances it holds."""
_Element: TypeAlias = Generator[Wanted, Instance | None, Child | None]


@dataclass(slots=True, eq=False)
class _Parts:
    """What an instance holds, while it is built; `complete` until something could not be built."""

    names: Names
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


def construct(wanted: Wanted, findings: Findings, limits: Limits, cache: dict[int, Merged]) -> Steps:
    """The construction of one instance; mistakes go to the findings."""
    merged = _merged(wanted, limits, cache)
    module = merged.module
    _refuse_unfinished(merged, wanted)
    names = _bind(merged, wanted, findings)
    parts = _Parts(names, limits)
    for param, generation in merged.tensors:
        if not is_override(param):
            yield from _add(param, generation, parts)
    built = dict(build_constants(module.constants, names))
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


def _merged(wanted: Wanted, limits: Limits, cache: dict[int, Merged]) -> Merged:
    key = id(wanted.declared.declaration)
    if key not in cache:
        cache[key] = merge(trace_lineage(wanted.declared, wanted.scope, limits))
    return cache[key]


def _refuse_unfinished(merged: Merged, wanted: Wanted) -> None:
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


def _bind(merged: Merged, wanted: Wanted, findings: Findings) -> Names:
    """All values of the constant world."""
    module = merged.module
    params = [param.name for param in module.params or ()]
    runtime = _runtime_names(module)
    names = Names(module.name, findings, runtime=runtime, tensors=_tensor_names(module) - runtime)
    for name in wanted.given:
        if name not in params:
            repair = guess(name, params)
            span = wanted.given[name].span
            findings.add(name_rules.UNKNOWN_ARGUMENT.at(span, module=module.name, name=name, repair=repair))
    bind_params(module, wanted.given, names, wanted.span)
    bind_missing(merged.missing, names, wanted.span)
    reserved = frozenset((*params, *(param.name for param in merged.missing)))
    run_bindings(module.bindings, names, reserved)
    return names


def _runtime_names(module: Module) -> frozenset[str]:
    """Names in the shapes of inputs that are neither parameters nor lets."""
    inputs = module.forward.inputs if module.forward is not None else None
    types = [port.type for port in inputs or ()]
    used = {name for kind in types if isinstance(kind, TensorType) for name in names_in(*kind.dims)}
    lets = {item.name for item in module.bindings if isinstance(item, Let | RuntimeDim)}
    return frozenset(used - lets - {param.name for param in module.params or ()})


def _tensor_names(module: Module) -> frozenset[str]:
    """Names of parameters, constants, inputs and outputs."""
    forward = module.forward
    ports = (*(forward.inputs or ()), *(forward.outputs or ())) if forward is not None else ()
    named = [port.name for port in ports if port.name is not None and not isinstance(port.type, ScalarType)]
    params = [param.path.parts[0].name for param in module.tensors]
    return frozenset((*named, *params, *(item.name for item in module.constants)))


def _add(param: Param, generation: Generation, parts: _Parts) -> Generator[Wanted, Instance | None, None]:
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
                _keep(name, (yield from _single(name, kind, generation, parts)), parts)
            case ArrayType(element=TensorType()):
                _add_stacked(name, kind, param, parts)
            case ArrayType():
                _keep(name, (yield from _elements(name, kind, generation, parts)), parts)
    except Found as problem:
        parts.names.findings.add(problem.finding)
        parts.lost.add(name)


def _choose(param: Param, name: str, parts: _Parts) -> ParamType | None:
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


def _add_tensor(name: str, kind: TensorType, param: Param, parts: _Parts) -> None:
    if is_measurable(kind, parts.names):
        parts.tensors[name] = measure(name, kind, parts.names, parts.limits, param.annotations)
    else:
        parts.lost.add(name)


def _add_stacked(name: str, kind: ArrayType, param: Param, parts: _Parts) -> None:
    """An array of tensors is one tensor with a dimension in front."""
    if isinstance(kind.element, TensorType):
        stacked = replace(kind.element, dims=(kind.size, *kind.element.dims), span=kind.span)
        _add_tensor(name, stacked, param, parts)


def _keep(name: str, child: Child | None, parts: _Parts) -> None:
    if child is None:
        parts.lost.add(name)
    else:
        parts.children[name] = child


def _single(
    name: str, kind: InstanceType, generation: Generation, parts: _Parts, names: Names | None = None
) -> Steps:
    wanted = ask(name, kind, generation, names or parts.names)
    return None if wanted is None else (yield wanted)


def _elements(name: str, kind: ArrayType, generation: Generation, parts: _Parts) -> _Element:
    """The elements of an array: one object as often as the array is long, unless their arguments use the index."""
    if not parts.names.is_usable(kind.size):
        return None
    count = count_elements(name, kind, parts.names, parts.limits)
    if count == 0 or not isinstance(kind.element, InstanceType):
        return ()
    if uses_layer(kind.element, parts.names):
        return (yield from _numbered(name, kind, kind.element, count, generation, parts))
    one = yield from _single(name, kind.element, generation, parts)
    if one is None:
        return None
    _keep_budget(name, count * one.size, kind, parts)
    return (one,) * count


def _numbered(
    name: str, kind: ArrayType, element: InstanceType, count: int, generation: Generation, parts: _Parts
) -> _Element:
    """The elements of an array whose arguments use the index; those with equal arguments are one object still."""
    most = parts.limits.max_operations // LIKE_OPERATIONS
    if count > most:
        what = f"the length of '{name}', {count}, with elements that differ,"
        raise Found(syntax.LIMIT.at(kind.size.span, what=what, limit=most, option="max_operations"))
    found: list[Instance] = []
    size = 0
    for index in range(count):
        names = with_layer(parts.names, index)
        item = yield from _single(f"{name}[{index}]", element, generation, parts, names)
        if item is None:
            return None
        found.append(item)
        size += item.size
        _keep_budget(name, size, kind, parts)
    return tuple(found)


def _keep_budget(name: str, size: int, kind: ArrayType, parts: _Parts) -> None:
    if size > parts.limits.max_operations:
        raise Found(_too_many(name, size, kind.span, parts.limits))


def _too_many(name: str, size: int, span: Span, limits: Limits) -> Diagnostic:
    what = f"the number of parts of '{name}', {size},"
    return syntax.LIMIT.at(span, what=what, limit=limits.max_operations, option="max_operations")


def _finish(merged: Merged, parts: _Parts) -> Tree:
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
    check_restated(merged, parts.names, parts.limits)
    tree = Tree(parts.tensors, parts.children, parts.switched_off)
    for param, _ in merged.tensors:
        if is_override(param) and param.path.parts[0].name not in parts.lost:
            changed = findings.attempt(partial(_override, param, tree, merged, parts))
            tree = changed or tree
    return tree


def _override(param: Param, tree: Tree, merged: Merged, parts: _Parts) -> Tree:
    """One entry of `params:` about what is below, or inherited."""
    name = path_text(param.path)
    kind = _choose(param, name, parts)
    if kind is None:
        return tree
    added = None
    if not changes_only(param):
        if not isinstance(kind, TensorType):
            what, found = f"'{name}'", f"'{quote(kind.span, 'an instance')}'"
            raise Found(
                constants.KIND.at(param.span, what=what, found=found, wanted="a tensor type", repair="")
            )
        added = measure(name, kind, parts.names, parts.limits, param.annotations)
    return Change(merged.module.name, param.path, param.annotations, added).apply(tree)
