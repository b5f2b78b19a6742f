"""SkriptND, the language of operators and graphs."""
