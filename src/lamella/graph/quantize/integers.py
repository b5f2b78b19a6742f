"""The pass to integers: operations on numbers become operations on codes wherever these have an integer form.

    conv(x, w, b) = quant.conv(codes(x), codes(w), codes(b), scale(w))
    relu(conv(x)) = quant.conv(...)          where the codes of the result end at zero
    c · x         = x with another scale     for a positive constant c

Everything else is an island of real numbers, of a type that the caller names, between `quant.dequantize` and
`quant.quantize`; which operations these are, and why, is part of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lamella.base.arrays import Array
from lamella.base.dtype import BOOL, F32, F64, I4, I8, I16, I32, I64, U8, ElementType
from lamella.base.errors import Found, Unsupported
from lamella.base.quant import PerChannel, PerTensor, axis_of
from lamella.graph.build import call
from lamella.graph.model import Model
from lamella.graph.nodes import Argument, Graph, Node, Operation, Tensor, Update, Value, tensors
from lamella.graph.passes.dce import dce
from lamella.graph.passes.mark_codes import mark_codes
from lamella.graph.passes.moves import KnownMoves
from lamella.graph.passes.variable_dce import variable_dce
from lamella.graph.quantize.codes import TensorCodes, widened
from lamella.graph.quantize.forms import (
    BINARY,
    UnaryForm,
    WindowSizes,
    bounds_of,
    integers_of,
    known_shape,
    padding_of,
    single_output,
    unary_form,
)
from lamella.graph.quantize.normal_form import ROWS
from lamella.graph.quantize.tensors import TensorForms, ends
from lamella.graph.rewrite import Substitution, members, operands_of, results_of, uses

CONV, LINEAR, PRODUCT, COPY = "nn.conv", "nn.linear", "linalg.matmul", "math.iden"
BITS: Mapping[ElementType, int] = {I4: 4, I8: 8}
_WHOLE = (BOOL, I8, I16, I32, I64, U8)


@dataclass(frozen=True, slots=True)
class FloatOperation:
    """An operation that stays one of real numbers: the tensor it makes, its operator, and why."""

    tensor: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class IntegerModel:
    """A model of codes, and the operations of it that are none."""

    model: Model
    floats: tuple[FloatOperation, ...]


def to_integers(
    model: Model,
    codes: Mapping[str, TensorCodes],
    island: ElementType = F32,
    keep: Collection[str] = (),
    *,
    exact: bool = False,
) -> IntegerModel:
    """The integer graph of a model in its normal form.

    `codes` has those of activations (one scale each) and of weights (one, one for each channel or group), by the names
    of the tensors; what has none stays real. Operations that make a tensor of `keep` stay real whatever codes there
    are. Real operations on numbers of 32 bits compute in the type `island`. Inputs and outputs stay what they are.
    Where it is `exact`, a tensor that has codes has just these, and who reads real numbers of it reads those of the
    codes; else one that is only moved or scaled keeps the codes of what it is made of, and numbers stay unrounded.
    """
    return _IntegerPass(model, codes, island, frozenset(keep), exact).run()


class _IntegerPass:
    def __init__(
        self,
        model: Model,
        codes: Mapping[str, TensorCodes],
        island: ElementType,
        keep: frozenset[str],
        exact: bool,
    ) -> None:
        self.model, self.island, self.keep, self.exact = model, island, keep, exact
        self.forms = TensorForms(model, codes)
        self.chosen = codes
        self.moves = KnownMoves(model.library)
        self.reads = uses(model.graph)
        self.readers: dict[str, list[Node]] = {}
        for node in model.graph.nodes:
            for item in operands_of(node):
                self.readers.setdefault(item.name, []).append(node)
        self.inputs = {item.name for item in members(model.graph.inputs)}
        self.floats: list[FloatOperation] = []
        self.gone: set[str] = set()
        """Tensors that nothing makes any more: they are on the way to one that is made in their place."""

    def run(self) -> IntegerModel:
        """The integer graph, and what is real in it."""
        for item in members(self.model.graph.inputs):
            if self.exact and isinstance(item, Tensor) and item.name in self.chosen:
                self._round(item)
        for node in self.model.graph.nodes:
            self.forms.origin = node.origin
            self._visit(node)
        self.forms.origin = None
        graph = self._finish(self.model.graph)
        found = variable_dce(dce(replace(self.model, graph=graph, data=self.forms.data)))
        return IntegerModel(mark_codes(found), tuple(self.floats))

    def _finish(self, graph: Graph) -> Graph:
        """The graph with its outputs and states, each in the form that it had or was chosen for."""
        forms = self.forms
        outputs = tuple(self._output(item) for item in graph.outputs)
        updates = tuple(Update(self._state(item), self._new_state(item)) for item in graph.updates)
        return replace(
            graph,
            outputs=outputs,
            nodes=tuple(forms.nodes),
            variables=tuple(forms.variables.values()),
            constants=tuple(forms.constants.values()),
            updates=updates,
        )

    def _output(self, argument: Argument) -> Argument:
        if isinstance(argument, tuple):
            found = [self._output(item) for item in argument]
            return tuple(item for item in found if isinstance(item, Tensor))
        if not isinstance(argument, Tensor) or not argument.element.is_float or argument.name in self.inputs:
            return argument
        return self.forms.real(argument, argument.element)

    def _state(self, update: Update) -> Tensor:
        return self.forms.variables[update.variable.name]

    def _new_state(self, update: Update) -> Tensor:
        state, value = self._state(update), update.value
        if update.variable.name in self.forms.coded:
            return self.forms.codes(value, self.forms.meaning[update.variable.name])
        return self.forms.real(value, state.element) if value.element.is_float else value

    # --- one node ---------------------------------------------------------------------------------------------

    def _visit(self, node: Node) -> None:
        if not isinstance(node, Operation):
            self._keep_region(node)
            return
        if all(item.name in self.forms.coded or item.name in self.gone for item in results_of(node)):
            return  # it has disappeared into what it reads
        if not any(item.element.is_float for item in (*members(node.inputs), *results_of(node))):
            self.forms.nodes.append(node)
            return
        # What is made on the way to a form that there is not stays: somebody may read it, else it is dead code.
        try:
            self._to_integers(node)
        except (Unsupported, Found) as problem:
            self._keep_real(node, str(problem) or "its integer form refuses it")

    def _to_integers(self, node: Operation) -> None:
        """The integer form of an operation; Unsupported says why it has none."""
        if any(item.name in self.keep for item in results_of(node)):
            raise Unsupported("it was asked to stay real")
        if node.operator == CONV:
            self._convolve(node)
        elif node.operator in (LINEAR, PRODUCT):
            self._multiply(node)
        elif node.operator == "layout.pad":
            self._pad(node)
        elif (moved := self.moves.find(node)) is not None:
            self._move(node, moved)
        else:
            self._elementwise(node)

    def _elementwise(self, node: Operation) -> None:
        numbers = [self.forms.uniform(item) for item in node.inputs]
        bounds = bounds_of(node, numbers)
        form = unary_form(node, bounds)
        if form is not None:
            self._apply(node, form)
        elif node.operator in BINARY:
            self._combine(node)
        elif node.operator == "nn.avg_pool":
            self._average(node)
        elif node.operator == "math.mean_reduce":
            given = dict(node.attributes)
            axes, squeeze = given.get("axes"), given.get("squeeze")
            self._apply(node, UnaryForm("quant.mean", {"axes": axes, "squeeze": squeeze}))
        else:
            raise Unsupported("it has no integer form")

    # --- where results go -------------------------------------------------------------------------------------

    def _destination(self, result: Tensor) -> tuple[list[str], TensorCodes]:
        """The tensors up to the one that is made in codes: what cuts a result off disappears into their range."""
        names = [result.name]
        while (after := self._bounding(names[-1])) is not None:
            names.append(after)
        name = names[-1]
        codes = self.chosen.get(name) or self.chosen.get(result.name)
        if codes is None:
            codes = self._later_codes(result.name)
        if codes is None or codes.single is None:
            raise Unsupported(f"no codes were chosen for '{result.name}'")
        return names, codes

    def _bounding(self, name: str) -> str | None:
        """The result of the one operation that reads a tensor, where codes of that already keep to its bounds."""
        reader = self._only_reader(name)
        if reader is None:
            return None
        bounds = bounds_of(reader, [self.forms.uniform(item) for item in reader.inputs])
        result = next(iter(results_of(reader)))
        codes = self.chosen.get(result.name)
        if bounds is None or codes is None or result.name in self.keep or not bounds.held_by(codes):
            return None
        return result.name

    def _later_codes(self, name: str) -> TensorCodes | None:
        """The codes of what only cuts a tensor off, for one that has none of its own."""
        reader = self._only_reader(name)
        bounds = (
            None
            if reader is None
            else bounds_of(reader, [self.forms.uniform(item) for item in reader.inputs])
        )
        return (
            None if reader is None or bounds is None else self.chosen.get(next(iter(results_of(reader))).name)
        )

    def _only_reader(self, name: str) -> Operation | None:
        readers = self.readers.get(name, [])
        if self.reads.get(name) != 1 or len(readers) != 1:
            return None
        (found,) = readers
        return found if isinstance(found, Operation) and len(list(results_of(found))) == 1 else None

    def _make(
        self, result: Tensor, operator: str, inputs: Sequence[Argument], attributes: Mapping[str, Value]
    ) -> None:
        """Call an operator on codes for what an operation makes."""
        (*between, name), codes = self._destination(result)
        single = codes.single
        assert single is not None  # a destination has one scale
        made = self.forms.call(
            operator, inputs, self.forms.code_name(name), {**attributes, **ends("y", single)}, codes.element
        )
        self.forms.add_codes(name, made, codes)
        self.gone.update(between)

    # --- element by element -----------------------------------------------------------------------------------

    def _activation(self, argument: Argument) -> Tensor:
        if not isinstance(argument, Tensor):
            raise Unsupported("it reads a pack of tensors")
        return argument

    def _prefers_codes(self, tensor: Tensor) -> bool:
        """Whether a tensor is there in codes, or comes from outside and is to be."""
        return tensor.name in self.forms.coded or (tensor.name in self.inputs and tensor.name in self.chosen)

    def _need_codes(self, *read: Tensor) -> None:
        """See that some tensor is there in codes: between islands of real numbers nothing becomes codes for a step."""
        moving = [item for item in read if self.forms.fixed(item) is None]
        if not any(map(self._prefers_codes, moving)):
            raise Unsupported("what it reads is real")

    def _apply(self, node: Operation, form: UnaryForm) -> None:
        x = self._activation(node.inputs[0])
        self._need_codes(x)
        codes = self.forms.codes(x)
        self._make(
            single_output(node),
            form.operator,
            [codes],
            {**ends("x", self.forms.single(x)), **form.attributes},
        )

    def _combine(self, node: Operation) -> None:
        a, b = (self._activation(item) for item in node.inputs[:2])
        self._need_codes(a, b)
        if self._rescale(node, a, b):
            return
        result, given = single_output(node), dict(node.attributes)
        sides = [
            self._aligned(self.forms.codes(item), given.get(align), len(result.shape))
            for item, align in ((a, "lhs_align"), (b, "rhs_align"))
        ]
        attributes = {**ends("a", self.forms.single(a)), **ends("b", self.forms.single(b))}
        self._make(single_output(node), BINARY[node.operator], sides, attributes)

    def _rescale(self, node: Operation, a: Tensor, b: Tensor) -> bool:
        """A product with a positive number, which only says what codes stand for."""
        result = single_output(node)
        number, x = self.forms.uniform(b), a
        if number is None and node.operator == "math.mul":
            number, x = self.forms.uniform(a), b
        if (
            number is None
            or number <= 0
            or node.operator not in ("math.mul", "math.div")
            or x.shape != result.shape
        ):
            return False
        codes, old = self.forms.codes(x), self.forms.single(x)
        scale = old.scale * number if node.operator == "math.mul" else old.scale / number
        if self.exact and result.name in self.chosen:
            self._make(result, "quant.requantize", [codes], ends("x", PerTensor(scale, old.zero_point)))
            return True
        self.forms.coded[result.name] = codes
        self.forms.meaning[result.name] = TensorCodes(PerTensor(scale, old.zero_point), codes.element)
        return True

    def _aligned(self, codes: Tensor, align: Value, rank: int) -> Tensor:
        """Codes in a shape whose axes meet those of the result from the last one on."""
        own = len(codes.shape)
        if not isinstance(align, int) or own == 0 or own == rank:
            return codes
        before = rank - own - abs(align) if align < 0 else align
        after = rank - own - before
        if not after:
            return codes
        shape = (*(1,) * before, *codes.shape, *(1,) * after)
        return self.forms.call(
            "layout.reshape", [codes], self.forms.fresh(f"{codes.name}.aligned"), {"shape": shape}
        )

    # --- moves ------------------------------------------------------------------------------------------------

    def _move(self, node: Operation, moved: frozenset[int]) -> None:
        """Move codes instead of numbers; what differs in meaning is told alike first."""
        read = [item for place in sorted(moved) for item in tensors(node.inputs[place])]
        results = [item for item in results_of(node) if isinstance(item, Tensor)]
        if not read or len(results) != len(list(results_of(node))):
            raise Unsupported("its results are a pack of open length")
        meaning = self._common_meaning(read, results)
        if node.operator == COPY:
            self.forms.add_codes(results[0].name, self.forms.codes(read[0], meaning), meaning)
            return
        inputs: list[Argument] = list(node.inputs)
        for place in moved:
            inputs[place] = self._recoded(node.inputs[place], meaning)
        # Extents may be named after a result, so that it has its name from the start; items of packs get theirs then.
        names = [
            self.forms.code_name(item.name) if isinstance(item, Tensor) else self.forms.fresh("moved")
            for item in node.outputs
        ]
        types = {name: meaning.element for name, element in node.types if element.is_float}
        kept = {name: element for name, element in node.types if name not in types}
        made = call(
            self.model.library, node.operator, inputs, dict(node.attributes), names, {**kept, **types}
        )
        made = _with_names(made, node, lambda old, new: self.forms.code_name(old.name))
        self.forms.nodes.append(replace(made, origin=node.origin))
        for old, new in zip(results, results_of(made), strict=True):
            assert isinstance(new, Tensor)  # as many as before
            self.forms.add_codes(old.name, new, meaning)
            chosen = self.chosen.get(old.name) if self.exact else None
            if chosen is not None and chosen != meaning:
                self.forms.add_codes(old.name, self.forms.codes(old, chosen), chosen)

    def _common_meaning(self, read: Sequence[Tensor], results: Sequence[Tensor]) -> TensorCodes:
        """What the codes stand for that are moved."""
        moving = [item for item in read if self.forms.fixed(item) is None]
        if moving:
            self._need_codes(*moving)
            found = {self.forms.meaning.get(item.name) or self.chosen.get(item.name) for item in moving}
        else:
            found = {self.chosen.get(item.name) for item in read}
        chosen = [self.chosen[item.name] for item in results if item.name in self.chosen]
        meaning = found.pop() if len(found) == 1 and not (moving and len(read) > len(moving)) else None
        meaning = meaning or (chosen[0] if chosen else None)
        if meaning is None or meaning.single is None:
            raise Unsupported(f"no codes were chosen for '{results[0].name}'")
        return meaning

    def _recoded(self, argument: Argument, meaning: TensorCodes) -> Argument:
        if isinstance(argument, tuple):
            return tuple(self.forms.codes(item, meaning) for item in argument)
        return self.forms.codes(argument, meaning) if isinstance(argument, Tensor) else argument

    def _pad(self, node: Operation) -> None:
        x, value = self._activation(node.inputs[0]), node.inputs[1]
        self._need_codes(x)
        number = 0.0 if value is None else self.forms.uniform(value)
        if number is None:
            raise Unsupported("what it pads with is computed")
        codes, result = self.forms.codes(x), single_output(node)
        meaning = self.forms.meaning[x.name]
        single = self.forms.single(x)
        code = int(
            np.clip(
                np.rint(number / single.scale) + single.zero_point,
                meaning.element.minimum,
                meaning.element.maximum,
            )
        )
        constant = dict(node.attributes).get("method", "CONSTANT") == "CONSTANT"
        inputs = [codes, self.forms.constant(code, codes.element) if constant else None]
        made = self.forms.call(
            node.operator, inputs, self.forms.code_name(result.name), dict(node.attributes)
        )
        self.forms.add_codes(result.name, made, meaning)

    def _average(self, node: Operation) -> None:
        x, given, result = self._activation(node.inputs[0]), dict(node.attributes), single_output(node)
        rank = len(x.shape)
        axes = tuple(axis % rank for axis in integers_of(given.get("axes"), _count(given.get("axes"))))
        size, stride, dilation = (
            integers_of(given.get(name), len(axes)) for name in ("size", "stride", "dilation")
        )
        shape, out = known_shape(x), known_shape(result)
        sizes = WindowSizes(
            tuple(shape[axis] for axis in axes), tuple(out[axis] for axis in axes), size, stride
        )
        padding = padding_of(given, sizes)
        if any(item != 1 for item in dilation):
            raise Unsupported("its windows have gaps")
        if any(padding) and not given.get("ignore_border", True):
            raise Unsupported("padding counts in its means")
        attributes: dict[str, Value] = {"axes": axes, "size": size, "stride": stride, "padding": padding}
        self._apply(node, UnaryForm("quant.avg_pool", attributes))

    # --- products ---------------------------------------------------------------------------------------------

    def _convolve(self, node: Operation) -> None:
        x, weight, given = (
            self._activation(node.inputs[0]),
            self._activation(node.inputs[1]),
            dict(node.attributes),
        )
        if given.get("data_format") != "NCX" or given.get("filter_format") != "NCX":
            raise Unsupported("its channels are not first")
        if self.forms.fixed(weight) is None:
            raise Unsupported("its filter is computed")
        shape, filters, out = known_shape(x), known_shape(weight), known_shape(single_output(node))
        count = len(shape) - 2
        stride, dilation = (integers_of(given.get(name), count) for name in ("stride", "dilation"))
        window = tuple((size - 1) * gap + 1 for size, gap in zip(filters[2:], dilation, strict=True))
        padding = padding_of(given, WindowSizes(shape[2:], out[2:], window, stride))
        codes = self.forms.codes(x)
        operands, bits = self._weights(x, weight, node.inputs[2], 0)
        groups = given.get("groups")
        attributes: dict[str, Value] = {
            **ends("x", self.forms.single(x)),
            **{"stride": stride, "dilation": dilation, "padding": padding, "w_bits": bits},
            "groups": groups or shape[1],
        }
        self._make(single_output(node), "quant.conv", [codes, *operands], attributes)

    def _multiply(self, node: Operation) -> None:
        a, b, given = (
            self._activation(node.inputs[0]),
            self._activation(node.inputs[1]),
            dict(node.attributes),
        )
        turned = node.operator == LINEAR or bool(given.get("transB"))
        if node.operator == PRODUCT and node.inputs[2] is not None:
            raise Unsupported("a matrix is added to it")
        result, bias = single_output(node), node.inputs[2] if node.operator == LINEAR else None
        if bias is None:
            result, bias = self._added(result)
        codes = self.forms.codes(a)
        attributes: dict[str, Value] = {
            **ends("a", self.forms.single(a)),
            **{"transA": bool(given.get("transA")), "transB": turned},
        }
        operands: Sequence[Argument]
        if self.forms.fixed(b) is not None and b.name in self.chosen:
            rank = len(b.shape)
            operands, bits = self._weights(a, b, bias, rank - 2 if turned else rank - 1)
            zero = self.chosen[b.name].single
            attributes |= {"b_bits": bits, "b_zero": 0 if zero is None else zero.zero_point}
        else:
            if self.forms.fixed(b) is not None:
                raise Unsupported(f"no codes were chosen for its weight '{b.name}'")
            right, single = self.forms.codes(b), self.forms.single(b)
            units = np.asarray([self.forms.single(a).scale * single.scale])
            told = self.forms.bias(bias, units) if isinstance(bias, Tensor) else None
            operands = [right, told, self.forms.constant(single.scale, F64, (1,))]
            attributes |= {"b_zero": single.zero_point, "b_bits": right.element.bits}
        self._make(result, "quant.matmul", [codes, *operands], attributes)

    def _added(self, result: Tensor) -> tuple[Tensor, Tensor | None]:
        """A product with what the one operation that reads it adds to its columns, where that is known."""
        reader = self._only_reader(result.name)
        if reader is None or reader.operator != "math.add" or (self.exact and result.name in self.chosen):
            return result, None
        total, added = single_output(reader), reader.inputs[reader.inputs[0] == result]
        values = self.forms.fixed(added)
        aligned = all(value is None for value in dict(reader.attributes).values())
        if values is None or not isinstance(added, Tensor) or not aligned or total.shape != result.shape:
            return result, None
        if (
            values.size != result.shape[-1]
            or values.shape[-1:] != result.shape[-1:]
            or total.name in self.keep
        ):
            return result, None
        return total, added

    def _weights(self, x: Tensor, weight: Tensor, bias: Argument, axis: int) -> tuple[list[Argument], int]:
        """Weight, bias and scales of a product in codes, and the bits of the weight."""
        codes = self.chosen.get(weight.name)
        if codes is None:
            raise Unsupported(f"no codes were chosen for its weight '{weight.name}'")
        if codes.element not in BITS:
            raise Unsupported(f"codes of type {codes.element} are no weights")
        added = self.forms.fixed(bias) if bias is not None else None
        if bias is not None and added is None:
            raise Unsupported("its bias is computed")
        scale = self.forms.single(x).scale
        given = self._channel_scales(weight, codes, axis)
        scales = widened(given, added, scale)
        if scales is not given:
            codes = TensorCodes(PerChannel(axis, tuple(scales.tolist()), (0,) * scales.size), codes.element)
        stored = self.forms.weight(weight, codes, scales)
        told = self.forms.bias(bias, scale * scales) if isinstance(bias, Tensor) else None
        return [stored.codes, told, stored.scales], BITS[codes.element]

    def _channel_scales(self, weight: Tensor, codes: TensorCodes, axis: int) -> Array:
        """The scales of the channels along an axis of a weight, or the one of all."""
        quant = codes.quant
        if isinstance(quant, PerTensor):
            if quant.zero_point and weight.shape and len(weight.shape) > 2:
                raise Unsupported("its filter has a zero point")
            return np.asarray([quant.scale], np.float64)
        along = axis_of(quant, len(weight.shape))
        if not isinstance(quant, PerChannel) or along != axis or any(quant.zero_points):
            raise Unsupported(f"the scales of its weight '{weight.name}' do not lie along its channels")
        return np.asarray(quant.scales, np.float64)

    # --- islands of real numbers ------------------------------------------------------------------------------

    def _keep_real(self, node: Operation, reason: str) -> None:
        """An operation on real numbers, in the type of islands where it can be told in it."""
        result = next(iter(results_of(node)))
        self.floats.append(FloatOperation(result.name, node.operator, reason))
        if self._gather_codes(node) or self._in_wide_steps(node):
            return
        made = self._in_island(node)
        if made is None:
            made = replace(node, inputs=tuple(self._real_argument(item, None) for item in node.inputs))
        made = self._renamed(made, node)
        self.forms.nodes.append(replace(made, origin=node.origin))
        for old, new in zip(results_of(node), results_of(made), strict=True):
            if isinstance(old, Tensor) and isinstance(new, Tensor) and new.element.is_float:
                self.forms.reals[old.name, new.element] = new
                if self.exact and old.name in self.chosen:
                    self._round(old)

    def _renamed(self, made: Operation, node: Operation) -> Operation:
        """An operation whose results give their names to what is rounded to codes."""
        if not self.exact or not any(item.name in self.chosen for item in results_of(node)):
            return made

        def name(old: Tensor, new: Tensor) -> str:
            return self.forms.fresh(f"{new.name}.unrounded") if old.name in self.chosen else new.name

        named = _with_names(made, node, name)
        singles = zip(node.outputs, named.outputs, strict=True)
        outputs = tuple(
            replace(new, name=name(old, new)) if isinstance(old, Tensor) and isinstance(new, Tensor) else new
            for old, new in singles
        )
        return replace(named, outputs=outputs)

    def _round(self, tensor: Tensor) -> None:
        """Have real numbers of a tensor be those of its codes from now on."""
        self.forms.codes(tensor)
        for key in [key for key in self.forms.reals if key[0] == tensor.name]:
            del self.forms.reals[key]

    def _in_island(self, node: Operation) -> Operation | None:
        """An operation in the type of islands; None where it is in it, or cannot be."""
        around = (*members(node.inputs), *results_of(node))
        plain = all(isinstance(item, Tensor) and item.element in (F32, *_WHOLE) for item in around)
        if self.island == F32 or not plain:
            return None
        try:
            inputs = tuple(self._real_argument(item, self.island) for item in node.inputs)
            types = {name: self.island if element == F32 else element for name, element in node.types}
            names = [self._island_name(item) for item in node.outputs]
            made = call(self.model.library, node.operator, inputs, dict(node.attributes), names, types)
            return _with_names(made, node, lambda old, new: self.forms.real_name(old, new.element))
        except Found:
            return None

    def _in_wide_steps(self, node: Operation) -> bool:
        """A norm or a softmax of an island whose steps are those of f32, as targets compute it: rounded once."""
        outputs = [item for item in node.outputs if isinstance(item, Tensor)]
        plain = all(isinstance(item, Tensor) and item.element == F32 for item in members(node.inputs))
        narrow = self.island not in (F32, F64) and not self.exact
        if not narrow or node.operator not in ROWS or not plain or len(outputs) != len(node.outputs):
            return False
        inputs = tuple(self._widened(item) for item in node.inputs)
        names = [self.forms.fresh(f"{item.name}.wide") for item in outputs]
        made = call(self.model.library, node.operator, inputs, dict(node.attributes), names)
        self.forms.nodes.append(replace(made, origin=node.origin))
        for old, new in zip(outputs, made.outputs, strict=True):
            if self.reads.get(old.name):
                name = self.forms.real_name(old, self.island)
                cast = self.forms.call("layout.cast", [new], name, {}, self.island)
                self.forms.reals[old.name, self.island] = cast
        return True

    def _widened(self, argument: Argument) -> Argument:
        """An operand as the island has it, in f32."""
        if not isinstance(argument, Tensor):
            return argument
        narrow = self._real_tensor(argument, self.island)
        return self.forms.call("layout.cast", [narrow], self.forms.fresh(f"{argument.name}.wide"), {}, F32)

    def _island_name(self, argument: Argument) -> str:
        if isinstance(argument, Tensor):
            return self.forms.real_name(argument, self.island) if argument.element.is_float else argument.name
        return self.forms.fresh("island")

    def _real_argument(self, argument: Argument, element: ElementType | None) -> Argument:
        """What an operation on real numbers reads: all of one type, or each of its own."""
        if isinstance(argument, tuple):
            return tuple(self._real_tensor(item, element) for item in argument)
        return self._real_tensor(argument, element) if isinstance(argument, Tensor) else argument

    def _real_tensor(self, tensor: Tensor, element: ElementType | None) -> Tensor:
        return self.forms.real(tensor, element or tensor.element) if tensor.element.is_float else tensor

    def _gather_codes(self, node: Operation) -> bool:
        """Rows of a table whose rows have scales of their own: the codes of rows times their scales."""
        table = node.inputs[0] if node.inputs else None
        codes = self.chosen.get(table.name) if isinstance(table, Tensor) else None
        if node.operator != "layout.gather" or codes is None or dict(node.attributes).get("axis") != 0:
            return False
        assert isinstance(table, Tensor)  # it has codes
        quant, index = codes.quant, node.inputs[1]
        if (
            not isinstance(quant, PerChannel)
            or quant.axis % len(table.shape)
            or self.forms.fixed(table) is None
        ):
            return False
        scales = np.asarray(quant.scales, np.float64)
        stored, result = self.forms.weight(table, codes, scales), single_output(node)
        rows = self.forms.call(
            "layout.gather", [stored.codes, index], self.forms.fresh(f"{result.name}.codes"), {"axis": 0}
        )
        taken = self.forms.call(
            "layout.gather", [stored.scales, index], self.forms.fresh(f"{result.name}.scale"), {"axis": 0}
        )
        shape = (*taken.shape, *(1,) * (len(result.shape) - len(taken.shape)))
        scale = self.forms.call(
            "layout.reshape", [taken], self.forms.fresh(f"{result.name}.scale"), {"shape": shape}
        )
        element = self.island if result.element == F32 else result.element
        name = self.forms.real_name(result, element)
        self.forms.reals[result.name, element] = self.forms.call(
            "quant.decode", [rows, scale], name, {}, element
        )
        return True

    def _keep_region(self, node: Node) -> None:
        """Control flow: everything in it stays as it is, of real numbers."""
        for item in results_of(node):
            self.floats.append(FloatOperation(item.name, "control flow", "what it runs is known at the run"))
            if isinstance(item, Tensor) and item.element.is_float:
                self.forms.reals[item.name, item.element] = item
        read = {
            item.name: self.forms.real(item, item.element)
            for item in operands_of(node)
            if isinstance(item, Tensor) and item.element.is_float and self._is_outside(item)
        }
        self.forms.nodes.append(Substitution(lambda item: read.get(item.name, item)).node(node))

    def _is_outside(self, tensor: Tensor) -> bool:
        known = any(name == tensor.name for name, _ in self.forms.reals)
        return known or tensor.name in self.forms.coded


def _with_names(made: Operation, node: Operation, name: Callable[[Tensor, Tensor], str]) -> Operation:
    """An operation whose packs have items that are called after those of another."""
    outputs: list[Argument] = []
    for old, new in zip(node.outputs, made.outputs, strict=True):
        if isinstance(old, tuple) and isinstance(new, tuple):
            pairs = zip(old, new, strict=True)
            outputs.append(tuple(replace(item, name=name(before, item)) for before, item in pairs))
        else:
            outputs.append(new)
    return replace(made, outputs=tuple(outputs))


def _count(value: Value) -> int:
    return len(value) if isinstance(value, tuple) else 1
