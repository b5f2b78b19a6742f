"""Weight mappings: E010, and what a checkpoint must hold: E110 to E117, W110 to W114."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, WARNING, Rule

UNKNOWN_PATH = Rule(
    "E010", "8.2 Weight Mapping Syntax", "'{model}' has no parameter '{path}'", hint="{repair}"
)
FUNCTION = UNKNOWN_PATH.also("there is no transform function '{name}'", hint="{repair}")
TWICE = UNKNOWN_PATH.also("'{path}' is mapped twice", hint="keep one of the entries")
USED_TWICE = UNKNOWN_PATH.also(
    "the checkpoint tensor '{name}' is used for '{first}' and for '{second}'",
    hint="tie one to the other with tied_to",
)
PLACEHOLDER = UNKNOWN_PATH.also("the placeholder '{name}' stands on one side only")
COVERING = UNKNOWN_PATH.also("the ranges of '{path}' {why}, its dimension {dim} has {extent}")
RANGES = UNKNOWN_PATH.also("the ranges of '{path}' {why}")
FUSED_SHAPE = UNKNOWN_PATH.also("'{path}' has shape {wanted}, its sources make {found}{values}")
NO_ELEMENT = UNKNOWN_PATH.also("there is no '{name}[{index}]': '{name}' has {count} elements")
NO_DIMENSION = UNKNOWN_PATH.also("'{path}' of shape {shape} has no dimension {dim}")
FUSED_DTYPE = UNKNOWN_PATH.also(
    "'{path}' is fused from {first} and {second}", hint="the sources of a fused tensor have one type"
)
UNMAPPED = UNKNOWN_PATH.also("'{path}' is mapped to no checkpoint tensor", hint="add it to hf_mapping:")
PARAMETER = UNKNOWN_PATH.also("param_mapping: there is no config parameter '{name}'", hint="{repair}")
KEY = UNKNOWN_PATH.also(
    "param_mapping: '{name}' is mapped to no key of config.json",
    hint="write a key, a path of keys as in a.b, or first_of(a.b, c)",
)
FUNCTION_SHAPE = UNKNOWN_PATH.also("'{name}' of shape {found} cannot be given to {function}: {why}")
FUNCTION_STACK = UNKNOWN_PATH.also(
    "stack has nothing to count in '{name}'",
    hint="write a placeholder that does not stand on the left side",
)
SLICES = UNKNOWN_PATH.also("{count} of the {extent} slices of '{path}' are mapped")
SIZES = UNKNOWN_PATH.also(
    "where to split '{path}' is not known without the checkpoint that it came from",
    hint="say it with split(…) in hf_export:",
)
NO_NUMBERS = UNKNOWN_PATH.also("there are no numbers for '{path}'")
NUMBERS_SHAPE = UNKNOWN_PATH.also("'{path}' has shape {wanted}, the numbers given for it have {found}")
NUMBERS_DTYPE = UNKNOWN_PATH.also("the numbers given for '{path}' are {found}, which do not become {wanted}")
ABSENT = Rule(
    "E110", "8.2 Weight Mapping Syntax", "the checkpoint has no tensor '{name}' for '{path}'", hint="{repair}"
)
UNUSED = Rule(
    "E111",
    "8.2 Weight Mapping Syntax",
    "the checkpoint tensor '{name}' belongs to no parameter of '{model}'",
    hint="{repair}",
)
CHECKPOINT_SHAPE = Rule(
    "E112",
    "8.2 Weight Mapping Syntax",
    "the checkpoint tensor '{name}' has shape {found}, '{path}' needs {wanted}{values}",
)
CHECKPOINT_DTYPE = Rule(
    "E113",
    "8.2 Weight Mapping Syntax",
    "the checkpoint tensor '{name}' is {found}, which does not become {wanted}",
)
ARCHITECTURE = Rule(
    "E114",
    "8.1 HuggingFace Config Mapping",
    "no model for the architecture {name}; the folder holds {there}",
    hint="{repair}",
)
CONFIG = Rule(
    "E115",
    "8.1 HuggingFace Config Mapping",
    "'{key}' in {file} is {found}, {wanted} is needed",
    hint="{repair}",
)
FOLDER = Rule("E116", "8.1 HuggingFace Config Mapping", "{file}: {why}", hint="{repair}")
UNTIED = Rule(
    "E117",
    "8.2 Weight Mapping Syntax",
    "the checkpoint tensor '{name}' holds other numbers than '{other}', but '{path}' is tied to '{tied}'",
    hint="set tie_word_embeddings to false in config.json to read it; --unused {pattern} keeps the tie, and warns",
)
UNFAITHFUL = Rule(
    "E126",
    "8.1 HuggingFace Config Mapping",
    "the folder would say that '{model}' is '{other}' of the library, which loses something of it: {why}",
    hint="say it in param_mapping:, or name an architecture of your own: then the .module travels in the folder",
)
CONVERTED = Rule(
    "W110",
    "8.2 Weight Mapping Syntax",
    "{count} checkpoint tensors are converted from {found} to {wanted}",
    WARNING,
)
IGNORED = Rule("W111", "8.1 HuggingFace Config Mapping", "{what} is ignored: {why}", NOTE)
DROPPED = Rule(
    "W112",
    "8.2 Weight Mapping Syntax",
    "{names} of the checkpoint {stays} unused, and the numbers may be others: {why}",
    WARNING,
    hint="leave --unused out to see what config.json would have to say",
)
TRAVELS = Rule(
    "W113",
    "8.1 HuggingFace Config Mapping",
    "the folder is read as '{model}' of its own {file}{over}",
    NOTE,
    hint="--architecture F.module names another",
)
UNREAD = Rule(
    "W114",
    "8.1 HuggingFace Config Mapping",
    "'{model}' has {lack}, so {unread}",
    WARNING,
    hint="add it to hf_config: of the model, or give the values with --set",
)
THROUGH_TORCH = Rule(
    "W118",
    "8.1 HuggingFace Config Mapping",
    "the folder is read by transformers and exported by PyTorch: {why}",
    WARNING,
    hint="--via module refuses it instead",
)
