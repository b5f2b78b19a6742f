"""Products written directly as tiles, for shapes whose memory traffic decides."""
