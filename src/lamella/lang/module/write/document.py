"""Documents and declarations as lines."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatchmethod

from lamella.base.source import NO_NOTES
from lamella.lang.module import nodes as n
from lamella.lang.module.write.expressions import write_expression
from lamella.lang.module.write.sections import SectionWriter
from lamella.lang.module.write.strings import quote
from lamella.lang.module.write.types import write_config_param
from lamella.lang.module.write.wrap import fits, wrap

LINES = (n.Import, n.Export)


class DocumentWriter(SectionWriter):
    """Writes a file from its docstring to its last declaration."""

    def write(self, node: n.Document) -> str:
        """The text of a document; a blank line stands between its declarations."""
        self.comments(node.notes.above)
        self.document(node.doc)
        before: n.Item | None = None
        for item in node.items:
            is_grouped = isinstance(item, LINES) and type(item) is type(before)
            self.item(item, not is_grouped)
            before = item
        self._end(node)
        return self.text()

    def _end(self, node: n.Document) -> None:
        if node.notes.last:
            self.lines += [""] * bool(node.items)
            self.comments(node.notes.last)

    @singledispatchmethod
    def item(self, node: n.Item, apart: bool) -> None:
        """Write an import, an export or a declaration."""
        raise TypeError(f"{type(node).__name__} is not an item of a document")

    @item.register
    def _(self, node: n.Import, apart: bool) -> None:
        self.place(node.notes, _import_lines(node), apart)

    @item.register
    def _(self, node: n.Export, apart: bool) -> None:
        self.put(node.notes, f"export {node.kind} {node.name}".rstrip(), apart)

    @item.register
    def _(self, node: n.Broken, apart: bool) -> None:
        """What could not be read is written as it was."""
        self.place(NO_NOTES, node.span.text.rstrip().splitlines(), apart)

    # --- modules --------------------------------------------------------------------------------------------

    @item.register
    def _(self, node: n.Module, apart: bool) -> None:
        self._head(node, apart)
        self.document(node.doc)
        self.annotations(node.annotations, apart=True)
        self.bindings(node.bindings)
        self.constants(node.constants)
        self.tensors(node.tensors)
        self.sublayers(node.sublayers)
        self.forward(node.forward)
        self.backward(node.backward)
        if node.hf_config is not None:
            self.begin(NO_NOTES, "hf_config:", apart=True)
            self.fields(node.hf_config)
            self.level -= 1
        self.mappings("hf_mapping", node.hf_mapping)
        self.mappings("hf_export", node.hf_export)
        self._finish(node)

    def _head(self, node: n.Module, apart: bool) -> None:
        """The first line of a module; comments beside its parameters force them onto lines of their own."""
        start = f"{'abstract ' * node.abstract}{node.kind} {node.name}"
        end = f" extends {node.extends}:" if node.extends is not None else ":"
        params = node.params or ()
        if not any(param.notes.above or param.notes.behind for param in params):
            text = f"({', '.join(map(write_config_param, params))})" if node.params is not None else ""
            self.begin(node.notes, start + text + end, apart)
            return
        self.above(node.notes, apart)
        self.open_block(NO_NOTES, f"{start}(")
        for index, param in enumerate(params):
            comma = "," if index + 1 < len(params) else ""
            self.put(param.notes, write_config_param(param) + comma)
        self.level -= 1
        self.lines.append(f"){end}" + (f"  {node.notes.behind}" if node.notes.behind else ""))
        self.level += 1

    def _finish(self, node: n.Module | n.Primitive) -> None:
        """The end of a declaration: `...` where it is not finished, and the comments there."""
        if node.stub:
            self.put(NO_NOTES, "...", apart=True)
        self.end(node.notes)

    # --- primitives, recipes and presets --------------------------------------------------------------------

    @item.register
    def _(self, node: n.Primitive, apart: bool) -> None:
        self.begin(node.notes, f"primitive {node.name}:", apart)
        self.document(node.doc)
        self.config_params(node.params)
        self.signature("forward", node.forward)
        self.signature("backward", node.backward)
        if node.save is not None:
            self.above(NO_NOTES, apart=True)
        self.selection("save", node.save)
        self.fields(node.sections, apart=True)
        self._finish(node)

    def signature(self, name: str, node: n.Signature | None) -> None:
        """Write `forward:` or `backward:` of a primitive."""
        if node is None:
            return
        self.begin(node.notes, f"{name}:", apart=True)
        if node.native:
            self.put(NO_NOTES, "_")
        self.ports("in", "inputs", node.inputs)
        self.ports("out", "outputs", node.outputs)
        for item in node.equations:
            targets = ", ".join(item.targets)
            left = targets if len(item.targets) == 1 else f"({targets})"
            self.put(item.notes, f"{left} = {write_expression(item.value)}")
        self.fields(node.fields)
        self.end(node.notes)

    @item.register
    def _(self, node: n.Recipe | n.Preset, apart: bool) -> None:
        word = "recipe" if isinstance(node, n.Recipe) else "preset"
        self.begin(node.notes, f"{word} {node.name}:", apart)
        self.document(node.doc)
        if node.doc and node.fields:
            self.above(NO_NOTES, apart=True)
        self.fields(node.fields)
        self.end(node.notes)

    @item.register
    def _(self, node: n.Setting, apart: bool) -> None:
        self.begin(node.notes, f"{node.kind}:", apart)
        self.document(node.doc)
        if node.doc and node.fields:
            self.above(NO_NOTES, apart=True)
        fields = node.fields
        if node.kind == "groups":
            fields = tuple(replace(item, name=quote(item.name)) for item in fields)
        self.fields(fields)
        self.end(node.notes)


def _import_lines(node: n.Import) -> list[str]:
    version = () if node.version is None else (f"v{node.version}",)
    path = ".".join((*node.path, *version))
    if node.names is None:
        return [f"import {path}{_alias(node.alias)}"]
    if not node.names:
        return [f"import {path}.*"]
    names = ", ".join(item.name + _alias(item.alias) for item in node.names)
    line = f"from {path} import {names}"
    return [line] if fits(line, 0) else wrap(f"import {path}.{{{names}}}", 0)


def _alias(name: str | None) -> str:
    return "" if name is None else f" as {name}"
