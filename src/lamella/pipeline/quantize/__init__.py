"""Post-training quantisation: calibration, codes of weights and activations, mixed precision, the report."""
