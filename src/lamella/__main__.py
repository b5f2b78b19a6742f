"""`python -m lamella` is the command `lamella`."""

from lamella.cli import main

main()
