"""The module `gradient` of a library: backward operators by name, each derived from formulas when first asked for.

`gradient.linalg_matmul_d_A` is the gradient of `linalg.matmul` with respect to `A`. Backward operators that other
worlds and the Module DSL know by a name of their own are declared in `tables/gradients.csv`: their signature, and the
operator whose gradients they are.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import cache

from lamella.base.errors import Unsupported
from lamella.base.paths import read_shipped
from lamella.base.records import dataclass
from lamella.base.source import ShippedSource
from lamella.lang.skriptnd import nodes as n
from lamella.lang.skriptnd import parse
from lamella.ops.gradient.compositions import CompositionScope, derive_composition
from lamella.ops.gradient.expressions import names_in
from lamella.ops.gradient.operators import (
    BackwardOperator,
    Derivation,
    closure,
    declared_by,
    derive,
    respelled,
)

MODULE = "gradient"
"""The name of the module."""
TABLE = "ops/tables/gradients.csv"
INTRINSICS = "ops/gradient/intrinsics.sknd"
_MODULES = {"top_k": "algo"}
"""The modules of operators without formulas that are not of images."""
PREFIX = "d_"
STOPPING = frozenset({"aten.detach"})
"""Operators that give what they take, through which nothing goes back."""


@dataclass(frozen=True, slots=True)
class DeclaredGradient:
    """A row of the table: an operator that gives gradients of another one."""

    name: str
    forward: str
    inputs: tuple[str, ...]
    """Inputs and outputs of the other one by their names, and gradients `d_y` of its outputs."""
    outputs: tuple[str, ...]
    """The gradients `d_x` that it gives."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What it calls some of them: `grad_input=d_x` in the table."""


@cache
def declared_gradients() -> dict[str, DeclaredGradient]:
    """The rows of the table by the qualified names of their operators."""
    rows = csv.DictReader(read_shipped(TABLE).splitlines())
    return {row["name"]: _read_row(row) for row in rows}


def _read_row(row: Mapping[str, str]) -> DeclaredGradient:
    sides = [[item.rpartition("=") for item in row[side].split()] for side in ("inputs", "outputs")]
    inputs, outputs = (tuple(meaning for _, _, meaning in side) for side in sides)
    names = {meaning: own for side in sides for own, _, meaning in side if own}
    return DeclaredGradient(row["name"], row["forward"], inputs, outputs, names)


@cache
def _told_by_formulas() -> dict[str, n.Operator]:
    """Operators without a formula whose outputs formulas relate to their inputs, by their qualified names."""
    parsed = parse(ShippedSource(INTRINSICS, read_shipped(INTRINSICS)))
    return {f"{_MODULES.get(item.name, 'image')}.{item.name}": item for item in parsed.document.declarations}


def with_formulas(name: str, operator: n.Operator) -> n.Operator:
    """An operator by its qualified name; where it has no formula and formulas tell what it gives, those."""
    return _told_by_formulas().get(name, operator) if operator.kind == "intrinsic" else operator


def derive_formulas(name: str, operator: n.Operator, wanted: str) -> BackwardOperator | None:
    """The backward operator for an input of an operator by its qualified name; None where nothing depends on it."""
    return derive(with_formulas(name, operator), wanted, _prefix(name))


def gradient_name(operator: str, wanted: str) -> str:
    """The qualified name of the backward operator for an input of an operator."""
    return f"{MODULE}.{_prefix(operator)}{operator.rpartition('.')[2]}_d_{wanted}"


def _prefix(operator: str) -> str:
    """How the names of the backward operators of a module's operators begin."""
    return f"{operator.rpartition('.')[0].replace('.', '_')}_"


class GradientModule:
    """The backward operators of what a library finds."""

    def __init__(self, find: Callable[[str], n.Operator | None]) -> None:
        self._find_forward = find
        self._found: dict[tuple[str, str], str | None] = {}
        self._operators: dict[str, n.Operator] = {}
        self._open: set[tuple[str, str]] = set()

    def find(self, qualified: str) -> n.Operator | None:
        """An operator of the module, or one that the table declares; None where there is none."""
        module, _, name = qualified.rpartition(".")
        try:
            if module == MODULE:
                return self._find_derived(name)
            row = declared_gradients().get(qualified)
            return None if row is None else _DeclaredOperator(row, self._forward(row.forward), self).build()
        except Unsupported:
            return None

    def _find_derived(self, name: str) -> n.Operator | None:
        if name not in self._operators:
            for operator, wanted in _readings(name):
                found = self._find_forward(operator)
                if found is not None and wanted in {item.name for item in found.parameters("input")}:
                    self.pull(operator, wanted)
        return self._operators.get(name)

    def pull(self, operator: str, wanted: str) -> tuple[str, n.Operator] | None:
        """The backward operator for an input, and its qualified name; Unsupported says what cannot be derived."""
        key = operator, wanted
        if operator in STOPPING:
            return None
        if key in self._open:
            raise Unsupported(f"'{operator}' is made of itself")
        if key not in self._found:
            self._open.add(key)
            try:
                self._found[key] = self._keep(self._derive(operator, wanted))
            finally:
                self._open.discard(key)
        name = self._found[key]
        return None if name is None else (f"{MODULE}.{name}", self._operators[name])

    def _forward(self, operator: str) -> n.Operator:
        found = self._find_forward(operator)
        if found is None:
            raise Unsupported(f"there is no operator '{operator}'")
        return found

    def _derive(self, operator: str, wanted: str) -> BackwardOperator | None:
        found, module = self._forward(operator), operator.rpartition(".")[0]
        if found.kind != "compose":
            return derive_formulas(operator, found, wanted)
        around = CompositionScope(
            lambda name: name if "." in name else f"{module}.{name}", self._find_forward, self.pull
        )
        return derive_composition(found, wanted, _prefix(operator), around)

    def _keep(self, found: BackwardOperator | None) -> str | None:
        if found is None:
            return None
        for item in (*found.parts, found.operator):
            self._operators[item.name] = item
        return found.operator.name


def _readings(name: str) -> Iterator[tuple[str, str]]:
    """The operators and inputs whose gradient a name may stand for."""
    module, _, rest = name.lstrip("_").partition("_")
    place = rest.rfind("_d_")
    while place > 0:
        yield f"{module}.{rest[:place]}", rest[place + len("_d_") :]
        place = rest.rfind("_d_", 0, place)


class _DeclaredOperator:
    """An operator of the table while it is written: its signature, and a call for each gradient that it gives."""

    def __init__(self, row: DeclaredGradient, forward: n.Operator, module: GradientModule) -> None:
        self.row, self.forward, self.module = row, forward, module
        wanted = [item.removeprefix(PREFIX) for item in row.outputs]
        self.derivations = [Derivation(forward, item, "") for item in wanted]

    def build(self) -> n.Operator:
        """The operator."""
        first = self.derivations[0]
        inputs = tuple(self._input(name, first) for name in self.row.inputs)
        outputs = tuple(item.output for item in self.derivations)
        calls = tuple(self._call(item) for item in self.derivations)
        body = n.Section("compose", calls)
        kept = {name for item in self.derivations for name in item.reals()}
        others = [item for item in self.forward.sections if item.name in ("attrib", "constant", "using")]
        statements = [item for section in others for item in section.items]
        known = closure(names_in([inputs, outputs, calls]), statements)
        known |= {name for item in inputs for name in declared_by(item)}
        asserts = self._asserts(known, statements)
        needed = closure(names_in([inputs, outputs, calls, asserts]), statements)
        sections = [
            *(_needed(item, needed) for item in others if item.name == "attrib"),
            n.Section("input", inputs),
            n.Section("output", outputs),
            *(_needed(item, needed) for item in others if item.name != "attrib"),
            n.Section("assert", asserts),
            body,
        ]
        made = n.Operator(self.row.name.rpartition(".")[2], tuple(item for item in sections if item.items))
        return _renamed(respelled(made, frozenset(kept)), self.row.names)

    def _asserts(self, known: set[str], statements: list[n.Statement]) -> tuple[n.Statement, ...]:
        """The assertions of the forward operator that speak of nothing else than what is there."""
        attributes = {
            item.name
            for item in self.forward.parameters("attrib")
            if item.name in known or item.value is not None or item.type.optional
        }
        own = {name for item in statements if isinstance(item, n.Using) for name in declared_by(item)}
        found = []
        told = {name for item in self.derivations for name in item.outputs if item.is_told(name)}
        outputs = (item for item in self.forward.parameters("output") if item.name not in told)
        shapes = [item for one in outputs for item in _same_shape(one)]
        for item in (*self.forward.items("assert"), *shapes):
            names = closure(names_in(item), statements)
            if names - own - attributes <= known:
                found.append(item)
        return tuple(found)

    def _input(self, name: str, first: Derivation) -> n.Parameter:
        if name in first.inputs:
            own = first.inputs[name]
            return replace(
                own, type=replace(own.type, optional=own.type.optional and name not in self._wanted)
            )
        output = name.removeprefix(PREFIX)
        return first.like_output(output if output in first.outputs else name, name)

    @property
    def _wanted(self) -> set[str]:
        return {item.wanted for item in self.derivations}

    def _call(self, derivation: Derivation) -> n.Component:
        found = self.module.pull(self.row.forward, derivation.wanted)
        if found is None:
            raise Unsupported(f"nothing depends on '{derivation.wanted}' of '{self.row.forward}' smoothly")
        name, operator = found
        optional = {item.name for item in derivation.inputs.values() if item.type.optional}
        arguments: list[n.Expr | n.Omitted] = []
        for item in operator.parameters("input"):
            if item.name in self.row.inputs:
                arguments.append(n.Name(item.name))
            elif item.name in optional:
                arguments.append(n.Omitted())
            else:
                raise Unsupported(f"'{self.row.name}' does not take '{item.name}', which '{name}' reads")
        attributes = tuple(
            n.Attribute(item.name, n.Name(item.name)) for item in operator.parameters("attrib")
        )
        return n.Component(
            (n.Result(derivation.gradient),), n.Invocation(name, (), attributes, tuple(arguments))
        )


def _renamed(operator: n.Operator, names: Mapping[str, str]) -> n.Operator:
    """An operator whose inputs and outputs have other names."""

    def change(node: object) -> object:
        if isinstance(node, n.Name) and node.id in names:
            return replace(node, id=names[node.id])
        if isinstance(node, n.Member | n.NullTest | n.Parameter | n.Result) and node.name in names:
            return replace(node, name=names[node.name])
        return node

    found = n.rebuilt(operator, change)
    assert isinstance(found, n.Operator)
    return found


def _same_shape(output: n.Parameter) -> Iterator[n.Statement]:
    """That what comes back to an output has its shape."""
    items: list[n.Item] = []
    for item in output.type.shape or ():
        if isinstance(item.value, n.Omitted) or item.spread or output.type.pack is not None:
            return
        if item.pack is None:
            items.append(item.value)
            continue
        length = item.pack.length
        items.append(n.Expand(item.value, None if isinstance(length, n.Omitted) else length))
    given = n.Member(f"{PREFIX}{output.name}", "shape")
    same = n.Chain(given, (("==", n.List(tuple(items))),))
    message = n.Text(f"what comes back must have the shape of '{output.name}'")
    yield n.Assertion(same, message, (n.Printed(given, f"{PREFIX}{output.name}.shape"),))


def _needed(section: n.Section, names: set[str]) -> n.Section:
    items = tuple(item for item in section.items if not names.isdisjoint(declared_by(item)))
    return replace(section, items=items)
