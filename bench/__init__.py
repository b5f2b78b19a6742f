"""Measurements against peers, each a module to run: `python -m bench.models`."""

import sys

# transformers loads torchvision where it finds it, and fails with one that is built for another torch; the models here
# need none. `bench.coverage.zoo`, which draws modules from it, takes it back.
sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]  # which is how a package is hidden
