"""The backward operators of an operator, derived from its formulas: one for each input, SkriptND text like any other.

    y[p] += v(x[q], …), i < s     gives     d_x[q] += d_y[p] · ∂v/∂x[q], i < s

The indices of the element that was read become those of the element that is written: a contraction swaps the roles of
its indices, a gather becomes a scatter, an index that is skipped outside its range is skipped here too. `<=` and `>=`
give the gradient to the elements that were selected, in equal parts; `*=` needs the product of all others. Where
numbers say which element a step assigns, several may assign one: the gradient is given to those whose value stayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd.check.definitions import invoked
from lamella.ops.gradient.cases import separate
from lamella.ops.gradient.expressions import (
    ONE,
    ZERO,
    Derivative,
    differentiable,
    names_in,
    parts_of,
    product,
    quotient,
)

ADD, CHOOSE = "math.add", "math.select"
ADDING = ("=", ":=", "+=")
SELECTING = ("<=", ">=")
REAL = "real"


@dataclass(frozen=True, slots=True)
class BackwardOperator:
    """A derived operator, and the private ones that it calls.

    Its inputs go by the names of the operator's inputs and outputs; `d_y` is the gradient of output `y`.
    """

    operator: n.Operator
    parts: tuple[n.Operator, ...] = ()

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of its inputs, in order."""
        return tuple(item.name for item in self.operator.parameters("input"))


def as_document(found: Iterable[BackwardOperator]) -> n.Document:
    """Derived operators as a module, which imports what they call."""
    operators = [part for item in found for part in (*item.parts, item.operator)]
    called = {module for item in operators for name in invoked(item) if (module := name.rpartition(".")[0])}
    return n.Document((n.Import(tuple(sorted(called))),) if called else (), tuple(operators))


def derive(operator: n.Operator, wanted: str, prefix: str = "") -> BackwardOperator | None:
    """The backward operator for one input of an operator with formulas; None where no output depends on it smoothly.

    Names begin with the prefix. Unsupported says what cannot be derived.
    """
    return Derivation(operator, wanted, prefix).run()


def is_real(parameter: n.Parameter, types: Mapping[str, str]) -> bool:
    """Whether the elements of a parameter may be reals."""
    return types.get(parameter.type.name, parameter.type.name) in (REAL, "num", "type", "arith")


class Derivation:
    """One operator and one of its inputs."""

    def __init__(self, operator: n.Operator, wanted: str, prefix: str) -> None:
        self.source, self.wanted = operator, wanted
        self.types = {item.name: item.base for item in operator.items("dtype") if isinstance(item, n.Dtype)}
        self.inputs = {item.name: item for item in operator.parameters("input")}
        self.results = {item.name: item for item in operator.parameters("output")}
        self.outputs = {name: item for name, item in self.results.items() if is_real(item, self.types)}
        self.lowerings = [item for item in operator.items("lower") if isinstance(item, n.Lowering)]
        self.optional = frozenset(
            item.name
            for section in ("attrib", "input")
            for item in operator.parameters(section)
            if item.type.optional and item.name != wanted
        )
        self.gradient = f"d_{wanted}"
        self.helpers: dict[str, tuple[str, tuple[n.Lowering, ...]]] = {}
        """Tensors like an output that are computed first: which output, and by which formulas."""
        self.seeds: dict[str, str] = {}
        """What comes back to outputs whose formulas go on from their own elements."""
        self.name = f"{prefix}{operator.name}_d_{wanted}"

    def run(self) -> BackwardOperator | None:
        """Derive every formula that reads the input."""
        self._verify()
        found = [item for number in range(len(self.lowerings)) for item in self._derive(number)]
        if not found:
            return None
        output, cases = self.output, separate(found)
        if not self.helpers and len(cases) == 1:
            return BackwardOperator(self.build(self.name, output, n.Section("lower", cases[0].formulas)))
        parts = [self._helper(*item) for item in self.helpers.items()]
        names = [f"_{self.name}{f'_{number}' * (len(cases) > 1)}" for number, _ in enumerate(cases, 1)]
        inner = [
            self.build(name, output, n.Section("lower", item.formulas))
            for name, item in zip(names, cases, strict=True)
        ]
        calls = [_component(_result(item), _invocation(item)) for item in parts]
        calls += self._joined([(item.condition, one) for item, one in zip(cases, inner, strict=True)])
        whole = self.build(self.name, output, n.Section("compose", tuple(calls)))
        return BackwardOperator(whole, (*parts, *inner))

    def _joined(self, cases: Sequence[tuple[n.Expr | None, n.Operator]]) -> Iterator[n.Component]:
        """The calls of operators of which attributes choose one, or whose results are added."""
        chosen = [(condition, _invocation(one)) for condition, one in cases if condition is not None]
        if chosen:
            nothing = n.Invocation(CHOOSE, (), (), (n.Bool(False), n.Name(self.wanted), ZERO))
            (first, _), (second, other) = chosen[0], chosen[-1]
            whole = len(chosen) == 2 and n.Unary("!", first) == second
            rest = chosen[:-1] if whole else chosen
            yield _component(self.gradient, n.Branch(tuple(rest), other if whole else nothing))
            return
        names = [f"part_{number}" for number, _ in enumerate(cases, 1)]
        last = self.gradient if len(cases) == 1 else names[0]
        yield _component(last, _invocation(cases[0][1]))
        for number, (_, one) in enumerate(cases[1:], 1):
            yield _component(names[number], _invocation(one))
            made = self.gradient if number == len(cases) - 1 else f"sum_{number}"
            yield _component(made, n.Invocation(ADD, (), (), (n.Name(last), n.Name(names[number]))))
            last = made

    @property
    def output(self) -> n.Parameter:
        """The gradient that is computed."""
        own = self.inputs[self.wanted]
        return n.Parameter(self.gradient, replace(closed(own.type), optional=False))

    def _verify(self) -> None:
        self.verify_wanted()
        if not self.lowerings:
            raise Unsupported(f"'{self.source.name}' has no formula")
        self._verify_reads()

    def verify_wanted(self) -> None:
        """Refuse what is no input of reals."""
        if self.wanted not in self.inputs or not is_real(self.inputs[self.wanted], self.types):
            raise Unsupported(f"'{self.wanted}' is no input of reals")
        locals = [one.name for item in self.lowerings for one in item.locals]
        made = {self.gradient, *(f"d_{name}" for name in (*self.outputs, *locals))}
        taken = made & {*self.inputs, *self.results, *locals}
        if taken:
            raise Unsupported(f"it has a '{min(taken)}' already, as gradients have: it is one itself")

    def _verify_reads(self) -> None:
        """Refuse formulas that read what another one computes; where one goes on from its own, go back."""
        for number, item in enumerate(self.lowerings):
            if item.target.tensor not in self.outputs:
                continue
            parts = (item.value, item.condition, item.locals, item.target.indices)
            read = [name for part in parts for name in _tensors_in(part) if name in self.outputs]
            if not read:
                continue
            if not self._is_scan(number, read):
                raise Unsupported(f"a formula reads '{read[0]}', which it or another one computes")
            self._go_back(item)

    # --- scans ------------------------------------------------------------------------------------------------------

    def _is_scan(self, number: int, read: Sequence[str]) -> bool:
        """Whether a formula goes on from its own elements, each of which it computes once, and is the last to do so."""
        lowering = self.lowerings[number]
        target = lowering.target
        tested = [*_tensors_in(lowering.condition), *_tensors_in(target.indices)]
        is_own = set(read) == {target.tensor} and target.tensor not in tested
        is_last = not any(item.target.tensor == target.tensor for item in self.lowerings[number + 1 :])
        counted = set(names_in(target.indices))
        is_once = all(item.index in counted for item in lowering.bounds)
        return is_own and is_last and is_once and lowering.sign in ("=", ":=")

    def _go_back(self, lowering: n.Lowering) -> None:
        """The adjoint of a scan, the last i first: h[i + 1] := f(h[i]) gives back[i] += back[i + 1] · ∂f/∂h[i]."""
        tensor, name = lowering.target.tensor, f"back_{lowering.target.tensor}"
        parts = (lowering.value, *(item.value for item in lowering.locals))
        found = [item for part in parts for item in differentiable(part) if isinstance(item, n.Access)]
        accesses = list(dict.fromkeys(item for item in found if item.tensor == tensor))
        if len(accesses) != 1 or isinstance(lowering.value, n.List):
            raise Unsupported(f"a formula reads several elements of '{tensor}', which it computes")
        (access,) = accesses
        slopes = self._local_slopes(lowering, access)
        names = {item: n.Name(f"d_{item}") for item in slopes}
        slope = Derivative(access, names, self.optional).of(lowering.value)
        before, behind = replace(access, tensor=name), replace(lowering.target, tensor=name)
        step = replace(
            lowering,
            target=before,
            sign=":=",
            value=n.Chain(before, (("+", product(behind, slope)),)),
            locals=(*lowering.locals, *(n.Local(f"d_{item}", value) for item, value in slopes.items())),
        )
        self.helpers[name] = tensor, (self._copied(tensor, name), _backwards(step, lowering.target, access))
        self.seeds[tensor] = name

    def _copied(self, output: str, name: str) -> n.Lowering:
        """The gradient that comes back to an output, under another name."""
        given = n.Access(self.seeds.get(output, f"d_{output}"), None, (n.Expand(n.Name("o")),))
        bound = n.Bound("o", n.Member(given.tensor, "shape"))
        return n.Lowering(replace(given, tensor=name), "=", given, (bound,))

    # --- one formula ------------------------------------------------------------------------------------------------

    def _derive(self, number: int) -> Iterator[n.Lowering]:
        """The formulas of the gradient for one formula: one for each way in which it reads the input."""
        lowering = self.lowerings[number]
        if lowering.target.tensor not in self.outputs:
            return
        own = lowering.target.tensor
        seed = replace(lowering.target, tensor=self.seeds.get(own, f"d_{own}"))
        for access in self._accesses(lowering):
            slopes = self._local_slopes(lowering, access)
            names = {name: n.Name(f"d_{name}") for name in slopes}
            value = lowering.value
            if isinstance(value, n.List):
                raise Unsupported("a formula that assigns a pack has no derivative here")
            slope = Derivative(access, names, self.optional, self._is_pack(access)).of(value)
            if slope == ZERO:
                continue
            slope = self._by_result(lowering, slope)
            over = self._overwriting(number)
            if over:
                seed = replace(seed, tensor=self._mask(number, over))
            locals = tuple(n.Local(f"d_{name}", item) for name, item in slopes.items())
            made = self._value(lowering, seed, slope)
            moving = {item.index for item in lowering.bounds} | {item.name for item in lowering.locals}
            conditions = [] if lowering.condition is None else [lowering.condition]
            counting = {item.index for item in lowering.bounds}
            is_safe = all(_stays_inside(item, counting) for item in access.indices)
            if not is_safe and not self._is_pack(access):
                made = _hoisted(made, conditions)
            yield replace(
                lowering,
                target=replace(access, tensor=self.gradient),
                sign="+=",
                value=_optional(made, frozenset(moving)),
                condition=_all(conditions),
                locals=(*lowering.locals, *locals),
                notes=n.Lowering(lowering.target, "=", ZERO).notes,
            )

    def _by_result(self, lowering: n.Lowering, slope: n.Expr) -> n.Expr:
        """A slope that reads what the formula gave where that is all that it needs of it: tanh' = 1 - y · y."""
        is_alone = [item.target.tensor for item in self.lowerings].count(lowering.target.tensor) == 1
        if not is_alone or lowering.sign not in ("=", ":=") or lowering.locals:
            return slope
        found = n.rebuilt(slope, lambda node: lowering.target if node == lowering.value else node)
        return slope if self.wanted in _tensors_in(found) else cast(n.Expr, found)

    def _accesses(self, lowering: n.Lowering) -> list[n.Access]:
        """The different elements of the input that a formula reads."""
        parts = (lowering.value, *(item.value for item in lowering.locals))
        found = [item for part in parts for item in differentiable(part) if isinstance(item, n.Access)]
        return list(dict.fromkeys(item for item in found if item.tensor == self.wanted))

    def _is_pack(self, access: n.Access) -> bool:
        """Whether an index is a list of indices, so that the access gives as many elements."""
        lists = {
            part.name
            for item in self.source.items("using")
            if isinstance(item, n.Using) and isinstance(item.value, n.List)
            for part in _results(item.target)
        }
        return any(isinstance(item, n.Name) and item.id in lists for item in access.indices)

    def _local_slopes(self, lowering: n.Lowering, access: n.Access) -> dict[str, n.Expr]:
        """The derivatives of the intermediate values that depend on an element, in order."""
        found: dict[str, n.Expr] = {}
        for item in lowering.locals:
            names = {name: n.Name(f"d_{name}") for name in found}
            slope = Derivative(access, names, self.optional, self._is_pack(access)).of(item.value)
            if slope != ZERO:
                found[item.name] = slope
        return found

    def _overwriting(self, number: int) -> tuple[n.Lowering, ...]:
        """The later formulas that may overwrite what a formula gives."""
        target = self.lowerings[number].target.tensor
        later = self.lowerings[number + 1 :]
        return tuple(item for item in later if item.target.tensor == target and item.sign in ("=", ":="))

    def _mask(self, number: int, over: Sequence[n.Lowering]) -> str:
        """The gradient of an output without what later formulas overwrite."""
        output, name = over[0].target.tensor, f"kept_{number}"
        copied = self._copied(output, name)
        erased = (
            replace(item, target=replace(item.target, tensor=name), value=_nothing(item.value))
            for item in over
        )
        self.helpers[name] = output, (copied, *erased)
        return name

    def _value(self, lowering: n.Lowering, seed: n.Access, slope: n.Expr) -> n.Expr:
        """What a step adds to the gradient."""
        value, target = lowering.value, lowering.target
        group = [item for item in self.lowerings if item.target.tensor == target.tensor]
        sign = group[-1].sign
        if all(item.sign in ADDING for item in group):
            # Of several steps at one place the last one counts; a copied value is found again to the last bit.
            places = (target.indices, lowering.locals)
            repeats = lowering.sign == ":=" and any(True for item in places for _ in _tensors_in(item))
            added = product(seed, slope)
            return n.Select(_is_taken(lowering), added, ZERO) if repeats and slope == ONE else added
        # A selection, or a product, may begin at a value of its own.
        if (
            isinstance(value, n.List)
            or len(group) > 2
            or (len(group) == 2 and group[0].sign not in ("=", ":="))
        ):
            raise Unsupported("a selection among several formulas has no derivative here")
        if sign in SELECTING:
            count = self._count("count", group, "+=", lambda item: n.Select(_is_taken(item), ONE, ZERO))
            at_place = replace(count, indices=target.indices)
            return n.Select(_is_taken(lowering), quotient(product(seed, slope), at_place), ZERO)
        if sign == "*=":
            here = n.Chain(value, (("==", ZERO),))
            found = self._count("zeros", group, "+=", lambda item: n.Select(_is_zero(item), ONE, ZERO))
            zeros = replace(found, indices=target.indices)
            found = self._count("rest", group, "*=", lambda item: n.Select(_is_zero(item), ONE, _plain(item)))
            rest = replace(found, indices=target.indices)
            alone = n.Chain(n.Chain(zeros, (("==", ONE),)), (("&&", here),))
            others = n.Select(
                n.Chain(zeros, (("==", ZERO),)), quotient(rest, value), n.Select(alone, rest, ZERO)
            )
            return product(product(seed, slope), others)
        raise Unsupported(f"'{lowering.sign}' has no derivative")

    def _count(
        self, name: str, group: Sequence[n.Lowering], sign: str, value: Callable[[n.Lowering], n.Expr]
    ) -> n.Access:
        """A statistic of what an element was selected from, or multiplied of."""
        signs = ["=", sign] if len(group) == 2 else [sign]
        made = tuple(
            replace(item, target=replace(item.target, tensor=name), sign=one, value=value(item))
            for item, one in zip(group, signs, strict=True)
        )
        self.helpers[name] = group[0].target.tensor, made
        return made[0].target

    # --- operators --------------------------------------------------------------------------------------------------

    def _helper(self, name: str, made: tuple[str, tuple[n.Lowering, ...]]) -> n.Operator:
        """The operator that computes a tensor like an output."""
        output, lowerings = made
        result = n.Parameter(name, replace(self.outputs[output].type, optional=False))
        return self.build(f"_{self.name}_{name}", result, n.Section("lower", lowerings))

    def like_output(self, name: str, other: str) -> n.Parameter:
        """An input with the shape of an output: the same symbols where the inputs declare them, else new ones."""
        type = self.results[name].type
        if self.is_told(name):
            return n.Parameter(other, replace(type, optional=False))
        if type.pack is not None:
            raise Unsupported(f"'{name}' is a pack whose shape the inputs do not tell")
        extent = n.Extent(n.Name(f"s_{other}"), pack=n.Pack())
        element = REAL if name in self.outputs else type.name
        return n.Parameter(other, n.TypeSpec(element, shape=(extent,)))

    def is_told(self, output: str) -> bool:
        """Whether the inputs declare the shape of an output."""
        known = set(names_in([item.type for item in self.inputs.values()]))
        # An attribute that must be given would have to be given for this alone.
        known |= {item.name for item in self.source.parameters("attrib") if item.value is not None}
        return all(_is_told(item, known) for item in self.results[output].type.shape or ())

    def build(self, name: str, output: n.Parameter, body: n.Section) -> n.Operator:
        """An operator with the attributes and inputs of the source that its formulas need, and gradients of outputs."""
        own = self.inputs[self.wanted]
        inputs = {**self.inputs, self.wanted: replace(own, type=replace(own.type, optional=False))}
        read = {*names_in(body.items)}
        like = [(item, f"d_{item}") for item in self.outputs] + [(item, item) for item in self.results]
        if body.name == "lower":
            like += [(made[0], item) for item, made in self.helpers.items()]
        others = [self.like_output(*item) for item in like if item[1] in read and item[1] != output.name]
        kept = self.reals()
        dtypes = tuple(
            item for item in self.source.items("dtype") if isinstance(item, n.Dtype) and item.name not in kept
        )
        sections = [
            n.Section("dtype", dtypes),
            *(item for item in self.source.sections if item.name == "attrib"),
            # What declares the symbols of a shape stands before what uses them.
            n.Section("input", (*inputs.values(), *others)),
            n.Section("output", (output,)),
            *(item for item in self.source.sections if item.name in ("constant", "using")),
            body,
        ]
        made = n.Operator(name, tuple(item for item in sections if item.items))
        return respelled(_without_unused(made), kept)

    def reals(self) -> frozenset[str]:
        """The generic types that are reals where there is a gradient."""
        items = [*self.outputs.values(), self.inputs[self.wanted]]
        return frozenset(item.type.name for item in items if item.type.name in self.types)


def _plain(lowering: n.Lowering) -> n.Expr:
    if isinstance(lowering.value, n.List):
        raise Unsupported("a formula that assigns a pack has no derivative here")
    return lowering.value


def _is_taken(lowering: n.Lowering) -> n.Expr:
    """Whether the value of a formula is the one that was selected."""
    return n.Chain(_plain(lowering), (("==", lowering.target),))


def _is_zero(lowering: n.Lowering) -> n.Expr:
    return n.Chain(_plain(lowering), (("==", ZERO),))


def _backwards(step: n.Lowering, target: n.Access, access: n.Access) -> n.Lowering:
    """A formula from its last step to its first, along the indices that tell target and operand apart."""
    pairs = zip(target.indices, access.indices, strict=True)
    moving = {name for one, two in pairs if one != two for name in names_in((one, two))}
    limits = {item.index: item.limit for item in step.bounds if item.index in moving}

    def change(node: object) -> object:
        if isinstance(node, n.Name) and node.id in limits:
            return n.Chain(limits[node.id], (("-", n.Integer(1)), ("-", node)))
        return node

    made = [n.rebuilt(item, change) for item in (step.target, step.value, step.locals, step.condition)]
    return replace(
        step,
        **dict(zip(("target", "value", "locals", "condition"), made, strict=True)),  # type: ignore[arg-type]
    )


def _nothing(value: object) -> n.Expr:
    """0, where a value is not null."""
    if isinstance(value, n.Select) and value.otherwise is None:
        return n.Select(value.condition, _nothing(value.then))
    return ZERO


def _is_told(extent: n.Extent, known: set[str]) -> bool:
    """Whether an extent is a symbol that something declares, or a number of ones that attributes tell."""
    return isinstance(extent.value, n.Integer) or (
        isinstance(extent.value, n.Name) and extent.value.id in known
    )


def _result(operator: n.Operator) -> str:
    return next(operator.parameters("output")).name


def _invocation(operator: n.Operator) -> n.Invocation:
    """A call whose operands and attributes go by the names that the operator has for them."""
    attributes = tuple(n.Attribute(item.name, n.Name(item.name)) for item in operator.parameters("attrib"))
    arguments = tuple(n.Name(item.name) for item in operator.parameters("input"))
    return n.Invocation(operator.name, (), attributes, arguments)


def _component(result: str, value: n.Callee | n.Branch) -> n.Component:
    return n.Component((n.Result(result),), value)


# --- what is not needed -------------------------------------------------------------------------------------


def _without_unused(operator: n.Operator) -> n.Operator:
    """An operator without intermediate values, helper symbols, inputs and attributes that nothing needs."""
    lowerings = [
        _without_unused_locals(item) if isinstance(item, n.Lowering) else item
        for item in operator.items("lower")
    ]
    kept: dict[str, tuple[n.Statement, ...]] = {item.name: item.items for item in operator.sections}
    if lowerings:
        kept["lower"] = tuple(lowerings)
    body = [kept.get(name, ()) for name in ("output", "lower", "compose")]
    inputs = [item for item in kept.get("input", ()) if isinstance(item, n.Parameter)]
    others = [item for name in ("attrib", "using", "constant") for item in kept.get(name, ())]
    # An input is needed where it is read, or where nothing else declares a symbol of its shape.
    read = set(names_in(body))
    taken = [item for item in inputs if item.name in read]
    needed = closure(read.union(names_in(taken)), others)
    for item in inputs:
        # An input that may be missing tells nothing for certain.
        certain = [other for other in taken if not other.type.optional]
        told = {name for other in certain for name in declared_by(other)}
        if item not in taken and not (needed & declared_by(item)) <= told:
            taken.append(item)
            needed = closure(read.union(names_in(taken)), others)
    kept["input"] = tuple(item for item in inputs if item in taken)
    for name in ("attrib", "using", "constant"):
        items = kept.get(name, ())
        kept[name] = tuple(item for item in items if not needed.isdisjoint(declared_by(item)))
    sections = (replace(item, items=kept[item.name]) for item in operator.sections)
    return replace(operator, sections=tuple(item for item in sections if item.items))


def closure(names: Iterable[str], declarations: Sequence[n.Statement]) -> set[str]:
    """The names that are needed, directly or by what declares them."""
    needed, new = set[str](), set(names)
    while new:
        needed |= new
        used = [item for item in declarations if not needed.isdisjoint(declared_by(item))]
        new = set(names_in([_used_by(item) for item in used])) - needed
    return needed


def _without_unused_locals(lowering: n.Lowering) -> n.Lowering:
    needed = set(names_in((lowering.target, lowering.value, lowering.bounds, lowering.condition)))
    found: list[n.Local] = []
    for item in reversed(lowering.locals):
        if item.name in needed:
            needed |= set(names_in(item.value))
            found.append(item)
    return replace(lowering, locals=tuple(reversed(found)))


def declared_by(item: n.Statement) -> set[str]:
    """The names that a statement declares: its own, and the symbols in the shape of an input."""
    if isinstance(item, n.Parameter):
        return {item.name, *_symbols(item.type)}
    if isinstance(item, n.Using):
        return {part.name for part in _results(item.target)}
    return set()


def _symbols(type: n.TypeSpec) -> Iterator[str]:
    """The names that a type declares: extents, lengths of packs, a rank; of several packs those with a length."""
    if type.rank is not None:
        yield type.rank
    shape = type.shape or ()
    open_packs = [item for item in shape if item.pack is not None and item.pack.length is None]
    for item in shape:
        if isinstance(item.value, n.Name) and (item not in open_packs or len(open_packs) == 1):
            yield item.value.id
        # A length that is chosen says nothing about what it is chosen by, nor one beside a pack of any length.
        is_alone = not open_packs or item in open_packs
        if item.pack is None or (is_alone and not isinstance(item.pack.length, n.Select)):
            yield from names_in(item.pack)
    yield from names_in(type.pack)


def _used_by(item: n.Statement) -> object:
    return (
        item.value
        if isinstance(item, n.Using)
        else (item.type, item.value)
        if isinstance(item, n.Parameter)
        else ()
    )


def _results(pattern: object) -> Iterator[n.Result]:
    if isinstance(pattern, n.Result):
        yield pattern
    for part in parts_of(pattern):
        if not isinstance(part, str):
            yield from _results(part)


# --- types and texts ----------------------------------------------------------------------------------------


def closed(type: n.TypeSpec) -> n.TypeSpec:
    """The type of an input as that of an output: nothing is declared any more."""
    if type.shape is None:
        return replace(type, rank=None)
    return replace(type, rank=None, shape=tuple(map(_closed_extent, type.shape)))


def _closed_extent(extent: n.Extent) -> n.Extent:
    """A symbol without its length, which it has by now; how many ones there are must be said."""
    if extent.pack is None or not isinstance(extent.value, n.Name):
        return replace(extent, bound=None)
    return replace(extent, pack=n.Pack(), bound=None)


def _tensors_in(node: object) -> Iterator[str]:
    """The tensors whose elements a node names."""
    if isinstance(node, n.Access):
        yield node.tensor
    for part in parts_of(node):
        if not isinstance(part, str):
            yield from _tensors_in(part)


def respelled(node: n.Operator, names: frozenset[str]) -> n.Operator:
    """An operator with generic types as reals."""

    def change(item: object) -> object:
        if isinstance(item, n.TypeSpec) and item.name in names:
            return replace(item, name=REAL)
        if isinstance(item, n.Cast) and item.type in names:
            return replace(item, type=REAL)
        return item

    found = n.rebuilt(node, change)
    assert isinstance(found, n.Operator)
    return found


def _optional(value: n.Expr, moving: frozenset[str]) -> n.Expr:
    """A value that is null, not 0, where a condition on attributes fails: then there is no formula at all."""
    conditions: list[n.Expr] = []
    made = _hoisted(value, conditions, moving)
    return made if not conditions else n.Select(_all(conditions) or ONE, made)


def _stays_inside(index: object, counting: set[str]) -> bool:
    """Whether an index is in range in every step, as those that only count are, and those that are tested."""
    if isinstance(index, n.Expand):
        return _stays_inside(index.operand, counting)
    if isinstance(index, n.Name):
        return index.id in counting
    return isinstance(index, n.Integer | n.Bounded | n.Select | n.Index | n.Substitute)


def _hoisted(value: n.Expr, conditions: list[n.Expr], moving: frozenset[str] | None = None) -> n.Expr:
    """A value without the choices by which it is 0: what is not read where they fail must not be written either.

    With names that move, only the choices that none of them decides.
    """
    if isinstance(value, n.Select) and value.otherwise is not None and ZERO in (value.then, value.otherwise):
        is_first = value.otherwise == ZERO
        rest = value.then if is_first else value.otherwise
        if moving is None or not _moves(value.condition, moving):
            conditions.append(value.condition if is_first else n.Unary("!", value.condition))
            return _hoisted(rest, conditions, moving)
    if isinstance(value, n.Chain) and all(sign in ("*", "/") for sign, _ in value.rest):
        found = _hoisted(value.first, conditions, moving)
        for sign, item in value.rest:
            found = (
                product(found, _hoisted(item, conditions, moving))
                if sign == "*"
                else n.Chain(found, ((sign, item),))
            )
        return found
    if isinstance(value, n.Unary):
        return replace(value, operand=_hoisted(value.operand, conditions, moving))
    return value


def _all(conditions: Sequence[n.Expr]) -> n.Expr | None:
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return n.Chain(conditions[0], tuple(("&&", item) for item in conditions[1:]))


def _moves(condition: n.Expr, moving: frozenset[str]) -> bool:
    """Whether a condition may change from step to step."""
    return any(name in moving for name in names_in(condition)) or any(True for _ in _tensors_in(condition))
