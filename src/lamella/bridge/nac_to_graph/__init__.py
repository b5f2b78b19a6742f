"""What a NAC file says, as a graph and its data."""
