"""Specialisation of declarations by values: constant expressions, configs, inheritance, parameters."""

from lamella.lang.module.instantiate.bind import find_presets, read_preset
from lamella.lang.module.instantiate.build import instantiate
from lamella.lang.module.instantiate.nodes import (
    BuiltConstant,
    Instance,
    Instantiated,
    Known,
    TensorSlot,
    Value,
)
from lamella.lang.module.instantiate.tree import children, children_at, slot_at, walk

__all__ = [
    "BuiltConstant",
    "Instance",
    "Instantiated",
    "Known",
    "TensorSlot",
    "Value",
    "children",
    "children_at",
    "find_presets",
    "instantiate",
    "read_preset",
    "slot_at",
    "walk",
]
