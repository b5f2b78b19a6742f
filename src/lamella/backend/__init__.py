"""Ways to run a form: each backend takes one form and gives numbers."""
