"""The Language Server Protocol, spoken through pygls: places and answers as editors take them.

Texts come whole with every change: pygls cuts lines where Python does, which is in more places than the protocol says,
so that pieces would go astray. A text is read when something is asked about it; whole checks run in a thread of their
own, a moment after the last change, and what they find is shown only while the text is still the same.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from lamella.base.cursor import common_ends
from lamella.base.diagnostic import Diagnostic, errors
from lamella.base.optional import Foreign, need
from lamella.base.source import Span
from lamella.lsp.features import (
    KIND_TYPES,
    MODIFIERS,
    TOKEN_TYPES,
    CannotRename,
    Repair,
    colours,
    complete,
    hover,
    rename,
    renamed,
    repairs,
)
from lamella.lsp.index import HIDDEN, Definition
from lamella.lsp.language import Word
from lamella.lsp.workspace import Checked, EditorWorkspace, FoundDefinition, TextDocument, check_text

NAME = "lamella"
DELAY = 0.2
"""Seconds without a change after which a text is checked."""
TRIGGERS = (".", "@", "%", "{")
"""Characters behind which an editor asks for words by itself."""
ENDINGS = {"lamella-module": ".module", "skriptnd": ".sknd", "lamella-tensor": ".tensor", "nem": ".nem"}
"""The languages as editors name them; a text that is no file has no ending but this."""
SEVERITIES = {"error": 1, "warning": 2, "note": 3}
SYMBOLS = {
    **dict.fromkeys(("module", "block", "model", "graph", "device"), "Class"),
    **dict.fromkeys(("operator", "kernel", "primitive"), "Function"),
    **dict.fromkeys(("family", "type"), "Interface"),
    **dict.fromkeys(("config", "attribute"), "Property"),
    **dict.fromkeys(("constant", "let", "recipe", "preset"), "Constant"),
    **dict.fromkeys(("instance", "buffer", "region", "parameter"), "Field"),
    **dict.fromkeys(("task",), "Event"),
    **dict.fromkeys(("extent", "dimension"), "TypeParameter"),
    "program": "Module",
}
COMPLETIONS = {
    "class": "Class",
    "function": "Function",
    "parameter": "Field",
    "property": "Property",
    "type": "TypeParameter",
    "namespace": "Module",
}


class Session:
    """One editor: its texts, the checks that wait or run, and the answers to what it asks."""

    def __init__(self, server: Foreign, types: Foreign, uris: Foreign) -> None:
        self.server = server
        self.types = types
        self.uris = uris
        self.workspace = EditorWorkspace()
        self._addresses: dict[Path, str] = {}
        self._timers: dict[Path, asyncio.TimerHandle] = {}
        self._checks = ThreadPoolExecutor(1, "lamella-check")
        self._shown: dict[Path, frozenset[Path]] = {}
        """By text that was checked the files that something was shown of."""
        self._tokens: dict[Path, tuple[str, list[int]]] = {}

    # --- texts ----------------------------------------------------------------------------------------------

    def start(self, params: Foreign) -> None:
        """The editor is ready: its folders and how it counts are known."""
        folders = (self.uris.to_fs_path(item.uri) for item in self.server.workspace.folders.values())
        root = self.server.workspace.root_path
        self.workspace.folders = tuple(Path(item) for item in folders if item) or (
            (Path(root),) if root else ()
        )
        encoding = self.server.workspace.position_encoding
        self.workspace.encoding = str(getattr(encoding, "value", encoding))

    def opened(self, params: Foreign) -> None:
        """A text is shown."""
        item = params.text_document
        path = self._path(item.uri, item.language_id)
        self._addresses[path] = item.uri
        self._take(path, item.text, item.version)

    def changed(self, params: Foreign) -> None:
        """A text was edited; it comes whole."""
        item = params.text_document
        self._take(self._path(item.uri), params.content_changes[-1].text, item.version)

    def saved(self, params: Foreign) -> None:
        """A file changed on disk, by the editor or otherwise: what imports it is checked again too."""
        for path in self.workspace.open:
            self._check_later(path)

    def closed(self, params: Foreign) -> None:
        """A text is shown no more; what was said about it goes."""
        path = self._path(params.text_document.uri)
        self.workspace.close(path)
        self._tokens.pop(path, None)
        timer = self._timers.pop(path, None)
        if timer is not None:
            timer.cancel()
        for place in self._shown.pop(path, frozenset()):
            self._publish(place, None, [])
        self._addresses.pop(path, None)

    def _take(self, path: Path, text: str, version: int | None) -> None:
        if self.workspace.show(path, text, version) is not None:
            self._check_later(path)

    def _path(self, uri: str, language: str = "") -> Path:
        """The file of an address; what is no file yet is called as if it lay in the working folder."""
        known = next((path for path, address in self._addresses.items() if address == uri), None)
        if known is not None:
            return known
        path = Path(self.uris.to_fs_path(uri) or uri)
        if not uri.startswith("file:") or not path.suffix:
            path = Path.cwd() / f"{path.name}{'' if path.suffix else ENDINGS.get(language, '')}"
        return path

    def _uri(self, path: Path) -> str:
        return self._addresses.get(path) or str(self.uris.from_fs_path(str(path)))

    def _document(self, params: Foreign) -> TextDocument | None:
        return self.workspace.document(self._path(params.text_document.uri))

    def _at(self, params: Foreign) -> tuple[TextDocument, int] | None:
        """The text and the offset that a request is about."""
        document = self._document(params)
        if document is None:
            return None
        return document, document.lines.offset(params.position.line, params.position.character)

    # --- checks ---------------------------------------------------------------------------------------------

    def _check_later(self, path: Path) -> None:
        """Check a text when nothing has changed for a moment."""
        timer = self._timers.pop(path, None)
        if timer is not None:
            timer.cancel()
        self._timers[path] = asyncio.get_running_loop().call_later(DELAY, self._check, path)

    def _check(self, path: Path) -> None:
        self._timers.pop(path, None)
        if path in self.workspace.open:
            loop = asyncio.get_running_loop()
            job = self._checks.submit(check_text, path, self.workspace.texts())
            job.add_done_callback(lambda done: loop.call_soon_threadsafe(self._checked, path, done))

    def _checked(self, path: Path, job: Future[Checked]) -> None:
        """Show what a check found, unless the text has changed meanwhile."""
        problem = job.exception()
        if problem is not None:
            text = f"internal error while checking {path.name}: {type(problem).__name__}: {problem}"
            self.server.window_log_message(
                self.types.LogMessageParams(type=self.types.MessageType.Error, message=text)
            )
            return
        asyncio.get_running_loop().call_later(DELAY, gc.collect)
        found, document = job.result(), self.workspace.open.get(path)
        if document is None or document.text != found.text:
            return
        document.checked = found
        for place in self._shown.get(path, frozenset()) - found.findings.keys():
            self._publish(place, None, [])
        self._shown[path] = frozenset(found.findings)
        for place, findings in found.findings.items():
            # What is open is checked for itself, and knows better what is wrong with it.
            if place == path or place not in self.workspace.open:
                self._publish(place, document.version if place == path else None, findings)

    def _publish(self, path: Path, version: int | None, findings: list[Diagnostic]) -> None:
        document = self.workspace.document(path)
        items = [self._diagnostic(document, item) for item in findings] if document is not None else []
        self.server.text_document_publish_diagnostics(
            self.types.PublishDiagnosticsParams(uri=self._uri(path), version=version, diagnostics=items)
        )

    def _diagnostic(self, document: TextDocument, finding: Diagnostic) -> Foreign:
        message = f"{finding.message}\nhint: {finding.hint}" if finding.hint else finding.message
        origins = f"\nfrom: {'  <-  '.join(finding.origins)}" if finding.origins else ""
        related = [
            self.types.DiagnosticRelatedInformation(
                location=self._location(document, item.span), message=item.text
            )
            for item in finding.labels
            if item.span.source.name == finding.span.source.name
        ]
        return self.types.Diagnostic(
            range=self._range(document, finding.span),
            message=message + origins,
            severity=self.types.DiagnosticSeverity(SEVERITIES[finding.severity]),
            code=finding.code,
            source=NAME,
            related_information=related,
        )

    # --- places ---------------------------------------------------------------------------------------------

    def _range(self, document: TextDocument, span: Span) -> Foreign:
        start, end = document.lines.place(span.start), document.lines.place(max(span.start, span.end))
        return self.types.Range(start=self.types.Position(*start), end=self.types.Position(*end))

    def _location(self, document: TextDocument, span: Span) -> Foreign:
        return self.types.Location(uri=self._uri(document.path), range=self._range(document, span))

    def _edit(self, document: TextDocument, span: Span, text: str) -> Foreign:
        return self.types.TextEdit(range=self._range(document, span), new_text=text)

    # --- what names mean ------------------------------------------------------------------------------------

    def hover(self, params: Foreign) -> Foreign:
        """What stands at a place."""
        at = self._at(params)
        found = None if at is None else hover(self.workspace, *at)
        if at is None or found is None:
            return None
        language = next((name for name, end in ENDINGS.items() if at[0].path.suffix == end), NAME)
        # Fenced, so that nothing in a text is taken for markup.
        parts = [f"~~~~~~{language}\n{found.code}\n~~~~~~"] if found.code else []
        if found.lines:
            parts.append("~~~~~~text\n" + "\n".join(found.lines) + "\n~~~~~~")
        content = self.types.MarkupContent(kind=self.types.MarkupKind.Markdown, value="\n".join(parts))
        return self.types.Hover(contents=content, range=self._range(at[0], found.span))

    def definition(self, params: Foreign) -> Foreign:
        """Where a name is defined."""
        target = self._target(params)
        return None if target is None else self._location(target.document, target.definition.span)

    def _target(self, params: Foreign) -> FoundDefinition | None:
        at = self._at(params)
        use = None if at is None else at[0].index.use_at(at[1])
        return None if at is None or use is None else self.workspace.target(at[0], use)

    def references(self, params: Foreign) -> list[Foreign]:
        """Every place that means the same."""
        target = self._target(params)
        if target is None:
            return []
        places = self.workspace.references(target)
        with_itself = params.context.include_declaration
        return [
            self._location(document, use.span)
            for document, use in places
            if with_itself or use.span != target.definition.span
        ]

    def highlight(self, params: Foreign) -> list[Foreign]:
        """The places of the same text that mean the same."""
        target, document = self._target(params), self._document(params)
        if target is None or document is None:
            return []
        meaning = target.definition
        kinds = self.types.DocumentHighlightKind
        return [
            self.types.DocumentHighlight(
                range=self._range(document, use.span), kind=kinds.Write if use.defines else kinds.Read
            )
            for use in document.index.uses
            if use.meaning is meaning
        ]

    def symbols(self, params: Foreign) -> list[Foreign]:
        """The outline of a text."""
        document = self._document(params)
        return [] if document is None else self._symbols(document, document.index.definitions)

    def _symbols(self, document: TextDocument, items: Iterable[Definition]) -> list[Foreign]:
        return [
            self.types.DocumentSymbol(
                name=item.name,
                detail=item.kind,
                kind=self._symbol_kind(item),
                range=self._range(document, item.whole),
                selection_range=self._range(document, item.span),
                children=self._symbols(document, item.children),
            )
            for item in items
            if item.kind not in HIDDEN and _holds(item.whole, item.span)
        ]

    def _symbol_kind(self, item: Definition) -> Foreign:
        return getattr(self.types.SymbolKind, SYMBOLS.get(item.kind, "Variable"))

    def workspace_symbols(self, params: Foreign) -> list[Foreign]:
        """What the files of the folders define, by a part of its name."""
        wanted, found = params.query.casefold(), []
        for path in self.workspace.files():
            document = self.workspace.document(path)
            for item in document.index.definitions if document is not None else ():
                if document is not None and wanted in item.name.casefold():
                    place = self._location(document, item.span)
                    kind = self._symbol_kind(item)
                    found.append(
                        self.types.WorkspaceSymbol(
                            location=place, name=item.name, kind=kind, container_name=path.name
                        )
                    )
        return found

    # --- writing --------------------------------------------------------------------------------------------

    def complete(self, params: Foreign) -> Foreign:
        """What may be written at a place."""
        at = self._at(params)
        if at is None:
            return None
        span, words = complete(self.workspace, *at)
        items = [self._word(at[0], span, word) for word in words]
        return self.types.CompletionList(is_incomplete=False, items=items)

    def _word(self, document: TextDocument, span: Span, word: Word) -> Foreign:
        kinds = self.types.CompletionItemKind
        name = COMPLETIONS.get(KIND_TYPES.get(word.kind, ""), "Variable")
        kind = getattr(
            kinds, {"keyword": "Keyword", "text": "Text", "instruction": "Operator"}.get(word.kind, name)
        )
        detail = f"{word.kind}  {word.detail}".strip()
        edit = self._edit(document, span, word.text)
        return self.types.CompletionItem(label=word.text, kind=kind, detail=detail, text_edit=edit)

    def can_rename(self, params: Foreign) -> Foreign:
        """The name that would be renamed; None where it is not the user's."""
        at = self._at(params)
        use = None if at is None else at[0].index.use_at(at[1])
        if at is None or use is None:
            return None
        try:
            renamed(self.workspace, *at)
        except CannotRename:
            return None
        return self._range(at[0], use.span)

    def rename(self, params: Foreign) -> Foreign:
        """Another name in every place that means the same."""
        at = self._at(params)
        if at is None:
            return None
        try:
            target = renamed(self.workspace, *at)
            places = rename(self.workspace, target, params.new_name)
        except CannotRename as problem:
            error = self.types.ErrorCodes.InvalidParams
            raise need("pygls.exceptions").JsonRpcException(message=str(problem), code=error.value) from None
        changes: dict[str, list[Foreign]] = {}
        for document, span in places:
            edit = self._edit(document, span, params.new_name)
            changes.setdefault(self._uri(document.path), []).append(edit)
        return self.types.WorkspaceEdit(changes=changes)

    def format(self, params: Foreign) -> list[Foreign] | None:
        """The canonical form; nothing as long as the text cannot be read."""
        document = self._document(params)
        if document is None or errors(document.index.findings):
            return None
        after = document.language.canonical(document.index)
        before = document.text
        if after == before:
            return []
        start, tail = common_ends(before, after)
        span = Span(document.index.source, start, len(before) - tail)
        return [self._edit(document, span, after[start : len(after) - tail])]

    def actions(self, params: Foreign) -> list[Foreign]:
        """What the hints of findings ask for; only as long as the text is the one that was checked."""
        document = self._document(params)
        if document is None or document.checked.text != document.text:
            return []
        first = document.lines.offset(params.range.start.line, params.range.start.character)
        last = document.lines.offset(params.range.end.line, params.range.end.character)
        findings = document.checked.findings.get(document.path, [])
        touched = (
            item
            for item in findings
            if item.span.start <= last and first <= max(item.span.end, item.span.start)
        )
        return [
            self._action(document, finding, repair)
            for finding in touched
            for repair in repairs(document, finding)
        ]

    def _action(self, document: TextDocument, finding: Diagnostic, repair: Repair) -> Foreign:
        edit = self._edit(document, repair.span, repair.text)
        return self.types.CodeAction(
            title=repair.title,
            kind=self.types.CodeActionKind.QuickFix,
            diagnostics=[self._diagnostic(document, finding)],
            is_preferred=True,
            edit=self.types.WorkspaceEdit(changes={self._uri(document.path): [edit]}),
        )

    # --- colours --------------------------------------------------------------------------------------------

    def tokens(self, params: Foreign) -> Foreign:
        """The colours of a whole text."""
        document = self._document(params)
        if document is None:
            return None
        data = _encoded(document, 0, None)
        name = str(document.version)
        self._tokens[document.path] = (name, data)
        return self.types.SemanticTokens(data=data, result_id=name)

    def changed_tokens(self, params: Foreign) -> Foreign:
        """What has changed in the colours since they were asked for last: one stretch."""
        document = self._document(params)
        if document is None:
            return None
        name, before = self._tokens.get(document.path, ("", []))
        whole = self.tokens(params)
        if name != params.previous_result_id:
            return whole
        start, tail = common_ends(before, whole.data)
        middle = whole.data[start : len(whole.data) - tail]
        edit = self.types.SemanticTokensEdit(
            start=start, delete_count=len(before) - start - tail, data=middle
        )
        return self.types.SemanticTokensDelta(edits=[edit], result_id=whole.result_id)

    def tokens_in(self, params: Foreign) -> Foreign:
        """The colours of a part of a text."""
        document = self._document(params)
        if document is None:
            return None
        start = document.lines.offset(params.range.start.line, params.range.start.character)
        end = document.lines.offset(params.range.end.line, params.range.end.character)
        return self.types.SemanticTokens(data=_encoded(document, start, end))


def _holds(whole: Span, inner: Span) -> bool:
    """Whether an editor takes the two as a thing and its name."""
    return whole.start <= inner.start and inner.end <= whole.end


def _encoded(document: TextDocument, start: int, end: int | None) -> list[int]:
    """Colours as the protocol has them: five numbers each, places relative to the one before."""
    data: list[int] = []
    last_line = last_column = 0
    found = colours(document, start, end)
    places = document.lines.stretches((first, last) for first, last, _, _ in found)
    for (_, _, kind, bits), (line, column, width) in zip(found, places, strict=True):
        data += (line - last_line, column - (last_column if line == last_line else 0), width, kind, bits)
        last_line, last_column = line, column
    return data


def make_server(version: str) -> Foreign:
    """The server with all that it answers."""
    types, uris = need("lsprotocol.types"), need("pygls.uris")
    kind = types.TextDocumentSyncKind.Full
    server = need("pygls.lsp.server").LanguageServer(NAME, version, text_document_sync_kind=kind)
    session = Session(server, types, uris)
    legend = types.SemanticTokensLegend(token_types=list(TOKEN_TYPES), token_modifiers=list(MODIFIERS))
    options = {
        types.TEXT_DOCUMENT_COMPLETION: types.CompletionOptions(trigger_characters=list(TRIGGERS)),
        types.TEXT_DOCUMENT_RENAME: types.RenameOptions(prepare_provider=True),
        types.TEXT_DOCUMENT_CODE_ACTION: types.CodeActionOptions(
            code_action_kinds=[types.CodeActionKind.QuickFix]
        ),
        types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL: legend,
        types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL_DELTA: legend,
        types.TEXT_DOCUMENT_SEMANTIC_TOKENS_RANGE: legend,
    }
    answers: dict[str, Callable[[Foreign], Foreign]] = {
        types.INITIALIZED: session.start,
        types.TEXT_DOCUMENT_DID_OPEN: session.opened,
        types.TEXT_DOCUMENT_DID_CHANGE: session.changed,
        types.TEXT_DOCUMENT_DID_SAVE: session.saved,
        types.WORKSPACE_DID_CHANGE_WATCHED_FILES: session.saved,
        types.TEXT_DOCUMENT_DID_CLOSE: session.closed,
        types.TEXT_DOCUMENT_HOVER: session.hover,
        types.TEXT_DOCUMENT_DEFINITION: session.definition,
        types.TEXT_DOCUMENT_REFERENCES: session.references,
        types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT: session.highlight,
        types.TEXT_DOCUMENT_DOCUMENT_SYMBOL: session.symbols,
        types.WORKSPACE_SYMBOL: session.workspace_symbols,
        types.TEXT_DOCUMENT_COMPLETION: session.complete,
        types.TEXT_DOCUMENT_PREPARE_RENAME: session.can_rename,
        types.TEXT_DOCUMENT_RENAME: session.rename,
        types.TEXT_DOCUMENT_FORMATTING: session.format,
        types.TEXT_DOCUMENT_CODE_ACTION: session.actions,
        types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL: session.tokens,
        types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL_DELTA: session.changed_tokens,
        types.TEXT_DOCUMENT_SEMANTIC_TOKENS_RANGE: session.tokens_in,
    }
    for name, answer in answers.items():
        # pygls marks what it is given, which a method does not allow.
        server.feature(name, options.get(name))(partial(answer))
    return server


def serve(version: str) -> None:
    """Answer an editor over standard input and output until it hangs up."""
    # What is wrong with a request is said in the answer to it, once.
    logging.getLogger("pygls").setLevel(logging.CRITICAL)
    # Cycles are looked for between a check and the next key, never while an answer is waited for.
    gc.freeze()
    gc.disable()
    make_server(version).start_io()
