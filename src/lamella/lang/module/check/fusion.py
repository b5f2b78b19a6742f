"""Fusion patterns against the operations that they speak of: E013."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from lamella.base.diagnostic import Diagnostic
from lamella.lang.module.annotations.reading import read_annotation
from lamella.lang.module.check.spots import spots_of
from lamella.lang.module.check.views import View, root_of
from lamella.lang.module.nodes import Member, Name, Operation
from lamella.lang.module.resolve.near import guess
from lamella.lang.module.rules.annotated import FUSION
from lamella.lang.module.words import SUGAR

FUSE = ("fuse", "fuse_required")
_NORMS = frozenset(("rmsnorm", "layernorm"))
_LINEAR = frozenset(("matmul", "linear"))
_SUMS = frozenset(("add", "bias_add"))
_ACTIVATIONS = frozenset(("relu", "relu2", "gelu", "silu", "sigmoid", "tanh", "swiglu", "geglu"))
PATTERNS: Mapping[str, tuple[frozenset[str], ...]] = MappingProxyType(
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


def check_fusion(view: View) -> Iterator[Diagnostic]:
    """Whether the operations of a statement are those that its `@fuse` names."""
    for spot in spots_of(view.module):
        for annotation in spot.annotations:
            if annotation.name in FUSE and spot.operations:
                arguments = read_annotation(annotation, {}, view.constants).arguments
                chain = [name_of(item, view) for item in spot.operations]
                for why, name, repair in _mistakes(arguments, chain):
                    yield FUSION.at(annotation.span, name=name, why=why, repair=repair)


def _mistakes(arguments: Mapping[str, object], chain: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    pattern, ops = arguments.get("pattern"), arguments.get("ops")
    has = f"the statement has {', '.join(chain)}"
    if isinstance(pattern, str):
        wanted = PATTERNS.get(pattern)
        if wanted is None:
            repair = guess(pattern, PATTERNS) or f"there are {', '.join(PATTERNS)}"
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


def name_of(operation: Operation, view: View) -> str:
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
