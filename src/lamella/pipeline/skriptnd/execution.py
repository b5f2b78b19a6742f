"""SkriptND models for the API: load, compile, lower, save."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import Diagnostic, LamellaError, errors
from lamella.base.dim import symbols
from lamella.base.dtype import F64
from lamella.base.errors import Found, InputError
from lamella.base.paths import is_folder, is_there
from lamella.base.placement import placement_line
from lamella.base.source import NOWHERE, Span
from lamella.graph.data import FoundWeights, read_weights, write_weights
from lamella.graph.model import Model
from lamella.graph.nodes import Graph, tensors, walk
from lamella.graph.rewrite import extents, members
from lamella.kernels.nodes import KernelGraph
from lamella.lang.skriptnd.rules import data as data_rules
from lamella.lang.skriptnd.rules.graphs import OPEN_EXTENTS
from lamella.lang.skriptnd.rules.names import SHADOWED_MODULE
from lamella.pipeline import languages
from lamella.pipeline.languages import ENDINGS, STREAM_ENDINGS, execution_of, part_of
from lamella.pipeline.options import WITH_KERNELS, Options
from lamella.pipeline.skriptnd.passing import apply_pass
from lamella.pipeline.skriptnd.reading import chosen_graph, compose_graph, read_module
from lamella.pipeline.skriptnd.writing import (
    ENDING,
    MAIN,
    STORE_FILE,
    flat_graph,
    restore_origins,
    write_model,
)

OTHER_ENDINGS = ({*ENDINGS, *STREAM_ENDINGS, ".npy", ".onnx"}) - {ENDING, STORE_FILE}
"""Files that are no graph; any other name is that of a folder, whatever it ends with."""
KERNEL_FORMS = ("tensor", "llvm", "asm", "ptx")
"""What kernels are lowered to."""
BINARY_FORM = "nac"
"""The binary of a graph."""
ENOUGH = 8
"""The size that a hint proposes for an open extent."""


def load(path: Path, options: Options) -> Model:
    """Read, check and compose a model; LamellaError holds all findings when something is wrong."""
    read = read_module(path, options)
    if not read.sound:
        raise LamellaError(read.findings)
    graph, findings = compose_graph(read.module, chosen_graph(read.module, options), options)
    if graph is None:
        raise LamellaError(errors([*read.findings, *findings]))
    folder = path.parent if path.name == f"{MAIN}{ENDING}" else path
    data, warnings = _data(folder, graph, options)
    if is_folder(folder):
        graph, data = _restored(graph, data, folder, options)
    told = [item for item in read.findings if item.code == SHADOWED_MODULE.code]
    return Model(graph, read.module.library, data or None, (*told, *warnings))


def _restored(
    graph: Graph, data: Mapping[str, Array], folder: Path, options: Options
) -> tuple[Graph, Mapping[str, Array]]:
    """A graph that `lower` wrote gets its names back, and so do its data."""
    restored = restore_origins(graph, folder, options.limits)
    names = {old.name: new.name for old, new in zip(graph.variables, restored.variables, strict=True)}
    return restored, {names[name]: array for name, array in data.items()}


def _data(path: Path, graph: Graph, options: Options) -> FoundWeights:
    """The weights where the user says, else those in the model's folder or beside its file, else none."""
    beside = path if is_folder(path) else path.with_suffix(STORE_FILE)
    home = options.weights or (beside if is_there(beside) else None)
    if options.weights is not None and not graph.variables:
        hint = "leave the option out, or choose another graph"
        raise InputError(f"graph '{graph.name}' has no variables that could take weights", hint=hint)
    if home is None or not graph.variables:
        return FoundWeights({}, ())
    flat = flat_graph(_widened(graph) if options.dtype == "f64" else graph, home)
    arrays, findings = read_weights(home, flat, options.limits)
    names = {old.name: new.name for old, new in zip(flat.variables, graph.variables, strict=True)}
    if options.weights is None and not arrays:
        findings = tuple(item for item in findings if item.code != data_rules.NO_DATA.code)
    if errors(findings):
        raise LamellaError(errors(findings))
    return FoundWeights({names[name]: array for name, array in arrays.items()}, _gathered(findings))


def _gathered(findings: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """One finding for each rule: what holds of one variable often holds of hundreds."""
    counts = Counter(item.code for item in findings)
    firsts = {item.code: item for item in reversed(findings)}
    return tuple(_with_count(item, counts[item.code] - 1) for item in findings if firsts[item.code] is item)


def _with_count(finding: Diagnostic, others: int) -> Diagnostic:
    return replace(finding, message=f"{finding.message} (and {others} more)") if others else finding


def _widened(graph: Graph) -> Graph:
    """The graph with variables that hold 64 bits, so that data for a run in 64 bits are not rounded."""
    variables = (replace(item, element=F64) if item.element.is_float else item for item in graph.variables)
    return replace(graph, variables=tuple(variables))


def _describes_quantisation(graph: Graph) -> bool:
    """Whether a tensor of the graph says how it is quantised."""
    made = (item for node in walk(graph.nodes) for argument in node.outputs for item in tensors(argument))
    given = (item for argument in graph.inputs for item in tensors(argument))
    return any(item.quantization is not None for item in (*given, *graph.variables, *made))


def compile(  # the API's word: lamella.compile
    model: Model, backend: str | None, options: Options
) -> languages.Executable:
    """Make a graph executable."""
    if options.quantized and not _describes_quantisation(model.graph):
        hint = "leave --quantized out (quantized=), or describe it in @quantize"
        raise InputError(f"graph '{model.graph.name}' describes no quantisation", hint=hint)
    if backend in WITH_KERNELS:
        executable: languages.Executable = part_of("kernels", "execution").compile_open(
            model, backend, options
        )
        return executable
    if backend not in (None, "reference"):
        hint = f"graphs run on: {', '.join(('reference', *WITH_KERNELS))}"
        raise InputError(f"there is no backend '{backend}' for a graph", hint=hint)
    executable = compile_model(
        model,
        seed=options.start_seed,
        dtype=options.dtype or "f32",
        quantized=options.quantized,
        limits=options.limits,
    )
    executable.draws = options.draws
    return executable


def lower(model: Model, to: str, options: Options) -> languages.Model:
    """The graph after the passes that the options name, or its kernels."""
    if to not in ("sknd", "skriptnd", BINARY_FORM, *KERNEL_FORMS):
        raise InputError(f"there is no road to '{to}' from here", hint=f"a graph lowers to: {_listed()}")
    try:
        for name in options.passes:
            model = apply_pass(model, name, options.limits)
    except Found as problem:
        raise LamellaError(problem.findings) from None
    if to == BINARY_FORM:
        return to_file(model, Path(f"{model.graph.name}.nac"), options)
    if to not in KERNEL_FORMS:
        return with_numbers(model, options)
    _require_extents(model, to)
    kernels: KernelGraph = part_of("kernels", "execution").to_kernels(model, options)
    if not kernels.program.functions:
        told = placement_line(kernels.placement) or "it has none"
        raise InputError("no operation of this graph becomes a kernel", hint=told)
    if to == "tensor" and options.after is None:
        return kernels
    return execution_of("kernels").lower(kernels, to, options)


def with_numbers(model: Model, options: Options, all_or_none: bool = True) -> Model:
    """The model with numbers for all its variables: those it lacks are drawn from the seed, with a finding.

    One that has none at all stays so where a text without data may stand for it: then every run draws them.
    """
    data = model.data or {}
    lacks = any(item.name not in data for item in model.graph.variables)
    if not lacks or (all_or_none and not data):
        return model
    run = compile_model(model, seed=options.start_seed, limits=options.limits)
    return replace(model, data=run.state, findings=(*model.findings, *run.find_random()))


def _require_extents(model: Model, to: str) -> None:
    """Kernels are written for known extents: those of the inputs that are open must be given."""
    found = {
        symbol.name: (symbol, item.name)
        for item in reversed(list(members(model.graph.inputs)))
        for extent in extents(item)
        for symbol in symbols(extent)
    }
    if not found:
        return
    sizes = {name: min(max(symbol.low, ENOUGH), symbol.high) for name, (symbol, _) in sorted(found.items())}
    words = ",".join(f"{name}={size}" for name, size in sizes.items())
    repair = f"say for which: lamella lower FILE --to {to} --shape {words}, or lamella.load(…, shape={sizes})"
    span, names = _declaration(model, next(reversed(found.values()))[1]), ", ".join(map(repr, sizes))
    raise LamellaError([OPEN_EXTENTS.at(span, graph=model.graph.name, names=names, repair=repair)])


def _declaration(model: Model, name: str) -> Span:
    """Where the text of a graph declares an input."""
    found = model.library.find(f"main.{model.graph.name}")
    inputs = () if found is None else found.operator.parameters("input")
    return next((item.span for item in inputs if item.name == name.partition(":")[0]), NOWHERE)


def _listed() -> str:
    return ", ".join(("sknd", BINARY_FORM, *KERNEL_FORMS))


def to_file(model: Model, path: Path, options: Options) -> languages.Model:
    """The NAC file of a graph."""
    file: languages.Model = part_of("nac", "converting.writing").to_nac(model, path, options)
    return file


def save(model: Model, path: Path) -> None:
    """Write a model: a folder, a .sknd file with its data beside it, a .nac file, or the data alone as .safetensors."""
    ending = path.suffix.lower()
    if ending == STORE_FILE:
        write_weights(path, model.graph, model.data or {})
    elif ENDINGS.get(ending) == BINARY_FORM:
        execution_of(BINARY_FORM).save(to_file(model, path, Options()), path)
    elif ending in OTHER_ENDINGS:
        hint = "graphs are written as a folder or .sknd, their data as .safetensors"
        raise InputError(f"'{path.name}' is no ending for a graph", hint=hint)
    else:
        _require_whole(model)
        write_model(model, path)


def save_whole(model: Model, path: Path, options: Options) -> tuple[Diagnostic, ...]:
    """Write a model with numbers for all its variables, or for none; gives what there is to say about them."""
    whole = with_numbers(model, options)
    save(whole, path)
    return whole.findings[len(model.findings) :]


def _require_whole(model: Model) -> None:
    """Data for some variables alone would make a folder that nobody can read."""
    data = model.data or {}
    missing = [item.name for item in model.graph.variables if item.name not in data]
    if data and missing:
        hint = "load the model with weights=…, or lower(model, 'sknd', seed=N) draws them"
        what = f"{len(missing)} of {len(model.graph.variables)} variables"
        raise InputError(f"{what} have no numbers, such as '{missing[0][:80]}'", hint=hint)
