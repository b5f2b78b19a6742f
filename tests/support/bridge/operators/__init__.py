"""Calls of every operator of the library, in several types and shapes."""
