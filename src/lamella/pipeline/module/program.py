"""A Module DSL file on its way to a graph: resolved, chosen, configured, instantiated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.errors import Found, InputError
from lamella.base.paths import is_there, read_text, read_text_in, shown
from lamella.base.source import NOWHERE, Source
from lamella.base.suggest import list_known
from lamella.base.writer import write_text
from lamella.lang.module.annotations import read_annotation
from lamella.lang.module.check.annotated import check_annotations
from lamella.lang.module.check.declarations import check_declaration
from lamella.lang.module.check.views import view_of
from lamella.lang.module.instantiate import Instance, find_presets, instantiate, read_preset
from lamella.lang.module.instantiate import Known as instantiate_Known
from lamella.lang.module.instantiate.evaluate import EvaluationContext, evaluate
from lamella.lang.module.instantiate.nodes import Known, Value
from lamella.lang.module.instantiate.tree import children
from lamella.lang.module.nodes import ConfigParam, Module, Recipe
from lamella.lang.module.parse import parse
from lamella.lang.module.resolve import (
    Declared,
    Resolved,
    Scope,
    Workspace,
    check_lock,
    read_lock,
    resolve,
    write_lock,
)
from lamella.lang.module.resolve.lineage import config_params, trace_lineage
from lamella.lang.module.resolve.lock import FILE_NAME
from lamella.lang.module.rules.annotated import UNKNOWN as UNKNOWN_ANNOTATION
from lamella.lang.module.rules.names import UNKNOWN as UNKNOWN_NAME
from lamella.lang.module.rules.names import UNKNOWN_ARGUMENT
from lamella.lang.module.suggest import suggest
from lamella.pipeline.options import Options

# --- values of config parameters as a user gives them: Python objects, or text in the language --------------


GIVEN = "--set"
SHOWN = 100


def given_values(config: Mapping[str, object], params: Sequence[ConfigParam], model: str) -> dict[str, Known]:
    """What the user sets, each by the name of a parameter."""
    known = [item.name for item in params]
    unknown = next((name for name in config if name not in known), None)
    if unknown is not None:
        hint = suggest(unknown, known) or f"'{model}' has: {', '.join(known) or 'no parameters'}"
        finding = UNKNOWN_ARGUMENT.at(NOWHERE, module=model, name=unknown[:SHOWN], repair=hint)
        raise LamellaError([finding])
    return {name: Known(value_of(name, value), GIVEN) for name, value in config.items()}


def config_for(module: Module, config: Mapping[str, object]) -> dict[str, object]:
    """The part of a configuration that concerns one declaration."""
    known = {item.name for item in module.params or ()}
    return {name: value for name, value in config.items() if name in known}


def require_known(config: Mapping[str, object], declared: Sequence[Declared]) -> None:
    """Where several declarations are checked with one configuration, each name in it belongs to one of them."""
    modules = [item.declaration for item in declared if isinstance(item.declaration, Module)]
    known = {item.name for module in modules for item in module.params or ()}
    unknown = next((name for name in config if name not in known), None)
    if unknown is not None:
        hint = suggest(unknown, known) or f"there is: {', '.join(sorted(known)) or 'none'}"
        where = "as a parameter in this file"
        raise LamellaError([UNKNOWN_NAME.at(NOWHERE, name=unknown[:SHOWN], where=where, repair=hint)])


def value_of(name: str, value: object) -> Value:
    """A value that a user gives: an object as it is, a text as the language reads it."""
    if isinstance(value, str):
        return _read(name, value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return tuple(value_of(name, item) for item in value)
    raise InputError(
        f"'{name}' is set to a {type(value).__name__}", hint="values are numbers, words and lists"
    )


def _read(name: str, text: str) -> Value:
    """The value of a text; what is no expression of the language is a string."""
    document, findings = parse(Source(GIVEN, f"recipe values:\n  value: {text}\n"))
    recipe = document.items[0] if document.items else None
    if errors(findings) or not isinstance(recipe, Recipe) or not recipe.fields:
        return text
    found = recipe.fields[0].value
    if isinstance(found, str | tuple):
        return text
    try:
        return evaluate(found, {}, EvaluationContext(words=True))
    except Found as problem:
        raise LamellaError([problem.finding]) from None


def preset_values(scope: Scope, name: str | None) -> dict[str, Known]:
    """The values of a preset of a file; none where none is asked for."""
    if name is None:
        return {}
    presets = find_presets(scope)
    if name not in presets:
        hint = list_known(name, presets, "the file has:")
        raise InputError(f"there is no preset '{name[:SHOWN]}'", hint=hint)
    values, findings = read_preset(presets[name])
    if errors(findings):
        raise LamellaError(errors(findings))
    return values


MODEL = "model"


@dataclass(frozen=True, slots=True)
class Program:
    """A file with all it imports."""

    workspace: Workspace
    resolved: Resolved
    locked: tuple[Diagnostic, ...] = ()
    """What does not agree with the lock file."""

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """What is wrong with the texts."""
        return (*self.resolved.findings, *self.locked)

    @property
    def lost(self) -> frozenset[str]:
        """Names in lines of the texts that could not be read."""
        return frozenset().union(*(unit.document.lost for unit in self.resolved.scope.scopes))

    @property
    def unbound(self) -> frozenset[str]:
        """Names that wrong imports would have bound."""
        return frozenset().union(*(scope.lost for scope in self.resolved.scope.scopes.values()))

    @property
    def modules(self) -> list[Declared]:
        """The modules, blocks and models of the file itself."""
        items = self.resolved.unit.document.items
        return [Declared(self.resolved.unit, item) for item in items if isinstance(item, Module)]


def read_program(path: Path, options: Options, inside: bool = False) -> Program:
    """The program of a file; one `inside` a folder that the user named is read without following a link."""
    workspace = Workspace(() if options.root is None else (options.root,), options.limits)
    if inside:
        text = read_text_in(path.parent, path.name, options.limits)
        return Program(workspace, resolve(workspace.take(Source(shown(path), text), path), workspace))
    resolved = resolve(workspace.read(path), workspace)
    return Program(workspace, resolved, locked=_check_lock(path.parent / FILE_NAME, resolved, options))


def _check_lock(path: Path, resolved: Resolved, options: Options) -> tuple[Diagnostic, ...]:
    """What does not agree with the lock file beside a program; one that is about to be written does not matter."""
    if options.lock or not is_there(path):
        return ()
    lock = read_lock(Source(shown(path), read_text(path, options.limits)))
    return (*lock.findings, *check_lock(resolved, lock))


def lock_program(program: Program) -> Path | None:
    """Write the lock file beside a program, and give its path; a text without a file has none."""
    home = program.resolved.unit.path
    if home is None:
        return None
    write_text(home.parent / FILE_NAME, write_lock(program.resolved))
    return home.parent / FILE_NAME


def choose(program: Program, options: Options) -> Declared:
    """The declaration that is meant: the one that is named, else the first model that is whole, else the last one."""
    found = {item.name: item for item in program.modules}
    name = options.model
    if name is not None:
        if name not in found:
            hint = list_known(name, found, "the file has:")
            raise InputError(f"there is no model '{name[:100]}'", hint=hint)
        return found[name]
    models = [item for item in found.values() if _kind(item) == MODEL]
    concrete = [item for item in found.values() if not _is_abstract(item)]
    if not models and not concrete:
        unit = program.resolved.unit
        raise InputError("the file declares no module", path=str(unit.path or unit.name))
    whole = [item for item in models if item in concrete]
    return (whole or models or concrete[-1:])[0]


def _kind(declared: Declared) -> str:
    return declared.declaration.kind if isinstance(declared.declaration, Module) else ""


def _is_abstract(declared: Declared) -> bool:
    return isinstance(declared.declaration, Module) and declared.declaration.abstract


def configure(
    program: Program, declared: Declared, read: Mapping[str, instantiate_Known], options: Options
) -> dict[str, instantiate_Known]:
    """The values of a declaration: what the user sets, over a preset, over what a config file says."""
    return {
        **read,
        **preset_values(program.resolved.scope, options.preset),
        **given_values(options.config, params_of(program, declared), declared.name),
    }


def params_of(program: Program, declared: Declared) -> tuple[ConfigParam, ...]:
    """The config parameters of a declaration, its own or those that it inherits."""
    try:
        return config_params(trace_lineage(declared, program.resolved.scope))
    except Found:  # what is wrong with the lineage is found when it is built
        module = declared.declaration
        return (module.params or ()) if isinstance(module, Module) else ()


def build_instance(
    program: Program, declared: Declared, read: Mapping[str, instantiate_Known], options: Options
) -> Instance:
    """A declaration with its values; LamellaError where something is wrong."""
    wrong = errors(program.findings)
    if wrong:
        raise LamellaError(wrong)
    scope = program.resolved.scope
    found = instantiate(declared, configure(program, declared, read, options), scope, options.limits)
    if found.instance is None or errors(found.findings):
        raise LamellaError(errors(found.findings))
    wrong = list(_wrong_words(found.instance, options.recipe))
    if wrong:
        raise LamellaError(wrong)
    return found.instance


def _wrong_words(root: Instance, recipe: str | None) -> Iterator[Diagnostic]:
    """What is wrong with the annotations and recipes of all that an instance is made of.

    What stands on a parameter or a declaration is read by nobody who could refuse it: it would be ignored.
    """
    seen: set[int] = set()
    todo = [root]
    recipes = {recipe: root.scope} if recipe is not None else {}
    while todo:
        instance = todo.pop()
        todo += [child for _, child in children(instance)]
        declared = instance.declared.declaration
        if id(declared) in seen or instance.declared.unit.standard or not isinstance(declared, Module):
            continue
        seen.add(id(declared))
        yield from errors(check_declaration(declared))
        view = view_of(declared, instance.scope)
        yield from (item for item in errors(check_annotations(view)) if item.code == UNKNOWN_ANNOTATION.code)
        for annotation in instance.module.annotations:
            name = read_annotation(annotation, instance.values).arguments.get("name")
            if annotation.name == "recipe" and isinstance(name, str):
                recipes[name] = instance.scope
    for name, scope in recipes.items():
        found = scope.find(name)
        if found is not None and isinstance(found.declaration, Recipe):
            yield from errors(check_declaration(found.declaration))
