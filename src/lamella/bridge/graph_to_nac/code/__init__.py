"""Calls as instructions: their arguments, their tables, their places."""
