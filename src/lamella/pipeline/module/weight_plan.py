"""Which tensors of a checkpoint the parameters of a model are; nothing of their numbers is read."""

from __future__ import annotations

from collections.abc import Iterator

from lamella.base.diagnostic import LamellaError, errors
from lamella.base.errors import InputError
from lamella.bridge.hf_to_module import Folder, ImportPlan, MappingContext, Weight, plan_import
from lamella.bridge.hf_to_module.config import text_of
from lamella.bridge.hf_to_module.mapping import NamePatterns
from lamella.lang.module.instantiate import Instance, walk
from lamella.lang.module.instantiate.evaluate import evaluate
from lamella.lang.module.nodes import Expr

COMPUTED = "fp32"
"""The element type in which weights that say none are computed with."""
PREFIX = "base_model_prefix"
"""The field of `hf_config:` that names a first part of tensor names which some checkpoints leave out."""


def plan_weights(
    instance: Instance, folder: Folder, unused: tuple[str, ...] = (), element: str = COMPUTED
) -> ImportPlan:
    """Where each weight of a model comes from in a folder; LamellaError where they do not match.

    Weights that say no element type of their own come in `element`, or without one as the folder has them.
    """
    module = instance.module
    if module.hf_mapping is None:
        hint = "add hf_mapping: to the model"
        raise InputError(f"'{module.name}' does not say which tensors its parameters are", hint=hint)
    for pattern in unused:
        if not any(name in NamePatterns((pattern,)) for name in folder.checkpoint.tensors):
            hint = "`lamella show FOLDER` lists its tensors"
            raise InputError(f"no tensor of the checkpoint is called '{pattern[:80]}' (--unused)", hint=hint)
    plan = plan_import(
        weights_of(instance, element), module.hf_mapping, folder.checkpoint, context_of(instance), unused
    )
    if errors(plan.findings):
        raise LamellaError(errors(plan.findings))
    return plan


def context_of(instance: Instance) -> MappingContext:
    """What the mappings of a model may ask of it."""

    def value(expr: Expr) -> int | bool:
        found = evaluate(expr, instance.values)
        return found if isinstance(found, int) else 0

    head = instance.values.get("head_dim")
    width = head.value if head is not None and isinstance(head.value, int) else 0
    prefix = text_of(instance.module.hf_config or (), PREFIX)
    return MappingContext(instance.module.name, value, dict(switched_off(instance)), prefix, width)


def weights_of(instance: Instance, element: str = "") -> list[Weight]:
    """Every parameter of a model with its place; `element` is the type of those that say none."""
    return [
        Weight(path, slot.dims, slot.dtype or element, slot.optional, slot.tied, slot.span)
        for path, slot in walk(instance)
    ]


def switched_off(instance: Instance, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The parameters that exist under other values, each with the condition that is false.

    Indices are left empty: `blocks[].attention.qkv_bias`.
    """
    yield from ((f"{prefix}{name}", why) for name, why in instance.switched_off.items())
    for name, child in instance.children.items():
        if isinstance(child, Instance):
            yield from switched_off(child, f"{prefix}{name}.")
        else:
            for item in dict.fromkeys(child):
                yield from switched_off(item, f"{prefix}{name}[].")
