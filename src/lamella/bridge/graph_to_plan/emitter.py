"""Opcodes applied to values: types, layouts and broadcasting made explicit, one task for each.

A float opcode runs in the type of its operands where the device offers that, else in the nearest one, with casts around
it. Operands of elementwise opcodes are brought into one order of axes. NEM has no broadcasting: a known vector scales
and shifts as the weights of a depthwise convolution of one tap, other known numbers are repeated before the run, what
only the run tells is repeated by a gather. Products and windows ask for the order that the opcode asks for.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lamella.base import arrays
from lamella.base.arrays import Array
from lamella.base.dtype import find_in
from lamella.base.errors import Unsupported
from lamella.base.quant import Quant
from lamella.bridge.graph_to_plan.assembly import IMAGE, Assembly, AttributeValue, RegionRecord, TaskRecord
from lamella.bridge.graph_to_plan.offers import Offers
from lamella.bridge.graph_to_plan.values import (
    BufferRecord,
    Order,
    Shape,
    Value,
    broadcast,
    fits,
    is_spread,
    known,
    natural,
    neighbours_of,
    order_of,
    placed,
    reshaped,
    transposed,
)


class Emitter:
    """Makes tasks for the operation at hand."""

    def __init__(self, assembly: Assembly, offers: Offers, real: str) -> None:
        self.assembly = assembly
        self.offers = offers
        self.real = real
        """The float type of the plan."""
        self.label = "t"
        """What the next results are called."""
        self._weights: dict[object, BufferRecord] = {}
        self._gathered: dict[object, Value] = {}
        """Rows that were taken from tables before."""

    # --- known numbers ---------------------------------------------------------------------------------------

    def constant(self, value: float | Array, elem: str | None = None, label: str = "c") -> Value:
        """Numbers that are known before the run."""
        return known(np.asarray(value), elem or self.real, label)

    def dense(self, value: Value, order: Order) -> Value:
        """A value in memory that lies in an order without gaps, every element of it."""
        if value.array is not None:
            return self._weight(value, order)
        if is_spread(value):
            return self._repeat(value, order)
        return value if fits(value, order) else self.copy(value, order)

    def _weight(self, value: Value, order: Order) -> Value:
        """Known numbers in a buffer that is filled from outside, rounded once to their type."""
        array = value.array
        if array is None:
            raise ValueError("the numbers are not known")
        stored = np.ascontiguousarray(stored_array(array, value.elem).transpose(order))
        digest = hashlib.blake2b(stored.tobytes(), digest_size=16).digest()
        key = (digest, stored.shape, value.elem)
        if key not in self._weights:
            buffer = self.assembly.buffer(stored.shape, value.elem, value.label or self.label)
            buffer.imported, buffer.array = True, stored
            self._weights[key] = buffer
        elif self._weights[key] not in self.assembly.buffers:
            # It was made for a task that was taken back.
            self.assembly.buffers.append(self._weights[key])
        return placed(self._weights[key], value.shape, value.elem, order, value.quant)

    def _repeat(self, value: Value, order: Order) -> Value:
        """A value of which one element stands for several, written out: a gather for each run of such axes."""
        self.move("gather", value)
        found = self.dense(compact(value), order)
        for axes in _runs(value, order):
            shape = list(found.shape)
            for axis in axes:
                shape[axis] = value.shape[axis]
            found = self._repeat_run(found, tuple(shape), axes, order)
        return found

    def _repeat_run(self, value: Value, shape: Shape, axes: Sequence[int], order: Order) -> Value:
        """Neighbouring axes of one element repeated."""
        place = order.index(axes[0])
        before = math.prod(value.shape[axis] for axis in order[:place])
        after = math.prod(value.shape[axis] for axis in order[place:])
        count = math.prod(shape[axis] for axis in axes)
        whole = self.result(shape, value.elem, order, value.quant)
        source = self.assembly.region(
            replace(value, shape=(before, 1, after), strides=(after, after, 1)), (0, 1, 2)
        )
        made = replace(whole, shape=(before, count, after), strides=(count * after, after, 1))
        zeros = self.constant(np.zeros(count, np.int32), "i32", f"zeros_{count}")
        self.run("gather", [source, self.region(zeros, (0,))], self.assembly.region(made, (0, 1, 2)), axis=1)
        return whole

    # --- results ---------------------------------------------------------------------------------------------

    def result(self, shape: Shape, elem: str, order: Order, quant: Quant | None = None) -> Value:
        """A new tensor of the plan."""
        if 0 in shape:
            raise Unsupported(f"a tensor of shape {list(shape)} has no elements")
        return placed(self.assembly.buffer(shape, elem, self.label), shape, elem, order, quant)

    def run(
        self,
        opcode: str,
        inputs: Sequence[RegionRecord],
        output: RegionRecord,
        **attributes: AttributeValue,
    ) -> TaskRecord:
        """One task."""
        return self.assembly.task(opcode, inputs, [output], attributes)

    def region(self, value: Value, order: Order, layout: str = "") -> RegionRecord:
        """The region of a value, which is brought into the order first where it has to be."""
        return self.assembly.region(self.dense(value, order), order, layout)

    def move(self, opcode: str, value: Value) -> str:
        """The type in which a view opcode moves a value: its own, or one that holds its numbers."""
        return self.offers.moved(opcode, value.elem)

    # --- layouts ---------------------------------------------------------------------------------------------

    def copy(self, value: Value, order: Order) -> Value:
        """The same numbers in an order, by one task: a transposition, or a reshape that reads with strides."""
        target = self.result(value.shape, value.elem, order, value.quant)
        self._fill(value, target, order)
        return target

    def _fill(self, value: Value, target: Value, order: Order) -> None:
        own = order_of(value)
        output = self.assembly.region(target, order)
        planes = self._planes(value, order)
        if planes:
            pixels = replace(
                target, shape=(target.count // len(planes), len(planes)), strides=(len(planes), 1)
            )
            self.run("concat", planes, self.assembly.region(pixels, (0, 1)), axis=1)
            return
        if fits(value, own) and own != order and self.offers.has("view", (value.elem,)):
            perm = tuple(own.index(axis) for axis in order)
            self.run("transpose", [self.region(value, own)], output, perm=perm)
            return
        source = self.assembly.region(value, order)
        if self.offers.has("view", (value.elem,)):
            self.run("reshape", [source], output, target_shape=output.shape)
        else:
            # Every device casts, also to the type that there is.
            self.run("cast", [source], output)

    def _planes(self, value: Value, order: Order) -> list[RegionRecord]:
        """The channels of one image that lie one behind the other, where its pixels are wanted so.

        Joined pixel by pixel they need no more than a few rows at once, which a transposition of all would.
        """
        if order != IMAGE or len(value.shape) != 4 or value.shape[0] != 1 or not fits(value, (0, 1, 2, 3)):
            return []
        channels, size = value.shape[1], value.shape[2] * value.shape[3]
        if is_spread(value) or not 1 < channels <= MOST_PLANES or not self.offers.has("view", (value.elem,)):
            return []
        plane = replace(value, shape=(size, 1), strides=(1, 1))
        places = [value.offset + number * size for number in range(channels)]
        return [self.assembly.region(replace(plane, offset=place), (0, 1)) for place in places]

    def write_to(self, value: Value, buffer: BufferRecord, elem: str) -> None:
        """Bring numbers into a buffer, row by row."""
        found = self.as_elem(value, elem)
        order = natural(value.shape)
        if found.array is not None or is_spread(found):
            found = self.dense(found, order)
        self._fill(found, placed(buffer, value.shape, elem, quant=value.quant), order)

    def reshape(self, value: Value, shape: Shape) -> Value:
        """Another shape: a view where that is one, else a copy first."""
        if value.shape == shape:
            return value
        found = reshaped(value, shape)
        if found is not None:
            return found
        dense = self.dense(value, natural(value.shape))
        again = reshaped(dense, shape)
        if again is None:
            raise Unsupported("a reshape of a dense tensor needs a copy")
        return again

    def slice(self, value: Value, axis: int, start: int, size: int) -> Value:
        """Neighbours along an axis: a view where they lie together, else one task."""
        axis %= len(value.shape)
        if value.array is not None or math.prod(value.shape[:axis]) == 1:
            return neighbours_of(value, axis, start, size)
        order = order_of(value)
        if not fits(value, order) or is_spread(value):
            value, order = self.dense(value, natural(value.shape)), natural(value.shape)
        if order[0] == axis:
            return neighbours_of(value, axis, start, size)
        self.move("slice", value)
        shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
        found = self.result(shape, value.elem, order, value.quant)
        cut = {"starts": (start,), "ends": (start + size,), "axes": (order.index(axis),), "steps": (1,)}
        self.run("slice", [self.region(value, order)], self.assembly.region(found, order), **cut)
        return found

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        """Tensors behind each other along an axis."""
        axis %= len(values[0].shape)
        if len(values) == 1:
            return values[0]
        self.move("concat", values[0])
        largest = max(values, key=lambda item: (item.array is None, item.count))
        order = order_of(largest) if largest.array is None else natural(largest.shape)
        total = sum(item.shape[axis] for item in values)
        # Codes are moved as they are: where they mean different things, nobody is told what.
        quant = values[0].quant if all(item.quant == values[0].quant for item in values) else None
        values = [replace(item, quant=quant) for item in values]
        shape = (*values[0].shape[:axis], total, *values[0].shape[axis + 1 :])
        regions = [self.region(item, order) for item in values]
        found = self.result(shape, values[0].elem, order, quant)
        self.run("concat", regions, self.assembly.region(found, order), axis=order.index(axis))
        return found

    def pad(
        self, value: Value, before: Sequence[int], after: Sequence[int], number: float, mode: str
    ) -> Value:
        """A tensor with a border of a number; codes are padded with a code."""
        self.move("pad", value)
        order, quant = order_of(value), value.quant
        value = replace(self.dense(value, order), quant=None)
        shape = tuple(sum(item) for item in zip(before, value.shape, after, strict=True))
        found = self.result(shape, value.elem, order)
        pads = (*(before[axis] for axis in order), *(after[axis] for axis in order))
        self.run(
            "pad",
            [self.region(value, order)],
            self.assembly.region(found, order),
            pads=pads,
            mode=mode,
            constant_value=number,
        )
        return replace(found, quant=quant)

    def gather(self, value: Value, index: Value, axis: int) -> Value:
        """Slices picked along an axis by numbers that only the run tells."""
        elem = self.move("gather", value)
        order = natural(value.shape)
        shape = (*value.shape[:axis], *index.shape, *value.shape[axis + 1 :])
        rows = index if index.shape else reshaped(index, (1,)) or index
        taken = (*value.shape[:axis], *rows.shape, *value.shape[axis + 1 :])
        source = self.region(value, order)
        places = self.region(rows, natural(rows.shape))
        key = (id(source), id(places), axis)
        known_rows = self._gathered.get(key)
        if known_rows is not None and known_rows.buffer in self.assembly.buffers:
            # Rows of a table at a position of the run, such as rotary angles, are the same in every block.
            return self.reshape(known_rows, shape)
        found = self.result(taken, elem, natural(taken), value.quant)
        self.run("gather", [source, places], self.assembly.region(found, natural(taken)), axis=axis)
        if value.array is not None:
            self._gathered[key] = found
        return self.reshape(found, shape)

    # --- types -----------------------------------------------------------------------------------------------

    def as_elem(self, value: Value, elem: str) -> Value:
        """The numbers in another element type: known ones are rounded once, others by a task."""
        if value.elem == elem:
            return value
        if value.array is not None:
            return replace(value, elem=elem, quant=None)
        order = order_of(value)
        if not fits(value, order):
            order = natural(value.shape)
        spread, value = value, compact(value)
        found = self.result(value.shape, elem, order)
        self.run("cast", [self.region(value, order)], self.assembly.region(found, order))
        return found if found.shape == spread.shape else broadcast(found, spread.shape)

    def convert(self, opcode: str, value: Value, elem: str, quant: Quant | None) -> Value:
        """The numbers as codes, or codes as numbers."""
        order = order_of(value)
        if value.array is not None or not fits(value, order) or is_spread(value):
            order = natural(value.shape)
        source = self.region(value, order)
        found = self.result(value.shape, elem, order, quant)
        self.run(opcode, [source], self.assembly.region(found, order))
        return found

    def as_real(self, value: Value, elem: str | None = None) -> Value:
        """The numbers as floats."""
        return value if value.is_float and elem is None else self.as_elem(value, elem or self.real)

    # --- elementwise -----------------------------------------------------------------------------------------

    def elementwise(
        self,
        opcode: str,
        values: Sequence[Value],
        quant: Quant | None = None,
        elem: str | None = None,
        **attributes: AttributeValue,
    ) -> Value:
        """An opcode on tensors of shapes that broadcast to each other."""
        shape = np.broadcast_shapes(*(item.shape for item in values))
        elem = elem or self._common(opcode, values)
        taken = [broadcast(self.as_elem(item, elem), shape) for item in values]
        order = _best_order(taken)
        if quant is None and len(taken) == 2:
            found = self._by_vector(opcode, taken, order)
            if found is not None:
                return found
        regions = [self.region(item, order) for item in taken]
        found = self.result(shape, elem, order, quant)
        self.run(opcode, regions, self.assembly.region(found, order), **attributes)
        return found

    def _by_vector(self, opcode: str, values: Sequence[Value], order: Order) -> Value | None:
        """A known vector along the innermost axis, or a known number, as weights of a depthwise convolution."""
        left, right = values
        x, c = (left, right) if right.array is not None else (right, left)
        if c.array is None or x.array is not None or not x.is_float or is_spread(x) or not fits(x, order):
            return None
        vector = _innermost(c, order)
        if vector is None:
            return None
        if opcode in ("max", "min"):
            return self._by_bound(opcode, x, vector)
        if opcode == "add":
            return self.scale_shift(x, order, np.ones_like(vector), vector)
        if opcode == "sub" and x is left:
            return self.scale_shift(x, order, np.ones_like(vector), -vector)
        if opcode == "sub":
            return self.scale_shift(x, order, -np.ones_like(vector), vector)
        if opcode == "mul":
            return self.scale_shift(x, order, vector, None)
        if opcode == "div" and x is left and (vector != 0).all():
            return self.scale_shift(x, order, 1.0 / vector, None)
        return None

    def _by_bound(self, opcode: str, x: Value, vector: Array) -> Value | None:
        """A bound that is one finite number."""
        bound, largest = float(vector.reshape(-1)[0]), LARGEST[x.elem]
        if not (vector == bound).all() or not abs(bound) <= largest:
            return None
        low, high = (bound, largest) if opcode == "max" else (-largest, bound)
        return self.elementwise("clamp", [x], min_val=low, max_val=high)

    def scale_shift(self, x: Value, order: Order, scale: Array, shift: Array | None) -> Value | None:
        """X · scale + shift with numbers for each place of the innermost axis: a convolution of one tap."""
        word = "no_bias" if shift is None else "with_bias"
        if not self.offers.has("conv2d.float", (x.elem,), word):
            return None
        width = scale.size
        if width == 1:
            width = _row_width(x.count)
            scale = np.full(width, scale.reshape(-1)[0])
            shift = None if shift is None else np.full(width, shift.reshape(-1)[0])
        found = self.result(x.shape, x.elem, order)
        shape, strides = (1, x.count // width, 1, width), (x.count, width, width, 1)
        weight = self.constant(scale.reshape(1, 1, 1, width), x.elem, f"{self.label}_scale")
        regions = [self.assembly.region(replace(x, shape=shape, strides=strides), (0, 1, 2, 3), "NHWC")]
        regions.append(self.region(weight, (0, 1, 2, 3), "HWIO"))
        if shift is not None:
            regions.append(self.region(self.constant(shift, x.elem, f"{self.label}_shift"), (0,)))
        self.run(
            "conv2d",
            regions,
            self.assembly.region(replace(found, shape=shape, strides=strides), (0, 1, 2, 3), "NHWC"),
            pads=(0, 0, 0, 0),
            strides=(1, 1),
            dilations=(1, 1),
            groups=width,
            accum_type="f32",
        )
        return found

    def _common(self, opcode: str, values: Sequence[Value]) -> str:
        """The type in which an elementwise opcode runs on these."""
        floats = [item.elem for item in values if item.is_float and item.array is None]
        if floats or any(item.is_float for item in values):
            return self.offers.float_for(opcode, floats[0] if floats else self.real)
        elems = [item.elem for item in values if item.array is None] or [values[0].elem]
        return self.offers.moved(opcode, elems[0])

    # --- products --------------------------------------------------------------------------------------------

    def matmul(self, a: Value, b: Value, bias: Value | None = None) -> Value:
        """A product of matrices or of batches of them, with an addend where one is given."""
        elem = self.offers.float_for("gemm", a.elem if a.is_float else self.real, _bias_word(bias))
        a, b = self.as_elem(a, elem), self.as_elem(b, elem)
        operands = [a, b] if bias is None else [a, b, self.as_elem(bias, elem)]
        return self.product(operands, elem, "f32", None)

    def product(self, operands: Sequence[Value], elem: str, accumulator: str, quant: Quant | None) -> Value:
        """A gemm or matmul of operands that have their types."""
        a, b, *bias = operands
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        if len(b.shape) == 2 or math.prod(b.shape[:-2]) == 1:
            # One matrix for the whole batch: rows of all batches are rows of one product.
            right = self.reshape(b, b.shape[-2:])
            left = self.reshape(self.row_major(a), (math.prod(a.shape[:-1]), a.shape[-1]))
            bias = [self._flat_bias(item, a) for item in bias]
        else:
            left, right = self._batches(a, b, batch)
        shape = (*left.shape[:-1], right.shape[-1])
        order = natural(shape)
        if not bias and _is_by_rows(left) and _lies_somehow(right):
            # Heads of a token lie beside each other: operands are read where they are, and so is the result written.
            order = (len(shape) - 2, *range(len(shape) - 2), len(shape) - 1)
            regions = [self.assembly.region(item, natural(item.shape)) for item in (left, right)]
        else:
            regions = [self.region(item, natural(item.shape)) for item in (left, right, *bias)]
        found = self.result(shape, elem, order, quant)
        opcode = "gemm" if bias else "matmul"
        self.run(opcode, regions, self.assembly.region(found, natural(shape)), accum_type=accumulator)
        return self.reshape(found, (*batch, a.shape[-2], b.shape[-1]))

    def _batches(self, a: Value, b: Value, batch: Shape) -> tuple[Value, Value]:
        """The factors with equal batches; what shares a right side becomes rows of one product where it lies so."""
        lead = (1,) * (len(batch) - len(b.shape) + 2) + b.shape[:-2]
        left, right = broadcast(a, (*batch, *a.shape[-2:])), broadcast(b, (*batch, *b.shape[-2:]))
        if len(batch) > 1 and lead[-1] == 1 < batch[-1]:
            rows = (*batch[:-1], batch[-1] * a.shape[-2], a.shape[-1])
            folded = None if is_spread(left) else reshaped(left, rows)
            if folded is not None:
                shared = reshaped(b, (*b.shape[:-3], *b.shape[-2:])) if len(b.shape) > 2 else b
                if shared is not None:
                    return folded, broadcast(shared, (*batch[:-1], *b.shape[-2:]))
        if is_spread(right) and right.array is None:
            # Written out once, in the order in which it lies.
            lying = order_of(compact(right))
            right = self._repeat(right, lying)
        return left, right

    def row_major(self, value: Value) -> Value:
        """A value that lies row by row, if that takes a copy."""
        order = natural(value.shape)
        return value if value.array is not None else self.dense(value, order)

    def _flat_bias(self, bias: Value, a: Value) -> Value:
        """An addend of a product whose batch became rows."""
        if len(bias.shape) <= 1:
            return bias
        whole = broadcast(bias, (*a.shape[:-1], bias.shape[-1]))
        return self.reshape(whole, (math.prod(a.shape[:-1]), bias.shape[-1]))

    def add_bias(self, value: Value, addend: Value) -> Value | None:
        """An addend taken into the product that made a value; None where it cannot be.

        Only for a value that nothing else reads. What a gemm adds may have fewer axes than its result.
        """
        task = None if value.buffer is None else self.assembly.made.get(value.buffer)
        if task is None or task.opcode not in ("matmul", "conv2d") or len(task.inputs) != 2:
            return None
        if addend.array is None:
            # A sum with what the run tells stays a task of its own, which tiling lets follow on the same tile.
            return None
        output = task.outputs[0]
        family = "conv2d" if task.opcode == "conv2d" else "gemm"
        if output.quant is not None or not self.offers.has(f"{family}.float", (output.elem,), "with_bias"):
            return None
        spread = broadcast(addend, value.shape)
        if task.opcode == "conv2d":
            vector = _innermost(spread, IMAGE) if len(value.shape) == 4 and fits(value, IMAGE) else None
            # The channels of a convolution that stands for a product with a number are any part of a row.
            channels = output.shape[-1]
            if vector is None or vector.size not in (1, channels):
                return None
            vector = np.broadcast_to(vector.reshape(-1), (channels,))
            task.inputs.append(self.region(self.constant(vector, output.elem, addend.label), (0,)))
            return value
        small = self._addend(spread, output.shape)
        if small is None or not fits(value, natural(value.shape)):
            return None
        task.inputs.append(self.region(self.as_elem(small, output.elem), natural(small.shape)))
        task.opcode = "gemm"
        return value

    def _addend(self, spread: Value, shape: Shape) -> Value | None:
        """An addend of the shape of a value, as one that broadcasts to the shape of the task's result."""
        small = compact(spread)
        last = [axis for axis, size in enumerate(small.shape) if size != 1]
        lead = len(spread.shape) - len(shape)
        columns = spread.shape[-1:] == shape[-1:]
        if not last or (len(last) == 1 and last[0] == len(spread.shape) - 1 and columns):
            return self.reshape(small, (small.count,))
        if lead != 0 or spread.shape != shape:
            return None
        return small

    # --- windows ---------------------------------------------------------------------------------------------

    def window(
        self,
        opcode: str,
        image: Value,
        others: Sequence[tuple[Value, Order, str]],
        shape: Shape,
        elem: str,
        quant: Quant | None,
        **attributes: AttributeValue,
    ) -> Value:
        """A convolution or a pool of an image whose channels are its second axis."""
        regions = [self.region(image, IMAGE, "NHWC")]
        regions += [self.region(item, order, word) for item, order, word in others]
        found = self.result(shape, elem, IMAGE, quant)
        self.run(opcode, regions, self.assembly.region(found, IMAGE, "NHWC"), **attributes)
        return found

    # --- rows ------------------------------------------------------------------------------------------------

    def along(
        self,
        opcode: str,
        value: Value,
        axis: int,
        vectors: Sequence[Value] = (),
        **attributes: AttributeValue,
    ) -> Value:
        """A softmax or a norm along one axis."""
        elem = self.offers.float_for(opcode, value.elem if value.is_float else self.real)
        value = self.as_elem(value, elem)
        order = order_of(value)
        value = self.dense(value, order)
        regions = [self.region(value, order)]
        regions += [self.region(self.as_elem(item, elem), (0,)) for item in vectors]
        found = self.result(value.shape, elem, order)
        axis %= len(value.shape)
        self.run(opcode, regions, self.assembly.region(found, order), axis=order.index(axis), **attributes)
        return found

    def pool_axis(self, opcode: str, value: Value, axes: Sequence[int], quant: Quant | None = None) -> Value:
        """The maximum or the mean along axes, which stay with one element: a pool over all of them.

        What lies outside and inside of them in memory are the images and the channels, so that nothing moves where
        the axes are neighbours there.
        """
        rank = len(value.shape)
        gone = {axis % rank for axis in axes}
        lying = order_of(value)
        first = min(lying.index(axis) for axis in gone)
        before = [axis for axis in lying[:first] if axis not in gone]
        middle = [axis for axis in lying if axis in gone]
        after = [axis for axis in lying[first:] if axis not in gone]
        sizes = [math.prod(value.shape[axis] for axis in part) for part in (before, middle, after)]
        flat = self.reshape(transposed(value, (*before, *middle, *after)), (sizes[0], sizes[1], 1, sizes[2]))
        found = self.window(
            opcode,
            transposed(flat, (0, 3, 1, 2)),
            (),
            (sizes[0], sizes[2], 1, 1),
            value.elem,
            quant or value.quant,
            kernel_shape=(sizes[1], 1),
            pads=(0, 0, 0, 0),
            strides=(sizes[1], 1),
        )
        kept = (*before, *after)
        wide = self.reshape(found, tuple(value.shape[axis] for axis in kept))
        natural_kept = transposed(wide, [kept.index(axis) for axis in sorted(kept)])
        shape = tuple(1 if axis in gone else size for axis, size in enumerate(value.shape))
        return self.reshape(natural_kept, shape)


def _is_by_rows(value: Value) -> bool:
    """Whether the rows of batches of matrices lie outermost, each without gaps: the heads of one token together."""
    rows = len(value.shape) - 2
    order = [axis for axis in order_of(value) if value.shape[axis] != 1]
    batches = any(size != 1 for size in value.shape[:rows])
    return batches and _lies_somehow(value) and order[0] == rows


def _lies_somehow(value: Value) -> bool:
    """Whether a value lies in memory without gaps, in whatever order."""
    return value.array is None and not is_spread(value) and fits(value, order_of(value))


def _bias_word(bias: Value | None) -> str:
    return "no_bias" if bias is None else "with_bias"


LARGEST = {"f16": 65504.0, "bf16": float.fromhex("0x1.fep+127"), "f32": float.fromhex("0x1.fffffep+127")}
"""The largest finite number of each float type."""
MOST_PLANES = 4
"""Channels of an image that are joined pixel by pixel."""
WIDEST_ROW = 256
"""Weights of a convolution that multiplies by one number."""


def compact(value: Value) -> Value:
    """A value without axes of stride 0: they have one element each."""
    shape = tuple(1 if stride == 0 else size for size, stride in zip(value.shape, value.strides, strict=True))
    array = value.array
    if array is not None:
        array = array[tuple(slice(0, size) for size in shape)]
    return replace(value, shape=shape, array=array)


def _runs(value: Value, order: Order) -> list[list[int]]:
    """Neighbouring axes of an order along which one element stands for several."""
    found: list[list[int]] = []
    is_open = False
    for axis in order:
        is_repeated = value.shape[axis] != 1 and value.strides[axis] == 0
        if is_repeated and is_open:
            found[-1].append(axis)
        elif is_repeated:
            found.append([axis])
        is_open = is_repeated
    return found


def _innermost(value: Value, order: Order) -> Array | None:
    """The numbers of a known value that differ along the innermost axis alone; one number where they do not."""
    if value.array is None or not order:
        return None
    small = compact(replace(value, strides=_true_strides(value.array)))
    if small.array is None or small.array.size not in (1, small.shape[order[-1]]):
        return None
    return small.array.reshape(-1).astype(np.float64)


def _true_strides(array: Array) -> Shape:
    """Strides of an array, 0 along axes of one element."""
    return tuple(0 if size == 1 else stride for size, stride in zip(array.shape, array.strides, strict=True))


def _row_width(count: int) -> int:
    """A divisor of a number of elements, as wide as one row of weights should be."""
    return next(width for width in range(min(count, WIDEST_ROW), 0, -1) if count % width == 0)


def _best_order(values: Sequence[Value]) -> Order:
    """The order of the largest tensor that lies in memory without gaps."""
    rank = len(values[0].shape)
    found = [item for item in values if item.array is None and fits(item, order_of(item))]
    if not found:
        return tuple(range(rank))
    return order_of(max(found, key=_real_count))


def _real_count(value: Value) -> int:
    sizes = zip(value.shape, value.strides, strict=True)
    return math.prod(size for size, stride in sizes if stride != 0)


def stored_array(array: Array, elem: str) -> Array:
    """Numbers as an element type holds them: rounded to nearest, what is too large for a float held at its largest."""
    element = find_in("nem", elem)
    if element is None:
        raise Unsupported(f"NEM has no element type {elem}")
    if element.is_float and array.dtype.kind == "f":
        wide = array.astype(np.float64)
        wide = np.where(np.isfinite(wide), np.clip(wide, -element.largest, element.largest), wide)
        return arrays.cast(wide, element)
    return arrays.cast(array, element)
