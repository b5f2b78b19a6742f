"""Where values come from: people, constants, files, models, arrays of the file."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from lamella.backend.mep.faults import fault, refused
from lamella.backend.mep.host import MODELS, PROMPT, READ
from lamella.backend.mep.state import Actions, Loaded, State
from lamella.backend.mep.values import Value, as_text
from lamella.base.arrays import Array, numpy_dtype
from lamella.base.diagnostic import printable
from lamella.base.limits import LARGEST, SMALLEST
from lamella.lang.nac.check.data import check_arrays
from lamella.lang.nac.check.sections import opcodes
from lamella.lang.nac.check.sections.flow import model_number
from lamella.lang.nac.check.sections.uses import SELF
from lamella.lang.nac.check.tensors import DTYPES
from lamella.lang.nac.nodes import V1_5, V1_6

MODE = "infer"
"""What SRC_EXEC_MODE gives: plans do not train here."""
SHORT_SIDE, CROP = 256, 224
"""Pixels of a picture before and after its edges are cut off."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of red, green and blue, in the pictures that classifiers are trained on."""
_TEXT, _INTEGER, _IMAGE, _TOKENIZER, _MODEL = 0, 1, 3, 0, 0


def _prompt(state: State, numbers: tuple[int, ...]) -> None:
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


def _constant(state: State, numbers: tuple[int, ...]) -> None:
    out, id_ = numbers
    state.write(out, state.constant(id_))


def _mode(state: State, numbers: tuple[int, ...]) -> None:
    state.write(numbers[0], MODE)


def _load_model(state: State, numbers: tuple[int, ...]) -> None:
    number, id_ = numbers
    path, host = state.text(id_), state.around.host
    action = f"loads the model '{path}'"
    if path == SELF or path in host.own_names:
        path = SELF
    else:
        state.allow_path(MODELS, action, path)
    state.models[number] = Loaded(path, state.ask(action, lambda: host.load_model(path)))


def _load_data(state: State, numbers: tuple[int, ...]) -> None:
    out, _, id_ = numbers
    state.write(out, _read_array(state, state.text(id_)))


def _read_array(state: State, path: str) -> Array:
    action = f"reads '{path}'"
    state.allow_path(READ, action, path)
    return state.take(action, state.ask(action, lambda: state.around.host.read_array(path)))


def _load_extern(state: State, numbers: tuple[int, ...]) -> None:
    out, kind, id_ = numbers
    if kind != _TOKENIZER:
        state.write(out, state.constant(id_))
        return
    number = model_number(state.around.values.get(id_))
    loaded = state.model(-1 if number is None else number)
    action = f"takes the tokenizer of model {number}"
    state.write(out, state.ask(action, lambda: state.around.host.tokenizer(loaded.path)))


def _load_dynamic(state: State, numbers: tuple[int, ...]) -> None:
    out, slot, kind = numbers
    path = as_text(state.read(slot))
    state.write(out, _read_image(state, path) if kind == _IMAGE else _read_array(state, path))


def _read_image(state: State, path: str) -> Value:
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


def _load_array(state: State, numbers: tuple[int, ...]) -> None:
    out, id_ = numbers
    name = state.text(id_)
    found = next((item for item in state.around.file.arrays if item.name == name), None)
    if found is None or any(check_arrays(state.around.file)):
        raise fault(f"takes the array '{name}', which is not sound", "`lamella check` tells what is wrong")
    state.keep_room(len(found.data))
    dtype = numpy_dtype(DTYPES[found.dtype][1])
    stored = np.frombuffer(bytes(found.data), np.uint8).view(dtype)
    state.write(out, state.take("takes an array", stored.reshape(found.shape)))


def _unload(state: State, numbers: tuple[int, ...]) -> None:
    kind, number = numbers
    if kind == _MODEL:
        state.models.pop(number, None)
    else:
        state.clear(number)


def _copy(state: State, numbers: tuple[int, ...]) -> None:
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
