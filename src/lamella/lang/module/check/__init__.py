"""What is wrong with a document, before any of its declarations has values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Mapping as abc_Mapping
from itertools import pairwise
from types import MappingProxyType

from lamella.base.diagnostic import ERROR, Diagnostic
from lamella.lang.module.annotations.arguments import read_annotation
from lamella.lang.module.check.annotated import check_annotations
from lamella.lang.module.check.declarations import check_declaration, check_presets
from lamella.lang.module.check.names import check_names
from lamella.lang.module.check.settings import check_settings
from lamella.lang.module.check.views import (
    DeclarationView,
    find_module,
    flows_in,
    own_graph,
    root_of,
    spots_of,
    view_of,
)
from lamella.lang.module.nodes import (
    Annotation,
    Direct,
    Document,
    Field,
    Flow,
    Fuse,
    Integer,
    Mapping,
    Member,
    Module,
    Name,
    Operation,
    Path,
    PathPart,
    Spec,
    Split,
    SplitPart,
    TiedType,
    Transform,
)
from lamella.lang.module.resolve.nodes import Scope
from lamella.lang.module.rules import constants
from lamella.lang.module.rules import mappings as rules
from lamella.lang.module.rules.annotated import FUSION, STAGES
from lamella.lang.module.suggest import Suggestions, suggest
from lamella.lang.module.words import SUGAR
from lamella.lang.module.write import write_path

__all__ = ["check", "settle"]


def check(document: Document, scope: Scope | None = None) -> Iterator[Diagnostic]:
    """Every finding of the rules that need no values; names of other files are known with a scope only."""
    yield from settle(_check(document, scope), document.lost)


def _check(document: Document, scope: Scope | None) -> Iterator[Diagnostic]:
    regions = StageRegions()
    for item in document.items:
        yield from check_declaration(item)
        if isinstance(item, Module):
            view = view_of(item, scope)
            yield from _check_module(view)
            yield from check_stages(view, regions)
    yield from check_presets(document, scope)
    yield from check_settings(document)


def _check_module(view: DeclarationView) -> Iterator[Diagnostic]:
    for group in (check_names, check_annotations, check_fusion, check_mappings):
        yield from group(view)


# --- which of several findings in one place is said ---------------------------------------------------------


ORDER = (
    ("E001",),
    ("E009", "E023", "E024"),
    ("E002", "E014"),
    ("E012", "E011"),
    ("E026", "E027"),
    ("E016",),
    ("E003",),
    ("E017",),
    ("E007",),
    ("E004",),
    ("E015",),
    ("E013", "E008"),
    ("E005", "E006", "E018", "E019", "E020", "E021", "E022", "E025"),
)
"""Errors from the strongest to the weakest: what comes first explains what comes later."""
UNKNOWN = "E002"
NAMED = frozenset((UNKNOWN, "E005", "E006", "E010", "E011", "E012", "E014"))
"""Codes that say of a name that nothing declares it, or that something lacks it."""
_QUOTED = re.compile(r"'([^']+)'")
_RANKS = {code: rank for rank, codes in enumerate(ORDER) for code in codes}


def rank(finding: Diagnostic) -> int:
    """The place of a finding in the order; codes of our own come behind the published ones, warnings last."""
    if finding.severity != ERROR:
        return len(ORDER) + 1
    return _RANKS.get(finding.code, len(ORDER))


def is_of(finding: Diagnostic, names: Collection[str]) -> bool:
    """Whether a finding says of one of these names that nothing declares it, or that something lacks it."""
    return finding.code in NAMED and not set(_QUOTED.findall(finding.message)).isdisjoint(names)


def settle(findings: Iterable[Diagnostic], lost: Collection[str] = ()) -> list[Diagnostic]:
    """Of the errors in one place the strongest, each finding once.

    `lost` are names in lines that could not be read: that nothing declares them follows from that.
    """
    kept: dict[tuple[object, ...], Diagnostic] = {}
    for item in findings:
        if is_of(item, lost):
            continue
        place = (item.span.source.name, item.span.start, item.span.end)
        key = place if item.severity == ERROR else (*place, item.code)
        if key not in kept or rank(item) < rank(kept[key]):
            kept[key] = item
    return list(kept.values())


# --- weight mappings against the parameters that a declaration has: E010 ------------------------------------


TRANSFORMS = (
    "transpose",
    "neg",
    "negate_exp",
    "log_negate",
    "exp",
    "log",
    "squeeze_1",
    "unsqueeze_1",
    "half_to_interleaved",
    "interleaved_to_half",
    "stack",
)
"""The functions that may stand behind `fn:`."""
STACK = "stack"
ARCHITECTURE, PARAMETERS = "architecture", "param_mapping"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_INDEX = re.compile(r"\[[^\]]*\]")
_Part = Direct | Transform | SplitPart | TiedType


def check_mappings(view: DeclarationView) -> Iterator[Diagnostic]:
    """What is wrong with the entries of `hf_config:`, `hf_mapping:` and `hf_export:` whatever the values are."""
    module = view.module
    if module.hf_config is not None:
        yield from _check_config(module.hf_config, view)
    paths = _Paths(view)
    for entries in (module.hf_mapping, module.hf_export):
        yield from _check_twice(entries or ())
        for entry in entries or ():
            yield from _check_entry(entry, paths)


# --- hf_config ----------------------------------------------------------------------------------------------


def _check_config(fields: tuple[Field, ...], view: DeclarationView) -> Iterator[Diagnostic]:
    named = view.module.abstract or any(item.name == ARCHITECTURE for item in _config_fields(view))
    if view.whole and not named:
        yield constants.MISSING_SECTION.at(
            fields[0].span if fields else view.module.span,
            module=view.module.name,
            section="architecture in its hf_config section",
            repair='name the class that config.json names: architecture: "…"',
        )
    for item in fields:
        if item.name == PARAMETERS and isinstance(item.value, tuple):
            for entry in item.value:
                if view.whole and entry.name not in view.config:
                    repair = suggest(entry.name, view.config)
                    yield rules.PARAMETER.at(entry.span, name=entry.name, repair=repair)


def _config_fields(view: DeclarationView) -> list[Field]:
    return [item for module, _ in view.lineage for item in module.hf_config or ()]


# --- entries ------------------------------------------------------------------------------------------------


def _check_twice(entries: tuple[Mapping, ...]) -> Iterator[Diagnostic]:
    """Parameters with two entries; entries with conditions may exclude each other."""
    seen: set[str] = set()
    for entry in entries:
        if entry.condition is None:
            path = _PLACEHOLDER.sub("{}", write_path(entry.path))
            if path in seen:
                yield rules.TWICE.at(entry.path.span, path=write_path(entry.path))
            seen.add(path)


def _check_entry(entry: Mapping, paths: _Paths) -> Iterator[Diagnostic]:
    yield from paths.check(entry.path)
    left = {item for part in entry.path.parts for item in part.indices if isinstance(item, str)}
    for part in _tensors_of(entry.spec):
        yield from _check_part(part, left)
        if isinstance(part, TiedType):
            yield from paths.check(part.path)
    if isinstance(entry.spec, Split):
        yield from _check_ranges(entry, entry.spec)


def _check_part(part: _Part, left: set[str]) -> Iterator[Diagnostic]:
    """Functions are known, and placeholders stand on both sides."""
    function = part.function if isinstance(part, Transform) else ""
    if function and function not in TRANSFORMS:
        repair = suggest(function, TRANSFORMS) or f"there are {', '.join(TRANSFORMS)}"
        yield rules.FUNCTION.at(part.span, name=function, repair=repair)
    text = write_path(part.path) if isinstance(part, TiedType) else part.name
    right = set(_PLACEHOLDER.findall(text))
    free = right - left
    if function == STACK:
        if not free:
            yield rules.FUNCTION_STACK.at(part.span, name=text)
        free = free if len(free) > 1 else set()
    lost = set() if isinstance(part, TiedType) else left - right
    yield from (rules.PLACEHOLDER.at(part.span, name=name) for name in sorted(free | lost))


def _tensors_of(spec: Spec) -> tuple[_Part, ...]:
    """The tensors of a checkpoint that an entry speaks of."""
    if isinstance(spec, Fuse):
        return spec.sources
    return spec.parts if isinstance(spec, Split) else (spec,)


def _check_ranges(entry: Mapping, split: Split) -> Iterator[Diagnostic]:
    """Ranges that are numbers follow each other without gaps."""
    path = write_path(entry.path)
    for part in split.parts:
        if (
            isinstance(part.low, Integer)
            and isinstance(part.high, Integer)
            and part.high.value <= part.low.value
        ):
            why = f"hold nothing in [{part.low.value}, {part.high.value}]"
            yield rules.RANGES.at(part.span, path=path, why=why)
            return
    if split.parts and isinstance(split.parts[0].low, Integer) and split.parts[0].low.value != 0:
        why = f"begin at {split.parts[0].low.value}, not at 0"
        yield rules.RANGES.at(split.parts[0].span, path=path, why=why)
    for first, second in pairwise(split.parts):
        end, begin = first.high, second.low
        if isinstance(end, Integer) and isinstance(begin, Integer) and end.value != begin.value:
            kind = "overlap" if begin.value < end.value else "leave a gap"
            why = f"{kind}: one ends at {end.value}, the next begins at {begin.value}"
            yield rules.RANGES.at(second.span, path=path, why=why)


# --- paths --------------------------------------------------------------------------------------------------


class _Paths:
    """The parameters of a declaration and of all below it, looked up by paths."""

    def __init__(self, view: DeclarationView) -> None:
        self._view = view
        tensors = (param for module, _ in view.lineage for param in module.tensors)
        self._added = {_bare(write_path(param.path)) for param in tensors}
        self._views: dict[int, DeclarationView] = {}
        self._near: dict[int, Suggestions] = {}

    def check(self, path: Path) -> Iterator[Diagnostic]:
        """A path leads to a parameter; one that was added from above is found by its text."""
        text = write_path(path)
        repair = None if _bare(text) in self._added else self._miss(path.parts)
        if repair is not None:
            yield rules.UNKNOWN_PATH.at(path.span, model=self._view.module.name, path=text, repair=repair)

    def _miss(self, parts: tuple[PathPart, ...]) -> str | None:
        """What is meant instead of the first part of a path that leads nowhere; None where all parts lead on."""
        current: DeclarationView | None = self._view
        for number, part in enumerate(parts):
            if current is None or not current.whole:
                return None
            if part.name not in current.params:
                return self._nearness(current).suggest(part.name)
            child = current.child(part.name)
            last = number == len(parts) - 1
            if child is None or last:
                is_tensor = child is None and last
                return (
                    None if is_tensor else f"'{part.name}' is {'a tensor' if child is None else 'no tensor'}"
                )
            inner = find_module(child[0].module, child[1])
            current = None if inner is None else self._below(*inner)
        return None

    def _below(self, module: Module, scope: Scope | None) -> DeclarationView:
        if id(module) not in self._views:
            self._views[id(module)] = view_of(module, scope)
        return self._views[id(module)]

    def _nearness(self, view: DeclarationView) -> Suggestions:
        if id(view) not in self._near:
            self._near[id(view)] = Suggestions(lambda: view.params)
        return self._near[id(view)]


def _bare(path: str) -> str:
    return _INDEX.sub("[]", path)


# --- checkpointed regions against the stages of a pipeline: E025 --------------------------------------------


CHECKPOINT, PARTITION = "checkpoint", "partition"
DEEPEST = 50
"""Calls within calls that are followed."""
_Stages = frozenset[int]


def check_stages(view: DeclarationView, regions: StageRegions) -> Iterator[Diagnostic]:
    """Regions that are recomputed as one but belong to several stages."""
    module = view.module
    graph = () if module.forward is None else module.forward.annotations
    whole = _checkpoint((*module.annotations, *graph), view)
    if whole is not None:
        yield from _report(whole, regions.of_module(view, 0))
    for flow in flows_in(own_graph(module)):
        found = _checkpoint((*flow.annotations, *_inner(flow)), view)
        if found is not None:
            yield from _report(found, regions.of_flow(flow, view, 0))
    for param in module.tensors:
        found = _checkpoint(param.annotations, view)
        child = view.child(param.path.parts[0].name)
        inner = None if child is None else find_module(child[0].module, child[1])
        if found is not None and inner is not None:
            yield from _report(found, regions.of_module(view_of(*inner), 1))


def _report(annotation: Annotation, stages: _Stages) -> Iterator[Diagnostic]:
    if len(stages) > 1:
        yield STAGES.at(annotation.span, stages=", ".join(map(str, sorted(stages))))


def _inner(flow: Flow) -> list[Annotation]:
    return [item for target in flow.targets for item in target.annotations]


def _checkpoint(annotations: Sequence[Annotation], view: DeclarationView) -> Annotation | None:
    """The annotation that makes a region; one of granularity `none` makes none."""
    for item in annotations:
        if item.name == CHECKPOINT:
            level = read_annotation(item, {}, view.constants).arguments.get("granularity")
            return None if level == "none" else item
    return None


def _stage(annotations: Sequence[Annotation], view: DeclarationView) -> _Stages:
    for item in annotations:
        if item.name == PARTITION:
            stage = read_annotation(item, {}, view.constants).arguments.get("stage")
            return frozenset((stage,)) if isinstance(stage, int) else frozenset()
    return frozenset()


class StageRegions:
    """The stages of statements and modules, each looked up once."""

    def __init__(self) -> None:
        self._modules: dict[int, _Stages] = {}

    def of_module(self, view: DeclarationView, depth: int) -> _Stages:
        """All stages that a declaration speaks of, in its own graph and in what it calls."""
        key = id(view.module)
        if key not in self._modules:
            self._modules[key] = frozenset()  # what a module that contains itself adds is already counted
            graph = () if view.module.forward is None else view.module.forward.annotations
            found = _stage((*view.module.annotations, *graph), view)
            for flow in flows_in(own_graph(view.module)):
                found |= self.of_flow(flow, view, depth)
            self._modules[key] = found
        return self._modules[key]

    def of_flow(self, flow: Flow, view: DeclarationView, depth: int) -> _Stages:
        """The stages of a statement: its own, those of its operations, those inside what they call."""
        found = _stage((*flow.annotations, *_inner(flow)), view)
        for step in flow.steps:
            if isinstance(step, Operation):
                found |= _stage(step.annotations, view) | self._of_call(step, view, depth)
        return found

    def _of_call(self, step: Operation, view: DeclarationView, depth: int) -> _Stages:
        called = _callee_module(step, view)
        callee = step.callee
        param = view.params.get(callee.id) if isinstance(callee, Name) else None
        found = frozenset() if param is None else _stage(param[0].annotations, view)
        if called is None or depth >= DEEPEST:
            return found
        return found | self.of_module(view_of(*called), depth + 1)


def _callee_module(operation: Operation, view: DeclarationView) -> tuple[Module, Scope | None] | None:
    """The declaration that an operation calls, where it is a module that can be found."""
    root = root_of(operation.callee)
    child = view.child(root.id) if isinstance(root, Name) else None
    if child is not None:
        if isinstance(operation.callee, Member):
            return None
        return find_module(child[0].module, child[1])
    name = operation.callee.id if isinstance(operation.callee, Name) else operation.callee.span.text
    return find_module(name, view.scope)


# --- fusion patterns against the operations that they speak of: E013 ----------------------------------------


FUSE = ("fuse", "fuse_required")
_NORMS = frozenset(("rmsnorm", "layernorm"))
_LINEAR = frozenset(("matmul", "linear"))
_SUMS = frozenset(("add", "bias_add"))
_ACTIVATIONS = frozenset(("relu", "relu2", "gelu", "silu", "sigmoid", "tanh", "swiglu", "geglu"))
PATTERNS: abc_Mapping[str, tuple[frozenset[str], ...]] = MappingProxyType(
    {
        "residual_norm": (frozenset(("add",)), _NORMS),
        "norm_linear": (_NORMS, _LINEAR),
        "gated_mlp": (frozenset(("split",)), frozenset(("swiglu", "geglu", "silu_mul"))),
        "attention_softmax": (frozenset(("scale",)), frozenset(("softmax",))),
        "bias_activation": (_SUMS, _ACTIVATIONS),
        "linear_bias_act": (_LINEAR, _SUMS, _ACTIVATIONS),
    }
)
"""The operations of each pattern, one behind the other; each may be one of several."""


def check_fusion(view: DeclarationView) -> Iterator[Diagnostic]:
    """Whether the operations of a statement are those that its `@fuse` names."""
    for spot in spots_of(view.module):
        for annotation in spot.annotations:
            if annotation.name in FUSE and spot.operations:
                arguments = read_annotation(annotation, {}, view.constants).arguments
                chain = [name_of(item, view) for item in spot.operations]
                for why, name, repair in _mistakes(arguments, chain):
                    yield FUSION.at(annotation.span, name=name, why=why, repair=repair)


def _mistakes(arguments: abc_Mapping[str, object], chain: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    pattern, ops = arguments.get("pattern"), arguments.get("ops")
    has = f"the statement has {', '.join(chain)}"
    if isinstance(pattern, str):
        wanted = PATTERNS.get(pattern)
        if wanted is None:
            repair = suggest(pattern, PATTERNS) or f"there are {', '.join(PATTERNS)}"
            yield "there is no pattern of that name", pattern, repair
        elif not holds(chain, wanted):
            yield has, pattern, f"it fuses {', '.join(_shown(item) for item in wanted)}"
    if isinstance(ops, tuple):
        names = [plain(str(item)) for item in ops]
        if not holds(chain, [frozenset((name,)) for name in names]):
            yield has, ", ".join(map(str, ops)), "name the operations of the statement in their order"


def _shown(names: frozenset[str]) -> str:
    return " or ".join(sorted(names - {"linear"}))


def holds(chain: Sequence[str], wanted: Sequence[frozenset[str]]) -> bool:
    """Whether operations stand one behind the other somewhere in a chain."""
    starts = range(len(chain) - len(wanted) + 1)
    return any(all(chain[start + number] in item for number, item in enumerate(wanted)) for start in starts)


def name_of(operation: Operation, view: DeclarationView) -> str:
    """What an operation is called by patterns: the primitive, or the module of an instance."""
    root = root_of(operation.callee)
    child = view.child(root.id) if isinstance(root, Name) else None
    if child is not None:
        return plain(child[0].module)
    callee = operation.callee
    return plain(callee.field if isinstance(callee, Member) else callee.span.text)


def plain(name: str) -> str:
    """A name as patterns write it: without its path, a module as the primitive that it is."""
    last = name.rpartition(".")[2]
    last = SUGAR.get(last, last).lower()
    return "matmul" if last in _LINEAR else last
