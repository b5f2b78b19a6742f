"""What the functions of the API take beyond their arguments; written by `make docs` from the table.

A type checker and an editor read the classes, `help` and notebooks the signatures that `documented` makes of them.
"""

# ruff: noqa: E501
# fmt: off

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from lamella.base.limits import Limits

if TYPE_CHECKING:
    from lamella.base.arrays import Array


class LoadOptions(TypedDict, total=False):
    """The options of `lamella.load`."""

    language: Literal["module", "nac", "nem", "skriptnd", "tensor", "onnx"] | None
    """Read the file as this language, whatever its ending."""
    limits: Limits | None
    """Raise or lower one limit."""
    root: str | Path | None
    """Files that FILE names lie below this folder; by default the folder of FILE."""
    device: str | None
    """NEM: the target device, a shipped name such as npm_lite or a .nem file."""
    model: str | None
    """Which graph or declaration of the file; by default the first."""
    config: Mapping[str, object] | None
    """The value of an attribute, a generic type, or a config parameter."""
    preset: str | None
    """Module DSL: a named set of config values of the file."""
    cache: int | None
    """Module DSL: a model that is called again for the next tokens, with room for N of them."""
    architecture: str | Path | None
    """Hugging Face: read the folder as the model of this file, not as one of the library."""
    via: Literal["module", "torch"] | None
    """Hugging Face: through the Module DSL alone, or through transformers and torch.export; by default the second where no model of the library is the folder's."""
    unused: str | Sequence[str] | None
    """Hugging Face: tensors of a checkpoint that may stay unused, such as 'vision.*'."""
    dialect: Literal["specification", "newer"] | None
    """SkriptND: which library gives operators their meaning; by default the specification's."""
    keep: str | Sequence[str] | None
    """SkriptND: take this operator whole; by default those of the library."""
    decompose: str | Sequence[str] | None
    """SkriptND: replace this operator by its composition, or all of them."""
    shape: Mapping[str, int] | None
    """Extents that the model leaves open."""
    weights: str | Path | None
    """A .safetensors file, a folder of .dat files or a Hugging Face folder; by default what lies by the model."""
    dtype: Literal["f32", "f64"] | None
    """Compute real numbers in this type."""
    contents: Mapping[str, Array] | None
    """ONNX: arrays of inputs that must be known before the run. Module DSL, Hugging Face: of inputs that may be missing."""


class CheckOptions(TypedDict, total=False):
    """The options of `lamella.check`."""

    limits: Limits | None
    """Raise or lower one limit."""
    root: str | Path | None
    """Files that FILE names lie below this folder; by default the folder of FILE."""
    device: str | None
    """NEM: the target device, a shipped name such as npm_lite or a .nem file."""
    model: str | None
    """Which graph or declaration of the file; by default the first."""
    config: Mapping[str, object] | None
    """The value of an attribute, a generic type, or a config parameter."""
    preset: str | None
    """Module DSL: a named set of config values of the file."""
    architecture: str | Path | None
    """Hugging Face: read the folder as the model of this file, not as one of the library."""
    unused: str | Sequence[str] | None
    """Hugging Face: tensors of a checkpoint that may stay unused, such as 'vision.*'."""
    dialect: Literal["specification", "newer"] | None
    """SkriptND: which library gives operators their meaning; by default the specification's."""
    keep: str | Sequence[str] | None
    """SkriptND: take this operator whole; by default those of the library."""
    decompose: str | Sequence[str] | None
    """SkriptND: replace this operator by its composition, or all of them."""
    shape: Mapping[str, int] | None
    """Extents that the model leaves open."""
    weights: str | Path | None
    """A .safetensors file, a folder of .dat files or a Hugging Face folder; by default what lies by the model."""
    types: Mapping[str, str] | None
    """NAC: what an input is, where the file does not say."""
    lock: bool | None
    """Module DSL: write module.lock beside FILE, with what its imports lead to."""
    backend: Literal["reference", "cpu", "cuda", "interpreter", "nacvm", "npu"] | None
    """How to run it. reference: graphs with NumPy, straight from the formulas; cpu: kernels as machine code, through LLVM; cuda: kernels on an NVIDIA GPU, through its driver; interpreter: kernels by the letter of the tensor language; nacvm: NAC instructions and their memory schedule; npu: plans and bound streams, bit by bit; graphs by their plans."""


class CompileOptions(LoadOptions, total=False):
    """The options of `lamella.compile`."""

    precision: Literal["f32", "bf16", "w8", "w4", "fp8", "int8"] | None
    """Compute products with weights in this precision: weights of 8 or 4 bits, or both factors narrow."""
    tune: bool | None
    """On a GPU: measure several kernels for each product, cuBLASLt too, and take the fastest; choices are kept."""
    tune_seconds: float | None
    """How long --tune may measure, for each model; 30 seconds by default, 0 takes what was kept alone."""
    order: str | None
    """NEM: another legal order of the tasks."""
    types: Mapping[str, str] | None
    """NAC: what an input is, where the file does not say."""
    strict_backend: bool | None
    """An error where an operation does not run on the backend that was asked for, or has no kernel."""
    threads: int | None
    """How many threads run the work-groups of kernels; by default as many as there are processors."""
    quantized: bool | None
    """SkriptND: apply the quantisation that the model describes."""
    kernel: str | None
    """Tensor language: the one kernel to run; by default the only one."""
    groups: int | Sequence[int] | None
    """Tensor language: how many work-groups are launched, along x or along x, y and z; 1 by default."""
    check_bounds: bool | None
    """Kernels: test views where they are made, not only where they are accessed."""
    trace: Callable[[str], None] | None
    """Kernels: print each executed statement with its values, up to a bound."""
    seed: int | None
    """Seed of inputs and weights that nobody gives, and of chance; 0 by default."""
    random: bool | None
    """Draw the inputs that a call does not give."""
    training: bool | None
    """NAC: a step of the training graph, not the program alone."""
    lr: float | None
    """The learning rate, 3e-4 by default; of a NAC file's own training graph, in the place of its rates."""
    target: str | None
    """Kernels: compile for this; by default for this machine."""


class LowerOptions(LoadOptions, total=False):
    """The options of `lamella.lower`."""

    precision: Literal["f32", "bf16", "w8", "w4", "fp8", "int8"] | None
    """Compute products with weights in this precision: weights of 8 or 4 bits, or both factors narrow."""
    tune: bool | None
    """On a GPU: measure several kernels for each product, cuBLASLt too, and take the fastest; choices are kept."""
    tune_seconds: float | None
    """How long --tune may measure, for each model; 30 seconds by default, 0 takes what was kept alone."""
    allow_future: bool | None
    """NEM: bind opcodes of future hardware too."""
    types: Mapping[str, str] | None
    """NAC: what an input is, where the file does not say."""
    strict_backend: bool | None
    """An error where an operation does not run on the backend that was asked for, or has no kernel."""
    seed: int | None
    """Seed of inputs and weights that nobody gives, and of chance; 0 by default."""
    after: str | None
    """Stop behind this pass: of kernels, of a graph on its way to kernels, such as fuse, or of plans: select."""
    target: str | None
    """Kernels: compile for this; by default for this machine."""
    passes: str | Sequence[str] | None
    """Run this pass over the graph, such as cse, dce or simplify; an unknown name lists all."""
    plain_signatures: bool | None
    """NAC: signatures without roles, all tensors T."""


class WatchOptions(LoadOptions, total=False):
    """The options of `lamella.watch`."""

    precision: Literal["f32", "bf16", "w8", "w4", "fp8", "int8"] | None
    """Compute products with weights in this precision: weights of 8 or 4 bits, or both factors narrow."""
    tune: bool | None
    """On a GPU: measure several kernels for each product, cuBLASLt too, and take the fastest; choices are kept."""
    tune_seconds: float | None
    """How long --tune may measure, for each model; 30 seconds by default, 0 takes what was kept alone."""
    order: str | None
    """NEM: another legal order of the tasks."""
    types: Mapping[str, str] | None
    """NAC: what an input is, where the file does not say."""
    strict_backend: bool | None
    """An error where an operation does not run on the backend that was asked for, or has no kernel."""
    threads: int | None
    """How many threads run the work-groups of kernels; by default as many as there are processors."""
    quantized: bool | None
    """SkriptND: apply the quantisation that the model describes."""
    kernel: str | None
    """Tensor language: the one kernel to run; by default the only one."""
    groups: int | Sequence[int] | None
    """Tensor language: how many work-groups are launched, along x or along x, y and z; 1 by default."""
    check_bounds: bool | None
    """Kernels: test views where they are made, not only where they are accessed."""
    trace: Callable[[str], None] | None
    """Kernels: print each executed statement with its values, up to a bound."""
    seed: int | None
    """Seed of inputs and weights that nobody gives, and of chance; 0 by default."""
    random: bool | None
    """Draw the inputs that a call does not give."""
    training: bool | None
    """NAC: a step of the training graph, not the program alone."""
    lr: float | None
    """The learning rate, 3e-4 by default; of a NAC file's own training graph, in the place of its rates."""
    target: str | None
    """Kernels: compile for this; by default for this machine."""


class QuantizeOptions(TypedDict, total=False):
    """The options of `lamella.quantize`."""

    scheme: Literal["int8", "w4a8", "w8", "w4"] | None
    """Bits of weights and activations: int8 both in 8, w4a8 weights in 4; w8, w4 weights alone."""
    method: str | None
    """How ranges of activations are chosen: minmax, percentile[:P], mse (the default) or kl."""
    per: str | None
    """What shares a scale of weights; channel by default, group:32 for w4."""
    symmetric: bool | None
    """Codes of activations without zero points."""
    kept: str | Sequence[str] | None
    """Layers that stay real, by patterns of their results, weights or operators."""
    islands: Literal["f32", "f16", "bf16"] | None
    """The type of what stays real between integers; f32 by default."""
    wide_outputs: bool | None
    """Codes of 16 bits for products that only real operations read."""
    samples: int | None
    """How many batches of the data are used at most; 64 by default."""
    equalize: bool | None
    """Equalise the weights of neighbours; by default where a weight has one scale."""
    gptq: bool | None
    """Round weights of linear layers by what they are multiplied with; by default those of 4 bits."""
    bias_correction: bool | None
    """Take the mean errors of layers out of their biases; by default it is done."""
    rank: bool | None
    """Run the model with each layer quantised alone, for the report; by default it is done."""
    accuracy_budget: float | None
    """The relative error that outputs may have; layers are promoted until they keep to it."""
    size_budget: int | None
    """The bytes that weights may have; layers are narrowed until they fit."""
    language: Literal["module", "nac", "nem", "skriptnd", "tensor", "onnx"] | None
    """Read the file as this language, whatever its ending."""
    limits: Limits | None
    """Raise or lower one limit."""
    root: str | Path | None
    """Files that FILE names lie below this folder; by default the folder of FILE."""
    model: str | None
    """Which graph or declaration of the file; by default the first."""
    config: Mapping[str, object] | None
    """The value of an attribute, a generic type, or a config parameter."""
    preset: str | None
    """Module DSL: a named set of config values of the file."""
    cache: int | None
    """Module DSL: a model that is called again for the next tokens, with room for N of them."""
    architecture: str | Path | None
    """Hugging Face: read the folder as the model of this file, not as one of the library."""
    via: Literal["module", "torch"] | None
    """Hugging Face: through the Module DSL alone, or through transformers and torch.export; by default the second where no model of the library is the folder's."""
    unused: str | Sequence[str] | None
    """Hugging Face: tensors of a checkpoint that may stay unused, such as 'vision.*'."""
    dialect: Literal["specification", "newer"] | None
    """SkriptND: which library gives operators their meaning; by default the specification's."""
    decompose: str | Sequence[str] | None
    """SkriptND: replace this operator by its composition, or all of them."""
    shape: Mapping[str, int] | None
    """Extents that the model leaves open."""
    weights: str | Path | None
    """A .safetensors file, a folder of .dat files or a Hugging Face folder; by default what lies by the model."""
    types: Mapping[str, str] | None
    """NAC: what an input is, where the file does not say."""
    backend: Literal["reference", "cpu", "cuda", "interpreter", "nacvm", "npu"] | None
    """Run the model on this backend, reference or cpu; by default cpu."""
    seed: int | None
    """Seed of inputs and weights that nobody gives, and of chance; 0 by default."""


class DiffOptions(TypedDict, total=False):
    """The options of `lamella.diff`."""

    precisions: Literal["f32", "f64", "bf16", "w8", "w4", "fp8", "int8"] | Sequence[Literal["f32", "f64", "bf16", "w8", "w4", "fp8", "int8"]] | None
    """Compute in this precision; given twice, the first is LEFT's, the second RIGHT's."""
    corners: bool | None
    """Put NaN, infinities, denormals, zeros and the largest numbers among those that are drawn."""
    tolerance: float | None
    """How far results may lie apart, in parts of the largest number; 1e-5 by default."""
    limits: Limits | None
    """Raise or lower one limit."""
    root: str | Path | None
    """Files that FILE names lie below this folder; by default the folder of FILE."""
    model: str | None
    """Which graph or declaration of the file; by default the first."""
    config: Mapping[str, object] | None
    """The value of an attribute, a generic type, or a config parameter."""
    preset: str | None
    """Module DSL: a named set of config values of the file."""
    cache: int | None
    """Module DSL: a model that is called again for the next tokens, with room for N of them."""
    architecture: str | Path | None
    """Hugging Face: read the folder as the model of this file, not as one of the library."""
    via: Literal["module", "torch"] | None
    """Hugging Face: through the Module DSL alone, or through transformers and torch.export; by default the second where no model of the library is the folder's."""
    unused: str | Sequence[str] | None
    """Hugging Face: tensors of a checkpoint that may stay unused, such as 'vision.*'."""
    dialect: Literal["specification", "newer"] | None
    """SkriptND: which library gives operators their meaning; by default the specification's."""
    keep: str | Sequence[str] | None
    """SkriptND: take this operator whole; by default those of the library."""
    decompose: str | Sequence[str] | None
    """SkriptND: replace this operator by its composition, or all of them."""
    shape: Mapping[str, int] | None
    """Extents that the model leaves open."""
    weights: str | Path | None
    """A .safetensors file, a folder of .dat files or a Hugging Face folder; by default what lies by the model."""
    types: Mapping[str, str] | None
    """NAC: what an input is, where the file does not say."""
    backends: Literal["reference", "cpu", "cuda", "interpreter", "nacvm", "npu"] | Sequence[Literal["reference", "cpu", "cuda", "interpreter", "nacvm", "npu"]] | None
    """Run on this backend; given twice, the first is LEFT's, the second RIGHT's."""
    seed: int | None
    """Seed of inputs and weights that nobody gives, and of chance; 0 by default."""


class TrainOptions(TypedDict, total=False):
    """The options of `lamella.train`."""

    precision: Literal["f32", "bf16", "w8", "w4", "fp8", "int8"] | None
    """Compute products with weights in this precision: weights of 8 or 4 bits, or both factors narrow."""
    tune: bool | None
    """On a GPU: measure several kernels for each product, cuBLASLt too, and take the fastest; choices are kept."""
    tune_seconds: float | None
    """How long --tune may measure, for each model; 30 seconds by default, 0 takes what was kept alone."""
    steps: int | None
    """How many steps are taken; by default one walk through --data, and one step without it."""
    save: str | Path | None
    """Write what was trained: weights (.safetensors), the model with them (.nac, .sknd, .onnx), or a folder."""
    batch: int | None
    """Sequences or examples of a step; by default the model's own, or 8."""
    sequence: int | None
    """Tokens of a sequence; by default the model's own, or 128."""
    shuffle: bool | None
    """Take the data in another order in each walk, by the seed; by default in its own."""
    eval_data: str | Path | None
    """Data that are not learnt from, whose loss is measured."""
    eval_every: int | None
    """Measure it every N steps, and in the end; by default in the end."""
    optimizer: str | None
    """The rule of steps; adamw by default, an unknown name lists all."""
    weight_decay: float | None
    """The weight decay; 0.01 by default."""
    beta1: float | None
    """The share that a mean of gradients keeps; 0.9 by default."""
    beta2: float | None
    """The share that a mean of squares keeps; 0.999 by default."""
    momentum: float | None
    """The share of its velocity that sgd keeps; 0 by default."""
    schedule: Literal["constant", "linear", "cosine", "wsd"] | None
    """How the rate changes behind the warm-up; constant by default."""
    warmup: int | None
    """Steps in which the rate comes up from 0; none by default."""
    decay: int | None
    """Steps in which the rate of wsd comes down; by default a tenth of all."""
    min_lr: float | None
    """The rate in the end, of schedules that decay; 0 by default."""
    clip: float | None
    """The largest norm of all gradients together; by default any."""
    accumulate: int | None
    """Take the gradients of a batch in N parts, which needs less memory."""
    memory_budget: str | None
    """The most memory that a step may take, such as 300MB: where all fits, nothing is computed twice; otherwise activations are offloaded until it does, those with @memory(offload) first."""
    ranks: str | None
    """Train on several processes: dp=N that take parts of each batch, tp=N slices of weights, ep=N of experts, pp=N stages (docs/layers/training.md)."""
    recipe: str | None
    """Module DSL: compute products in the types of a recipe of the file, or of a policy: bf16, fp16, fp8_hybrid, fp8_pure, fp4."""
    adapters: str | Sequence[str] | None
    """Train small additions and freeze the rest: lora, dora, ia3, prefix, prompt or bottleneck, such as lora:rank=8,alpha=16,targets=q,v."""
    base: Literal["nf4", "int8"] | None
    """Keep the frozen weights that adapters add to in so few bits."""
    merge: bool | None
    """Save the model with the adapters in its weights, not the adapters alone."""
    save_every: int | None
    """Write a checkpoint every N steps into OUT.training, which is whole whenever the run is killed."""
    resume: bool | None
    """Go on behind the last checkpoint in OUT.training, bit by bit as if nothing had happened."""
    observe: bool | None
    """Module DSL: print what traces tell of every step; end where an assertion is false."""
    language: Literal["module", "nac", "nem", "skriptnd", "tensor", "onnx"] | None
    """Read the file as this language, whatever its ending."""
    limits: Limits | None
    """Raise or lower one limit."""
    root: str | Path | None
    """Files that FILE names lie below this folder; by default the folder of FILE."""
    device: str | None
    """NEM: the target device, a shipped name such as npm_lite or a .nem file."""
    model: str | None
    """Which graph or declaration of the file; by default the first."""
    config: Mapping[str, object] | None
    """The value of an attribute, a generic type, or a config parameter."""
    preset: str | None
    """Module DSL: a named set of config values of the file."""
    architecture: str | Path | None
    """Hugging Face: read the folder as the model of this file, not as one of the library."""
    unused: str | Sequence[str] | None
    """Hugging Face: tensors of a checkpoint that may stay unused, such as 'vision.*'."""
    dialect: Literal["specification", "newer"] | None
    """SkriptND: which library gives operators their meaning; by default the specification's."""
    keep: str | Sequence[str] | None
    """SkriptND: take this operator whole; by default those of the library."""
    decompose: str | Sequence[str] | None
    """SkriptND: replace this operator by its composition, or all of them."""
    shape: Mapping[str, int] | None
    """Extents that the model leaves open."""
    weights: str | Path | None
    """A .safetensors file, a folder of .dat files or a Hugging Face folder; by default what lies by the model."""
    types: Mapping[str, str] | None
    """NAC: what an input is, where the file does not say."""
    backend: Literal["reference", "cpu", "cuda", "interpreter", "nacvm", "npu"] | None
    """How to run it. reference: graphs with NumPy, straight from the formulas; cpu: kernels as machine code, through LLVM; cuda: kernels on an NVIDIA GPU, through its driver; interpreter: kernels by the letter of the tensor language; nacvm: NAC instructions and their memory schedule; npu: plans and bound streams, bit by bit; graphs by their plans."""
    strict_backend: bool | None
    """An error where an operation does not run on the backend that was asked for, or has no kernel."""
    threads: int | None
    """How many threads run the work-groups of kernels; by default as many as there are processors."""
    dtype: Literal["f32", "f64"] | None
    """Compute real numbers in this type."""
    check_bounds: bool | None
    """Kernels: test views where they are made, not only where they are accessed."""
    seed: int | None
    """Seed of inputs and weights that nobody gives, and of chance; 0 by default."""
    lr: float | None
    """The learning rate, 3e-4 by default; of a NAC file's own training graph, in the place of its rates."""


class GenerateOptions(TypedDict, total=False):
    """The options of `lamella.generate`."""

    precision: Literal["f32", "bf16", "w8", "w4", "fp8", "int8"] | None
    """Compute products with weights in this precision: weights of 8 or 4 bits, or both factors narrow."""
    tune: bool | None
    """On a GPU: measure several kernels for each product, cuBLASLt too, and take the fastest; choices are kept."""
    tune_seconds: float | None
    """How long --tune may measure, for each model; 30 seconds by default, 0 takes what was kept alone."""
    ends: str | None
    """NAC, ONNX, SkriptND: the input that takes tokens and the output that rates the next; else the only ones."""
    max_tokens: int | None
    """How many tokens are generated at most; 16 by default, for a task until the text ends."""
    temperature: float | None
    """Choose tokens by chance, the more the higher; 0 takes the likeliest."""
    language: Literal["module", "nac", "nem", "skriptnd", "tensor", "onnx"] | None
    """Read the file as this language, whatever its ending."""
    limits: Limits | None
    """Raise or lower one limit."""
    root: str | Path | None
    """Files that FILE names lie below this folder; by default the folder of FILE."""
    device: str | None
    """NEM: the target device, a shipped name such as npm_lite or a .nem file."""
    model: str | None
    """Which graph or declaration of the file; by default the first."""
    config: Mapping[str, object] | None
    """The value of an attribute, a generic type, or a config parameter."""
    preset: str | None
    """Module DSL: a named set of config values of the file."""
    cache: int | None
    """Module DSL: a model that is called again for the next tokens, with room for N of them."""
    architecture: str | Path | None
    """Hugging Face: read the folder as the model of this file, not as one of the library."""
    via: Literal["module", "torch"] | None
    """Hugging Face: through the Module DSL alone, or through transformers and torch.export; by default the second where no model of the library is the folder's."""
    unused: str | Sequence[str] | None
    """Hugging Face: tensors of a checkpoint that may stay unused, such as 'vision.*'."""
    dialect: Literal["specification", "newer"] | None
    """SkriptND: which library gives operators their meaning; by default the specification's."""
    keep: str | Sequence[str] | None
    """SkriptND: take this operator whole; by default those of the library."""
    decompose: str | Sequence[str] | None
    """SkriptND: replace this operator by its composition, or all of them."""
    shape: Mapping[str, int] | None
    """Extents that the model leaves open."""
    weights: str | Path | None
    """A .safetensors file, a folder of .dat files or a Hugging Face folder; by default what lies by the model."""
    types: Mapping[str, str] | None
    """NAC: what an input is, where the file does not say."""
    backend: Literal["reference", "cpu", "cuda", "interpreter", "nacvm", "npu"] | None
    """How to run it. reference: graphs with NumPy, straight from the formulas; cpu: kernels as machine code, through LLVM; cuda: kernels on an NVIDIA GPU, through its driver; interpreter: kernels by the letter of the tensor language; nacvm: NAC instructions and their memory schedule; npu: plans and bound streams, bit by bit; graphs by their plans."""
    strict_backend: bool | None
    """An error where an operation does not run on the backend that was asked for, or has no kernel."""
    threads: int | None
    """How many threads run the work-groups of kernels; by default as many as there are processors."""
    dtype: Literal["f32", "f64"] | None
    """Compute real numbers in this type."""
    quantized: bool | None
    """SkriptND: apply the quantisation that the model describes."""
    check_bounds: bool | None
    """Kernels: test views where they are made, not only where they are accessed."""
    seed: int | None
    """Seed of inputs and weights that nobody gives, and of chance; 0 by default."""


class BenchOptions(TypedDict, total=False):
    """The options of `lamella.bench`."""

    against: Literal["torch", "inductor", "onnxruntime", "openvino"] | Sequence[Literal["torch", "inductor", "onnxruntime", "openvino"]] | None
    """Peers to measure beside ours: torch, inductor, onnxruntime, openvino; by default those that are installed, but for inductor."""
    thread_counts: Sequence[int] | None
    """Numbers of threads, a contest for each; 1 by default."""
    batches: Sequence[int] | None
    """Sizes of the first open extent of the inputs, contests for each; by default the model's own."""
    round_seconds: float | None
    """How long each contestant is measured in each of five rounds; 0.5 by default."""
    precision: Literal["f32", "bf16", "w8", "w4", "fp8", "int8"] | None
    """Compute products with weights in this precision: weights of 8 or 4 bits, or both factors narrow."""
    tune: bool | None
    """On a GPU: measure several kernels for each product, cuBLASLt too, and take the fastest; choices are kept."""
    tune_seconds: float | None
    """How long --tune may measure, for each model; 30 seconds by default, 0 takes what was kept alone."""
    limits: Limits | None
    """Raise or lower one limit."""
    model: str | None
    """Which graph or declaration of the file; by default the first."""
    config: Mapping[str, object] | None
    """The value of an attribute, a generic type, or a config parameter."""
    preset: str | None
    """Module DSL: a named set of config values of the file."""
    cache: int | None
    """Module DSL: a model that is called again for the next tokens, with room for N of them."""
    architecture: str | Path | None
    """Hugging Face: read the folder as the model of this file, not as one of the library."""
    via: Literal["module", "torch"] | None
    """Hugging Face: through the Module DSL alone, or through transformers and torch.export; by default the second where no model of the library is the folder's."""
    unused: str | Sequence[str] | None
    """Hugging Face: tensors of a checkpoint that may stay unused, such as 'vision.*'."""
    dialect: Literal["specification", "newer"] | None
    """SkriptND: which library gives operators their meaning; by default the specification's."""
    keep: str | Sequence[str] | None
    """SkriptND: take this operator whole; by default those of the library."""
    decompose: str | Sequence[str] | None
    """SkriptND: replace this operator by its composition, or all of them."""
    shape: Mapping[str, int] | None
    """Extents that the model leaves open."""
    weights: str | Path | None
    """A .safetensors file, a folder of .dat files or a Hugging Face folder; by default what lies by the model."""
    types: Mapping[str, str] | None
    """NAC: what an input is, where the file does not say."""
    backends: Literal["reference", "cpu", "cuda", "interpreter", "nacvm", "npu"] | Sequence[Literal["reference", "cpu", "cuda", "interpreter", "nacvm", "npu"]] | None
    """Measure this backend of ours; cpu by default."""
    seed: int | None
    """Seed of inputs and weights that nobody gives, and of chance; 0 by default."""


class ViewOptions(TypedDict, total=False):
    """The options of `lamella.view`."""

    levels: Literal["source", "weights", "nac", "kernels", "machine", "plan"] | Sequence[Literal["source", "weights", "nac", "kernels", "machine", "plan"]] | None
    """What to show beside the graph: source, weights, nac, kernels, machine, plan; by default all that is made quickly."""
    errors: bool | None
    """Run the models on the same random inputs, one model on cpu and reference, and show where numbers part."""
    profile: bool | None
    """Run the model on random inputs, and show the time of each operation."""
    language: Literal["module", "nac", "nem", "skriptnd", "tensor", "onnx"] | None
    """Read the file as this language, whatever its ending."""
    limits: Limits | None
    """Raise or lower one limit."""
    root: str | Path | None
    """Files that FILE names lie below this folder; by default the folder of FILE."""
    device: str | None
    """NEM: the target device, a shipped name such as npm_lite or a .nem file."""
    model: str | None
    """Which graph or declaration of the file; by default the first."""
    config: Mapping[str, object] | None
    """The value of an attribute, a generic type, or a config parameter."""
    preset: str | None
    """Module DSL: a named set of config values of the file."""
    cache: int | None
    """Module DSL: a model that is called again for the next tokens, with room for N of them."""
    architecture: str | Path | None
    """Hugging Face: read the folder as the model of this file, not as one of the library."""
    via: Literal["module", "torch"] | None
    """Hugging Face: through the Module DSL alone, or through transformers and torch.export; by default the second where no model of the library is the folder's."""
    unused: str | Sequence[str] | None
    """Hugging Face: tensors of a checkpoint that may stay unused, such as 'vision.*'."""
    dialect: Literal["specification", "newer"] | None
    """SkriptND: which library gives operators their meaning; by default the specification's."""
    keep: str | Sequence[str] | None
    """SkriptND: take this operator whole; by default those of the library."""
    decompose: str | Sequence[str] | None
    """SkriptND: replace this operator by its composition, or all of them."""
    shape: Mapping[str, int] | None
    """Extents that the model leaves open."""
    weights: str | Path | None
    """A .safetensors file, a folder of .dat files or a Hugging Face folder; by default what lies by the model."""
    types: Mapping[str, str] | None
    """NAC: what an input is, where the file does not say."""
    seed: int | None
    """Seed of inputs and weights that nobody gives, and of chance; 0 by default."""
