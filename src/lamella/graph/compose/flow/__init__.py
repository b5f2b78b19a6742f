"""Control flow: branches and loops, decided before the run where that is possible."""
