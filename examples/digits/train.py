"""Train the network of digits.sknd with NumPy alone: stochastic gradients with momentum, by hand.

python train.py [EPOCHS]        writes digits.safetensors
"""

import sys

import numpy as np
from safetensors.numpy import save_file

TRAINED = 1198
"""The images that are learnt from; the other 599 are what accuracy is measured on."""
BRIGHTEST = 16
"""The largest number of a pixel: training sees numbers up to 1, and the first filter takes the factor in."""
BATCH, RATE, MOMENTUM, DECAY = 32, 0.05, 0.9, 1e-3


def windows(x):
    """The 3 × 3 neighbours of each place, zeros around the image: [batch, channels, 9, height, width]."""
    height, width = x.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.stack([padded[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3)], axis=2)


def conv(x, weight, bias):
    """A convolution, and what its gradient needs."""
    seen = windows(x)
    filters = weight.reshape(len(weight), -1, 9)
    return np.einsum("bckhw,nck->bnhw", seen, filters, optimize=True) + bias[:, None, None], seen


def conv_gradient(change, seen, weight):
    """The gradients of a convolution's input, weight and bias."""
    filters = weight.reshape(len(weight), -1, 9)
    for_weight = np.einsum("bnhw,bckhw->nck", change, seen, optimize=True).reshape(weight.shape)
    turned = filters[:, :, ::-1].transpose(1, 0, 2)  # the same convolution backwards
    for_input = np.einsum("bnkhw,cnk->bchw", windows(change), turned, optimize=True)
    return for_input, for_weight, change.sum(axis=(0, 2, 3))


def pool(x):
    """The maximum of 2 × 2 places, and which of them it is."""
    batch, channels, height, width = x.shape
    parts = x.reshape(batch, channels, height // 2, 2, width // 2, 2)
    largest = parts.max(axis=(3, 5), keepdims=True)
    return largest[:, :, :, 0, :, 0], parts == largest


def unpool(change, chosen):
    """The gradient of a maximum: to the place that had it."""
    spread = chosen * change[:, :, :, None, :, None] / chosen.sum(axis=(3, 5), keepdims=True)
    return spread.reshape(*change.shape[:2], change.shape[2] * 2, change.shape[3] * 2)


def forward(x, p):
    """The scores, and all that the gradients need."""
    a, seen1 = conv(x, p["conv1.filter"], p["conv1.bias"])
    b, chosen1 = pool(np.maximum(a, 0))
    c, seen2 = conv(b, p["conv2.filter"], p["conv2.bias"])
    d, chosen2 = pool(np.maximum(c, 0))
    flat = d.reshape(len(d), -1)
    scores = flat @ p["scores.filter"].T + p["scores.bias"]
    return scores, (a, seen1, chosen1, c, seen2, chosen2, flat)


def gradients(x, labels, p):
    """The gradients of the mean cross entropy."""
    scores, (a, seen1, chosen1, c, seen2, chosen2, flat) = forward(x, p)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(x)), labels] -= 1
    change = shares / len(x)
    found = {"scores.filter": change.T @ flat, "scores.bias": change.sum(axis=0)}
    change = unpool((change @ p["scores.filter"]).reshape(len(x), 32, 2, 2), chosen2) * (c > 0)
    change, found["conv2.filter"], found["conv2.bias"] = conv_gradient(change, seen2, p["conv2.filter"])
    change = unpool(change, chosen1) * (a > 0)
    _, found["conv1.filter"], found["conv1.bias"] = conv_gradient(change, seen1, p["conv1.filter"])
    return found


def train(images, labels, epochs):
    """The weights after so many walks through the images, each time in another order."""
    random = np.random.default_rng(0)
    shapes = {"conv1.filter": (16, 1, 3, 3), "conv2.filter": (32, 16, 3, 3), "scores.filter": (10, 128)}
    p = {name: random.normal(size=shape) * np.sqrt(2 / np.prod(shape[1:])) for name, shape in shapes.items()}
    p |= {name.replace("filter", "bias"): np.zeros(shape[0]) for name, shape in shapes.items()}
    moving = {name: np.zeros_like(value) for name, value in p.items()}
    for epoch in range(epochs):
        order = random.permutation(len(images))
        rate = RATE * (1 + np.cos(np.pi * epoch / epochs)) / 2
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            for name, value in gradients(images[some], labels[some], p).items():
                moving[name] = MOMENTUM * moving[name] + value + DECAY * p[name] * (p[name].ndim > 1)
                p[name] = p[name] - rate * moving[name]
    return p


if __name__ == "__main__":
    data = np.load("digits.npz")
    images, labels = data["image"].astype(np.float32) / BRIGHTEST, data["label"].astype(np.int64)
    weights = train(images[:TRAINED], labels[:TRAINED], int(sys.argv[1]) if len(sys.argv) > 1 else 20)
    right = forward(images[TRAINED:], weights)[0].argmax(axis=1) == labels[TRAINED:]
    sys.stdout.write(f"{right.mean():.2%} of {len(right)} images that were not learnt from\n")
    weights["conv1.filter"] /= BRIGHTEST
    save_file({name: value.astype(np.float32) for name, value in weights.items()}, "digits.safetensors")
