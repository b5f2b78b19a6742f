"""NEM files and bound streams, from the file to the run."""
