"""Sections that declare: `let:`, `constraint:`, `constants:`, `params:`, `pattern:`; and config parameters."""

from __future__ import annotations

from lamella.lang.module.nodes import (
    Binding,
    Call,
    ConfigParam,
    Constant,
    Constraint,
    Field,
    Let,
    Mapping,
    Param,
    RuntimeDim,
    Sublayers,
)
from lamella.lang.module.parse.declarations.passes import Passes
from lamella.lang.module.parse.layout import NAME


class Sections(Passes):
    """The rules of the grammar from `let_section` to `pattern_section`, and `param_list`."""

    # --- config parameters ----------------------------------------------------------------------------------

    def config_params(self) -> tuple[ConfigParam, ...]:
        """`'(' config_param,* ')'`."""
        self.next()
        found: list[ConfigParam] = []
        while self.text != ")":
            if not self._unwritten():
                found.append(self._config_param())
            elif not self.accept(","):
                break
            if self.texts[self.index - 1] != ",":
                break
        self.expect(")", "after the parameters")
        return tuple(found)

    def _unwritten(self) -> bool:
        """Pass over `...` or `name...` in a list of parameters, with a finding."""
        is_spread = self.kind == NAME and self.ahead() == "..."
        if not is_spread and self.text != "...":
            return False
        if is_spread:
            self.next()
        self.unfinished("a parameter")
        self.has_stub = True
        return True

    def _config_param(self) -> ConfigParam:
        """`name (':' type)? ('=' expression)?`, with the comma behind it."""
        first = self.index
        name = self.name("the name of a parameter", "here")
        type_ = self.config_type() if self.accept(":") else None
        default = self.expression() if self.accept("=") else None
        span = self.span_from(first)
        self.accept(",")
        return ConfigParam(name, type_, default, self.settle(first)[1], span)

    def config_line(self) -> ConfigParam | None:
        """A config parameter on a line of its own, in `params:` of a primitive."""
        if self.skip_stub():
            return None
        found = self._config_param()
        self.end_line("after a parameter")
        return found

    def skip_stub(self) -> bool:
        """Pass over `...` in the place of a line; it is remembered."""
        if not self.at_stub():
            return False
        self.stub()
        self.has_stub = True
        return True

    # --- constants ------------------------------------------------------------------------------------------

    def let_section(self) -> list[Binding]:
        """`'let' ':'` with bindings and constraints."""
        return [item for row in self.section(self._bindings) for item in row]

    def _bindings(self) -> tuple[Binding, ...]:
        """One line of `let:`."""
        first = self.index
        if self.at_stub():
            return (self.stub(),)
        if self.text == "constraint" and self.ahead() == ":":
            return self.section(self._constraint)
        name = self.name("the name of a constant", "in 'let:'")
        if self.accept(":"):
            kind = self.name("batch_dim or seq_dim", "after ':'")
            span, notes = self.settle(first)
            self.end_line("after a binding")
            return (RuntimeDim(name, kind, notes, span),)
        self.expect("=", f"after '{name[:40]}'")
        value = self.expression()
        span, notes = self.settle(first)
        self.end_line("after a binding")
        return (Let(name, value, notes, span),)

    def constraint_section(self) -> list[Binding]:
        """`'constraint' ':'` with conditions."""
        return list(self.section(self._constraint))

    def _constraint(self) -> Constraint | None:
        """`expression ',' string`."""
        if self.skip_stub():
            return None
        first = self.index
        condition = self.expression()
        self.expect(",", "after the condition of a constraint")
        message = self.string("the message of the constraint", "after ','").value
        span, notes = self.settle(first)
        self.end_line("after a constraint")
        return Constraint(condition, message, notes, span)

    def constant(self) -> Constant | None:
        """`name ':' builtin '(' argument,* ')'`."""
        if self.skip_stub():
            return None
        first = self.index
        name = self.name("the name of a constant", "in 'constants:'")
        self.expect(":", "after the name of a constant")
        start = self.index
        value = self.postfix()
        if not isinstance(value, Call):
            self.move_to(start)
            raise self.problem("a call such as zeros([4])", "after ':'")
        span, notes = self.settle(first)
        self.end_line("after a constant")
        return Constant(name, value, notes, span)

    # --- parameters -----------------------------------------------------------------------------------------

    def param(self) -> Param | None:
        """`'+'? path ':' type ('if' condition ('else' type)?)? annotation*`."""
        if self.skip_stub():
            return None
        first = self.index
        added = self.accept("+")
        path = self.path("the name of a parameter", "in 'params:'")
        self.expect(":", "after the name of a parameter")
        type_ = self.param_type()
        condition = otherwise = None
        if self.accept("if"):
            condition = self.condition()
            otherwise = self.param_type() if self.accept("else") else None
        annotations = self.annotations()
        span, notes = self.settle(first)
        self.end_line("after a parameter")
        return Param(path, type_, condition, otherwise, added, annotations, notes, span)

    def pattern_section(self) -> Sublayers:
        """`'pattern' ':' name` with `sublayers:` below it."""
        first = self.next()
        notes = self.above(first)
        self.expect(":", "after 'pattern'")
        pattern = self.name("the name of a pattern", "after 'pattern:'")
        notes = self.headed(notes)
        found, last = self.lines(self._sublayers)
        rows = tuple(row for rows in found for row in rows)
        return Sublayers(pattern, rows, self.closed(notes, last), self.span_from(first))

    def _sublayers(self) -> tuple[tuple[str, ...], ...]:
        if self.text != "sublayers":
            raise self.problem("'sublayers:'", "in 'pattern:'")
        return self.section(self._sublayer)

    def _sublayer(self) -> tuple[str, ...]:
        """`'-' '(' name,+ ')'`, or `'-' name`."""
        first = self.index
        self.expect("-", "before a sublayer")
        if self.accept("("):
            found = self.separated(lambda: self.dotted("the name of a parameter", "in a sublayer"))
            self.expect(")", "after a sublayer")
        else:
            found = [self.dotted("a parameter, or several in parentheses", "after '-'")]
        self.carry(first)
        self.end_line("after a sublayer")
        return tuple(found)

    # --- checkpoints ----------------------------------------------------------------------------------------

    def hf_field(self) -> Field | None:
        """A field of `hf_config:`."""
        return None if self.skip_stub() else self.field()

    def hf_entry(self) -> Mapping | None:
        """A line of `hf_mapping:` or `hf_export:`."""
        return None if self.skip_stub() else self.mapping()
