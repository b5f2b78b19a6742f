"""Each equation of the tables is proved on numbers: its left side is built, rewritten by it alone, and both are run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.dtype import BF16, BOOL, F16, F32, F64, I8, I32, I64, ElementType
from lamella.base.errors import Found
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Graph, Tensor, Value, tensors
from lamella.graph.passes.fast_math import IDENTITIES as FAST_MATH
from lamella.graph.passes.fast_math import PREDICATES as FAST_MATH_PREDICATES
from lamella.graph.passes.patterns import EquationTerm, Identity, Predicate, identities, is_trait, rewriting
from lamella.graph.passes.simplify import IDENTITIES, PREDICATES
from lamella.graph.rewrite import rewrite
from lamella.graph.verify import verify
from lamella.lang.skriptnd.nodes import Dtype, TypeSpec
from lamella.ops.traits import Trait
from tests.support.ops.trait_cases import GRID, LIBRARY, OPERATORS, SAMPLES, SPECIAL, differ

TYPES = (F32, I64, BOOL)
CASTS = (*product((F16, F32, I8, I64, BOOL), (BF16, F16, F32, F64, I32, I64)),)
MORE: Mapping[str, Sequence[Mapping[str, Value]]] = {
    "layout.slice": (
        {"axes": (0,), "begin": (0,), "end": (12,)},
        {"axes": (0,), "begin": (-1,), "end": (-13,), "stride": (-1,)},
    ),
    "aten.pad": ({"pad": (0, 0)}, {"pad": (1, -1)}, {"pad": (0, 0, 0, 0), "mode": "reflect"}),
    "aten.constant_pad_nd": ({"pad": (0, 0)}, {"pad": (1, -1)}),
    **{f"aten.new_{name}": ({"size": (2, 3)},) for name in ("zeros", "ones", "empty", "full")},
    "layout.reshape": ({"shape": (144,)}, {"shape": GRID}, {"shape": (3, 48)}),
    "aten.view": ({"size": (144,)}, {"size": GRID}, {"size": (3, 48)}),
    "aten.div": ({}, {"rounding_mode": "floor"}),
    **{f"aten.{name}": ({}, {"alpha": -1}, {"alpha": 0}, {"alpha": 2}) for name in ("add", "sub", "rsub")},
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What the names of an equation stand for: operators with attributes, and the types and aliases of tensors."""

    operators: Mapping[str, str]
    attributes: Mapping[str, Mapping[str, Value]]
    shape: tuple[int, ...]
    elements: Mapping[str, ElementType]
    aliases: Mapping[str, str]


class Left:
    """The left side of an equation as a graph, with arrays for its inputs."""

    def __init__(self, identity: Identity, setting: Setting, finite: bool) -> None:
        self.identity, self.setting, self.finite = identity, setting, finite
        self.builder = Builder(LIBRARY, "left")
        self.arrays: dict[str, Array] = {}
        self.known: dict[str, Argument] = {}

    def graph(self) -> Graph:
        """The left side, each of its results read once more, so that none is an output of the graph."""
        results = [item for output in self.results(self.identity.left) for item in tensors(output)]
        outputs = [self.builder.call("math.iden", item) for item in results]
        return self.builder.finish(*outputs)

    def results(self, term: EquationTerm) -> tuple[Argument, ...]:
        """The results of an operator, called as the one of the library that it stands for."""
        operator = self.setting.operators.get(term.name, term.name)
        order = LIBRARY.traits(operator).order if "." in term.name else None
        definition = LIBRARY.find(operator)
        assert definition is not None
        specs = [item.type for item in definition.operator.parameters("input")]
        specs = specs if order is None else [specs[number] for number in order]
        given = [self.argument(item, *one) for item, one in zip(term.terms, enumerate(specs), strict=True)]
        nested = any(item.kind == "call" for item in term.terms)
        element = self.setting.elements["x" if nested else "wide"]
        if order is not None:
            passed = dict(zip(order, given, strict=True))
            given = [
                passed.get(item) or self.input("other", element, (1,)) for item in range(arity(operator))
            ]
        attributes = dict(self.setting.attributes.get(term.name, {}))
        if "alpha" in attributes and any(item.element.is_float for item in given if isinstance(item, Tensor)):
            attributes["alpha"] = float(str(attributes["alpha"]))
        generics = {item.name for item in definition.operator.items("dtype") if isinstance(item, Dtype)}
        (output, *_) = definition.operator.parameters("output")
        cast = LIBRARY.traits(operator).root == "layout.cast" and output.type.name in generics
        types = {output.type.name: element} if cast else {}
        return self.builder.call_all(operator, *given, types=types, **attributes)  # type: ignore[arg-type]

    def argument(self, term: EquationTerm, number: int, spec: TypeSpec) -> Argument:
        if term.kind == "call":
            (result,) = self.results(term)
            return result
        if term.kind == "single":
            return tuple(tensors(self.argument(term.terms[0], number, spec)))
        if term.kind == "value":
            return self.builder.constant(bool(term.value))
        if term.kind == "absent":
            return None
        name = self.setting.aliases.get(term.name, term.name or f"_{number}")
        name = f"_{number}" if term.kind == "any" else name
        if name not in self.known:
            self.known[name] = self.tensor(name, () if spec.shape == () else self.setting.shape)
        return self.known[name]

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """An input of the graph, or a constant where the equation asks for one."""
        element = self.setting.elements.get(name, self.setting.elements["x"])
        value = self.constant_for(name)
        if value is not None:
            return self.builder.constant(float(value) if element.is_float else int(value), element)
        return self.input(name, element, shape)

    def input(self, name: str, element: ElementType, shape: tuple[int, ...]) -> Tensor:
        """An input of the graph with random numbers, special ones unless only finite ones are asked for."""
        tensor = self.builder.input(name, element, shape)
        dtype = numpy_dtype(element)
        source = np.random.default_rng(len(self.arrays))
        if self.finite or dtype.kind not in SPECIAL:
            array = np.round(source.normal(size=shape) * 4) / 2 + 0.25
        else:
            array = source.choice(np.array(SPECIAL[dtype.kind]), shape)
        self.arrays[tensor.name] = np.asarray(array).astype(dtype)
        return tensor

    def constant_for(self, name: str) -> float | None:
        """The number that a tensor must be full of for a condition to hold."""
        for condition in self.identity.conditions:
            if condition.about[-1] != name:
                continue
            if is_trait(condition.name) and len(condition.about) == 2:
                return int(self.trait(condition.about[0], condition.name).values[0])
            if condition.name in ("vanishes", "zero"):
                weights = self.trait("f", "linear" if condition.name == "vanishes" else "").values
                sign = weights[0 if name == "x" else 1] if weights else ""
                return 0.0 if sign.startswith("-") else -0.0
        return None

    def trait(self, head: str, name: str) -> Trait:
        traits = LIBRARY.traits(self.setting.operators[head])
        return traits[name] if name in traits else Trait(name)


def heads(term: EquationTerm) -> Iterator[str]:
    """The names in front of brackets."""
    if term.kind == "call":
        yield term.name
    for item in term.terms:
        yield from heads(item)


def chosen(identity: Identity, head: str) -> list[str]:
    """The operators that a name may stand for."""
    if "." in head:
        return [name for name in OPERATORS if LIBRARY.traits(name).root == head]
    asked = [item.name for item in identity.conditions if item.about[0] == head and is_trait(item.name)]
    return [
        name
        for name in OPERATORS
        if all(item in LIBRARY.traits(name) for item in asked) and arity(name) == len(identity.left.terms)
    ]


def arity(operator: str) -> int:
    """How many inputs an operator has."""
    definition = LIBRARY.find(operator)
    assert definition is not None
    return sum(1 for _ in definition.operator.parameters("input"))


def settings(identity: Identity) -> Iterator[Setting]:
    """Operators, attributes, shapes, types and equal tensors to try an equation with."""
    names = list(dict.fromkeys(heads(identity.left)))
    inner = {name: chosen(identity, name) if name in (identity.left.name, "g") else [name] for name in names}
    rest = any(item.name.endswith("_to") for item in identity.conditions)
    for operators in product(*inner.values()):
        by_head = dict(zip(names, operators, strict=True))
        if "linear(g)" in identity.text and len({item.partition(".")[0] for item in operators}) > 1:
            continue  # a graph has the operators of one world
        if "reshape(g)" in identity.text and operators[0] not in ("layout.reshape", "aten.view"):
            continue  # these two take any input; which of them is put in the place of others is the same for all
        samples = [_samples(item) for item in operators]
        for sample in product(*samples):
            shape = sample[-1][0]
            attributes = {name: item[1] for name, item in zip(names, sample, strict=True)}
            if rest and any(item.get("alpha", 2) != 2 for item in attributes.values()):
                continue  # enough factors are tried
            for elements in _elements(identity):
                for aliases in ({"z": "x"}, {"z": "y"}) if rest else ({},):
                    yield Setting(by_head, attributes, shape, elements, aliases)


def _samples(operator: str) -> list[tuple[tuple[int, ...], Mapping[str, Value]]]:
    own = [(shape, attributes) for shape, attributes in SAMPLES.get(operator, ())]
    return own + [(GRID, item) for item in MORE.get(operator, () if own else ({},))]


def _elements(identity: Identity) -> Iterator[Mapping[str, ElementType]]:
    if "lossless" in identity.text:
        yield from ({"x": narrow, "wide": wide} for narrow, wide in CASTS)
        return
    # The first input of a choice is a truth value.
    condition = {"_0": BOOL} if identity.left.name == "math.select" else {}
    types = (I64,) if "integer(" in identity.text else TYPES
    types = (F32,) if "real(" in identity.text or "reshape" in identity.text else types
    yield from ({"x": item, "wide": item, **condition} for item in types)


TABLES: Mapping[str, tuple[Sequence[Identity], Mapping[str, Predicate]]] = {
    "simplify": (IDENTITIES, PREDICATES),
    "fast_math": (FAST_MATH, FAST_MATH_PREDICATES),
}
EQUATIONS = [(table, item.text) for table, (found, _) in TABLES.items() for item in found]


def trials(
    identity: Identity, predicates: Mapping[str, Predicate], exact: bool
) -> Iterator[tuple[Setting, bool]]:
    """The settings in which an equation applies, and whether both sides have the same numbers there."""
    visit = rewriting(LIBRARY, (identity,), predicates)
    for setting in settings(identity):
        left = Left(identity, setting, finite=not exact)
        try:
            with np.errstate(over="ignore"):  # numbers that only a wider type has
                graph = left.graph()
        except Found:  # the operator does not take these types or attributes
            continue
        rewritten = rewrite(graph, visit)
        if rewritten == graph:
            continue
        assert not verify(rewritten, LIBRARY), setting
        before, after = (compile_model(Model(item, LIBRARY))(**left.arrays) for item in (graph, rewritten))
        pairs = list(zip(before.values(), after.values(), strict=True))
        yield (
            setting,
            all(not differ(*pair) if exact else np.allclose(*pair, rtol=1e-4) for pair in pairs),
        )


@pytest.mark.parametrize(("table", "text"), EQUATIONS)
def test_equations_hold(table: str, text: str) -> None:
    """Wherever an equation applies, both sides have the same numbers; and it does apply."""
    equations, predicates = TABLES[table]
    identity = next(item for item in equations if item.text == text)
    found = list(trials(identity, predicates, table == "simplify"))
    assert found
    assert not [setting for setting, same in found if not same]


@pytest.mark.parametrize(
    "text",
    [
        "f(f(x)) = x if idempotent(f)",
        "f(x, y) = y if commutative(f)",
        "f(math.neg(x)) = f(x) if idempotent(f)",
        "aten.pad(x, _) = x",
        "layout.slice(x) = x",
        "math.select(True, _, x) = x",
        "aten.zeros_like(_) = aten.ones(size=shape)",
    ],
)
def test_false_equations_are_found(text: str) -> None:
    (identity,) = identities(text)
    with np.errstate(all="ignore"):
        assert not all(same for _, same in trials(identity, PREDICATES, exact=True))
