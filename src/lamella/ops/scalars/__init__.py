"""Single values: what they are, and the operators and functions on them."""
