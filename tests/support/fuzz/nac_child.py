"""Walks mutated NAC files in a process of little memory; how many and how much memory goes out as JSON.

`python -m tests.support.fuzz.nac_child FIRST COUNT`
"""

from __future__ import annotations

import json
import resource
import sys
from random import Random

from tests.support.fuzz.nac_field_mutate import mutate
from tests.support.fuzz.nac_seeds import seeds
from tests.support.fuzz.nac_walk import walk

ADDRESSES = 100 << 20
"""Bytes of addresses that the cases may take beyond those that the program has when it begins."""


def main(first: int, count: int) -> None:
    """Walk the cases in order."""
    known = seeds()
    with open("/proc/self/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + ADDRESSES, taken + ADDRESSES))
    for number in range(first, first + count):
        walk(mutate(known, Random(f"child:{number}")))
    # The peak that getrusage tells is that of the process that started this one, where it was larger.
    with open("/proc/self/status", encoding="ascii") as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    sys.stdout.write(json.dumps({"cases": count, "kib": kib}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
