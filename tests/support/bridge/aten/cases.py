"""Which operands are drawn for which overload of the table."""

from __future__ import annotations

from collections.abc import Mapping

from lamella.bridge.aten.adapt_random import RANDOM
from tests.support.bridge.aten.chances import chanced, lottery, tossed
from tests.support.bridge.aten.composed import filtered, labelled, middle, shifted, sloped
from tests.support.bridge.aten.creation import created, identity, ranged, spaced, strode
from tests.support.bridge.aten.draws import Draw
from tests.support.bridge.aten.elements import (
    clamp,
    convert,
    dropout,
    fused,
    gated,
    lerp,
    pair,
    prelu,
    replace,
    single,
)
from tests.support.bridge.aten.gradients import (
    embedded_back,
    lost,
    pooled_back,
    returned,
    returned_all,
    softened_back,
)
from tests.support.bridge.aten.layouts import (
    classed,
    copied,
    crossed,
    diagonal,
    differing,
    dims_of,
    indexed,
    joined,
    masked,
    numbered,
    parted,
    picked,
    put,
    repeated,
    rolled,
    scattered,
    strided,
    tiled,
    triangle,
    unflattened,
    unfolded,
    viewed,
)
from tests.support.bridge.aten.matrices import (
    cornered,
    counted_up,
    different,
    doubled,
    eliminated,
    factored,
    likely,
    nearest,
    replaced,
    selected,
    solved,
    windowed,
)
from tests.support.bridge.aten.networks import (
    attended,
    bagged,
    columned,
    convolved,
    counted,
    distant,
    grouped,
    multiplied,
    normalised,
    padded,
    pooled,
    resized,
    sampled,
    shuffled,
    softened,
    trebled,
    unshuffled,
    weighted,
)
from tests.support.bridge.aten.reductions import ordered, reduced, running, searched

CASES: Mapping[str, Draw] = {
    **dict.fromkeys(("real", "whole", "finite", "relu", "magnitude", "square", "invert"), single),
    **dict.fromkeys(("arithmetic", "division", "power", "extreme", "compare", "where"), pair),
    **{"replace": replace, "clamp": clamp, "fused": fused, "prelu_kernel": prelu, "dropout": dropout},
    **{
        "convert": convert,
        "squeeze": dims_of,
        "view_as": viewed,
        "view": viewed,
        "swap": dims_of,
        "reverse": dims_of,
    },
    **dict.fromkeys(("total", "norm", "extremum", "truth", "spread", "logsumexp"), reduced),
    **{"pick": ordered, "picked": ordered, "order": ordered, "argsort": ordered, "running": running},
    **{"median": ordered, "trilinear": trebled, "kth": ordered, "middle": middle, "shift": shifted},
    **{"slopes": sloped, "filtered": filtered, "multilabel_margin": labelled},
    **{"fill": created, "create": strode, "like": created, "new": created, "scalar": created},
    **{"arange": ranged, "last_two": triangle, "movedim": dims_of, "copy": copied},
    **{"repeat_interleave": repeated, "roll": rolled, "join": joined, "split_sizes": parted},
    **{"scattered": parted, "scatter_value": picked, "index": indexed, "softmax": softened},
    **{"attention": attended, "group_norm": normalised, "rms_norm": normalised, "batch_norm": normalised},
    **{"real_pair": pair, "logit": single, "nan_to_num": single, "native_dropout": dropout},
    **{
        "eye": identity,
        "linspace": spaced,
        "index_put": put,
        "diff": differing,
        "outer": crossed,
        "tile": tiled,
        "one_hot": classed,
        "instance_norm": normalised,
        "adaptive_max": pooled,
        "search": searched,
    },
    **{"batch_stats": normalised, "safe_softmax": softened},
    **{"convolution": convolved, "pool": pooled, "upsample": resized, "pad": padded},
    **{"softmax_backward": softened_back, "pool_backward": pooled_back},
    **dict.fromkeys(("factorisation", "log_determinant", "pinv"), factored),
    **dict.fromkeys(("solve", "triangular", "cholesky_solve"), solved),
    **{"qr": eliminated, "lu": eliminated, "lstsq": nearest, "masked_select": selected},
    **dict.fromkeys(("unique", "unique_dim", "unique_runs"), different),
    **{"bincount": counted_up, "repeats": counted_up, "nonzero_static": selected, "put": replaced},
    **{"triangle": cornered, "kaiser": windowed, "ndtri": likely, "ldexp": doubled, "ignore_nan": pair},
    **{"angle": single, "nanmedian": middle, "alpha_dropout": dropout},
    **{"svd": eliminated, "eigh": factored, "bernoulli": tossed, "multinomial": lottery},
    **dict.fromkeys(("uniform", "normal", "log_normal", "integers", "permutation"), chanced),
    **dict.fromkeys(("exponential", "cauchy", "geometric"), chanced),
}
"""The operands for each word of the table that says how they are fitted."""

PLAIN: Mapping[str, Draw] = {
    **dict.fromkeys(("aten.bitwise_not", "aten.neg", "aten.square", "aten.log_sigmoid"), single),
    **dict.fromkeys(("aten.logical_and", "aten.logical_or", "aten.logical_xor"), pair),
    **dict.fromkeys(("aten.bitwise_and", "aten.bitwise_or", "aten.bitwise_xor"), pair),
    **dict.fromkeys(("aten.floor_divide", "aten.remainder", "aten.fmod"), pair),
    **{
        "aten.embedding_bag": bagged,
        "aten.type_as": convert,
        "aten.prelu": prelu,
        "aten.glu": gated,
        "aten.lerp": lerp,
    },
    **{"aten.expand": viewed},
    **dict.fromkeys(("aten.flatten", "aten.unsqueeze", "aten.transpose", "aten.t"), dims_of),
    **dict.fromkeys(("aten.permute", "aten.flip"), dims_of),
    **{"aten.unflatten": unflattened, "aten.repeat": repeated, "aten.unbind": parted},
    **dict.fromkeys(("aten.split", "aten.split_with_sizes", "aten.chunk", "aten.slice"), parted),
    **{"aten.select": parted, "aten.narrow": parted, "aten.triu": triangle, "aten.tril": triangle},
    **dict.fromkeys(("aten.embedding", "aten.index_select", "aten.gather"), picked),
    **dict.fromkeys(("aten.scatter", "aten.scatter_add"), picked),
    **dict.fromkeys(("aten.mm", "aten.bmm", "aten.mv", "aten.dot", "aten.matmul"), multiplied),
    **dict.fromkeys(("aten.addmm", "aten.baddbmm", "aten.linear"), multiplied),
    **dict.fromkeys(("aten.layer_norm", "aten.native_layer_norm", "aten.rms_norm"), normalised),
    **{"aten.as_strided": strided, "aten.diagonal": diagonal, "aten.scatter_reduce": scattered},
    **{"aten.masked_scatter": masked, "aten.cdist_forward": distant, "aten.pdist_forward": distant},
    **{"aten.im2col": columned, "aten.col2im": columned},
    **dict.fromkeys(("aten.grid_sampler_2d", "aten.grid_sampler_3d"), sampled),
    **{"aten.weight_norm": weighted, "aten.histc": counted, "aten.grouped_mm": grouped},
    **{"aten.pixel_unshuffle": unshuffled, "aten.unfold": unfolded, "aten.index_add": numbered},
    **{"aten.index_copy": numbered, "aten.logcumsumexp": running, "aten.adaptive_avg_pool3d": pooled},
    **{f"aten.{kind}_pad{rank}d": padded for kind in ("reflection", "replication") for rank in (1, 2, 3)},
    **{"aten.native_group_norm": normalised, "aten.group_norm": normalised, "aten.pixel_shuffle": shuffled},
    **dict.fromkeys(("aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d"), pooled),
    **dict.fromkeys(("aten.threshold_backward", "aten.gelu_backward", "aten.silu_backward"), returned),
    **dict.fromkeys(("aten.sigmoid_backward", "aten.tanh_backward", "aten.elu_backward"), returned),
    **dict.fromkeys(("aten.hardsigmoid_backward", "aten.hardswish_backward"), returned),
    **dict.fromkeys(("aten.native_layer_norm_backward", "aten.native_group_norm_backward"), returned_all),
    **{"aten.leaky_relu_backward": returned, "aten.convolution_backward": returned_all},
    **dict.fromkeys(("aten.mse_loss", "aten.mse_loss_backward"), lost),
    **dict.fromkeys(("aten.nll_loss_forward", "aten.nll_loss_backward"), lost),
    **{"aten.embedding_dense_backward": embedded_back, "aten.adaptive_avg_pool2d_backward": pooled_back},
}
"""The operands for operators whose operands are taken as they are; others have one tensor."""

DRAWN = frozenset(RANDOM) - {"dropout", "native_dropout", "alpha_dropout", "slopes"}
"""How operands are fitted where results are drawn: their numbers are ours, not those of torch."""
SIGNED = ("svd", "eigh")
"""How operands are fitted where vectors of the results have free signs."""
