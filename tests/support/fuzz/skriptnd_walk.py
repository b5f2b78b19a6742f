"""The whole road of a SkriptND text, every stage as a hostile user would walk it; the judges are outside the stages."""

from __future__ import annotations

from lamella.backend.reference import compile_model
from lamella.base.arrays import Array
from lamella.base.diagnostic import LamellaError, errors, render
from lamella.base.errors import Found
from lamella.base.limits import Limits
from lamella.base.source import Source
from lamella.bridge.graph_to_skriptnd import graph_to_skriptnd, origins_of, restore_names
from lamella.graph.compose import compose
from lamella.graph.model import Model
from lamella.graph.verify import verify
from lamella.lang.skriptnd import check, parse, write
from lamella.ops.library import Library, LoadedModule
from lamella.pipeline.skriptnd.describe import describe_graph
from lamella.pipeline.skriptnd.run_passes import PASS_NAMES, apply_pass
from tests.support.fuzz.nem_walk import RAW, judge, judge_refusal

SMALL = Limits(
    max_total_bytes=1 << 22, max_pack=2000, max_operations=2000, max_steps=200, max_depth=60, max_rank=12,
    max_integer_bits=512,
)  # fmt: skip
Outputs = dict[str, Array]


def walk(text: str, dialect: str = "specification") -> set[str]:
    """Take a text down the road; which stages it reached. Anything but a finding is an exception."""
    source = Source("case.sknd", text)
    reached = {"read"} | _rewrite(source)
    library = Library(dialect, None, SMALL)
    module = library.load(source)
    judge(module.findings)
    if not module.sound:
        return reached
    found = check(module.document, "main", library.find_operator)
    judge(found)
    if errors(found):
        return reached | {"checked"}
    return reached | {"sound"} | _compose(module)


def _rewrite(source: Source) -> set[str]:
    """The canonical text of what has no syntax error means the same and is its own canonical text."""
    document, findings = parse(source, SMALL)
    judge(findings)
    if errors(findings):
        return set()
    text = write(document)
    again, found = parse(Source("again", text), SMALL)
    assert not errors(found), render(errors(found)[0])
    assert again == document
    assert write(again) == text
    return {"written"}


def _compose(module: LoadedModule) -> set[str]:
    reached: set[str] = set()
    for graph in module.graphs:
        composed = compose(module, graph.operator.name, limits=SMALL)
        judge(composed.findings)
        if composed.graph is None:
            assert errors(composed.findings)
            continue
        model = Model(composed.graph, module.library)
        judge(verify(model.graph, module.library))
        assert not errors(verify(model.graph, module.library))
        assert not RAW.search("\n".join(describe_graph(model.graph)))
        reached |= {"composed"} | _execute(model)
    return reached


def _execute(model: Model) -> set[str]:
    before = _run(model)
    if before is None:
        return set()
    _run(model, quantized=True)
    return {"run"} | _lower(model, before) | _passes(model, before)


def _run(model: Model, quantized: bool = False) -> Outputs | None:
    """The outputs; None where the run ends with an error."""
    try:
        executable = compile_model(model, limits=SMALL, quantized=quantized)
        found = executable()
    except LamellaError as problem:
        judge_refusal(problem)
        return None
    judge(executable.findings)
    return found


def _passes(model: Model, before: Outputs) -> set[str]:
    """Every pass gives a whole graph with the same outputs; how near their numbers are is tested elsewhere."""
    try:
        for name in PASS_NAMES:
            model = apply_pass(model, name, SMALL)
            assert not errors(verify(model.graph, model.library)), name
    except Found as problem:
        judge(problem.findings)
        return set()
    after = _run(model)
    assert after is None or {name: array.shape for name, array in after.items()} == {
        name: array.shape for name, array in before.items()
    }
    return {"passed"}


def _lower(model: Model, before: Outputs) -> set[str]:
    """The flat text of a graph is read back, and gives the same numbers."""
    documents = graph_to_skriptnd(model)
    if len(documents) > 1 or model.graph.variables:
        return set()
    module = Library(model.library.dialect, None, SMALL).load(Source("flat.sknd", write(documents["main"])))
    assert module.sound, render(errors(module.findings)[0])
    composed = compose(module, limits=SMALL)
    assert composed.graph is not None, render(errors(composed.findings)[0])
    graph = restore_names(composed.graph, origins_of(model))
    after = _run(Model(graph, module.library))
    assert after is not None
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert array.shape == after[name].shape, name
        assert array.tobytes() == after[name].tobytes(), name
    return {"lowered"}
