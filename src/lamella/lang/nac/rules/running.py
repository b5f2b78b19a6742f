"""What goes wrong while the virtual machine runs a file: NAC235 to NAC239."""

from __future__ import annotations

from lamella.base.diagnostic import Rule

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
