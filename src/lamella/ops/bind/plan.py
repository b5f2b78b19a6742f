"""What does not depend on the call: the parts of a definition made ready, the binding order, the order of steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from lamella.base.affine import Affine
from lamella.base.limits import Limits
from lamella.base.records import dataclass
from lamella.base.source import Span
from lamella.lang.skriptnd import nodes
from lamella.lang.skriptnd.affine import read_affine
from lamella.ops.evaluate import Code, Compiler, make_compiler
from lamella.ops.evaluate.walk import Node, infer, names, parts
from lamella.ops.instance import Definition
from lamella.ops.scalars.arithmetic import PackBudget

# --- the formulas of a definition made ready ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class LoweringPlan:
    """One formula made ready."""

    node: nodes.Lowering
    bounds: tuple[tuple[str, Code], ...]
    locals: tuple[tuple[str, Code], ...]
    target: Code
    value: Code
    condition: Code | None
    count: Code | None
    subscripts: tuple[tuple[str, str], ...]
    """Which tensor each index picks an item of: such an index is no loop but several formulas."""


def plan_lowering(
    node: nodes.Lowering, words: Mapping[str, str], limits: Limits, budget: PackBudget | None = None
) -> LoweringPlan:
    """A formula made ready; `words` are the types of the names around it."""
    known = {**words, **{bound.index: "int" for bound in node.bounds}}
    if node.unroll is not None and node.unroll.index:
        known[node.unroll.index] = "int"
    for local in node.locals:
        known[local.name] = infer(local.value, known)
    compiler = make_compiler(limits, known, budget)
    return LoweringPlan(
        node=node,
        bounds=tuple((bound.index, compiler.compile(bound.limit)) for bound in node.bounds),
        locals=tuple((local.name, compiler.compile(local.value)) for local in node.locals),
        target=compiler.compile(node.target),
        value=compiler.compile(node.value),
        condition=compiler.compile_some(node.condition),
        count=None if node.unroll is None else compiler.compile_some(node.unroll.count),
        subscripts=tuple(_subscripts(node)),
    )


def _subscripts(node: nodes.Lowering) -> Iterator[tuple[str, str]]:
    """The indices that pick items of packs of tensors, with the packs; local values are looked through."""
    indices = {bound.index for bound in node.bounds}
    local_names = {local.name: _direct_names(local.value) for local in node.locals}
    roots: list[Node | None] = [
        node.target,
        node.value,
        node.condition,
        *(local.value for local in node.locals),
    ]
    for access in _accesses(roots):
        used = set() if access.item is None else _direct_names(access.item)
        for local in reversed(node.locals):
            used |= local_names[local.name] if local.name in used else set()
        yield from ((name, access.tensor) for name in sorted(used & indices))


def _accesses(roots: list[Node | None]) -> Iterator[nodes.Access]:
    stack = [root for root in roots if root is not None]
    while stack:
        found = stack.pop()
        if isinstance(found, nodes.Access):
            yield found
        stack += parts(found)


def _direct_names(node: Node) -> set[str]:
    """The names in an expression that are not inside an access of a tensor."""
    found: set[str] = set()
    stack: list[Node] = [node]
    while stack:
        inner = stack.pop()
        if isinstance(inner, nodes.Access):
            continue
        if isinstance(inner, nodes.Name):
            found |= names(inner)
        stack += parts(inner)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """An extent or a length: its value where its names are known, or what it says of the one that is not."""

    code: Code
    names: frozenset[str]
    symbol: str | None
    form: Affine[str] | None
    span: Span

    @property
    def text(self) -> str:
        """The expression as it is written."""
        return " ".join(self.span.text.split())


@dataclass(frozen=True, slots=True, eq=False)
class ExtentPlan:
    """One item of a shape; a `value` of None is `~`."""

    value: Measure | None
    bound: Code | None
    packed: bool
    length: Measure | None
    spread: bool
    static: bool
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class ParameterPlan:
    """An attribute, input, output, constant or variable made ready."""

    parameter: nodes.Parameter
    name: str
    type: nodes.TypeSpec
    packed: bool
    length: Measure | None
    bound: Code | None
    extents: tuple[ExtentPlan, ...] | None
    default: Code | None
    default_names: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Assert:
    """An assertion made ready."""

    node: nodes.Assertion
    condition: Code
    message: tuple[Code, ...]
    """The message in parts, so that a value that cannot be had hides nothing else of it."""
    values: tuple[tuple[str, Code], ...]
    names: frozenset[str]
    printed: frozenset[str]
    """The names that the message and its values speak of."""


@dataclass(frozen=True, slots=True, eq=False)
class UsingPlan:
    """A helper symbol made ready."""

    node: nodes.Using
    value: Code
    names: frozenset[str]
    targets: frozenset[str]


Step = Assert | UsingPlan
SECTIONS = ("attrib", "input", "output", "constant", "variable")


class OperatorPlan:
    """A definition made ready for its calls."""

    def __init__(self, definition: Definition, limits: Limits, budget: PackBudget | None = None) -> None:
        self.definition = definition
        self.budget = budget
        self.operator = definition.operator
        self.limits = limits
        self.dtypes: Mapping[str, nodes.Dtype] = {
            item.name: item for item in self.operator.items("dtype") if isinstance(item, nodes.Dtype)
        }
        self.words: dict[str, str] = dict(_words(self.operator))
        self.compiler: Compiler = make_compiler(limits, self.words, budget)
        self.attributes = self._parameters("attrib")
        self.inputs = self._parameters("input")
        self.outputs = self._parameters("output")
        self.constants = self._parameters("constant")
        self.variables = self._parameters("variable")
        self.usings = [
            self._using(item) for item in self.operator.items("using") if isinstance(item, nodes.Using)
        ]
        self.asserts = [
            self._assert(item) for item in self.operator.items("assert") if isinstance(item, nodes.Assertion)
        ]
        self.given = {item.name for item in self.attributes if not is_deferred(item)}
        self.early, self.late = self._schedule()

    # --- parts ----------------------------------------------------------------------------------------------

    def _parameters(self, section: str) -> tuple[ParameterPlan, ...]:
        return tuple(self._parameter(item) for item in self.operator.parameters(section))

    def _parameter(self, node: nodes.Parameter) -> ParameterPlan:
        pack, shape = node.type.pack, node.type.shape
        return ParameterPlan(
            parameter=node,
            name=node.name,
            type=node.type,
            packed=pack is not None,
            length=None if pack is None else self._measure(pack.length),
            bound=None if pack is None else self.compiler.compile_some(pack.bound),
            extents=None if shape is None else tuple(self._extent(item) for item in shape),
            default=self.compiler.compile_some(node.value),
            default_names=names(node.value) - {item.index for item in node.bounds},
        )

    def _measure(self, node: Node | None) -> Measure | None:
        if node is None or isinstance(node, nodes.Omitted):
            return None
        used = names(node)
        symbol = next(iter(used)) if len(used) == 1 else None
        form = read_affine(node) if symbol else None
        if form is not None and not form.terms:
            form = None
        return Measure(self.compiler.compile(node), used, symbol, form, node.span)

    def _extent(self, node: nodes.Extent) -> ExtentPlan:
        return ExtentPlan(
            value=self._measure(node.value),
            bound=self.compiler.compile_some(node.bound),
            packed=node.pack is not None,
            length=None if node.pack is None else self._measure(node.pack.length),
            spread=node.spread,
            static=node.static,
            span=node.span,
        )

    def _using(self, node: nodes.Using) -> UsingPlan:
        found = frozenset(item.name for item in results_in(node.target))
        word = infer(node.value, self.words)
        self.words.update({name: word for name in found if word})
        return UsingPlan(node, self.compiler.compile(node.value), names(node.value), found)

    def _assert(self, node: nodes.Assertion) -> Assert:
        values = tuple(
            (item.label or " ".join(item.value.span.text.split()), self.compiler.compile(item.value))
            for item in node.values
        )
        parts = tuple(self.compiler.compile(item) for item in _message(node))
        printed = names(node.message).union(*(names(item.value) for item in node.values))
        return Assert(
            node, self.compiler.compile(node.condition), parts, values, names(node.condition), printed
        )

    # --- order ----------------------------------------------------------------------------------------------

    def _schedule(self) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """The steps before the inputs are bound, and those after: each helper symbol behind what guards it."""
        known = self.given | self.dtypes.keys()
        early_usings = _available(self.usings, known)
        early, left = _interleave(early_usings, self.asserts, known)
        known |= {name for item in early_usings for name in item.targets}
        done = set(map(id, early_usings))
        late_usings = [item for item in self.usings if id(item) not in done]
        late, rest = _interleave(late_usings, left, known | _declared(self))
        return tuple(early), (*late, *rest)

    @cached_property
    def order(self) -> tuple[ParameterPlan, ...]:
        """The inputs in the order in which they are bound: each once its shape is unambiguous, optional ones last."""
        known = self.given | self.dtypes.keys()
        known |= {name for item in self.early if isinstance(item, UsingPlan) for name in item.targets}
        found: list[ParameterPlan] = []
        for optional in (False, True):
            found += _bind_in_order([item for item in self.inputs if item.type.optional == optional], known)
        return tuple(found)

    @cached_property
    def is_open(self) -> bool:
        """Whether some extent or length of an output is left to the run, and named after the result."""
        extents = [extent for item in self.outputs for extent in item.extents or ()]
        return any(item.extents is None or item.bound is not None for item in self.outputs) or any(
            extent.value is None or extent.bound is not None for extent in extents
        )

    @cached_property
    def prints(self) -> bool:
        """Whether a value of the definition is a formatted string, in which a tensor is its name."""
        parameters = [item for section in SECTIONS for item in self.operator.parameters(section)]
        stack: list[Node | None] = [
            *(item.value for item in parameters),
            *(item.node.value for item in self.usings),
        ]
        while stack:
            found = stack.pop()
            if isinstance(found, nodes.Format):
                return True
            stack += [] if found is None else parts(found)
        return False

    @cached_property
    def lowerings(self) -> tuple[LoweringPlan, ...]:
        """The formulas."""
        found = [item for item in self.operator.items("lower") if isinstance(item, nodes.Lowering)]
        return tuple(plan_lowering(item, self.words, self.limits, self.budget) for item in found)

    @cached_property
    def counters(self) -> frozenset[str]:
        """The symbols of output extents that a formula counts up to."""
        extents = [
            extent for item in self.outputs for extent in item.extents or () if extent.bound is not None
        ]
        found = {
            extent.value.symbol for extent in extents if extent.value is not None and extent.value.symbol
        }
        return frozenset(found - _declared(self))


def is_deferred(attribute: ParameterPlan) -> bool:
    """Whether an attribute may be known only after the inputs."""
    return attribute.packed or attribute.type.optional or bool(attribute.default_names)


def _message(assertion: nodes.Assertion) -> tuple[nodes.Expr, ...]:
    """The parts of a message, each a string of its own."""
    message = assertion.message
    if isinstance(message, nodes.Format):
        return tuple(nodes.Format((part,), message.span) for part in message.parts)
    return () if message is None else (message,)


def results_in(pattern: nodes.Pattern) -> Iterator[nodes.Result]:
    """The names that a pattern declares."""
    if isinstance(pattern, nodes.Result):
        yield pattern
    elif isinstance(pattern, nodes.ListPattern):
        for item in pattern.items:
            if isinstance(item, nodes.Unzip):
                yield from item.items
            elif isinstance(item, nodes.Result):
                yield item


def _words(operator: nodes.Operator) -> Iterator[tuple[str, str]]:
    """The types of declared names; what a shape names is an integer unless a parameter says otherwise."""
    found = [item for section in SECTIONS for item in operator.parameters(section)]
    for item in found:
        for extent in item.type.shape or ():
            yield from ((name, "int") for name in names(extent.value))
        for pack in (item.type.pack, *(extent.pack for extent in item.type.shape or ())):
            yield from ((name, "int") for name in names(pack.length if pack else None))
    yield from ((item.name, item.type.name) for item in found)


def _symbols(item: ParameterPlan) -> set[str]:
    """The names that binding a parameter gives a value to."""
    found = {item.name} | ({item.type.rank} if item.type.rank else set())
    measures = [
        item.length,
        *(part for extent in item.extents or () for part in (extent.value, extent.length)),
    ]
    return found.union(*(measure.names for measure in measures if measure is not None))


def _declared(plan: OperatorPlan) -> set[str]:
    """Every name that has a value once attributes and inputs are bound."""
    return set().union(*(_symbols(item) for item in (*plan.attributes, *plan.inputs)))


def _available(usings: Iterable[UsingPlan], known: set[str]) -> list[UsingPlan]:
    """The helper symbols that follow from some names alone."""
    have, found = set(known), []
    for item in usings:
        if item.names <= have:
            have |= item.targets
            found.append(item)
    return found


def _interleave(
    usings: Iterable[UsingPlan], asserts: Iterable[Assert], known: set[str]
) -> tuple[list[Step], list[Assert]]:
    """Helper symbols in their order, each behind the assertions that can be tested before it; and those that cannot."""
    steps: list[list[Step]] = [[]]
    place = dict.fromkeys(known, 0)
    for number, item in enumerate(usings, 1):
        steps.append([item])
        place.update(dict.fromkeys(item.targets - place.keys(), number))
    left: list[Assert] = []
    for test in asserts:
        if test.names <= place.keys():
            steps[max((place[name] for name in test.names), default=0)].append(test)
        else:
            left.append(test)
    return [step for group in steps for step in group], left


def _bind_in_order(inputs: list[ParameterPlan], known: set[str]) -> Iterator[ParameterPlan]:
    """Inputs, each once its shape is unambiguous; `known` grows by what each of them tells."""
    waiting: dict[str, list[ParameterPlan]] = {}
    done: set[ParameterPlan] = set()
    queue = deque(inputs)
    while queue:
        item = queue.popleft()
        missing = _open_names(item, known)
        for name in missing:
            waiting.setdefault(name, []).append(item)
        if missing or item in done:
            continue
        done.add(item)
        yield item
        new = _symbols(item) - known
        known |= new
        queue.extend(other for name in new for other in waiting.pop(name, ()))
    # What is ambiguous is refused by the checker; whoever does not ask it gets the order of the text.
    yield from (item for item in inputs if item not in done)


def _open_names(item: ParameterPlan, known: set[str]) -> set[str]:
    """The names without which more than one packed item of a shape has a length that is not known."""
    have = known | ({item.type.rank} if item.type.rank else set())
    lengths = [extent.length or extent.value for extent in item.extents or () if extent.packed]
    missing = [measure.names - have if measure is not None else {""} for measure in lengths]
    missing = [names for names in missing if names]
    return set().union(*missing) if len(missing) > 1 else set()
