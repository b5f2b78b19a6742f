"""Instructions and memory commands: the rules of the grammar from `instruction` to `target`."""

from __future__ import annotations

from lamella.lang.nac.assembly.nodes import (
    Argument,
    Call,
    Id,
    Label,
    Line,
    Order,
    Raw,
    System,
    Value,
)
from lamella.lang.nac.assembly.parse.lexis import INT, LABEL, NAMES, WORD, Lexis
from lamella.lang.nac.assembly.words import ACTIONS, RAW, SYSTEM

NUMBERED = ("state", "saved", "target")


class CodeParser(Lexis):
    """Reads the lines of `.code`, `.training` and `.schedule`."""

    def line(self) -> Line:
        """`LABEL '=' body command*`."""
        first = self.index
        label = self.label("here")
        self.expect("=", "after a label")
        body = self.body()
        orders = self.orders()
        return Line(label, body, orders, self.span_from(first))

    def body(self) -> System | Call | Raw:
        """What an instruction does."""
        if self.kind == WORD and self.text in SYSTEM:
            return self.system(self.texts[self.next()])
        if self.kind == WORD and self.text == RAW:
            self.next()
            return self.raw()
        return self.call()

    # --- system operations ----------------------------------------------------------------------------------

    def system(self, word: str) -> System:
        """An instruction without signature, behind its word."""
        self.expect("(", f"after '{word}'")
        found = self._inside(word)
        self.expect(")", f"after the operands of '{word}'")
        return found

    def _inside(self, word: str) -> System:
        if word == "input":
            return System(word)
        if word == "parameter":
            return System(word, (self.parameter(),))
        if word in NUMBERED:
            return System(word, (self.integer("an id", f"in '{word}(…)'"),))
        if word == "constant":
            return System(word, (self.constant("in 'constant(…)'"),))
        if word == "update":
            return System(word, (self.parameter(),), self._more_labels())
        if word == "branch":
            return self._branch()
        if word == "converge":
            return self._converge()
        return System(word, (), self._labels(word))

    def parameter(self) -> int | str:
        """A parameter by its id or by its name."""
        if self.kind == INT:
            return self.integer("an id", "here")
        return self.name("the id or the name of a parameter", "in '(…)'")

    def constant(self, where: str) -> Value | Id:
        """A constant by its value or by its id."""
        return self.id(where) if self.text == "#" else self.value(where)

    def _labels(self, word: str) -> tuple[Label, ...]:
        if self.text == ")":
            return ()
        return tuple(self.separated(lambda: self.label(f"in '{word}(…)'")))

    def _more_labels(self) -> tuple[Label, ...]:
        found: list[Label] = []
        while self.accept(","):
            found.append(self.label("in 'update(…)'"))
        return tuple(found)

    def _branch(self) -> System:
        label = self.label("in 'branch(…)'")
        self.expect(",", "in 'branch(…)'")
        yes = self.integer("the length of the first branch", "in 'branch(…)'")
        self.expect(",", "in 'branch(…)'")
        return System("branch", (yes, self.integer("the length of the second", "in 'branch(…)'")), (label,))

    def _converge(self) -> System:
        label = self.label("in 'converge(…)'")
        self.expect(",", "in 'converge(…)'")
        found = [self.integer("the threshold in percent", "in 'converge(…)'")]
        while self.accept(","):
            found.append(self.integer("the length of a block", "in 'converge(…)'"))
        return System("converge", tuple(found), (label,))

    # --- regular operations ---------------------------------------------------------------------------------

    def raw(self) -> Raw:
        """`'(' INT ',' INT ',' ints ',' ints ')'`."""
        self.expect("(", "after 'raw'")
        operation = self.integer("field A", "in 'raw(…)'")
        self.expect(",", "after field A")
        variant = self.integer("field B", "in 'raw(…)'")
        self.expect(",", "after field B")
        constants = self.integers("before field C")
        self.expect(",", "after field C")
        offsets = self.integers("before field D")
        self.expect(")", "after field D")
        return Raw(operation, variant, constants, offsets)

    def call(self) -> Call:
        """`(operation | id) (':' name)? '(' argument,* ')'`."""
        operation = self._operation()
        signature = self.name("a signature", "after ':'") if self.accept(":") else None
        self.expect("(", "after an operation")
        arguments = [] if self.text == ")" else self.separated(self.argument)
        self.expect(")", "after arguments")
        return Call(operation, signature, tuple(arguments))

    def _operation(self) -> str | Id:
        if self.text == "#":
            return self.id("here")
        if self.kind not in NAMES:
            raise self.problem("an operation", "after '='")
        return self.name("an operation", "after '='")

    def argument(self) -> Argument:
        """`LABEL | value | id`."""
        return self.label("here") if self.kind == LABEL else self.constant("among arguments")

    # --- memory commands ------------------------------------------------------------------------------------

    def orders(self) -> tuple[Order, ...]:
        """`command*`."""
        found: list[Order] = []
        while self.text == "@":
            found.append(self.order())
        return tuple(found)

    def order(self) -> Order:
        """`'@' (ACTION | INT) '(' target (',' target)* ')'`."""
        first = self.next()
        action = self._action()
        self.expect("(", "after an action")
        targets = self.separated(self.target)
        self.expect(")", "after the targets of an action")
        return Order(action, tuple(targets), self.span_from(first))

    def _action(self) -> int:
        if self.kind == INT:
            return self.integer("an action", "after '@'")
        return ACTIONS[self.choose("action", ACTIONS, "after '@'")]

    def target(self) -> Label | int:
        """An instruction by its label or by its index."""
        if self.kind == LABEL:
            return self.label("here")
        return self.integer("a label or an index", "in '@…(…)'")
