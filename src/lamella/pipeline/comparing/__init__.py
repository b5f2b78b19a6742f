"""Two models beside each other: their interfaces, their weights, their operations, their numbers."""
