"""All annotations of the language, as data."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lamella.lang.module.annotations.nodes import (
    BESIDE,
    DECLARATION,
    DISTRIBUTION,
    IDENTITY,
    INSTANCE,
    NUMBERS,
    OPERATION,
    PARAMETER,
    PORT,
    REGIONS,
    RUNS,
    TENSORS,
    TRAINING,
    Kind,
    Parameter,
)
from lamella.lang.module.instantiate.nodes import Value

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


def _enum(name: str, choices: tuple[str, ...], default: str | None = None) -> Parameter:
    return Parameter(name, "word", default, choices, required=default is None)


def _int(name: str, default: Value = None, least: int = 0) -> Parameter:
    return Parameter(name, "int", default, least=least)


def _float(name: str, default: Value = None, least: float | None = 0.0) -> Parameter:
    return Parameter(name, "float", default, least=least)


def _flag(name: str, default: bool) -> Parameter:
    return Parameter(name, "bool", default)


def _text(name: str, required: bool = False) -> Parameter:
    return Parameter(name, "string", required=required)


_MEMORY = (
    Kind(
        "memory",
        "7.2.1",
        (*TENSORS, PORT, PARAMETER),
        TRAINING,
        (
            _enum("mode", MODES),
            Parameter("priority", "int", 0),
            _flag("prefetch", True),
            _flag("async", True),
        ),
    ),
    Kind(
        "checkpoint",
        "7.2.2",
        REGIONS,
        TRAINING,
        (
            _enum("granularity", ("full", "selective", "none"), "full"),
            Parameter("preserve", "names", ()),
        ),
    ),
    Kind(
        "lifetime",
        "7.2.3",
        TENSORS,
        BESIDE,
        (_enum("scope", SCOPES, "operation"), _text("start"), _text("end")),
    ),
)
_HOOKS = (
    Kind(
        "hook",
        "7.3.1",
        (*TENSORS, PORT),
        RUNS,
        (
            Parameter("point", "point", required=True),
            _enum("mode", ("observe", "modify", "replace"), "observe"),
            Parameter("priority", "int", 0),
        ),
        repeated=True,
    ),
    Kind(
        "adapter",
        "7.3.2",
        (OPERATION,),
        TRAINING,
        (
            _enum("type", ADAPTERS),
            _int("rank", 16, 1),
            _float("alpha", 32.0),
            _float("dropout", 0.0),
            Parameter("targets", "parts", ()),
            _int("length", 10, 1),
            _int("hidden_dim", None, 1),
            _int("bottleneck_dim", 64, 1),
            _enum("activation", ("relu", "gelu", "silu"), "relu"),
        ),
    ),
    Kind(
        "probe",
        "7.3.3",
        (*TENSORS, PORT),
        RUNS,
        (
            _text("name", required=True),
            _enum("capture", CAPTURES, "stats"),
            Parameter("condition", "condition"),
            _int("frequency", 1, 1),
        ),
        repeated=True,
    ),
)
_PRECISION = (
    Kind(
        "dtype", "7.4.1", (*TENSORS, PORT, PARAMETER), NUMBERS, (Parameter("type", "dtype", required=True),)
    ),
    Kind(
        "precision",
        "7.4.2",
        (OPERATION, PARAMETER),
        NUMBERS,
        (
            Parameter("compute", "dtype"),
            Parameter("accumulate", "dtype", "fp32"),
            Parameter("output", "dtype"),
            Parameter("policy", "policy", choices=tuple(POLICIES)),
            Parameter("storage", "dtype"),
        ),
    ),
    Kind(
        "scaling",
        "7.4.3",
        (OPERATION, PARAMETER),
        NUMBERS,
        (
            _enum("strategy", STRATEGIES),
            _int("history_len", 16, 1),
            _int("update_interval", 1, 1),
            Parameter("block_size", "pair", (32, 32)),
            _float("margin", 0.0),
        ),
    ),
    Kind("recipe", "7.4.4", (DECLARATION,), NUMBERS, (Parameter("name", "recipe", required=True),)),
)
_FUSE = (
    _text("pattern"),
    Parameter("ops", "names"),
    _enum("scope", ("local", "global"), "local"),
)
_FUSION = (
    Kind("fuse", "7.5.1", (OPERATION,), BESIDE, _FUSE, excludes=("nofuse", "fuse_required")),
    Kind("fuse_required", "7.5.1", (OPERATION,), BESIDE, _FUSE, excludes=("nofuse",)),
    Kind("nofuse", "7.5.2", TENSORS, BESIDE, (_text("reason"),)),
    Kind(
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
    Kind(
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
    Kind(
        "partition",
        "7.6.2",
        (*REGIONS, IDENTITY),
        DISTRIBUTION,
        (
            Parameter("stage", "int", required=True, least=0),
            _flag("micro_batch", True),
            _flag("recompute", False),
        ),
    ),
    Kind(
        "comm",
        "7.6.3",
        TENSORS,
        DISTRIBUTION,
        (
            _enum("op", COLLECTIVES),
            Parameter("group", "string", "default"),
            _flag("async", True),
            _int("bucket_size", None, 1),
        ),
    ),
)
_DEBUGGING = (
    Kind(
        "assert",
        "7.7.1",
        (*TENSORS, PORT),
        RUNS,
        (
            Parameter("condition", "condition", required=True),
            _text("message"),
            _flag("enabled", True),
        ),
        repeated=True,
    ),
    Kind(
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
    Kind("trace", "7.7.3", REGIONS, RUNS, (_enum("level", ("ops", "tensors", "values"), "ops"),)),
)
_TRAINING = (
    Kind("frozen", "7.8.1", (PARAMETER, INSTANCE), TRAINING, excludes=("trainable",)),
    Kind(
        "trainable",
        "7.8.2",
        (PARAMETER, INSTANCE),
        TRAINING,
        (_float("lr_scale", 1.0), _float("wd_scale", 1.0), _float("grad_clip")),
    ),
    Kind(
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
    Kind("alias", "5.11.2", TENSORS, BESIDE, excludes=("noalias",)),
    Kind("noalias", "5.11.2", TENSORS, NUMBERS),
    Kind("barrier", "5.11.5", TENSORS, BESIDE),
)
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        kind.name: kind
        for group in (_MEMORY, _HOOKS, _PRECISION, _FUSION, _SHARDING, _DEBUGGING, _TRAINING, _ORDER)
        for kind in group
    }
)
"""Every annotation by its name."""
