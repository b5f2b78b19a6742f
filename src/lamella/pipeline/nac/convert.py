"""Models into NAC files: optimised, with other weights, quantised, with weights in the file or beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import numpy as np

from lamella.base.arrays import Array
from lamella.base.diagnostic import NOTE, Diagnostic, LamellaError, errors, printable
from lamella.base.errors import Found, InputError, Malformed
from lamella.base.jsontext import decode_object
from lamella.base.limits import Limits
from lamella.base.paths import map_bytes, read_bytes, shown
from lamella.base.source import NOWHERE, Source
from lamella.base.suggest import list_known
from lamella.bridge.graph_to_nac import Writing, graph_to_nac
from lamella.bridge.nac_to_graph.convert_weights import (
    QuantisationReport,
    quantise_file,
    report_lines,
    with_external,
    with_internal,
)
from lamella.bridge.nac_to_graph.notes import Notes, read_notes
from lamella.bridge.nac_to_graph.training import has_training
from lamella.bridge.nac_to_graph.weights import companion
from lamella.bridge.tokenizer_to_nac import tokenizer_to_nac
from lamella.graph.model import Model as GraphModel
from lamella.graph.passes.optimise import Optimised, optimise
from lamella.graph.passes.unroll_loops import count_loops, unroll_loops
from lamella.graph.passes.widen_codes import widen_codes
from lamella.lang.nac import assemble, check
from lamella.lang.nac.check.data import check_resources
from lamella.lang.nac.check.training import GRAPH, NOTES, read_entry
from lamella.lang.nac.nodes import File, Method, Resource
from lamella.lang.nac.notes import NAME, find_notes, with_notes
from lamella.lang.nac.rules.graphs import LEFT_OUT
from lamella.lang.nac.upgrade_version import upgrade_version
from lamella.pipeline.generate import stop_tokens
from lamella.pipeline.languages import Conversion
from lamella.pipeline.languages import Model as AnyModel
from lamella.pipeline.nac.execution import save
from lamella.pipeline.nac.graphs import to_graph, weights_of
from lamella.pipeline.nac.model import Model, read_model, stays_whole
from lamella.pipeline.nac.running import compile_file
from lamella.pipeline.options import Options, drawing
from lamella.pipeline.skriptnd.execution import with_numbers
from lamella.pipeline.skriptnd.run_passes import evaluator

# --- graphs as NAC files: simplified, written with roles, ready to be saved ---------------------------------


LEVELS = ("none", "exact", "relaxed")
"""How much a graph is simplified; what is exact gives the same bits."""


def from_graph(model: GraphModel, path: Path, options: Options) -> Model:
    """The file of a graph; weights that it lacks are random, from the seed. LamellaError holds what cannot be said."""
    model = unroll_loops(widen_codes(with_numbers(model, options, all_or_none=False)))
    written = graph_to_nac(model, Writing(plain_signatures=options.plain_signatures))
    if errors(written.findings):
        raise LamellaError(written.findings)
    return Model(path, written.file, (*model.findings, *written.findings))


def simplify(model: GraphModel, options: Options, default: str) -> Optimised | None:
    """The graph after the optimiser, as far as the options allow; None where they do not."""
    level = options.optimize or default
    if level not in LEVELS:
        raise InputError(
            f"there is no way '{level[:40]}' to optimize", hint=list_known(level, LEVELS, "ways are:")
        )
    if level == "none":
        return None
    try:
        return optimise(model, evaluator(model.library, options.limits), relaxed=level == "relaxed")
    except Found as problem:
        raise LamellaError(problem.findings) from None


# --- files that travel in a NAC file: put in, taken out -----------------------------------------------------


def embed(file: File, paths: Mapping[str, Path], limits: Limits) -> File:
    """The file with other files in it, by the names they get; one that is there already is replaced."""
    taken = {name: map_bytes(path, limits).data for name, path in paths.items()}
    kept = tuple(item for item in file.resources if item.name not in taken)
    made = replace(file, resources=(*kept, *(Resource(name, data) for name, data in taken.items())))
    if NAME in taken:
        hint = "it says what the inputs and outputs are, and is written by lamella"
        raise InputError(f"resource '{NAME}' belongs to the file itself", hint=hint)
    findings = list(check_resources(made))
    if findings:
        raise LamellaError(findings)
    return made


# --- A model as an application: its tokenizer and its plan put into its file --------------------------------


PLAN = "plan"
"""The key of `lamella.json` that names constants of a plan."""
CONFIG, TOKENIZER = "config.json", "tokenizer.json"
"""The resources in which a Hugging Face folder's config travels, and a tokenizer that the manifest cannot say."""
MAX_TOKENS = 16
"""Tokens of an answer, unless somebody patches the plan: as many as `generate FOLDER --prompt` gives."""
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
    lines = _answer_lines(len(notes.outputs), pace, list(stop_tokens(config)), room or _positions(config))
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
        return {} if config is None else decode_object(config.data)
    except Malformed:
        return {}


def _positions(config: Mapping[str, object]) -> int:
    """How many positions a model has; 0 where its config does not say."""
    found = config.get("max_position_embeddings")
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 < found < 1 << 63 else 0


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
    full = f"the answer ends here: the model has room for {room} tokens, the prompt among them"
    yield from (f"7 = {room}", f'8 = "{full}"') if room else ()
    yield from (f"{_STOPS + number} = {token}" for number, token in enumerate(stops))


def _constant(number: int) -> str:
    return f"SRC_CONSTANT({_FIRST_STOP + number}, {_STOPS + number})"


# --- what quantisation does to a file: the error of each tensor, and that of the outputs --------------------


METHODS: Mapping[str, Method] = {item.name.lower(): item for item in Method}
"""The methods as the command line names them."""


@dataclass(frozen=True, slots=True)
class OutputDistance:
    """How far an output is from the one of the original weights, on random inputs."""

    name: str
    largest: float
    mean: float
    scale: float
    """The largest number of the original output."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The errors of a quantised file: of its tensors, and of its outputs or why they are not known."""

    report: QuantisationReport
    outputs: tuple[OutputDistance, ...]
    unknown: str = ""


def quantize(model: Model, options: Options) -> tuple[Model, Cost]:
    """The file with its weights under another method, and what that costs; the weights must stand in the file."""
    word = (options.quantize or "").lower()
    if word not in METHODS:
        hint = list_known(word, METHODS, "methods are:")
        raise InputError(f"there is no method '{word[:40]}' to quantise by", hint=hint)
    file, report = quantise_file(model.file, METHODS[word], options.axis)
    made = Model(model.path, file, model.findings)
    options = drawing(options)
    try:
        wanted = compile_file(model, options)()
    except LamellaError as problem:
        return made, Cost(report, (), problem.findings[0].message)
    found = compile_file(made, options)()
    return made, Cost(report, tuple(_error(name, wanted[name], found[name]) for name in wanted))


def _error(name: str, wanted: Array, found: Array) -> OutputDistance:
    exact, given = wanted.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where(exact == given, 0.0, np.abs(given - exact))
    scale = float(np.abs(exact).max(initial=0.0))
    return OutputDistance(
        name, float(apart.max(initial=0.0)), float(apart.mean()) if apart.size else 0.0, scale
    )


def cost_lines(cost: Cost) -> list[str]:
    """The errors as people read them: a line for each tensor, then one for each output."""
    lines = report_lines(cost.report)
    if cost.unknown:
        return [*lines, f"outputs: not compared: {cost.unknown}"]
    return [*lines, *(_output_line(item) for item in cost.outputs)]


def _output_line(item: OutputDistance) -> str:
    return (
        f"output {printable(item.name, 80)}: max abs {item.largest:.3g}, mean {item.mean:.3g},"
        f" of numbers up to {item.scale:.3g}"
    )


def cost_to_json(cost: Cost) -> dict[str, object]:
    """The errors as data."""
    return {
        "method": cost.report.method.name.lower(),
        "bytes": {"before": cost.report.before, "after": cost.report.after},
        "tensors": [
            {"name": item.name, "stored": item.stored, "max_abs": item.largest, "mean_abs": item.mean}
            for item in cost.report.tensors
        ],
        "outputs": _outputs_to_json(cost.outputs),
        "not_compared": cost.unknown or None,
    }


def _outputs_to_json(outputs: Sequence[OutputDistance]) -> list[dict[str, object]]:
    return [
        {"name": item.name, "max_abs": item.largest, "mean_abs": item.mean, "scale": item.scale}
        for item in outputs
    ]


# --- training graphs of files whose code is written anew ----------------------------------------------------


def carry_training(made: Model, before: File) -> Model:
    """The file with the training graph of the one that it was made from; a note where it does not fit any more."""
    if not has_training(before):
        return made
    older = upgrade_version(before)
    kept = tuple(item for item in older.resources if item.name in (NOTES, GRAPH))
    file = replace(made.file, resources=(*made.file.resources, *kept))
    entry, _ = read_entry(file, check)
    if entry is not None and not entry.saved:
        return replace(made, file=file)
    reason = "it takes results of instructions that are no longer there"
    finding = LEFT_OUT.at(NOWHERE, what="the training graph", reason=reason)
    return replace(made, findings=(*made.findings, finding))


def convert_to_nac(model: AnyModel, target: Path, options: Options) -> Conversion:
    """Write a model as a NAC file, its text, with all that the options ask for."""
    lines: list[str] = []
    if isinstance(model, GraphModel):
        made = _written(model, target, options, "exact", lines)
    elif isinstance(model, Model):
        made = _rewritten(model, target, options, lines)
    else:
        hint = "graphs become NAC: .sknd, .pt2, .nac"
        raise InputError(f"a file of {model.language} is no graph", hint=hint)
    file, notes = _with_attachments(made.file, options)
    made = replace(made, file=file, findings=(*made.findings, *notes))
    external = _is_external(model, options)
    cost = None
    if options.quantize is not None:
        made, cost = quantize(made, options)
        lines += cost_lines(cost)
    written = [target]
    if external and made.file.header.internal and made.file.tensors:
        made = replace(made, file=with_external(made.file, target))
        written.insert(0, companion(target))
    save(made, target)
    return Conversion(tuple(written), made.findings, tuple(lines), _data(cost))


def _with_attachments(file: File, options: Options) -> tuple[File, tuple[Diagnostic, ...]]:
    """The file with the tokenizer, the plan and the files that it is to carry.

    What was a Hugging Face folder with a tokenizer, and so carries both, answers prompts where nobody gives it a plan.
    """
    if options.tokenizer is not None:
        file = with_tokenizer(file, options.tokenizer, options.limits)
    if options.plan is not None:
        file = with_plan(file, options.plan, options.limits)
    paths = {name: Path(path) for name, path in options.embed.items()}
    file = embed(file, paths, options.limits) if paths else file
    carried = options.tokenizer is not None or TOKENIZER in options.embed
    if options.plan is None and CONFIG in options.embed and carried:
        return with_answers(file, options.cache, options.limits)
    return file, ()


def _data(cost: Cost | None) -> Mapping[str, object]:
    return {} if cost is None else {"quantization": cost_to_json(cost)}


def _is_external(model: AnyModel, options: Options) -> bool:
    """Whether weights are to lie beside the file: as the user says, else as they do now."""
    if options.external is not None:
        return options.external
    return isinstance(model, Model) and not model.file.header.internal


def _written(model: GraphModel, target: Path, options: Options, default: str, lines: list[str]) -> Model:
    loops, model = count_loops(model), unroll_loops(model)
    if loops > count_loops(model):
        lines.append(f"{loops - count_loops(model)} loops written out, step by step")
    found = simplify(model, options, default)
    if found is not None:
        lines += found.lines()
        model = found.model
    return from_graph(model, target, options)


def _rewritten(model: Model, target: Path, options: Options, lines: list[str]) -> Model:
    """A file from a file: its code stays unless the user wants it optimised, or other extents or signatures."""
    model = replace(model, findings=tuple(item for item in model.findings if item.severity != NOTE))
    if options.optimize is not None or options.plain_signatures or options.shape:
        graph = to_graph(model, options)
        made = _written(graph, target, options, "none", lines)
        made = replace(made, file=carry_application(made.file, model.file))
        return carry_training(made, model.file)
    if options.weights is not None:
        weights_of(model, options)
    if not _needs_weights(model, target, options):
        return model
    weights = weights_of(model, options)
    file, findings = with_internal(model.file, dict(weights.tensors))
    return Model(model.path, file, (*model.findings, *weights.findings, *findings), model.mapped)


def _needs_weights(model: Model, target: Path, options: Options) -> bool:
    """Whether the weights themselves are touched; a text or a file beside the old one keeps its store."""
    if not model.file.parameters:
        return False
    taken = options.weights is not None or options.quantize is not None or options.external is not None
    return taken or not stays_whole(model, target)
