"""Constants and scalars: shapes, numbers, and what only the run can compute."""
