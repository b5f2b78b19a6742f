"""The language's own rules on a document: its includes, devices and families, names, regions, tasks and types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic, sort_findings
from lamella.base.dtype import find_in
from lamella.base.limits import DEFAULT, Limits
from lamella.base.quant import PerTensor, axis_of
from lamella.base.shape import element_count
from lamella.base.source import Source
from lamella.lang.nem.check.operands import (
    TaskCall,
    check_attributes,
    check_counts,
    check_layouts,
    check_ranks,
    place_of_operand,
    read_call,
    spec_of,
)
from lamella.lang.nem.check.shapes import check_shapes
from lamella.lang.nem.device import FamilyVariant, ResolvedDevice
from lamella.lang.nem.devices import check_devices, pick_target
from lamella.lang.nem.documents import DeviceLibrary, load
from lamella.lang.nem.families import variants_of
from lamella.lang.nem.registry import Opcode, load_registry
from lamella.lang.nem.resolve import resolve
from lamella.lang.nem.resolved import Item, Loop, Plan, Task, TensorType
from lamella.lang.nem.rules import (
    ACCUM_TYPE,
    BIAS_QUANT,
    DEVICE_VARIANT,
    EXTRA_QUANT,
    FUTURE_OPCODE,
    INTEGER_FUNCTION,
    KEPT_TYPE,
    MISSING_QUANT,
    MOVE_SIZE,
    MOVE_TYPE,
    NO_VARIANT,
    OUTPUT_QUANT,
    VIEW_QUANT,
)
from lamella.lang.nem.words import MOVES

# --- the element types of one task: type families, accumulators, quantisation, and what the device ----------


ABSENT = "absent"
ANY = "any_supported"
GENERIC_INPUTS, GENERIC_OUTPUTS = ("input", "src"), ("output", "dst")
GENERIC = (*GENERIC_INPUTS, *GENERIC_OUTPUTS)
CONVOLUTIONS = ("conv2d.float", "conv2d.int8", "conv2d.int4")
STAND_INS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("conv1d", "conv3d", "depthwise_conv2d"), CONVOLUTIONS),
        **dict.fromkeys(("maxpool", "avgpool"), ("eltwise",)),
    }
)
"""Opcodes that the registry gives no family, and the families whose operand types they follow."""

FUNCTIONS = ("exp", "log", "sigmoid", "tanh", "gelu", "silu", "sqrt")
INDEX_TYPES = ("i32", "u32")


def families_of(opcode: Opcode) -> tuple[str, ...]:
    """The type families that decide about an opcode: its own, or those it follows without having any."""
    return opcode.families or STAND_INS.get(opcode.name, ())


def scaled_along_reduction(opcode: str, weight: TensorType) -> bool:
    """Whether a weight's scales change along what is summed up, rather than from one output to the next.

    gemm and matmul sum over the rows of B; a convolution sums over every axis of W but the last.
    """
    if weight.quant is None or isinstance(weight.quant, PerTensor):
        return False
    axis, rank = axis_of(weight.quant, len(weight.shape)), len(weight.shape)
    return axis == rank - 2 if opcode in ("gemm", "matmul") else axis != rank - 1


def check_types(
    call: TaskCall, variants: Sequence[FamilyVariant], device: ResolvedDevice | None
) -> tuple[list[Diagnostic], str]:
    """Findings about the element types of a task, and the variant that it matches ("" for none)."""
    opcode = call.opcode
    if not families_of(opcode):
        return list(_check_kept(call)), ""
    wrong, legal = _match(call, variants)
    if not wrong:
        wrong = [*_check_indices(call), *_check_function(call)][:1]
    if wrong:
        return wrong, ""
    findings = [*_weigh_quant(call, legal[0]), *_check_view(call)]
    if not opcode.families:
        return findings, ""
    # Legality is a matter of the families alone; what the device offers is a second question.
    offered = [item for item in legal if device is None or _offers(device, item)]
    if device is not None and not offered:
        findings.append(_not_offered(call, legal[0], variants, device))
    return findings, str((offered or legal)[0].id)


# --- matching -----------------------------------------------------------------------------------------------


def _match(
    call: TaskCall, variants: Sequence[FamilyVariant]
) -> tuple[list[Diagnostic], Sequence[FamilyVariant]]:
    """The variants that an instance matches, or the findings of the nearest it fails."""
    fitting = [item for item in variants if next(_differences(call, item), None) is None]
    if not fitting:
        return [_no_variant(call, variants)], ()
    accum = call.value("accum_type")
    # The accumulator is judged after the operands, as a finding about it names the variant that else fits.
    summing = [item for item in fitting if accum is None or not item.accum or item.accum == accum]
    if not summing:
        return [_wrong_accum(call, fitting[0])], ()
    judged = [(list(_check_quant(call, item)), item) for item in summing]
    legal = [item for findings, item in judged if not findings]
    return ([], legal) if legal else (min((findings for findings, _ in judged), key=len), ())


def _differences(call: TaskCall, variant: FamilyVariant) -> Iterator[str]:
    """The operands that are of another type than in a variant, missing or too many."""
    bound = variant.operands
    for types, generic in ((call.inputs, GENERIC_INPUTS), (call.outputs, GENERIC_OUTPUTS)):
        for operand, kind in types.items():
            wanted = bound.get(operand) or _generic_binding(bound, operand, generic)
            if wanted != kind.elem and wanted != ANY and not _is_free(call, operand):
                yield operand
    for name, wanted in bound.items():
        if wanted != ABSENT and name not in call.places and name not in GENERIC:
            yield name


def _generic_binding(bound: Mapping[str, str], operand: str, generic: Sequence[str]) -> str:
    """The type of an operand that is not bound by its full name: as one of a list, or as any input or output."""
    for word in (operand.partition("[")[0], *generic):
        if word in bound:
            return bound[word]
    return ABSENT


def _is_free(call: TaskCall, operand: str) -> bool:
    """Whether the families do not speak of an operand."""
    return operand == "indices" and call.opcode.name == "gather"


def _count_differences(call: TaskCall, variant: FamilyVariant) -> int:
    return sum(1 for _ in _differences(call, variant))


def _no_variant(call: TaskCall, variants: Sequence[FamilyVariant]) -> Diagnostic:
    hint = (
        f"the nearest is {_nearest(call, variants)}" if variants else "no type family of it is visible here"
    )
    types = _spell_types(call)
    if call.opcode.families:
        return NO_VARIANT.at(call.span, opcode=call.opcode.name, types=types, hint=hint)
    followed = families_of(call.opcode)[0].partition(".")[0]
    problem = f"no variant of {followed}, whose types it follows, takes {types}"
    return KEPT_TYPE.at(call.span, opcode=call.opcode.name, problem=problem, hint=hint)


def _wrong_accum(call: TaskCall, variant: FamilyVariant) -> Diagnostic:
    found, place = call.value("accum_type"), call.place_of("accum_type")
    return ACCUM_TYPE.at(place, found=found, family=variant.id.family, wanted=variant.accum)


def _not_offered(
    call: TaskCall, variant: FamilyVariant, variants: Sequence[FamilyVariant], device: ResolvedDevice
) -> Diagnostic:
    offered = [item for item in variants if _offers(device, item)]
    hint = f"device '{device.name}' has no variant of {call.opcode.name}"
    if offered:
        hint = f"the nearest that it has is {_nearest(call, offered)}"
    return DEVICE_VARIANT.at(
        call.span,
        opcode=call.opcode.name,
        types=_spell_types(call),
        variant=variant.id,
        device=device.name,
        hint=hint,
    )


def _offers(device: ResolvedDevice, variant: FamilyVariant) -> bool:
    return variant.id in device.mandatory or variant.id in device.extended


def _nearest(call: TaskCall, variants: Sequence[FamilyVariant]) -> str:
    """The variant with the fewest differing operands, with its operand types."""
    variant = min(variants, key=lambda item: _count_differences(call, item))
    words = [f"{name} {kind}" for name, kind in variant.operands.items() if kind != ABSENT]
    words += [f"no {name}" for name, kind in variant.operands.items() if kind == ABSENT]
    return f"{variant.id}: {', '.join(words)}"


def _spell_types(call: TaskCall, most: int = 8) -> str:
    """The operand types of an instance, `A i8, B f16, Y f16`; a long list is cut."""
    words = [f"{name} {kind.elem}" for name, kind in {**call.inputs, **call.outputs}.items()]
    return ", ".join(words if len(words) <= most else [*words[: most - 1], "…", words[-1]])


# --- quantisation -------------------------------------------------------------------------------------------


def _check_quant(call: TaskCall, variant: FamilyVariant) -> Iterator[Diagnostic]:
    """Operands carry quant where the family requires it, and only where it means something."""
    opcode, types = call.opcode.name, {**call.inputs, **call.outputs}
    for name in _requiring(call, variant):
        if types[name].quant is None:
            yield MISSING_QUANT.at(call.places[name], operand=name, opcode=opcode)
    forbidden = variant.quant[:1] == (ABSENT,)
    for name, kind in types.items():
        if kind.quant is not None and (forbidden or not _is_integer(kind.elem)):
            yield EXTRA_QUANT.at(call.places[name], operand=name, opcode=opcode, family=variant.id)


def _requiring(call: TaskCall, variant: FamilyVariant) -> list[str]:
    """The operands that need quant: those named behind `on`, else every input that is not optional."""
    if variant.quant[:1] != ("required",):
        return []
    named = variant.quant[2:]
    if not named:
        return [name for name in call.inputs if not spec_of(call.opcode.inputs, name).optional]
    found = [name for name in (*call.inputs, *call.outputs) if name.partition("[")[0] in named]
    found += call.inputs if set(named) & set(GENERIC_INPUTS) else ()
    return [*found, *(call.outputs if set(named) & set(GENERIC_OUTPUTS) else ())]


def _weigh_quant(call: TaskCall, variant: FamilyVariant) -> Iterator[Diagnostic]:
    """Warnings where a product of quantised operands is legal but rarely meant."""
    if variant.quant != ("required",) or "accum_type" not in call.opcode.attributes:
        return
    for name, kind in call.outputs.items():
        if kind.quant is None:
            yield OUTPUT_QUANT.at(call.places[name], opcode=call.opcode.name)
    weight, *bias = list(call.inputs)[1:]
    if (
        bias
        and call.inputs[bias[0]].quant is None
        and scaled_along_reduction(call.opcode.name, call.inputs[weight])
    ):
        yield BIAS_QUANT.at(call.places[bias[0]], opcode=call.opcode.name)


# --- beyond the families ------------------------------------------------------------------------------------


def _check_indices(call: TaskCall) -> Iterator[Diagnostic]:
    """Gather looks up integers."""
    indices = call.inputs.get("indices")
    if indices is not None and not _is_integer(indices.elem):
        problem = f"indices are {indices.elem}; they must be integers"
        yield KEPT_TYPE.at(call.places["indices"], opcode=call.opcode.name, problem=problem)


def _check_view(call: TaskCall) -> Iterator[Diagnostic]:
    """View tasks move integers as they are stored; only the axis of a descriptor may move along with them."""
    if "view" not in call.opcode.families:
        return
    given = {name: kind.quant for name, kind in call.inputs.items() if isinstance(kind.quant, PerTensor)}
    for name, kind in call.outputs.items():
        for other, quant in given.items():
            if isinstance(kind.quant, PerTensor) and kind.quant != quant:
                yield VIEW_QUANT.at(call.places[name], opcode=call.opcode.name, input=other, output=name)


def _check_function(call: TaskCall) -> Iterator[Diagnostic]:
    """A function of real numbers needs integers that stand for real numbers, at both ends."""
    if call.opcode.name not in FUNCTIONS:
        return
    for name, kind in {**call.inputs, **call.outputs}.items():
        if _is_integer(kind.elem) and kind.quant is None:
            yield INTEGER_FUNCTION.at(call.places[name], opcode=call.opcode.name, elem=kind.elem)


def _check_kept(call: TaskCall) -> Iterator[Diagnostic]:
    """Reductions keep the element type; argmax and argmin give an index."""
    check = _KEPT.get(call.opcode.name)
    if check is None:
        return
    (source, target), name = (call.inputs["X"], call.outputs["Y"]), call.opcode.name
    problem = check(source.elem, target.elem)
    if problem:
        yield KEPT_TYPE.at(call.places["Y"], opcode=name, problem=problem)
    elif source.quant is not None and not _is_integer(source.elem):
        yield EXTRA_QUANT.at(call.places["X"], operand="X", opcode=name, family=source.elem)


def _kept(source: str, target: str) -> str:
    return "" if source == target else f"Y is {target} but X is {source}; the element type is kept"


def _index(_source: str, target: str) -> str:
    return "" if target in INDEX_TYPES else f"Y is {target}; an index is {' or '.join(INDEX_TYPES)}"


def _is_integer(elem: str) -> bool:
    element = find_in("nem", elem)
    return element is not None and element.is_integer


_KEPT: Mapping[str, Callable[[str, str], str]] = MappingProxyType(
    {
        **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min"), _kept),
        **dict.fromkeys(("argmax", "argmin"), _index),
    }
)


# --- one resolved task against its opcode: operands, attribute values, shapes, element types, device --------


def check_task(
    task: Task, opcode: Opcode, variants: Sequence[FamilyVariant], device: ResolvedDevice | None
) -> tuple[list[Diagnostic], str]:
    """The findings of one task, and the type variant that it matches ("" where none applies).

    `variants` are those of `families_of(opcode)`; without a device only legality is judged.
    """
    findings = list(_check_status(task, opcode))
    wrong = list(check_counts(task, opcode))
    if wrong or opcode.name in MOVES:
        return findings + (wrong or list(_check_move(task))), ""
    call, untyped = read_call(task, opcode)
    if call is None:
        return findings + untyped, ""
    types, variant = check_types(call, variants, device)
    return [*findings, *_check_geometry(call), *types], variant


def _check_move(task: Task) -> Iterator[Diagnostic]:
    """The source of a transfer or store fits into its destination, and typed ends agree."""
    source, target = task.inputs[0], task.outputs[0]
    place = place_of_operand(task.node.outputs, 0, task.node.opcode.span)
    if target.extent < source.extent:
        yield MOVE_SIZE.at(place, opcode=task.opcode, source=source.extent, target=target.extent)
    elif source.type and target.type and not _same_elements(source.type, target.type):
        yield MOVE_TYPE.at(place, opcode=task.opcode, source=source.type, target=target.type)


def _same_elements(source: TensorType, target: TensorType) -> bool:
    return source.elem == target.elem and element_count(source.shape) == element_count(target.shape)


def _check_status(task: Task, opcode: Opcode) -> Iterator[Diagnostic]:
    """Future opcodes are legal; they are pointed out."""
    span = task.node.opcode.span
    if opcode.status == "future":
        yield FUTURE_OPCODE.at(span, opcode=opcode.name)


def _check_geometry(call: TaskCall) -> list[Diagnostic]:
    """Ranks and layouts, then attribute values, then shapes: the first that is wrong silences the rest."""
    return (
        [*check_ranks(call), *check_layouts(call)] or list(check_attributes(call)) or list(check_shapes(call))
    )


@dataclass(frozen=True, slots=True)
class Checked:
    """A document with what was found in it; `plan` is None unless it holds a program that could be read whole."""

    library: DeviceLibrary
    findings: tuple[Diagnostic, ...]
    plan: Plan | None = None
    complete: bool = False


def check(
    source: Source,
    path: Path | None = None,
    device: str | None = None,
    limits: Limits = DEFAULT,
    root: Path | None = None,
) -> Checked:
    """Check a document; `device` (a shipped name or a file) replaces the target the program names.

    Includes stay below `root`, by default the folder of the document.
    """
    library = load(source, path, limits, root, device)
    findings = [*library.findings, *check_devices(library)]
    if not library.document.is_program:
        return Checked(library, tuple(sort_findings(findings)))
    target, problems = pick_target(library)
    resolution = resolve(library.document, source, target)
    findings += [*problems, *resolution.findings]
    body = _check_types(resolution.plan.body, _Types(library, target), findings)
    plan = replace(resolution.plan, body=body)
    return Checked(library, tuple(sort_findings(findings)), plan, resolution.complete)


class _Types:
    """The family variants of each opcode, looked up once."""

    def __init__(self, library: DeviceLibrary, device: ResolvedDevice | None) -> None:
        self.device = device
        self._library = library
        self._variants: dict[str, tuple[FamilyVariant, ...]] = {}

    def variants(self, opcode: str) -> tuple[FamilyVariant, ...]:
        """All variants of the opcode's families that are visible here."""
        if opcode not in self._variants:
            families = families_of(load_registry()[opcode])
            self._variants[opcode] = variants_of(self._library.variants, families)
        return self._variants[opcode]


def _check_types(body: tuple[Item, ...], types: _Types, findings: list[Diagnostic]) -> tuple[Item, ...]:
    """The same items, each task with the type variant it matched."""
    items: list[Item] = []
    for item in body:
        if isinstance(item, Loop):
            items.append(replace(item, body=_check_types(item.body, types, findings)))
        elif isinstance(item, Task):
            found, variant = check_task(
                item, load_registry()[item.opcode], types.variants(item.opcode), types.device
            )
            findings += found
            items.append(replace(item, variant=variant) if variant else item)
        else:
            items.append(item)
    return tuple(items)
