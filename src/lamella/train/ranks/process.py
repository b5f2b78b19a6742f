"""A process that is one of several ranks: `python -m` of it takes its work from the process that started it."""

from __future__ import annotations

import os
import pickle
import sys

from lamella.train.ranks.launch import be_rank


def main() -> None:
    """Do the work of a rank, and end: whoever still exchanges does not keep the process."""
    status = be_rank(*pickle.load(sys.stdin.buffer))
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
