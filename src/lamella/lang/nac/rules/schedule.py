"""Rules of the memory schedule (NAC100 to NAC129) and of runs on the virtual machine (NAC235 to NAC239)."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, WARNING, Rule

# --- what goes wrong while the virtual machine runs a file: NAC235 to NAC239 --------------------------------


RESULT_GONE = Rule(
    "NAC235",
    "4.5 Actions",
    "argument {argument} of instruction {index} is the result of instruction {source}, which {reason}",
    hint="save a result that later instructions use, and free it at the tick after the last of them",
)
INPUT_NAME = Rule(
    "NAC236",
    "7.1 INPUT",
    "there is no input '{name}'; the inputs of this file are {names}",
    hint="`lamella show` lists the inputs of a file",
)
INPUT_SHAPE = Rule(
    "NAC237",
    "7.1 INPUT",
    "input '{name}' is {type}; an array of shape {found} is given",
    hint="give an array of the shape that the instructions are made for",
)
INPUT_ELEMENTS = Rule(
    "NAC238",
    "7.1 INPUT",
    "input '{name}' has elements of {element}; {found} is given",
    hint="reals are rounded to the type of the input, integers must fit, and the two do not mix",
)
PARAMETER_MISFIT = Rule(
    "NAC239",
    "8.1 Loading",
    "instruction {index} loads {type}, but the weights of parameter {id} are {found}",
    hint="weights keep the shape and the kind of elements that the instructions are made for",
)


# --- the memory schedule: NAC100 to NAC120 ------------------------------------------------------------------


# Ticks and targets
TICK_ORDER = Rule(
    "NAC100",
    "4.3 Record",
    "tick {tick} follows tick {before}",
    hint="ticks ascend, and all commands of one tick stand together",
)
TICK_RANGE = Rule(
    "NAC101",
    "4.3 Record",
    "tick {tick} belongs to no instruction; there are {count}",
    hint="ticks are places of instructions, from 0",
)
UNKNOWN_ACTION = Rule(
    "NAC102",
    "4.5 Actions",
    "action {action} is not a memory action of this file",
    hint="10 SAVE_RESULT, 20 FREE, 30 FORWARD, 40 PRELOAD; with a training graph also 15 and 25",
)
TARGET_RANGE = Rule(
    "NAC103",
    "4.5 Actions",
    "{action} of instruction {target}, which does not exist; there are {count}",
    hint="targets are places of instructions, from 0",
)

# SAVE_RESULT and FORWARD
SAVE_ELSEWHERE = Rule(
    "NAC104",
    "4.5 Actions",
    "{action} at tick {tick} names instruction {target}",
    hint="only the result of the tick's own instruction can be saved",
)
FORWARD_TARGET = Rule(
    "NAC105",
    "4.5 Actions",
    "FORWARD at tick {tick} names instruction {target}, which does not use the result",
    hint="it names the one instruction that uses the result",
)
FORWARD_SHARED = Rule(
    "NAC106",
    "4.5 Actions",
    "FORWARD at tick {tick} to instruction {target}; instruction {other} uses the result too",
    hint="save a result that several instructions use",
)

# PRELOAD
PRELOAD_TARGET = Rule(
    "NAC107",
    "4.5 Actions",
    "PRELOAD of instruction {target}, which does not load a parameter",
    hint="it names an <INPUT> of variant 1",
)
PRELOAD_LATE = Rule(
    "NAC108",
    "4.5 Actions",
    "PRELOAD at tick {tick} of instruction {target}, which is executed by then",
    hint="preload at a tick before the load",
)
PRELOAD_TWICE = Rule(
    "NAC109",
    "4.5 Actions",
    "instruction {target} is preloaded a second time",
    hint="one PRELOAD is enough",
)

# FREE
FREE_EARLY = Rule(
    "NAC110",
    "4.5 Actions",
    "FREE at tick {tick} of instruction {target}, which is not executed yet",
    hint="free at the tick after the last use",
)
FREE_USED = Rule(
    "NAC111",
    "4.5 Actions",
    "FREE at tick {tick} of instruction {target}, which instruction {user} still uses",
    hint="free at the tick after the last use",
)
FREE_AT_USE = Rule(
    "NAC112",
    "4.5 Actions",
    "FREE at tick {tick} of instruction {target}, which instruction {tick} uses",
    WARNING,
    "commands run beside the instruction of their tick: free at the tick after the last use",
)
FREE_TWICE = Rule(
    "NAC113",
    "4.5 Actions",
    "instruction {target} is freed a second time",
    hint="one FREE is enough",
)
FREE_OUTPUT = Rule(
    "NAC114",
    "4.5 Actions",
    "FREE at tick {tick} of instruction {target}, which is an output",
    hint="outputs belong to the caller",
)
FREE_UNSAVED = Rule(
    "NAC115",
    "4.5 Actions",
    "FREE at tick {tick} of instruction {target}, whose result was not saved",
    hint="free what was saved, preloaded or given as an input; a forwarded result needs no FREE",
)

# What is said twice, or not at all
COMMAND_TWICE = Rule(
    "NAC116",
    "4.3 Record",
    "{action} of instruction {target} stands twice at tick {tick}",
    WARNING,
    "one of them is enough",
)
SAVED_AND_FORWARDED = Rule(
    "NAC117",
    "4.5 Actions",
    "the result of instruction {tick} is both saved and forwarded",
    WARNING,
    "a result with one user is forwarded, any other is saved",
)
NEVER_KEPT = Rule(
    "NAC118",
    "4.5 Actions",
    "instruction {user} uses the result of instruction {index}, which is neither saved nor forwarded",
    WARNING,
    "forward it where it has one user, save it otherwise",
)
NEVER_FREED = Rule(
    "NAC119",
    "4.5 Actions",
    "instruction {index} is never freed; nothing uses it after instruction {user}",
    NOTE,
    "free it at the tick after its last use",
)
NEVER_PRELOADED = Rule(
    "NAC120",
    "4.5 Actions",
    "parameter load {index} is never preloaded",
    NOTE,
    "preload it at a tick before",
)
