"""Adapters: small additions that are trained while the model itself stays as it is."""
