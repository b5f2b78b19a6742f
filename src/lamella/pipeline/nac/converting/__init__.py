"""Models into NAC files: written, quantised, with other weights, with what they are to carry."""
