"""SkriptND files and model folders, from the text to the run."""
