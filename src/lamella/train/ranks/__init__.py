"""Training on several ranks: a mesh of processes, the graph of each, and what they exchange."""
