"""Memrefs of kernels of the tensor language: their types, and views of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.support.strategies.tensor_scalars import Scalars

Known = int | None
"""A size or stride as the type has it; None where it is `?`."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A memref that can be accessed: what its type says, and what its sizes really are."""

    name: str
    element: str
    shape: tuple[int, ...]
    sizes: tuple[Known, ...]
    strides: tuple[Known, ...]
    root: str
    """The memory that it is a view of."""
    local: bool = False

    @property
    def kind(self) -> str:
        """The type as it is written."""
        sizes = "".join(f"x{_spell(size)}" for size in self.sizes)
        strides = ",".join(map(_spell, self.strides))
        space = ",local" if self.local else ""
        return f"memref<{self.element}{sizes},strided<{strides}>{space}>"


def _spell(number: Known) -> str:
    return "?" if number is None else str(number)


def packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides without gaps."""
    found, step = [], 1
    for size in shape:
        found.append(step)
        step *= size
    return tuple(found)


@dataclass(slots=True)
class Writer(Scalars):
    """A text that grows, with the memory that can be used where it ends."""

    refs: list[Ref] = field(default_factory=list)

    def fresh(self, element: str, shape: tuple[int, ...]) -> Ref:
        """Local memory that holds something."""
        ref = Ref("", element, shape, shape, packed(shape), "", local=True)
        name = self.value(f"alloca : {ref.kind}")
        value, variables = self.scalar(element, True, 1), [self.name() for _ in shape]
        zero, ends = self.index(0), ",".join(self.index(size) for size in shape)
        self.put(f"foreach ({','.join(variables)})=({','.join([zero] * len(shape))}),({ends}) {{")
        with self.region():
            self.put(f"store {value}, {name}[{','.join(variables)}]")
        self.put("}")
        return replace(ref, name=name, root=name)


# --- views --------------------------------------------------------------------------------------------------


def take_view(text: Scalars, ref: Ref) -> Ref:
    """A view of a memref: a part of it, or its modes split or joined."""
    fusable = [mode for mode in range(len(ref.shape) - 1) if _joins(ref, mode)]
    even = [mode for mode, size in enumerate(ref.sizes) if size is not None and size % 2 == 0]
    if fusable and text.chance():
        return _fuse(text, ref, fusable[0])
    if even and text.chance():
        return _expand(text, ref, even[0])
    return take_part(text, ref)


def take_part(text: Scalars, ref: Ref) -> Ref:
    """A subview whose place is uniform; it keeps a mode at least."""
    slices: list[str] = []
    modes: list[tuple[int, int, Known]] = []
    for mode, size in enumerate(ref.shape):
        if text.chance(4) and (modes or mode + 1 < len(ref.shape)):
            slices.append(text.inside(size, True) if text.chance() else str(text.number(0, size - 1)))
            continue
        first = text.number(0, size - 1)
        count = text.number(1, size - first)
        known = text.chance()
        start = str(first) if text.chance() else text.index(first)
        slices.append(f"{start}:{count if known else text.index(count)}")
        modes.append((mode, count, count if known else None))
    view = replace(
        ref,
        shape=tuple(count for _, count, _ in modes),
        sizes=tuple(known for _, _, known in modes),
        strides=tuple(ref.strides[mode] if text.chance(4) is False else None for mode, _, _ in modes),
    )
    return replace(view, name=text.value(f"subview {ref.name}[{','.join(slices)}] : {view.kind}"))


def _joins(ref: Ref, mode: int) -> bool:
    """Whether a mode and the next are one without gaps."""
    size, step, following = ref.sizes[mode], ref.strides[mode], ref.strides[mode + 1]
    return None not in (size, step, following) and (size or 0) * (step or 0) == following


def _fuse(text: Scalars, ref: Ref, mode: int) -> Ref:
    joined, known = ref.shape[mode] * ref.shape[mode + 1], ref.sizes[mode + 1]
    view = replace(
        ref,
        shape=(*ref.shape[:mode], joined, *ref.shape[mode + 2 :]),
        sizes=(*ref.sizes[:mode], None if known is None else joined, *ref.sizes[mode + 2 :]),
        strides=(*ref.strides[: mode + 1], *ref.strides[mode + 2 :]),
    )
    return replace(view, name=text.value(f"fuse {ref.name}[{mode},{mode + 1}] : {view.kind}"))


def _expand(text: Scalars, ref: Ref, mode: int) -> Ref:
    half, step = ref.shape[mode] // 2, ref.strides[mode]
    known = text.chance()
    view = replace(
        ref,
        shape=(*ref.shape[:mode], 2, half, *ref.shape[mode + 1 :]),
        sizes=(*ref.sizes[:mode], 2, half if known else None, *ref.sizes[mode + 1 :]),
        strides=(*ref.strides[: mode + 1], None if step is None else 2 * step, *ref.strides[mode + 1 :]),
    )
    factor = half if known else text.index(half)
    return replace(view, name=text.value(f"expand {ref.name}[{mode}->2 x {factor}] : {view.kind}"))
