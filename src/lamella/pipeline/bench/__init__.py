"""Benchmarks of whole models: ours beside peers, each in its own process, in one run."""
