"""The five languages, built alike; none imports another."""
