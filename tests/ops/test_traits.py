"""Every trait that the library declares or derives holds: its operators are run on random and on special numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.errors import Malformed
from lamella.base.source import Source
from lamella.graph.build import Builder
from lamella.graph.model import Model
from lamella.graph.passes.cancel_transposes import order_of
from lamella.ops.library import DIALECTS, Library
from lamella.ops.traits import DERIVED, KNOWN, Trait, declared_traits
from tests.support.ops.trait_cases import LIBRARY, OPERATORS, SAMPLES, Case, cases, differ

Check = Callable[[Case, Trait], bool]


def full(case: Case, trait: Trait) -> Array:
    return np.full(case.shape, int(trait.values[0]), numpy_dtype(case.elements[-1]))


def commutative(case: Case, trait: Trait) -> bool:
    if case.elements[0] != case.elements[1]:
        return True
    x, y = case.arrays()
    return not differ(case.run(x, y)[0], case.run(y, x)[0])


def identity(case: Case, trait: Trait) -> bool:
    x, e = case.array(), full(case, trait)
    both = "commutative" not in LIBRARY.traits(case.name) or not differ(case.run(e, x)[0], x)
    return both and not differ(case.run(x, e)[0], x)


def absorbing(case: Case, trait: Trait) -> bool:
    x, e = case.array(), full(case, trait)
    return not differ(case.run(x, e)[0], e)


def idempotent(case: Case, trait: Trait) -> bool:
    x = case.array()
    if len(case.parameters) == 2:
        return case.elements[0] != case.elements[1] or not differ(case.run(x, x)[0], x)
    (once,) = case.run(x)
    return not differ(case.run(once)[0], once)


def involution(case: Case, trait: Trait) -> bool:
    x = case.array()
    return not differ(case.run(case.run(x)[0])[0], x)


def even(case: Case, trait: Trait) -> bool:
    x = case.array()
    return not differ(case.run(x)[0], case.run(np.negative(x))[0])


def weight(text: str, alpha: int) -> int:
    name = text.removeprefix("-")
    return (-1 if text.startswith("-") else 1) * (alpha if name == "alpha" else int(name))


def linear(case: Case, trait: Trait) -> bool:
    x, y = case.array(0, finite=True), case.array(1, finite=True)
    named = any("alpha" in item for item in trait.values)
    good = True
    for alpha in (1, -3, 0) if named else (1,):
        a, b = (weight(item, alpha) for item in trait.values)
        scale = float(alpha) if case.kind() == "real" else alpha
        (found,) = case.run(x, y, **({"alpha": scale} if named else {}))
        good = good and bool(np.all(found == a * x + b * y))
    return good


def monomial(case: Case, trait: Trait) -> bool:
    x, y = np.abs(case.array(0, finite=True)) + 1, np.abs(case.array(1, finite=True)) + 1
    a, b = map(int, trait.values)
    expected = x**a * y.astype(np.float64) ** b if case.kind() == "real" else x**a * y**b
    return bool(np.allclose(case.run(x, y)[0], expected, 1e-6))


def reshape(case: Case, trait: Trait) -> bool:
    x = case.array()
    return not differ(case.run(x)[0].reshape(-1), x.reshape(-1))


def permutation(case: Case, trait: Trait) -> bool:
    x = case.array()
    operation, (found,) = case.operate([x], {})
    return not differ(found, np.transpose(x, order_of(operation)))


def window(case: Case, trait: Trait) -> bool:
    x = case.array()
    (found,) = case.run(x)
    return found.shape != x.shape or not differ(found, x)


def singleton(case: Case, trait: Trait) -> bool:
    x = case.array()
    return not differ(case.run([x])[0], x)


def partition(case: Case, trait: Trait) -> bool:
    x = case.array()
    found = case.run(x)
    return len(found) == 1 and not differ(found[0], x)


def fill(case: Case, trait: Trait) -> bool:
    (found,) = case.run(*case.arrays())
    return not differ(found, np.full(found.shape, int(trait.values[0]), found.dtype))


def spread(case: Case, trait: Trait) -> bool:
    x = case.array(0, finite=True)
    return bool(np.isin(case.run(x)[0], x).all())


def generator(case: Case, trait: Trait) -> bool:
    """The inputs are scalars by their declarations, and equal calls give equal numbers."""
    scalars = all(item.shape == () and item.pack is None for item in case.parameters)
    given = case.arrays()
    return scalars and not differ(case.run(*given)[0], case.run(*given)[0])


def along_axes(case: Case, trait: Trait) -> bool:
    x = np.abs(case.array(0, finite=True)) if case.kind() == "real" else case.array()
    order = (1, 2, 0, 3)[: x.ndim] if x.ndim == 4 else (1, 2, 0)
    axes = case.attributes["axes"]
    assert isinstance(axes, tuple)
    mapped = tuple(order[item] for item in axes if isinstance(item, int))
    (behind,), (before,) = case.run(np.transpose(x, order)), case.run(x, axes=mapped)
    other = np.transpose(before, order)
    close = behind.shape == other.shape and np.allclose(behind, other, 1e-5)
    return bool(close)


def formats(case: Case, trait: Trait) -> bool:
    x = case.random.normal(size=(2, 4, 5, 6)).astype(np.float32)
    w = case.random.normal(size=(4, 4, 3, 2)).astype(np.float32)
    (planes,) = case.run(x, w, padding=0)
    moved = case.run(x.transpose(0, 2, 3, 1), w, padding=0, data_format="NXC")[0].transpose(0, 3, 1, 2)
    turned = case.run(x, w.transpose(2, 3, 1, 0), padding=0, filter_format="XCN")[0]
    return bool(np.allclose(planes, moved, 1e-4, 1e-4) and np.allclose(planes, turned, 1e-4, 1e-4))


def random(case: Case, trait: Trait) -> bool:
    """Two equal calls in one graph draw different numbers."""
    if case.name not in SAMPLES:
        return True  # a composition: what it calls is tested
    builder = Builder(LIBRARY, "twice")
    calls = [builder.call(case.name, types=case.generic, **case.attributes) for _ in range(2)]  # type: ignore[arg-type]
    one, two = compile_model(Model(builder.finish(*calls), LIBRARY), seed=1)().values()
    return not np.array_equal(one, two) or one.dtype.kind == "i"


def elementwise(case: Case, trait: Trait) -> bool:
    """The elements in another order give the results in that order."""
    inputs = [np.where(item == 0, 1, item) if item.dtype.kind == "i" else item for item in case.arrays()]
    order = case.random.permutation(inputs[0].size)
    (found,) = case.run(*inputs)
    (mixed,) = case.run(*(item.reshape(-1)[order] for item in inputs))
    return found.shape == inputs[0].shape and not differ(mixed, found.reshape(-1)[order])


def copy(case: Case, trait: Trait) -> bool:
    x = case.array()
    return not differ(case.run(x)[0], x)


CHECKS: Mapping[str, Check] = {
    item.__name__: item
    for item in (
        *(commutative, identity, absorbing, idempotent, involution, even, linear, monomial, reshape),
        *(permutation, window, singleton, partition, fill, spread, generator, along_axes, formats),
        *(random, elementwise, copy),
    )
} | {"aligned": elementwise, "elsewhere": copy}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_declarations_are_known(dialect: str) -> None:
    """Every comment of the library that declares traits is read, in both dialects."""
    library = Library(dialect)
    for module in sorted(library.standard):
        for name in library.operators(module):
            library.traits(f"{module}.{name}")  # raises Malformed where a trait is unknown


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("idempotant", "there is no trait 'idempotant'; did you mean 'idempotent'?"),
        ("identity", "the trait 'identity' has the values 'e', not ''"),
        ("even of integers", "'integers' of the trait 'even' is none of int, real, bool"),
        ("even; odd", "'even; odd' is not a trait"),
    ],
)
def test_unknown_traits_are_found(line: str, message: str) -> None:
    with pytest.raises(Malformed, match=message.replace("?", "[?]")):
        declared_traits(f"# One.\n# traits: commutative, {line}\noperator f {{", 23 + len(line) + 11)


def test_comments_of_models_declare_nothing() -> None:
    """The comments of a model are its own; what follows from its formulas is known."""
    library = Library()
    text = """import math, rand;
# traits: nonsense
operator double { @input { x: real[s..]; } @output { y: real[s..]; } @lower { y[i..] = 2.0 * x[i..], i < s; } }
operator noise { @output { y: real[2]; } @compose { y = rand.normal{shape=[2]}(); } }
graph G { @input { x: real[2]; } @output { y: real[2]; } @compose { z = double(x); n = noise(); y = math.add(z, n); } }
"""
    module = library.load(Source("main.sknd", text))
    assert module.sound
    assert list(library.traits("main.double").items) == ["elementwise"]
    assert list(library.traits("main.noise").items) == ["random"]


def test_every_known_trait_has_a_check() -> None:
    assert CHECKS.keys() == {*KNOWN, *DERIVED}


@pytest.mark.parametrize("trait", CHECKS)
def test_traits_hold(trait: str) -> None:
    """All operators that are said to have a trait have it, for all types that it is said for."""
    false: list[str] = []
    tried: set[str] = set()
    names = [name for name in OPERATORS if trait in LIBRARY.traits(name)]
    for name in names:
        declared = LIBRARY.traits(name)[trait]
        for case in cases(name):
            if declared.kind and case.kind() != declared.kind:
                continue
            tried.add(name)
            with np.errstate(all="ignore"):
                if not CHECKS[trait](case, declared):
                    false.append(f"{name} {case.kind()} {case.attributes}")
    assert not false
    assert names
    assert tried == set(names)


@pytest.mark.parametrize(
    ("trait", "operator"),
    [
        *(("commutative", "math.sub"), ("commutative", "math.min"), ("idempotent", "math.neg")),
        *(("involution", "math.abs"), ("even", "math.neg"), ("linear 1 1", "math.sub")),
        *(("identity 1", "math.add"), ("absorbing 0", "math.mul"), ("monomial 1 1", "math.div")),
        *(("window", "aten.flip"), ("reshape", "layout.transpose"), ("copy", "math.neg")),
    ],
)
def test_false_declarations_are_found(trait: str, operator: str) -> None:
    name, *values = trait.split()
    claim = Trait(name, tuple(values))
    with np.errstate(all="ignore"):
        assert not all(CHECKS[name](case, claim) for case in cases(operator))
