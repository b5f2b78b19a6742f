"""Names: what they mean, and that they mean one thing: E002, E009, E023, E024, E102, W001, W002, W115."""

from __future__ import annotations

from lamella.base.diagnostic import WARNING, Rule

UNKNOWN = Rule("E002", "2.4 Identifiers", "'{name}' is not defined {where}", hint="{repair}")
UNKNOWN_ARGUMENT = UNKNOWN.also("'{module}' has no parameter '{name}'", hint="{repair}")
UNKNOWN_IMPORT = UNKNOWN.also("there is no '{name}' to import from {where}", hint="{repair}")
UNKNOWN_VERSION = UNKNOWN.also("'{name}' has no version {version}", hint="there is {repair}")
UNREADABLE_IMPORT = UNKNOWN.also("'{name}' cannot be imported: {why}", hint="{repair}")
SWITCHED_OFF = UNKNOWN.also(
    "'{name}' does not exist here: its condition {condition} is false",
    hint="guard its use with the same condition",
)
EXPORTED = UNKNOWN.also(
    "'{name}' is exported as a {wanted}, but it is a {found}", hint="write export {found} {name}"
)
DUPLICATE = Rule(
    "E009", "4 Declarations", "the {kind} '{name}' is declared twice in {where}", hint="rename one of them"
)
RESERVED = DUPLICATE.also("'{name}' is a reserved name and cannot be a {kind}", hint="choose another name")
CONFLICT = Rule(
    "E023",
    "4.7.1 Import Resolution Rules",
    "'{name}' is imported from {first} and from {second}",
    hint="give one of them another name with 'as'",
)
ALIAS = Rule(
    "E024",
    "4.7.1 Import Resolution Rules",
    "the alias '{name}' is already the name of {what}",
    hint="choose another alias",
)
LOCK = Rule(
    "E102",
    "4.7.1 Import Resolution Rules",
    "'{name}' is {found} in the lock file, but the import leads to {wanted}",
    hint="write the lock file again, or import the version that it names",
)
LOCK_FORM = LOCK.also("the lock file has '{text}' where {wanted} is needed", hint="write the lock file again")
HIDES_PRIMITIVE = Rule(
    "W001",
    "4.7.1 Import Resolution Rules",
    "'{name}' hides the primitive of that name",
    WARNING,
    hint="rename it if the primitive is meant somewhere in this file",
)
HIDES_IMPORT = Rule(
    "W002",
    "4.7.1 Import Resolution Rules",
    "'{name}' hides what is imported from {where}",
    WARNING,
    hint="rename it, or import the other under an alias",
)
HIDDEN_BY_LIBRARY = Rule(
    "W115",
    "10.1 Module Organization",
    "{what} is not read: '{name}' means that of the library",
    WARNING,
    hint="give it a name that the library does not have",
)
