"""The graph under construction: declared shapes and types, parameters, constants, caches, calls of operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from types import MappingProxyType

from lamella.base import dim
from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Dim, Extent
from lamella.base.dtype import I64, ElementType, find_in, name_in
from lamella.base.errors import Found
from lamella.base.limits import DEFAULT
from lamella.base.origin import Origin, with_origin
from lamella.base.source import NOWHERE, Span
from lamella.bridge.module_to_graph.nodes import (
    Bound,
    CompilationSettings,
    GradientControl,
    Held,
    InstanceFrame,
    Mark,
    Precision,
    Weight,
    graph_name,
)
from lamella.graph.build import Builder, Given
from lamella.graph.nodes import Argument, Tensor
from lamella.graph.nodes import Value as nodes_Value
from lamella.lang.module.annotations import SKIP, gradient_mode, read_annotation
from lamella.lang.module.instantiate.evaluate import evaluate
from lamella.lang.module.instantiate.messages import format_values
from lamella.lang.module.instantiate.nodes import BuiltConstant, DictValue, Known, TensorSlot, Value
from lamella.lang.module.instantiate.tree import slot_at
from lamella.lang.module.nodes import (
    Annotation,
    Expr,
    Name,
    Operation,
    Port,
    Primitive,
    Star,
    TensorType,
    Unchanged,
)
from lamella.lang.module.nodes.expressions import names_in
from lamella.lang.module.rules import graphs, syntax
from lamella.lang.module.rules.constants import KIND, OUT_OF_RANGE
from lamella.lang.module.words import ROPE_KINDS, called_rope
from lamella.ops.instance import Check

# --- the shapes of `constants:`; their numbers are computed by `constant_tables`, which needs NumPy ----------


_LLAMA3 = frozenset(("low_freq_factor", "high_freq_factor", "original_max_seq"))
_SCALINGS = ("default", "linear", "llama3")
MOST_ELEMENTS = DEFAULT.max_total_bytes // 8
"""Elements of one constant."""


def shape_of(name: str, built: BuiltConstant) -> tuple[int, ...]:
    """The shape of a constant; a Problem says what is wrong with its arguments."""
    require_call(name, built)
    try:
        shape = SHAPES[built.function](*built.positional, **built.named)
    except TypeError:
        shape = (-1,)
    except ValueError as problem:
        raise _wrong_arguments(name, built, str(problem)) from None
    extents = [item for item in shape if isinstance(item, int) and not isinstance(item, bool) and item >= 0]
    if len(extents) != len(shape):
        raise _wrong_arguments(name, built)
    count = math.prod(extents)
    if count > MOST_ELEMENTS:
        raise Found(OUT_OF_RANGE.at(built.span, what=f"the size of '{name}'", found=count, repair=""))
    return tuple(extents)


def require_call(name: str, built: BuiltConstant) -> None:
    """A Problem says that a function does not take so many arguments, or none of a name or kind."""
    try:
        signature(SHAPES[built.function]).bind(*built.positional, **built.named)
        SHAPES[built.function](*built.positional, **built.named)
    except ValueError:
        # It is about one value and not about the call: `shape_of` reports it.
        return
    except TypeError:
        raise _wrong_arguments(name, built) from None


def _wrong_arguments(name: str, built: BuiltConstant, why: str = "") -> Found:
    found = f"'{built.function}' of values that it does not take"
    wanted = f"{built.function}({_taken(built.function)})"
    return Found(KIND.at(built.span, what=f"'{name}'", found=found, wanted=wanted, repair=why or _HINT))


def _taken(function: str) -> str:
    """What a function takes, as its text would name it."""
    items = signature(SHAPES[function]).parameters.values()
    return ", ".join(
        str(item).replace(": 'Value'", "").replace(": Value", "").replace(" ", "") for item in items
    )


_HINT = "sizes are whole numbers of 0 or more, dim is even, the other numbers are positive"


def _rope(
    max_seq: Value,
    dim: Value,
    theta: Value = 10000.0,
    scaling: Value = "default",
    factor: Value = 1.0,
    **llama3: Value,
) -> tuple[Value, ...]:
    if not llama3.keys() <= _LLAMA3:
        raise TypeError(f"{', '.join(llama3.keys() - _LLAMA3)}")
    numbers = (theta, factor, *llama3.values())
    return _angles(max_seq, dim, numbers) if scaling in _SCALINGS else (-1,)


def _yarn(
    max_seq: Value,
    dim: Value,
    scale_factor: Value,
    theta: Value = 10000.0,
    *,
    original_max_seq: Value = 4096,
    beta_fast: Value = 32.0,
    beta_slow: Value = 1.0,
) -> tuple[Value, ...]:
    return _angles(max_seq, dim, (scale_factor, theta, original_max_seq, beta_fast, beta_slow))


def rope_kind(scaling: Value) -> str:
    """The kind of rotary positions that a `rope_parameters` or an older `rope_scaling` names."""
    said = dict(scaling.entries) if isinstance(scaling, DictValue) else {}
    return called_rope(said.get("rope_type") or said.get("type") or "default")


def original_length(scaling: Value, said: Value, max_seq: int) -> int:
    """How many positions a model was made for, before its angles were scaled."""
    found = (
        dict(scaling.entries).get("original_max_position_embeddings")
        if isinstance(scaling, DictValue)
        else None
    )
    return next((item for item in (found, said) if isinstance(item, int)), max_seq)


def _rotary(
    max_seq: Value,
    dim: Value,
    theta: Value = 10000.0,
    scaling: Value = None,
    original: Value = None,
    long: Value = False,
) -> tuple[Value, ...]:
    kind = rope_kind(scaling)
    if kind not in ROPE_KINDS:
        raise ValueError(f"rotary positions of the type '{kind}' are not known: {', '.join(ROPE_KINDS)} are")
    said = dict(scaling.entries) if isinstance(scaling, DictValue) else {}
    if kind == "longrope":
        for name in ("short_factor", "long_factor"):
            listed = said.get(name)
            if not isinstance(listed, tuple) or not isinstance(dim, int) or len(listed) != dim // 2:
                raise ValueError(f"'{name}' must hold a number for each of {dim} / 2 pairs")
        # Its short factors are meant for the original length; beyond it all positions have other angles.
        if isinstance(max_seq, int) and not long:
            max_seq = min(max_seq, original_length(scaling, original, max_seq))
    positive = [value for name, value in said.items() if name in _POSITIVE and value is not None]
    return _angles(max_seq, dim, (theta, *positive))


_POSITIVE = frozenset(
    ("rope_theta", "factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
)


def _angles(max_seq: Value, dim: Value, numbers: tuple[Value, ...]) -> tuple[Value, ...]:
    """One cosine and one sine for each position and pair; every number must be positive."""
    sound = all(isinstance(item, int | float) and item > 0 for item in numbers)
    half = dim // 2 if sound and isinstance(dim, int) and dim % 2 == 0 else -1
    return (max_seq, half, 2)


def _waves(max_seq: Value, dim: Value) -> tuple[Value, ...]:
    """A sine or a cosine for each position and element."""
    return (max_seq, dim if isinstance(dim, int) and dim % 2 == 0 else -1)


def _listed(*shape: Value) -> tuple[Value, ...]:
    return shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape


def _filled(shape: Value, value: Value) -> tuple[Value, ...]:
    return shape if isinstance(shape, tuple) else (shape,)


def _counted(end: Value) -> tuple[Value, ...]:
    return (end,)


SHAPES: Mapping[str, Callable[..., tuple[Value, ...]]] = MappingProxyType(
    {
        "precompute_rope_freqs": _rope,
        "precompute_yarn_freqs": _yarn,
        "rotary_table": _rotary,
        "sinusoid_table": _waves,
        "zeros": _listed,
        "ones": _listed,
        "full": _filled,
        "arange": _counted,
    }
)
"""For each function that `constants:` may name, the shape of what it gives."""


# --- the element type of storage ----------------------------------------------------------------------------


DTYPE, PRECISION = "dtype", "precision"
NARROW = 8
"""Types of at most this many bits hold numbers over a scale."""


def element_named(name: object) -> ElementType | None:
    """The element type of a word; None for everything else."""
    return find_in("module", name) if isinstance(name, str) else None


def dtype_word(element: ElementType) -> str:
    """What this language calls an element type."""
    return name_in("module", element) or element.name


def _storage_of(slot: TensorSlot, frame: InstanceFrame, precision: Precision | None) -> ElementType | None:
    """What a parameter itself says: its type, then its annotations, the last first, then the recipe."""
    if slot.dtype is not None:
        return element_named(slot.dtype)
    for item in reversed(slot.annotations):
        if item.name in (DTYPE, PRECISION):
            arguments = read_annotation(item, frame.known).arguments
            found = element_named(arguments.get("type" if item.name == DTYPE else "storage"))
            if found is not None:
                return found
    return None if precision is None else precision.storage


def _marks_of(slot: TensorSlot, path: str, tensor: Tensor, frame: InstanceFrame) -> list[Mark]:
    """The annotations of a parameter on the variable that it is."""
    return [
        Mark(path, tensor, item, read_annotation(item, frame.known).arguments) for item in slot.annotations
    ]


# --- decode caches: what earlier calls computed stays in variables ------------------------------------------


SEEN = "tokens_seen"


class DecodeCaches:
    """The variables of a graph that generates: how many tokens were seen, and what each layer keeps of them."""

    def __init__(self, builder: Builder, length: int) -> None:
        self.length = length
        self._builder = builder
        self._seen: Tensor | None = None
        self._positions: dict[Extent, Tensor] = {}
        self._is_advanced = False
        self._kept: dict[str, Tensor] = {}

    @property
    def seen(self) -> Tensor:
        """How many tokens earlier calls saw."""
        if self._seen is None:
            self._seen = self._builder.variable(SEEN, I64, ())
        return self._seen

    def positions(self, count: Extent) -> Tensor:
        """The positions of the tokens of this call."""
        if count not in self._positions:
            self._positions[count] = self._builder.call(
                "llm.positions", self.seen, count=count, results=("positions",)
            )
        return self._positions[count]

    def finish(self) -> None:
        """Make the next call begin behind the tokens of this one, also where no attention remembers them."""
        for count in self._positions:
            self._advance(count)

    def _advance(self, count: Extent) -> None:
        """Make the next call begin behind the tokens of this one; where there is no room for them, the run ends."""
        # Once for the whole graph: every layer asks, but each token is seen once. What remembers tells which
        # tokens count: positions are asked for by an encoder too, whose tokens are another sequence.
        if self._is_advanced:
            return
        self._is_advanced = True
        builder = self._builder
        before, builder.origin = (
            builder.origin,
            Origin(f"a cache with room for {self.length} tokens (--cache)"),
        )
        room = builder.call("layout.range", first=0, last=self.length + 1, results=("tokens_room",))
        after = builder.call("llm.advance", self.seen, room, count=count, results=("tokens_after",))
        builder.origin = before
        builder.update(self.seen, after)

    def remember(self, path: str, tensor: Tensor, origin: Origin | None) -> Tensor:
        """The vectors of all positions so far, `[batch, heads, length, width]`, with those of this call put in."""
        batch, heads, count, width = tensor.shape
        self._advance(count)
        cache = self._builder.variable(graph_name(path), tensor.element, (batch, heads, self.length, width))
        self._builder.origin = origin
        kept = self._builder.call("llm.remember", cache, tensor, self.seen, results=(f"{cache.name}_now",))
        self._builder.update(cache, kept)
        return kept

    def keep(self, path: str, element: ElementType, shape: tuple[Extent, ...]) -> Tensor:
        """The variable for a state of this shape that the graph computes anew in each call."""
        if path not in self._kept:
            self._kept[path] = self._builder.variable(graph_name(path), element, shape)
        return self._kept[path]


# --- declared types against the shapes of tensors; a new name binds a dimension -----------------------------


OPEN = "open"
"""The source of a dimension that is known only at run time."""


def shape_text(shape: Sequence[Extent]) -> str:
    """A shape as messages show it."""
    return f"[{', '.join(map(str, shape))}]"


def element_of(type: TensorType, default: ElementType) -> ElementType:
    """The element type that a declared type asks for."""
    found = find_in("module", type.dtype) if type.dtype is not None else None
    return default if found is None else found


def evaluate_extent(expr: Expr, frame: InstanceFrame) -> Extent:
    """A dimension that is not a new name."""
    value = evaluate(expr, frame.known)
    if isinstance(value, bool) or not isinstance(value, int | Dim):
        found = f"'{value}'" if isinstance(value, str) else str(value)
        raise Found(KIND.at(expr.span, what="a dimension", found=found, wanted="an integer", repair=""))
    return value


def unbound_names(item: Expr, frame: InstanceFrame) -> list[str]:
    """The names in a dimension that nothing has bound yet."""
    return [name for name in dict.fromkeys(names_in(item)) if name not in frame.known]


def match_type(
    what: str, tensor: Tensor, type: TensorType, frame: InstanceFrame, checks: list[Check]
) -> Iterator[Diagnostic]:
    """Whether a tensor has its declared type; dimensions that are new get the extents of the tensor.

    What only a run can decide becomes a check of the graph.
    """
    dims = [item for item in type.dims if not isinstance(item, Star | Unchanged)]
    rank = len(tensor.shape)
    if len(dims) > rank or (len(dims) == len(type.dims) and len(dims) != rank):
        yield _wrong(what, tensor, type, frame)
        return
    for item, extent in zip(dims, tensor.shape[rank - len(dims) :], strict=True):
        if isinstance(item, Name) and item.id not in frame.known:
            frame.dims[item.id] = Known(extent, f"'{what}'", item.span)
        elif unbound_names(item, frame):
            # A product of new names has no one solution: it says nothing of the tensor.
            continue
        else:
            truth = dim.equal(evaluate_extent(item, frame), extent)
            if truth is False or (truth is not True and _is_permuted(dims, tensor, frame)):
                yield _wrong(what, tensor, type, frame)
                return
            if truth is not True:
                text = " ".join(type.span.text.split()) or "another shape"
                message = (
                    f"'{what}' of '{frame.name}' is declared {text}, its shape is {shape_text(tensor.shape)}"
                )
                checks.append(Check(truth, message, type.span, graphs.DECLARED))


def _is_permuted(dims: Sequence[Expr], tensor: Tensor, frame: InstanceFrame) -> bool:
    """Whether a shape has the declared dimensions in another order: `[B, T]` is no `[T, B]`, whatever they are."""
    if len(dims) != len(tensor.shape) or any(unbound_names(item, frame) for item in dims):
        return False
    wanted = [str(evaluate_extent(item, frame)) for item in dims]
    found = [str(extent) for extent in tensor.shape]
    return wanted != found and sorted(wanted) == sorted(found)


def format_known(names: Iterable[str], frame: InstanceFrame) -> str:
    """The values of names and where they came from; open dimensions are left out."""
    return format_values(
        (name for name in names if getattr(frame.known.get(name), "source", "") != OPEN), frame.known
    )


def _describe_operands(tensors: Sequence[Tensor], frame: InstanceFrame | None) -> tuple[str, str]:
    """Tensors with their shapes, parameters with the names of their dimensions too; and what those names are."""
    declared = {} if frame is None else _declared(frame)
    shown: list[str] = []
    names: list[str] = []
    for tensor in tensors:
        text = f"{tensor.name.rpartition('.')[2]} {shape_text(tensor.shape)}"
        type = declared.get(tensor.name)
        if type is not None and type.span.end > type.span.start:
            names += names_in(*type.dims)
            text = f"{tensor.name.rpartition('.')[2]} {type.span.text} = {shape_text(tensor.shape)}"
        shown.append(text)
    return ", ".join(shown), "" if frame is None else format_known(names, frame)


def _declared(frame: InstanceFrame) -> dict[str, TensorType]:
    """The types of the parameters of a declaration, by the variables that they are."""
    return {
        graph_name(frame.place(item.path.parts[0].name)): item.type
        for item in frame.instance.module.tensors
        if isinstance(item.type, TensorType)
    }


def _wrong(what: str, tensor: Tensor, type: TensorType, frame: InstanceFrame) -> Diagnostic:
    """A tensor whose shape is not the declared one, with what its dimensions are and where that comes from."""
    wanted = type.span.text if type.span.end > type.span.start else "another"
    values = format_known(names_in(*type.dims), frame)
    return graphs.SHAPE.at(
        type.span, what=f"'{what}'", found=shape_text(tensor.shape), wanted=wanted, values=values, repair=""
    )


ELEMENT_CODES = frozenset(("SKR071", "SKR076", "SKR086", "SKR211", "SKR273", "SKR274"))
"""Rules of operators that speak of element types, not of shapes."""


class GraphLowering:
    """Everything that the parts of one compilation add to."""

    def __init__(self, settings: CompilationSettings, name: str) -> None:
        self.settings = settings
        self.builder = Builder(settings.library, name)
        self.caches = DecodeCaches(self.builder, settings.cached) if settings.cached else None
        self.depth = 0
        """How many instances are being built inside each other."""
        self.findings: list[Diagnostic] = []
        self.weights: dict[str, Weight] = {}
        self.marks: list[Mark] = []
        self.constants: dict[str, BuiltConstant] = {}
        self.names: list[tuple[str, Tensor]] = []
        self.adjoints: dict[str, Tensor] = {}
        """The gradients of tensors, by the tensors; only a tape has some."""
        self.controls: dict[str, GradientControl] = {}
        """What is done to adjoints, by tensor, where gradients will be derived from the graph."""
        self.precision: Precision | None = settings.precision
        """What the statement or the recipe that is being built says about element types."""
        self.scaled: dict[str, tuple[ElementType, Annotation, InstanceFrame]] = {}
        """Parameters that are stored over scales: the narrow type of their numbers, and how scales are found."""
        self._parameters: set[str] = set()
        self.states: set[str] = set()
        """Variables that the graph itself updates from call to call."""
        self.held: dict[str, Tensor] = {}
        """Tensors that are computed once while tokens are generated."""
        self._tables: dict[object, Tensor] = {}
        self._seen: set[tuple[str, int, int, str]] = set()
        self.checks: list[Check] = []
        """Declared shapes that only the run can test."""
        self.steps = 0
        """Operations of the graph so far."""

    def report(self, finding: Diagnostic, origin: Origin | None = None) -> None:
        """Add a finding, once: elements of an array have the same ones."""
        # By code and place alone: the elements of an array differ only in their paths.
        key = (finding.code, finding.span.start, finding.span.end, finding.span.source.name)
        if key not in self._seen:
            self._seen.add(key)
            self.findings.append(with_origin(finding, origin))

    @property
    def is_spent(self) -> bool:
        """Whether the graph has more operations than a graph may have."""
        return self.steps > self.settings.library.limits.max_operations

    def spend(self, count: int, span: Span, frame: InstanceFrame) -> bool:
        """Whether so many operations may still be built; the first that may not are reported."""
        limit = self.settings.library.limits.max_operations
        before, self.steps = self.steps, self.steps + count
        # Only the step that crosses the limit reports it, however many follow.
        if before <= limit < self.steps:
            what = "the number of operations of the graph"
            finding = syntax.LIMIT.at(span, what=what, limit=limit, option="max_operations")
            self.report(finding, frame.origin)
        return self.steps <= limit

    # --- parameters and constants ---------------------------------------------------------------------------

    def parameter(self, frame: InstanceFrame, slot: TensorSlot) -> Bound:
        """The variable that a parameter is; None where an optional one has no numbers."""
        path = frame.place(slot.name)
        if slot.tied is not None:
            home = slot_at(frame.instance, slot.tied)
            return None if home is None else self.parameter(frame, replace(home, name=slot.tied))
        if path not in self.weights:
            given = self.settings.given
            if slot.optional and (given is None or not given(path)):
                return None
            element = _storage_of(slot, frame, self.precision) or self.settings.element
            scaling = next((item for item in slot.annotations if item.name == "scaling"), None)
            narrow = element
            if scaling is not None and element.bits <= NARROW:
                # Scales belong to the storage: the variable holds the numbers, uses round them as codes would.
                element = self.settings.element
            self.builder.origin = frame.at(slot.name, slot.span)
            tensor = self.builder.variable(graph_name(path), element, slot.dims)
            if scaling is not None and narrow is not element:
                self.scaled[tensor.name] = (narrow, scaling, frame)
            self.weights[path] = Weight(path, tensor, slot)
            self.marks += _marks_of(slot, path, tensor, frame)
            self._parameters.add(tensor.name)
        return self.weights[path].tensor

    def constant(self, frame: InstanceFrame, name: str, built: BuiltConstant) -> Tensor:
        """The variable that holds a built constant; equal ones are one."""
        # Each of many layers declares the same rotary table; one variable holds it.
        key = (built.function, built.positional, tuple(sorted(built.named.items())))
        if key not in self._tables:
            shape = shape_of(name, built)
            tensor = self.builder.variable(graph_name(frame.place(name)), self.settings.element, shape)
            self.constants[tensor.name] = built
            self._tables[key] = tensor
        return self._tables[key]

    def state(self, name: str, element: ElementType, shape: tuple[int, ...]) -> Tensor:
        """A new variable that each call of the graph updates."""
        tensor = self.builder.variable(name, element, shape)
        self.states.add(tensor.name)
        return tensor

    def hold(self, path: str, tensor: Tensor) -> Tensor:
        """A tensor that is computed once while tokens are generated: here, for others, or by others."""
        self.held[graph_name(path)] = tensor
        if self.settings.held is not Held.INPUTS:
            return tensor
        return self.builder.input(graph_name(path), tensor.element, tensor.shape)

    def is_parameter(self, value: Bound) -> bool:
        """Whether a tensor is a parameter of the model."""
        return isinstance(value, Tensor) and value.name in self._parameters

    # --- calls ----------------------------------------------------------------------------------------------

    def call(
        self,
        operator: str,
        inputs: Sequence[Given],
        attributes: Mapping[str, nodes_Value],
        results: Sequence[str],
        place: CallSite,
    ) -> tuple[Argument, ...]:
        """Call an operator of the library; its findings are translated to this language."""
        self.builder.origin = place.origin
        try:
            found = self.builder.call_all(
                operator,
                *inputs,
                types=place.types,
                results=tuple(map(graph_name, results)),
                **dict(attributes),
            )
        except Found as problem:
            first, *others = (self._translated(item, place, inputs) for item in problem.findings)
            for item in others:
                self.report(item, place.origin)
            raise Found(first) from None
        self.record(operator, inputs, attributes, found, place)
        return found

    def _translated(self, finding: Diagnostic, place: CallSite, inputs: Sequence[Given]) -> Diagnostic:
        """A finding of an operator at the statement that called it."""
        tensors = [item for item in inputs if isinstance(item, Tensor)]
        if finding.code in ELEMENT_CODES:
            types = ", ".join(dict.fromkeys(dtype_word(item.element) for item in tensors))
            return graphs.DTYPE.at(
                place.span,
                operation=place.name,
                found=types,
                what="an operand",
                repair="convert it with @dtype",
            )
        operands, values = _describe_operands(tensors, place.frame)
        message = finding.message.partition(": ")[2] or finding.message
        why = f"{message}; operands {operands}" if operands else message
        return graphs.OPERANDS.at(
            place.span, operation=place.name, why=why, values=values, repair=finding.hint
        )

    def cast(self, tensor: Tensor, element: ElementType, origin: Origin | None) -> Tensor:
        """The tensor in another element type."""
        if tensor.element is element:
            return tensor
        self.builder.origin = origin
        found = self.builder.call("layout.cast", tensor, types={"R": element})
        span = NOWHERE if origin is None or origin.span is None else origin.span
        # Recorded like any call: its pullback casts the adjoint back.
        self.record("layout.cast", (tensor,), {}, (found,), CallSite("cast", span, origin))
        return found

    # --- what a tape adds -------------------------------------------------------------------------------------

    def record(
        self,
        operator: str,
        inputs: Sequence[Given],
        attributes: Mapping[str, nodes_Value],
        results: Sequence[Argument],
        place: CallSite,
    ) -> None:
        """See a call that was made; only a tape keeps it."""

    def visit(self, frame: InstanceFrame, build: Callable[[], tuple[Bound, ...]]) -> tuple[Bound, ...]:
        """Build an instance whose inputs are bound."""
        return build()

    def apply_backward(
        self, operation: Operation, values: Sequence[Bound], targets: tuple[str, ...], frame: InstanceFrame
    ) -> Sequence[Bound] | None:
        """What an operation of backward graphs gives; None where the operation is none."""
        return None

    @property
    def goes_back(self) -> bool:
        """Whether operations of a backward graph are being built."""
        return False

    def is_gradient(self, tensor: Tensor) -> bool:
        """Whether a tensor is a gradient."""
        return tensor.name.rpartition(".")[2].startswith("d_")

    def control_gradient(self, value: Tensor, annotation: Annotation, frame: InstanceFrame) -> Tensor:
        """The value with its `@gradient`, which a graph without gradients does not need."""
        if not self.settings.has_gradients or not value.element.is_float:
            return value
        said = read_annotation(annotation, frame.known).arguments
        scale, limit = said.get("scale"), said.get("clip")
        control = GradientControl(
            said.get("mode") == SKIP,
            float(scale) if isinstance(scale, int | float) else 1.0,
            float(limit) if isinstance(limit, int | float) else None,
        )
        return value if control == GradientControl() else self._controlled(value, control)

    def stop_input(self, value: Bound, port: Port) -> Bound:
        """The value of an input through which nothing goes back where the input says so; a tape does it by itself."""
        is_stopped = self.settings.has_gradients and gradient_mode(port.annotations) == SKIP
        if not is_stopped or not isinstance(value, Tensor):
            return value
        return self._controlled(value, GradientControl(is_stopped=True))

    def _controlled(self, value: Tensor, control: GradientControl) -> Tensor:
        """A copy of a tensor whose adjoint is changed before it comes to the tensor."""
        self.builder.origin = None
        found = self.builder.call("math.iden", value, results=(f"{value.name}.controlled",))
        self.controls[found.name] = control
        return found

    def change_adjoint(self, value: Tensor, change: Callable[[Tensor], Tensor], place: CallSite) -> Tensor:
        """The value whose adjoint is changed by a function; a graph without gradients has none."""
        return value


class CallSite:
    """Where a call is written: the name it is called by, its span, its origin, the types that it fixes.

    `primitive` is what is called there, where that is a primitive.
    """

    __slots__ = ("frame", "name", "origin", "primitive", "span", "types")

    def __init__(
        self, name: str, span: Span, origin: Origin | None, frame: InstanceFrame | None = None
    ) -> None:
        self.name = name
        self.span = span
        self.origin = origin
        self.frame = frame
        self.types: Mapping[str, ElementType] | None = None
        self.primitive: Primitive | None = None
