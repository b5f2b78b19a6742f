"""The engine that binds, evaluates and writes out one call of an operator."""
