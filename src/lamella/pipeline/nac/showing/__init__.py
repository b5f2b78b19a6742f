"""What is in a NAC file, for people: as text, as a picture, with what its instructions give."""
