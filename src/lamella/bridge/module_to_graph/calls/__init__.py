"""Operations of a graph as calls of operators."""
