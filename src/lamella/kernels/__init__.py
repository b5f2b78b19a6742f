"""Kernels: tensor-language programs made ready for a target, step by step and each step a program that can be read."""
