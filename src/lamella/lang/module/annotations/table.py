"""All annotations of the language, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.lang.module.instantiate.nodes import Value
from lamella.lang.module.nodes import Expr

# --- the form of the table: what an annotation may say and where it may stand -------------------------------


ArgumentValue: TypeAlias = "Value | Expr"
"""The value of an argument; a condition stays an expression."""

OPERATION, IDENTITY, PORT = "an operation", "an identity", "an input or output"
PARAMETER, INSTANCE = "a tensor parameter", "an instance"
DECLARATION, GRAPH = "a declaration", "a graph"
TENSORS = (OPERATION, IDENTITY)
REGIONS = (OPERATION, INSTANCE, DECLARATION, GRAPH)

NUMBERS, BESIDE, RUNS, TRAINING, DISTRIBUTION = "numbers", "beside", "runs", "training", "distribution"
"""Where the effect of an annotation shows: in the numbers of the graph, in what is kept beside the graph, when it runs
with observers, in training, on several devices."""


@dataclass(frozen=True, slots=True)
class AnnotationParameter:
    """An argument that an annotation takes; `choices` are the words of an enumeration."""

    name: str
    kind: str
    default: Value = None
    choices: tuple[str, ...] = ()
    required: bool = False
    least: float | None = None
    """The smallest number that makes sense."""

    @property
    def optional(self) -> bool:
        """Whether None may be given."""
        return self.default is None and not self.required


@dataclass(frozen=True, slots=True)
class AnnotationKind:
    """One annotation of the language: its arguments, its places, and what it cannot stand beside."""

    name: str
    section: str
    places: tuple[str, ...]
    effect: str
    parameters: tuple[AnnotationParameter, ...] = ()
    excludes: tuple[str, ...] = ()
    repeated: bool = False
    """Whether it may stand several times in one place."""

    def find(self, name: str) -> AnnotationParameter | None:
        """The parameter of that name."""
        return next((item for item in self.parameters if item.name == name), None)


@dataclass(frozen=True, slots=True)
class AnnotationArguments:
    """The arguments of an annotation, those that are left out with their defaults, and what is wrong with them.

    An argument that depends on values which are not known yet is missing.
    """

    arguments: Mapping[str, ArgumentValue]
    findings: tuple[Diagnostic, ...] = ()


MODES = ("save", "recompute", "temporary", "pin", "offload", "stream")
PARAMETER_MODES = ("pin", "offload", "stream")
SCOPES = ("operation", "sublayer", "block", "layer", "global")
ADAPTERS = ("lora", "ia3", "prefix", "prompt", "adapter")
CAPTURES = ("stats", "histogram", "sample", "full", "grad_stats", "grad_full")
STRATEGIES = ("per_tensor", "per_channel", "per_token", "per_block", "delayed", "dynamic")
SHARDS = ("column", "row", "replicated", "expert", "sequence", "batch", "head")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "recv", "broadcast")
HOOK_POINTS = (
    "AfterEmbedding",
    "AfterQKVProjection",
    "AfterQKNorm",
    "BeforeAttention",
    "AfterAttention",
    "AfterAttnOutProjection",
    "BeforeResidualAdd",
    "AfterResidualAdd",
    "AfterMLPUpProjection",
    "AfterMLPActivation",
    "AfterMLPDownProjection",
    "AfterRouterProjection",
    "BeforeExpertCompute",
    "AfterExpertCompute",
    "BeforeLMHead",
    "AfterLMHead",
)
"""The hook points of the specification; names of one's own are as good."""
POLICIES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "fp32": ("fp32", "fp32", "fp32"),
        "bf16": ("bf16", "fp32", "bf16"),
        "fp16": ("fp16", "fp32", "fp16"),
        "fp8_hybrid": ("fp8_e4m3", "fp32", "bf16"),
        "fp8_pure": ("fp8_e4m3", "fp32", "fp8_e4m3"),
        "fp4": ("fp4_e2m1", "fp32", "bf16"),
    }
)
"""Named policies of `@precision`: the types of computing, of accumulating and of the output."""


def _enum(name: str, choices: tuple[str, ...], default: str | None = None) -> AnnotationParameter:
    return AnnotationParameter(name, "word", default, choices, required=default is None)


def _int(name: str, default: Value = None, least: int = 0) -> AnnotationParameter:
    return AnnotationParameter(name, "int", default, least=least)


def _float(name: str, default: Value = None, least: float | None = 0.0) -> AnnotationParameter:
    return AnnotationParameter(name, "float", default, least=least)


def _flag(name: str, default: bool) -> AnnotationParameter:
    return AnnotationParameter(name, "bool", default)


def _text(name: str, required: bool = False) -> AnnotationParameter:
    return AnnotationParameter(name, "string", required=required)


_MEMORY = (
    AnnotationKind(
        "memory",
        "7.2.1",
        (*TENSORS, PORT, PARAMETER),
        TRAINING,
        (
            _enum("mode", MODES),
            AnnotationParameter("priority", "int", 0),
            _flag("prefetch", True),
            _flag("async", True),
        ),
    ),
    AnnotationKind(
        "checkpoint",
        "7.2.2",
        REGIONS,
        TRAINING,
        (
            _enum("granularity", ("full", "selective", "none"), "full"),
            AnnotationParameter("preserve", "names", ()),
        ),
    ),
    AnnotationKind(
        "lifetime",
        "7.2.3",
        TENSORS,
        BESIDE,
        (_enum("scope", SCOPES, "operation"), _text("start"), _text("end")),
    ),
)
_HOOKS = (
    AnnotationKind(
        "hook",
        "7.3.1",
        (*TENSORS, PORT),
        RUNS,
        (
            AnnotationParameter("point", "point", required=True),
            _enum("mode", ("observe", "modify", "replace"), "observe"),
            AnnotationParameter("priority", "int", 0),
        ),
        repeated=True,
    ),
    AnnotationKind(
        "adapter",
        "7.3.2",
        (OPERATION,),
        TRAINING,
        (
            _enum("type", ADAPTERS),
            _int("rank", 16, 1),
            _float("alpha", 32.0),
            _float("dropout", 0.0),
            AnnotationParameter("targets", "parts", ()),
            _int("length", 10, 1),
            _int("hidden_dim", None, 1),
            _int("bottleneck_dim", 64, 1),
            _enum("activation", ("relu", "gelu", "silu"), "relu"),
        ),
    ),
    AnnotationKind(
        "probe",
        "7.3.3",
        (*TENSORS, PORT),
        RUNS,
        (
            _text("name", required=True),
            _enum("capture", CAPTURES, "stats"),
            AnnotationParameter("condition", "condition"),
            _int("frequency", 1, 1),
        ),
        repeated=True,
    ),
)
_PRECISION = (
    AnnotationKind(
        "dtype",
        "7.4.1",
        (*TENSORS, PORT, PARAMETER),
        NUMBERS,
        (AnnotationParameter("type", "dtype", required=True),),
    ),
    AnnotationKind(
        "precision",
        "7.4.2",
        (OPERATION, PARAMETER),
        NUMBERS,
        (
            AnnotationParameter("compute", "dtype"),
            AnnotationParameter("accumulate", "dtype", "fp32"),
            AnnotationParameter("output", "dtype"),
            AnnotationParameter("policy", "policy", choices=tuple(POLICIES)),
            AnnotationParameter("storage", "dtype"),
        ),
    ),
    AnnotationKind(
        "scaling",
        "7.4.3",
        (OPERATION, PARAMETER),
        NUMBERS,
        (
            _enum("strategy", STRATEGIES),
            _int("history_len", 16, 1),
            _int("update_interval", 1, 1),
            AnnotationParameter("block_size", "pair", (32, 32)),
            _float("margin", 0.0),
        ),
    ),
    AnnotationKind(
        "recipe", "7.4.4", (DECLARATION,), NUMBERS, (AnnotationParameter("name", "recipe", required=True),)
    ),
)
_FUSE = (
    _text("pattern"),
    AnnotationParameter("ops", "names"),
    _enum("scope", ("local", "global"), "local"),
)
_FUSION = (
    AnnotationKind("fuse", "7.5.1", (OPERATION,), BESIDE, _FUSE, excludes=("nofuse", "fuse_required")),
    AnnotationKind("fuse_required", "7.5.1", (OPERATION,), BESIDE, _FUSE, excludes=("nofuse",)),
    AnnotationKind("nofuse", "7.5.2", TENSORS, BESIDE, (_text("reason"),)),
    AnnotationKind(
        "kernel",
        "7.5.3",
        (OPERATION,),
        BESIDE,
        (
            _text("name", required=True),
            _flag("autotune", True),
            _int("workspace"),
            _flag("fallback", True),
        ),
    ),
)
_SHARDING = (
    AnnotationKind(
        "shard",
        "7.6.1",
        (*TENSORS, PORT, PARAMETER),
        DISTRIBUTION,
        (
            _enum("strategy", SHARDS),
            _int("tp_size", None, 1),
            _int("ep_size", None, 1),
            _int("pp_size", None, 1),
            _flag("async_comm", True),
            _flag("reduce_scatter", True),
        ),
    ),
    AnnotationKind(
        "partition",
        "7.6.2",
        (*REGIONS, IDENTITY),
        DISTRIBUTION,
        (
            AnnotationParameter("stage", "int", required=True, least=0),
            _flag("micro_batch", True),
            _flag("recompute", False),
        ),
    ),
    AnnotationKind(
        "comm",
        "7.6.3",
        TENSORS,
        DISTRIBUTION,
        (
            _enum("op", COLLECTIVES),
            AnnotationParameter("group", "string", "default"),
            _flag("async", True),
            _int("bucket_size", None, 1),
        ),
    ),
)
_DEBUGGING = (
    AnnotationKind(
        "assert",
        "7.7.1",
        (*TENSORS, PORT),
        RUNS,
        (
            AnnotationParameter("condition", "condition", required=True),
            _text("message"),
            _flag("enabled", True),
        ),
        repeated=True,
    ),
    AnnotationKind(
        "profile",
        "7.7.2",
        REGIONS,
        RUNS,
        (
            _text("name", required=True),
            _flag("memory", False),
            _flag("cuda_events", True),
            _flag("nvtx", True),
        ),
        repeated=True,
    ),
    AnnotationKind("trace", "7.7.3", REGIONS, RUNS, (_enum("level", ("ops", "tensors", "values"), "ops"),)),
)
_TRAINING = (
    AnnotationKind("frozen", "7.8.1", (PARAMETER, INSTANCE), TRAINING, excludes=("trainable",)),
    AnnotationKind(
        "trainable",
        "7.8.2",
        (PARAMETER, INSTANCE),
        TRAINING,
        (_float("lr_scale", 1.0), _float("wd_scale", 1.0), _float("grad_clip")),
    ),
    AnnotationKind(
        "gradient",
        "7.8.3",
        (*TENSORS, PORT, PARAMETER),
        TRAINING,
        (
            _enum("mode", ("compute", "skip", "accumulate", "checkpoint"), "compute"),
            _float("scale", 1.0, None),
            _float("clip"),
        ),
    ),
)
_ORDER = (
    AnnotationKind("alias", "5.11.2", TENSORS, BESIDE, excludes=("noalias",)),
    AnnotationKind("noalias", "5.11.2", TENSORS, NUMBERS),
    AnnotationKind("barrier", "5.11.5", TENSORS, BESIDE),
)
KINDS: Mapping[str, AnnotationKind] = MappingProxyType(
    {
        kind.name: kind
        for group in (_MEMORY, _HOOKS, _PRECISION, _FUSION, _SHARDING, _DEBUGGING, _TRAINING, _ORDER)
        for kind in group
    }
)
"""Every annotation by its name."""
