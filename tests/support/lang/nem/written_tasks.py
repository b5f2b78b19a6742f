"""Tasks written by hand: opcode, operand types and attributes in, a resolved task with places out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lamella.base.diagnostic import Diagnostic
from lamella.base.quant import PerTensor, Quant
from lamella.base.shape import row_major_strides
from lamella.base.source import Source, Span
from lamella.lang.nem import nodes
from lamella.lang.nem.check import check_task, families_of
from lamella.lang.nem.device import ResolvedDevice
from lamella.lang.nem.documents import baseline
from lamella.lang.nem.families import Variants, variants_of
from lamella.lang.nem.registry import load_registry
from lamella.lang.nem.resolved import AttributeValue, Buffer, Index, Region, Task, TensorType

QUANT = PerTensor(0.5, 0)
SHAPE_CODES = ("NEM087", "NEM088", "NEM089", "NEM090", "NEM091")


def tensor(
    elem: str, shape: Sequence[int], layout: str | None = "ROWS", quant: Quant | None = None
) -> TensorType:
    """A dense tensor type."""
    return TensorType(elem, tuple(shape), layout, row_major_strides(shape), quant)


def write_task(
    opcode: str,
    inputs: Sequence[TensorType | None],
    outputs: Sequence[TensorType | None],
    attributes: Mapping[str, AttributeValue] | None = None,
) -> Task:
    """A task whose text is one line `opcode in0 … out0 … name=value …`, each word a place of its own."""
    values = dict(attributes or {})
    operands = [f"in{i}" for i in range(len(inputs))] + [f"out{i}" for i in range(len(outputs))]
    spans = _spans([opcode, *operands, *(f"{name}={value!r}" for name, value in values.items())])
    first = nodes.Name(opcode, next(spans))
    written = [nodes.Operand(nodes.Name(name), span=next(spans)) for name in operands]
    named = [nodes.Attribute(nodes.Name(name), nodes.Integer(0), next(spans)) for name in values]
    ins, outs = tuple(written[: len(inputs)]), tuple(written[len(inputs) :])
    node = nodes.Task(None, first, "sync", ins, outs, tuple(named), span=first.span)
    regions = [_region(kind) for kind in (*inputs, *outputs)]
    here, there = tuple(regions[: len(inputs)]), tuple(regions[len(inputs) :])
    return Task(0, "", opcode, True, here, there, values, (), None, None, node)


def judge_task(
    task: Task, device: ResolvedDevice | None = None, variants: Variants | None = None
) -> tuple[list[Diagnostic], str]:
    """The findings of a task and its variant, under the type families of the baseline or others."""
    opcode = load_registry()[task.opcode]
    visible = baseline().variants if variants is None else variants
    return check_task(task, opcode, variants_of(visible, families_of(opcode)), device)


def shape_findings(task: Task) -> list[Diagnostic]:
    """The findings of a task about ranks, layouts, attribute values and shapes."""
    findings, _ = judge_task(task)
    return [item for item in findings if item.code in SHAPE_CODES]


def codes(found: tuple[list[Diagnostic], str]) -> list[str]:
    """The codes of the findings that `judge_task` gives."""
    return [item.code for item in found[0]]


def codes_for(
    opcode: str,
    inputs: Sequence[tuple[int, ...]],
    outputs: Sequence[tuple[int, ...]],
    attributes: Mapping[str, AttributeValue],
) -> list[str]:
    """The codes of the shape findings of a task on f16 tensors."""
    ins, outs = ([tensor("f16", shape, None) for shape in side] for side in (inputs, outputs))
    return [item.code for item in shape_findings(write_task(opcode, ins, outs, attributes))]


def _spans(words: Sequence[str]) -> Iterator[Span]:
    source, start = Source("task.nem", " ".join(words)), 0
    for word in words:
        yield Span(source, start, start + len(word))
        start += len(word) + 1


def _region(kind: TensorType | None) -> Region:
    buffer = Buffer("M", "L2", 0, 1 << 40, 1, False, nodes.Buffer(nodes.Name("M"), "L2", None, None))
    return Region("", buffer, Index(0), 64, kind)
