"""The backward operator of a composition: its components forwards as far as they are needed, then backwards.

    a = f(x); y = g(a, x);     gives     a = f(x); d_a = g_d_a(…, d_y); d_x = f_d_x(x, d_a) + g_d_x(…, d_y);

Which operators are called backwards is asked for, so parts that are compositions themselves go the same way. A choice
by attributes is the same choice between gradients; a case that does not read an operand gives it zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from lamella.base.errors import Unsupported
from lamella.base.records import dataclass
from lamella.lang.skriptnd import nodes as n
from lamella.ops.gradient.expressions import ZERO, names_in
from lamella.ops.gradient.operators import BackwardOperator, Derivation, is_real

RESHAPE = "layout.reshape"
RESHAPES = frozenset(f"layout.{name}" for name in ("reshape", "flatten", "unflatten", "squeeze", "unsqueeze"))
"""Operators that give the same elements in row-major order: a gradient goes back as a view, not as a copy."""
ADD, COPY, CHOOSE = "math.add", "math.iden", "math.select"


@dataclass(frozen=True, slots=True)
class CompositionScope:
    """What a composition calls: operators by the names that it uses, and their backward operators."""

    resolve: Callable[[str], str]
    """The qualified name of what the text calls."""
    find: Callable[[str], n.Operator | None]
    pull: Callable[[str, str], tuple[str, n.Operator] | None]
    """The backward operator for an input of an operator, and what it is called; None where nothing depends on it."""


def derive_composition(
    operator: n.Operator, wanted: str, prefix: str, around: CompositionScope
) -> BackwardOperator | None:
    """The backward operator for one input of a composition; None where no output depends on it smoothly."""
    return _ComposedDerivation(operator, wanted, prefix, around).run()


class _ComposedDerivation(Derivation):
    """One composition and one of its inputs."""

    def __init__(self, operator: n.Operator, wanted: str, prefix: str, around: CompositionScope) -> None:
        super().__init__(operator, wanted, prefix)
        self.around = around
        self.components = [self._read(item) for item in operator.items("compose")]
        self.taken = set(names_in(operator.sections)) | {
            name for item in self.components for name in _made(item)
        }
        self.taken |= {f"d_{name}" for name in self.outputs} | {self.gradient}
        self.made: list[n.Component] = []
        self.adjoints: dict[str, list[str]] = {name: [f"d_{name}"] for name in self.outputs}

    def _read(self, item: n.Statement) -> n.Component:
        """A component whose calls go by qualified names."""
        if not isinstance(item, n.Component) or isinstance(item.value, n.Loop | n.Block):
            raise Unsupported(f"'{self.source.name}' has a loop or a block, which has no derivative here")

        def change(node: object) -> object:
            if isinstance(node, n.Invocation):
                return replace(node, operator=self.around.resolve(node.operator))
            return node

        found = n.rebuilt(item, change)
        assert isinstance(found, n.Component)
        return found

    def run(self) -> BackwardOperator | None:
        """Go back through every component that depends on the input."""
        self.verify_wanted()
        active = {self.wanted}
        for item in self.components:
            if not active.isdisjoint(names_in(item.value)):
                active |= set(_made(item))
        for item in reversed(self.components):
            if not active.isdisjoint(_made(item)):
                self._pull(item, active)
        parts = self.adjoints.get(self.wanted)
        if not parts:
            return None
        self._name_last(parts)
        body = n.Section("compose", (*self._forward(), *self.made))
        return BackwardOperator(self.build(self.name, self.output, body))

    def _name_last(self, parts: list[str]) -> None:
        """Give the gradient its name."""
        whole = self._total(self.wanted)
        last = self.made[-1] if self.made else None
        if last is not None and _made(last) == [whole] and whole != self.gradient:
            self.made[-1] = replace(last, results=(n.Result(self.gradient),))
        else:
            self.made.append(_component(self.gradient, n.Invocation(COPY, (), (), (n.Name(whole),))))

    def _forward(self) -> list[n.Component]:
        """The components forwards that are needed; what the operator gives is an operand here."""
        needed = set(names_in([item.value for item in self.made]))
        found: list[n.Component] = []
        for item in reversed(self.components):
            names = [name for name in _made(item) if name not in self.results]
            if not needed.isdisjoint(names):
                found.append(_renamed(item, self.results))
                needed |= set(names_in(item.value))
        return found[::-1]

    # --- one component ----------------------------------------------------------------------------------------------

    def _pull(self, item: n.Component, active: set[str]) -> None:
        """What a component adds to the adjoints of what it reads."""
        if not any(self.adjoints.get(name) for name in _made(item)):
            return
        value = item.value
        if isinstance(value, n.Loop):
            raise Unsupported(f"a loop of '{self.source.name}' has no derivative here")
        cases: list[n.Callee] = []
        if isinstance(value, n.Branch):
            cases += [*(case for _, case in value.cases), value.otherwise]
        else:
            cases.append(value)
        for name in dict.fromkeys(name for case in cases for name in names_in(_operands(case))):
            if name not in active:
                continue
            found = [self._of_case(item, case, name) for case in cases]
            if all(one is None for one in found):
                continue
            full = [_zeros(name) if one is None else one for one in found]
            made: n.Callee | n.Branch = full[0]
            if isinstance(value, n.Branch):
                pairs = zip((test for test, _ in value.cases), full, strict=False)
                made = n.Branch(tuple(pairs), full[-1])
            self._add(name, made)

    def _add(self, name: str, value: n.Callee | n.Branch) -> None:
        if isinstance(value, n.Name):
            self.adjoints.setdefault(name, []).append(value.id)
            return
        made = self._fresh(f"d_{name}")
        self.made.append(_component(made, value))
        self.adjoints.setdefault(name, []).append(made)

    def _fresh(self, stem: str) -> str:
        found, number = stem, 0
        while found in self.taken:
            number += 1
            found = f"{stem}_{number}"
        self.taken.add(found)
        return found

    def _total(self, name: str) -> str:
        """The name of the whole adjoint of a tensor."""
        parts = self.adjoints[name]
        while len(parts) > 1:
            made = self._fresh(f"d_{name}")
            two = n.Name(parts[0]), n.Name(parts[1])
            self.made.append(_component(made, n.Invocation(ADD, (), (), two)))
            parts[:2] = [made]
        return parts[0]

    def _of_case(self, item: n.Component, case: n.Callee, name: str) -> n.Callee | None:
        """What comes back to an operand from one value of a component."""
        results = _made(item)
        if isinstance(case, n.Name):
            return n.Name(self._total(results[0])) if case.id == name else None
        if not isinstance(case, n.Invocation):
            raise Unsupported(f"an expression of '{self.source.name}' has no derivative here")
        called = self.around.find(case.operator)
        if called is None:
            raise Unsupported(f"there is no operator '{case.operator}'")
        parameters = [one.name for one in called.parameters("input")]
        places = [number for number, one in enumerate(case.arguments) if one == n.Name(name)]
        if not places:
            if name in names_in(case.arguments):
                raise Unsupported(f"an expression of '{name}' is an operand, which has no derivative here")
            return None
        if len(places) > 1:
            raise Unsupported(f"'{name}' is two operands of '{case.operator}'")
        types = {one.name: one.base for one in called.items("dtype") if isinstance(one, n.Dtype)}
        if not is_real(list(called.parameters("input"))[places[0]], types):
            return None
        if case.operator in RESHAPES and len(_made(item)) == 1:
            shape = n.Attribute("shape", n.Member(name, "shape"))
            return n.Invocation(RESHAPE, (), (shape,), (n.Name(self._total(results[0])),))
        found = self.around.pull(case.operator, parameters[places[0]])
        return None if found is None else self._backward_call(item, case, called, found)

    def _backward_call(
        self, item: n.Component, case: n.Invocation, called: n.Operator, backward: tuple[str, n.Operator]
    ) -> n.Invocation:
        """The call of a backward operator with what its parameters mean here."""
        operator, found = backward
        known: dict[str, n.Expr | n.Omitted] = {
            one.name: n.Omitted() for one in called.parameters("input") if one.type.optional
        }
        known |= dict(zip((one.name for one in called.parameters("input")), case.arguments, strict=False))
        for output, result in zip(called.parameters("output"), _results(item), strict=False):
            if result is None:
                continue
            known[output.name] = n.Name(result)
            if not self.adjoints.get(result):
                self._add(result, _zeros(result))
            known[f"d_{output.name}"] = n.Name(self._total(result))
        own = {one.name for one in found.parameters("attrib")}
        attributes = tuple(one for one in case.attributes if one.name in own)
        arguments = [self._operand(known, one.name, case.operator) for one in found.parameters("input")]
        return n.Invocation(operator, (), attributes, tuple(arguments))

    @staticmethod
    def _operand(known: Mapping[str, n.Expr | n.Omitted], name: str, operator: str) -> n.Expr | n.Omitted:
        value = known.get(name)
        if value is None:
            raise Unsupported(f"'{name}' of '{operator}' is not there")
        return value


def _zeros(name: str) -> n.Invocation:
    """Zeros in the shape and the type of a tensor, whatever it holds."""
    return n.Invocation(CHOOSE, (), (), (n.Bool(False), n.Name(name), ZERO))


def _component(name: str, value: n.Callee | n.Branch) -> n.Component:
    return n.Component((n.Result(name),), value)


def _results(item: n.Component) -> list[str | None]:
    """What a component gives, None for what it leaves out."""
    if not all(isinstance(one, n.Result | n.Omitted) for one in item.results):
        raise Unsupported("a component gives a pack in parts, which has no derivative here")
    return [one.name if isinstance(one, n.Result) else None for one in item.results]


def _made(item: n.Component) -> list[str]:
    return [name for name in _results(item) if name is not None]


def _operands(case: n.Callee) -> object:
    return case.arguments if isinstance(case, n.Invocation) else case


def _renamed(item: n.Component, given: Collection[str]) -> n.Component:
    """A component that leaves out what is given already."""
    results: Sequence[n.Pattern] = [
        n.Omitted() if isinstance(one, n.Result) and one.name in given else one for one in item.results
    ]
    return replace(item, results=tuple(results))
