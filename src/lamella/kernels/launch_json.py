"""Launch lists as JSON values: written for a store, and read back without trust."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lamella.base.errors import Malformed
from lamella.base.origin import Origin
from lamella.kernels.launches import ELEMENT_BYTES, FILL, Buffer, BufferView, Launch, LaunchList

# --- values of JSON that are what they should be ---------------------------------------------------------------


def as_list(value: object, size: int | None = None) -> Sequence[object]:
    """A list, of so many items where that is known."""
    if not isinstance(value, list) or (size is not None and len(value) != size):
        raise Malformed("a list belongs here")
    return value


def as_object(value: object) -> Mapping[str, object]:
    """An object."""
    if not isinstance(value, dict):
        raise Malformed("an object belongs here")
    return value


def as_text(value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise Malformed("a text belongs here")
    return value


def as_number(value: object, least: int = 0) -> int:
    """An integer of 64 bits that is not less than another."""
    if type(value) is not int or not least <= value < 1 << 63:
        raise Malformed("an integer belongs here")
    return value


def as_numbers(value: object, least: int = 0) -> tuple[int, ...]:
    """Integers of 64 bits."""
    return tuple(as_number(item, least) for item in as_list(value))


# --- lists ----------------------------------------------------------------------------------------------------


def encode_list(whole: LaunchList) -> dict[str, object]:
    """A launch list as a value of JSON; of an origin its words stay."""
    return {
        "buffers": {
            name: [item.size, item.zeroed, int(item.outside)] for name, item in whole.buffers.items()
        },
        "launches": [_encode_launch(item) for item in whole.launches],
        "inputs": {name: _encode_view(item) for name, item in whole.inputs.items()},
        "outputs": {name: _encode_view(item) for name, item in whole.outputs.items()},
        "sets": [sorted(item) for item in (whole.overwritten, whole.undo, whole.bound)],
    }


def decode_list(value: object, most_bytes: int) -> LaunchList:
    """The launch list of a value of JSON. Malformed: it is none, too large, or a view leaves its buffer."""
    found = as_object(value)
    buffers = {
        name: Buffer(as_number(size), as_number(zeroed), bool(as_number(outside)))
        for name, item in as_object(found.get("buffers")).items()
        for size, zeroed, outside in (as_list(item, 3),)
    }
    if any(item.size > most_bytes for item in buffers.values()):
        raise Malformed("a buffer that is too large")

    def view(item: object) -> BufferView:
        return _decode_view(item, buffers)

    launches = tuple(_decode_launch(item, view) for item in as_list(found.get("launches")))
    inputs = {name: view(item) for name, item in as_object(found.get("inputs")).items()}
    outputs = {name: view(item) for name, item in as_object(found.get("outputs")).items()}
    overwritten, undo, bound = (
        frozenset(map(as_text, as_list(item))) for item in as_list(found.get("sets"), 3)
    )
    if not (overwritten | bound <= inputs.keys() and undo <= outputs.keys()):
        raise Malformed("a list names what it does not have")
    return LaunchList(buffers, launches, inputs, outputs, overwritten, undo, bound)


def _encode_view(view: BufferView) -> list[object]:
    return [view.buffer, view.element, list(view.shape), list(view.strides), view.offset]


def _decode_view(value: object, buffers: Mapping[str, Buffer]) -> BufferView:
    buffer, element, shape, strides, offset = as_list(value, 5)
    found = BufferView(
        as_text(buffer), as_text(element), as_numbers(shape), as_numbers(strides), as_number(offset)
    )
    if (
        found.buffer not in buffers
        or found.element not in ELEMENT_BYTES
        or len(found.shape) != len(found.strides)
    ):
        raise Malformed("a view belongs here")
    if not found.is_inside(buffers[found.buffer]):
        raise Malformed("a view leaves its buffer")
    return found


def _encode_launch(launch: Launch) -> list[object]:
    words = [] if launch.origin is None else list(launch.origin.words())
    views = [_encode_view(item) for item in launch.arguments]
    flags = [launch.groups, int(launch.has_fault)]
    return [launch.kernel, views, list(launch.writes), *flags, launch.operator, words]


def _decode_launch(value: object, view: Callable[[object], BufferView]) -> Launch:
    kernel, views, writes, groups, has_fault, operator, words = as_list(value, 7)
    arguments = tuple(view(item) for item in as_list(views))
    found = as_numbers(writes)
    if any(place >= len(arguments) for place in found) or (kernel == FILL and len(arguments) != 1):
        raise Malformed("a launch writes what it does not have")
    origin: Origin | None = None
    for word in reversed(as_list(words)):
        origin = Origin(as_text(word), above=origin)
    return Launch(
        as_text(kernel),
        arguments,
        found,
        as_number(groups),
        bool(as_number(has_fault)),
        as_text(operator),
        origin,
    )
