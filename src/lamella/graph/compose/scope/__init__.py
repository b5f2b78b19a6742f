"""What a body knows while it is composed: its names, where it stands, and the graph that grows around it."""
