"""Adapters of recurrent networks: LSTM, GRU and RNN, in all directions, with lengths of sequences.

The products with the inputs of all steps are computed before the loop; a step only multiplies its state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from lamella.base.dim import Extent
from lamella.base.dtype import I64
from lamella.bridge.onnx_to_graph.adapters.flow import emit_loop, item_of, take_apart
from lamella.bridge.onnx_to_graph.site import NodeSite, Results
from lamella.graph.nodes import Tensor

Function = Callable[[Tensor], Tensor]
Step = Callable[["Direction", Tensor, Sequence[Tensor]], list[Tensor]]
"""What a step makes of the products with its input and of its states."""
_ONE, _TWO = ("LeakyRelu", "ThresholdedRelu", "Elu"), ("Affine", "ScaledTanh", "HardSigmoid")
_ALPHA = {
    "LeakyRelu": 0.01,
    "ThresholdedRelu": 1.0,
    "Elu": 1.0,
    "Affine": 1.0,
    "ScaledTanh": 1.0,
    "HardSigmoid": 0.2,
}
_BETA = {"Affine": 0.0, "ScaledTanh": 1.0, "HardSigmoid": 0.5}


@dataclass(slots=True)
class Direction:
    """The weights of one direction, and the functions of its gates."""

    site: NodeSite
    recurrent: Tensor
    state_bias: Tensor | None
    peepholes: Tensor | None
    functions: Sequence[Function]

    def bounded(self, gates: Tensor) -> Tensor:
        """What goes into the functions, between the clip and its negative."""
        clip = self.site.attributes.get("clip")
        if not isinstance(clip, float | int) or not clip:
            return gates
        kind = gates.element
        low, high = self.site.scalar(-float(clip), kind), self.site.scalar(float(clip), kind)
        return self.site.call("math.clamp", gates, low, high)


# --- steps --------------------------------------------------------------------------------------------------------


def _rnn_step(way: Direction, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    gates = way.site.add(x, way.site.call("nn.linear", states[0], way.recurrent))
    return [way.functions[0](way.bounded(gates))]


def _gru_step(way: Direction, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """Gates in the order update, reset, hidden."""
    site, (h,) = way.site, states
    update_x, reset_x, hidden_x = site.call_all("layout.split", x, axis=1, count=3)
    weights = site.call_all("layout.split", way.recurrent, axis=0, count=3)
    f, g = way.functions[:2]
    z = f(way.bounded(site.add(update_x, site.call("nn.linear", h, weights[0]))))
    r = f(way.bounded(site.add(reset_x, site.call("nn.linear", h, weights[1]))))
    bias = way.state_bias
    if site.flag("linear_before_reset"):
        inner = site.mul(r, site.call("nn.linear", h, weights[2], bias))
    else:
        inner = site.call("nn.linear", site.mul(r, h), weights[2], bias)
    n = g(way.bounded(site.add(hidden_x, inner)))
    # (1 - z) * n + z * h
    return [site.add(n, site.mul(z, site.call("math.sub", h, n)))]


def _lstm_step(way: Direction, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
    """Gates in the order input, output, forget, cell; peepholes in the order input, output, forget."""
    site, (h, c) = way.site, states
    gates = site.add(x, site.call("nn.linear", h, way.recurrent))
    i, o, f, g = site.call_all("layout.split", gates, axis=1, count=4)
    peep: list[Tensor | None] = [None, None, None]
    if way.peepholes is not None:
        peep = [*site.call_all("layout.split", way.peepholes, axis=0, count=3)]
    f1, f2, f3 = way.functions[:3]
    i = f1(way.bounded(_looked(site, i, peep[0], c)))
    if site.flag("input_forget"):
        f = site.call("math.sub", site.scalar(1, i.element), i)
    else:
        f = f1(way.bounded(_looked(site, f, peep[2], c)))
    cell = site.add(site.mul(f, c), site.mul(i, f2(way.bounded(g))))
    o = f1(way.bounded(_looked(site, o, peep[1], cell)))
    return [site.mul(o, f3(cell)), cell]


def _looked(site: NodeSite, gate: Tensor, peephole: Tensor | None, cell: Tensor) -> Tensor:
    return gate if peephole is None else site.add(gate, site.mul(peephole, cell))


# --- functions ----------------------------------------------------------------------------------------------------


def _functions(site: NodeSite, defaults: Sequence[str], directions: int) -> list[list[Function]]:
    """The functions of each direction; parameters are taken in order by those that have some."""
    names = site.texts("activations") or tuple(defaults) * directions
    alphas, betas = iter(site.reals("activation_alpha") or ()), iter(site.reals("activation_beta") or ())
    found = [_function(site, name, alphas, betas) for name in names]
    size = len(found) // directions
    return [found[place * size : (place + 1) * size] for place in range(directions)]


def _function(site: NodeSite, name: str, alphas: Iterator[float], betas: Iterator[float]) -> Function:
    word = next((item for item in (*_PLAIN, *_ALPHA) if item.lower() == name.lower()), "")
    if word in _PLAIN:
        return lambda x: site.call(_PLAIN[word], x)
    if not word:
        site.refuse(f"has the function '{name}'")
    alpha = next(alphas, _ALPHA[word])
    beta = next(betas, _BETA[word]) if word in _TWO else 0.0
    return lambda x: _with_parameters(site, word, x, alpha, beta)


def _with_parameters(site: NodeSite, word: str, x: Tensor, alpha: float, beta: float) -> Tensor:
    if word == "Affine":
        return site.add(site.scaled(x, alpha), site.scalar(beta, x.element))
    if word == "ScaledTanh":
        return site.scaled(site.call("math.tanh", site.scaled(x, beta)), alpha)
    if word == "HardSigmoid":
        return site.call("onnx.hard_sigmoid", x, alpha=alpha, beta=beta)
    operator, name = {
        "LeakyRelu": ("nn.relu", "alpha"),
        "Elu": ("nn.elu", "alpha"),
        "ThresholdedRelu": ("nn.thresholded_relu", "theta"),
    }[word]
    return site.call(operator, x, **{name: alpha})


_PLAIN: Mapping[str, str] = MappingProxyType(
    {
        "Relu": "nn.relu",
        "Tanh": "math.tanh",
        "Sigmoid": "nn.sigmoid",
        "Softsign": "aten.softsign",
        "Softplus": "onnx.softplus",
    }
)


# --- the loop -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of network: its gates, its functions, and its step."""

    gates: int
    defaults: tuple[str, ...]
    step: Step
    states: int = 1


_KINDS = MappingProxyType(
    {
        "RNN": _Kind(1, ("Tanh",), _rnn_step),
        "GRU": _Kind(3, ("Sigmoid", "Tanh"), _gru_step),
        "LSTM": _Kind(4, ("Sigmoid", "Tanh", "Tanh"), _lstm_step, 2),
    }
)


def _recurrent(site: NodeSite) -> Results:
    """Every direction by itself, then put together as `layout` asks."""
    kind = _KINDS[site.node.op_type]
    batch_first = site.flag("layout")
    x = site.transpose(site.tensor(0), (1, 0, 2)) if batch_first else site.tensor(0)
    way = site.text("direction", "forward")
    ways = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(way)
    if ways is None:
        site.refuse(f"has the direction '{way}'")
    functions = _functions(site, kind.defaults, len(ways))
    found = [_one_way(site, kind, x, place, back, functions[place]) for place, back in enumerate(ways)]
    whole = site.call("layout.stack", tuple(item[0] for item in found), axis=1)
    lasts = [
        site.call("layout.stack", tuple(item[1 + state] for item in found), axis=0)
        for state in range(kind.states)
    ]
    if batch_first:
        return [
            site.transpose(whole, (2, 0, 1, 3)),
            *(site.transpose(item, (1, 0, 2)) for item in lasts),
        ]
    return [whole, *lasts]


def _part(site: NodeSite, index: int, place: int) -> Tensor | None:
    """What an input holds for one direction."""
    given = site.optional(index)
    return None if given is None else site.call("aten.select", given, dim=0, index=place)


def _one_way(
    site: NodeSite, kind: _Kind, x: Tensor, place: int, back: bool, functions: list[Function]
) -> list[Tensor]:
    """The results of all steps in one direction, and the last states."""
    lengths = site.optional(4)
    counts = None if lengths is None else site.cast(lengths, I64)
    weights, recurrent = _part(site, 1, place), _part(site, 2, place)
    assert weights is not None  # the checker counts inputs
    assert recurrent is not None
    size = recurrent.shape[1]
    both = _part(site, 3, place)
    bias, state_bias = _biases(site, kind, both)
    given = _turned(site, x, counts) if back else x
    gates = site.call("aten.linear", given, weights, bias)
    peepholes = _part(site, 7, place) if kind.states == 2 else None
    way = Direction(site, recurrent, state_bias, peepholes, functions)
    start = [_start(site, index, place, (x.shape[1], size), x) for index in range(5, 5 + kind.states)]
    results = _steps(way, kind, gates, start, counts)
    if back:
        results[0] = _turned(site, results[0], counts)
    return results


def _biases(site: NodeSite, kind: _Kind, both: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The bias of the inputs' products, and of the state's where a gate needs it alone."""
    if both is None:
        return None, None
    first, second = site.call_all("layout.split", both, axis=0, count=2)
    if kind.gates != 3:
        return site.add(first, second), None
    parts = site.call_all("layout.split", first, axis=0, count=3)
    more = site.call_all("layout.split", second, axis=0, count=3)
    summed = [site.add(left, right) for left, right in zip(parts[:2], more[:2], strict=True)]
    return site.call("layout.concat", (*summed, parts[2]), axis=0), more[2]


def _turned(site: NodeSite, x: Tensor, counts: Tensor | None) -> Tensor:
    if counts is None:
        return site.call("aten.flip", x, dims=(0,))
    return site.call("onnx.reverse_sequence", x, counts, batch_axis=1, time_axis=0)


def _start(site: NodeSite, index: int, place: int, shape: tuple[Extent, ...], x: Tensor) -> Tensor:
    given = site.optional(index)
    if given is None:
        zero = site.scalar(0, x.element)
        return site.make("layout.uniform", x.element, zero, shape=shape)
    if site.flag("layout"):
        given = site.transpose(given, (1, 0, 2))
    return site.call("aten.select", given, dim=0, index=place)


def _steps(
    way: Direction, kind: _Kind, gates: Tensor, start: list[Tensor], counts: Tensor | None
) -> list[Tensor]:
    """The loop over the steps; beyond the length of a sequence its state stays, and its result is zero."""
    site = way.site
    builder = site.builder
    items = take_apart(site, gates, 0, 0)
    inner = [replace(item, name=builder.fresh("state")) for item in start]
    index = Tensor(builder.fresh("step"), I64, ())

    def run(*given: Tensor) -> Sequence[Tensor]:
        states = list(given[: len(start)])
        fresh = kind.step(way, given[len(start)], states)
        if counts is None:
            return [*fresh, fresh[0]]
        going = site.call("math.lt", index, site.reshape(counts, (counts.shape[0], 1)))
        kept = [site.call("math.select", going, new, old) for new, old in zip(fresh, states, strict=True)]
        zero = site.scalar(0, fresh[0].element)
        return [*kept, site.call("math.select", going, fresh[0], zero)]

    tail = () if counts is None else (index,)
    region = builder.region(run, *inner, item_of(site, items), *tail)
    results = emit_loop(site, start, region, None, False, [items])
    return [results[len(start)], *results[: len(start)]]


RECURRENT: Mapping[str, Callable[[NodeSite], Results]] = MappingProxyType(dict.fromkeys(_KINDS, _recurrent))
"""Adapters by the names of ONNX's operators."""
