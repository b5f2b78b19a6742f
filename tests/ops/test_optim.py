"""The rules of optimisers, judged by torch.optim over several steps, and what is done to gradients before."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.judges.harness import Array, Input, near, one, refuse, run
from tests.support.judges.registry import Refusal, judged

STEPS = 3
RATES = st.sampled_from([1e-3, 0.02])
DECAYS = st.sampled_from([0.0, 0.01, 0.3])
SHAPES = st.sampled_from([(5,), (3, 4), (2, 3, 2)])
SEEDS = st.integers(0, 1000)


def walk(
    shape: tuple[int, ...], seed: int, make: Callable[[Any], torch.optim.Optimizer]
) -> tuple[Array, list[Array], list[Array]]:
    """Where parameters begin, some gradients, and where an optimiser of torch goes with each."""
    random = np.random.default_rng(seed)
    start = random.normal(size=shape)
    gradients = [random.normal(size=shape) for _ in range(STEPS)]
    parameter = torch.nn.Parameter(torch.tensor(start))
    optimiser = make([parameter])
    found = []
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        optimiser.step()
        found.append(parameter.detach().numpy().copy())
    return start, gradients, found


def results(operator: str, inputs: Sequence[Input], told: dict[str, Any]) -> list[Array]:
    """What an operator gives in 64 bits."""
    found = run(operator, inputs, told, compute="f64")
    return [item for item in found if isinstance(item, np.ndarray)]


def scalar(value: float) -> Array:
    """A number as a tensor."""
    return np.asarray(value)


@judged("torch", "optim.sgd", "optim.sgd_plain")
@settings(max_examples=12)
@given(SHAPES, RATES, DECAYS, st.sampled_from([0.0, 0.9]), st.booleans(), SEEDS)
def test_descent(
    shape: tuple[int, ...], rate: float, decay: float, momentum: float, nesterov: bool, seed: int
) -> None:
    nesterov = nesterov and momentum > 0
    told: dict[str, Any] = {"momentum": momentum, "nesterov": nesterov}
    start, gradients, expected = walk(
        shape, seed, lambda item: torch.optim.SGD(item, lr=rate, weight_decay=decay, **told)
    )
    parameter, velocity = start, np.zeros(shape)
    for gradient, wanted in zip(gradients, expected, strict=True):
        if momentum:
            inputs = [parameter, gradient, velocity, scalar(rate)]
            parameter, velocity = results("optim.sgd", inputs, {"decay": decay, **told})
        else:
            inputs = [parameter, gradient, scalar(rate)]
            (parameter,) = results("optim.sgd_plain", inputs, {"decay": decay})
        near(parameter, wanted)


@judged("torch", "optim.adamw")
@settings(max_examples=12)
@given(SHAPES, RATES, DECAYS, st.sampled_from([(0.9, 0.999), (0.8, 0.95)]), SEEDS)
def test_adamw(
    shape: tuple[int, ...], rate: float, decay: float, betas: tuple[float, float], seed: int
) -> None:
    start, gradients, expected = walk(
        shape, seed, lambda item: torch.optim.AdamW(item, lr=rate, weight_decay=decay, betas=betas)
    )
    state: list[Array] = [start, np.zeros(shape), np.zeros(shape)]
    told = {"beta1": betas[0], "beta2": betas[1], "decay": decay}
    for step, (gradient, wanted) in enumerate(zip(gradients, expected, strict=True), 1):
        parameter, mean, square = state
        scalars = (rate, 1 - betas[0] ** step, math.sqrt(1 - betas[1] ** step))
        inputs = (parameter, gradient, mean, square, *map(scalar, scalars))
        state = results("optim.adamw", inputs, told)
        near(state[0], wanted)


@judged("numpy", "optim.lion")
@settings(max_examples=12)
@given(SHAPES, RATES, DECAYS, SEEDS)
def test_lion(shape: tuple[int, ...], rate: float, decay: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    parameter, gradient, mean = (random.normal(size=shape) for _ in range(3))
    wanted = parameter * (1 - rate * decay) - rate * np.sign(0.9 * mean + 0.1 * gradient)
    inputs = (parameter, gradient, mean, scalar(rate))
    found = results("optim.lion", inputs, {"decay": decay})
    near(found[0], wanted)
    near(found[1], 0.99 * mean + 0.01 * gradient)


def orthogonal(matrix: Any) -> Any:
    """What torch's Muon makes of a gradient, in 64 bits instead of 16."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x


@judged("torch", "optim.muon")
@settings(max_examples=10)
@given(st.sampled_from([(3, 5), (6, 2), (4, 4)]), RATES, DECAYS, SEEDS)
def test_muon(shape: tuple[int, int], rate: float, decay: float, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.optim._muon._zeropower_via_newtonschulz", lambda grad, *_: orthogonal(grad))
        start, gradients, expected = walk(
            shape, seed, lambda item: torch.optim.Muon(item, lr=rate, weight_decay=decay)
        )
    # Two matrices at once, as those of experts are: each for itself.
    parameter, velocity = np.stack([start, -start]), np.zeros((2, *shape))
    for gradient, wanted in zip(gradients, expected, strict=True):
        inputs = (parameter, np.stack([gradient, -gradient]), velocity, scalar(rate))
        parameter, velocity = results("optim.muon", inputs, {"decay": decay})
        near(parameter, np.stack([wanted, -wanted]))


def decoded(codes: Array, scales: Array, steps: int, zero: int) -> Array:
    """What codes of 8 bits stand for."""
    size = np.repeat(scales, 256)[: len(codes)] * 2.0 ** ((np.abs(codes.astype(int)) - 127) / steps)
    if steps == 16:
        size = np.repeat(scales, 256)[: len(codes)] * 2.0 ** ((codes.astype(int) - 127) / steps)
    sign = np.sign(codes.astype(int)) if steps == 8 else 1.0
    found: Array = np.where(codes == zero, 0.0, sign * size)
    return found


@judged("numpy", "optim.adamw_8bit")
@settings(max_examples=8)
@given(st.sampled_from([1, 255, 300, 512]), SEEDS)
def test_codes_of_8_bits(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    blocks = -(-count // 256)
    parameter = random.normal(size=count)
    mean, square = np.zeros(count, np.int8), np.zeros(count, np.int8)
    first, second = np.zeros(blocks), np.zeros(blocks)
    for step in range(1, 4):
        gradient = random.normal(size=count) * 10.0 ** random.integers(-3, 2, count)
        scalars = (0.01, 1 - 0.9**step, math.sqrt(1 - 0.999**step))
        inputs = (parameter, gradient, mean, square, first, second, *map(scalar, scalars))
        exact = 0.9 * decoded(mean, first, 8, 0) + 0.1 * gradient
        power = 0.999 * decoded(square, second, 16, -128) + 0.001 * gradient**2
        wanted = parameter * (1 - 1e-4) - 0.01 / scalars[1] * exact / (np.sqrt(power) / scalars[2] + 1e-8)
        parameter, mean, square, first, second = results("optim.adamw_8bit", inputs, {})
        near(parameter, wanted)
        held = decoded(mean, first, 8, 0)
        large = np.abs(exact) > 1e-4 * np.abs(exact).max()
        assert np.all(np.abs(held - exact)[large] <= 0.046 * np.abs(exact)[large])
        held = decoded(square, second, 16, -128)
        large = power > 1e-4 * power.max()
        assert np.all(np.abs(held - power)[large] <= 0.023 * power[large])
        assert np.all(held[power > 0] > 0), "a mean square that is lost makes a step boundless"


@judged("torch", "optim.square_sum", "optim.clip_factor", "optim.clip_norm")
@settings(max_examples=10)
@given(SHAPES, st.sampled_from([0.0, 0.5, 100.0]), SEEDS)
def test_clipping(shape: tuple[int, ...], limit: float, seed: int) -> None:
    gradient = np.random.default_rng(seed).normal(size=shape)
    parameter = torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64))
    parameter.grad = torch.tensor(gradient)
    norm = torch.nn.utils.clip_grad_norm_([parameter], limit)
    total = run("optim.square_sum", (gradient,), {}, compute="f64")
    factor, found = results("optim.clip_factor", total, {"limit": limit})
    near(found, np.asarray(norm.item()))
    near(gradient * factor, parameter.grad.numpy())
    near(results("optim.clip_norm", (gradient,), {"limit": limit})[0], parameter.grad.numpy())


@judged("torch", "optim.squared_error", "optim.squared_error_backward")
@settings(max_examples=8)
@given(SHAPES, SEEDS)
def test_squared_error(shape: tuple[int, ...], seed: int) -> None:
    random = np.random.default_rng(seed)
    x, targets = torch.tensor(random.normal(size=shape), requires_grad=True), random.normal(size=shape)
    loss = torch.nn.functional.mse_loss(x, torch.tensor(targets))
    (gradient,) = torch.autograd.grad(3 * loss, x)
    given_x = x.detach().numpy()
    near(results("optim.squared_error", (given_x, targets), {})[0], loss.detach().numpy())
    inputs = (np.asarray(3.0), given_x, targets)
    near(results("optim.squared_error_backward", inputs, {})[0], gradient.numpy())


@judged("numpy", "optim.collect")
def test_the_first_gradient_begins_anew() -> None:
    before, gradient = np.array([1.0, np.nan], np.float32), np.array([2.0, 3.0], np.float32)
    near(one("optim.collect", before, gradient, np.asarray(1.0, np.float32)), gradient)
    added = one("optim.collect", before, gradient, np.asarray(0.0, np.float32))
    near(added, before + gradient)


@judged("torch", "optim.count_unfinite", "optim.unscale", "optim.next_loss_scale", "optim.unless")
def test_loss_scales_are_those_of_torch() -> None:
    """Over steps of which some are not finite: scale, count of calm steps, and what is taken, as GradScaler has it."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimiser = torch.optim.SGD([parameter], lr=1.0)
    scale, calm, held = np.asarray(8.0), np.asarray(0.0), np.zeros(2)
    for gradient in ([1.0, 2.0], [np.inf, 0.0], [1.0, 1.0], [3.0, -2.0], [np.nan, 1.0], [0.0, 1e-3]):
        parameter.grad = torch.tensor(np.asarray(gradient) * float(scale))
        scaler.scale(torch.zeros(()))  # makes the scale, which is lazy
        scaler.step(optimiser)
        scaler.update()
        scaled = np.asarray(gradient) * scale
        wrong = results("optim.count_unfinite", (scaled,), {})[0]
        assert wrong == np.sum(~np.isfinite(scaled))
        plain = results("optim.unscale", (scaled, scale), {})[0]
        held = results("optim.unless", (held, held - plain, wrong), {})[0]
        scale, calm = results("optim.next_loss_scale", (scale, calm, wrong), {"interval": 2})
        assert scale == scaler.get_scale()
        near(held, parameter.detach().numpy())


@judged("numpy", "optim.cast")
def test_parameters_are_rounded_from_their_masters() -> None:
    x = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    found = run("optim.cast", (x,), {}, types=["bf16", "f32"])[0]
    assert isinstance(found, np.ndarray)
    near(found.astype(np.float32), x.astype(ml_dtypes.bfloat16).astype(np.float32))


@judged("numpy", "optim.push_amax", "optim.delayed_amax", "optim.known_amax")
@settings(max_examples=10)
@given(st.integers(1, 4), st.integers(1, 3), SEEDS)
def test_the_largest_numbers_of_calls_are_remembered(length: int, interval: int, seed: int) -> None:
    seen, history = list[float](), np.zeros(length)
    held, count, wanted = np.asarray(0.0), np.asarray(0.0), 0.0
    for number, amax in enumerate(np.random.default_rng(seed).random(7), 1):
        assert results("optim.known_amax", (held, scalar(amax)), {})[0] == (wanted or amax)
        seen = [amax, *seen][:length]
        history = results("optim.push_amax", (history, scalar(amax)), {})[0]
        assert list(history) == seen + [0.0] * (length - len(seen))
        held, count = results("optim.delayed_amax", (held, history, count), {"interval": interval})
        wanted = max(seen) if number % interval == 0 else wanted
        assert held == wanted


@judged("numpy", "optim.draw_keys", "optim.dropout")
@settings(max_examples=8)
@given(st.integers(1, 4), st.integers(1, 700), st.sampled_from([0.0, 0.1, 0.5, 0.9]), SEEDS)
def test_dropout_is_decided_by_draws(examples: int, width: int, rate: float, seed: int) -> None:
    random, prime = np.random.default_rng(seed), (1 << 31) - 1
    draws = random.integers(0, prime, examples)
    draws[0] = -1
    salt = int(random.integers(0, prime))
    keys = results("optim.draw_keys", (draws,), {"salt": salt})[0]
    assert list(keys[1:]) == [pow(int(item) + salt, 5, prime) for item in draws[1:]]
    x = random.normal(size=(examples, width))
    found = results("optim.dropout", (x, keys), {"rate": rate})[0]
    for key, row, given_row in zip(keys, found, x, strict=True):
        numbers = np.array([pow(int(key) + 16807 * place, 5, prime) for place in range(width)])
        factor = np.where(numbers < int(rate * prime), 0.0, 1 / (1 - rate)) if key >= 0 else 1.0
        near(row, given_row * factor)


def test_what_is_dropped_is_a_share_of_everything_and_nobody_knows_which() -> None:
    """Shares of 40 000 elements within five deviations, of rows, of columns, and of what two rows both drop."""
    keys = results("optim.draw_keys", (np.arange(40),), {"salt": 7})[0]
    kept = results("optim.dropout", (np.ones((40, 1000)), keys), {"rate": 0.3})[0] > 0
    assert abs(kept.mean() - 0.7) < 5 * math.sqrt(0.21 / kept.size)
    assert np.abs(kept.mean(0) - 0.7).max() < 5 * math.sqrt(0.21 / 40)
    assert np.abs(kept.mean(1) - 0.7).max() < 5 * math.sqrt(0.21 / 1000)
    assert np.abs((kept[1:] & kept[:-1]).mean(1) - 0.49).max() < 5 * math.sqrt(0.25 / 1000)
    assert np.abs((kept[:, 1:] & kept[:, :-1]).mean() - 0.49) < 5 * math.sqrt(0.25 / kept.size)


REFUSALS = (
    Refusal("optim.draw_keys", "'salt' must not be negative", ((2,),), {"salt": -1}, "i64"),
    Refusal("optim.dropout", "'rate' must be at least 0", ((2, 3), (2,)), {"rate": 1.0}, "f32 i64"),
    Refusal("optim.clip_norm", "'limit' must not be negative", ((2,),), {"limit": -1.0}),
    Refusal("optim.clip_factor", "'limit' must not be negative", ((),), {"limit": -1.0}),
    Refusal(
        "optim.adamw_8bit",
        "there must be a scale for each 256 elements",
        ((300,), (300,), (300,), (300,), (1,), (1,), (), (), ()),
        {},
        "f32 f32 i8 i8 f32 f32 f32 f32 f32",
    ),
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_refusals(refusal: Refusal) -> None:
    refuse(refusal)
