"""Declarations with sections: modules, blocks, models and primitives."""
