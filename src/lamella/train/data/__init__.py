"""Data for training: files of many kinds as items that batches are taken of."""
