"""A model as an application: its tokenizer and its plan put into its file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path

from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.paths import read_bytes, shown
from lamella.base.source import NOWHERE, Source
from lamella.bridge.nac_to_graph.notes import Notes, read_notes
from lamella.bridge.tokenizer_to_nac import tokenizer_to_nac
from lamella.lang.nac import assemble
from lamella.lang.nac.check.sections.entry import GRAPH, NOTES
from lamella.lang.nac.nodes import File
from lamella.lang.nac.notes import find_notes, with_notes
from lamella.lang.nac.rules.roads import LEFT_OUT
from lamella.pipeline.nac.model import read_model

PLAN = "plan"
"""The key of `lamella.json` that names constants of a plan."""
CONFIG, TOKENIZER = "config.json", "tokenizer.json"
"""The resources in which a Hugging Face folder's config travels, and a tokenizer that the manifest cannot say."""
MAX_TOKENS = 16
"""Tokens of an answer, unless somebody patches the plan: as many as `run FOLDER --prompt` gives."""
_MOST_STOPS = 64
_FIRST_STOP = 32
"""The slot of the first token that ends an answer."""
_STOPS = 9
"""The constant that is that token."""


def with_tokenizer(file: File, path: Path, limits: Limits) -> File:
    """The file with the tokenizer of a `tokenizer.json`."""
    parts = tokenizer_to_nac(read_bytes(path, limits))
    new = {item.name for item in parts.resources}
    kept = tuple(item for item in file.resources if item.name not in new)
    return replace(file, manifest=parts.manifest, resources=(*kept, *parts.resources))


def with_plan(file: File, path: Path, limits: Limits) -> File:
    """The file with the plan of another one, and the names that its constants have."""
    model = read_model(path, limits)
    if errors(model.findings):
        raise LamellaError(errors(model.findings))
    if not model.file.orchestrator.bytecode:
        raise InputError(f"'{shown(path)}' has no plan", path=shown(path), hint="write it as .orchestrator")
    named = (find_notes(model.file) or {}).get(PLAN)
    made = replace(file, orchestrator=model.file.orchestrator)
    return made if named is None else with_notes(made, {**(find_notes(file) or {}), PLAN: named})


def carry_application(made: File, old: File) -> File:
    """A file that was written anew from another, with the tokenizer, the plan and the resources of that one."""
    new = {*(item.name for item in made.resources), NOTES, GRAPH}  # the training graph is carried by itself
    kept = tuple(item for item in old.resources if item.name not in new)
    made = replace(
        made,
        manifest=made.manifest or old.manifest,
        orchestrator=old.orchestrator,
        resources=(*made.resources, *kept),
    )
    named = (find_notes(old) or {}).get(PLAN)
    return made if named is None else with_notes(made, {**(find_notes(made) or {}), PLAN: named})


# --- the plan that answers a prompt -------------------------------------------------------------------------


class Pace(Enum):
    """What a model is given in each call: all tokens so far; those it has not seen, as it remembers; or one of them."""

    ALL = "all"
    NEW = "new"
    SINGLE = "single"


def with_answers(file: File, room: int, limits: Limits) -> tuple[File, tuple[Diagnostic, ...]]:
    """The file with a plan that answers a prompt with the likeliest tokens; a note says why there can be none.

    Prompt and answer have `room` tokens, of a model without a cache as many as its config has positions.
    """
    notes = read_notes(file, limits)
    reason = _find_obstacle(file, notes)
    if reason:
        return file, (LEFT_OUT.at(NOWHERE, what="the plan that answers a prompt", reason=reason),)
    (kind,) = notes.inputs.values()
    pace = Pace.ALL if not notes.states else Pace.SINGLE if kind.shape[1] == 1 else Pace.NEW
    config = _read_config(file)
    lines = _answer_lines(len(notes.outputs), pace, list(_stop_tokens(config)), room or _positions(config))
    made, findings = assemble(Source("the plan", "\n".join(lines)), None, limits)
    if errors(findings):
        raise LamellaError(errors(findings))
    names = {"constants": {"max_tokens": 0}}
    said = {**(find_notes(file) or {}), PLAN: names}
    return with_notes(replace(file, orchestrator=made.orchestrator), said), ()


def _find_obstacle(file: File, notes: Notes) -> str:
    """What keeps a file from answering; nothing where it takes tokens and rates the next."""
    if not file.manifest:
        return "the manifest of a NAC file cannot say its tokenizer"
    kinds = list(notes.inputs.values())
    if len(kinds) != 1 or not kinds[0].element.is_integer or len(kinds[0].shape) != 2:
        return "the model has other inputs than the numbers of tokens"
    batch, length = kinds[0].shape
    single = length == 1 and bool(notes.states)
    if (batch != 1 and isinstance(batch, int)) or (isinstance(length, int) and not single):
        return f"the model takes {batch} texts of {length} tokens, and a prompt is one of any length"
    content = (find_notes(file) or {}).get("outputs")
    first = content[0] if isinstance(content, list) and content else None
    shape = first.get("shape") if isinstance(first, dict) else None
    rated = isinstance(shape, list) and len(shape) == len(("batch", "position", "token"))
    return "" if rated else "the first output of the model does not rate tokens for each position"


def _read_config(file: File) -> dict[str, object]:
    """The config that travels in the file."""
    config = next((item for item in file.resources if item.name == CONFIG), None)
    try:
        content = json.loads(bytes(config.data)) if config is not None else None
    except (ValueError, RecursionError):
        content = None
    return content if isinstance(content, dict) else {}


def _positions(config: Mapping[str, object]) -> int:
    """How many positions a model has; 0 where its config does not say."""
    found = config.get("max_position_embeddings")
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 < found < 1 << 63 else 0


def _stop_tokens(config: Mapping[str, object]) -> Iterator[int]:
    """The tokens at which an answer ends."""
    found = config.get("eos_token_id")
    for item in (found if isinstance(found, list) else [found])[:_MOST_STOPS]:
        if isinstance(item, int) and not isinstance(item, bool) and abs(item) < 1 << 63:
            yield item


def _answer_lines(outputs: int, pace: Pace, stops: Sequence[int], room: int) -> Iterator[str]:
    """The text of the plan: the model reads the prompt, then each token that it chose, until there is no room."""
    count, full = "TENSOR_INFO(1, 24, 3, 5)", "LOGIC_COMPARE(2, 11, 24, 28)"
    results = ", ".join(str(16 + number) for number in range(min(outputs, 16)))
    yield from ("nac 1.6", ".orchestrator", "SRC_USER_PROMPT(0, 0, 1)", "RES_LOAD_MODEL(0, 2)")
    yield from ("RES_LOAD_EXTERN(1, 0, 3)", "PREPROC_ENCODE(1, 0, 2)", "TENSOR_CREATE(3, 5, 0, 2)")
    yield from ("SRC_CONSTANT(4, 4)", "TENSOR_CREATE(4, 5, 0, 4)", "SRC_CONSTANT(5, 5)", "SRC_CONSTANT(6, 6)")
    yield from ("SRC_CONSTANT(7, 0)", *(_constant(number) for number in range(len(stops))))
    yield from (count, "SRC_CONSTANT(28, 7)", full, 'FLOW_BRANCH_IF(11, "full")') if room else ()
    if pace is Pace.SINGLE:
        yield from ("TENSOR_INFO(1, 14, 3, 5)", "MATH_BINARY(1, 14, 14, 5)", "SRC_CONSTANT(15, 6)")
        yield from ("FLOW_LOOP_START(14)", "MATH_BINARY(0, 15, 15, 5)", "TENSOR_EXTRACT(8, 3, 15)")
        yield from (
            "TENSOR_CREATE(12, 5, 0, 8)",
            f"MODEL_RUN_STATIC(0, [12], [{results}])",
            "FLOW_LOOP_END()",
        )
        yield from ("TENSOR_EXTRACT(8, 3, 6)", "TENSOR_CREATE(3, 5, 0, 8)")
    yield from ("FLOW_LOOP_START(7)", f"MODEL_RUN_STATIC(0, [3], [{results}])", "TENSOR_EXTRACT(9, 16, 6)")
    yield "MATH_AGGREGATE(0, 10, 9)"
    for number in range(len(stops)):
        yield from (f"LOGIC_COMPARE(0, 11, 10, {_FIRST_STOP + number})", "FLOW_BREAK_LOOP_IF(11)")
    yield from ("TENSOR_CREATE(12, 5, 0, 10)", "TENSOR_COMBINE(0, 4, [4, 12], 5)")
    yield "TENSOR_COMBINE(0, 3, [3, 12], 5)" if pace is Pace.ALL else "SYS_COPY(3, 12)"
    yield from ("MATH_BINARY(0, 24, 24, 5)", full, "FLOW_BREAK_LOOP_IF(11)") if room else ()
    yield from ("FLOW_LOOP_END()", "PREPROC_DECODE(1, 4, 13)", "IO_WRITE(13, 0, 0, 0)")
    yield from (full, 'FLOW_BRANCH_IF(11, "full")') if room else ()
    yield "EXEC_RETURN([4])"
    if room:
        yield from ('FLOW_LABEL("full")', "SRC_CONSTANT(29, 8)", "IO_WRITE(29, 1, 0, 0)", "EXEC_RETURN([4])")
    yield from (f"0 = {MAX_TOKENS}", '1 = "> "', '2 = "self"', "3 = 0", "4 = []", "5 = 1", "6 = -1")
    told = f"the answer ends here: the model has room for {room} tokens, the prompt among them"
    yield from (f"7 = {room}", f'8 = "{told}"') if room else ()
    yield from (f"{_STOPS + number} = {token}" for number, token in enumerate(stops))


def _constant(number: int) -> str:
    return f"SRC_CONSTANT({_FIRST_STOP + number}, {_STOPS + number})"
