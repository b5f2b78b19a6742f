"""Tiling of contractions into cooperative matrices: products and convolutions of any rank, with their epilogues.

A sum of products `y[…] += a[…] * b[…]` has four sorts of loops: the *row* loop (M) is contiguous in the output and
counts one operand, *column* loops (N) count the other operand, *batch* loops count both, *sums* (K) none of the output.
Rows go over lanes, columns are registers, and the sums run inside with the tile in registers. So a convolution is an
implicit GEMM, whose column operand is read in place, window by window. The row operand is read in packed panels of some
rows; where it does not lie so a kernel packs it, for a weight once, when the model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from lamella.base.affine import Affine, weighted_sum
from lamella.base.dtype import I4, Kind
from lamella.base.errors import Unsupported
from lamella.base.open_extent import is_open
from lamella.base.records import dataclass
from lamella.bridge.graph_to_kernels.accesses import (
    Access,
    Axis,
    every_second,
    find_access,
    fuse_loops,
    split_axes,
    substitute_loops,
    with_room,
)
from lamella.bridge.graph_to_kernels.affine import Form, find_digits, find_form
from lamella.bridge.graph_to_kernels.factors import find_factors
from lamella.bridge.graph_to_kernels.terms import TensorView, stored_type
from lamella.bridge.graph_to_kernels.tile_widths import tile_width
from lamella.kernels.target import Target
from lamella.lang.tensor.check.kinds import BYTES
from lamella.lang.tensor.nodes import Scalar, Value
from lamella.lang.tensor.nodes.types import STORED_FLOATS
from lamella.ops.formula import Contraction, Element, Guard, Index
from lamella.ops.formula import Scalar as Term
from lamella.ops.lower import operands, reachable

Key = tuple[str, int | None]
Tensors = Mapping[Key, TensorView]
PANEL = "panel"
"""The name under which the number of a panel counts; no loop of a formula has it."""
PAIR = "pair"
"""The name under which the elements count that lie together for each row."""
PACKS = {"bf16": 2, "i8": 4}
"""Products of two such factors that instructions add at a time."""
LARGEST_SUM = 1 << 17
"""The most products of two 8-bit integers whose sum fits 32 bits."""
UNIT = "unit"
"""A loop of one step, which counts nothing."""
SPARE_REGISTERS = 4
"""Registers that a tile leaves for columns of the row operand and for a broadcast element of the other."""
FEWEST_STEPS = 512
"""Multiplications below which a contraction is not worth tiles."""
BLOCK_BYTES = 384 << 10
"""Cache blocking: the most bytes that the columns of a work-group read, to stay in the second-level cache."""
THREAD_COLUMNS = 8
"""Columns of a tile where work-items are threads: small tiles, so that there are many."""
GROUP_STEPS = 1 << 16
"""Multiplications that a work-group should have at least, so that its start does not count."""
FEW_GROUPS = 8
"""Work-groups of which an odd number leaves a thread without work for long."""
WIDE_LANES = 16
"""Lanes of vectors whose halves are vectors too, which cost half."""
NARROW = ("i8", *STORED_FLOATS, "bf16", "f16")
"""Types of factors that are made wider in registers."""
LONG_SUM, LONG_PACKED = 2048, 8192
"""Steps of a sum above which it is added up in parts: of a factor that lies as it is, and of one in panels."""
PART, PART_COLUMNS, PART_PANELS = 384, 256, 8
"""Steps of such a part, and the columns and panels that a work-group takes with it: both factors stay in caches."""
FEWEST_COLUMNS = 4
"""Columns for which packing a factor that changes from run to run is worth its time."""


@dataclass(frozen=True, slots=True)
class ProductGroup:
    """A sum of products, its prologue, and its epilogues."""

    product: Contraction
    epilogues: tuple[Contraction, ...] = ()
    """`z = f(y, …)`, one for each output; none where the target itself leaves."""
    prologue: tuple[Contraction, ...] = ()
    """The prologue of an operand, `s += g(x, …)`, then `v = f(x, s, …)`, which its kernel computes on the fly."""
    parts: int = 1
    """Gates: parts of its rows that epilogues read together, as items of the target: `y[i]` is that of every part."""
    copies: tuple[Contraction, ...] = ()
    """`w = z`, an output once more in another type."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The role of each loop; columns and batches from the outermost of the output to the contiguous one."""

    row: str
    columns: tuple[str, ...]
    batch: tuple[str, ...]
    sums: tuple[str, ...]
    """The last one is the inner loop."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """An output that is computed from the sum, its loops as forms over those of the sum."""

    formula: Contraction
    extents: Mapping[str, int]
    loops: Mapping[str, Form]
    accesses: Mapping[int, Access]
    """The accesses of its elements, but those of the sum's target, by their identity."""
    keys: Mapping[int, Key]


@dataclass(frozen=True, slots=True)
class Scale:
    """A tensor of scales of an operand."""

    key: Key
    access: Access
    fixed: bool = False
    """Whether it is the same in every run."""
    packed: bool = False
    """Whether it lies in panels, as the packed factor does."""


@dataclass(frozen=True, slots=True)
class TiledProduct:
    """A contraction cut into tiles."""

    group: ProductGroup
    real: Scalar
    extents: Mapping[str, int]
    roles: Roles
    row_factor: Access
    row_key: Key
    column_factor: Access
    column_key: Key
    packed: bool
    epilogues: tuple[Epilogue, ...]
    accesses: Mapping[int, Access]
    """The accesses of the epilogues by the identity of their elements, in the loops of the product."""
    scales: tuple[Scale, ...]
    """What products are multiplied with, none of which changes along the inner sum."""
    lanes: int
    """Rows that fill a vector."""
    rows: int
    """Rows of a panel."""
    widths: tuple[int, ...]
    """Columns of a tile along each column loop."""
    blocked: int
    """The column loop that is cache-blocked; the steps of those before it are work-groups of their own."""
    block: int
    """Steps of that loop in a block."""
    nibbles: bool = False
    """Whether two codes of the row factor, neighbours along the inner sum, are packed into one byte."""
    fixed: bool = False
    """Whether the row factor is the same in every run."""
    part: int = 0
    """Steps of the inner sum that are added up at a time, the sums in memory between them; 0 for all."""
    threads: bool = False
    """Whether work-items are threads: each tile is a work-group, and more of a sum is in flight at once."""
    numbers: tuple[float, ...] = ()
    """What the codes of the row factor stand for, from the lowest on, where they are looked up in a table."""

    @property
    def panels(self) -> int:
        """Panels of rows, the last of which may have fewer."""
        return -(-self.extents[self.roles.row] // self.rows)

    @property
    def blocks(self) -> int:
        """Blocks of the loop that is shared out; what is left behind its whole tiles belongs to the last one."""
        if not self.roles.columns:
            return 1
        extent, width = self.extents[self.roles.columns[self.blocked]], self.widths[self.blocked]
        if is_open(extent):
            return -(-extent // self.block)
        return max(1, -(-(extent // width) // (self.block // width)))

    @property
    def shared(self) -> tuple[str, ...]:
        """The loops whose steps are work-groups of their own."""
        return (*self.roles.batch, *self.roles.columns[: self.blocked])

    @property
    def groups(self) -> int:
        """The number of work-groups."""
        return prod(self.extents[name] for name in self.shared) * self.blocks * self.panel_groups

    @property
    def panel_groups(self) -> int:
        """Work-groups that share the panels."""
        return -(-self.panels // PART_PANELS) if self.part else self.panels

    def whole(self, height: int) -> int:
        """Rows of the vectors that hold so many."""
        if is_open(height):
            return self.rows
        half = self.lanes // 2
        if height <= half and self.lanes == WIDE_LANES and self.row_factor.element == "f32":
            return half
        return -(-height // self.lanes) * self.lanes

    @property
    def pack(self) -> int:
        """Steps of the inner sum that are packed together for each row, for dot products of narrow operands."""
        narrow = self.row_factor.element == self.column_factor.element
        count = PACKS.get(self.row_factor.element, 1) if self.packed and narrow and not self.nibbles else 1
        return count if self.extents[self.roles.sums[-1]] % count == 0 else 1

    @property
    def is_integer(self) -> bool:
        """Whether products are summed up as integers, before they are scaled."""
        both = self.row_factor.element == self.column_factor.element == "i8" and not self.nibbles
        scaled = {name for item in self.scales for name in item.access.loops()}
        steps = prod(self.extents[name] for name in self.roles.sums)
        fits = scaled.isdisjoint(self.roles.sums) and steps < LARGEST_SUM
        return both and fits and bool(self.scales)

    @property
    def folded(self) -> int:
        """Steps of the inner sum for each step of the packed factor."""
        return 2 if self.nibbles else self.pack

    def steps(self, access: Access) -> list[Access]:
        """A factor as each code of a byte of the packed factor meets it."""
        if not self.nibbles:
            return [access]
        return [every_second(access, self.roles.sums[-1], first) for first in (0, 1)]

    def side(self, scale: Scale) -> TiledProduct:
        """The product with a scale as its row factor, to be packed like one."""
        sums = tuple(name for name in self.roles.sums if name in scale.access.loops())
        roles = replace(self.roles, sums=sums)
        return replace(self, row_factor=scale.access, row_key=scale.key, roles=roles, nibbles=False)

    def packed_access(self, memref: Value) -> Access:
        """The packed operand: rows of a panel contiguous, then the sums, the panels, the batches that it has.

        Where steps of the inner sum are packed together, they are contiguous, and its loop counts pairs.
        """
        batch = [name for name in self.roles.batch if self.row_factor.stride(name)]
        pair, inner = [PAIR] if self.pack > 1 else [], self.roles.sums[-1]
        loops = [*pair, self.roles.row, *reversed(self.roles.sums), PANEL, *reversed(batch)]
        sizes = {**self.extents, PANEL: self.panels, self.roles.row: self.rows, PAIR: self.pack}
        sizes[inner] //= self.folded
        axes, stride = [], 1
        for name in loops:
            axes.append(Axis(sizes[name], stride, Affine(0, ((name, 1),))))
            stride *= sizes[name]
        return Access(memref, self.row_factor.element, tuple(reversed(axes)))


# --- finding it ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreparedProduct:
    """A sum of products with its accesses, loops collapsed that are neighbours everywhere."""

    group: ProductGroup
    factors: tuple[Access, Access]
    keys: tuple[Key, Key]
    epilogues: tuple[Epilogue, ...]
    accesses: Mapping[int, Access]
    """Of the epilogues, by the identity of their elements."""
    scales: tuple[Scale, ...]
    extents: Mapping[str, int]
    numbers: tuple[tuple[float, ...], tuple[float, ...]]
    """For each factor the table in which its codes are looked up, where they are."""
    prologue: tuple[Epilogue, ...] = ()
    """The prologue of an operand, in the loops of the product."""
    copies: tuple[Epilogue, ...] = ()
    """Outputs once more in another type."""

    @property
    def stored(self) -> tuple[Epilogue, ...]:
        """All that leaves."""
        return (*self.epilogues, *self.copies)

    @property
    def outputs(self) -> list[Access]:
        """The accesses of the outputs."""
        return [self.accesses[id(item)] for end in self.stored for item in end.formula.targets]

    def factor(self, key: Key, loop: str) -> Access:
        """The factor of a key as it is given; where both are one tensor, the one that a loop counts."""
        found = [item for item, own in zip(self.factors, self.keys, strict=True) if own == key]
        return next((item for item in found if loop in item.loops()), found[0])

    def copies_of(self, end: Epilogue) -> list[Epilogue]:
        """The copies of an output."""
        tensor = end.formula.targets[0].tensor
        return [item for item in self.copies if _copied(item.formula).tensor == tensor]


def prepare_product(
    group: ProductGroup, tensors: Tensors, real: Scalar, with_tables: bool = False
) -> PreparedProduct:
    """The accesses of a sum of products and of its epilogues; tables of codes only for who can look them up."""
    extents = extents_of(group.product)
    (sum_, *parts), tables = _factors(group.product, tensors, real)
    if any(tables) and not with_tables:
        raise Unsupported("its codes are looked up in a table")
    verify_whole(sum_, tensors[key_of(sum_)].shape, extents)
    digits = _find_digits(group, sum_, extents)
    factors = [substitute_loops(held_access(item, tensors, extents), digits) for item in parts]
    places = [place_of(item, digits, extents) for item in sum_.indices]
    extents = _split_extents(extents, digits)
    epilogues = [find_epilogue(item, sum_.tensor, places, tensors) for item in group.epilogues]
    for end in epilogues:
        _verify_covers(end, extents)
    if not epilogues:
        epilogues = [itself(group.product, sum_, extents, tensors)]
    copies = tuple(_find_copy(item, epilogues, tensors, real) for item in group.copies)
    prologue = _find_prologue(group, parts, places, digits, tensors)
    accesses = {
        key: access for item in (*epilogues, *copies, *prologue) for key, access in item.accesses.items()
    }
    fixed = frozenset(name for item in (*epilogues, *prologue) for name in _numbers(item))
    if len(parts) > 2:
        # A scale for some elements along a sum has made two loops of it.
        factors = [split_axes(item, extents) for item in factors]
    fused, sizes = fuse_loops([*factors, *accesses.values()], extents, fixed)
    sizes = {name: size for name, size in sizes.items() if size > 1}
    if prod(sizes.values()) < FEWEST_STEPS and not any(map(is_open, sizes.values())):
        raise Unsupported("it is too small for tiles")
    by_element = dict(zip(accesses, fused[len(parts) :], strict=True))
    keys = [key_of(item) for item in parts]
    scales = tuple(Scale(*pair) for pair in zip(keys[2:], fused[2 : len(parts)], strict=True))
    return PreparedProduct(
        group, (fused[0], fused[1]), (keys[0], keys[1]), tuple(epilogues), by_element, scales, sizes, tables, prologue,
        copies,
    )  # fmt: skip


def find_tiles(
    group: ProductGroup,
    tensors: Tensors,
    real: Scalar,
    target: Target,
    constant: frozenset[Key],
    columns: int = THREAD_COLUMNS,
) -> TiledProduct:
    """The tiles of a contraction; Unsupported says why it has none. `constant` are tensors that never change.

    Where work-items are threads, tiles have so many columns at most.
    """
    found = prepare_product(group, tensors, real, with_tables=not target.has_threads)
    sizes = found.extents
    scaled = {name for item in found.scales for name in item.access.loops()}
    roles, flipped = find_roles(found.outputs, *found.factors, sizes, scaled)
    row_factor, row_key = found.factors[flipped], found.keys[flipped]
    if found.numbers[not flipped]:
        raise Unsupported("codes of a table are those of its columns")
    many = prod(sizes[name] for name in roles.columns)
    packed = _is_packed(row_factor, roles, row_key in constant, many)
    sizes = {**sizes, UNIT: 1}
    lanes, rows, widths = _tile(roles, sizes, target, real, columns)
    counted = roles.row, *roles.columns[-1:], roles.sums[-1]
    column_factor = with_room(found.factors[not flipped], sizes, counted)
    row_factor = with_room(row_factor, sizes, counted)
    targets = {id(item) for end in found.epilogues for item in end.formula.targets}
    accesses = {
        key: with_room(item, sizes, counted) if key in targets else item
        for key, item in found.accesses.items()
    }
    blocked, block = _blocks(column_factor, roles, sizes, (rows, widths))
    part = 0 if target.has_threads else _part(found, roles, packed, real)
    if part and blocked == 0:
        block = min(sizes[roles.columns[0]], max(1, PART_COLUMNS // widths[0]) * widths[0])
    if target.has_threads and roles.columns and not any(is_open(sizes[name]) for name in roles.columns):
        blocked, block = len(widths) - 1, widths[-1]
    return TiledProduct(
        group, real, sizes, roles, row_factor, row_key, column_factor, found.keys[not flipped], packed,
        found.epilogues, accesses,
        tuple(replace(item, fixed=item.key in constant) for item in found.scales), lanes, rows, widths, blocked, block,
        packed and _has_nibbles(tensors[row_key], (row_factor, column_factor), roles.sums[-1]),
        row_key in constant, part if blocked == 0 else 0, target.has_threads, found.numbers[flipped],
    )  # fmt: skip


def _part(found: PreparedProduct, roles: Roles, packed: bool, real: Scalar) -> int:
    """Cache blocking along K: steps of the inner sum that are added at a time; 0 where all of them are.

    A long sum reads so much for each tile that nothing of it is in a cache when the next tile comes by.
    """
    steps = [found.extents.get(name, 1) for name in roles.sums]
    columns = [found.extents[name] for name in roles.columns]
    is_plain = not found.group.epilogues and not found.scales and len(columns) == 1 and len(steps) == 1
    is_alike = all(item.element == real.name for item in (*found.factors, *found.outputs))
    if not is_plain or not is_alike or any(map(is_open, (*steps, *columns))):
        return 0
    return PART if steps[0] > (LONG_PACKED if packed else LONG_SUM) and columns[0] > FEWEST_COLUMNS else 0


def extents_of(formula: Contraction) -> dict[str, int]:
    """The extents of the loops of a formula, all of them known and none empty."""
    extents = {loop.index: loop.extent for loop in formula.loops if isinstance(loop.extent, int)}
    if len(extents) != len(formula.loops) or 0 in extents.values():
        raise Unsupported("an extent is not known, or nothing")
    return extents


def key_of(element: Element) -> Key:
    """The tensor of an element."""
    return element.tensor, element.item if isinstance(element.item, int) else None


def held_access(element: Element, tensors: Tensors, extents: Mapping[str, int]) -> Access:
    """The access of an element to its tensor."""
    held = tensors.get(key_of(element))
    if held is None or 0 in held.shape:
        raise Unsupported(f"'{element.tensor}' has no memref")
    stored = stored_type(held.element)
    found = find_access(element, held.memref, stored, (held.shape, held.lies), extents)
    if found is None:
        raise Unsupported(f"an index of '{element.tensor}' leaves it, or is not affine")
    return found


def _factors(
    product: Contraction, tensors: Tensors, real: Scalar
) -> tuple[tuple[Element, ...], tuple[tuple[float, ...], tuple[float, ...]]]:
    """The target of a sum of products, both factors, and their scales; then the tables of the factors."""
    if product.sign != "+=" or product.condition is not None or len(product.targets) != 1:
        raise Unsupported("it is no plain sum")
    factors = find_factors(product)
    if factors is None or getattr(product.values[0], "type", "") != "real":
        raise Unsupported("it is no sum of real products")
    target, scales = product.targets[0], [item for factor in factors for item in factor.scales]
    left, right = (item.element for item in factors)
    if target.tensor in {item.tensor for item in (left, right, *scales)}:
        raise Unsupported("it reads its target")
    held = {item: _held_type(item, tensors) for item in (left, right, *scales)}
    if any(held[item] not in (real.name, *(NARROW if real.name == "f32" else ())) for item in (left, right)):
        raise Unsupported("its elements are of several types")
    if any(held[item] != real.name for item in scales):
        raise Unsupported("a scale is of another type")
    if any(item.numbers and tensors[key_of(item.element)].element != I4 for item in factors):
        raise Unsupported("what is looked up has no codes of 4 bits")
    return (target, left, right, *scales), (factors[0].numbers, factors[1].numbers)


def _held_type(element: Element, tensors: Tensors) -> str:
    held = tensors.get(key_of(element))
    if held is None:
        raise Unsupported(f"'{element.tensor}' has no memref")
    return "u8" if held.element.kind in (Kind.BOOL, Kind.UNSIGNED) else stored_type(held.element)


# --- what is made of the sum ---------------------------------------------------------------------------------


def _find_digits(group: ProductGroup, target: Element, extents: Mapping[str, int]) -> dict[str, Form]:
    """Loops of the sum that its readers count in two or more: the loop as a form over its digits."""
    found: dict[str, Form] = {}
    for end in group.epilogues:
        own = extents_of(end)
        for element in meeting(end, target.tensor):
            for index, sums in zip(element.indices, target.indices, strict=True):
                form = None if isinstance(index, Guard) else find_form(index, own)
                if form is None or len(form.terms) < 2 or not isinstance(sums, Index):
                    continue
                names = find_digits(form, own, extents[sums.name])
                if names is None:
                    raise Unsupported("it meets the sum at a place of its own")
                digits: Form = Affine()
                for number, name in enumerate(names):
                    digits = digits + Affine(0, ((f"{sums.name}/{number}", form.coefficient(name)),))
                if found.setdefault(sums.name, digits) != digits:
                    raise Unsupported("what follows it counts it in different ways")
    return found


def _split_extents(extents: Mapping[str, int], digits: Mapping[str, Form]) -> dict[str, int]:
    """The extents of the loops with those that are split replaced by their digits."""
    found: dict[str, int] = {}
    for name, extent in extents.items():
        if name not in digits:
            found[name] = extent
            continue
        above = extent
        for digit, factor in sorted(digits[name].terms, key=lambda item: -item[1]):
            found[digit], above = above // factor, factor
    return found


def place_of(index: Term | Guard, digits: Mapping[str, Form], extents: Mapping[str, int]) -> Form:
    """The index of the sum's target in a dimension, over the digits of its loops."""
    form = None if isinstance(index, Guard) else find_form(index, extents)
    if form is None:
        raise Unsupported("the index of its target is tested, or not affine")
    for name, split in digits.items():
        form = form.replace(name, split)
    return form


def meeting(formula: Contraction, tensor: str) -> list[Element]:
    """The elements of a tensor that a formula names."""
    return [item for item in walk_terms(formula) if isinstance(item, Element) and item.tensor == tensor]


def find_epilogue(formula: Contraction, tensor: str, places: Sequence[Form], tensors: Tensors) -> Epilogue:
    """An epilogue, with its loops in those of the sum, which it reads element by element."""
    own = extents_of(formula)
    if formula.sign not in ("=", ":=") or formula.condition is not None or len(formula.targets) != 1:
        raise Unsupported("what follows it is no plain assignment")
    loops = meet([(item, places) for item in meeting(formula, tensor)], own)
    if len(loops) < len(own):
        raise Unsupported("it has loops that the sum has not")
    others = [item for item in walk_terms(formula) if isinstance(item, Element) and item.tensor != tensor]
    accesses = {id(item): substitute_loops(held_access(item, tensors, own), loops) for item in others}
    return Epilogue(formula, own, loops, accesses, {id(item): key_of(item) for item in others})


def _verify_covers(end: Epilogue, extents: Mapping[str, int]) -> None:
    """Refuse an epilogue that reads a part of the sum alone: a tile would write behind its end."""
    box = {name: (0, extent - 1) for name, extent in extents.items()}
    if any(form.bounds(box)[1] >= end.extents[name] for name, form in end.loops.items()):
        raise Unsupported("what follows it is made of a part of the sum")


def _find_copy(
    formula: Contraction, epilogues: Sequence[Epilogue], tensors: Tensors, real: Scalar
) -> Epilogue:
    """An output once more, its loops in those of the sum; of what is rounded a copy is another number than the sum."""
    source = _copied(formula)
    for end in epilogues:
        (target,) = end.formula.targets
        if target.tensor == source.tensor and stored_type(tensors[key_of(target)].element) == real.name:
            places = [_in_loops(place_of(index, {}, end.extents), end.loops) for index in target.indices]
            return find_epilogue(formula, target.tensor, places, tensors)
    raise Unsupported("it is no copy of an output")


def _copied(formula: Contraction) -> Element:
    """The element that a formula gives again."""
    (value,) = formula.values
    if not isinstance(value, Element):
        raise Unsupported("it is no copy")
    return value


def _find_prologue(
    group: ProductGroup,
    factors: Sequence[Element],
    places: Sequence[Form],
    digits: Mapping[str, Form],
    tensors: Tensors,
) -> tuple[Epilogue, ...]:
    """The prologue of an operand, its loops in those of the product: reductions, then the map."""
    if not group.prologue:
        return ()
    *sums, map_ = group.prologue
    made, extents = map_.targets[0].tensor, extents_of(group.product)
    factor = next(item for item in factors if item.tensor == made)
    last = find_epilogue(map_, made, [place_of(item, digits, extents) for item in factor.indices], tensors)
    kept = {name for place in places for name in place.symbols}
    steps = {name: extent for name, extent in _split_extents(extents, digits).items() if name not in kept}
    return (*(_find_prologue_sum(item, last, steps, tensors) for item in sums), last)


def _find_prologue_sum(
    formula: Contraction, prologue: Epilogue, steps: Mapping[str, int], tensors: Tensors
) -> Epilogue:
    """A sum along the rows of a factor that is made with it; `steps` are the extents of the loops of the product's sum.

    Where it reads what the factor is made of, it does so at the same place.
    """
    own, (target, *others) = extents_of(formula), formula.targets
    if formula.sign != "+=" or formula.condition is not None or others:
        raise Unsupported("what stands before it is no plain sum")
    read = [item for item in walk_terms(formula) if isinstance(item, Element) and item is not target]
    pairs = []
    for mine in (target, *read):
        for element in meeting(prologue.formula, mine.tensor):
            forms = [place_of(index, {}, prologue.extents) for index in element.indices]
            pairs.append((mine, [_in_loops(form, prologue.loops) for form in forms]))
    loops = meet(pairs, own)
    summed = [name for name in own if name in loops and not loops[name].symbols.isdisjoint(steps)]
    long = {name for name, extent in steps.items() if extent > 1}
    if len(loops) < len(own) or len(summed) != 1 or loops[summed[0]].symbols != long:
        raise Unsupported("a sum before it is not over the rows of its factor")
    if find_digits(loops[summed[0]], steps, own[summed[0]]) is None:
        raise Unsupported("a sum before it is not over whole rows of its factor")
    accesses = {id(item): substitute_loops(held_access(item, tensors, own), loops) for item in read}
    return Epilogue(formula, own, loops, accesses, {id(item): key_of(item) for item in read})


def _in_loops(form: Form, loops: Mapping[str, Form]) -> Form:
    """A form over the loops of a formula in those that they stand for."""
    return weighted_sum(form.constant, ((loops[name], factor) for name, factor in form.terms))


def itself(product: Contraction, target: Element, extents: Mapping[str, int], tensors: Tensors) -> Epilogue:
    """The sum as its own output: `y = y`."""
    access = held_access(target, tensors, extents)
    return Epilogue(
        Contraction((target,), "=", (target,), product.loops),
        extents,
        {name: Affine(0, ((name, 1),)) for name in extents},
        {id(target): access},
        {id(target): key_of(target)},
    )


def meet(pairs: Sequence[tuple[Element, Sequence[Form]]], own: Mapping[str, int]) -> dict[str, Form]:
    """The loops of a formula as forms over the loops of another, by the tensors that both index."""
    found: dict[str, Form] = {}
    for element, places in pairs:
        for index, place in zip(element.indices, places, strict=True):
            form = None if isinstance(index, Guard) else find_form(index, own)
            if form is None:
                raise Unsupported("it meets the sum at an index that is tested")
            if form.terms == place.terms == () and form.constant == place.constant:
                continue
            mine = sorted(form.terms, key=lambda item: -item[1])
            if len(mine) == 1 and mine[0][1] == 1 and form.constant == 0:
                equal = [(mine[0][0], place)]
            else:
                # Digits on both sides, of the same weights.
                theirs = sorted(place.terms, key=lambda item: -item[1])
                if form.constant != place.constant or [n for _, n in mine] != [n for _, n in theirs]:
                    raise Unsupported("it meets the sum at a place of its own")
                units: list[Form] = [Affine(0, ((name, 1),)) for name, _ in theirs]
                equal = [(name, unit) for (name, _), unit in zip(mine, units, strict=True)]
            for name, other in equal:
                if found.setdefault(name, other) != other:
                    raise Unsupported("it meets the sum at several places")
    nothing: Form = Affine()
    return {**{name: nothing for name, size in own.items() if size == 1}, **found}


def verify_whole(target: Element, shape: Sequence[int], extents: Mapping[str, int]) -> None:
    """Refuse a sum that leaves elements of its target out, or reaches one by several steps as transposed windows do."""
    counted: list[str] = []
    for index, size in zip(target.indices, shape, strict=True):
        form = place_of(index, {}, extents)
        long = Affine(form.constant, tuple(item for item in form.terms if extents[item[0]] > 1))
        names = find_digits(long, extents, size)
        if names is None:
            raise Unsupported("its steps are not the elements of its target")
        counted += names
    if len(set(counted)) < len(counted):
        raise Unsupported("its steps are not the elements of its target")


def _numbers(item: Epilogue) -> Iterator[str]:
    """The loops of the sum whose numbers a formula computes with, other than to find its elements."""
    done: set[int] = set()
    waiting: list[object] = list(item.formula.values)
    while waiting:
        term = waiting.pop()
        if id(term) in done or isinstance(term, Element):
            continue
        done.add(id(term))
        if isinstance(term, Index):
            yield from item.loops[term.name].symbols
        waiting += operands(term)


def walk_terms(formula: Contraction) -> Iterator[object]:
    """Every term of a formula once."""
    return reachable(*formula.targets, *formula.values)


# --- roles -----------------------------------------------------------------------------------------------------


def find_roles(
    outputs: Sequence[Access], left: Access, right: Access, sizes: Mapping[str, int], scaled: set[str]
) -> tuple[Roles, bool]:
    """The role of each loop, and whether the second operand has the rows; sums with changing scales are outside."""
    output = outputs[0]
    ordered = sorted((name for name in sizes if output.stride(name)), key=lambda name: -output.stride(name))
    if not ordered:
        raise Unsupported("its output is one element")
    row = ordered[-1]
    flipped = not left.stride(row)
    row_factor, column_factor = (right, left) if flipped else (left, right)
    if any(item.stride(row) != 1 for item in outputs) or not row_factor.stride(row):
        raise Unsupported("no loop lies closest in its output")
    if row in column_factor.loops():
        raise Unsupported("both factors have the rows")
    rest = ordered[:-1]
    columns = tuple(name for name in rest if name not in row_factor.loops())
    batch = tuple(name for name in rest if name in row_factor.loops())
    if any(name not in column_factor.loops() and name in columns for name in rest):
        raise Unsupported("a loop of the output is in no factor")
    sums = [name for name in sizes if name not in ordered]
    if any(name not in left.loops() or name not in right.loops() for name in sums) or not sums:
        raise Unsupported("a sum runs along one factor only")
    inner = _inner_sum([name for name in sums if name not in scaled], (row_factor, column_factor), sizes)
    outer = sorted((name for name in sums if name != inner), key=lambda name: name not in scaled)
    return Roles(row, columns, batch, (*outer, inner)), flipped


def _inner_sum(sums: Sequence[str], factors: Sequence[Access], sizes: Mapping[str, int]) -> str:
    """The longest K loop with a mode of its own, not one that columns count too, as windows do; else one step."""
    alone = [
        name
        for name in sums
        if all((axis := item.axis(name)) is not None and axis.index.symbols == {name} for item in factors)
    ]
    return max(alone, key=lambda name: sizes[name], default=UNIT)


def _is_packed(factor: Access, roles: Roles, constant: bool, columns: int) -> bool:
    """Whether the row operand is packed: constants always are, the rest where rows are not contiguous."""
    if constant:
        return True
    inner = factor.axis(roles.sums[-1])
    axis = factor.axis(roles.row)
    direct = factor.stride(roles.row) == 1 and axis is not None and inner is not axis
    if direct:
        return False
    if columns < FEWEST_COLUMNS and not is_open(columns):
        raise Unsupported("it has too few columns to pack a factor that changes")
    return True


def _has_nibbles(held: TensorView, factors: Sequence[Access], inner: str) -> bool:
    """Whether codes have 4 bits, and both factors count even and odd steps of the inner sum apart."""
    return held.element == I4 and all(_is_even(item.axis(inner), inner) for item in factors)


def _is_even(axis: Axis | None, inner: str) -> bool:
    return axis is not None and axis.index == Affine(0, ((inner, 1),)) and axis.size % 2 == 0


# --- sizes -----------------------------------------------------------------------------------------------------


def _tile(
    roles: Roles, sizes: Mapping[str, int], target: Target, real: Scalar, columns: int
) -> tuple[int, int, tuple[int, ...]]:
    """The rows of a vector and of a panel, and how many steps of each column loop a register tile has."""
    lanes = max(1, target.vector_bytes // (8 if real.name == "f64" else 4))
    extents = [sizes[name] for name in roles.columns]
    few = lanes + lanes // 2 if lanes == WIDE_LANES else lanes
    # 24 rows are a vector and half a one: two vectors would compute 8 rows that are not there.
    one = target.has_threads or (sizes[roles.row] <= few and not is_open(sizes[roles.row]))
    rows = lanes if one else 2 * lanes
    room = max(1, (target.register_count - SPARE_REGISTERS) * lanes // rows)
    room = columns if target.has_threads else room
    widths = [1] * len(extents)
    if extents:
        each = rows // lanes
        widths[-1] = tile_width(extents[-1], room, each)
        if len(extents) > 1 and widths[-1] == extents[-1] and not is_open(extents[-1]):
            widths[-2] = tile_width(extents[-2], max(1, room // widths[-1]), each * widths[-1])
    return lanes, rows, tuple(widths)


def _blocks(
    factor: Access, roles: Roles, sizes: Mapping[str, int], tile: tuple[int, tuple[int, ...]]
) -> tuple[int, int]:
    """Cache blocking: the column loop that is cut into blocks for the second-level cache, and their size."""
    rows, widths = tile
    size = BYTES[factor.element]
    inside = {name: sizes[name] for name in roles.sums}
    steps = rows * prod(inside.values())
    for place in reversed(range(len(roles.columns))):
        name, width = roles.columns[place], widths[place]
        whole = {**inside, name: sizes[name]}
        is_large = size * factor.reach(whole) > BLOCK_BYTES and steps * sizes[name] > GROUP_STEPS
        if is_large or place == 0:
            # Blocks of equally many tiles: a small last one would read all rows again for a few columns.
            tiles, parts = max(1, sizes[name] // width), 1
            while is_large and parts < tiles:
                if size * factor.reach({**inside, name: -(-tiles // parts) * width}) <= BLOCK_BYTES:
                    break
                parts += 1
            parts += _is_uneven(parts, roles, sizes, (rows, place)) and parts < tiles
            return place, sizes[name] if parts == 1 else -(-tiles // parts) * width
        inside, steps = whole, steps * sizes[name]
    return 0, 1


def _is_uneven(parts: int, roles: Roles, sizes: Mapping[str, int], tile: tuple[int, int]) -> bool:
    """Whether two threads cannot share so many blocks evenly, and would if there were one more (load balance)."""
    rows, place = tile
    shared = [sizes[name] for name in (*roles.batch, *roles.columns[: place + 1])]
    if any(map(is_open, (*shared, sizes[roles.row]))):
        return False
    groups = parts * prod(shared[:-1]) * -(-sizes[roles.row] // rows)
    return groups % 2 == 1 and groups < FEW_GROUPS
