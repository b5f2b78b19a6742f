"""The semantics of the instructions of a plan: one function each."""

from __future__ import annotations

import json
import math
import operator
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType

import numpy as np

from lamella.backend.mep.state import (
    MODELS,
    PRINT,
    PROMPT,
    READ,
    TRAIN,
    WRITE,
    Actions,
    LoadedModel,
    Number,
    PlanState,
    PlanTraining,
    Value,
    as_array,
    as_integer,
    as_integers,
    as_scalar,
    as_text,
    as_tokenizer,
    bytes_of,
    compute,
    fault,
    refused,
    show,
    shown_bytes,
    unwrap,
    words_for,
)
from lamella.base.arrays import Array, DType, numpy_dtype
from lamella.base.diagnostic import printable
from lamella.base.limits import DEFAULT, LARGEST, SMALLEST
from lamella.lang.nac.check import bytecode as opcodes
from lamella.lang.nac.check.bytecode import PlanStep
from lamella.lang.nac.check.data import DTYPES, check_arrays
from lamella.lang.nac.check.plan import SELF, BlockCall, blocks_of, fill, model_number
from lamella.lang.nac.nodes import V1_5, V1_6

# --- numbers: one by one as Python counts, arrays as NumPy does; and what is chosen from logits -------------


_SOFTMAX, _DIVIDE, _POWER = 0, 3, 4
_LARGEST_EXPONENT = 64
_UNARY: Mapping[int, Callable[[Array], Array]] = MappingProxyType(
    {1: np.sqrt, 2: np.abs, 3: np.negative, 4: np.exp, 5: lambda array: np.divide(1, array)}
)
_BINARY: Mapping[int, Callable[[Array, Array], Array]] = MappingProxyType(
    {
        **{0: np.add, 1: np.subtract, 2: np.multiply, 3: np.true_divide},
        **{4: np.power, 5: np.maximum, 6: np.minimum},
    }
)
_SCALAR: Mapping[int, Callable[[Number, Number], Number]] = MappingProxyType(
    {0: operator.add, 1: operator.sub, 2: operator.mul, 3: operator.truediv, 5: max, 6: min}
)
_COMPARE: Mapping[int, Callable[[Array, Array], Array]] = MappingProxyType(
    {0: np.equal, 1: np.not_equal, 2: np.greater, 3: np.less}
)
_EQUALITY = (operator.eq, operator.ne)


def _unary(state: PlanState, numbers: tuple[int, ...]) -> None:
    kind, out, source = numbers
    array = as_array(state.read(source))
    state.keep_room(8 * array.size)
    state.write(out, unwrap(compute(softmax if kind == _SOFTMAX else _UNARY[kind], array)))


def softmax(array: Array) -> Array:
    """Shares along the last axis that add up to 1; of integers in double precision."""
    reals = array if array.dtype.kind == "f" else array.astype(np.float64)
    if not reals.ndim:
        raise fault("finds no last axis in a number", "give an array or a list")
    powers = np.exp(reals - reals.max(axis=-1, keepdims=True)) if reals.size else reals
    shares: Array = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def _binary(state: PlanState, numbers: tuple[int, ...]) -> None:
    kind, out, first, second = numbers
    a, b = state.read(first), state.read(second)
    if isinstance(a, bool | int | float) and isinstance(b, bool | int | float):
        state.write(out, _count(kind, a, b))
        return
    arrays = as_array(a), as_array(b)
    _keep_room(state, *arrays)
    state.write(out, unwrap(compute(_BINARY[kind], *arrays)))


def _keep_room(state: PlanState, a: Array, b: Array) -> None:
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise fault(f"cannot join {words_for(a)} and {words_for(b)}", "extents are equal, or 1") from None
    state.keep_room(8 * math.prod(shape))


def _count(kind: int, a: Number, b: Number) -> Number:
    """Two numbers by Python's rules; integers stay within 64 bits."""
    try:
        found = _power(a, b) if kind == _POWER else _SCALAR[kind](a, b)
    except (ArithmeticError, ValueError):
        raise fault(f"cannot compute with {a} and {b}", "the result is no number") from None
    if isinstance(found, int) and not SMALLEST <= found <= LARGEST:
        raise fault(f"leaves 64 bits with {a} and {b}", "compute with reals, or with arrays")
    return found


def _power(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int) and 0 <= b <= _LARGEST_EXPONENT:
        found: int = a**b
        return found
    return math.pow(a, b)


def _aggregate(state: PlanState, numbers: tuple[int, ...]) -> None:
    _, out, source = numbers
    array = as_array(state.read(source))
    if not array.ndim or not array.shape[-1]:
        raise fault(f"finds no largest element in {words_for(array)}", "give an array that is not empty")
    state.write(out, unwrap(np.asarray(compute(lambda: np.argmax(array, axis=-1)))))


def _compare(state: PlanState, numbers: tuple[int, ...]) -> None:
    kind, out, first, second = numbers
    a, b = state.read(first), state.read(second)
    if isinstance(a, str) and isinstance(b, str) and kind < len(_EQUALITY):
        state.write(out, bool(_EQUALITY[kind](a, b)))
        return
    arrays = as_array(a), as_array(b)
    _keep_room(state, *arrays)
    state.write(out, unwrap(np.asarray(compute(_COMPARE[kind], *arrays))))


# --- choosing -----------------------------------------------------------------------------------------------


def _top_k(state: PlanState, numbers: tuple[int, ...]) -> None:
    source, slot, indices, values = numbers
    flat = _finite_row(state.read(source)).reshape(-1)
    count = as_integer(state.read(slot))
    if not 0 <= count <= flat.size:
        raise fault(f"wants the largest {count} of {flat.size}", "ask for no more than there are")
    order = _descending(flat)[:count]
    state.write(indices, order)
    state.write(values, flat[order])


def _descending(flat: Array) -> Array:
    """Indices from the largest element to the smallest; of equal ones the first comes first."""
    order: Array = np.argsort(flat, kind="stable")[::-1]
    ranked = flat[order]
    # Turned round, equal elements stand from the last to the first; sorting each run by index mends that.
    starts = np.cumsum(np.concatenate([[False], ranked[1:] != ranked[:-1]])) if flat.size else order
    return order[np.lexsort((order, starts))]


def _finite_row(value: Value) -> Array:
    array = as_array(value)
    if array.dtype.kind not in "biuf" or np.isnan(array).any():
        raise fault(f"cannot order {words_for(array)}", "give numbers, none of which is NaN")
    return array


def _sample(state: PlanState, numbers: tuple[int, ...]) -> None:
    source, temperature, slot, out = numbers
    logits = _finite_row(state.read(source))
    if not logits.ndim or not logits.size or logits.size != logits.shape[-1]:
        raise fault(f"draws from {words_for(logits)}", "give the logits of one position")
    heat, most = float(as_scalar(state.read(temperature))), as_integer(state.read(slot))
    state.write(out, draw(logits.reshape(-1), heat, most, state.around.random))


def draw(logits: Array, temperature: float, most: int, random: np.random.Generator) -> int:
    """The index of a logit: by chance among the `most` largest, or the largest where the temperature is not above 0.

    One number u in [0, 1) is drawn; from the largest share on, the first whose running sum exceeds u is taken.
    """
    order = _descending(logits)
    if not temperature > 0 or math.isinf(float(logits[order[0]])):
        return int(order[0])
    kept = order[:most] if most > 0 else order
    sums = np.cumsum(softmax(logits[kept].astype(np.float64) / temperature))
    place = int(np.searchsorted(sums, random.random() * sums[-1], side="right"))
    return int(kept[min(place, kept.size - 1)])


MATHEMATICS: Actions = MappingProxyType(
    {0x60: _unary, 0x61: _binary, 0x62: _aggregate, 0x68: _compare, 0x70: _top_k, 0x71: _sample}
)
"""Instructions that compute."""


# --- where values come from: people, constants, files, models, arrays of the file ---------------------------


MODE, BOTH = "infer", "infer_train"
"""What SRC_EXEC_MODE gives: whether a plan may train."""
SHORT_SIDE, CROP = 256, 224
"""Pixels of a picture before and after its edges are cut off."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of red, green and blue, in the pictures that classifiers are trained on."""
_TEXT, _INTEGER, _IMAGE, _TOKENIZER, _MODEL = 0, 1, 3, 0, 0


def _prompt(state: PlanState, numbers: tuple[int, ...]) -> None:
    out, kind, question = numbers
    answer = next(state.around.answers, None)
    if answer is None:
        text = state.text(question)
        state.allow(PROMPT, "asks a person")
        answer = state.ask("asks a person", lambda: state.around.host.prompt(text))
    state.write(out, answer if kind == _TEXT else _read_number(answer, kind == _INTEGER))


def _read_number(answer: str, integer: bool) -> int | float:
    try:
        number = int(answer) if integer else float(answer)
    except ValueError:
        number = None
    if number is None or (integer and not SMALLEST <= number <= LARGEST):
        kind = "an integer" if integer else "a number"
        raise fault(f"wants {kind} and gets '{printable(answer, 40)}'", f"answer with {kind}")
    return number


def _constant(state: PlanState, numbers: tuple[int, ...]) -> None:
    out, id_ = numbers
    state.write(out, state.constant(id_))


def _mode(state: PlanState, numbers: tuple[int, ...]) -> None:
    state.write(numbers[0], BOTH if TRAIN in state.around.grants else MODE)


def _load_model(state: PlanState, numbers: tuple[int, ...]) -> None:
    number, id_ = numbers
    path, host = state.text(id_), state.around.host
    action = f"loads the model '{path}'"
    if path == SELF or path in host.own_names:
        path = SELF
    else:
        state.allow_path(MODELS, action, path)
    state.models[number] = LoadedModel(path, state.ask(action, lambda: host.load_model(path)))


def _load_data(state: PlanState, numbers: tuple[int, ...]) -> None:
    out, _, id_ = numbers
    state.write(out, _read_array(state, state.text(id_)))


def _read_array(state: PlanState, path: str) -> Array:
    action = f"reads '{path}'"
    state.allow_path(READ, action, path)
    return state.take(action, state.ask(action, lambda: state.around.host.read_array(path)))


def _load_extern(state: PlanState, numbers: tuple[int, ...]) -> None:
    out, kind, id_ = numbers
    if kind != _TOKENIZER:
        state.write(out, state.constant(id_))
        return
    number = model_number(state.around.values.get(id_))
    loaded = state.model(-1 if number is None else number)
    action = f"takes the tokenizer of model {number}"
    state.write(out, state.ask(action, lambda: state.around.host.tokenizer(loaded.path)))


def _load_dynamic(state: PlanState, numbers: tuple[int, ...]) -> None:
    out, slot, kind = numbers
    path = as_text(state.read(slot))
    state.write(out, _read_image(state, path) if kind == _IMAGE else _read_array(state, path))


def _read_image(state: PlanState, path: str) -> Value:
    """A picture as classifiers take it; files of the first versions are made square before they are cut."""
    action = f"reads the picture '{path}'"
    state.allow_path(READ, action, path)
    width = SHORT_SIDE if state.around.file.header.version in (V1_5, V1_6) else 0
    host = state.around.host
    pixels = state.take(action, state.ask(action, lambda: host.read_image(path, SHORT_SIDE, width)))
    if pixels.ndim != len(MEAN) or pixels.shape[2] != len(MEAN) or min(pixels.shape[:2]) < CROP:
        raise refused(
            f"{action}: it comes with shape {list(pixels.shape)}", "pictures have rows, columns and 3 colours"
        )
    return normalise(pixels)


def normalise(pixels: Array) -> Array:
    """The middle of a picture in float32 of shape (1, 3, 224, 224), scaled by mean and deviation of each colour."""
    top, left = ((extent - CROP) // 2 for extent in pixels.shape[:2])
    middle = pixels[top : top + CROP, left : left + CROP].astype(np.float32) / np.float32(255)
    scaled = (middle - np.array(MEAN, np.float32)) / np.array(DEVIATION, np.float32)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[np.newaxis])


def _load_array(state: PlanState, numbers: tuple[int, ...]) -> None:
    out, id_ = numbers
    name = state.text(id_)
    found = next((item for item in state.around.file.arrays if item.name == name), None)
    if found is None or any(check_arrays(state.around.file)):
        raise fault(f"takes the array '{name}', which is not sound", "`lamella check` tells what is wrong")
    state.keep_room(len(found.data))
    dtype = numpy_dtype(DTYPES[found.dtype][1])
    stored = np.frombuffer(bytes(found.data), np.uint8).view(dtype)
    state.write(out, state.take("takes an array", stored.reshape(found.shape)))


def _unload(state: PlanState, numbers: tuple[int, ...]) -> None:
    kind, number = numbers
    if kind == _MODEL:
        state.models.pop(number, None)
    else:
        state.clear(number)


def _copy(state: PlanState, numbers: tuple[int, ...]) -> None:
    out, source = numbers
    state.write(out, state.read(source))


SOURCES: Actions = MappingProxyType(
    {
        opcodes.PROMPT: _prompt,
        opcodes.CONSTANT: _constant,
        0x05: _mode,
        opcodes.LOAD_MODEL: _load_model,
        opcodes.LOAD_DATA: _load_data,
        opcodes.LOAD_EXTERN: _load_extern,
        0x13: _load_dynamic,
        opcodes.LOAD_ARRAY: _load_array,
        opcodes.UNLOAD: _unload,
        0x59: _copy,
    }
)
"""Instructions that fill slots from elsewhere, or empty them."""


# --- texts: tokens, formats, and values as text, JSON or a picture ------------------------------------------


# --- arrays as pictures: PNG, written with what Python brings -----------------------------------------------


SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GREY, _COLOUR = 0, 2
_MOST = 1 << 31
_PLAIN, _COLOURED, _BATCHED = 2, 3, 4
"""Axes of a picture without colours, with colours, and of a batch of pictures."""


def encode_png(array: Array) -> bytes:
    """An array as the bytes of a PNG file: rows and columns, grey or with 3 colours first or last.

    Integers are levels from 0 to 255, reals from 0 to 1; what lies outside is cut off.
    """
    pixels = _pixels(array)
    height, width, colours = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, _GREY if colours == 1 else _COLOUR, 0, 0, 0)
    rows = np.zeros((height, 1 + width * colours), np.uint8)
    rows[:, 1:] = pixels.reshape(height, width * colours)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _pixels(array: Array) -> Array:
    """Rows, columns and colours as bytes."""
    placed: Array = array[0] if array.ndim == _BATCHED and array.shape[0] == 1 else array
    if placed.ndim == _PLAIN:
        placed = placed.reshape(*placed.shape, 1)
    elif placed.ndim == _COLOURED and placed.shape[-1] not in (1, 3):
        placed = placed.transpose(1, 2, 0)
    if placed.ndim != _COLOURED or placed.shape[-1] not in (1, 3) or not 0 < placed.size < _MOST:
        raise fault(
            f"cannot make a picture of {words_for(array)}", "give rows and columns, with 1 or 3 colours"
        )
    return _levels(placed)


def _levels(placed: Array) -> Array:
    if placed.dtype.kind == "f":
        placed = np.rint(np.nan_to_num(placed.astype(np.float64)) * 255.0)
    return np.clip(placed.astype(np.float64), 0, 255).astype(np.uint8)


_JSON, _PNG = 1, 2


def _encode(state: PlanState, numbers: tuple[int, ...]) -> None:
    tokenizer, source, out = numbers
    known, text = as_tokenizer(state.read(tokenizer)), as_text(state.read(source))
    found = tuple(state.ask("encodes a text", lambda: known.encode(text)))
    if not all(SMALLEST <= item <= LARGEST for item in found):
        raise fault("gets ids that are no integers of 64 bits", "look at the tokenizer")
    state.write(out, found)


def _decode(state: PlanState, numbers: tuple[int, ...]) -> None:
    tokenizer, source, out = numbers
    known, ids = as_tokenizer(state.read(tokenizer)), as_integers(state.read(source))
    state.write(out, state.ask("decodes ids", lambda: known.decode(ids)))


def _get_id(state: PlanState, numbers: tuple[int, ...]) -> None:
    tokenizer, id_, out = numbers
    known, token = as_tokenizer(state.read(tokenizer)), state.text(id_)
    found = state.ask("looks a token up", lambda: known.id_of(token))
    if found is None:
        raise fault(
            f"looks for the token '{printable(token, 80)}', which is not there",
            "name a token of the vocabulary",
        )
    state.write(out, found)


def _format(state: PlanState, numbers: tuple[int, ...]) -> None:
    out, id_, *slots = numbers
    values, text = state.read_all(slots), state.text(id_)
    state.keep_room(shown_bytes(values) + bytes_of(text))
    state.write(out, fill(text, map(show, values)))


def _serialize(state: PlanState, numbers: tuple[int, ...]) -> None:
    out, source, kind = numbers
    value = state.read(source)
    if kind == _PNG:
        array = as_array(value)
        state.keep_room(array.size)
        state.write(out, encode_png(array))
        return
    state.keep_room(shown_bytes([value]))
    state.write(out, _to_json(value) if kind == _JSON else show(value))


def _to_json(value: Value) -> str:
    plain = value.tolist() if isinstance(value, np.ndarray) else value
    try:
        return json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError):
        raise fault(f"cannot write {words_for(value)} as JSON", "JSON has texts and finite numbers") from None


TEXTS: Actions = MappingProxyType(
    {
        0x20: _encode,
        0x21: _decode,
        opcodes.GET_ID: _get_id,
        opcodes.FORMAT: _format,
        0xE0: _serialize,
    }
)
"""Instructions that make texts, or tokens of them."""


# --- arrays: made, padded, joined, measured and taken apart -------------------------------------------------


_CREATED_TYPES: Mapping[int, DType] = MappingProxyType({0: np.dtype(np.float32), 5: np.dtype(np.int64)})
"""The element types that arrays are made of, by their codes."""
_RANGE, _ONES, _ZEROS = 1, 2, 3
_PAD, _UNSQUEEZE = 1, 2
_SHAPE, _EXTENT = 0, 1
_LAST_RANK = 3


def _as_shape(value: Value) -> tuple[int, ...]:
    """The extents of an array that is to be made."""
    shape = as_integers(value)
    if len(shape) > DEFAULT.max_rank or any(extent < 0 for extent in shape):
        raise fault(f"cannot make an array of shape {list(shape)[:32]}", "extents are no less than 0")
    return shape


def _create(state: PlanState, numbers: tuple[int, ...]) -> None:
    out, code, kind, source = numbers
    dtype, value = _CREATED_TYPES[code], state.read(source)
    if kind in (_ONES, _ZEROS):
        shape = _as_shape(value)
        state.keep_room(dtype.itemsize * math.prod(shape))
        make = np.ones if kind == _ONES else np.zeros
        state.write(out, compute(make, shape, dtype))
    elif kind == _RANGE:
        count = as_integer(value)
        state.keep_room(dtype.itemsize * max(0, count))
        state.write(out, np.arange(count, dtype=dtype).reshape(1, -1))
    else:
        array = as_array(value)
        state.keep_room(dtype.itemsize * array.size)
        state.write(out, _converted(array, dtype).reshape(1, -1))


def _converted(array: Array, dtype: DType) -> Array:
    """The numbers in another type; reals lose their fraction, and those that are no numbers have no integer."""
    if dtype.kind == "i" and array.dtype.kind == "f" and not np.isfinite(array).all():
        raise fault("cannot make integers of what is not finite", "give finite numbers")
    return compute(lambda: array.astype(dtype))


def _manipulate(state: PlanState, numbers: tuple[int, ...]) -> None:
    kind, out, source, *more = numbers
    array = as_array(state.read(source))
    if kind == _PAD:
        width, filler = as_integer(state.read(more[0])), as_scalar(state.read(more[1]))
        state.write(out, _pad(state, array, width, filler))
        return
    axis = as_integer(state.read(more[0]))
    state.write(out, compute(np.expand_dims if kind == _UNSQUEEZE else np.squeeze, array, axis))


def _pad(state: PlanState, array: Array, width: int, filler: float) -> Array:
    """The array with so many fillers before its last axis."""
    if not array.ndim or width < 0:
        raise fault(f"cannot pad {words_for(array)} by {width}", "widths are no less than 0")
    rows = array.size // max(1, array.shape[-1]) if array.size else math.prod(array.shape[:-1])
    state.keep_room(array.nbytes + rows * width * array.dtype.itemsize)
    front = compute(lambda: np.full((*array.shape[:-1], width), filler, array.dtype))
    return np.concatenate([front, array], axis=-1)


def _combine(state: PlanState, numbers: tuple[int, ...]) -> None:
    _, out, *slots, axis = numbers
    arrays = [as_array(value) for value in state.read_all(slots)]
    along = as_integer(state.read(axis))
    state.keep_room(8 * sum(array.size for array in arrays))
    state.write(out, compute(_join(along), arrays))


def _join(axis: int) -> Callable[[Sequence[Array]], Array]:
    return lambda arrays: np.concatenate(arrays, axis=axis)


def _info(state: PlanState, numbers: tuple[int, ...]) -> None:
    kind, out, source, *more = numbers
    value = state.read(source)
    if kind == _SHAPE:
        state.write(out, as_array(value).shape)
    elif kind == _EXTENT:
        shape, axis = as_array(value).shape, as_integer(state.read(more[0]))
        state.write(out, shape[_index(axis, len(shape), "axis")])
    else:
        state.write(out, as_scalar(value))


def _index(index: int, count: int, what: str) -> int:
    """An index that is there; those below 0 count from the end."""
    if not -count <= index < count:
        raise fault(f"asks for {what} {index} of {count}", f"an index is at least -{count} and below {count}")
    return index


def _extract(state: PlanState, numbers: tuple[int, ...]) -> None:
    out, source, slot = numbers
    state.write(out, _row(as_array(state.read(source)), as_integer(state.read(slot))))


def _row(array: Array, index: int) -> Value:
    if not 1 <= array.ndim <= _LAST_RANK or (array.ndim > 1 and not array.shape[0]):
        raise fault(f"cannot take a row of {words_for(array)}", "give an array of 1 to 3 axes")
    first = array if array.ndim == 1 else array[0]
    return unwrap(np.array(first[_index(index, first.shape[0], "row")]))


TENSORS: Actions = MappingProxyType(
    {0x30: _create, 0x38: _manipulate, 0x39: _combine, 0x3A: _info, 0x3B: _extract}
)
"""Instructions on arrays that compute nothing."""


# --- models: run whole, in blocks, and two blocks side by side ----------------------------------------------


def run_models(state: PlanState, step: PlanStep) -> None:
    """An instruction that runs models."""
    match step.fields:
        case int(model), tuple(inputs), tuple(outputs):
            loaded, arrays = state.model(model).model, _arrays(state, inputs)
            action = f"runs model {model}"
            found = state.ask(action, lambda: loaded(*arrays))
            _write_results(state, action, found, outputs)
        case _:
            _run_blocks(state, list(blocks_of(step)))


def _arrays(state: PlanState, slots: Sequence[int]) -> list[Array]:
    return [as_array(value) for value in state.read_all(slots)]


def _write_results(state: PlanState, action: str, found: Sequence[Array], slots: Sequence[int]) -> None:
    """Put results into slots, the first ones where the plan does not ask for all."""
    if len(slots) > len(found):
        raise fault(
            f"{action} for {len(slots)} results and gets {len(found)}", "name no more slots than results"
        )
    for slot, array in zip(slots, found, strict=False):
        state.write(slot, state.take(action, array))


def _run_blocks(state: PlanState, calls: Sequence[BlockCall]) -> None:
    """Read what all blocks take, run them, and write what all of them give: neither sees the other."""
    given = [_arrays(state, call.takes) for call in calls]
    models = [state.model(call.model).model for call in calls]

    def run(number: int) -> Sequence[Array]:
        call, model = calls[number], models[number]
        return state.ask(_action(call), lambda: model.run_block(call.first, call.last, given[number]))

    if len(calls) == 1:
        results = [run(0)]
    else:
        with ThreadPoolExecutor(len(calls)) as threads:
            results = list(threads.map(run, range(len(calls))))
    for call, found in zip(calls, results, strict=True):
        _write_results(state, _action(call), found, call.gives)


def _action(call: BlockCall) -> str:
    return f"runs instructions {call.first} to {call.last} of model {call.model}"


RUNNING = (0x80, opcodes.RUN_BLOCK, opcodes.RUN_PARALLEL)
"""Instructions that run models."""


# --- models that are trained ----------------------------------------------------------------------------------


def train_models(state: PlanState, step: PlanStep) -> None:
    """An instruction that trains a model, or writes what came of it."""
    match step.fields:
        case int(model), int(loss), tuple(inputs), tuple(targets), int(out), int(rate), int(logits), *names:
            action = f"trains model {model}"
            state.allow(TRAIN, action)
            loaded = state.model(model).model
            only = [state.text(item) for item in names if isinstance(item, int) and item]
            given, wanted = _arrays(state, inputs), _arrays(state, targets)
            number = as_scalar(state.read(rate))
            if logits:
                _write_results(state, action, state.ask(action, lambda: loaded(*given)), (logits,))
            asked = PlanTraining(loss, given, wanted, float(number), only)
            state.write(out, state.ask(action, lambda: loaded.train_step(asked)))
        case int(model), int(slot), int(kind):
            _save_weights(state, model, as_text(state.read(slot)), kind)
        case int(model), *_:
            action = f"forgets the gradients of model {model}"
            state.allow(TRAIN, action)
            state.ask(action, state.model(model).model.zero_grad)


def _save_weights(state: PlanState, model: int, path: str, kind: int) -> None:
    action = f"writes the weights of model {model} to '{path}'"
    state.allow(TRAIN, action)
    state.allow_path(WRITE, action, path)
    if kind:
        raise fault(f"{action} in form {kind}", "form 0 is a file of safetensors; there is no other")
    loaded = state.model(model).model
    data = state.ask(action, loaded.weights)
    state.emit(len(data))
    state.ask(action, lambda: state.around.host.write_file(path, data, False))


TRAINING = (opcodes.TRAIN_STEP, 0x83, 0x85)
"""Instructions that train models."""


# --- what leaves a plan: lines on a terminal, and files -----------------------------------------------------


_FILE = 2
_APPEND, _NO_NEWLINE = 1, 2
_STREAMS = ("stdout", "stderr")


def _debug(state: PlanState, numbers: tuple[int, ...]) -> None:
    source, id_ = numbers
    value = state.read(source)
    _print(state, "stderr", f"{state.text(id_)} {_worded(state, value)}\n")


def _write(state: PlanState, numbers: tuple[int, ...]) -> None:
    source, kind, slot, mode = numbers
    value = state.read(source)
    if kind == _FILE:
        _write_file(state, as_text(state.read(slot)), value, mode == _APPEND)
        return
    end = "" if mode == _NO_NEWLINE else "\n"
    if isinstance(value, bytes):
        raise fault("prints a picture", "write it to a file")
    _print(state, _STREAMS[kind], _worded(state, value) + end)


def _worded(state: PlanState, value: Value) -> str:
    state.keep_room(shown_bytes([value]))
    return show(value)


def _print(state: PlanState, stream: str, text: str) -> None:
    action = f"prints on {stream}"
    state.allow(PRINT, action)
    state.emit(len(text))
    state.ask(action, lambda: state.around.host.print_text(stream, text))


def _write_file(state: PlanState, path: str, value: Value, append: bool) -> None:
    action = f"writes '{path}'"
    state.allow_path(WRITE, action, path)
    data = value if isinstance(value, bytes) else _worded(state, value).encode("utf-8", "replace")
    state.emit(len(data))
    state.ask(action, lambda: state.around.host.write_file(path, data, append))


OUTPUT: Actions = MappingProxyType({opcodes.DEBUG_PRINT: _debug, opcodes.WRITE: _write})
"""Instructions that print and write."""


ACTIONS: Actions = MappingProxyType({**SOURCES, **TEXTS, **TENSORS, **MATHEMATICS, **OUTPUT})
"""The instructions that need nothing but their operands."""

__all__ = ["ACTIONS", "RUNNING", "TRAINING", "run_models", "train_models"]
