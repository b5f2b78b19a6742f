"""Settings of a file: `verify_backward:`, `topology:` and `groups:`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.base.errors import Found
from lamella.lang.module.annotations import ArgumentValue
from lamella.lang.module.annotations.arguments import accepts, read_annotation, show_value, wanted
from lamella.lang.module.annotations.table import AnnotationParameter
from lamella.lang.module.check.views import spots_of
from lamella.lang.module.instantiate.evaluate import EvaluationContext, evaluate
from lamella.lang.module.instantiate.messages import show
from lamella.lang.module.instantiate.nodes import DictValue, Value
from lamella.lang.module.nodes import Annotation, Document, Field, Module, Setting, TensorType, names_in
from lamella.lang.module.rules import annotated as rules
from lamella.lang.module.suggest import suggest

VERIFY, TOPOLOGY, GROUPS = "verify_backward", "topology", "groups"
SIZES = ("dp_size", "tp_size", "pp_size", "ep_size")
FIELDS: Mapping[str, Mapping[str, AnnotationParameter]] = MappingProxyType(
    {
        VERIFY: {
            "epsilon": AnnotationParameter("epsilon", "float", least=1e-12),
            "tolerance": AnnotationParameter("tolerance", "float", least=0.0),
            "shapes": AnnotationParameter("shapes", "sizes"),
        },
        TOPOLOGY: {name: AnnotationParameter(name, "int", least=1) for name in SIZES},
    }
)
"""What the blocks of settings may say."""
DEFAULT_GROUP = "default"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the settings of a file say; what they do not say is missing."""

    verify: Mapping[str, float] = field(default_factory=dict)
    """The step of the differences and the tolerance, by name."""
    shapes: Mapping[str, int] = field(default_factory=dict)
    """Sizes of dimensions and values of config parameters with which gradients are verified."""
    topology: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[str, ...] | None = None

    def lines(self) -> Iterator[str]:
        """The settings as `show` prints them."""
        verify = {**self.verify, **({"shapes": DictValue(tuple(self.shapes.items()))} if self.shapes else {})}
        if verify:
            yield f"{VERIFY} {', '.join(f'{name} = {show(value)}' for name, value in verify.items())}"
        if self.topology:
            devices = 1
            for name in SIZES[:3]:
                devices *= self.topology.get(name, 1)
            sizes = ", ".join(f"{name} = {size}" for name, size in self.topology.items())
            yield f"{TOPOLOGY} {sizes}: {devices} device{'s' if devices != 1 else ''}"
        if self.groups is not None:
            yield f"{GROUPS} {', '.join(self.groups) or 'none'}"


def read_settings(document: Document) -> Settings:
    """The settings of a file; fields that are wrong are left out."""
    values: dict[str, dict[str, Value]] = {VERIFY: {}, TOPOLOGY: {}}
    groups: tuple[str, ...] | None = None
    for item in document.items:
        if isinstance(item, Setting) and item.kind == GROUPS:
            groups = tuple(entry.name for entry in item.fields)
        elif isinstance(item, Setting):
            for entry in item.fields:
                found = _read(entry, item.kind)
                if not isinstance(found, Diagnostic):
                    values[item.kind][entry.name] = found[0]
    shapes = values[VERIFY].pop("shapes", None)
    return Settings(
        {name: value for name, value in values[VERIFY].items() if isinstance(value, int | float)},
        dict(_sizes(shapes)) if isinstance(shapes, DictValue) else {},
        {name: value for name, value in values[TOPOLOGY].items() if isinstance(value, int)},
        groups,
    )


def _sizes(shapes: DictValue) -> Iterator[tuple[str, int]]:
    return ((name, value) for name, value in shapes.entries if isinstance(value, int))


def _read(entry: Field, kind: str) -> tuple[Value] | Diagnostic:
    """The value of a field in a tuple of its own, or what is wrong with it."""
    parameter = FIELDS[kind].get(entry.name)
    if parameter is None:
        repair = suggest(entry.name, FIELDS[kind]) or f"it has {', '.join(FIELDS[kind])}"
        return rules.SETTING.at(entry.span, kind=kind, field=entry.name, repair=repair)
    found = "no value"
    if not isinstance(entry.value, str | tuple):
        try:
            value = evaluate(entry.value, {}, EvaluationContext(where=f"in '{kind}:'"))
        except Found as problem:
            return problem.finding
        if _accepts(parameter, value):
            return (value,)
        found = show_value(value, parameter)
    need = "positive sizes by name, as in {B: 2}" if parameter.kind == "sizes" else wanted(parameter)
    return rules.SETTING_VALUE.at(entry.span, kind=kind, field=entry.name, found=found, wanted=need)


def _accepts(parameter: AnnotationParameter, value: Value) -> bool:
    if parameter.kind != "sizes":
        return value is not None and accepts(parameter, value)
    sizes = [item for _, item in value.entries] if isinstance(value, DictValue) else [None]
    return all(isinstance(item, int) and not isinstance(item, bool) and item > 0 for item in sizes)


def check_settings(document: Document) -> Iterator[Diagnostic]:
    """Fields that mean nothing, sizes of dimensions that nothing has, and annotations beyond the topology."""
    blocks = [item for item in document.items if isinstance(item, Setting)]
    modules = [item for item in document.items if isinstance(item, Module)]
    for block in blocks:
        if block.kind == GROUPS:
            continue
        for entry in block.fields:
            found = _read(entry, block.kind)
            if isinstance(found, Diagnostic):
                yield found
            elif isinstance(found[0], DictValue):
                yield from _unused(entry, found[0], modules)
    settings = read_settings(document)
    if settings.topology or settings.groups is not None:
        annotations = (item for module in modules for spot in spots_of(module) for item in spot.annotations)
        constants = {param.name for module in modules for param in module.params or ()}
        constants |= {entry.name for module in modules for entry in module.bindings if hasattr(entry, "name")}
        known = ((item, read_annotation(item, {}, constants).arguments) for item in annotations)
        yield from check_devices(known, settings)


def _unused(entry: Field, shapes: DictValue, modules: Iterable[Module]) -> Iterator[Diagnostic]:
    """Names in `shapes` that are no dimension and no config parameter of the file."""
    known: set[str] = set()
    for module in modules:
        known |= {param.name for param in module.params or ()}
        for port in (module.forward.inputs or ()) if module.forward is not None else ():
            known |= set(names_in(*port.type.dims)) if isinstance(port.type, TensorType) else set()
    for name in shapes.names():
        if name not in known:
            yield rules.UNUSED_SIZE.at(entry.span, name=name, repair=suggest(name, sorted(known)))


def check_devices(
    annotations: Iterable[tuple[Annotation, Mapping[str, ArgumentValue]]], settings: Settings
) -> Iterator[Diagnostic]:
    """`@shard`, `@partition` and `@comm`, with their arguments, against the devices that there are."""
    topology = settings.topology
    for item, arguments in annotations:
        if item.name == "shard":
            for name in SIZES[1:]:
                size, wanted_size = arguments.get(name), topology.get(name)
                if isinstance(size, int) and wanted_size is not None and size != wanted_size:
                    why = f"{name} is {size}, the topology has {wanted_size}"
                    yield rules.DEVICES.at(item.span, name=item.name, why=why)
        elif item.name == "partition":
            stage, stages = arguments.get("stage"), topology.get("pp_size")
            if isinstance(stage, int) and stages is not None and stage >= stages:
                why = f"there is no stage {stage}: the topology has {stages}, from 0 to {stages - 1}"
                yield rules.DEVICES.at(item.span, name=item.name, why=why)
        elif item.name == "comm" and settings.groups is not None:
            group = arguments.get("group")
            if isinstance(group, str) and group not in (*settings.groups, DEFAULT_GROUP):
                why = f"there is no group '{group}', there is {', '.join(settings.groups) or 'none'}"
                yield rules.DEVICES.at(item.span, name=item.name, why=why)
