"""What the memory schedule keeps, and for how long."""
