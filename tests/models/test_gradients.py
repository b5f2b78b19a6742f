"""Gradients of whole models of the library, written and derived, against those of transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lamella.backend.reference import compile_model
from lamella.bridge.hf_to_module import open_folder
from lamella.bridge.module_to_graph.backward import differentiate
from lamella.bridge.module_to_graph.constant_tables import compute_table
from lamella.pipeline.module.folders import read_source
from lamella.pipeline.module.weight_plan import plan_weights
from lamella.pipeline.options import Options
from tests.support.models.checkpoints import GIVEN, build, inputs_of

NAMES = (
    *("llama", "llama tied", "llama biases", "qwen3", "mistral", "mixtral", "qwen3 moe plain"),
    *("t5", "bart", "whisper", "modernbert masked", "deberta masked", "vit classes", "dinov2 classes"),
    *("gpt2", "mamba", "nemotron latent", "gemma2", "gemma3", "olmo2", "cohere2", "bloom", "falcon newer"),
    *("deepseek v3", "deepseek v2 groups", "gpt oss", "qwen3 next", "rwkv", "mamba2"),
    *("wav2vec2 letters", "segformer pixels", "mpnet masked", "resnet classes", "convnext classes"),
    *("albert masked", "gpt neo"),
)

FROZEN = ("correction", "logits_bias", "positions", "mask_token", "norm_mean", "norm_variance", "norm_count")
"""Parameters that are not trained: Whisper's positions, BART's bias of scores, the balance of experts, statistics."""
KEY_BIAS = ("k.bias", "k.projection.bias")
SEEDS = {"qwen3 next": 4}
"""
Seeds of weights other than 2, where those of 2 are too ill-conditioned for the tolerance.

There a row that enters the gated norm is below the root of its eps: in double precision, weights moved by half a unit
in their last place of f32 move the exact gradient of norm_weight by up to 2.9e-5 of its size (seed 4: 1e-6).
"""


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_all_weights_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Their gradients are stored as a checkpoint of their own, and come back as ours by the mapping of the model."""
    model = build(name, seed=SEEDS.get(name, 2))
    model.save_pretrained(tmp_path / "weights")
    source = read_source(tmp_path / "weights", Options())
    found = differentiate(source.instance)
    assert found.findings == ()
    assert found.model is not None
    assert source.folder is not None
    inputs = inputs_of(found.model, length=7, seed=3)
    inputs.pop(found.seeds["logits"])
    given = {GIVEN.get(key, key): torch.from_numpy(item) for key, item in inputs.items()}
    model.config.use_cache = False
    logits = model(**given).logits
    seed = np.random.default_rng(5).standard_normal(logits.shape).astype(np.float32)
    logits.backward(torch.from_numpy(seed))
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.copy_(tensor.grad if tensor.grad is not None else torch.zeros_like(tensor))
    model.save_pretrained(tmp_path / "gradients")

    executable = compile_model(found.model)
    numbers = plan_weights(source.instance, source.folder).data()
    for weight in found.compiled.weights:
        executable.state[weight.tensor.name] = numbers[weight.path]
    for key, constant in found.compiled.constants.items():
        executable.state[key] = compute_table(constant).astype(np.float32)
    results = executable(**inputs, **{found.seeds["logits"]: seed})

    wanted = plan_weights(source.instance, open_folder(tmp_path / "gradients")).data()
    frozen = {item.path for item in found.compiled.weights} - found.gradients.keys()
    assert all(path.endswith(FROZEN) for path in frozen)
    for path, output in found.gradients.items():
        # A bias of keys moves all scores of a query alike, unless keys meet distances too: elsewhere its gradient is
        # what rounding leaves.
        zero = path.endswith(KEY_BIAS) and "encoder.distances" not in found.gradients
        size = np.abs(wanted[path.removesuffix("bias") + "weight" if zero else path]).max()
        assert size > 0, path
        assert not zero or np.abs(wanted[path]).max() < 1e-5 * size
        np.testing.assert_allclose(results[output], wanted[path], rtol=0, atol=2e-5 * size, err_msg=path)
