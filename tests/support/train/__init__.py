"""Support of the tests of training."""
