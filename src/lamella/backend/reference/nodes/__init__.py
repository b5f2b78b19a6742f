"""The nodes of a graph, run in order: operations, branches, loops."""
