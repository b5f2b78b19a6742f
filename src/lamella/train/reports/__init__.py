"""What a training tells beside its results: curves as CSV, as TensorBoard events and as a page."""
