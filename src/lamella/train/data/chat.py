"""Chat templates: conversations as the text that a model was trained on, by the Jinja text of its folder.

The text comes from a file, so it runs in the sandbox of the package jinja2 that forbids changing values, without the
attributes of Python objects, and with a budget of what it may repeat.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lamella.base.diagnostic import printable
from lamella.base.errors import InputError
from lamella.base.limits import Limits
from lamella.base.optional import Foreign, need
from lamella.base.paths import is_there, read_text_in, shown

TEMPLATE_FILE = "chat_template.jinja"
TEMPLATE_KEY = "chat_template"
LONGEST = 1 << 20
"""Characters of a template, and of a conversation."""
MOST_REPEATED = 100_000
"""Numbers that `range` gives in one conversation."""
MOST_NESTED = 4
"""Loops of a template that may lie in each other."""
ASSISTANT = "assistant"


class ChatTemplate:
    """A template that writes conversations."""

    def __init__(self, text: str, tokens: Mapping[str, str], where: str) -> None:
        self._where = where
        self._tokens = dict(tokens)
        self._jinja = need("jinja2")
        environment: Foreign = self._environment()
        environment.globals["raise_exception"] = self._refuse
        environment.globals["range"] = self._range
        environment.filters["tojson"] = _to_json
        self._left = MOST_REPEATED
        try:
            if _depth(environment.parse(text), self._jinja.nodes.For) > MOST_NESTED:
                raise self._error(f"more than {MOST_NESTED} loops lie in each other")
            self._template: Foreign = environment.from_string(text)
        except self._jinja.TemplateError as problem:
            raise self._error(str(problem)) from None
        except RecursionError:
            raise self._error("it nests too deeply") from None

    def _environment(self) -> Foreign:
        """A sandbox whose products are as long as a conversation at most: a file must not ask for all memory."""
        plain = need("jinja2.sandbox").ImmutableSandboxedEnvironment

        def call_binop(
            environment: Foreign, context: Foreign, operator: str, left: Foreign, right: Foreign
        ) -> Foreign:
            if operator == "**" or any(_length(item) > LONGEST for item in (left, right)):
                raise self._error(f"the operator {operator} is not for numbers of this size")
            texts = [item for item in (left, right) if isinstance(item, str | list | tuple)]
            if texts and len(texts[0]) * _length(left if texts[0] is right else right) > LONGEST:
                raise self._error(f"it writes more than {LONGEST} characters")
            return plain.call_binop(environment, context, operator, left, right)

        words = {"intercepted_binops": frozenset(("*", "**")), "call_binop": call_binop}
        return type("Sandbox", (plain,), words)(trim_blocks=True, lstrip_blocks=True)

    def render(self, messages: Sequence[Mapping[str, object]], is_asked: bool = False) -> str:
        """The text of a conversation; where an answer is asked for, with what comes before it."""
        self._left = MOST_REPEATED
        words = {"messages": list(messages), "add_generation_prompt": is_asked, **self._tokens}
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(**words):
                parts.append(part)
                size += len(part)
                if size > LONGEST:
                    raise self._error(f"it writes more than {LONGEST} characters")
        except (self._jinja.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as problem:
            raise self._error(str(problem)) from None
        except RecursionError:
            raise self._error("it nests too deeply") from None
        return "".join(parts)

    def answers(self, messages: Sequence[Mapping[str, object]], text: str) -> Iterator[tuple[int, int]]:
        """Where the text of a conversation is what an assistant says, with what ends its turn."""
        for number, message in enumerate(messages):
            if message.get("role") != ASSISTANT:
                continue
            before = self.render(messages[:number], is_asked=True)
            through = self.render(messages[: number + 1])
            if not through.startswith(before) or not text.startswith(through):
                raise self._error(
                    "what it writes of a conversation is no beginning of what it writes of a longer one"
                )
            yield len(before), len(through)

    def _range(self, *bounds: int) -> range:
        found = range(*bounds)
        self._left -= len(found)
        if self._left < 0:
            raise self._error(f"it repeats more than {MOST_REPEATED} times")
        return found

    def _refuse(self, message: object) -> None:
        raise self._error(str(message))

    def _error(self, why: str) -> InputError:
        return InputError(f"the chat template of '{self._where}' fails: {printable(why, 300)}")


def _length(item: Foreign) -> float:
    return abs(item) if isinstance(item, int | float) else 0.0


def _depth(node: Foreign, kind: type) -> int:
    """How many nodes of a kind lie in each other; without recursion, because the text decides how deep it nests."""
    deepest, rest = 0, [(node, 0)]
    while rest:
        item, depth = rest.pop()
        inside = depth + isinstance(item, kind)
        deepest = max(deepest, inside)
        rest += [(child, inside) for child in item.iter_child_nodes()]
    return deepest


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def open_template(folder: Path, config: Mapping[str, object], limits: Limits) -> ChatTemplate:
    """The chat template of a folder; InputError where there is none."""
    text = config.get(TEMPLATE_KEY)
    if is_there(folder / TEMPLATE_FILE):
        text = read_text_in(folder, TEMPLATE_FILE, limits)
    if not isinstance(text, str) or not text:
        hint = f"put the template into {TEMPLATE_FILE}, or give records with 'prompt' and 'completion'"
        raise InputError(
            f"'{shown(folder)}' has no chat template for 'messages'", path=shown(folder), hint=hint
        )
    if len(text) > LONGEST:
        raise InputError(f"the chat template has {len(text)} characters", path=shown(folder))
    tokens = {
        key: word
        for key, value in config.items()
        if key.endswith("_token") and isinstance(word := _content(value), str)
    }
    return ChatTemplate(text, tokens, shown(folder))


def _content(value: object) -> object:
    """A special token as a text, or as an object that says more about it."""
    return value.get("content") if isinstance(value, dict) else value
