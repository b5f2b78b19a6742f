"""Annotations and patterns: E008, E013, E025, E104, E118, W116."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, WARNING, Rule

UNKNOWN = Rule("E008", "7 Annotations", "there is no annotation '@{name}'", hint="{repair}")
ARGUMENT = UNKNOWN.also("'@{name}' has no argument '{argument}'", hint="{repair}")
VALUE = UNKNOWN.also("'{argument}' of '@{name}' is {found}, {wanted} is needed", hint="{repair}")
MISSING = UNKNOWN.also("'@{name}' needs '{argument}'", hint="{repair}")
TARGET = UNKNOWN.also("'@{name}' stands on {found}, it belongs on {wanted}")
CLASH = UNKNOWN.also("'@{name}' and '@{other}' exclude each other")
TWICE = UNKNOWN.also("'@{name}' stands twice in one place", hint="keep one of them")
RECIPE_FIELD = UNKNOWN.also("a recipe has no field '{field}'", hint="{repair}")
RECIPE_VALUE = UNKNOWN.also(
    "'{field}' of the recipe '{name}' is {found}, {wanted} is needed", hint="{repair}"
)
FUSION = Rule("E013", "7.5.1 @fuse", "the pattern '{name}' does not fit: {why}", hint="{repair}")
RESIDUAL = FUSION.also("there is no residual pattern '{name}'", hint="{repair}")
STAGES = Rule(
    "E025",
    "7.6.0 Distributed Execution Model",
    "the @checkpoint region holds operations of the stages {stages}",
    hint="end the region at the border of the stages",
)
SETTING = Rule("E124", "9.8.1 Autograd Oracle Check", "'{kind}:' has no field '{field}'", hint="{repair}")
SETTING_VALUE = SETTING.also("'{field}' of '{kind}:' is {found}, {wanted} is needed")
DEVICES = Rule(
    "E125",
    "7.6.0 Distributed Execution Model",
    "'@{name}' does not fit the devices of this file: {why}",
    hint="change the annotation, or the settings in topology: and groups:",
)
UNUSED_SIZE = Rule(
    "W117",
    "9.8.1 Autograd Oracle Check",
    "'{name}' in shapes: is no dimension and no config parameter of this file",
    WARNING,
    hint="{repair}",
)
ASSERTION = Rule(
    "E104",
    "7.7.1 @assert",
    "the assertion on '{name}' is false{message}",
    hint="look at the tensor with @probe, or switch the assertion off with enabled=false",
)
KERNEL = Rule(
    "E118",
    "7.5.3 @kernel",
    "'@kernel' asks for '{name}' and for nothing else, and no backend here has a kernel of that name",
    hint="leave fallback=false out: the operation is then computed as it is defined",
)
INERT = Rule(
    "W116",
    "7 Annotations",
    "{what} on {place} is kept for targets that obey it: a processor and the reference do not",
    NOTE,
)
SILENT = INERT.also("{what} says nothing beside {said}", hint="leave it out")
