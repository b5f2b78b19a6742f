"""What goes wrong where tokenizers are read, run or made: NAC250 to NAC259."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

PATTERN = Rule(
    "NAC250",
    "6.2 PROC",
    "the pattern '{pattern}' {reason}",
    hint="patterns have classes, groups, choices, counts and a look at the next character; they run in linear time",
)
NO_MANIFEST = Rule(
    "NAC251",
    "6.2 PROC",
    "the file has no manifest of a tokenizer",
    hint="a manifest stands in section PROC",
)
NO_VOCABULARY = Rule(
    "NAC252",
    "6.3 RSRC",
    "{name} needs a vocabulary, and the file has none",
    hint="a vocabulary is the resource 'vocab.b', 'tokenizer.json' or 'vocab.json'",
)
VOCABULARY = Rule(
    "NAC253",
    "6.3 RSRC",
    "resource '{name}' {problem}",
    hint="resources of tokenizers are written together with their manifest",
)
ORDER = Rule(
    "NAC254",
    "6.2 PROC",
    "{name} at place {place} of the manifest {problem}",
    hint="texts are changed, then split, then one instruction encodes them; a template and the ways back follow",
)
TOKEN = Rule(
    "NAC255",
    "6.2 PROC",
    "{name} names the token '{token}', which the vocabulary does not have",
    hint="tokens of a manifest are tokens of its vocabulary",
)
DOCUMENT = Rule(
    "NAC256",
    "6.2 PROC",
    "{place} of the tokenizer {problem}",
    hint="a tokenizer is the JSON text that the package 'tokenizers' saves",
)
NO_INSTRUCTION = Rule(
    "NAC257",
    "6.2 PROC",
    "{place} of the tokenizer is {what}, which no instruction says",
    hint="the page on tokenizers lists what manifests can say",
)
LEFT_OUT = Rule(
    "NAC258",
    "6.2 PROC",
    "{place} of the tokenizer is left out: {reason}",
    WARNING,
    hint="ids of single texts are the same without it",
)
GROWTH = Rule(
    "NAC259",
    "6.2 PROC",
    "{name} at place {place} of the manifest lets a text grow more than {most} times",
    hint="put shorter texts into it, or fewer",
)
