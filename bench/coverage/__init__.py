"""Coverage: hundreds of modules of other people, exported, compared with eager mode, and timed against it."""
