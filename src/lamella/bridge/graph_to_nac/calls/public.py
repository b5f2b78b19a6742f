"""Operators of the library as the operations that other readers of NAC implement, where the two compute the same.

Operations of ATen are compositions of the library, so that restating changes no number. A call is restated only where
the result is on the public list and makes the same tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from lamella.base.dim import Dim, DimSymbol, Extent
from lamella.bridge.aten.build import build_call
from lamella.bridge.aten.describe import describe
from lamella.bridge.aten.nodes import Call, Result
from lamella.bridge.aten.table import find_schema
from lamella.bridge.graph_to_nac.calls.restate import restate_call, written_name
from lamella.graph.build import Builder
from lamella.graph.nodes import Argument, Constant, Operation, Tensor, Value
from lamella.graph.rewrite import made
from lamella.lang.nac.operations import is_public
from lamella.ops.library import SPECIFICATION, Library
from lamella.ops.problem import Problem

Change = Callable[[Operation, Mapping[str, Value]], Operation | Call | None]
"""How an operation of the library becomes one of ATen; None where it has none."""


def say_publicly(library: Library, node: Operation, constants: Mapping[str, Constant]) -> Call | None:
    """The call of an operation of ATen that other readers have, and that makes what a node makes.

    Operations of ATen are made of the library of the specification, so operators of another dialect stay what they are.
    """
    change = _CHANGES.get(node.operator) if library.dialect == SPECIFICATION else None
    found = None if change is None else change(node, dict(node.attributes))
    call = describe(found, constants) if isinstance(found, Operation) else found
    if call is None:
        return None
    call = restate_call(call, node)
    return call if is_public(written_name(call)) and _makes(library, call, node) else None


def _makes(library: Library, call: Call, node: Operation) -> bool:
    """Whether a call makes the tensors of a node, by one operation: nothing is cast or turned around it."""
    builder = Builder(library, "")
    try:
        found = list(_tensors(build_call(builder, call)))
    except (Problem, ArithmeticError, ValueError):
        return False
    wanted = [(item.element, item.shape) for item in made(node) if isinstance(item, Tensor)]
    return wanted == [(item.element, item.shape) for item in found] and len(builder.finish().nodes) == 1


def _tensors(result: Result) -> Iterable[Tensor]:
    if isinstance(result, tuple):
        return [tensor for item in result for tensor in _tensors(item)]
    return [result] if isinstance(result, Tensor) else []


# --- how operators are restated -----------------------------------------------------------------------------


def _other(
    node: Operation, name: str, inputs: tuple[Argument, ...] | None = None, /, **attributes: Value
) -> Operation:
    given = node.inputs if inputs is None else inputs
    # Operators of reals have no generic type where those of ATen have one.
    made_types = [("T", item.element) for item in made(node) if isinstance(item, Tensor)]
    types = node.types if "T" in dict(node.types) else (*node.types, *made_types[:1])
    return replace(
        node, operator=f"aten.{name}", inputs=given, attributes=tuple(attributes.items()), types=types
    )


def _same(name: str) -> Change:
    """The same inputs in the same order; an attribute that says something, such as an alignment, is in the way."""
    return lambda node, given: None if _says(given) else _other(node, name)


def _says(given: Mapping[str, Value]) -> bool:
    return any(value is not None for value in given.values())


def _reduced(name: str) -> Change:
    return lambda node, given: (
        _other(node, name, dim=given["axes"], keepdim=not given["squeeze"]) if given["axes"] else None
    )


def _along(name: str, attribute: str) -> Change:
    return lambda node, given: _other(node, name, dim=given[attribute])


def _softmax(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    match given["axes"]:
        case (axis,):
            return _other(node, "softmax", dim=axis)
    return None


def _gelu(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    words: Mapping[Value, str] = {None: "none", "TANH": "tanh"}
    word = words.get(given["approximate"])
    return None if word is None else _other(node, "gelu", approximate=word)


def _cumsum(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    plain = not given["exclusive"] and not given["reverse"]
    return _other(node, "cumsum", dim=given["axis"]) if plain else None


def _transpose(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    axis, perm, source = given["axis"], given["perm"], node.inputs[0]
    if not isinstance(axis, int) or not isinstance(perm, tuple) or not isinstance(source, Tensor):
        return None
    return _other(node, "permute", dims=(*range(axis % (len(source.shape) or 1)), *perm))


def _unsqueeze(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    match given["axes"]:
        case (axis,):
            return _other(node, "unsqueeze", dim=axis)
    return _view(node, given)


def _view(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    """A view of the whole shape; an extent that is no number and no name of its own is left to be found."""
    (result,) = node.outputs
    shape = result.shape if isinstance(result, Tensor) else ()
    unknown = [item for item in shape if isinstance(item, Dim) and not _is_lone(item)]
    if not isinstance(result, Tensor) or len(unknown) > 1:
        return None
    size: tuple[Extent, ...] = tuple(-1 if item in unknown else item for item in shape)
    return _other(node, "view", node.inputs[:1], size=size)


def _reshaped(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    """Without a shape, heads are put side by side, which turns axes."""
    return None if given["shape"] is None else _view(node, given)


def _is_lone(extent: Dim) -> bool:
    (monomial, factor), *rest = extent.terms
    return not rest and factor == 1 and len(monomial) == 1 and isinstance(monomial[0], DimSymbol)


def _expand(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    (result,), source = node.outputs, node.inputs[0]
    if not isinstance(result, Tensor) or not isinstance(source, Tensor):
        return None
    alike = len(result.shape) == len(source.shape) and all(isinstance(item, int) for item in result.shape)
    return _other(node, "expand", size=result.shape) if alike else None


def _slice(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    match given["axes"], given["begin"], given["end"], given["stride"]:
        case (axis,), (begin,), (end,), (stride,) if isinstance(stride, int) and stride > 0:
            return _other(node, "slice", dim=axis, start=begin, end=end, step=stride)
    return None


def _split(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    """Parts of one size."""
    sizes = given["sizes"]
    if not isinstance(sizes, tuple) or len(set(sizes)) != 1:
        return None
    return _other(node, "split", split_size=sizes[0], dim=given["axis"])


def _embedding(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    """Rows of a table by their numbers."""
    table = node.inputs[0]
    if given["axis"] != 0 or not isinstance(table, Tensor) or len(table.shape) != 2:
        return None
    return _other(node, "embedding")


def _range(node: Operation, given: Mapping[str, Value]) -> Operation:
    return _other(node, "arange", start=given["first"], end=given["last"], step=given["stride"])


def _convolution(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    """Two dimensions, channels first, as much padding behind as before."""
    formats = (given["data_format"], given["filter_format"])
    padding = _even(given["padding"])
    if formats != ("NCX", "NCX") or given["ceil_mode"] or not given["groups"] or padding is None:
        return None
    others = {name: given[name] for name in ("stride", "dilation", "groups")}
    return _other(node, "conv2d", padding=padding, **others)


def _max_pool(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    padding, source = _even(given["padding"]), node.inputs[0]
    last = given["axes"] == (2, 3) and isinstance(source, Tensor) and len(source.shape) == 4
    if not last or given["ceil_mode"] or padding is None:
        return None
    others = {name: given[name] for name in ("stride", "dilation")}
    return _other(node, "max_pool2d", kernel_size=given["size"], padding=padding, ceil_mode=False, **others)


def _even(padding: Value) -> Value:
    """The padding before two dimensions, where that behind them is the same."""
    match padding:
        case (a, b, c, d) if (a, b) == (c, d):
            return (a, b)
    return None


def _product(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    """A product of matrices, or with the rows of a weight."""
    if given["transA"]:
        return None
    return _multiplied(node, "NT" if given["transB"] else "NN")


def _scaled_product(node: Operation, given: Mapping[str, Value]) -> Operation | None:
    return _multiplied(node, str(given["transpose"])) if given["alpha"] == 1.0 else None


def _multiplied(node: Operation, way: str) -> Operation | None:
    left, right, *rest = node.inputs
    if rest not in ([], [None]) or not isinstance(right, Tensor):
        return None
    if way == "NT" and len(right.shape) == 2:
        return _other(node, "linear", (left, right, None))
    return _other(node, "matmul", (left, right)) if way == "NN" else None


def _scaled(node: Operation, given: Mapping[str, Value]) -> Call | None:
    schema, source, factor = find_schema("aten.mul.Scalar"), node.inputs[0], given["factor"]
    if schema is None or not isinstance(source, Tensor) or not isinstance(factor, int | float):
        return None
    return Call(schema, {"self": source, "other": factor})


_CHANGES: Mapping[str, Change] = MappingProxyType(
    {
        **{
            f"math.{name}": _same(name)
            for name in ("neg", "exp", "log", "sin", "cos", "tanh", "abs", "rsqrt")
        },
        **{f"math.{name}": _same(name) for name in ("add", "sub", "mul", "div", "pow", "clamp")},
        **{f"math.{name}": _same(name) for name in ("lt", "gt", "le", "ge", "eq", "ne")},
        **{f"nn.{name}": _same(name) for name in ("relu", "sigmoid", "silu", "linear")},
        **{"math.iden": _same("clone"), "math.min": _same("min_other"), "math.select": _same("where")},
        **{"math.and": _same("bitwise_and"), "math.or": _same("bitwise_or"), "layout.cast": _same("to_copy")},
        **{"math.sum_reduce": _reduced("sum"), "math.mean_reduce": _reduced("mean")},
        **{"math.cumsum": _cumsum, "nn.softmax": _softmax, "nn.gelu": _gelu},
        **{"nn.conv": _convolution, "nn.max_pool": _max_pool, "linalg.matmul": _product},
        **{"layout.concat": _along("cat", "axis"), "layout.split": _split, "layout.slice": _slice},
        **{"layout.transpose": _transpose, "layout.unsqueeze": _unsqueeze, "layout.broadcast": _expand},
        **{f"layout.{name}": _view for name in ("reshape", "flatten", "unflatten", "squeeze")},
        **{"layout.gather": _embedding, "layout.range": _range},
        **{"llm.matmul": _scaled_product, "llm.bias_add": _same("add"), "llm.scale": _scaled},
        **{
            "llm.softmax": _along("softmax", "dim"),
            "llm.concat": _along("cat", "dim"),
            "llm.reshape": _reshaped,
        },
        "llm.embedding": lambda node, given: _other(node, "embedding", node.inputs[::-1]),
    }
)
