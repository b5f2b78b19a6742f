"""Composed graphs, dynamic shapes and the run: SKR300 to SKR339, SKR386 to SKR388 and SKR391."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, WARNING, Rule

NO_GRAPH = Rule(
    "SKR300",
    "2.15 Modules and imports",
    "there is no graph '{name}' here; the graphs are {graphs}",
)
PATTERN_LENGTH = Rule(
    "SKR301",
    "2.10 Composing operators",
    "the list on the left takes {wanted} tensors but the right side gives {found}",
)
RESULT_COUNT = Rule(
    "SKR302",
    "2.10 Composing operators",
    "{wanted} results are named but '{what}' gives {found}",
    hint="leave a result out with '~'",
)
OPEN_PACK = "only the run tells how many there are: write ..(~|most)"
RESULT_TYPE = Rule(
    "SKR303",
    "2.10 Composing operators",
    "'{name}' is said to be {declared} but is {found}",
)
OUTPUT_SHAPE = Rule(
    "SKR304",
    "2.10 Composing operators",
    "output '{name}' of '{operator}' is declared as {declared} but composed as {found}",
)
BRANCHES_DIFFER = Rule(
    "SKR305",
    "2.10.1 Control flow",
    "result {number} is {first} in one branch and {second} in another",
    hint="both branches give the same number of tensors, of the same type and rank",
)
CONDITION = Rule(
    "SKR306",
    "2.10.1 Control flow",
    "the condition is {found}; it must be one bool",
)
CARRIED = Rule(
    "SKR307",
    "2.10.1 Control flow",
    "'{name}' is carried as {before} but the loop's body gives {after}",
    hint="say the type behind the name, as in 'with {name}: real[n] = 0.0', or make the body keep it",
)
SCANS_DIFFER = Rule(
    "SKR308",
    "2.10.1 Control flow",
    "the scanned packs have {lengths} items; a loop scans packs of one length",
)
LOOP_COUNT = Rule(
    "SKR309",
    "2.10.1 Control flow",
    "the loop's count is {found}; it must be {wanted}",
)
LOOP_WITHOUT_END = Rule(
    "SKR310",
    "2.10.1 Control flow",
    "nothing ends this loop",
    hint="scan a pack with 'for', give a count as in 'do..(n)', or a condition with 'while'",
)
UNKNOWN_UNROLL = Rule(
    "SKR311",
    "2.10.1 Control flow",
    "the number of steps to unroll is {found}; it must be known before the run",
    hint="use 'do' where only the run can tell",
)
LOOP_RESULT = Rule(
    "SKR312",
    "2.10.1 Control flow",
    "the loop cannot give '{name}': {reason}",
)
WRONG_VALUE = Rule(
    "SKR313",
    "2.10 Composing operators",
    "{what} is {found} where {wanted} is needed",
)
TOO_DEEP = Rule(
    "SKR314",
    "3 Graph composition",
    "operators, blocks or regions are nested more than {limit} levels deep here",
    hint="an operator that composes itself must stop at some attribute or shape; max_depth sets the limit",
)
TOO_MANY = Rule(
    "SKR315",
    "3 Graph composition",
    "the graph composes to more than {limit} operations",
    hint="unroll less, use 'do', or raise max_operations",
)
TAKEN_NAME = Rule(
    "SKR316",
    "2.10 Composing operators",
    "there are two tensors '{name}' to store or to set",
    hint="label the call, as in 'label: {operator}(…)'",
)
UPDATE_IN_FLOW = Rule(
    "SKR317",
    "2.11 Updating variables",
    "'{operator}' updates its variables, which only happens once per run, and not in a branch or loop",
    hint="unroll the loop or decide the branch before the run",
)
UPDATE_SHAPE = Rule(
    "SKR318",
    "2.11 Updating variables",
    "variable '{name}' is {declared} but is updated with {found}",
)
NO_TENSOR_TO_QUANTIZE = Rule(
    "SKR319",
    "2.14 Quantization",
    "there is no tensor '{name}' to quantise",
)

INTRINSIC = Rule(
    "SKR391",
    "3 Graph composition",
    "'{operator}' has no formula and is composed of nothing, so that no backend here can run it",
    WARNING,
    hint="give it a '@lower' or a '@compose' block",
)

# --- the run: found by the backend that executes a graph ----------------------------------------------------

INDEX_OUTSIDE = Rule(
    "SKR320",
    "2.12 Defining lower level computation",
    "the formula of '{operator}' uses index {index} of '{tensor}', whose extent in dimension {dimension} is {extent}",
    hint="guard the index as in '|i|', or check the values that indices are computed from",
)
ITEM_OUTSIDE = Rule(
    "SKR321",
    "2.12 Defining lower level computation",
    "the formula of '{operator}' picks item {index} of {what}, which has {count} items",
)
ZERO_DIVISOR = Rule(
    "SKR322",
    "2.4 Expressions",
    "the formula of '{operator}' divides an integer by zero with '{function}'",
    hint="test the divisor first, as in 'b == 0 ? 0 : a / b'",
)
FORMULA_TOO_LONG = Rule(
    "SKR323",
    "2.12 Defining lower level computation",
    "the formula of '{operator}' takes {steps} steps; the limit is {limit}",
)
INTEGER_TOO_WIDE = Rule(
    "SKR324",
    "2.4 Expressions",
    "the formula of '{operator}' contains an integer of {bits} bits; the run computes with 64",
)
TOO_MUCH_MEMORY = Rule(
    "SKR325",
    "3 Graph composition",
    "'{operator}' needs {needed} bytes of memory; the limit is {limit}",
    hint="raise it with --limit max_total_bytes=N",
)
NO_MEANING = Rule(
    "SKR326",
    "3 Graph composition",
    "'{operator}' cannot run: {reason}",
)
CHECK_FAILED = Rule(
    "SKR327",
    "2.8 Assertions",
    "{message}; in this run {values}",
)
EXTENT_BOUND = Rule(
    "SKR328",
    "3 Graph composition",
    "{what} is {size}, so that '{symbol}' is {value}; it lies between {low} and {high}",
)
EXTENT_DIFFERS = Rule(
    "SKR329",
    "3 Graph composition",
    "{what} is {size}; it must be {expected}{reason}",
)
NEEDS_CONFIG = Rule(
    "SKR330",
    "3 Graph composition",
    "graph '{name}' needs a value for {missing}",
    hint="give it with {words}",
)
NOT_COMPOSED = Rule(
    "SKR331",
    "3 Graph composition",
    "graph '{name}' was not composed: {missing} has no value",
    NOTE,
    hint="give it with {words} to check shapes and assertions too",
)
RANK_DIFFERS = Rule(
    "SKR332",
    "3 Graph composition",
    "'{name}' has shape {found}; the graph says {shape}",
)
UNKNOWN_INPUT = Rule(
    "SKR333",
    "3 Graph composition",
    "graph '{graph}' has no input '{name}'; its inputs are {names}",
)
INPUT_TYPE = Rule(
    "SKR334",
    "2.2 Types",
    "input '{name}' is {found}; the graph takes {element} here",
)
LOOP_TOO_LONG = Rule(
    "SKR335",
    "2.10.1 Control flow",
    "the loop has not ended after {limit} steps, those of other loops of the run included",
    hint="raise it with --limit max_steps=N",
)
RANDOM_WEIGHTS = Rule(
    "SKR336",
    "3 Graph composition",
    "graph '{name}' has {count} without data; random values are used, from seed {seed}",
    NOTE,
    hint="give data with --weights, or as .dat files in the folder of the model",
)
NO_KERNEL = Rule(
    "SKR386",
    "3 Graph composition",
    "'{operator}' does not run as a kernel: {reason}",
    hint="without --strict-backend (strict_backend=True) the reference computes what has no kernel",
)
OPEN_EXTENTS = Rule(
    "SKR387",
    "3 Graph composition",
    "graph '{graph}' leaves {names} open; kernels are written for known extents",
    hint="{repair}",
)
NO_GRADIENT = Rule(
    "SKR388",
    "3 Graph composition",
    "'{operator}' has no gradient: {reason}",
    hint="freeze the parameters that it reads, or write it with operators whose gradient"
    " `lamella show OPERATOR --gradient` prints",
)
