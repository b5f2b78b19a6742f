"""The engine: evaluation, binding and formulas."""
