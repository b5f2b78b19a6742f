"""Liveness of results under a memory schedule, and its checks."""
