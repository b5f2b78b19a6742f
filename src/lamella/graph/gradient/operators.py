"""The backward operators of an operator, derived from its formulas: one for each input, SkriptND text like any other.

    y[p] += v(x[q], …), i < s     gives     d_x[q] += d_y[p] · ∂v/∂x[q], i < s

The indices of the element that was read become those of the element that is written: a contraction swaps the roles of its
indices, a gather becomes a scatter, an index that is skipped outside its range is skipped here too. `<=` and `>=` give the
gradient to the elements that were selected, in equal parts; `*=` needs the product of all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.graph.gradient.expressions import (
    ONE,
    ZERO,
    Derivative,
    differentiable,
    names_in,
    parts_of,
    product,
    quotient,
)
from lamella.lang.skriptnd import nodes as n

ADDING = ("=", ":=", "+=")
SELECTING = ("<=", ">=")
REAL = "real"


@dataclass(frozen=True, slots=True)
class BackwardOperator:
    """A derived operator, the private ones that it calls, and what it takes.

    Its inputs are the gradients of `gradients`, all inputs of the operator, then the outputs that `results` names.
    """

    operator: n.Operator
    parts: tuple[n.Operator, ...]
    gradients: tuple[str, ...]
    results: tuple[str, ...]


def derive(operator: n.Operator, wanted: str) -> BackwardOperator:
    """The backward operator for one input of an operator with formulas; Unsupported says why there is none."""
    return _Derivation(operator, wanted).run()


def is_real(parameter: n.Parameter, types: Mapping[str, str]) -> bool:
    """Whether the elements of a parameter may be reals."""
    return types.get(parameter.type.name, parameter.type.name) in (REAL, "num", "type", "arith")


class _Derivation:
    """One operator and one of its inputs."""

    def __init__(self, operator: n.Operator, wanted: str) -> None:
        self.source, self.wanted = operator, wanted
        self.types = {item.name: item.base for item in operator.items("dtype") if isinstance(item, n.Dtype)}
        self.inputs = {item.name: item for item in operator.parameters("input")}
        self.outputs = {
            item.name: item for item in operator.parameters("output") if is_real(item, self.types)
        }
        self.lowerings = [item for item in operator.items("lower") if isinstance(item, n.Lowering)]
        self.optional = frozenset(
            item.name
            for section in ("attrib", "input")
            for item in operator.parameters(section)
            if item.type.optional
        )
        self.gradient = f"d_{wanted}"
        self.name = f"{operator.name}_d_{wanted}"

    def run(self) -> BackwardOperator:
        """Derive every formula that reads the input."""
        self._verify()
        found = [
            item for number in range(len(self.lowerings)) for item in self._derive(number)
        ]
        reads = {name for item in found for name in _tensors_in(item)}
        kept = tuple(name for name in self.outputs if f"d_{name}" in reads)
        if not found or not kept:
            raise Unsupported(f"no output depends on '{self.wanted}' smoothly")
        selected = {item.target.tensor: item.sign for item in self.lowerings if item.target.tensor in kept}
        if any(sign not in ADDING for sign in selected.values()):
            return self._composed(found, kept)
        return BackwardOperator(self._operator(self.name, found, self._gradients(kept)), (), kept, ())

    def _verify(self) -> None:
        if self.wanted not in self.inputs or not is_real(self.inputs[self.wanted], self.types):
            raise Unsupported(f"'{self.wanted}' is no input of reals")
        if not self.lowerings:
            raise Unsupported(f"'{self.source.name}' has no formula")
        for item in self.lowerings:
            used = {name for name in _tensors_in(item) if name != item.target.tensor}
            used |= {name for part in (item.value, item.condition, item.locals) for name in _tensors_in(part)}
            read = [name for name in used if name in self.outputs]
            if read:
                raise Unsupported(f"a formula reads '{read[0]}', which it or another one computes")

    # --- one formula ------------------------------------------------------------------------------------------------

    def _derive(self, number: int) -> Iterator[n.Lowering]:
        """The formulas of the gradient for one formula: one for each way in which it reads the input."""
        lowering = self.lowerings[number]
        if lowering.target.tensor not in self.outputs:
            return
        seed = replace(lowering.target, tensor=f"d_{lowering.target.tensor}")
        for access in self._accesses(lowering):
            slopes = self._local_slopes(lowering, access)
            names = {name: n.Name(f"d_{name}") for name in slopes}
            value = lowering.value
            if isinstance(value, n.List):
                raise Unsupported("a formula that assigns a pack has no derivative here")
            slope = Derivative(access, names, self.optional).of(value)
            if slope == ZERO:
                continue
            self._verify_last(number)
            locals = tuple(n.Local(f"d_{name}", item) for name, item in slopes.items())
            made = self._value(lowering, seed, slope)
            moving = {item.index for item in lowering.bounds} | {item.name for item in lowering.locals}
            yield replace(
                lowering,
                target=replace(access, tensor=self.gradient),
                sign="+=",
                value=_optional(made, frozenset(moving)),
                locals=(*lowering.locals, *locals),
                notes=n.Lowering(lowering.target, "=", ZERO).notes,
            )

    def _accesses(self, lowering: n.Lowering) -> list[n.Access]:
        """The different elements of the input that a formula reads."""
        parts = (lowering.value, *(item.value for item in lowering.locals))
        found = [item for part in parts for item in differentiable(part) if isinstance(item, n.Access)]
        return list(dict.fromkeys(item for item in found if item.tensor == self.wanted))

    def _local_slopes(self, lowering: n.Lowering, access: n.Access) -> dict[str, n.Expr]:
        """The derivatives of the intermediate values that depend on an element, in order."""
        found: dict[str, n.Expr] = {}
        for item in lowering.locals:
            names = {name: n.Name(f"d_{name}") for name in found}
            slope = Derivative(access, names, self.optional).of(item.value)
            if slope != ZERO:
                found[item.name] = slope
        return found

    def _verify_last(self, number: int) -> None:
        """What a later formula overwrites has no gradient; only formulas of the same input are known to exclude it."""
        target = self.lowerings[number].target.tensor
        for later in self.lowerings[number + 1 :]:
            if later.target.tensor == target and later.sign in ("=", ":="):
                if not any(item.tensor == self.wanted for item in self._accesses(later)):
                    raise Unsupported(f"a later formula overwrites what '{self.wanted}' gives '{target}'")

    def _value(self, lowering: n.Lowering, seed: n.Access, slope: n.Expr) -> n.Expr:
        """What a step adds to the gradient."""
        value, target = lowering.value, lowering.target
        if lowering.sign in ADDING:
            return product(seed, slope)
        if isinstance(value, n.List):
            raise Unsupported("a formula that assigns a pack has no derivative here")
        if lowering.sign in SELECTING:
            shared = quotient(product(seed, slope), replace(target, tensor="count"))
            return n.Select(n.Chain(value, (("==", target),)), shared, ZERO)
        if lowering.sign == "*=":
            zeros, rest = (replace(target, tensor=name) for name in ("zeros", "rest"))
            alone = n.Chain(zeros, (("==", ONE),))
            here = n.Chain(value, (("==", ZERO),))
            none = n.Chain(zeros, (("==", ZERO),))
            others = n.Select(
                none, quotient(rest, value), n.Select(n.Chain(alone, (("&&", here),)), rest, ZERO)
            )
            return product(product(seed, slope), others)
        raise Unsupported(f"'{lowering.sign}' has no derivative")

    # --- operators --------------------------------------------------------------------------------------------------

    def _gradients(self, kept: Sequence[str]) -> list[n.Parameter]:
        return [self._like_output(name, f"d_{name}") for name in kept]

    def _like_output(self, name: str, other: str) -> n.Parameter:
        """An input with the shape of an output: the same symbols where the inputs declare them, else new ones."""
        type = self.outputs[name].type
        known = set(names_in([item.type for item in self.inputs.values()]))
        known |= {item.name for item in self.source.parameters("attrib")}
        shape = type.shape or ()
        plain = all(isinstance(item.value, n.Name) and item.value.id in known for item in shape)
        if plain:
            return n.Parameter(other, replace(_as_real(type, self.types), optional=False))
        if type.pack is not None:
            raise Unsupported(f"'{name}' is a pack whose shape the inputs do not tell")
        extent = n.Extent(n.Name(f"s_{other}"), pack=n.Pack())
        return n.Parameter(other, n.TypeSpec(REAL, shape=(extent,)))

    def _operator(
        self, name: str, lowerings: Sequence[n.Lowering], before: Sequence[n.Parameter], after: Sequence[n.Parameter] = ()
    ) -> n.Operator:
        """An operator with the attributes and inputs of the source, and some more inputs."""
        own = self.inputs[self.wanted]
        output = n.Parameter(self.gradient, replace(_as_real(_closed(own.type), self.types), optional=False))
        return self._made(name, before, after, output, n.Section("lower", tuple(lowerings)))

    def _made(
        self,
        name: str,
        before: Sequence[n.Parameter],
        after: Sequence[n.Parameter],
        output: n.Parameter,
        body: n.Section,
    ) -> n.Operator:
        inputs = [replace(item, type=_as_real(item.type, self.types)) for item in self.inputs.values()]
        # What declares the symbols of a shape stands before what uses them.
        ordered = (*inputs, *before, *after)
        kept = self._reals()
        dtypes = tuple(item for item in self.source.items("dtype") if isinstance(item, n.Dtype) and item.name not in kept)
        sections = [
            n.Section("dtype", dtypes),
            *(item for item in self.source.sections if item.name == "attrib"),
            n.Section("input", ordered),
            n.Section("output", (output,)),
            *(item for item in self.source.sections if item.name in ("constant", "using", "assert")),
            body,
        ]
        made = n.Operator(name, tuple(item for item in sections if item.items))
        return _respelled(made, kept)

    def _reals(self) -> frozenset[str]:
        """The generic types that are reals where there is a gradient."""
        items = [*self.outputs.values(), self.inputs[self.wanted]]
        return frozenset(item.type.name for item in items if item.type.name in self.types)

    # --- selections and products: what was selected must be counted first -------------------------------------------

    def _composed(self, found: Sequence[n.Lowering], kept: Sequence[str]) -> BackwardOperator:
        """An operator that counts first, or multiplies, and then shares out."""
        if len(kept) != 1 or len(self.lowerings) != 1:
            raise Unsupported("a selection among several formulas has no derivative here")
        (output,) = kept
        lowering = self.lowerings[0]
        if isinstance(lowering.value, n.List):
            raise Unsupported("a formula that assigns a pack has no derivative here")
        parts, tensors = [], []
        for name, sign, value in _statistics(lowering):
            tensors.append(name)
            target = replace(lowering.target, tensor=name)
            parts.append(self._statistic(f"_{self.source.name}_{name}_{self.wanted}", replace(lowering, target=target, sign=sign, value=value), output))
        results = [self._like_output(output, output)] if lowering.sign in SELECTING else []
        others = [self._like_output(output, name) for name in tensors]
        inner = self._operator(f"_{self.name}", found, self._gradients(kept), [*results, *others])
        calls = [self._call(part.name, name, output, results) for part, name in zip(parts, tensors, strict=True)]
        arguments = [*self.inputs, f"d_{output}", *(item.name for item in results), *tensors]
        calls.append(self._invoke(inner.name, self.gradient, arguments))
        own = self.inputs[self.wanted]
        result = n.Parameter(self.gradient, replace(_as_real(_closed(own.type), self.types), optional=False))
        made = self._made(self.name, self._gradients(kept), results, result, n.Section("compose", tuple(calls)))
        return BackwardOperator(made, (*parts, inner), tuple(kept), (output,) if results else ())

    def _statistic(self, name: str, lowering: n.Lowering, output: str) -> n.Operator:
        results = [self._like_output(output, output)] if output in set(_tensors_in(lowering.value)) else []
        type = replace(_as_real(self.outputs[output].type, self.types), optional=False)
        return self._made(name, [], results, n.Parameter(lowering.target.tensor, type), n.Section("lower", (lowering,)))

    def _call(self, operator: str, result: str, output: str, results: Sequence[n.Parameter]) -> n.Component:
        return self._invoke(operator, result, [*self.inputs, *(item.name for item in results)])

    def _invoke(self, operator: str, result: str, arguments: Iterable[str]) -> n.Component:
        attributes = tuple(
            n.Attribute(item.name, n.Name(item.name)) for item in self.source.parameters("attrib")
        )
        call = n.Invocation(operator, (), attributes, tuple(n.Name(item) for item in arguments))
        return n.Component((n.Result(result),), call)


def _statistics(lowering: n.Lowering) -> Iterator[tuple[str, str, n.Expr]]:
    """The tensors that a selection or a product needs: name, sign and value."""
    value = lowering.value
    if isinstance(value, n.List):
        return
    if lowering.sign in SELECTING:
        yield "count", "+=", n.Select(n.Chain(value, (("==", lowering.target),)), ONE, ZERO)
    else:
        here = n.Chain(value, (("==", ZERO),))
        yield "zeros", "+=", n.Select(here, ONE, ZERO)
        yield "rest", "*=", n.Select(here, ONE, value)


# --- types and texts ----------------------------------------------------------------------------------------


def _as_real(type: n.TypeSpec, types: Mapping[str, str]) -> n.TypeSpec:
    return type


def _closed(type: n.TypeSpec) -> n.TypeSpec:
    """The type of an input as that of an output: nothing is declared any more."""
    if type.shape is None:
        return replace(type, rank=None)
    shape = tuple(replace(item, pack=None if item.pack is None else n.Pack(), bound=None) for item in type.shape)
    return replace(type, rank=None, shape=shape)


def _tensors_in(node: object) -> Iterator[str]:
    """The tensors whose elements a node names."""
    if isinstance(node, n.Access):
        yield node.tensor
    for part in parts_of(node):
        if not isinstance(part, str):
            yield from _tensors_in(part)


def _respelled(node: n.Operator, names: frozenset[str]) -> n.Operator:
    """An operator with generic types as reals."""

    def change(item: object) -> object:
        if isinstance(item, n.TypeSpec) and item.name in names:
            item = replace(item, name=REAL)
        elif isinstance(item, n.Cast) and item.type in names:
            item = replace(item, type=REAL)
        if isinstance(item, tuple):
            return tuple(change(part) for part in item)
        if hasattr(item, "__dataclass_fields__"):
            fields = [name for name in item.__dataclass_fields__ if name not in ("span", "notes", "end")]
            changed = {name: change(getattr(item, name)) for name in fields}
            if any(changed[name] is not getattr(item, name) for name in fields):
                return replace(item, **changed)  # type: ignore[type-var]
        return item

    found = change(node)
    assert isinstance(found, n.Operator)
    return found


def _optional(value: n.Expr, moving: frozenset[str]) -> n.Expr:
    """A value that is null, not 0, where a condition on attributes fails: then there is no formula at all."""
    if isinstance(value, n.Select) and value.otherwise == ZERO and not _moves(value.condition, moving):
        return n.Select(value.condition, _optional(value.then, moving))
    if isinstance(value, n.Chain) and all(sign in ("*", "/") for sign, _ in value.rest):
        first = _optional(value.first, moving)
        rest = tuple((sign, _optional(item, moving) if sign == "*" else item) for sign, item in value.rest)
        return n.Chain(first, rest)
    if isinstance(value, n.Unary):
        return replace(value, operand=_optional(value.operand, moving))
    return value


def _moves(condition: n.Expr, moving: frozenset[str]) -> bool:
    """Whether a condition may change from step to step."""
    return any(name in moving for name in names_in(condition)) or any(True for _ in _tensors_in(condition))
