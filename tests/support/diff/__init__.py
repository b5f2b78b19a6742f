"""Random small models, and faults planted in them, for the judge of `lamella diff`."""
