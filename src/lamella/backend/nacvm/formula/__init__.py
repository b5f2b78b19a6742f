"""Formulas as direct NumPy calls: what the structure of a formula says, found once, before the run."""
