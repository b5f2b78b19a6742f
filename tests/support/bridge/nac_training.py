"""Networks with their training graphs as texts of NAC 1.8, and the modules of PyTorch that they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lamella.base.source import Source
from lamella.lang.nac import File, assemble, check

RATE = 0.125

LAYERS = """
    %x = input()
    %w1 = parameter("first.weight")
    %b1 = parameter("first.bias")
    %h = aten.linear.default:TTT(%x, %w1, %b1)
    %a = aten.{act}.default:T(%h)
    %w2 = parameter("second.weight")
    %b2 = parameter("second.bias")
    %y = aten.linear.default:TTT(%a, %w2, %b2)
    %z = output(%y)
.training
    %y = saved(7)
    %t = target(0)
"""
SQUARES = """
    %d = nac.sub:TT(%y, %t)
    %q = nac.mul:TT(%d, %d)
    %l = aten.mean.default:T(%q)
    %g = nac.mul:Tf(%d, {factor})
"""
ENTROPY = """
    %p = aten._log_softmax.default:Tib(%y, 1, false)
    %n = aten.nll_loss_forward.default:TTcii(%p, %t, null, 1, -100)
    %l = getitem:Ti(%n, 0)
    %k = getitem:Ti(%n, 1)
    %one = nac.ones_like:T(%l)
    %gp = aten.nll_loss_backward.default:TTTciiT(%one, %p, %t, null, 1, -100, %k)
    %g = aten._log_softmax_backward_data.default:TTic(%gp, %p, 1, "{dtype}")
"""
BACK = """
    %a = saved(4)
    %gt = aten.t.default:T(%g)
    %gw2 = aten.mm.default:TT(%gt, %a)
    %gb2 = aten.sum.dim_IntList:TS(%g, [0])
    %w2 = parameter("second.weight")
    %ga = aten.mm.default:TT(%g, %w2)
    %gh = {back}
    %x = saved(0)
    %ght = aten.t.default:T(%gh)
    %gw1 = aten.mm.default:TT(%ght, %x)
    %gb1 = aten.sum.dim_IntList:TS(%gh, [0])
    %r = constant(0.125)
    %u1 = update("second.weight", %gw2, %r)
    %u2 = update("second.bias", %gb2, %r)
    %u3 = update("first.weight", %gw1, %r)
    %u4 = update("first.bias", %gb1, %r)
    %f = finish(%l)
"""
CONVOLUTION = (
    """
    %x = input()
    %w = parameter("0.weight")
    %b = parameter("0.bias")
    %c = aten.convolution.default:TTTSSSbSi(%x, %w, %b, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
    %y = aten.sigmoid.default:T(%c)
    %z = output(%y)
.training
    %y = saved(4)
    %t = target(0)
"""
    + SQUARES
    + """
    %gc = aten.sigmoid_backward.default:TT(%g, %y)
    %x = saved(0)
    %w = parameter("0.weight")
    %cb = aten.convolution_backward.default:TTTSSSSbSiS(%gc, %x, %w, [3], {window}, false, [0, 0], 1, [0, 1, 1])
    %gw = getitem:Ti(%cb, 1)
    %gb = getitem:Ti(%cb, 2)
    %r = constant(0.125)
    %u1 = update("0.weight", %gw, %r)
    %u2 = update("0.bias", %gb, %r)
    %f = finish(%l)
"""
)
TANH, RELU = "aten.tanh_backward.default:TT(%ga, %a)", "aten.threshold_backward.default:TTi(%ga, %a, 0)"


@dataclass(frozen=True)
class Network:
    """A network as a text, as a module, and what it is trained on."""

    text: str
    module: Any
    x: Any
    target: Any
    loss: Callable[..., Any]


class Layers(nn.Module):
    """Two linear layers."""

    def __init__(self, act: Callable[[Any], Any]) -> None:
        super().__init__()
        self.first, self.second, self.act = nn.Linear(4, 6), nn.Linear(6, 3), act

    def forward(self, x: Any) -> Any:
        """The logits of rows."""
        return self.second(self.act(self.first(x)))


def network(name: str, dtype: str) -> Network:
    """A network by its name: `squares`, `entropy` or `convolution`."""
    torch.manual_seed(3)
    element = getattr(torch, dtype)
    if name == "convolution":
        module: Any = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Sigmoid()).to(element)
        x, target = torch.randn(2, 2, 5, 4, dtype=element), torch.rand(2, 3, 5, 4, dtype=element)
        text = CONVOLUTION.format(factor=2 / target.numel(), window="[1, 1], [1, 1], [1, 1]")
        return Network(_whole(text, module), module, x, target, functional.mse_loss)
    x = torch.randn(5, 4, dtype=element)
    if name == "squares":
        module, target = Layers(torch.tanh).to(element), torch.randn(5, 3, dtype=element)
        text = (LAYERS + SQUARES + BACK).format(act="tanh", factor=2 / 15, back=TANH)
        return Network(_whole(text, module), module, x, target, functional.mse_loss)
    module, target = Layers(torch.relu).to(element), torch.tensor([0, 2, 1, 1, 0])
    text = (LAYERS + ENTROPY + BACK).format(act="relu", dtype=dtype, back=RELU)
    return Network(_whole(text, module), module, x, target, functional.cross_entropy)


def _whole(code: str, module: Any) -> str:
    """A file of this code with the parameters of a module."""
    named = [(name, item.detach().numpy()) for name, item in module.named_parameters()]
    names = "\n".join(f'    {number} = "{name}"' for number, (name, _) in enumerate(named, 1))
    rows = [
        f'    {number} = {array.dtype}{list(array.shape)} hex("{array.tobytes().hex()}")'
        for number, (_, array) in enumerate(named, 1)
    ]
    tensors = "\n".join(rows)
    return f"nac 1.8\n.code{code}.inputs\n    0 = x\n.parameters\n{names}\n.tensors\n{tensors}\n"


def read(text: str) -> File:
    """The file of a text, which is right."""
    file, found = assemble(Source("training.nacs", text))
    assert not [*found, *check(file)], [*found, *check(file)]
    return file


def train_torch(item: Network, steps: int, rate: float = RATE) -> tuple[list[float], dict[str, Any]]:
    """The losses and the parameters after steps of torch's own gradient descent."""
    optimiser = torch.optim.SGD(item.module.parameters(), lr=rate)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = item.loss(item.module(item.x), item.target)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses, {name: value.detach().numpy().copy() for name, value in item.module.named_parameters()}
