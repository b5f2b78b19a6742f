"""Where operators are found: the shipped library, each operator read on first use, and the modules of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from weakref import ref

from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.errors import Found
from lamella.base.limits import DEFAULT, Limits
from lamella.base.paths import read_shipped, shipped, shown
from lamella.base.records import dataclass
from lamella.base.source import ShippedSource, Source, Span
from lamella.lang.skriptnd import Outline, outline, parse_operator
from lamella.lang.skriptnd.check.definitions import invoked
from lamella.lang.skriptnd.nodes import Document, Operator
from lamella.lang.skriptnd.rules.names import SHADOWED_MODULE
from lamella.ops.bind.plan import OperatorPlan
from lamella.ops.gradient import MODULE as GRADIENT
from lamella.ops.gradient import GradientModule, declared_gradients
from lamella.ops.instance import Definition
from lamella.ops.memo import CallMemo
from lamella.ops.modules import MAIN, ModuleLoader, own_name, read_main
from lamella.ops.scalars.arithmetic import PackBudget
from lamella.ops.traits import Trait, Traits, declared_traits, find_traits

SPECIFICATION, NEWER = "specification", "newer"
DIALECTS = (SPECIFICATION, NEWER)
FOLDER = "ops"
FUSED = "fused"
"""The module of operators that fusion made: a group of operations each, taken whole unless somebody decomposes it."""
WHOLE = frozenset({"llm.paged_decode"})
"""Compound operators that are one group as they are: where they have no kernels of their own, their components have."""
MOST_NAMED = 6
"""Names that a note lists."""
MOST_SHIPPED = 16
"""Shipped libraries that a process keeps: each dialect and each set of limits has its own."""


def is_group(operator: str) -> bool:
    """Whether an operator by its qualified name is a group of operations, which is taken whole."""
    return operator.startswith(f"{FUSED}.") or operator in WHOLE


@dataclass(frozen=True, slots=True)
class LoadedModule:
    """A main module that was loaded, with what was found wrong with it and the modules it imports."""

    name: str
    document: Document
    findings: tuple[Diagnostic, ...]
    library: Library

    @property
    def sound(self) -> bool:
        """Whether nothing was found wrong."""
        return not errors(self.findings)

    @property
    def graphs(self) -> tuple[Definition, ...]:
        """The graphs, the primary one first."""
        return tuple(Definition(f"{self.name}.{item.name}", self.name, item) for item in self.document.graphs)


class _Shelf:
    """One shipped file: its outline, and the operators read so far."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.name = name
        self.limits = limits
        self.operators: dict[str, Operator] = {}

    @cached_property
    def source(self) -> ShippedSource:
        """The text of the file."""
        return ShippedSource(self.name, read_shipped(self.name))

    @cached_property
    def outline(self) -> Outline:
        """What stands in the file."""
        return outline(self.source)

    def find(self, name: str) -> Operator | None:
        """An operator of the file, read on first use."""
        if name not in self.operators:
            entry = self.outline.find(name)
            if entry is None:
                return None  # not kept: a text may ask for any name
            operator, findings = parse_operator(self.source, entry, self.limits)
            if errors(findings):
                raise Found(*errors(findings))
            if operator is None:
                return None
            # The first one stays: what is kept for an operator is found by its identity.
            self.operators.setdefault(name, operator)
        return self.operators[name]

    def traits(self, name: str) -> Mapping[str, Trait]:
        """What the comment above an operator declares."""
        entry = self.outline.find(name)
        return {} if entry is None else declared_traits(self.source.text, entry.span.start)


class _ShippedLibrary:
    """The shipped operators of a dialect, with what the engine keeps for each: a process reads and plans them once.

    Nothing in it depends on a model; the budget of long packs is each thread's own.
    """

    def __init__(self, dialect: str, limits: Limits) -> None:
        self.dialect = dialect
        self.limits = limits
        self.budget = PackBudget(limits)
        self.calls = CallMemo()
        self._shelves: dict[str, tuple[_Shelf, ...]] = {}
        self._definitions: dict[str, Definition | None] = {}
        self._plans: dict[int, OperatorPlan] = {}
        self._gradients = GradientModule(self._find_operator)

    @cached_property
    def modules(self) -> frozenset[str]:
        """The names of the modules."""
        return frozenset(path.stem for path in shipped(FOLDER).glob("*.sknd"))

    def shelf(self, module: str) -> tuple[_Shelf, ...]:
        """The files of a module, none of one that is not shipped; the newer dialect looks into its own first."""
        if module not in self.modules:
            return ()
        if module not in self._shelves:
            files = [f"{FOLDER}/{module}.sknd"]
            if self.dialect == NEWER and (shipped(FOLDER) / "newer" / f"{module}.sknd").is_file():
                files.insert(0, f"{FOLDER}/newer/{module}.sknd")
            self._shelves[module] = tuple(_Shelf(name, self.limits) for name in files)
        return self._shelves[module]

    def find(self, qualified: str) -> Definition | None:
        """An operator by its qualified name; None where there is none."""
        if qualified in self._definitions:
            return self._definitions[qualified]
        module, _, name = qualified.rpartition(".")
        found = (shelf.find(name) for shelf in self.shelf(module))
        operator = next((item for item in found if item is not None), None)
        if operator is None:
            operator = self._gradients.find(qualified)
        if operator is None:
            return None  # not kept: a text may ask for any name
        return self._definitions.setdefault(qualified, Definition(qualified, module, operator, True))

    def _find_operator(self, qualified: str) -> Operator | None:
        found = self.find(qualified)
        return None if found is None else found.operator

    def plan(self, definition: Definition) -> OperatorPlan:
        """What the engine keeps for an operator, whose syntax lives as long as this does."""
        key = id(definition.operator)
        if key not in self._plans:
            self._plans[key] = OperatorPlan(definition, self.limits, self.budget)
        return self._plans[key]


@lru_cache(MOST_SHIPPED)
def _shipped_library(dialect: str, limits: Limits) -> _ShippedLibrary:
    return _ShippedLibrary(dialect, limits)


class Library:
    """The operators that a model can call, with what the engine keeps for each."""

    def __init__(
        self, dialect: str = SPECIFICATION, root: Path | None = None, limits: Limits = DEFAULT
    ) -> None:
        if dialect not in DIALECTS:
            raise ValueError(f"unknown dialect '{dialect}'; the dialects are {', '.join(DIALECTS)}")
        self.dialect = dialect
        self.root = root
        self.limits = limits
        self._shipped = _shipped_library(dialect, limits)
        self.budget = self._shipped.budget
        self.budget.renew()
        self.documents: dict[str, Document] = {}
        """The modules of the model that were loaded, by name."""
        self.shadows: frozenset[str] = frozenset()
        """The standard modules whose names files of the model have."""
        self.lost: frozenset[str] = frozenset()
        """The modules of the model that could not be read."""
        self._comparing: set[str] = set()
        self._definitions: dict[str, Definition | None] = {}
        self._plans: dict[int, tuple[Definition, OperatorPlan]] = {}
        self._calls = CallMemo()
        self._traits: dict[str, Traits] = {}
        own = ref(self)  # a library that nobody holds ends at once, with all calls that it keeps

        def find_forward(name: str) -> Operator | None:
            library = own()
            return None if library is None else library.find_operator(name)

        self._gradients = GradientModule(find_forward)

    @property
    def standard(self) -> frozenset[str]:
        """The names of the shipped modules, and of the one whose operators are derived from them."""
        return self._shipped.modules | {GRADIENT}

    def find(self, qualified: str) -> Definition | None:
        """An operator by its qualified name; None where there is none."""
        if qualified not in self._definitions:
            self._definitions[qualified] = self._search(qualified)
        return self._definitions[qualified]

    def find_operator(self, qualified: str) -> Operator | None:
        """The syntax of an operator by its qualified name, as the checker asks for it."""
        found = self.find(qualified)
        return None if found is None else found.operator

    def is_newer(self, qualified: str) -> bool:
        """Whether an operator of the library means something else in the specification's dialect."""
        if self.dialect == SPECIFICATION:
            return False
        found = self.find(qualified)
        folder = f"{FOLDER}/newer/"
        return found is not None and found.standard and found.operator.span.source.name.startswith(folder)

    def traits(self, qualified: str) -> Traits:
        """What an operator is by its declaration and by its body; declarations of the shipped library alone count."""
        if qualified not in self._traits:
            self._traits[qualified] = Traits(root=qualified)  # for a composition that reaches itself
            definition = self.find(qualified)
            if definition is not None:
                self._traits[qualified] = self._find_traits(definition)
        return self._traits[qualified]

    def _find_traits(self, definition: Definition) -> Traits:
        declared: Mapping[str, Trait] = {}
        # A comment of a model must not change its numbers; those of the library are tested.
        if definition.standard:
            name = definition.operator.name
            shelf = next((item for item in self._shipped.shelf(definition.module) if item.find(name)), None)
            declared = {} if shelf is None else shelf.traits(name)
        return find_traits(
            definition, declared, lambda name: self.traits(self.resolve(name, definition.module))
        )

    def resolve(self, name: str, module: str) -> str:
        """The qualified name of what the text of a module calls.

        A file of the model that has the name of a standard module is meant by the model's own modules; those of the
        library keep theirs.
        """
        owner = name.rpartition(".")[0]
        if not owner:
            return f"{module}.{name}"
        return own_name(name) if owner in self.shadows and module in self.documents else name

    def _search(self, qualified: str) -> Definition | None:
        module, _, name = qualified.rpartition(".")
        document = self.documents.get(module)
        if document is None:
            return self._shipped.find(qualified) or self._derived(qualified)
        operator = next((item for item in document.declarations if item.name == name), None)
        if operator is None:
            # What a model has of this module are operators like those of the library, under the same names.
            return (self._shipped.find(qualified) or self._derived(qualified)) if module == GRADIENT else None
        twin = self._twin(qualified, operator) if module.removeprefix(f"{MAIN}.") in self.shadows else None
        return twin or Definition(qualified, module, operator)

    def _derived(self, qualified: str) -> Definition | None:
        """The gradient of an operator of the model."""
        if not qualified.startswith(f"{GRADIENT}."):
            return None
        found = self._gradients.find(qualified)
        return None if found is None else Definition(qualified, GRADIENT, found)

    def _twin(self, qualified: str, operator: Operator) -> Definition | None:
        """The shipped operator that one of the model only repeats: its text is the same, and so is what it calls.

        Of an operator without a body its declarations are compared.
        """
        shipped = self._shipped.find(qualified.removeprefix(f"{MAIN}."))
        if shipped is None:
            return None
        if operator.kind == "intrinsic" == shipped.operator.kind:
            return shipped if _declared(operator) == _declared(shipped.operator) else None
        if operator != shipped.operator:
            return None
        if qualified in self._comparing:
            return shipped
        self._comparing.add(qualified)
        try:
            module = qualified.rpartition(".")[0]
            called = (self.find(self.resolve(name, module)) for name in invoked(operator))
            return shipped if all(item is not None and item.standard for item in called) else None
        finally:
            self._comparing.discard(qualified)

    def operators(self, module: str) -> tuple[str, ...]:
        """The names of all operators of a module."""
        document = self.documents.get(module)
        if document is not None:
            return tuple(item.name for item in document.declarations)
        shelves = self._shipped.shelf(module)
        written = [entry.name for shelf in shelves for entry in shelf.outline.entries]
        declared = [item.rpartition(".") for item in declared_gradients()] if shelves else []
        return tuple(dict.fromkeys([*written, *(name for owner, _, name in declared if owner == module)]))

    def plan(self, definition: Definition) -> OperatorPlan:
        """What the engine keeps for a definition; made once."""
        if definition.standard:
            return self._shipped.plan(definition)
        key = id(definition.operator)
        if key not in self._plans:
            self._plans[key] = (definition, OperatorPlan(definition, self.limits, self.budget))
        return self._plans[key][1]

    def calls(self, definition: Definition) -> CallMemo:
        """The calls of an operator that were bound before: by any library of the process, or by this one."""
        return self._shipped.calls if definition.standard else self._calls

    def load_modules(self, names: Iterable[str], folder: Path) -> tuple[Diagnostic, ...]:
        """Load modules of operators by name from a folder, with those that they import; gives their findings."""
        self.root = folder
        return self.load(Source(shown(folder), f"import {', '.join(names)};")).findings

    def own_modules(self) -> dict[str, Document]:
        """The modules that were loaded and are not the main one, by name."""
        return {name: document for name, document in self.documents.items() if name != MAIN}

    def with_module(self, name: str, document: Document) -> Library:
        """A library that has one more module, and shares everything that was read."""
        found = Library(self.dialect, self.root, self.limits)
        found.documents = {**self.documents, name: document}
        found.shadows, found.lost = self.shadows, self.lost
        found._plans = self._plans
        return found

    def load(self, main: Path | Source) -> LoadedModule:
        """The main module of a model, from a folder, a file or a text, with the modules it imports."""
        file = read_main(main, self.root, self.limits)
        self.root = file.root
        loading = ModuleLoader(self.standard, self.limits)
        loading.follow(file)
        self.documents.update(loading.documents)
        self.shadows, self.lost = frozenset(loading.shadows), frozenset(loading.lost)
        self._definitions.clear()
        self._traits.clear()
        findings = list(loading.findings)
        for module, span in loading.shadows.items() if not errors(findings) else ():
            findings += self._report_shadow(module, span)
        return LoadedModule(MAIN, file.parsed.document, tuple(findings), self)

    def load_texts(self, texts: Mapping[str, Source]) -> tuple[Diagnostic, ...]:
        """Modules from their texts, which import each other and the library alone; what was found wrong with them."""
        loading = ModuleLoader(self.standard, self.limits, texts)
        loading.follow_texts()
        self.documents.update(loading.documents)
        self._definitions.clear()
        self._traits.clear()
        return tuple(loading.findings)

    def _report_shadow(self, module: str, span: Span) -> Iterator[Diagnostic]:
        """That a file of the model takes the place of a standard module, where its operators are not the same."""
        names = self.operators(own_name(module))
        own = [name for name in names if not _is_standard(self.find(f"{own_name(module)}.{name}"))]
        missing = len(set(self.operators(module)) - set(names))
        if own or (missing and names):
            shown_names = ", ".join(own[:MOST_NAMED]) + (", …" if len(own) > MOST_NAMED else "")
            parts = [f"its own {shown_names}"] if own else []
            parts += [f"{missing} operators less"] if missing else []
            yield SHADOWED_MODULE.at(
                span, path=f"{module}.sknd", module=module, differing=" and ".join(parts)
            )


def _is_standard(definition: Definition | None) -> bool:
    return definition is not None and definition.standard


def _declared(operator: Operator) -> list[object]:
    """What a call sees of an operator."""
    return [operator.items(section) for section in ("dtype", "attrib", "input", "output")]
