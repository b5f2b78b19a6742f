"""How the operands of ATen's operations are fitted to our operators, where they say something otherwise."""
