"""Formulas run with NumPy: contractions straight from their text, vectorised."""
