"""Module DSL files and Hugging Face folders for the API and the commands."""
