"""Calls of ATen operations: drawn operands, and torch as the judge."""
