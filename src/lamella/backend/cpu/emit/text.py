"""The text of LLVM functions, written line by line."""

from __future__ import annotations

from dataclasses import field

from lamella.base.records import dataclass


@dataclass(slots=True)
class IrWriter:
    """A function of LLVM text that grows; names of values and labels are numbers of ours, never words of a file."""

    lines: list[str] = field(default_factory=list)
    declarations: dict[str, None] = field(default_factory=dict)
    """Declarations and constants that the module needs, each once, in the order of their first use."""
    block: str = "entry"
    """The label of the block that is being written."""
    _count: int = 0
    _opening: list[str] = field(default_factory=list)
    _shared: dict[int, str] = field(default_factory=dict)
    _round: dict[str, tuple[str, str]] = field(default_factory=dict)
    _called: set[str] = field(default_factory=set)

    def value(self, text: str) -> str:
        """Write an instruction that has a result and give its name."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def line(self, text: str) -> None:
        """Write an instruction without a result."""
        self.lines.append(f"  {text}")

    def comment(self, text: str) -> None:
        """Write a comment; it cannot end early, whatever is in the text."""
        shown = "".join(char if " " <= char <= "~" else "." for char in text)
        self.lines.append(f"  ; {shown}")

    def name(self) -> str:
        """A new name of a value, for a phi that is written before its operands are."""
        self._count += 1
        return f"%v{self._count}"

    def label(self, stem: str) -> str:
        """A new label; `begin` starts its block."""
        self._count += 1
        return f"{stem}{self._count}"

    def begin(self, label: str) -> None:
        """Start a block; the block before must have ended with a branch."""
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        """End the block by a jump."""
        self.line(f"br label %{label}")

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        """End the block by a branch on an i1."""
        self.line(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def hole(self) -> int:
        """Leave a line open; `fill` writes it."""
        self.lines.append("")
        return len(self.lines) - 1

    def fill(self, hole: int, text: str) -> None:
        """Write a line that was left open."""
        self.lines[hole] = f"  {text}"

    def need(self, declaration: str) -> None:
        """Say that the module needs a declaration or a constant."""
        self.declarations.setdefault(declaration)

    def intrinsic(self, result: str, name: str, operands: str) -> str:
        """Call an intrinsic function: `operands` is `type value, type value`; its declaration is added."""
        if name not in self._called:  # its name says the types of its operands
            self._called.add(name)
            kinds = ", ".join(_kind(item) for item in split_operands(operands))
            self.need(f"declare {result} @{name}({kinds})")
        return self.value(f"call {result} @{name}({operands})")

    def reserve(self, kind: str, count: int = 1, alignment: int = 64) -> str:
        """Memory on the stack of the function, from its entry on."""
        self._count += 1
        name = f"%v{self._count}"
        self._opening.append(f"  {name} = alloca {kind}, i64 {count}, align {alignment}")
        return name

    def share(self, size: int) -> str:
        """Bytes on the stack that nobody relies on: all who ask for as many get the same."""
        if size not in self._shared:
            self._shared[size] = self.reserve("i8", size)
        return self._shared[size]

    def surround(self, purpose: str, first: str, last: str) -> str:
        """Run an instruction when the function begins and one when it returns, a pair for each purpose.

        The first pair stays; gives the instruction that begins.
        """
        return self._round.setdefault(purpose, (first, last))[0]

    def body(self) -> str:
        """The lines of the function; stack memory comes first, and the last line returns."""
        first = [f"  {text}" for text, _ in self._round.values()]
        last = [f"  {text}" for _, text in self._round.values()]
        return "\n".join([*self._opening, *first, *self.lines[:-1], *last, *self.lines[-1:]])


def split_operands(text: str) -> list[str]:
    """The operands of a list, commas inside brackets left alone."""
    found, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char in "<([{") - (char in ">)]}")
        if char == "," and depth == 0:
            found.append(text[start:place].strip())
            start = place + 1
    rest = text[start:].strip()
    return [*found, rest] if rest else found


def _kind(operand: str) -> str:
    """The type of an operand `type value`; a vector type and a vector constant hold blanks of their own."""
    if operand.startswith("<"):
        return operand[: operand.index(">") + 1]
    return operand.partition(" ")[0]
