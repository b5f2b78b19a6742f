"""What the operations of a graph are in the words of NAC, and the graph that these words make."""
