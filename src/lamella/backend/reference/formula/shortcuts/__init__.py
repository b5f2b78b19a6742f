"""Formulas that are run at one go: sums of products, searches for an extreme, running sums."""
