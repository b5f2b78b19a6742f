"""Instructions from call encodings: coded arguments, sizes, tables, and a layout in which every offset reaches."""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from lamella.base.diagnostic import Diagnostic
from lamella.base.dim import Atom, Dim, DimSymbol, Extent, Monomial, symbols
from lamella.base.dtype import ElementType, name_in
from lamella.base.errors import Found, Unsupported
from lamella.base.liveness import last_uses
from lamella.base.origin import Origin
from lamella.base.source import NOWHERE
from lamella.bridge.aten.nodes import AtenCall, Operand
from lamella.bridge.graph_to_nac.calls import (
    PASS,
    CallEncoding,
    LibraryCall,
    written_name,
    written_operands,
)
from lamella.graph.nodes import Tensor
from lamella.lang.nac import nodes as n
from lamella.lang.nac.check.tables import LAST_CONSTANT
from lamella.lang.nac.nodes import ConstantValue
from lamella.lang.nac.operations import (
    FINAL,
    FIRST_CUSTOM,
    LAST,
    PARAMETER,
    STATE,
    SUBGRAPH,
    TENSOR_CODES,
    USER,
    standard_operations,
)
from lamella.lang.nac.rules import graphs as rules
from lamella.ops.instance import Repeated

# --- arguments of instructions: what each one is, its code, and which lists are one constant ----------------


INT32 = range(-(1 << 31), 1 << 31)


@dataclass(frozen=True, slots=True)
class ResultRef:
    """The result of an instruction: a tensor by its name, a size by its text, a tuple by its number."""

    key: str


@dataclass(frozen=True, slots=True)
class CodedArgument:
    """One argument with its code."""

    code: str
    value: ResultRef | ConstantValue


Sizes: TypeAlias = Callable[[Dim], ResultRef]
"""Gives the instruction that computes a size."""

# --- roles --------------------------------------------------------------------------------------------------

_WEIGHTS: Mapping[str, str] = MappingProxyType({"weight": "W", "filter": "W", "scale": "W", "bias": "B"})
_ROLES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "aten.scaled_dot_product_attention": {"query": "Q", "key": "K", "value": "V", "attn_mask": "M"},
        "aten.addmm": {"self": "B", "mat2": "W"},
    }
)
"""Codes of tensors by operators and the names of their parameters, where the names alone do not tell."""
_AXES = frozenset(("axis", "dim", "dim0", "dim1", "start_dim", "end_dim"))


def role(operator: str, parameter: str) -> str:
    """The code of a tensor by what it is to an operator; `T` where it is nothing special."""
    own = _ROLES.get(".".join(operator.split(".")[:2]), _WEIGHTS)
    return own.get(parameter, "T")


def plain(words: Sequence[CodedArgument]) -> tuple[CodedArgument, ...]:
    """The arguments as the public compiler writes them: tensors are tensors, axes are integers."""
    return tuple(CodedArgument(_plain(word.code), word.value) for word in words)


def _plain(code: str) -> str:
    if code in TENSOR_CODES:
        return "T"
    return "i" if code == "A" else code


# --- arguments ----------------------------------------------------------------------------------------------


def encode_arguments(encoding: CallEncoding, sizes: Sizes) -> tuple[str, tuple[CodedArgument, ...]]:
    """The name of a call in the file, and its arguments."""
    if isinstance(encoding, AtenCall):
        operator = encoding.schema.name
        words = [
            word
            for name, operand in written_operands(encoding)
            for word in _aten_words(operator, name, operand, sizes)
        ]
        return written_name(encoding), tuple(words)
    return encoding.operator, tuple(_own_words(encoding, sizes))


def _aten_words(operator: str, name: str, operand: Operand, sizes: Sizes) -> Iterator[CodedArgument]:
    """An operand of ATen; a list that is no constant stands item by item."""
    if not isinstance(operand, tuple):
        yield _word(operator, name, operand, sizes)
        return
    constant = constant_list(operand)
    if constant is not None:
        yield CodedArgument("S", constant)
    else:
        for item in operand:
            yield from _aten_words(operator, "", item, sizes)


def _own_words(call: LibraryCall, sizes: Sizes) -> Iterator[CodedArgument]:
    """Inputs, all attributes, and the types that the tensors do not determine."""
    for name, value in zip(call.names, call.inputs, strict=False):
        if isinstance(value, tuple):
            yield CodedArgument("i", len(value))
            yield from (_word(call.operator, "", item, sizes) for item in value)
        else:
            yield _word(call.operator, name, _operand(value), sizes)
    for name, attribute in call.attributes:
        yield from _attribute(call.operator, name, attribute, sizes)
    yield from (CodedArgument("s", element.name) for element in call.types.values())


def _attribute(operator: str, name: str, value: object, sizes: Sizes) -> Iterator[CodedArgument]:
    """An attribute; a list that is no constant stands item by item behind its length."""
    if not isinstance(value, tuple):
        yield _word(operator, name, _operand(value), sizes)
        return
    constant = constant_list(value)
    if constant is not None:
        yield CodedArgument("S", constant)
        return
    yield CodedArgument("i", len(value))
    for item in value:
        yield _word(operator, "", _operand(item), sizes)


def _operand(value: object) -> Operand:
    """A value of a graph that an instruction can hold or compute."""
    if value is None or isinstance(value, Tensor | int | float | str | Dim):
        return value
    if isinstance(value, Repeated):
        raise Unsupported(value, "is a list whose length only the run tells")
    raise Unsupported(value, "is a condition, and sizes have none")


def _word(operator: str, name: str, operand: Operand, sizes: Sizes) -> CodedArgument:
    match operand:
        case Tensor():
            return CodedArgument(role(operator, name), ResultRef(operand.name))
        case Dim():
            return CodedArgument("T", sizes(operand))
        case bool():
            return CodedArgument("b", operand)
        case int():
            return CodedArgument("A" if name in _AXES else "i", operand)
        case float():
            return CodedArgument("f", operand)
        case str():
            return CodedArgument("s", operand)
        case ElementType():
            return CodedArgument("c", _element_word(operator, operand))
        case _:
            return CodedArgument("c", None)


def _element_word(operator: str, element: ElementType) -> str:
    found = name_in("nac", element)
    if found is None:
        raise Found(rules.ELEMENT.at(NOWHERE, what="the result of", name=operator, element=element))
    return found


def constant_list(items: Sequence[object]) -> tuple[int, ...] | tuple[float, ...] | None:
    """A list as one constant, where that holds it exactly."""
    whole = tuple(item for item in items if isinstance(item, int) and not isinstance(item, bool))
    if len(whole) == len(items) and all(item in INT32 for item in whole):
        return whole
    reals = tuple(item for item in items if isinstance(item, float))
    return reals if len(reals) == len(items) and all(map(_is_single, reals)) else None


def _is_single(value: float) -> bool:
    """Whether float32 holds a number; NaN is one number for all languages here."""
    if value != value:
        return True
    try:
        return struct.unpack("<f", struct.pack("<f", value)) == (value,)
    except OverflowError:
        return False


def size_words(*operands: Extent | ResultRef) -> tuple[CodedArgument, ...]:
    """The arguments of an instruction that computes with sizes."""
    return tuple(
        CodedArgument("T", item) if isinstance(item, ResultRef) else CodedArgument("i", _known(item))
        for item in operands
    )


def _known(extent: Extent) -> int:
    return extent if isinstance(extent, int) else 0


# --- symbolic extents: sizes of tensors and arithmetic on them, each computed once --------------------------


SIZE = "aten.sym_size.int"
SIZE_KEY = "\0size "
"""How the keys of sizes begin; no tensor is called so."""
_SIGNS: Mapping[str, str] = MappingProxyType({"/": "floordiv", "%": "mod", "<<": "sym_min", ">>": "sym_max"})

Size: TypeAlias = int | ResultRef
Emit: TypeAlias = Callable[[str, tuple[CodedArgument, ...], str], None]
"""Adds an instruction: its name, its arguments, and the key of its result."""


class SizeWriter:
    """Writes sizes where they are first needed."""

    def __init__(self, emit: Emit) -> None:
        self.emit = emit
        self.count = 0
        self.computed: dict[tuple[str, tuple[CodedArgument, ...]], ResultRef] = {}
        self.sources: dict[str, tuple[Tensor, int]] = {}
        """Symbols that are an extent of a tensor."""
        self.linear: dict[str, tuple[Tensor, int, int, int]] = {}
        """Symbols of which an extent is a multiple plus a number."""

    @contextmanager
    def block(self) -> Iterator[None]:
        """Forget in the end what is seen and computed in the meantime: it is not there behind a block."""
        before = dict(self.computed), dict(self.sources), dict(self.linear)
        try:
            yield
        finally:
            self.computed, self.sources, self.linear = before

    def see(self, tensor: Tensor) -> None:
        """A tensor that can be asked for its sizes from now on."""
        for axis, extent in enumerate(tensor.shape):
            found = _linear(extent)
            if found is not None:
                symbol, factor, rest = found
                if (factor, rest) == (1, 0):
                    self.sources.setdefault(symbol.name, (tensor, axis))
                else:
                    self.linear.setdefault(symbol.name, (tensor, axis, factor, rest))

    def write(self, extent: Dim) -> ResultRef:
        """The instruction that computes an extent."""
        found = self._sum(extent)
        if isinstance(found, ResultRef):
            return found
        return self._emit("add", found, 0)

    def _size(self, extent: Extent) -> Size:
        return extent if isinstance(extent, int) else self.write(extent)

    def _sum(self, extent: Dim) -> Size:
        total: Size | None = None
        for monomial, factor in extent.terms:
            if total is None:
                total = self._product(monomial, factor)
            elif factor < 0:
                total = self._emit("sub", total, self._product(monomial, -factor))
            else:
                total = self._emit("add", total, self._product(monomial, factor))
        return 0 if total is None else total

    def _product(self, monomial: Monomial, factor: int) -> Size:
        total: Size = factor
        for atom in monomial:
            value = self._atom(atom)
            total = value if total == 1 else self._emit("mul", value, total)
        return total

    def _atom(self, atom: Atom) -> Size:
        if isinstance(atom, DimSymbol):
            return self._symbol(atom)
        if atom.sign not in _SIGNS:
            raise Unsupported(atom, "is a choice, and sizes have none")
        left, right = (self._size(item) for item in atom.operands)
        return self._emit(_SIGNS[atom.sign], left, right)

    def _symbol(self, symbol: DimSymbol) -> Size:
        if symbol.name in self.sources:
            return self._ask(*self.sources[symbol.name])
        if symbol.name not in self.linear:
            raise Unsupported(symbol, "is the size of no tensor that is there by then")
        tensor, axis, factor, rest = self.linear[symbol.name]
        size: Size = self._ask(tensor, axis)
        if rest:
            size = self._emit("sub", size, rest)
        return self._emit("floordiv", size, factor) if factor != 1 else size

    def _ask(self, tensor: Tensor, axis: int) -> ResultRef:
        return self._once(SIZE, (CodedArgument("T", ResultRef(tensor.name)), CodedArgument("A", axis)))

    def _emit(self, name: str, left: Size, right: Size) -> ResultRef:
        return self._once(name, size_words(left, right))

    def _once(self, name: str, words: tuple[CodedArgument, ...]) -> ResultRef:
        """The result of an instruction, which is written only the first time."""
        if (name, words) not in self.computed:
            key = f"{SIZE_KEY}{self.count}"
            self.count += 1
            self.computed[name, words] = ResultRef(key)
            self.emit(name, words, key)
        return self.computed[name, words]


def _linear(extent: Extent) -> tuple[DimSymbol, int, int] | None:
    """The symbol, the factor and the rest of an extent that has one symbol, once."""
    if isinstance(extent, int):
        return None
    rest = sum(factor for monomial, factor in extent.terms if not monomial)
    terms = [(monomial, factor) for monomial, factor in extent.terms if monomial]
    if len(terms) != 1 or len(terms[0][0]) != 1:
        return None
    atom = terms[0][0][0]
    return (atom, terms[0][1], rest) if isinstance(atom, DimSymbol) else None


def own_symbols(tensor: Tensor) -> dict[str, tuple[int, int]]:
    """The symbols in the shape of a tensor, each with its range."""
    found = (symbol for extent in tensor.shape for symbol in symbols(extent))
    return {symbol.name: (symbol.low, symbol.high) for symbol in found}


# --- the tables of a file while it is written: operations, signatures, constants, each record once ----------


NULL = 1
"""The id of the null constant; others follow it."""
_STANDARD = {item.name: id_ for id_, item in standard_operations(n.V1_6).items()}


class FileTables:
    """Ids in the order of first use."""

    def __init__(self) -> None:
        self._operations: dict[str, int] = {}
        self._signatures: dict[str, int] = {}
        self._constants: dict[tuple[n.ConstantType, bytes], n.Constant] = {}

    def operation(self, name: str) -> int:
        """The id of an operation: a standard one, or the next of the file's own."""
        if name in _STANDARD:
            return _STANDARD[name]
        return self._operations.setdefault(name, FIRST_CUSTOM + len(self._operations))

    def signature(self, codes: str) -> int:
        """The id of a signature; 0 stands for no arguments."""
        return self._signatures.setdefault(codes, len(self._signatures) + 1) if codes else 0

    def constants(self, words: tuple[CodedArgument, ...]) -> tuple[int, ...]:
        """The ids of the arguments that are constants."""
        return tuple(self._constant(item.value) for item in words if not isinstance(item.value, ResultRef))

    def _constant(self, value: n.ConstantValue) -> int:
        """The id of a constant; values of different types, and of different bits, are different ones."""
        kind, image = identify(value)
        if kind is n.ConstantType.NULL:
            record = n.Constant(NULL, kind, None)
        else:
            null = (n.ConstantType.NULL, b"") in self._constants
            record = n.Constant(NULL + 1 + len(self._constants) - null, kind, _spelled(value))
        return self._constants.setdefault((kind, image), record).id

    # --- the records ----------------------------------------------------------------------------------------

    @property
    def operations(self) -> tuple[n.Operation, ...]:
        """The records of CMAP."""
        return tuple(n.Operation(id_, name) for name, id_ in self._operations.items())

    @property
    def signatures(self) -> tuple[n.Signature, ...]:
        """The records of PERM."""
        return tuple(n.Signature(id_, codes) for codes, id_ in self._signatures.items())

    @property
    def records(self) -> tuple[n.Constant, ...]:
        """The records of CNST."""
        return tuple(sorted(self._constants.values(), key=lambda item: item.id))

    def find_full(self) -> Iterator[Diagnostic]:
        """The tables that have more records than instructions can name."""
        room = LAST - FIRST_CUSTOM + 1
        if len(self._operations) > room:
            first = ", ".join(list(self._operations)[room : room + 8])
            hint = f"there is no room for {first}{' and others' * (len(self._operations) > room + 8)}"
            yield rules.TOO_MANY.at(
                NOWHERE, count=len(self._operations), what="operations of its own", limit=room, hint=hint
            )
        if len(self._signatures) > LAST:
            yield rules.TOO_MANY.at(NOWHERE, count=len(self._signatures), what="signatures", limit=LAST)
        if len(self._constants) > LAST_CONSTANT - 1:
            count = len(self._constants)
            yield rules.TOO_MANY.at(NOWHERE, count=count, what="constants", limit=LAST_CONSTANT - 1)


def identify(value: n.ConstantValue) -> tuple[n.ConstantType, bytes]:
    """The type of a constant, and bytes that only equal values share."""
    match value:
        case None:
            return n.ConstantType.NULL, b""
        case bool():
            return n.ConstantType.BOOL, bytes([value])
        case int():
            return n.ConstantType.INT64, str(value).encode()
        case float():
            return n.ConstantType.FLOAT64, struct.pack("<d", _spelled_real(value))
        case str():
            return n.ConstantType.STRING, value.encode("utf-8", "surrogatepass")
        case tuple():
            real = any(isinstance(item, float) for item in value)
            kind = n.ConstantType.FLOAT32_LIST if real else n.ConstantType.INT32_LIST
            return kind, struct.pack(f"<{len(value)}d", *map(_spelled_real, value))


def _spelled_real(value: float) -> float:
    return math.nan if value != value else value


def _spelled(value: n.ConstantValue) -> n.ConstantValue:
    """A value in the one form that files have: NaN is always the same."""
    if isinstance(value, float):
        return _spelled_real(value)
    if isinstance(value, tuple) and any(isinstance(item, float) for item in value):
        return tuple(_spelled_real(item) for item in value)
    return value


REACH = 32768
"""How far back an offset reaches."""


@dataclass(frozen=True, slots=True)
class OpenedBlocks:
    """An instruction that blocks stand behind: field A, field B, and how many there are."""

    operation: int
    variant: int
    count: int


@dataclass(frozen=True, slots=True)
class PendingInstruction:
    """An instruction that has no place yet; `name` is None for outputs and for what opens blocks.

    An output that `closes` hands over the results of a block and ends it.
    """

    name: str | None
    words: tuple[CodedArgument, ...]
    gives: str = ""
    origin: Origin | None = None
    opened: OpenedBlocks | None = None
    closes: bool = False

    @property
    def refs(self) -> tuple[ResultRef, ...]:
        """The results that it reads."""
        return tuple(item.value for item in self.words if isinstance(item.value, ResultRef))


@dataclass(frozen=True, slots=True)
class PlacedCode:
    """Instructions in order, what each one gives, and from what it was made."""

    instructions: tuple[n.Instruction, ...]
    results: tuple[str, ...]
    origins: Mapping[int, Origin]
    branches: Mapping[int, int]
    """How many results each branch has."""


@dataclass(slots=True)
class _BlockFrame:
    """Blocks that are being placed: whose they are, how long those before were, what they changed."""

    owner: int
    count: int
    start: int
    lengths: list[int] = field(default_factory=list)
    changed: list[tuple[str, int | None]] = field(default_factory=list)
    """Where results were before the block."""


def layout_instructions(
    inputs: Sequence[str],
    items: Sequence[PendingInstruction],
    parameters: Mapping[str, int],
    tables: FileTables,
    states: Mapping[str, int] | None = None,
) -> PlacedCode:
    """All instructions: inputs first, then states, then items, each behind the parameters that it is the first to use.

    States that nothing reads are not loaded.
    """
    layout = _Layout(items, parameters, tables)
    for name in inputs:
        layout.add(n.Instruction(n.INPUT, USER), name)
    for name, id_ in (states or {}).items():
        if name in layout.last:
            layout.add(n.Instruction(n.INPUT, STATE, (id_,)), name)
    for number, item in enumerate(items):
        layout.take(number, item)
    return PlacedCode(tuple(layout.instructions), tuple(layout.results), layout.origins, layout.branches)


class _Layout:
    """Gives instructions their places, one after the other."""

    def __init__(
        self, items: Sequence[PendingInstruction], parameters: Mapping[str, int], tables: FileTables
    ) -> None:
        self.parameters = parameters
        self.tables = tables
        self.instructions: list[n.Instruction] = []
        self.results: list[str] = []
        self.origins: dict[int, Origin] = {}
        self.places: dict[str, int] = {}
        self.last = last_uses([ref.key for ref in item.refs] for item in items)
        self.items = items
        self.outputs = len(items[-1].words) if items else 0
        self.branches: dict[int, int] = {}
        self.frames: list[_BlockFrame] = []
        self.waiting: deque[tuple[int, str]] = deque()
        """Results in the order of their places, for as long as they may need a relay."""

    def add(self, instruction: n.Instruction, gives: str) -> None:
        """Put an instruction at the end."""
        index = len(self.instructions)
        self.instructions.append(instruction)
        self.results.append(gives)
        if gives:
            if self.frames:
                self.frames[-1].changed.append((gives, self.places.get(gives)))
            self.places[gives] = index
            if gives not in self.parameters and gives in self.last:
                self.waiting.append((index, gives))

    def take(self, number: int, item: PendingInstruction) -> None:
        """Put an item at the end, behind the relays and the loads that it needs."""
        room = len(item.words) + 1 + self._ahead(number, item)
        self._relay(number, room)
        for ref in item.refs:
            if ref.key in self.parameters and not self._reaches(ref.key, room):
                self.add(n.Instruction(n.INPUT, PARAMETER, (self.parameters[ref.key],)), ref.key)
        if item.origin is not None:
            self.origins[len(self.instructions)] = item.origin
        if item.closes:
            self._close(item)
            return
        self.add(self._instruction(item), item.gives)
        if item.opened is not None:
            here = len(self.instructions)
            self.frames.append(_BlockFrame(here - 1, item.opened.count, here))

    # --- blocks ---------------------------------------------------------------------------------------------

    def _ahead(self, number: int, item: PendingInstruction) -> int:
        """About how many instructions stand before the join of blocks that open here; results are relayed before."""
        if item.opened is None or self.frames:
            return 0
        total, left = 0, [item.opened.count]
        for inner in self.items[number + 1 :]:
            total += len(inner.words) + 1
            left += [inner.opened.count] if inner.opened is not None else []
            left[-1] -= inner.closes
            while left and not left[-1]:
                left.pop()
            if not left or total > REACH // 2:
                break
        return min(total, REACH // 2)

    def _close(self, item: PendingInstruction) -> None:
        """Hand results over and end a block: what it made is not there behind it."""
        frame, width = self.frames[-1], self.outputs
        if not width:
            what = "results of a block"
            raise Found(rules.TOO_MANY.at(NOWHERE, count=len(item.words), what=what, limit=0))
        for start in range(0, len(item.words), width):
            words = item.words[start : start + width]
            filled = (*words, *words[-1:] * (width - len(words)))
            self.add(n.Instruction(n.OUTPUT, SUBGRAPH, (), self._offsets(filled)), "")
        for key, before in reversed(frame.changed):
            if before is None:
                del self.places[key]
            else:
                self.places[key] = before
        frame.changed.clear()
        here, owner = len(self.instructions), self.instructions[frame.owner]
        frame.lengths.append(here - frame.start)
        frame.start = here
        if owner.operation == n.CONTROL_FLOW:
            self.branches[frame.owner] = len(item.words)
        if len(frame.lengths) == frame.count:
            self.frames.pop()
            self.instructions[frame.owner] = replace(owner, constants=tuple(frame.lengths))

    def _offsets(self, words: Sequence[CodedArgument]) -> tuple[int, ...]:
        here = len(self.instructions)
        found = tuple(
            self.places[word.value.key] - here if isinstance(word.value, ResultRef) else 0 for word in words
        )
        if min(found, default=0) < -REACH:
            what = "instructions between a result and its use behind blocks"
            raise Found(rules.TOO_MANY.at(NOWHERE, count=-min(found), what=what, limit=REACH))
        return found

    # --- reach ----------------------------------------------------------------------------------------------

    def _reaches(self, key: str, room: int) -> bool:
        return key in self.places and len(self.instructions) + room - self.places[key] <= REACH

    def _relay(self, number: int, room: int) -> None:
        """Pass on what is needed later and would be out of reach behind the next `room` instructions."""
        relayed = 0
        while self.waiting and self.waiting[0][0] + REACH < len(self.instructions) + room + 1:
            place_, key = self.waiting.popleft()
            if self.places.get(key) != place_ or self.last[key] < number:
                continue
            relayed += 1
            if relayed > REACH:
                count = f"more than {REACH}"
                raise Found(rules.TOO_MANY.at(NOWHERE, count=count, what="results at once", limit=REACH))
            self.add(
                self._instruction(PendingInstruction(PASS, (CodedArgument("T", ResultRef(key)),), key)), key
            )

    def _instruction(self, item: PendingInstruction) -> n.Instruction:
        offsets = self._offsets(item.words)
        if item.opened is not None:
            return n.Instruction(item.opened.operation, item.opened.variant, (), offsets)
        if item.name is None:
            return n.Instruction(n.OUTPUT, FINAL, (), offsets)
        codes = "".join(word.code for word in item.words)
        return n.Instruction(
            self.tables.operation(item.name),
            self.tables.signature(codes),
            self.tables.constants(item.words),
            offsets,
        )
