"""NAC files and their assembly texts, from the file to the API."""
