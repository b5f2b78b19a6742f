"""How a person sees that something is going on, and afterwards where the time went."""
