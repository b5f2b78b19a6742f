"""Rules of resources, manifests, plans, training, tokenizers: NAC160 to NAC179, NAC240 to 259, NAC275 to 286."""

from __future__ import annotations

from lamella.base.diagnostic import NOTE, WARNING, Rule

# --- plans of the orchestrator, verified and run: NAC240 to NAC249 ------------------------------------------


# Before a plan runs
CONSTANT_USE = Rule(
    "NAC240",
    "9 ORCH",
    "{name} at byte {offset} of the plan cannot use constant {id}: {problem}",
    hint="{repair}",
)
UNWRITTEN = Rule(
    "NAC241",
    "9 ORCH",
    "{name} at byte {offset} of the plan reads slot {slot}, which is not written on every way to it",
    hint="write the slot before the branch or the loop that may leave it empty",
)
RUN = Rule(
    "NAC242",
    "9 ORCH",
    "{name} at byte {offset} of the plan {problem}",
    hint="{repair}",
)
UNREACHED = Rule(
    "NAC243",
    "9 ORCH",
    "{name} at byte {offset} of the plan is never reached, and {count} behind it",
    WARNING,
    "remove what no way leads to",
)
UNBOUNDED = Rule(
    "NAC244",
    "9 ORCH",
    "{name} at byte {offset} of the plan {reason}, so that the number of its steps has no bound",
    NOTE,
    "a run ends at its budget of steps",
)

# While it runs
NOT_ALLOWED = Rule(
    "NAC245",
    "9 ORCH",
    "{name} at byte {offset} of the plan {action}, which is not allowed",
    hint="allow it with --allow {flag}",
)
FAULT = Rule(
    "NAC246",
    "9 ORCH",
    "{name} at byte {offset} of the plan {problem}",
    hint="{repair}",
)
BUDGET = Rule(
    "NAC247",
    "9 ORCH",
    "{name} at byte {offset} of the plan {problem}",
    hint="raise it with --limit {limit}=N",
)
REFUSED = Rule(
    "NAC248",
    "9 ORCH",
    "{name} at byte {offset} of the plan {problem}",
    hint="{repair}",
)
PATCH = Rule(
    "NAC249",
    "9 ORCH",
    "constant '{key}' of the plan cannot become {value}: {problem}",
    hint="{repair}",
)


# --- what goes wrong where tokenizers are read, run or made: NAC250 to NAC259 -------------------------------


PATTERN = Rule(
    "NAC250",
    "6.2 PROC",
    "the pattern '{pattern}' {reason}",
    hint="patterns have classes, groups, choices, counts and a look at the next character; they run in linear time",
)
NO_MANIFEST = Rule(
    "NAC251",
    "6.2 PROC",
    "the file has no manifest of a tokenizer",
    hint="a manifest stands in section PROC",
)
NO_VOCABULARY = Rule(
    "NAC252",
    "6.3 RSRC",
    "{name} needs a vocabulary, and the file has none",
    hint="a vocabulary is the resource 'vocab.b', 'tokenizer.json' or 'vocab.json'",
)
VOCABULARY = Rule(
    "NAC253",
    "6.3 RSRC",
    "resource '{name}' {problem}",
    hint="resources of tokenizers are written together with their manifest",
)
ORDER = Rule(
    "NAC254",
    "6.2 PROC",
    "{name} at place {place} of the manifest {problem}",
    hint="texts are changed, then split, then one instruction encodes them; a template and the ways back follow",
)
TOKEN = Rule(
    "NAC255",
    "6.2 PROC",
    "{name} names the token '{token}', which the vocabulary does not have",
    hint="tokens of a manifest are tokens of its vocabulary",
)
DOCUMENT = Rule(
    "NAC256",
    "6.2 PROC",
    "{place} of the tokenizer {problem}",
    hint="a tokenizer is the JSON text that the package 'tokenizers' saves",
)
NO_INSTRUCTION = Rule(
    "NAC257",
    "6.2 PROC",
    "{place} of the tokenizer is {what}, which no instruction says",
    hint="the page on tokenizers lists what manifests can say",
)
LEFT_OUT = Rule(
    "NAC258",
    "6.2 PROC",
    "{place} of the tokenizer is left out: {reason}",
    WARNING,
    hint="ids of single texts are the same without it",
)
GROWTH = Rule(
    "NAC259",
    "6.2 PROC",
    "{name} at place {place} of the manifest lets a text grow more than {most} times",
    hint="put shorter texts into it, or fewer",
)


# --- resources, manifests, plans and training: NAC160 to NAC179, NAC275 to NAC286 ---------------------------


# Resources
RESOURCE_NAME = Rule(
    "NAC160",
    "6.3 RSRC",
    "resource '{name}' {reason}",
    hint="a resource is named like a file of one folder: 'vocab.json'",
)
RESOURCE_TWICE = Rule(
    "NAC161",
    "6.3 RSRC",
    "resource '{name}' is there as '{first}' already",
    hint="names differ in more than upper and lower case",
)

# The tokenizer manifest
MANIFEST_HEAD = Rule(
    "NAC162",
    "6.2 PROC",
    "the manifest does not begin with 'TISA' and version 1",
    hint="other manifests cannot be read",
)
MANIFEST_OPCODE = Rule(
    "NAC163",
    "6.2 PROC",
    "byte {offset} of the manifest is {opcode}, which is no instruction",
    hint="instructions are 1 to 4, 7, 16, 21, 32 to 34 and 48; ours are 128 to 133 and 144 to 152",
)
MANIFEST_CUT = Rule(
    "NAC164",
    "6.2 PROC",
    "{name} at byte {offset} of the manifest {problem}",
    hint="a payload holds the fields of its instruction, no more and no fewer",
)
MANIFEST_VALUE = Rule(
    "NAC165",
    "6.2 PROC",
    "{name} at byte {offset} of the manifest {problem}",
    hint="{repair}",
)

# The orchestrator
PLAN_OPCODE = Rule(
    "NAC166",
    "9 ORCH",
    "byte {offset} of the plan is {opcode}, which is no instruction of version {version}",
    hint="what follows it cannot be distinguished",
)
PLAN_CUT = Rule(
    "NAC167",
    "9 ORCH",
    "{name} at byte {offset} of the plan needs {wanted} bytes; {left} are left",
    hint="the bytecode is cut short",
)
PLAN_JUMP = Rule(
    "NAC168",
    "9 ORCH",
    "{name} at byte {offset} of the plan jumps to byte {target}, where no instruction begins",
    hint="distances count from the byte behind them",
)
PLAN_CONSTANT = Rule(
    "NAC169",
    "9 ORCH",
    "{name} at byte {offset} of the plan uses constant {id}, which the plan does not have",
    hint="add the constant",
)
PLAN_LOOP = Rule(
    "NAC170",
    "9 ORCH",
    "{name} at byte {offset} of the plan {problem}",
    hint="each FLOW_LOOP_START has one FLOW_LOOP_END behind it, which jumps back to what follows the start",
)
PLAN_CONSTANT_TWICE = Rule(
    "NAC171",
    "9 ORCH",
    "constant id {id} of the plan has two values",
    hint="each id stands for one constant",
)
PLAN_CHOICE = Rule(
    "NAC172",
    "9 ORCH",
    "{name} at byte {offset} of the plan has no variant {choice}",
    hint="variants are {known}",
)
PLAN_END = Rule(
    "NAC173",
    "9 ORCH",
    "the plan runs past its end",
    WARNING,
    "end it with EXEC_RETURN or EXEC_HALT",
)
PLAN_SLOT = Rule(
    "NAC174",
    "9 ORCH",
    "{name} at byte {offset} of the plan reads slot {slot}, which nothing writes",
    hint="write the slot before",
)
PLAN_MODEL = Rule(
    "NAC175",
    "9 ORCH",
    "{name} at byte {offset} of the plan uses model {model}, which is never loaded",
    hint="load it with RES_LOAD_MODEL",
)

# The training graph and arrays
TRAINING_SAVED = Rule(
    "NAC176",
    "TRNG",
    "instruction {index} takes the saved result of instruction {target}, which does not exist or has none",
    hint="it names an instruction that computes",
)
TRAINING_END = Rule(
    "NAC177",
    "TRNG",
    "the training graph does not end with <OUTPUT> of variant 4",
    hint="that instruction ends it",
)
ARRAY_TWICE = Rule(
    "NAC178",
    "ARRS",
    "array '{name}' is given twice",
    hint="each array has a name of its own",
)
PLAN_LENGTH = Rule(
    "NAC179",
    "9 ORCH",
    "the plan has {length} bytes; no more than {limit} are verified",
    hint="a plan that is not verified is not taken",
)

# Steps of training
_ENTRY = "6.3 RSRC"

TRAINING_TARGETS = Rule(
    "NAC275",
    "TRNG",
    "the training graph takes target {number}, but not target {missing}",
    hint="targets are counted from 0, and each of them is taken",
)
TRAINING_GRADIENT = Rule(
    "NAC276",
    "TRNG",
    "the gradient of parameter '{name}' is {found}; the parameter is {type}",
    hint="a gradient has the element type and the shape of its parameter",
)
TRAINING_AFTER_END = Rule(
    "NAC277",
    "TRNG",
    "instruction {index} stands behind instruction {end}, which ends the training graph",
    hint="<OUTPUT> of variant 4 is the last instruction",
)
TRAINING_ALONE = Rule(
    "NAC278",
    "TRNG",
    "there is a training graph of {count} instructions, but no program to train",
    hint="the program stands in OPS",
)
TRAINING_RATE = Rule(
    "NAC279",
    "TRNG",
    "instruction {index} changes parameter {id} by a learning rate that is {found}",
    hint="a learning rate is one finite number",
)
TRAINING_PARAMETER = Rule(
    "NAC280",
    "TRNG",
    "parameter '{name}' cannot be trained: {problem}",
    hint="a step changes each parameter once, and only real numbers that the file or its weights have",
)
ENTRY_MALFORMED = Rule(
    "NAC281",
    _ENTRY,
    "resource training.json: {problem}",
    hint="docs/languages/nac.md says what it holds; write the file again, or remove the resource",
)
ENTRY_GRAPH = Rule(
    "NAC282",
    _ENTRY,
    "resource training.nac {problem}",
    hint="it is a whole file of NAC that gives a loss and gradients",
)
ENTRY_NESTED = Rule(
    "NAC283",
    _ENTRY,
    "resource training.nac has a training graph of its own",
    hint="a training graph is not trained itself: remove it there",
)
ENTRY_NAME = Rule(
    "NAC284",
    _ENTRY,
    "training.json speaks of {what} '{name}', which {place} does not have",
    hint="there are: {known}",
)
ENTRY_TYPE = Rule(
    "NAC285",
    _ENTRY,
    "input '{name}' of training.nac is {found}; {what} is {type}",
    hint="what is handed to a training graph has the element type and the shape that it is made for",
)
ENTRY_TWICE = Rule(
    "NAC286",
    _ENTRY,
    "there is a section TRNG and a resource training.json",
    hint="a file has one training graph: remove one of them",
)
