"""A network that is to learn whether two bits differ, with the graph of its training, and what it learns from."""

from __future__ import annotations

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import numpy as np
import torch
from torch import nn

import lamella

torch.manual_seed(1)
network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
bits = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
differ = torch.tensor([0, 1, 1, 0])

model = lamella.from_torch(network, (bits,), loss=nn.functional.cross_entropy, targets=(differ,))
lamella.save(model, "parity.nac")
np.save("bits.npy", bits.numpy())
np.save("differ.npy", differ.numpy())
