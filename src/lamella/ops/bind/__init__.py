"""Binding one call of an operator: element types, attributes, shapes, helper symbols, assertions, outputs."""
